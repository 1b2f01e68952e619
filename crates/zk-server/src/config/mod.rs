//! `zoo.cfg`: the keys that are honoured, the ones that are known and not, and the ones that must not be ignored.

mod keys;
mod properties;
mod tls;

use gracchus_security::digest_md5::Users;
use gracchus_security::jaas;
use gracchus_security::tls::TlsSettings;
use keys::{Entry, is_admin, is_known, is_of_ensembles};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// Words that only read; open to loopback clients unless `4lw.commands.whitelist` says otherwise.
const READ_ONLY_WORDS: &[&str] = &[
    "ruok", "srvr", "stat", "mntr", "conf", "cons", "dump", "envi", "wchs", "wchc", "wchp", "dirs",
    "isro",
];

/// Why a configuration can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("can't read {path}: {source}. Give the path of a zoo.cfg that this user may read.")]
    Unreadable {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{key}={value} in the ZooKeeper configuration is not valid: {wanted}.")]
    BadValue {
        key: String,
        value: String,
        wanted: &'static str,
    },
    #[error("{key}.location={path} in the ZooKeeper configuration can't be used: {reason}.")]
    Store {
        key: &'static str,
        path: PathBuf,
        reason: String,
    },
    #[error("the ZooKeeper configuration lacks {0}. Add a line '{0}=...'.")]
    Missing(&'static str),
    #[error(
        "the ZooKeeper configuration names {0} servers (server.N keys). This server runs alone: an ensemble stays Apache ZooKeeper's, and brokers may use one through zookeeper.connect. Remove the server.N keys to run a single server."
    )]
    Ensemble(usize),
    #[error(
        "the ZooKeeper configuration demands SASL of its clients, and there is no SASL user. Name a login configuration that has a Server section with java.security.auth.login.config=FILE."
    )]
    NoSaslUsers,
    #[error(
        "{key} is set in the ZooKeeper configuration, and {why}. Remove the key to start without it."
    )]
    MustNotBeIgnored { key: String, why: &'static str },
}

/// Who may ask which four-letter words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whitelist {
    /// `srvr` for everybody, the read-only ones from loopback addresses.
    Default,
    All,
    Words(Vec<String>),
}

impl Whitelist {
    pub fn allows(&self, word: &str, from: IpAddr) -> bool {
        match self {
            Whitelist::Default => {
                word == "srvr"
                    || (from.to_canonical().is_loopback() && READ_ONLY_WORDS.contains(&word))
            }
            Whitelist::All => true,
            Whitelist::Words(words) => words.iter().any(|known| known == word),
        }
    }
}

/// A server's configuration. `ZkConfig::new` gives ZooKeeper's defaults, deviations aside that the README lists.
#[derive(Debug, Clone)]
pub struct ZkConfig {
    pub data_dir: PathBuf,
    /// Where the transaction log goes; `data_dir` unless set.
    pub data_log_dir: Option<PathBuf>,
    /// Port 0 takes a free one.
    pub client_address: SocketAddr,
    /// Clients that don't speak TLS are served; not so where zoo.cfg names only a secureClientPort.
    pub serves_plain: bool,
    /// Where clients that speak TLS are served.
    pub secure_address: Option<SocketAddr>,
    pub tls: Option<TlsSettings>,
    pub tick_time_ms: i32,
    /// 2 ticks unless set.
    pub min_session_timeout_ms: Option<i32>,
    /// 20 ticks unless set.
    pub max_session_timeout_ms: Option<i32>,
    /// Connections from one address, 0 for no limit.
    pub max_client_connections: usize,
    /// Connections in all, 0 for no limit.
    pub max_connections: usize,
    /// Largest request, bytes.
    pub max_buffer: usize,
    /// Transactions after which a snapshot is due; the real number is drawn between half of it and it.
    pub snap_count: u64,
    /// Bytes of log after which a snapshot is due, drawn likewise; `None` for no limit.
    pub snap_size_limit: Option<u64>,
    /// Steps in which the log grows, bytes.
    pub pre_alloc_size: u64,
    /// Wait for the disk before a write is answered.
    pub force_sync: bool,
    /// Snapshots to keep, at least 3.
    pub snap_retain_count: usize,
    /// Hours between purges of old snapshots and logs, 0 for never.
    pub purge_interval_hours: u64,
    pub whitelist: Whitelist,
    pub extended_types: bool,
    pub reconfig_enabled: bool,
    pub skip_acl: bool,
    /// Hard limits of quotas bind.
    pub enforce_quota: bool,
    /// `user:hash` of the superuser.
    pub super_digest: Option<String>,
    /// Who may log in by SASL DIGEST-MD5; `None` where no login configuration has a section for the server.
    pub sasl_users: Option<Users>,
    /// Lists may name SASL users (`authProvider.*` has ZooKeeper's SASL provider).
    pub sasl_provider: bool,
    /// The SASL user that may do everything.
    pub sasl_super_user: Option<String>,
    /// A client that fails to log in goes on without.
    pub allow_sasl_failed: bool,
    /// Schemes of which a client must have proven an id before anything else; none for no such rule.
    pub enforced_schemes: Vec<String>,
    /// Requests in process beyond which connections with open requests are not read.
    pub global_outstanding_limit: usize,
    /// ms between looks at containers and TTL nodes.
    pub container_check_interval_ms: u64,
    /// Removals of containers and TTL nodes a minute at most.
    pub container_max_per_minute: u64,
    /// The server's own unless set.
    pub listen_backlog: Option<i32>,
    /// Start with logs but without a snapshot.
    pub trust_empty_snapshot: bool,
    pub fsync_warning_threshold_ms: u64,
    /// Where ZooKeeper's Prometheus provider would listen, if the configuration asks for it.
    pub metrics: Option<SocketAddr>,
    /// Keys that are known and not honoured, and unknown ones: one line each, for the log.
    pub warnings: Vec<String>,
    /// Where the configuration came from, for messages.
    pub origin: Option<PathBuf>,
}

impl ZkConfig {
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        ZkConfig {
            data_dir: data_dir.into(),
            data_log_dir: None,
            client_address: SocketAddr::from((Ipv4Addr::LOCALHOST, 2181)),
            serves_plain: true,
            secure_address: None,
            tls: None,
            tick_time_ms: 2000,
            min_session_timeout_ms: None,
            max_session_timeout_ms: None,
            max_client_connections: 60,
            max_connections: 0,
            max_buffer: gracchus_zk_proto::DEFAULT_MAX_BUFFER,
            snap_count: 100_000,
            snap_size_limit: Some(4 << 30),
            pre_alloc_size: 64 << 20,
            force_sync: true,
            snap_retain_count: 3,
            purge_interval_hours: 24,
            whitelist: Whitelist::Default,
            extended_types: false,
            reconfig_enabled: false,
            skip_acl: false,
            enforce_quota: false,
            super_digest: None,
            sasl_users: None,
            sasl_provider: false,
            sasl_super_user: None,
            allow_sasl_failed: false,
            enforced_schemes: Vec::new(),
            global_outstanding_limit: 1000,
            container_check_interval_ms: 60_000,
            container_max_per_minute: 10_000,
            listen_backlog: None,
            trust_empty_snapshot: false,
            fsync_warning_threshold_ms: 1000,
            metrics: None,
            warnings: Vec::new(),
            origin: None,
        }
    }

    /// Reads a `zoo.cfg`.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Unreadable {
            path: path.into(),
            source,
        })?;
        let mut config = Self::parse(&text)?;
        config.origin = Some(path.into());
        Ok(config)
    }

    /// Reads the text of a `zoo.cfg`.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let mut config = ZkConfig::new("");
        // All addresses unless told otherwise, of both families.
        let mut address = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        let mut port = None;
        let mut secure_address = address;
        let mut secure_port = None;
        let mut tls_keys = tls::TlsKeys::default();
        let mut servers = 0;
        let mut enforce = false;
        let mut schemes = Vec::new();
        let mut jaas_file = None;
        let mut jaas_section = String::from("Server");
        // The last of two equal keys counts, as in Java.
        let pairs: BTreeMap<String, String> = properties::parse(text).into_iter().collect();
        let admin_is_off = ["admin.enableServer", "zookeeper.admin.enableServer"]
            .iter()
            .any(|key| {
                pairs
                    .get(*key)
                    .is_some_and(|v| v.eq_ignore_ascii_case("false"))
            });
        // as the provider's own defaults
        let (mut metrics_port, mut metrics_address) = (7000, IpAddr::from([0, 0, 0, 0]));
        let mut with_metrics = false;
        for (key, value) in &pairs {
            let entry = Entry { key, value };
            match key.strip_prefix("zookeeper.").unwrap_or(key) {
                "dataDir" => config.data_dir = value.into(),
                "dataLogDir" => config.data_log_dir = Some(value.into()),
                "clientPort" => port = Some(entry.number(0, 65_535, "a port, 0 to 65535")? as u16),
                "clientPortAddress" => address = entry.address()?,
                "tickTime" => config.tick_time_ms = entry.number(1, i32::MAX as u64, "ms, at least 1")? as i32,
                "minSessionTimeout" => config.min_session_timeout_ms = entry.timeout()?,
                "maxSessionTimeout" => config.max_session_timeout_ms = entry.timeout()?,
                "maxClientCnxns" => config.max_client_connections = entry.count()?,
                "maxCnxns" => config.max_connections = entry.count()?,
                "jute.maxbuffer" => {
                    config.max_buffer = entry.number(1024, 1 << 30, "bytes, 1024 to 2^30")? as usize;
                }
                "snapCount" => config.snap_count = entry.number(2, u64::MAX, "at least 2")?,
                "snapSizeLimitInKb" => {
                    let kb: i64 = value.parse().map_err(|_| entry.bad("a number of KB, 0 or less for no limit"))?;
                    config.snap_size_limit = u64::try_from(kb).ok().filter(|kb| *kb > 0).map(|kb| kb.saturating_mul(1024));
                }
                "preAllocSize" => config.pre_alloc_size = entry.number(1, 1 << 22, "KB, 1 to 2^22")? * 1024,
                "forceSync" => config.force_sync = entry.flag(true)?,
                "autopurge.snapRetainCount" => {
                    config.snap_retain_count = entry.count()?.max(3);
                }
                "autopurge.purgeInterval" => config.purge_interval_hours = entry.count()? as u64,
                "4lw.commands.whitelist" => config.whitelist = entry.whitelist(),
                "extendedTypesEnabled" => config.extended_types = entry.flag(false)?,
                "reconfigEnabled" => config.reconfig_enabled = entry.flag(false)?,
                "skipACL" => config.skip_acl = entry.flag(false)?,
                "enforceQuota" => config.enforce_quota = entry.flag(false)?,
                "DigestAuthenticationProvider.superDigest" => config.super_digest = Some(value.clone()),
                "globalOutstandingLimit" => config.global_outstanding_limit = entry.count()?.max(1),
                "znode.container.checkIntervalMs" => config.container_check_interval_ms = entry.number(1, u64::MAX, "ms, at least 1")?,
                "znode.container.maxPerMinute" => config.container_max_per_minute = entry.number(1, u64::MAX, "at least 1")?,
                "clientPortListenBacklog" => {
                    let backlog: i32 = value.parse().map_err(|_| entry.bad("a number, -1 for the default"))?;
                    if backlog > 0 {
                        config.listen_backlog = Some(backlog);
                    }
                }
                "snapshot.trust.empty" => config.trust_empty_snapshot = entry.flag(false)?,
                "fsync.warningthresholdms" => config.fsync_warning_threshold_ms = entry.number(0, u64::MAX, "ms")?,
                "metricsProvider.httpPort" => metrics_port = entry.number(0, 65_535, "a port, 0 to 65535")? as u16,
                "metricsProvider.httpHost" => metrics_address = entry.address()?,
                "metricsProvider.className" => with_metrics = value.ends_with(".PrometheusMetricsProvider"),
                "metricsProvider.exportJvmInfo" => {}
                "secureClientPort" => secure_port = Some(entry.number(0, 65_535, "a port, 0 to 65535")? as u16),
                "secureClientPortAddress" => secure_address = entry.address()?,
                name if tls_keys.take(name, &entry)? => {}
                "sessionRequireClientSASLAuth" if entry.flag(false)? => config.enforced_schemes.push("sasl".into()),
                "sessionRequireClientSASLAuth" => {}
                "enforce.auth.enabled" => enforce = entry.flag(false)?,
                "enforce.auth.schemes" => schemes = entry.words(),
                "allowSaslFailedClients" => config.allow_sasl_failed = entry.flag(false)?,
                "superUser" => config.sasl_super_user = Some(value.clone()),
                "java.security.auth.login.config" => jaas_file = Some(value.clone()),
                "sasl.serverconfig" => jaas_section = value.clone(),
                name if name.starts_with("authProvider.") && value.ends_with(".SASLAuthenticationProvider") => config.sasl_provider = true,
                name if name.starts_with("server.") => servers += 1,
                name if is_of_ensembles(name) => {}
                "admin.enableServer" if !entry.flag(true)? => {}
                // of a server that is off
                name if is_admin(name) && admin_is_off => {}
                name if is_admin(name) => config.warnings.push(format!(
                    "{key}={value}: there is no AdminServer here; its figures are under /metrics of --http-port and in the four-letter words"
                )),
                name if is_known(name) => config.warnings.push(format!("{key}={value} is known and not honoured")),
                _ => config.warnings.push(format!("{key}={value} is not a key of ZooKeeper's that this server knows; it is ignored")),
            }
        }
        config.metrics = with_metrics.then(|| SocketAddr::new(metrics_address, metrics_port));
        if enforce {
            if let Some(unknown) = schemes
                .iter()
                .find(|scheme| !matches!(scheme.as_str(), "sasl" | "digest" | "ip" | "x509"))
            {
                return Err(ConfigError::BadValue {
                    key: "enforce.auth.schemes".into(),
                    value: unknown.clone(),
                    wanted: "sasl, digest, x509 and ip can be enforced",
                });
            }
            if schemes.is_empty() {
                return Err(ConfigError::Missing("enforce.auth.schemes"));
            }
            config.enforced_schemes.append(&mut schemes);
        }
        if let Some(path) = jaas_file {
            let path = PathBuf::from(path);
            let text = std::fs::read_to_string(&path)
                .map_err(|source| ConfigError::Unreadable { path, source })?;
            config.sasl_users = jaas::section(&text, &jaas_section).map(|section| section.users());
        }
        if config.sasl_users.is_none()
            && config
                .enforced_schemes
                .iter()
                .any(|scheme| scheme == "sasl")
        {
            return Err(ConfigError::NoSaslUsers);
        }
        if servers > 1 {
            return Err(ConfigError::Ensemble(servers));
        }
        if config.data_dir.as_os_str().is_empty() {
            return Err(ConfigError::Missing("dataDir"));
        }
        if let Some(secure) = secure_port {
            config.secure_address = Some(SocketAddr::new(secure_address, secure));
            config.tls = Some(tls_keys.settings()?);
            config.serves_plain = port.is_some();
        }
        let port = port.or(secure_port);
        config.client_address =
            SocketAddr::new(address, port.ok_or(ConfigError::Missing("clientPort"))?);
        if config.min_timeout_ms() > config.max_timeout_ms() {
            return Err(ConfigError::BadValue {
                key: "minSessionTimeout".into(),
                value: config.min_timeout_ms().to_string(),
                wanted: "it must not exceed maxSessionTimeout",
            });
        }
        Ok(config)
    }

    pub fn min_timeout_ms(&self) -> i32 {
        self.min_session_timeout_ms
            .unwrap_or(self.tick_time_ms.saturating_mul(2))
    }

    pub fn max_timeout_ms(&self) -> i32 {
        self.max_session_timeout_ms
            .unwrap_or(self.tick_time_ms.saturating_mul(20))
    }

    /// The directory of the snapshots.
    pub fn snap_dir(&self) -> PathBuf {
        self.data_dir.join("version-2")
    }

    /// The directory of the transaction log.
    pub fn log_dir(&self) -> PathBuf {
        self.data_log_dir
            .as_ref()
            .unwrap_or(&self.data_dir)
            .join("version-2")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_and_overrides() {
        let c = ZkConfig::parse("dataDir=/d\nclientPort=2181\n").unwrap();
        assert_eq!(c.client_address, "[::]:2181".parse().unwrap());
        assert_eq!((c.min_timeout_ms(), c.max_timeout_ms()), (4000, 40_000));
        assert_eq!(c.log_dir(), Path::new("/d/version-2"));
        assert!(c.force_sync && c.warnings.is_empty() && !c.extended_types);

        let c = ZkConfig::parse(
            "dataDir=/d\ndataLogDir=/l\nclientPort=1\nclientPortAddress=127.0.0.1\ntickTime=1000\nminSessionTimeout=-1\nmaxSessionTimeout=5000\n\
             forceSync=no\npreAllocSize=64\nsnapCount=20\nautopurge.snapRetainCount=1\n4lw.commands.whitelist=ruok, mntr\nextendedTypesEnabled=true\nskipACL=yes\n",
        )
        .unwrap();
        assert_eq!(c.log_dir(), Path::new("/l/version-2"));
        assert_eq!((c.min_timeout_ms(), c.max_timeout_ms()), (2000, 5000));
        assert!(!c.force_sync && c.extended_types && c.skip_acl);
        assert_eq!(
            (c.pre_alloc_size, c.snap_count, c.snap_retain_count),
            (65_536, 20, 3)
        );
        assert!(c.whitelist.allows("ruok", "10.0.0.1".parse().unwrap()));
        assert!(!c.whitelist.allows("stat", "127.0.0.1".parse().unwrap()));
    }

    #[test]
    fn the_default_whitelist_trusts_loopback() {
        let w = Whitelist::Default;
        let (here, there) = ("127.0.0.1".parse().unwrap(), "10.0.0.1".parse().unwrap());
        assert!(
            w.allows("srvr", there)
                && w.allows("mntr", here)
                && w.allows("ruok", "::ffff:127.0.0.1".parse().unwrap())
        );
        assert!(!w.allows("mntr", there) && !w.allows("crst", here));
    }

    #[test]
    fn what_must_not_be_ignored_is_an_error() {
        let base = "dataDir=/d\nclientPort=2181\n";
        for (extra, word) in [
            ("server.1=a:1:2\nserver.2=b:1:2\n", "2 servers"),
            ("secureClientPort=2281\n", "ssl.keyStore.location"),
            (
                "secureClientPort=2281\nssl.keyStore.location=/k\n",
                "ssl.keyStore.location=/k",
            ),
            ("secureClientPort=1\nssl.crl=true\n", "ssl.crl"),
            ("sessionRequireClientSASLAuth=true\n", "Server section"),
            ("enforce.auth.enabled=true\n", "enforce.auth.schemes"),
            (
                "enforce.auth.enabled=true\nenforce.auth.schemes=kerberos\n",
                "enforce.auth.schemes",
            ),
            (
                "java.security.auth.login.config=/no/such/file\n",
                "/no/such/file",
            ),
            ("tickTime=soon\n", "tickTime=soon"),
            ("clientPort=70000\n", "clientPort=70000"),
            (
                "minSessionTimeout=9\nmaxSessionTimeout=8\n",
                "minSessionTimeout",
            ),
        ] {
            let error = ZkConfig::parse(&format!("{base}{extra}"))
                .unwrap_err()
                .to_string();
            assert!(error.contains(word), "{error}");
        }
        assert!(
            ZkConfig::parse("clientPort=1\n")
                .unwrap_err()
                .to_string()
                .contains("dataDir")
        );
        assert!(
            ZkConfig::parse("dataDir=/d\n")
                .unwrap_err()
                .to_string()
                .contains("clientPort")
        );
    }

    #[test]
    fn one_server_stands_alone_and_others_are_named() {
        let c = ZkConfig::parse(
            "dataDir=/d\nclientPort=1\nserver.1=a:2888:3888\nadmin.serverPort=8080\nnoSuchKey=1\n",
        )
        .unwrap();
        assert_eq!(c.warnings.len(), 2);
    }

    #[test]
    fn the_sample_configuration_needs_no_warning() {
        let c = ZkConfig::parse(
            "tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir=/d\nclientPort=2181\nadmin.enableServer=false\nadmin.serverPort=8080\n\
             standaloneEnabled=true\n",
        )
        .unwrap();
        assert_eq!(c.warnings, [""; 0]);
    }

    #[test]
    fn metrics_are_served_where_the_prometheus_provider_would() {
        let metrics = |keys: &str| {
            let c = ZkConfig::parse(&format!("dataDir=/d\nclientPort=1\n{keys}")).unwrap();
            assert_eq!(c.warnings, [""; 0]);
            c.metrics.map(|at| at.to_string())
        };
        let class = "metricsProvider.className=org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider\n";
        assert_eq!(metrics(class).as_deref(), Some("0.0.0.0:7000"));
        let elsewhere =
            format!("{class}metricsProvider.httpHost=127.0.0.1\nmetricsProvider.httpPort=7070\n");
        assert_eq!(metrics(&elsewhere).as_deref(), Some("127.0.0.1:7070"));
        assert_eq!(
            metrics("metricsProvider.httpPort=7070\n"),
            None,
            "the port of no provider"
        );
    }
}
