//! What comes in with the dependencies: licences and sources as `deny.toml` allows them, and nothing in the workspace's
//! table that no crate uses. It says what `cargo deny check licenses sources` would, without that program.

use crate::tools::root;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::process::Command;

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// An error names every package that is not allowed, and every entry of the table that nobody uses.
pub fn check() -> Result<()> {
    let deny = std::fs::read_to_string(root().join("deny.toml")).context("deny.toml")?;
    let allowed = allow_list(&deny).context("deny.toml has no list of allowed licences")?;
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(root())
        .args(["metadata", "--format-version", "1", "--locked"])
        // the platform that deny.toml names: what others need is never built
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .output()?;
    ensure!(
        output.status.success(),
        "cargo metadata: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let mut faults = packages(&metadata, &allowed);
    let table = std::fs::read_to_string(root().join("Cargo.toml"))?;
    let mut manifests = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        if package["source"].is_null()
            && let Some(path) = package["manifest_path"].as_str()
        {
            manifests.push(std::fs::read_to_string(path)?);
        }
    }
    faults.extend(unused(&table, &manifests));
    if !faults.is_empty() {
        bail!("dependencies:\n{}", faults.join("\n"));
    }
    Ok(())
}

/// The strings of `[licenses] allow`.
fn allow_list(deny: &str) -> Option<Vec<String>> {
    let (_, section) = deny.split_once("[licenses]")?;
    let (_, list) = section.split_once("allow")?;
    let (_, list) = list.split_once('[')?;
    let (list, _) = list.split_once(']')?;
    let quoted = list.split('"').skip(1).step_by(2);
    Some(quoted.map(str::to_owned).collect())
}

/// A line for each package of a licence or a source that is not allowed.
fn packages(metadata: &Value, allowed: &[String]) -> Vec<String> {
    let mut faults = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = format!(
            "{} {}",
            package["name"].as_str().unwrap_or("?"),
            package["version"].as_str().unwrap_or("?")
        );
        match package["source"].as_str() {
            None | Some(CRATES_IO) => {}
            Some(other) => faults.push(format!("{name} comes from {other}")),
        }
        match package["license"].as_str() {
            None => faults.push(format!("{name} names no licence")),
            Some(expression) => match Expression::new(expression).allowed(allowed) {
                Ok(true) => {}
                Ok(false) => faults.push(format!("{name} is under {expression}")),
                Err(error) => faults.push(format!("{name}: licence {expression}: {error}")),
            },
        }
    }
    faults
}

/// Names of `[workspace.dependencies]` that stand in no crate's manifest.
fn unused(table: &str, manifests: &[String]) -> Vec<String> {
    let section = table
        .split_once("[workspace.dependencies]")
        .map_or("", |(_, rest)| rest);
    let section = section.split("\n[").next().unwrap_or("");
    let names = section
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .filter_map(|line| line.split_once('=').map(|(name, _)| name.trim()));
    let used = |name: &str| {
        manifests.iter().flat_map(|m| m.lines()).any(|line| {
            let rest = line.trim_start().strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with([' ', '=', '.']))
        })
    };
    names
        .filter(|name| !used(name))
        .map(|name| format!("{name} in [workspace.dependencies] is used by no crate"))
        .collect()
}

/// An SPDX expression: AND binds closer than OR; a slash is an old way to write OR.
struct Expression {
    words: Vec<String>,
    at: usize,
}

impl Expression {
    fn new(text: &str) -> Self {
        let spaced = text
            .replace('(', " ( ")
            .replace(')', " ) ")
            .replace('/', " OR ");
        Expression {
            words: spaced.split_whitespace().map(str::to_owned).collect(),
            at: 0,
        }
    }

    fn allowed(mut self, allowed: &[String]) -> Result<bool> {
        let result = self.any(allowed)?;
        ensure!(self.at == self.words.len(), "something behind its end");
        Ok(result)
    }

    fn next_is(&mut self, word: &str) -> bool {
        let is = self.words.get(self.at).is_some_and(|w| w == word);
        self.at += usize::from(is);
        is
    }

    fn any(&mut self, allowed: &[String]) -> Result<bool> {
        let mut result = self.all(allowed)?;
        while self.next_is("OR") {
            result |= self.all(allowed)?;
        }
        Ok(result)
    }

    fn all(&mut self, allowed: &[String]) -> Result<bool> {
        let mut result = self.one(allowed)?;
        while self.next_is("AND") {
            result &= self.one(allowed)?;
        }
        Ok(result)
    }

    fn one(&mut self, allowed: &[String]) -> Result<bool> {
        if self.next_is("(") {
            let result = self.any(allowed)?;
            ensure!(self.next_is(")"), "a parenthesis is not closed");
            return Ok(result);
        }
        let name = self.words.get(self.at).cloned().context("it ends early")?;
        self.at += 1;
        if self.next_is("WITH") {
            let exception = self.words.get(self.at).context("it ends early")?;
            let whole = format!("{name} WITH {exception}");
            self.at += 1;
            return Ok(allowed.contains(&whole));
        }
        Ok(allowed.contains(&name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn allowed() -> Vec<String> {
        ["MIT", "Apache-2.0", "Unicode-3.0"]
            .map(str::to_owned)
            .into()
    }

    #[test]
    fn this_workspace() {
        check().unwrap();
    }

    #[test]
    fn expressions() {
        for (text, wanted) in [
            ("MIT", true),
            ("GPL-3.0", false),
            ("MIT/GPL-3.0", true),
            ("MIT OR GPL-3.0", true),
            ("MIT AND GPL-3.0", false),
            ("(MIT OR GPL-3.0) AND Unicode-3.0", true),
            ("MIT OR GPL-3.0 AND GPL-2.0", true),
            ("Apache-2.0 WITH LLVM-exception", false),
            ("Apache-2.0 WITH LLVM-exception OR MIT", true),
        ] {
            let found = Expression::new(text).allowed(&allowed()).unwrap();
            assert_eq!(found, wanted, "{text}");
        }
        for text in ["", "MIT OR", "(MIT", "MIT MIT"] {
            assert!(Expression::new(text).allowed(&allowed()).is_err(), "{text}");
        }
    }

    #[test]
    fn packages_that_are_not_allowed_are_named() {
        let package = |name: &str, license: Value, source: Value| json!({"name": name, "version": "1.0.0", "license": license, "source": source});
        let metadata = json!({"packages": [
            package("good", json!("MIT"), json!(CRATES_IO)),
            package("own", json!("Apache-2.0"), Value::Null),
            package("viral", json!("GPL-3.0"), json!(CRATES_IO)),
            package("silent", Value::Null, json!(CRATES_IO)),
            package("elsewhere", json!("MIT"), json!("git+https://example.org/x")),
        ]});
        assert_eq!(
            packages(&metadata, &allowed()),
            [
                "viral 1.0.0 is under GPL-3.0",
                "silent 1.0.0 names no licence",
                "elsewhere 1.0.0 comes from git+https://example.org/x",
            ]
        );
    }

    #[test]
    fn the_lists_are_read() {
        let deny = "# c\n[licenses]\nallow = [\"MIT\",\n \"Zlib\"]\nx = [\"no\"]\n";
        assert_eq!(allow_list(deny).unwrap(), ["MIT", "Zlib"]);
        let table = "[workspace.dependencies]\n# a comment\na = \"1\"\nab = { version = \"1\" }\nc = \"1\"\n\n[profile.dev]\nd = 1\n";
        let manifests = [
            "[dependencies]\nab.workspace = true\n".to_owned(),
            "c = { workspace = true }\n".to_owned(),
        ];
        assert_eq!(
            unused(table, &manifests),
            ["a in [workspace.dependencies] is used by no crate"]
        );
    }
}
