//! The answers of Produce, Fetch, ListOffsets and their relatives, field by field, against what Apache Kafka 3.9.2 gave to
//! the same requests (`tests/golden/replica-answers.txt`).
//!
//! The file is captured with `GRACCHUS_CAPTURE_ANSWERS=HOST:PORT cargo test -p gracchus-broker --test answers`, from a
//! fresh Kafka 3.9.2 with `auto.create.topics.enable=false`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[path = "../replicas/rig.rs"]
#[allow(dead_code, reason = "shared with the tests of replicas")]
mod rig;
mod script;
mod target;

const GOLDEN: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/golden/replica-answers.txt"
);

#[tokio::test]
async fn answers_are_kafkas() {
    if let Ok(address) = std::env::var("GRACCHUS_CAPTURE_ANSWERS") {
        let answers = script::run(&mut target::Network::connect(&address)).await;
        let origin = "# Captured from Apache Kafka 3.9.2: answers to the requests of tests/answers/script.rs\n";
        std::fs::write(GOLDEN, origin.to_owned() + &answers).unwrap();
        return;
    }
    let golden = std::fs::read_to_string(GOLDEN).unwrap();
    let ours = script::run(&mut target::InProcess::new()).await;
    let mut differences = Vec::new();
    let theirs: Vec<&str> = golden
        .lines()
        .filter(|line| !line.starts_with("# "))
        .collect();
    let ours: Vec<&str> = ours.lines().collect();
    assert_eq!(theirs.len(), ours.len());
    for (theirs, ours) in theirs.chunks(2).zip(ours.chunks(2)) {
        if theirs != ours {
            differences.push(format!(
                "{}\n kafka {}\n ours  {}",
                theirs[0], theirs[1], ours[1]
            ));
        }
    }
    assert!(
        differences.is_empty(),
        "{} differences\n{}",
        differences.len(),
        differences.join("\n")
    );
}
