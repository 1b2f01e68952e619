//! A certificate's subject as Java prints it (RFC 2253): `CN=kafka-client,OU=Dev,O=Test`.

use std::fmt::Write;

/// What Java names in RFC 2253; other attributes are numbers with hexadecimal values.
const NAMES: &[(&str, &[u8])] = &[
    ("CN", &[0x55, 4, 3]),
    ("C", &[0x55, 4, 6]),
    ("L", &[0x55, 4, 7]),
    ("ST", &[0x55, 4, 8]),
    ("STREET", &[0x55, 4, 9]),
    ("O", &[0x55, 4, 10]),
    ("OU", &[0x55, 4, 11]),
    (
        "UID",
        &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1],
    ),
    (
        "DC",
        &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25],
    ),
];

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OID: u8 = 0x06;
/// The version, where it is given.
const EXPLICIT_0: u8 = 0xa0;
/// The extensions.
const EXPLICIT_3: u8 = 0xa3;
const COMMON_NAME: &[u8] = &[0x55, 4, 3];
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 17];
const UTF8: u8 = 12;
const PRINTABLE: u8 = 19;
const TELETEX: u8 = 20;
const IA5: u8 = 22;
const BMP: u8 = 30;

/// One DER value and what follows it.
struct Value<'a> {
    tag: u8,
    content: &'a [u8],
    /// With tag and length.
    whole: &'a [u8],
    rest: &'a [u8],
}

fn next(bytes: &[u8]) -> Option<Value<'_>> {
    let (&tag, after) = bytes.split_first()?;
    let (&first, after) = after.split_first()?;
    let (length, after) = match first {
        0..=0x7f => (usize::from(first), after),
        0x81..=0x84 => {
            let (digits, after) = after.split_at_checked(usize::from(first & 0x7f))?;
            let length = digits
                .iter()
                .fold(0, |all, digit| all << 8 | usize::from(*digit));
            (length, after)
        }
        _ => return None,
    };
    let (content, rest) = after.split_at_checked(length)?;
    let whole = bytes.get(..bytes.len() - rest.len())?;
    Some(Value {
        tag,
        content,
        whole,
        rest,
    })
}

fn expect(bytes: &[u8], tag: u8) -> Option<Value<'_>> {
    next(bytes).filter(|value| value.tag == tag)
}

/// The content of a DER value.
pub(super) fn der(bytes: &[u8]) -> Option<&[u8]> {
    Some(next(bytes)?.content)
}

/// The content of a DER value, and what follows it.
pub(super) fn der_and_rest(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    next(bytes).map(|value| (value.content, value.rest))
}

/// What follows the validity in a certificate, from its subject on.
fn from_subject(certificate: &[u8]) -> Option<&[u8]> {
    let certificate = expect(certificate, SEQUENCE)?;
    let signed = expect(certificate.content, SEQUENCE)?;
    let mut rest = signed.content;
    if let Some(version) = expect(rest, EXPLICIT_0) {
        rest = version.rest;
    }
    // Serial number, algorithm, issuer, validity.
    for _ in 0..4 {
        rest = next(rest)?.rest;
    }
    Some(rest)
}

/// The subject of a certificate.
pub(super) fn subject(certificate: &[u8]) -> Option<String> {
    name(expect(from_subject(certificate)?, SEQUENCE)?.content)
}

/// The last common name of a certificate without alternative names: what such a one says about its host.
pub(super) fn host_in_subject(certificate: &[u8]) -> Option<String> {
    let subject = expect(from_subject(certificate)?, SEQUENCE)?;
    if has_alternative_names(subject.rest)? {
        return None;
    }
    let mut sets = subject.content;
    let mut found = None;
    while !sets.is_empty() {
        let set = expect(sets, SET)?;
        sets = set.rest;
        let pair = expect(set.content, SEQUENCE)?;
        let oid = expect(pair.content, OID)?;
        if oid.content == COMMON_NAME {
            found = text(&next(oid.rest)?);
        }
    }
    found
}

/// Among what follows the subject.
fn has_alternative_names(mut rest: &[u8]) -> Option<bool> {
    while !rest.is_empty() {
        let value = next(rest)?;
        rest = value.rest;
        if value.tag != EXPLICIT_3 {
            continue;
        }
        let mut extensions = expect(value.content, SEQUENCE)?.content;
        while !extensions.is_empty() {
            let extension = expect(extensions, SEQUENCE)?;
            extensions = extension.rest;
            if expect(extension.content, OID)?.content == ALTERNATIVE_NAMES {
                return Some(true);
            }
        }
    }
    Some(false)
}

fn name(mut sets: &[u8]) -> Option<String> {
    let mut parts = Vec::new();
    while !sets.is_empty() {
        let set = expect(sets, SET)?;
        sets = set.rest;
        let mut attributes = Vec::new();
        let mut rest = set.content;
        while !rest.is_empty() {
            let pair = expect(rest, SEQUENCE)?;
            rest = pair.rest;
            let oid = expect(pair.content, OID)?;
            attributes.push(attribute(oid.content, &next(oid.rest)?)?);
        }
        parts.push(attributes.join("+"));
    }
    // The most special comes first.
    parts.reverse();
    Some(parts.join(","))
}

fn attribute(oid: &[u8], value: &Value<'_>) -> Option<String> {
    let known = NAMES.iter().find(|(_, known)| *known == oid);
    match (known, text(value)) {
        (Some((name, _)), Some(text)) => Some(format!("{name}={}", escaped(&text))),
        _ => {
            let mut out = number(oid)?;
            out.push_str("=#");
            for byte in value.whole {
                let _ = write!(out, "{byte:02x}");
            }
            Some(out)
        }
    }
}

fn text(value: &Value<'_>) -> Option<String> {
    match value.tag {
        UTF8 | PRINTABLE | IA5 => String::from_utf8(value.content.to_vec()).ok(),
        TELETEX => Some(value.content.iter().map(|byte| char::from(*byte)).collect()),
        BMP => {
            let units = value.content.chunks_exact(2);
            let units = units.filter_map(|pair| pair.try_into().ok().map(u16::from_be_bytes));
            String::from_utf16(&units.collect::<Vec<_>>()).ok()
        }
        _ => None,
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::new();
    let last = text.chars().count().saturating_sub(1);
    for (at, c) in text.chars().enumerate() {
        let at_end = (c == ' ' && (at == 0 || at == last)) || (c == '#' && at == 0);
        if at_end || matches!(c, ',' | '+' | '"' | '\\' | '<' | '>' | ';') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// `1.2.840.113549.1.9.1`.
fn number(oid: &[u8]) -> Option<String> {
    let mut arcs: Vec<u64> = Vec::new();
    let mut arc = 0u64;
    for byte in oid {
        arc = arc.checked_mul(128)? | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            if arcs.is_empty() {
                let top = (arc / 40).min(2);
                arcs.push(top);
                arc -= top * 40;
            }
            arcs.push(arc);
            arc = 0;
        }
    }
    let arcs: Vec<String> = arcs.iter().map(u64::to_string).collect();
    Some(arcs.join("."))
}

/// Whether an id of a list can be a subject at all.
pub fn is_name(text: &str) -> bool {
    let mut parts = Vec::new();
    let mut part = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            '\\' => {
                part.push(c);
                part.extend(rest.next());
            }
            ',' | '+' | ';' => parts.push(std::mem::take(&mut part)),
            c => part.push(c),
        }
    }
    parts.push(part);
    parts.iter().all(|part| {
        let Some((key, _)) = part.split_once('=') else {
            return false;
        };
        let key = key.trim();
        let is_number =
            key.split('.').count() > 1 && key.split('.').all(|arc| arc.parse::<u64>().is_ok());
        let named =
            NAMES
                .iter()
                .map(|(name, _)| *name)
                .chain(["S", "T", "SERIALNUMBER", "EMAILADDRESS"]);
        is_number || named.into_iter().any(|name| name.eq_ignore_ascii_case(key))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_can_be_subjects() {
        for good in [
            "CN=kafka-client,OU=Dev,O=Test",
            "cn=a",
            "CN=a\\,b, O=x",
            "1.2.840.113549.1.9.1=#16",
        ] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["not a dn", "", "CN", "XX=1", "CN=a,", ",CN=a"] {
            assert!(!is_name(bad), "{bad}");
        }
    }

    #[test]
    fn subjects_as_java_prints_them() {
        use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
        let mut name = DistinguishedName::new();
        name.push(DnType::OrganizationName, "Test, \"Inc\"");
        name.push(DnType::OrganizationalUnitName, "Dev");
        name.push(DnType::CommonName, " kafka-client ");
        name.push(
            DnType::CustomDnType(vec![1, 2, 840, 113549, 1, 9, 1]),
            "a@b",
        );
        let mut params = CertificateParams::default();
        params.distinguished_name = name;
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        assert_eq!(
            subject(certificate.der()).as_deref(),
            Some(
                "1.2.840.113549.1.9.1=#0c03614062,CN=\\ kafka-client\\ ,OU=Dev,O=Test\\, \\\"Inc\\\""
            )
        );
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_subject_or_none(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
            let _ = subject(&bytes);
            let _ = name(&bytes);
            let _ = host_in_subject(&bytes);
            let _ = has_alternative_names(&bytes);
        }
    }
}
