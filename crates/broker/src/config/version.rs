//! `inter.broker.protocol.version` and `log.message.format.version`.

/// Kafka's metadata versions up to 3.9, oldest first.
const VERSIONS: &[&str] = &[
    "0.8.0",
    "0.8.1",
    "0.8.2",
    "0.9.0",
    "0.10.0-IV0",
    "0.10.0-IV1",
    "0.10.1-IV0",
    "0.10.1-IV1",
    "0.10.1-IV2",
    "0.10.2-IV0",
    "0.11.0-IV0",
    "0.11.0-IV1",
    "0.11.0-IV2",
    "1.0-IV0",
    "1.1-IV0",
    "2.0-IV0",
    "2.0-IV1",
    "2.1-IV0",
    "2.1-IV1",
    "2.1-IV2",
    "2.2-IV0",
    "2.2-IV1",
    "2.3-IV0",
    "2.3-IV1",
    "2.4-IV0",
    "2.4-IV1",
    "2.5-IV0",
    "2.6-IV0",
    "2.7-IV0",
    "2.7-IV1",
    "2.7-IV2",
    "2.8-IV0",
    "2.8-IV1",
    "3.0-IV0",
    "3.0-IV1",
    "3.1-IV0",
    "3.2-IV0",
    "3.3-IV0",
    "3.3-IV1",
    "3.3-IV2",
    "3.3-IV3",
    "3.4-IV0",
    "3.5-IV0",
    "3.5-IV1",
    "3.5-IV2",
    "3.6-IV0",
    "3.6-IV1",
    "3.6-IV2",
    "3.7-IV0",
    "3.7-IV1",
    "3.7-IV2",
    "3.7-IV3",
    "3.7-IV4",
    "3.8-IV0",
    "3.9-IV0",
];

/// A version; later ones compare greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct MetadataVersion(usize);

impl MetadataVersion {
    /// Reads `3.9-IV0`, `3.9` (the last of 3.9) or `3.9.2` (the same).
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(exact) = VERSIONS.iter().position(|v| *v == text) {
            return Some(Self(exact));
        }
        // "2.8", "2.8.1": the last version of that release. Releases before 1.0 have three numbers in their name.
        let wanted = if text.starts_with("0.") { 3 } else { 2 };
        let release = text.split('.').take(wanted).collect::<Vec<_>>().join(".");
        if !text.bytes().all(|b| b.is_ascii_digit() || b == b'.')
            || release.split('.').count() < wanted
        {
            return None;
        }
        VERSIONS
            .iter()
            .rposition(|v| v.split('-').next() == Some(release.as_str()))
            .map(Self)
    }

    /// Its full name.
    pub fn name(self) -> &'static str {
        VERSIONS.get(self.0).copied().unwrap_or("")
    }

    /// The newest message format of that time: 0, 1 from 0.10.0 on, 2 from 0.11.0 on.
    pub fn record_version(self) -> i8 {
        match () {
            () if self.at_least("0.11.0-IV0") => 2,
            () if self.at_least("0.10.0-IV0") => 1,
            () => 0,
        }
    }

    /// Whether `message.format.version` still decides what is stored: from 3.0 on format v2 always is (KIP-724).
    pub fn honours_message_format(self) -> bool {
        !self.at_least("3.0-IV1")
    }

    /// True if it is the named one or later. `other` must be one of Kafka's names.
    pub fn at_least(self, other: &str) -> bool {
        Self::parse(other).is_some_and(|other| self >= other)
    }
}

/// The first version of `table` whose protocol version is reached, 0 when none is; the newest without a protocol version.
pub fn version_of(protocol: Option<MetadataVersion>, table: &[(&str, i16)]) -> i16 {
    let Some(protocol) = protocol else {
        return table.first().map_or(0, |(_, version)| *version);
    };
    table
        .iter()
        .find(|(least, _)| protocol.at_least(least))
        .map_or(0, |(_, version)| *version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_the_last_of_a_release() {
        assert_eq!(MetadataVersion::parse("3.9").unwrap().name(), "3.9-IV0");
        assert_eq!(MetadataVersion::parse("2.7").unwrap().name(), "2.7-IV2");
        assert_eq!(MetadataVersion::parse("2.8.1").unwrap().name(), "2.8-IV1");
        assert_eq!(
            MetadataVersion::parse("0.10.0").unwrap().name(),
            "0.10.0-IV1"
        );
        assert_eq!(MetadataVersion::parse("0.8.2.1").unwrap().name(), "0.8.2");
        assert_eq!(MetadataVersion::parse("3.0-IV0").unwrap().name(), "3.0-IV0");
        for wrong in ["4.0", "5", "", "x", "3.9-IV7", "0.10"] {
            assert_eq!(MetadataVersion::parse(wrong), None, "{wrong}");
        }
        assert!(MetadataVersion::parse("2.7").unwrap().at_least("2.7-IV0"));
        assert!(!MetadataVersion::parse("2.6").unwrap().at_least("2.7-IV0"));
    }

    #[test]
    fn message_formats() {
        for (name, format) in [
            ("0.8.2", 0),
            ("0.9.0", 0),
            ("0.10.0-IV0", 1),
            ("0.10.2", 1),
            ("0.11.0-IV0", 2),
            ("3.9", 2),
        ] {
            let version = MetadataVersion::parse(name).unwrap();
            assert_eq!(version.record_version(), format, "{name}");
        }
        assert!(
            MetadataVersion::parse("3.0-IV0")
                .unwrap()
                .honours_message_format()
        );
        assert!(
            !MetadataVersion::parse("3.0")
                .unwrap()
                .honours_message_format()
        );
    }
}
