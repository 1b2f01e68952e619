//! The project's own commands: `cargo xtask COMMAND`.

mod bench;
mod codegen;
mod dependencies;
mod test;
mod tools;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The project's own commands")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Sets up what the tests need and runs them: format, lints, unit, golden and interop tests.
    Test(test::Options),
    /// Compares speed, CPU and memory with Apache's servers (bench/README.md).
    Bench(bench::Options),
    /// Generates crates/kafka-proto/src/generated from kafka-messages.txt.
    Codegen(codegen::Options),
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Test(options) => test::all_parts(&options),
        Command::Bench(options) => bench::bench(&options),
        Command::Codegen(options) => codegen::run(&options),
    }
}
