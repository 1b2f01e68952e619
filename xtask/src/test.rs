//! `cargo xtask test`: everything that CI checks, in one command.

use crate::tools::{self, root, run};
use anyhow::{Result, bail};
use std::process::Command;
use std::time::Instant;

#[derive(clap::Args)]
pub struct Options {
    /// Also what takes long: many seeds, many kills, soaks.
    #[arg(long)]
    long: bool,
    /// Install missing Debian packages (needs root; implied in CI).
    #[arg(long)]
    install: bool,
    /// Only these parts (default: all).
    #[arg(long, value_delimiter = ',')]
    only: Vec<Part>,
    /// Passed to pytest, for instance `-k kazoo`.
    #[arg(last = true)]
    pytest: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum, Debug)]
enum Part {
    /// cargo fmt --check, licences of the dependencies, clippy with warnings denied
    Lint,
    /// unit, property and golden tests of every crate
    Unit,
    /// real clients and the JVM servers
    Interop,
}

const PARTS: [Part; 3] = [Part::Lint, Part::Unit, Part::Interop];

/// Runs the parts in order; fails at the end if any failed, or, in CI, if any could not be run.
pub fn all_parts(options: &Options) -> Result<()> {
    let in_ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false");
    let mut failed = Vec::new();
    let mut skipped = Vec::new();
    for part in PARTS {
        if !options.only.is_empty() && !options.only.contains(&part) {
            continue;
        }
        println!("== {part:?}");
        let start = Instant::now();
        let outcome = match part {
            Part::Lint => lint(),
            Part::Unit => unit(options),
            Part::Interop => interop(options, in_ci, &mut skipped),
        };
        match outcome {
            Ok(()) => println!("== {part:?} ended after {} s", start.elapsed().as_secs()),
            Err(error) => {
                println!("== {part:?} FAILED: {error:#}");
                failed.push(part);
            }
        }
    }
    for part in &skipped {
        println!("skipped: {part}");
    }
    if !failed.is_empty() {
        bail!("failed: {failed:?}");
    }
    if in_ci && !skipped.is_empty() {
        bail!("in CI nothing may be skipped");
    }
    Ok(())
}

fn cargo() -> Command {
    let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
    command.current_dir(root());
    command
}

fn lint() -> Result<()> {
    run(cargo().args(["fmt", "--all", "--check"]))?;
    crate::dependencies::check()?;
    run(cargo().args([
        "clippy",
        "--workspace",
        "--all-targets",
        "--quiet",
        "--",
        "-D",
        "warnings",
    ]))
}

fn unit(options: &Options) -> Result<()> {
    let mut command = cargo();
    command.args(["test", "--workspace", "--quiet"]);
    if options.long {
        command.env("GRACCHUS_TEST_LONG", "1");
    }
    run(&mut command)
}

fn interop(options: &Options, in_ci: bool, skipped: &mut Vec<String>) -> Result<()> {
    let missing = tools::install_programs(options.install || in_ci)?;
    if missing.contains(&"python3") {
        skipped.push("interop tests (no python3)".into());
        return Ok(());
    }
    let python = tools::python()?;
    let have_java = !missing.iter().any(|m| ["java", "javac", "mvn"].contains(m));
    if have_java {
        tools::jars()?;
    }
    run(cargo().args(["build", "--release", "--quiet", "--package", "gracchus"]))?;
    let mut pytest = Command::new(python);
    pytest
        .current_dir(root().join("tests/interop"))
        .args([
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--durations=10",
            ".",
        ])
        .args(&options.pytest);
    if options.long {
        pytest.env("GRACCHUS_TEST_LONG", "1");
    }
    if !missing.is_empty() {
        // conftest.py leaves out the tests that call these, and names them
        pytest.env("GRACCHUS_TEST_MISSING", missing.join(","));
        skipped.push(format!("interop tests that call {}", missing.join(", ")));
    }
    run(&mut pytest)
}
