//! `cargo xtask codegen`: the Kafka messages' Rust, from the table in `xtask/kafka-messages.txt`.

mod emit;
mod names;
mod schema;
mod tables;

use crate::tools::root;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(clap::Args)]
pub struct Options {
    /// Write nothing; fail when the checked-in files are not what the table gives.
    #[arg(long)]
    check: bool,
}

const TABLE: &str = "xtask/kafka-messages.txt";
const SOURCES: &str = "crates/kafka-proto/src/generated";
const TEST_TABLE: &str = "crates/kafka-proto/tests/all_messages/generated";

pub fn run(options: &Options) -> Result<()> {
    let table = std::fs::read_to_string(root().join(TABLE))
        .with_context(|| format!("cannot read {TABLE}"))?;
    let messages = schema::parse(&table)?;

    let mut sources = BTreeMap::new();
    for message in &messages {
        sources.insert(
            format!("{}.rs", names::snake_case(&message.name)),
            emit::message(message),
        );
    }
    sources.insert("mod.rs".to_owned(), tables::modules(&messages));
    sources.insert("api_key.rs".to_owned(), tables::api_keys(&messages));
    let tests = BTreeMap::from([("mod.rs".to_owned(), tables::test_table(&messages))]);

    let mut stale = place(&root().join(SOURCES), format(sources)?, options.check)?;
    stale.extend(place(
        &root().join(TEST_TABLE),
        format(tests)?,
        options.check,
    )?);
    if !stale.is_empty() && options.check {
        bail!(
            "not current, run `cargo xtask codegen`: {}",
            stale.join(", ")
        );
    }
    println!(
        "{} messages, {} files {}",
        messages.len(),
        stale.len(),
        if options.check { "stale" } else { "written" }
    );
    Ok(())
}

/// The files as rustfmt leaves them.
fn format(files: BTreeMap<String, String>) -> Result<BTreeMap<String, String>> {
    let folder = std::env::temp_dir().join(format!("kafka-messages-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let outcome = format_in(&folder, files);
    std::fs::remove_dir_all(&folder)?;
    outcome
}

fn format_in(folder: &Path, files: BTreeMap<String, String>) -> Result<BTreeMap<String, String>> {
    let mut paths = Vec::new();
    for (name, text) in &files {
        let path = folder.join(name);
        std::fs::write(&path, text)?;
        // mod.rs would have its modules formatted a second time.
        paths.push(path);
    }
    let status = Command::new("rustfmt")
        .args(["--edition", "2024"])
        .args(&paths)
        .status()
        .context("cannot run rustfmt (rustup component add rustfmt)")?;
    if !status.success() {
        bail!("rustfmt refuses the generated code");
    }
    files
        .into_keys()
        .map(|name| Ok((name.clone(), std::fs::read_to_string(folder.join(name))?)))
        .collect()
}

/// Writes what differs, deletes what is no longer generated; the names of both.
fn place(folder: &Path, files: BTreeMap<String, String>, check: bool) -> Result<Vec<String>> {
    let mut stale = Vec::new();
    std::fs::create_dir_all(folder)?;
    for entry in std::fs::read_dir(folder)? {
        let path: PathBuf = entry?.path();
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        if !files.contains_key(&name) {
            if !check {
                std::fs::remove_file(&path)?;
            }
            stale.push(name);
        }
    }
    for (name, text) in files {
        let path = folder.join(&name);
        if std::fs::read_to_string(&path).ok().as_deref() != Some(&text) {
            if !check {
                std::fs::write(&path, text)?;
            }
            stale.push(name);
        }
    }
    Ok(stale)
}

#[cfg(test)]
mod tests {
    #[test]
    fn generated_code_is_current() {
        super::run(&super::Options { check: true }).unwrap();
    }
}
