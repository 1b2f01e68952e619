//! How a client secures its session, as the system properties of ZooKeeper's Java client say it.

use crate::config::{Login, ZkConfig};
use gracchus_security::digest_md5::Credentials;
use gracchus_security::jaas;
use gracchus_security::tls::{
    ClientSettings, ClientTls, Store, StoreKind, TlsError, Versions, client_tls,
};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Names and values of properties.
pub type Properties = BTreeMap<String, String>;

/// What the properties come to.
#[derive(Debug, Clone, Default)]
pub struct Secured {
    pub login: Option<Login>,
    pub tls: Option<ClientTls>,
    /// The server learns who the client is, from a login or a certificate: ACLs may name it.
    pub has_identity: bool,
    /// One line each.
    pub warnings: Vec<String>,
}

/// Properties that can't be followed.
#[derive(Debug, thiserror::Error)]
pub enum SecurityError {
    #[error(
        "can't read the login configuration {path} that java.security.auth.login.config names: {source}. Name one that this user may read, or take the property away"
    )]
    Jaas {
        path: String,
        source: std::io::Error,
    },
    #[error(
        "the login configuration {path} has a section {section} for ZooKeeper's client, and zookeeper.sasl.client=false turns SASL off. Take one of them away"
    )]
    Contradiction { path: String, section: String },
    #[error(
        "section {section} of {path} asks for Kerberos ({class}), which is not offered: SASL to ZooKeeper is DIGEST-MD5 here. Use org.apache.zookeeper.server.auth.DigestLoginModule with username and password, or leave this broker on Apache Kafka"
    )]
    Kerberos {
        path: String,
        section: String,
        class: String,
    },
    #[error(
        "section {section} of {path} can't be used for a login to ZooKeeper: {reason}. It should look like {section} {{ org.apache.zookeeper.server.auth.DigestLoginModule required username=\"...\" password=\"...\"; }};"
    )]
    Login {
        path: String,
        section: String,
        reason: String,
    },
    #[error("{key}={value}: {wanted}")]
    Value {
        key: String,
        value: String,
        wanted: String,
    },
    #[error(
        "{key} is not set: it names the certificates that are trusted, and there is no JVM here whose own could be taken. Set it"
    )]
    NoTrustStore { key: String },
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// What a property is called where the user wrote it.
#[derive(Clone, Copy)]
pub struct Names {
    pub key_store: &'static str,
    pub trust_store: &'static str,
    pub of: fn(&'static str) -> &'static str,
}

/// As ZooKeeper's own.
pub const ZOOKEEPERS: Names = Names {
    key_store: "zookeeper.ssl.keyStore",
    trust_store: "zookeeper.ssl.trustStore",
    of: |name| name,
};

/// Login modules that leave a name and a password.
const WITH_PASSWORD: &[&str] = &["DigestLoginModule", "PlainLoginModule", "ScramLoginModule"];

impl Secured {
    /// Reads the files that the properties name.
    pub fn from_properties(properties: &Properties, names: Names) -> Result<Self, SecurityError> {
        let mut secured = Secured::default();
        secured.log_in(properties)?;
        let settings = Tls { properties, names };
        if settings.flag("zookeeper.client.secure", false)? {
            let settings = settings.settings()?;
            secured.has_identity |= settings.key_store.is_some();
            secured.tls = Some(client_tls(&settings)?);
        }
        Ok(secured)
    }

    pub fn apply(&self, config: &mut ZkConfig) {
        config.login.clone_from(&self.login);
        config.tls.clone_from(&self.tls);
    }

    fn log_in(&mut self, properties: &Properties) -> Result<(), SecurityError> {
        let get = |name: &str| properties.get(name).map(String::as_str);
        let Some(path) = get("java.security.auth.login.config") else {
            return Ok(());
        };
        let path = path.strip_prefix("file:").unwrap_or(path).to_owned();
        let section = get("zookeeper.sasl.clientconfig").unwrap_or("Client");
        let section = section.to_owned();
        let text = std::fs::read_to_string(&path);
        let text = text.map_err(|source| SecurityError::Jaas {
            path: path.clone(),
            source,
        })?;
        let on = get("zookeeper.sasl.client").is_none_or(|on| on.eq_ignore_ascii_case("true"));
        let Some(found) = jaas::section(&text, &section) else {
            if on {
                self.warnings.push(format!(
                    "the login configuration {path} has no section {section}: ZooKeeper will not learn who this is by SASL"
                ));
            }
            return Ok(());
        };
        if !on {
            return Err(SecurityError::Contradiction { path, section });
        }
        let wrong = |reason: &str| SecurityError::Login {
            path: path.clone(),
            section: section.clone(),
            reason: reason.to_owned(),
        };
        let module = found.modules.first();
        let module = module.ok_or_else(|| wrong("it names no login module"))?;
        let class = module.class.rsplit('.').next().unwrap_or_default();
        if class.starts_with("Krb5") {
            let class = module.class.clone();
            return Err(SecurityError::Kerberos {
                path,
                section,
                class,
            });
        }
        if !WITH_PASSWORD.contains(&class) {
            return Err(wrong(&format!("{} is not known here", module.class)));
        }
        let option = |name: &str| {
            let value = module.options.get(name).cloned();
            value.ok_or_else(|| wrong(&format!("it has no {name}")))
        };
        self.login = Some(Login {
            credentials: Credentials {
                user: option("username")?,
                password: option("password")?,
            },
            source: format!("section {section} of {path}"),
        });
        self.has_identity = true;
        Ok(())
    }
}

/// The properties of TLS.
struct Tls<'a> {
    properties: &'a Properties,
    names: Names,
}

impl Tls<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        let value = self.properties.get(name).map(|value| value.trim());
        value.filter(|value| !value.is_empty())
    }

    fn bad(&self, name: &'static str, wanted: impl Into<String>) -> SecurityError {
        SecurityError::Value {
            key: (self.names.of)(name).to_owned(),
            value: self.get(name).unwrap_or_default().to_owned(),
            wanted: wanted.into(),
        }
    }

    fn flag(&self, name: &'static str, default: bool) -> Result<bool, SecurityError> {
        match self.get(name) {
            None => Ok(default),
            Some(text) if text.eq_ignore_ascii_case("true") => Ok(true),
            Some(text) if text.eq_ignore_ascii_case("false") => Ok(false),
            Some(_) => Err(self.bad(name, "true or false")),
        }
    }

    fn list(&self, name: &str) -> Vec<String> {
        let words = self.get(name).unwrap_or_default().split(',');
        let words = words.map(str::trim).filter(|word| !word.is_empty());
        words.map(str::to_owned).collect()
    }

    fn settings(&self) -> Result<ClientSettings, SecurityError> {
        for name in ["zookeeper.ssl.crl", "zookeeper.ssl.ocsp"] {
            if self.flag(name, false)? {
                return Err(self.bad(
                    name,
                    "whether certificates were revoked is not looked at, so that a server which should be kept out would be talked to. Remove it",
                ));
            }
        }
        let trust_store = self.store([
            "zookeeper.ssl.trustStore.location",
            "zookeeper.ssl.trustStore.type",
            "zookeeper.ssl.trustStore.password",
            "zookeeper.ssl.trustStore.passwordPath",
        ])?;
        Ok(ClientSettings {
            key_store_keys: self.names.key_store,
            trust_store_keys: self.names.trust_store,
            key_store: self.store([
                "zookeeper.ssl.keyStore.location",
                "zookeeper.ssl.keyStore.type",
                "zookeeper.ssl.keyStore.password",
                "zookeeper.ssl.keyStore.passwordPath",
            ])?,
            trust_store: trust_store.ok_or_else(|| SecurityError::NoTrustStore {
                key: (self.names.of)("zookeeper.ssl.trustStore.location").to_owned(),
            })?,
            versions: self.versions()?,
            cipher_suites: self.list("zookeeper.ssl.ciphersuites"),
            check_host: self.flag("zookeeper.ssl.hostnameVerification", true)?,
        })
    }

    /// The enabled ones, or else the one protocol.
    fn versions(&self) -> Result<Versions, SecurityError> {
        const ENABLED: &str = "zookeeper.ssl.enabledProtocols";
        const PROTOCOL: &str = "zookeeper.ssl.protocol";
        let mut words = self.list(ENABLED);
        let name = if words.is_empty() { PROTOCOL } else { ENABLED };
        if words.is_empty() {
            words.push(self.get(PROTOCOL).unwrap_or("TLS").to_owned());
        }
        let has = |version: &str| words.iter().any(|word| word == version || word == "TLS");
        let versions = Versions {
            tls12: has("TLSv1.2"),
            tls13: has("TLSv1.3"),
        };
        if !versions.tls12 && !versions.tls13 {
            return Err(self.bad(name, "TLSv1.2 and TLSv1.3 are spoken here"));
        }
        Ok(versions)
    }

    fn store(
        &self,
        [location, kind, password, password_path]: [&'static str; 4],
    ) -> Result<Option<Store>, SecurityError> {
        let Some(path) = self.get(location).map(PathBuf::from) else {
            return Ok(None);
        };
        let found = StoreKind::of(self.get(kind), &path);
        let found = found.map_err(|reason| match self.get(kind) {
            Some(_) => self.bad(kind, reason),
            None => self.bad(location, reason),
        })?;
        let password = match self.get(password_path) {
            Some(file) => std::fs::read_to_string(file)
                .map_err(|error| self.bad(password_path, error.to_string()))?
                .trim_end_matches(['\r', '\n'])
                .to_owned(),
            None => self.properties.get(password).cloned().unwrap_or_default(),
        };
        Ok(Some(Store {
            path,
            kind: found,
            password,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn properties(pairs: &[(&str, &str)]) -> Properties {
        let pairs = pairs.iter();
        pairs
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn read(pairs: &[(&str, &str)]) -> Result<Secured, String> {
        let read = Secured::from_properties(&properties(pairs), ZOOKEEPERS);
        read.map_err(|error| error.to_string())
    }

    #[test]
    fn logins() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("jaas.conf");
        let text = "Client { org.apache.zookeeper.server.auth.DigestLoginModule required username=\"kafka\" password=\"s3cret\"; };
            Krb { com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true; };
            Odd { org.example.Module required; }; Half { x.DigestLoginModule required username=\"kafka\"; }; Empty { };";
        std::fs::write(&path, text).unwrap();
        let path = path.to_str().unwrap();
        let jaas = ("java.security.auth.login.config", path);
        let none = read(&[]).unwrap();
        assert!(none.login.is_none() && none.tls.is_none() && !none.has_identity);
        let found = read(&[jaas]).unwrap();
        let login = found.login.unwrap();
        assert_eq!(login.credentials.user, "kafka");
        assert_eq!(login.credentials.password, "s3cret");
        assert_eq!(login.source, format!("section Client of {path}"));
        assert!(found.has_identity);
        let other = read(&[jaas, ("zookeeper.sasl.clientconfig", "Other")]).unwrap();
        assert!(other.login.is_none() && !other.has_identity);
        assert!(other.warnings[0].contains("no section Other"));
        for (key, value, word) in [
            (
                "zookeeper.sasl.client",
                "false",
                "zookeeper.sasl.client=false",
            ),
            ("zookeeper.sasl.clientconfig", "Krb", "Kerberos"),
            (
                "zookeeper.sasl.clientconfig",
                "Odd",
                "org.example.Module is not known",
            ),
            ("zookeeper.sasl.clientconfig", "Half", "has no password"),
            ("zookeeper.sasl.clientconfig", "Empty", "no login module"),
            (
                "java.security.auth.login.config",
                "/no/such/file",
                "/no/such/file",
            ),
        ] {
            let error = read(&[jaas, (key, value)]).unwrap_err();
            assert!(error.contains(word) && !error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn tls_that_cannot_be_set_up_is_named() {
        let on = ("zookeeper.client.secure", "true");
        let stores = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../security/tests/golden/stores"
        );
        let trust = format!("{stores}/trust.jks");
        let key = format!("{stores}/key.p12");
        let trusted = ("zookeeper.ssl.trustStore.location", &*trust);
        let opened = ("zookeeper.ssl.trustStore.password", "secret1");
        let shown = ("zookeeper.ssl.keyStore.location", &*key);
        let found = read(&[on, trusted, opened]).unwrap();
        assert!(found.tls.is_some() && !found.has_identity);
        let both = [
            on,
            trusted,
            opened,
            shown,
            ("zookeeper.ssl.keyStore.password", "secret1"),
        ];
        assert!(read(&both).unwrap().has_identity);
        for (pairs, words) in [
            (
                vec![on],
                vec!["zookeeper.ssl.trustStore.location is not set"],
            ),
            (vec![on, trusted], vec!["trust.jks", "password"]),
            (
                vec![on, ("zookeeper.ssl.trustStore.location", "/no/such.pem")],
                vec!["/no/such.pem", "zookeeper.ssl.trustStore.location"],
            ),
            (
                vec![on, ("zookeeper.ssl.trustStore.location", "/no/such")],
                vec!["type must be set"],
            ),
            (
                vec![
                    on,
                    trusted,
                    opened,
                    ("zookeeper.ssl.trustStore.type", "BCFKS"),
                ],
                vec!["zookeeper.ssl.trustStore.type", "BCFKS"],
            ),
            (
                vec![on, trusted, opened, ("zookeeper.ssl.crl", "true")],
                vec!["zookeeper.ssl.crl", "revoked"],
            ),
            (
                vec![
                    on,
                    trusted,
                    opened,
                    ("zookeeper.ssl.enabledProtocols", "TLSv1.1"),
                ],
                vec!["zookeeper.ssl.enabledProtocols=TLSv1.1"],
            ),
            (
                vec![on, trusted, opened, ("zookeeper.ssl.ciphersuites", "X")],
                vec!["cipher suites X"],
            ),
            (
                vec![("zookeeper.client.secure", "yes")],
                vec!["true or false"],
            ),
        ] {
            let error = read(&pairs).unwrap_err();
            for word in words {
                assert!(error.contains(word), "{error}");
            }
        }
    }
}
