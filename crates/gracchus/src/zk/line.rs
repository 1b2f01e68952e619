//! A line of the interactive shell as words.

/// Words are parted by white space; one that starts with a quote goes on to the same quote. As zkCli: a quote inside a
/// word is a plain character, and a quote that is never closed is left out with nothing lost behind it.
pub(super) fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        let (word, tail) = match first {
            '"' | '\'' => {
                let inner = rest.get(1..).unwrap_or("");
                match inner.find(first) {
                    Some(end) => (
                        inner.get(..end).unwrap_or(""),
                        inner.get(end + 1..).unwrap_or(""),
                    ),
                    None => {
                        rest = inner.trim_start();
                        continue;
                    }
                }
            }
            _ => rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len())),
        };
        words.push(word.to_owned());
        rest = tail.trim_start();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn quotes_hold_words_together() {
        assert_eq!(
            words(r#"  create  "/s/sp ace" 'x "y' it's "#),
            ["create", "/s/sp ace", "x \"y", "it's"]
        );
        assert_eq!(words(""), [""; 0]);
        assert_eq!(words("set /a \"\""), ["set", "/a", ""]);
        assert_eq!(words("set /a \"open"), ["set", "/a", "open"]);
        assert_eq!(words("é 'ü"), ["é", "ü"]);
    }
}
