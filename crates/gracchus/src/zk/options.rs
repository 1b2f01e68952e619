//! Flags of a command, anywhere among its arguments.

use super::output::CliError;
use std::collections::BTreeMap;

/// What a command was called with: its flags, and the rest in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Given {
    flags: BTreeMap<char, Option<String>>,
    pub(super) words: Vec<String>,
    /// What `--format` says, if it is there.
    pub(super) json: Option<bool>,
}

impl Given {
    pub(super) fn has(&self, flag: char) -> bool {
        self.flags.contains_key(&flag)
    }

    pub(super) fn value(&self, flag: char) -> Option<&str> {
        self.flags.get(&flag)?.as_deref()
    }

    /// The n-th word behind the command.
    pub(super) fn word(&self, n: usize) -> Option<&str> {
        self.words.get(n).map(String::as_str)
    }

    /// The value of `-v`: a version, or -1 for any.
    pub(super) fn version(&self) -> Result<i32, CliError> {
        match self.value('v') {
            None => Ok(-1),
            Some(text) => text.parse().map_err(|_| {
                CliError::new(format!(
                    "-v argument must be a version number, not \"{text}\""
                ))
            }),
        }
    }
}

/// `plain` are flags alone, `valued` those with an argument; flags may be written together (`-sR`).
pub(super) fn parse(words: &[String], plain: &str, valued: &str) -> Result<Given, CliError> {
    let mut given = Given::default();
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let flags = match word.strip_prefix('-') {
            // our own: zkCli has no long options
            Some("-format") => {
                given.json = match rest.next().map(String::as_str) {
                    Some("json") => Some(true),
                    Some("text") => Some(false),
                    _ => return Err(CliError::new("--format takes text or json")),
                };
                continue;
            }
            Some("-") => {
                given.words.extend(rest.cloned());
                break;
            }
            Some(flags) if !flags.is_empty() && word.parse::<f64>().is_err() => flags,
            _ => {
                given.words.push(word.clone());
                continue;
            }
        };
        let unknown = || CliError::new(format!("Unrecognized option: {word}"));
        let mut letters = flags.chars();
        while let Some(letter) = letters.next() {
            if plain.contains(letter) {
                given.flags.insert(letter, None);
            } else if valued.contains(letter) {
                let tail = letters.as_str();
                let value = if tail.is_empty() {
                    rest.next().cloned()
                } else {
                    Some(tail.to_owned())
                };
                let value = value.ok_or_else(|| {
                    CliError::new(format!("Missing argument for option: {letter}"))
                })?;
                given.flags.insert(letter, Some(value));
                break;
            } else {
                return Err(unknown());
            }
        }
    }
    Ok(given)
}

#[cfg(test)]
mod tests {
    use super::parse;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn flags_stand_anywhere() {
        let given = parse(&words("-s /a data -v 3 x"), "s", "v").unwrap();
        assert!(given.has('s') && !given.has('w'));
        assert_eq!(given.version().unwrap(), 3);
        assert_eq!(given.words, ["/a", "data", "x"]);
        assert_eq!(parse(&words("-sR /"), "sR", "").unwrap().words, ["/"]);
        assert_eq!(
            parse(&words("/a -1"), "s", "v").unwrap().words,
            ["/a", "-1"]
        );
        assert_eq!(
            parse(&words("-v -1 /a"), "s", "v")
                .unwrap()
                .version()
                .unwrap(),
            -1
        );
        assert_eq!(parse(&words("-- -s"), "s", "v").unwrap().words, ["-s"]);
        assert_eq!(
            parse(&words("-x /"), "s", "v").unwrap_err().to_string(),
            "Unrecognized option: -x"
        );
        assert_eq!(
            parse(&words("/ -v"), "s", "v").unwrap_err().to_string(),
            "Missing argument for option: v"
        );
        assert!(parse(&words("-v x"), "s", "v").unwrap().version().is_err());
        let given = parse(&words("/a --format json -s"), "s", "").unwrap();
        assert_eq!((given.json, given.has('s')), (Some(true), true));
        assert_eq!(given.words, ["/a"]);
        assert!(parse(&words("/a --format yaml"), "s", "").is_err());
        assert_eq!(
            parse(&words("/a -- --format"), "", "").unwrap().words,
            ["/a", "--format"]
        );
    }
}
