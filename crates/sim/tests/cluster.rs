//! Seeds of the simulated cluster. `GRACCHUS_SIM_SEED=n` plays one alone (`GRACCHUS_SIM_TRACE=1` tells everything as it
//! happens); `GRACCHUS_TEST_LONG=1` plays thousands. A seed that fails prints what happened last, in order.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::sync::atomic::{AtomicU64, Ordering};

use gracchus_sim::play;

fn must_hold(seed: u64) -> gracchus_sim::Summary {
    play(seed).unwrap_or_else(|trace| panic!("{trace}\nseed {seed}: GRACCHUS_SIM_SEED={seed}"))
}

#[test]
fn any_order_of_faults_keeps_the_cluster_sound() {
    if let Ok(seed) = std::env::var("GRACCHUS_SIM_SEED") {
        println!("{:?}", must_hold(seed.parse().unwrap()));
        return;
    }
    let long = std::env::var_os("GRACCHUS_TEST_LONG").is_some_and(|v| v != "0");
    let seeds = if long { 3_000 } else { 8 };
    all_hold(0, seeds);
}

fn all_hold(first: u64, seeds: u64) {
    let next = AtomicU64::new(first);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + seeds {
                        return;
                    }
                    println!("{seed} {:?}", must_hold(seed));
                }
            });
        }
    });
}

/// Else a failure could not be played again.
#[test]
fn a_seed_is_always_the_same_run() {
    for seed in 0..2 {
        assert_eq!(must_hold(seed), must_hold(seed), "seed {seed}");
    }
}
