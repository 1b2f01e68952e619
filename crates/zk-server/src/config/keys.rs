//! The values of `zoo.cfg`'s keys, and which keys are known.

use super::{ConfigError, Whitelist};
use std::net::{IpAddr, ToSocketAddrs};

pub(super) struct Entry<'a> {
    pub key: &'a str,
    pub value: &'a str,
}

impl Entry<'_> {
    pub fn bad(&self, wanted: &'static str) -> ConfigError {
        ConfigError::BadValue {
            key: self.key.into(),
            value: self.value.into(),
            wanted,
        }
    }

    pub fn fatal(&self, why: &'static str) -> ConfigError {
        ConfigError::MustNotBeIgnored {
            key: self.key.into(),
            why,
        }
    }

    pub fn number(&self, min: u64, max: u64, wanted: &'static str) -> Result<u64, ConfigError> {
        let number = self.value.parse::<u64>().ok();
        number
            .filter(|n| (min..=max).contains(n))
            .ok_or_else(|| self.bad(wanted))
    }

    pub fn count(&self) -> Result<usize, ConfigError> {
        Ok(self.number(0, u32::MAX as u64, "a number, 0 or more")? as usize)
    }

    pub fn timeout(&self) -> Result<Option<i32>, ConfigError> {
        let ms: i32 = self
            .value
            .parse()
            .map_err(|_| self.bad("ms, -1 for the default"))?;
        Ok((ms >= 0).then_some(ms))
    }

    /// Java compares with `true` or with `no`; both spellings count everywhere here.
    pub fn flag(&self, default: bool) -> Result<bool, ConfigError> {
        match self.value.to_ascii_lowercase().as_str() {
            "true" | "yes" => Ok(true),
            "false" | "no" => Ok(false),
            "" => Ok(default),
            _ => Err(self.bad("true or false (yes or no)")),
        }
    }

    pub fn address(&self) -> Result<IpAddr, ConfigError> {
        if let Ok(address) = self.value.parse() {
            return Ok(address);
        }
        let resolved = (self.value, 0)
            .to_socket_addrs()
            .ok()
            .and_then(|mut all| all.next());
        resolved
            .map(|found| found.ip())
            .ok_or_else(|| self.bad("an address or a name that resolves to one"))
    }

    /// A list with commas.
    pub fn words(&self) -> Vec<String> {
        let words = self.value.split(',').map(|word| word.trim().to_owned());
        words.filter(|word| !word.is_empty()).collect()
    }

    pub fn whitelist(&self) -> Whitelist {
        let words = self.words();
        if words.iter().any(|word| word == "*") {
            Whitelist::All
        } else {
            Whitelist::Words(words)
        }
    }
}

/// Keys that matter between the servers of an ensemble only: a server alone obeys them by having nothing to do.
pub(super) fn is_of_ensembles(name: &str) -> bool {
    const PREFIXES: &[&str] = &[
        "multiAddress.",
        "quorum",
        "learner.",
        "leader.",
        "group.",
        "weight.",
        "observer.",
        "fastleader.",
    ];
    const NAMES: &[&str] = &[
        "initLimit",
        "syncLimit",
        "electionAlg",
        "electionPortBindRetry",
        "standaloneEnabled",
        "peerType",
        "cnxTimeout",
        "connectToLearnerMasterLimit",
        "syncEnabled",
        "sslQuorum",
        "sslQuorumReloadCertFiles",
        "tcpKeepAlive",
    ];
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

pub(super) fn is_admin(name: &str) -> bool {
    name.starts_with("admin.")
}

/// Keys of ZooKeeper 3.9 that this server does not honour.
pub(super) fn is_known(name: &str) -> bool {
    const PREFIXES: &[&str] = &[
        "ssl.",
        "authProvider.",
        "nio.",
        "netty.",
        "localSessions",
        "connection_",
        "connectionThrottle",
        "X509AuthenticationProvider.",
        "client.",
        "snapshot.",
        "znode.container.",
        "enforce.auth.",
        "jute.maxbuffer.",
        "sasl.",
        "request_throttle",
        "dynamicConfig",
        "digest.",
        "ipauth.",
        "DigestAuthenticationProvider.",
        "metricsProvider.",
    ];
    const NAMES: &[&str] = &[
        "commitLogCount",
        "watchManagerName",
        "serverCnxnFactory",
        "txnLogSizeLimitInKb",
        "digest.enabled",
        "closeSessionTxn.enabled",
        "serializeLastProcessedZxid.enabled",
        "audit.enable",
        "flushDelay",
        "maxBatchSize",
        "maxWriteQueuePollTime",
        "clientTcpKeepAlive",
        "maxResponseCacheSize",
        "maxGetChildrenResponseCacheSize",
        "throttledOpWaitTime",
        "largeRequestMaxBytes",
        "largeRequestThreshold",
        "readonlymode.enabled",
        "portUnification",
        "requestThrottleLimit",
        "watcherCleanThreadsNum",
        "jvm.pause.monitor",
        "jvm.pause.info-threshold.ms",
        "jvm.pause.warn-threshold.ms",
        "jvm.pause.sleep.time.ms",
        "serverId",
        "advancedFlowControlEnabled",
    ];
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}
