//! Quotas: `setquota`, `listquota`, `delquota`. They are znodes under `/zookeeper/quota` that the shell writes itself.

use super::options::Given;
use super::output::CliError;
use super::read::Context;
use bytes::Bytes;
use gracchus_zk_client::{Acl, CreateMode, ZkClient, ZkError};

const QUOTA: &str = "/zookeeper/quota";
const LIMITS: &str = "zookeeper_limits";
const STATS: &str = "zookeeper_stats";

/// Soft and hard limits of a node and all below it, -1 for none; also what is there, in a stats node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Quota {
    count: i64,
    bytes: i64,
    count_hard: i64,
    bytes_hard: i64,
}

impl Quota {
    const NONE: Quota = Quota {
        count: -1,
        bytes: -1,
        count_hard: -1,
        bytes_hard: -1,
    };

    /// `count=5,bytes=-1=;byteHardLimit=-1;countHardLimit=-1`, or only the first two as older servers wrote them.
    fn parse(data: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(data).ok()?;
        let mut quota = Quota::NONE;
        for pair in text.split([',', ';']).filter(|p| !p.is_empty()) {
            let (key, value) = pair.split_once('=')?;
            let value = value.trim_end_matches('=').parse().ok()?;
            match key {
                "count" => quota.count = value,
                "bytes" => quota.bytes = value,
                "countHardLimit" => quota.count_hard = value,
                "byteHardLimit" => quota.bytes_hard = value,
                _ => {}
            }
        }
        Some(quota)
    }

    fn text(&self) -> String {
        format!(
            "count={},bytes={}=;byteHardLimit={};countHardLimit={}",
            self.count, self.bytes, self.bytes_hard, self.count_hard
        )
    }

    fn field(&mut self, flag: char) -> &mut i64 {
        match flag {
            'n' => &mut self.count,
            'b' => &mut self.bytes,
            'N' => &mut self.count_hard,
            _ => &mut self.bytes_hard,
        }
    }

    /// What is said of limits that are exceeded already.
    fn warnings(&self, there: &Quota) -> Vec<String> {
        let below = |limits: [i64; 2], there: i64| limits.iter().any(|l| (0..there).contains(l));
        let mut out = Vec::new();
        if below([self.count, self.count_hard], there.count) {
            out.push(format!(
                "[Warning]: the count quota you create is less than the existing count:{}",
                there.count
            ));
        }
        if below([self.bytes, self.bytes_hard], there.bytes) {
            out.push(format!(
                "[Warning]: the bytes quota you create is less than the existing bytes:{}",
                there.bytes
            ));
        }
        out
    }
}

/// The one flag of `nbNB` that is given.
fn one_flag(given: &Given) -> Result<Option<char>, CliError> {
    let flags: Vec<char> = "nbNB".chars().filter(|f| given.has(*f)).collect();
    match flags[..] {
        [] => Ok(None),
        [flag] => Ok(Some(flag)),
        [first, second, ..] => Err(CliError::new(format!(
            "org.apache.commons.cli.AlreadySelectedException: The option '{second}' was specified but an option from this group has \
             already been selected: '{first}'"
        ))),
    }
}

pub(super) async fn set(c: &mut Context<'_>, given: &Given) -> Result<(), CliError> {
    let Some(flag) = one_flag(given)? else {
        return Err(CliError::new(
            "org.apache.commons.cli.MissingOptionException: Missing required option: [-n num soft quota, -b bytes soft quota, -N num hard \
             quota, -B bytes hard quota]",
        ));
    };
    let path = given
        .word(0)
        .ok_or_else(|| CliError::new("setquota -n|-b|-N|-B val path"))?;
    // these are no failures to zkCli
    let of_count = matches!(flag, 'n' | 'N');
    let value = given.value(flag).and_then(|text| text.parse::<i64>().ok());
    let refusal = match value {
        None => Some("NumberFormatException happens when parsing the option value"),
        Some(v) if of_count && v > i64::from(i32::MAX) => {
            Some("NumberFormatException happens when parsing the option value")
        }
        Some(v) if of_count && v <= 0 => Some("the num quota must be greater than zero"),
        Some(v) if v < 0 => Some("the bytes quota must be greater than or equal to zero"),
        Some(_) if path.starts_with(QUOTA) => {
            Some("cannot set a quota under the path: /zookeeper/quota")
        }
        Some(_) => None,
    };
    let (None, Some(value)) = (refusal, value) else {
        c.sink.err(refusal.unwrap_or_default());
        return Ok(());
    };
    if path == "/" {
        return Err(CliError::new("Path must not end with / character"));
    }
    let zk_error = |e| CliError::zk(e, path);
    if c.zk.exists(path, false).await.map_err(zk_error)?.is_none() {
        return Err(CliError::new(format!("{path} does not exist.")));
    }
    if let Some(child) = quota_below(c.zk, path).await? {
        return Err(CliError::new(format!(
            "{path} has a child {child} which has a quota"
        )));
    }
    if let Some(parent) = quota_above(c.zk, path).await? {
        return Err(CliError::new(format!(
            "{path} has a parent {parent} which has a quota"
        )));
    }
    let (limits, stats) = (node(path, LIMITS), node(path, STATS));
    let mut quota = read(c.zk, &limits).await?.unwrap_or(Quota::NONE);
    *quota.field(flag) = value;
    write(c.zk, path, &limits, &quota).await?;
    if let Some(there) = read(c.zk, &stats).await? {
        for warning in quota.warnings(&there) {
            c.sink.out(&warning);
        }
    }
    Ok(())
}

fn node(path: &str, name: &str) -> String {
    format!("{QUOTA}{path}/{name}")
}

/// None: no such node.
async fn read(zk: &ZkClient, node: &str) -> Result<Option<Quota>, CliError> {
    match zk.get_data(node, false).await {
        Ok((data, _)) => Quota::parse(&data.unwrap_or_default())
            .map(Some)
            .ok_or_else(|| CliError::new(format!("{node} holds what is no quota"))),
        Err(ZkError::NoNode) => Ok(None),
        Err(e) => Err(CliError::zk(e, node)),
    }
}

/// Makes the nodes, or changes the limits where they are.
async fn write(zk: &ZkClient, path: &str, limits: &str, quota: &Quota) -> Result<(), CliError> {
    let text = Some(Bytes::from(quota.text()));
    match zk.set_data(limits, text.clone(), -1).await {
        Ok(_) => return Ok(()),
        Err(ZkError::NoNode) => {}
        Err(e) => return Err(CliError::zk(e, limits)),
    }
    let mut at = QUOTA.to_owned();
    let mut wanted: Vec<(String, Option<Bytes>)> = path
        .split('/')
        .skip(1)
        .map(|part| {
            at = format!("{at}/{part}");
            (at.clone(), None)
        })
        .collect();
    wanted.push((limits.to_owned(), text));
    // the server counts what is there when it sees this node
    wanted.push((
        node(path, STATS),
        Some(Bytes::from_static(b"count=0,bytes=0")),
    ));
    for (node, data) in wanted {
        match zk
            .create(&node, data, Acl::open(), CreateMode::Persistent)
            .await
        {
            Ok(_) | Err(ZkError::NodeExists) => {}
            Err(e) => return Err(CliError::zk(e, &node)),
        }
    }
    Ok(())
}

/// The nearest node below that has a quota.
async fn quota_below(zk: &ZkClient, path: &str) -> Result<Option<String>, CliError> {
    let own = format!("{QUOTA}{path}");
    let mut open = vec![own.clone()];
    while let Some(at) = open.pop() {
        let children = match zk.get_children(&at, false).await {
            Ok((children, _)) => children,
            Err(ZkError::NoNode) => continue,
            Err(e) => return Err(CliError::zk(e, &at)),
        };
        for child in children {
            if child == LIMITS && at != own {
                return Ok(at.strip_prefix(QUOTA).map(str::to_owned));
            }
            if child != LIMITS && child != STATS {
                open.push(format!("{at}/{child}"));
            }
        }
    }
    Ok(None)
}

/// The node above that has a quota.
async fn quota_above(zk: &ZkClient, path: &str) -> Result<Option<String>, CliError> {
    let mut at = path;
    while let Some((parent, _)) = at.rsplit_once('/').filter(|(parent, _)| !parent.is_empty()) {
        let limits = node(parent, LIMITS);
        match zk.exists(&limits, false).await {
            Ok(Some(_)) => return Ok(Some(parent.to_owned())),
            Ok(None) => at = parent,
            Err(e) => return Err(CliError::zk(e, &limits)),
        }
    }
    Ok(None)
}

pub(super) async fn list(c: &mut Context<'_>, given: &Given) -> Result<(), CliError> {
    let path = given
        .word(0)
        .ok_or_else(|| CliError::new("listquota path"))?;
    let (limits, stats) = (node(path, LIMITS), node(path, STATS));
    c.sink.err(&format!("absolute path is {limits}"));
    let Some(quota) = read(c.zk, &limits).await? else {
        c.sink.err(&format!("quota for {path} does not exist."));
        return Ok(());
    };
    c.sink
        .out(&format!("Output quota for {path} {}", quota.text()));
    if let Some(there) = read(c.zk, &stats).await? {
        c.sink.out(&format!(
            "Output stat for {path} count={},bytes={}",
            there.count, there.bytes
        ));
    }
    Ok(())
}

pub(super) async fn delete(c: &mut Context<'_>, given: &Given) -> Result<(), CliError> {
    let flag = one_flag(given)?;
    let path = given
        .word(0)
        .ok_or_else(|| CliError::new("delquota [-n|-b|-N|-B] path"))?;
    let limits = node(path, LIMITS);
    let Some(mut quota) = read(c.zk, &limits).await? else {
        c.sink.out(&format!("Quota does not exist for {path}"));
        return Ok(());
    };
    if let Some(flag) = flag {
        *quota.field(flag) = -1;
        let set = c.zk.set_data(&limits, Some(quota.text().into()), -1).await;
        return set.map(drop).map_err(|e| CliError::zk(e, &limits));
    }
    for node in [limits, node(path, STATS)] {
        match c.zk.delete(&node, -1).await {
            Ok(()) | Err(ZkError::NoNode) => {}
            Err(e) => return Err(CliError::zk(e, &node)),
        }
    }
    // and the folders that were there for it only
    let mut at = format!("{QUOTA}{path}");
    while at != QUOTA {
        match c.zk.delete(&at, -1).await {
            Ok(()) | Err(ZkError::NoNode) => {}
            Err(ZkError::NotEmpty) => break,
            Err(e) => return Err(CliError::zk(e, &at)),
        }
        at.truncate(at.rfind('/').unwrap_or(0));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        let text = "count=5,bytes=100=;byteHardLimit=200;countHardLimit=7";
        let quota = Quota::parse(text.as_bytes()).unwrap();
        assert_eq!(quota.text(), text);
        assert_eq!(
            (quota.count, quota.bytes, quota.count_hard, quota.bytes_hard),
            (5, 100, 7, 200)
        );
        let old = Quota::parse(b"count=2,bytes=9").unwrap();
        assert_eq!((old.count, old.bytes, old.bytes_hard), (2, 9, -1));
        assert_eq!(Quota::parse(b"count=x"), None);
        assert_eq!(Quota::parse(b"what"), None);
        assert_eq!(Quota::parse(&[0xff]), None);
    }
}
