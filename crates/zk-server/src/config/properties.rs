//! Java's `.properties` syntax, as far as configuration files use it.

/// The pairs of a text, in order; a key given twice comes twice.
pub fn parse(text: &str) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let mut logical = line.trim_start().to_owned();
        if logical.is_empty() || logical.starts_with(['#', '!']) {
            continue;
        }
        while continues(&logical) {
            logical.pop();
            match lines.next() {
                Some(next) => logical.push_str(next.trim_start()),
                None => break,
            }
        }
        pairs.push(split(&logical));
    }
    pairs
}

/// Whether a line ends in an odd number of backslashes.
fn continues(line: &str) -> bool {
    line.bytes().rev().take_while(|b| *b == b'\\').count() % 2 == 1
}

fn split(line: &str) -> (String, String) {
    let mut escaped = false;
    let mut end = line.len();
    for (at, c) in line.char_indices() {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if matches!(c, '=' | ':' | ' ' | '\t') {
            end = at;
            break;
        }
    }
    let (key, rest) = line.split_at(end);
    let rest = rest.trim_start();
    let value = rest.strip_prefix(['=', ':']).unwrap_or(rest).trim_start();
    (unescape(key), unescape(value.trim_end()))
}

fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('t') => out.push('\t'),
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('f') => out.push('\u{c}'),
            Some('u') => {
                let digits: String = chars.by_ref().take(4).collect();
                let code = u32::from_str_radix(&digits, 16).ok();
                out.push(code.and_then(char::from_u32).unwrap_or('\u{fffd}'));
            }
            Some(other) => out.push(other),
            None => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn java_syntax() {
        let text = "# no\n! no\n\n a = b\nc:d\ne f g\npath=C\\:\\\\x\nlong=1,\\\n   2\nempty=\nu=\\u0041\n";
        let expected = [
            ("a", "b"),
            ("c", "d"),
            ("e", "f g"),
            ("path", "C:\\x"),
            ("long", "1,2"),
            ("empty", ""),
            ("u", "A"),
        ];
        let got = parse(text);
        assert_eq!(got.len(), expected.len());
        for ((key, value), (k, v)) in got.iter().zip(expected) {
            assert_eq!((key.as_str(), value.as_str()), (k, v));
        }
    }
}
