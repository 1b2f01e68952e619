//! The client's side: what to answer to a challenge, and whether the server knows the password too. The client's nonce is passed in.

use super::{DIGEST_URI, Hashed, directives, same};
use std::fmt;

/// A user and a password, which is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub user: String,
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// Why a server is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Mistrust {
    #[error("its challenge can't be read")]
    Unreadable,
    #[error("its challenge lacks {0} or has a strange one")]
    Strange(&'static str),
    #[error("it does not prove that it knows the password")]
    Unproven,
}

/// An answered challenge.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    pub token: String,
    /// What a server that knows the password says next.
    rspauth: String,
}

impl Answer {
    pub fn new(
        credentials: &Credentials,
        cnonce: &str,
        challenge: &[u8],
    ) -> Result<Answer, Mistrust> {
        let told = directives(challenge).ok_or(Mistrust::Unreadable)?;
        let get = |name: &'static str| told.get(name).map(String::as_str);
        let nonce = get("nonce")
            .filter(|nonce| !nonce.is_empty())
            .ok_or(Mistrust::Strange("nonce"))?;
        if get("algorithm") != Some("md5-sess") {
            return Err(Mistrust::Strange("algorithm"));
        }
        let offers_auth = |qop: &str| qop.split(',').any(|one| one.trim() == "auth");
        if !get("qop").is_none_or(offers_auth) {
            return Err(Mistrust::Strange("qop"));
        }
        let realm = get("realm").unwrap_or_default();
        let hashed = Hashed {
            user: &credentials.user,
            realm,
            password: &credentials.password,
            nonce,
            cnonce,
            acting_as: None,
        };
        let charset = match get("charset") {
            Some("utf-8") => "charset=utf-8,",
            None => "",
            Some(_) => return Err(Mistrust::Strange("charset")),
        };
        let token = format!(
            "{charset}username=\"{}\",realm=\"{}\",nonce=\"{}\",nc=00000001,cnonce=\"{cnonce}\",digest-uri=\"{DIGEST_URI}\",maxbuf=65536,response={},qop=auth",
            quoted(&credentials.user),
            quoted(realm),
            quoted(nonce),
            hashed.response(DIGEST_URI),
        );
        Ok(Answer {
            token,
            rspauth: hashed.rspauth(DIGEST_URI),
        })
    }

    /// Whether the server's last word proves that it knows the password.
    pub fn confirm(&self, last: &[u8]) -> Result<(), Mistrust> {
        let told = directives(last).ok_or(Mistrust::Unproven)?;
        let proof = told.get("rspauth").map_or("", String::as_str);
        if same(proof.as_bytes(), self.rspauth.as_bytes()) {
            Ok(())
        } else {
            Err(Mistrust::Unproven)
        }
    }
}

fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::super::{Exchange, Refusal, Users};
    use super::*;
    use proptest::prelude::*;

    fn kafka(password: &str) -> Credentials {
        Credentials {
            user: "kafka".into(),
            password: password.into(),
        }
    }

    /// Captured between Apache ZooKeeper's 3.9.5 client and server.
    #[test]
    fn a_captured_exchange() {
        let challenge = "realm=\"zk-sasl-md5\",nonce=\"60akFPR3wFF6DqzuwPHEpl+4X0aCPakT3eXx2jXq\",charset=utf-8,algorithm=md5-sess";
        let answer = Answer::new(
            &kafka("kafka-secret"),
            "abcdef0123456789",
            challenge.as_bytes(),
        )
        .unwrap();
        assert_eq!(
            answer.token,
            "charset=utf-8,username=\"kafka\",realm=\"zk-sasl-md5\",nonce=\"60akFPR3wFF6DqzuwPHEpl+4X0aCPakT3eXx2jXq\",nc=00000001,cnonce=\"abcdef0123456789\",digest-uri=\"zookeeper/zk-sasl-md5\",maxbuf=65536,response=4b048430c3e08c9addfff7d01ea9483b,qop=auth"
        );
        let last = b"rspauth=2aba1ed0d0b9d6f7d486f4c463595483";
        assert_eq!(answer.confirm(last), Ok(()));
        for wrong in [
            &b"rspauth=2aba1ed0d0b9d6f7d486f4c463595484"[..],
            b"rspauth=",
            b"",
            b"x",
        ] {
            assert_eq!(answer.confirm(wrong), Err(Mistrust::Unproven));
        }
    }

    #[test]
    fn both_sides_agree_whatever_the_names() {
        for (user, password) in [
            ("kafka", "s"),
            ("with \"quotes\" and \\", "p\"\\,="),
            ("käthe", "straße"),
            ("Ольга", "пароль"),
        ] {
            let users: Users = [(user.to_owned(), password.to_owned())]
                .into_iter()
                .collect();
            let exchange = Exchange::new("a-nonce".into());
            let challenge = exchange.challenge();
            let mine = Credentials {
                user: user.into(),
                password: password.into(),
            };
            let answer = Answer::new(&mine, "mine", challenge.as_bytes()).unwrap();
            let (who, proof) = exchange.verify(answer.token.as_bytes(), &users).unwrap();
            assert_eq!(who, user);
            assert_eq!(answer.confirm(proof.as_bytes()), Ok(()));
            let other = Credentials {
                password: "other".into(),
                ..mine
            };
            let answer = Answer::new(&other, "mine", challenge.as_bytes()).unwrap();
            assert_eq!(
                exchange.verify(answer.token.as_bytes(), &users),
                Err(Refusal::Credentials)
            );
        }
    }

    #[test]
    fn strange_challenges_are_not_answered() {
        for (challenge, expected) in [
            ("", Mistrust::Strange("nonce")),
            ("nonce=\"\",algorithm=md5-sess", Mistrust::Strange("nonce")),
            ("nonce=\"n\"", Mistrust::Strange("algorithm")),
            ("nonce=\"n\",algorithm=md5", Mistrust::Strange("algorithm")),
            (
                "nonce=\"n\",algorithm=md5-sess,qop=\"auth-conf\"",
                Mistrust::Strange("qop"),
            ),
            (
                "nonce=\"n\",algorithm=md5-sess,charset=latin1",
                Mistrust::Strange("charset"),
            ),
            ("nonce", Mistrust::Unreadable),
        ] {
            let answer = Answer::new(&kafka("x"), "c", challenge.as_bytes());
            assert_eq!(answer, Err(expected), "{challenge}");
        }
    }

    #[test]
    fn the_password_is_not_shown() {
        let shown = format!("{:?}", kafka("kafka-secret"));
        assert!(
            shown.contains("kafka") && !shown.contains("secret"),
            "{shown}"
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered_or_not(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Answer::new(&kafka("x"), "c", &bytes);
        }
    }
}
