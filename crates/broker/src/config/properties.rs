//! `.properties` files, read by the rules of Java's `Properties.load`: ISO 8859-1 bytes, `\uXXXX`, continuation lines,
//! `#` and `!` comments, `=`, `:` or blanks between key and value.

use super::error::ConfigError;

/// One pair and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key, unescaped.
    pub key: String,
    /// The value, unescaped; blanks at its end are kept, as Java does.
    pub value: String,
    /// Number of the line that it begins on, from 1.
    pub line: usize,
}

/// All pairs in the order of the file; a key may come more than once (the last one counts).
pub fn parse(bytes: &[u8]) -> Result<Vec<Entry>, ConfigError> {
    let mut entries = Vec::new();
    for (line, text) in logical_lines(bytes) {
        let (key, value) = split(&text);
        let refuse = |reason: String| ConfigError::Refused(format!("line {line}: {reason}"));
        entries.push(Entry {
            key: unescape(key).map_err(refuse)?,
            value: unescape(value).map_err(refuse)?,
            line,
        });
    }
    Ok(entries)
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\x0c')
}

/// Joins continued lines; drops comments, empty lines and the blanks that a line begins with.
fn logical_lines(bytes: &[u8]) -> Vec<(usize, Vec<char>)> {
    let mut lines = Vec::new();
    let mut current: Vec<char> = Vec::new();
    let mut number = 1;
    let mut begun_at = 1;
    let (mut skip_blanks, mut comment, mut first, mut continued, mut escaped) =
        (true, false, true, false, false);
    let mut rest = bytes.iter().map(|b| char::from(*b)).peekable();
    while let Some(c) = rest.next() {
        let end_of_line = matches!(c, '\n' | '\r');
        if c == '\r' && rest.peek() == Some(&'\n') {
            rest.next();
        }
        if skip_blanks {
            if is_blank(c) {
                continue;
            }
            if end_of_line && !continued {
                number += 1;
                continue;
            }
            skip_blanks = false;
            continued = false;
        }
        if first {
            first = false;
            begun_at = number;
            comment = matches!(c, '#' | '!');
        }
        if !end_of_line {
            if !comment {
                current.push(c);
                escaped = c == '\\' && !escaped;
            }
            continue;
        }
        number += 1;
        skip_blanks = true;
        if escaped {
            // an odd number of backslashes at the end: the next line belongs to this one
            current.pop();
            escaped = false;
            continued = true;
            continue;
        }
        if !comment && !current.is_empty() {
            lines.push((begun_at, std::mem::take(&mut current)));
        }
        (first, comment) = (true, false);
    }
    if escaped {
        current.pop();
    }
    if !comment && !current.is_empty() {
        lines.push((begun_at, current));
    }
    lines
}

/// Cuts a logical line at its first unescaped separator.
fn split(line: &[char]) -> (&[char], &[char]) {
    let mut escaped = false;
    let mut key_len = line.len();
    for (at, &c) in line.iter().enumerate() {
        if !escaped && (is_blank(c) || c == '=' || c == ':') {
            key_len = at;
            break;
        }
        escaped = c == '\\' && !escaped;
    }
    let (key, mut rest) = line.split_at(key_len);
    let mut separator_seen = false;
    while let [c, tail @ ..] = rest {
        if is_blank(*c) {
            rest = tail;
        } else if !separator_seen && matches!(c, '=' | ':') {
            separator_seen = true;
            rest = tail;
        } else {
            break;
        }
    }
    (key, rest)
}

fn unescape(text: &[char]) -> Result<String, String> {
    let mut units: Vec<u16> = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    let mut buffer = [0u16; 2];
    while let Some(&c) = rest.next() {
        let c = if c != '\\' {
            c
        } else {
            match rest.next() {
                None => break,
                Some('u') => {
                    let mut unit = 0u32;
                    for _ in 0..4 {
                        let digit = rest
                            .next()
                            .and_then(|d| d.to_digit(16))
                            .ok_or("malformed \\uxxxx encoding")?;
                        unit = unit << 4 | digit;
                    }
                    units.push(u16::try_from(unit).unwrap_or(0xfffd));
                    continue;
                }
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('f') => '\x0c',
                Some(&other) => other,
            }
        };
        units.extend_from_slice(c.encode_utf16(&mut buffer));
    }
    Ok(String::from_utf16_lossy(&units))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &[u8]) -> Vec<(String, String)> {
        parse(text)
            .unwrap()
            .into_iter()
            .map(|e| (e.key, e.value))
            .collect()
    }

    fn one(text: &str) -> (String, String) {
        let mut all = pairs(text.as_bytes());
        assert_eq!(all.len(), 1, "{text:?} -> {all:?}");
        all.remove(0)
    }

    fn pair(key: &str, value: &str) -> (String, String) {
        (key.into(), value.into())
    }

    /// Every expectation here was checked against java.util.Properties of JDK 17.
    #[test]
    fn reads_as_java_does() {
        assert_eq!(one("a=b"), pair("a", "b"));
        assert_eq!(one("  a : b "), pair("a", "b "));
        assert_eq!(one("a b c"), pair("a", "b c"));
        assert_eq!(one("a == b"), pair("a", "= b"));
        assert_eq!(one("a"), pair("a", ""));
        assert_eq!(one("=b"), pair("", "b"));
        assert_eq!(one("a\\=b=c"), pair("a=b", "c"));
        assert_eq!(one("a\\ b=c"), pair("a b", "c"));
        assert_eq!(one("a=1,\\\n   2,\\\r\n\t3"), pair("a", "1,2,3"));
        assert_eq!(one("a=x\\\\"), pair("a", "x\\"));
        assert_eq!(one("a=x\\\n#not a comment"), pair("a", "x#not a comment"));
        assert_eq!(one("a=x\\"), pair("a", "x"));
        assert_eq!(one("a=\\u0041\\t\\n\\q"), pair("a", "A\t\nq"));
        assert_eq!(one("a=\\ud83d\\ude00"), pair("a", "\u{1f600}"));
        assert_eq!(pairs(b"a=\xe9"), vec![pair("a", "\u{e9}")]);
        assert_eq!(
            pairs(b"# c \\\na=1\n! d\n\n \t\nb=2\rc=3"),
            vec![pair("a", "1"), pair("b", "2"), pair("c", "3")]
        );
        assert_eq!(pairs(b"a=1\\\n\nb=2"), vec![pair("a", "1"), pair("b", "2")]);
        assert!(parse(b"a=\\u00g0").is_err());
    }

    #[test]
    fn numbers_lines() {
        let lines: Vec<_> = parse(b"\n# c\na=1,\\\n2\n\nb=3\n")
            .unwrap()
            .into_iter()
            .map(|e| e.line)
            .collect();
        assert_eq!(lines, [3, 6]);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_no_panic(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }
    }
}
