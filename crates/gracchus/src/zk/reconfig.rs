//! `reconfig`: changes to an ensemble. A server alone refuses it, and says how.

use super::output::{CliError, text};
use super::read::Context;

const USAGE: &str = "reconfig [-s] [-v version] [[-file path] | [-members serverID=host:port1:port2;port3[,...]*]] | [-add serverId=host:port1:port2;port3[,...]]* [-remove serverId[,...]*]";

/// What the words ask for; its options have long names behind one dash, as nothing else here.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    joining: Vec<String>,
    leaving: Vec<String>,
    members: Option<String>,
    from: i64,
    with_stat: bool,
}

impl Change {
    pub(super) fn parse(words: &[String]) -> Result<Self, CliError> {
        let mut change = Change {
            from: -1,
            ..Change::default()
        };
        let mut file = None;
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            let mut value = || rest.next().cloned().ok_or_else(|| CliError::new(USAGE));
            match word.as_str() {
                "-s" => change.with_stat = true,
                "-v" => {
                    change.from = i64::from_str_radix(&value()?, 16).map_err(|_| {
                        CliError::new("-v must be followed by a long (configuration version)")
                    })?;
                }
                "-add" => change.joining.push(value()?),
                "-remove" => change.leaving.push(value()?),
                "-members" => change.members = Some(value()?),
                "-file" => file = Some(value()?),
                _ => return Err(CliError::new(USAGE)),
            }
        }
        let incremental = !change.joining.is_empty() || !change.leaving.is_empty();
        if incremental && (file.is_some() || change.members.is_some()) {
            return Err(CliError::new(
                "Can't use -file or -members together with -add or -remove (mixing incremental and non-incremental modes is not allowed)",
            ));
        }
        if file.is_some() && change.members.is_some() {
            return Err(CliError::new(
                "Can't use -file and -members together (conflicting non-incremental modes)",
            ));
        }
        if let Some(file) = file {
            let text = std::fs::read_to_string(&file)
                .map_err(|e| CliError::new(format!("Error processing {file}: {e}")))?;
            let servers = text
                .lines()
                .map(str::trim)
                .filter(|l| l.starts_with("server."));
            change.members = Some(servers.collect::<Vec<_>>().join(","));
        }
        if !incremental && change.members.is_none() {
            return Err(CliError::new(USAGE));
        }
        Ok(change)
    }
}

pub(super) async fn reconfig(c: &mut Context<'_>, change: Change) -> Result<(), CliError> {
    let list = |words: Vec<String>| (!words.is_empty()).then(|| words.join(","));
    let done =
        c.zk.reconfig(
            list(change.joining),
            list(change.leaving),
            change.members,
            change.from,
        )
        .await;
    let (data, stat) = done.map_err(|e| CliError::new(format!("KeeperErrorCode = {e}")))?;
    c.sink.out("Committed new configuration:");
    c.sink.out(&text(data.as_deref()));
    if change.with_stat {
        c.sink.stat(&stat);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Change, String> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        Change::parse(&words).map_err(|e| e.to_string())
    }

    #[test]
    fn words() {
        let change = parse("-s -v 1f -add server.2=a:1:2 -add server.3=b:1:2 -remove 1").unwrap();
        assert_eq!(change.joining, ["server.2=a:1:2", "server.3=b:1:2"]);
        assert_eq!((change.from, change.with_stat), (0x1f, true));
        assert!(parse("").unwrap_err().starts_with("reconfig [-s]"));
        assert!(
            parse("-members a -add b")
                .unwrap_err()
                .starts_with("Can't use")
        );
        assert!(
            parse("-v x -remove 1")
                .unwrap_err()
                .starts_with("-v must be")
        );
        assert!(parse("-add").is_err() && parse("-file /no/such/file").is_err());
    }
}
