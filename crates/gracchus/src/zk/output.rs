//! Where text goes, and how stats, times and errors read.

use gracchus_zk_client::{EventType, SessionState, Stat, WatchEvent, ZkError, ZkEvent};
use std::io::Write as _;

/// Standard output and error, or a test's eyes.
#[derive(Debug, Default)]
pub(super) struct Sink {
    /// Lines of output, instead of printing them.
    pub(super) captured: Option<String>,
}

impl Sink {
    /// A line of result. A reader that has gone away (`| head`) is no error.
    pub(super) fn out(&mut self, line: &str) {
        match &mut self.captured {
            Some(text) => {
                text.push_str(line);
                text.push('\n');
            }
            None => {
                let mut stdout = std::io::stdout().lock();
                let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
            }
        }
    }

    /// A line beside the result.
    pub(super) fn err(&mut self, line: &str) {
        match &mut self.captured {
            Some(text) => {
                text.push_str(line);
                text.push('\n');
            }
            None => {
                let _ = writeln!(std::io::stderr().lock(), "{line}");
            }
        }
    }

    pub(super) fn stat(&mut self, stat: &Stat) {
        for line in stat_lines(stat) {
            self.out(&line);
        }
    }
}

fn stat_lines(stat: &Stat) -> [String; 11] {
    [
        format!("cZxid = 0x{:x}", stat.czxid),
        format!("ctime = {}", local_time(stat.ctime)),
        format!("mZxid = 0x{:x}", stat.mzxid),
        format!("mtime = {}", local_time(stat.mtime)),
        format!("pZxid = 0x{:x}", stat.pzxid),
        format!("cversion = {}", stat.cversion),
        format!("dataVersion = {}", stat.version),
        format!("aclVersion = {}", stat.aversion),
        format!("ephemeralOwner = 0x{:x}", stat.ephemeral_owner),
        format!("dataLength = {}", stat.data_length),
        format!("numChildren = {}", stat.num_children),
    ]
}

/// `Mon Nov 30 22:32:16 UTC 2026`, in the zone of TZ.
pub fn local_time(ms: i64) -> String {
    time_in(ms, jiff::tz::TimeZone::system())
}

fn time_in(ms: i64, zone: jiff::tz::TimeZone) -> String {
    match jiff::Timestamp::from_millisecond(ms) {
        // the machine's zone may have no short name: then its offset from UTC is shown
        Ok(time) => time
            .to_zoned(zone)
            .strftime("%a %b %d %H:%M:%S %Z %Y")
            .to_string(),
        Err(_) => format!("{ms} ms"),
    }
}

/// Data as text; null data reads `null`, bytes that are no UTF-8 as U+FFFD.
pub(super) fn text(data: Option<&[u8]>) -> String {
    data.map_or_else(
        || "null".to_owned(),
        |data| String::from_utf8_lossy(data).into_owned(),
    )
}

/// Data in rows of 16 bytes, hexadecimal and ASCII.
pub(super) fn hex_dump(data: &[u8]) -> String {
    let ruler = "+-------------------------------------------------+";
    let mut lines = vec![
        format!("         {ruler}"),
        "         |  0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f |".to_owned(),
        format!("+--------{ruler}----------------+"),
    ];
    for (row, bytes) in data.chunks(16).enumerate() {
        let hex: String = bytes.iter().map(|byte| format!(" {byte:02x}")).collect();
        let ascii: String = bytes
            .iter()
            .map(|&byte| {
                if (0x20..0x7f).contains(&byte) {
                    char::from(byte)
                } else {
                    '.'
                }
            })
            .collect();
        lines.push(format!("|{:08x}|{hex:<48} |{ascii:<16}|", row * 16));
    }
    lines.push(format!("+--------{ruler}----------------+"));
    lines.join("\n")
}

/// A command that failed: its message and exit code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(super) struct CliError {
    message: String,
    pub(super) code: u8,
}

impl CliError {
    pub(super) fn new(message: impl Into<String>) -> Self {
        CliError {
            message: message.into(),
            code: 1,
        }
    }

    pub(super) fn not_found(message: impl Into<String>) -> Self {
        CliError {
            message: message.into(),
            code: 127,
        }
    }

    /// A server's error about a node.
    pub(super) fn zk(error: ZkError, path: &str) -> Self {
        let what = match error {
            ZkError::NoNode => "Node does not exist: ",
            ZkError::NoChildrenForEphemerals => "Ephemerals cannot have children: ",
            ZkError::NodeExists => "Node already exists: ",
            ZkError::NotEmpty => "Node not empty: ",
            ZkError::NotReadOnly => "Not a read-only call: ",
            ZkError::InvalidAcl => "Acl is not valid : ",
            ZkError::NoAuth => "Insufficient permission : ",
            ZkError::BadArguments => "Arguments are not valid : ",
            ZkError::BadVersion => "version No is not valid : ",
            ZkError::QuotaExceeded => "Quota has exceeded : ",
            other => return Self::new(format!("KeeperErrorCode = {other} for {path}")),
        };
        Self::new(format!("{what}{path}"))
    }
}

/// Checks a path before it is sent, with the messages of ZooKeeper's client.
pub(super) fn check_path(path: &str) -> Result<(), CliError> {
    if path.is_empty() {
        return Err(CliError::new("Path length must be > 0"));
    }
    if !path.starts_with('/') {
        return Err(CliError::new("Path must start with / character"));
    }
    if path == "/" {
        return Ok(());
    }
    if path.ends_with('/') {
        return Err(CliError::new("Path must not end with / character"));
    }
    let invalid = |reason: String| {
        Err(CliError::new(format!(
            "Invalid path string \"{path}\" caused by {reason}"
        )))
    };
    for part in path.split('/').skip(1) {
        if part.is_empty() {
            return invalid("empty node name specified".to_owned());
        }
        if part == "." || part == ".." {
            return invalid("relative paths not allowed".to_owned());
        }
        let bad = |c: &char| matches!(*c, '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..='\u{ffff}');
        if let Some(c) = part.chars().find(bad) {
            return invalid(format!("invalid character U+{:04X}", c as u32));
        }
    }
    Ok(())
}

/// An event as zkCli prints it, after `WATCHER::`; `None` for what it knows no name of.
pub(super) fn watched_event(event: &ZkEvent) -> Option<String> {
    Some(match event {
        ZkEvent::Watch(WatchEvent { kind, path, zxid }) => {
            format!(
                "WatchedEvent state:SyncConnected type:{} path:{path} zxid: {zxid}",
                EventType::name(*kind)
            )
        }
        ZkEvent::Session(state) => {
            let state = match state {
                SessionState::Connected { .. } => "SyncConnected",
                SessionState::Disconnected => "Disconnected",
                SessionState::Expired => "Expired",
                SessionState::AuthFailed => "AuthFailed",
                SessionState::Closed => "Closed",
                SessionState::Overdue => return None,
            };
            format!("WatchedEvent state:{state} type:None path:null zxid: -1")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_as_javas() {
        let zone = |name: &str| jiff::tz::TimeZone::get(name).unwrap();
        assert_eq!(
            time_in(1_796_077_936_000, jiff::tz::TimeZone::UTC),
            "Mon Nov 30 22:32:16 UTC 2026"
        );
        assert_eq!(
            time_in(0, jiff::tz::TimeZone::UTC),
            "Thu Jan 01 00:00:00 UTC 1970"
        );
        assert_eq!(
            time_in(0, zone("Europe/Berlin")),
            "Thu Jan 01 01:00:00 CET 1970"
        );
        assert_eq!(
            time_in(1_786_000_000_000, zone("Europe/Berlin")),
            "Thu Aug 06 09:06:40 CEST 2026"
        );
        assert_eq!(
            time_in(i64::MAX, jiff::tz::TimeZone::UTC),
            "9223372036854775807 ms"
        );
    }

    #[test]
    fn paths_are_checked_as_by_the_java_client() {
        for (path, message) in [
            ("", "Path length must be > 0"),
            ("a", "Path must start with / character"),
            ("/a/", "Path must not end with / character"),
            (
                "/a//b",
                "Invalid path string \"/a//b\" caused by empty node name specified",
            ),
            (
                "/a/../b",
                "Invalid path string \"/a/../b\" caused by relative paths not allowed",
            ),
        ] {
            assert_eq!(check_path(path).unwrap_err().to_string(), message);
        }
        assert!(check_path("/").is_ok() && check_path("/a/.b/é").is_ok());
        assert!(check_path("/a\u{1}").is_err());
    }

    #[test]
    fn bytes_are_dumped() {
        let lines: Vec<String> = hex_dump(b"x y").lines().map(str::to_owned).collect();
        assert_eq!(
            lines[3],
            "|00000000| 78 20 79                                        |x y             |"
        );
        assert_eq!(
            lines[2],
            "+--------+-------------------------------------------------+----------------+"
        );
        assert_eq!(hex_dump(&[0; 17]).lines().count(), 6);
    }
}
