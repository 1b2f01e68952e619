//! `cargo xtask bench`: the same load on Apache's servers and on gracchus, in alternation, as a table with ratios.

use crate::tools::{root, run};
use anyhow::{Context, Result};
use std::process::{Command, Stdio};

#[derive(clap::Args)]
pub struct Options {
    /// Suites of bench/README.md.
    #[arg(long, default_value = "produce,consume,start,zk")]
    suites: String,
    /// One pass, shorter.
    #[arg(long)]
    quick: bool,
    /// Servers to compare, in order: names in bench/targets.
    #[arg(default_values_t = ["kafka39".to_string(), "ours".to_string()])]
    targets: Vec<String>,
}

/// Builds the release binary, runs the load and writes `bench/results/DATE.{jsonl,md}`.
pub fn bench(options: &Options) -> Result<()> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    run(Command::new(cargo).current_dir(root()).args([
        "build",
        "--release",
        "--quiet",
        "--package",
        "gracchus",
    ]))?;
    let root = root().canonicalize()?;
    let date = Command::new("date").arg("+%Y-%m-%d-%H%M").output()?;
    let name = String::from_utf8(date.stdout).context("the date")?;
    let out = root.join(format!("bench/results/{}.jsonl", name.trim()));
    let mut load = Command::new("bash");
    load.arg(root.join("bench/run.sh"))
        .args(["--suites", &options.suites, "--out"])
        .arg(&out)
        .env("OURS_BIN", root.join("target/release/gracchus"));
    if options.quick {
        load.arg("--quick");
    }
    run(load.args(&options.targets))?;
    let table = Command::new("python3")
        .arg(root.join("bench/table.py"))
        .arg(&out)
        .stderr(Stdio::inherit())
        .output()?;
    let file = out.with_extension("md");
    std::fs::write(&file, &table.stdout)?;
    println!("{}", String::from_utf8_lossy(&table.stdout));
    println!(
        "written to {}; note the conditions at its top",
        file.display()
    );
    Ok(())
}
