//! The server's side, as ZooKeeper offers it: one realm, no subsequent authentication. The nonce is passed in.

use super::{DIGEST_URI, Hashed, REALM, directives, same};
use std::collections::BTreeMap;
use std::fmt;

/// Who may log in, with passwords, which are not shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Users(BTreeMap<String, String>);

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl FromIterator<(String, String)> for Users {
    fn from_iter<T: IntoIterator<Item = (String, String)>>(users: T) -> Self {
        Users(users.into_iter().collect())
    }
}

/// Why a client is refused; for the log, not for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("its response can't be read")]
    Unreadable,
    #[error("its response lacks {0} or has a wrong one")]
    Wrong(&'static str),
    #[error("user or password is wrong")]
    Credentials,
}

/// One exchange: a challenge, a response to it.
#[derive(Debug)]
pub struct Exchange {
    nonce: String,
}

impl Exchange {
    pub fn new(nonce: String) -> Self {
        Exchange { nonce }
    }

    pub fn challenge(&self) -> String {
        format!(
            "realm=\"{REALM}\",nonce=\"{}\",charset=utf-8,algorithm=md5-sess",
            self.nonce
        )
    }

    /// The user and the server's proof that it knows the password too.
    pub fn verify(&self, response: &[u8], users: &Users) -> Result<(String, String), Refusal> {
        let r = directives(response).ok_or(Refusal::Unreadable)?;
        let get = |name: &'static str| r.get(name).map(String::as_str);
        let expect = |name, wanted: &str| match get(name) {
            Some(value) if value == wanted => Ok(()),
            _ => Err(Refusal::Wrong(name)),
        };
        let user = get("username").ok_or(Refusal::Wrong("username"))?;
        expect("realm", REALM)?;
        expect("nonce", &self.nonce)?;
        expect("nc", "00000001")?;
        expect("digest-uri", DIGEST_URI)?;
        if get("qop").is_some() {
            expect("qop", "auth")?;
        }
        // To act for somebody else is not offered.
        let acting_as = get("authzid").filter(|id| !id.is_empty());
        if acting_as.is_some_and(|id| id != user) {
            return Err(Refusal::Wrong("authzid"));
        }
        let cnonce = get("cnonce").ok_or(Refusal::Wrong("cnonce"))?;
        let theirs = get("response").ok_or(Refusal::Wrong("response"))?;
        let password = users.0.get(user).ok_or(Refusal::Credentials)?;
        let hashed = Hashed {
            user,
            realm: REALM,
            password,
            nonce: &self.nonce,
            cnonce,
            acting_as,
        };
        let ours = hashed.response(DIGEST_URI);
        if !same(ours.as_bytes(), theirs.as_bytes()) {
            return Err(Refusal::Credentials);
        }
        let rspauth = hashed.rspauth(DIGEST_URI);
        Ok((user.to_owned(), format!("rspauth={rspauth}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn users() -> Users {
        [("kafka", "kafka-secret"), ("alice", "alice-secret")]
            .map(|(user, password)| (user.to_owned(), password.to_owned()))
            .into_iter()
            .collect()
    }

    /// Captured from Apache ZooKeeper 3.9.5.
    const NONCE: &str = "60akFPR3wFF6DqzuwPHEpl+4X0aCPakT3eXx2jXq";
    const RESPONSE: &str = "charset=utf-8,username=\"kafka\",realm=\"zk-sasl-md5\",nonce=\"60akFPR3wFF6DqzuwPHEpl+4X0aCPakT3eXx2jXq\",nc=00000001,cnonce=\"abcdef0123456789\",digest-uri=\"zookeeper/zk-sasl-md5\",maxbuf=65536,response=4b048430c3e08c9addfff7d01ea9483b,qop=auth";

    #[test]
    fn a_captured_exchange() {
        let exchange = Exchange::new(NONCE.into());
        assert_eq!(
            exchange.challenge(),
            "realm=\"zk-sasl-md5\",nonce=\"60akFPR3wFF6DqzuwPHEpl+4X0aCPakT3eXx2jXq\",charset=utf-8,algorithm=md5-sess"
        );
        assert_eq!(
            exchange.verify(RESPONSE.as_bytes(), &users()),
            Ok((
                "kafka".into(),
                "rspauth=2aba1ed0d0b9d6f7d486f4c463595483".into()
            ))
        );
    }

    #[test]
    fn whatever_differs_is_refused() {
        let exchange = Exchange::new(NONCE.into());
        for (from, to) in [
            ("username=\"kafka\"", "username=\"alice\""),
            ("username=\"kafka\"", "username=\"nobody\""),
            ("response=4b", "response=4c"),
            ("response=4b", "response=4B"),
            ("nc=00000001", "nc=00000002"),
            ("nonce=\"60", "nonce=\"61"),
            ("cnonce=\"abc", "cnonce=\"abd"),
            ("zookeeper/zk", "other/zk"),
            ("qop=auth", "qop=auth-int"),
            ("realm=\"zk-sasl-md5\"", "realm=\"other\""),
            ("maxbuf=65536", "authzid=\"alice\""),
            ("maxbuf=65536", "nc=00000001"),
            ("charset=utf-8,", "charset=utf-8,x=\"open,"),
        ] {
            let changed = RESPONSE.replacen(from, to, 1);
            assert_ne!(changed, RESPONSE, "{from}");
            assert!(
                exchange.verify(changed.as_bytes(), &users()).is_err(),
                "{to}"
            );
        }
        let other = Exchange::new("another".into());
        assert!(other.verify(RESPONSE.as_bytes(), &users()).is_err());
    }

    #[test]
    fn passwords_are_not_shown() {
        assert_eq!(format!("{:?}", users()), r#"{"alice", "kafka"}"#);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), at in any::<prop::sample::Index>(), value in any::<u8>()) {
            let exchange = Exchange::new(NONCE.into());
            prop_assert!(exchange.verify(&bytes, &users()).is_err());
            let mut changed = RESPONSE.as_bytes().to_vec();
            let at = at.index(changed.len());
            changed[at] = value;
            let _ = exchange.verify(&changed, &users());
        }
    }
}
