//! Access control lists as text: `scheme:id:perms,...`.

use super::output::Sink;
use gracchus_zk_client::{Acl, perms};

const LETTERS: [(char, i32); 5] = [
    ('c', perms::CREATE),
    ('d', perms::DELETE),
    ('r', perms::READ),
    ('w', perms::WRITE),
    ('a', perms::ADMIN),
];

/// Entries that cannot be read are told and left out, as zkCli does; the server then refuses an empty list.
pub(super) fn parse(text: &str, sink: &mut Sink) -> Vec<Acl> {
    let mut acls = Vec::new();
    for entry in text.split(',') {
        let (Some((scheme, rest)), Some((_, bits))) =
            (entry.split_once(':'), entry.rsplit_once(':'))
        else {
            sink.err(&format!("{entry} does not have the form scheme:id:perm"));
            continue;
        };
        let Some(id) = rest
            .len()
            .checked_sub(bits.len() + 1)
            .and_then(|end| rest.get(..end))
        else {
            sink.err(&format!("{entry} does not have the form scheme:id:perm"));
            continue;
        };
        let mut mask = 0;
        for letter in bits.chars() {
            match LETTERS.iter().find(|(known, _)| *known == letter) {
                Some((_, bit)) => mask |= bit,
                None => sink.err(&format!("Unknown perm type: {letter}")),
            }
        }
        acls.push(Acl::new(mask, scheme, id));
    }
    acls
}

/// An id as zkCli prints it: what would end it in a list is in the encoding of URLs.
pub(super) fn escaped(id: &str) -> String {
    let mut out = String::with_capacity(id.len());
    for c in id.chars() {
        match c {
            '\0' | '\n' | '\r' | ',' | '}' | '%' => out += &format!("%{:02X}", u32::from(c)),
            c => out.push(c),
        }
    }
    out
}

/// `cdrwa`, as far as granted.
pub(super) fn letters(mask: i32) -> String {
    LETTERS
        .iter()
        .filter(|(_, bit)| mask & bit != 0)
        .map(|(letter, _)| *letter)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_may_hold_colons() {
        let mut sink = Sink {
            captured: Some(String::new()),
        };
        assert_eq!(
            parse("digest:bob:abc=:cdrwa,world:anyone:r", &mut sink),
            [
                Acl::new(31, "digest", "bob:abc="),
                Acl::new(1, "world", "anyone")
            ]
        );
        assert_eq!(
            parse("auth::cd", &mut sink),
            [Acl::new(perms::CREATE | perms::DELETE, "auth", "")]
        );
        assert_eq!(sink.captured.as_deref(), Some(""));
        assert_eq!(parse("world:anyone", &mut sink), []);
        assert_eq!(
            sink.captured.as_deref(),
            Some("world:anyone does not have the form scheme:id:perm\n")
        );
        assert_eq!(escaped("CN=a,O=b%"), "CN=a%2CO=b%25");
        assert_eq!(letters(31), "cdrwa");
        assert_eq!(letters(perms::CREATE | perms::DELETE), "cd");
    }
}
