//! The part of a JAAS login configuration that names ZooKeeper's SASL users: `Server { ...DigestLoginModule required user_NAME="password"; };`

use crate::sasl::Users;

/// The users of a section; `None` if there is no such section.
pub(super) fn users(text: &str, section: &str) -> Option<Users> {
    let words = words(text);
    let mut at = words.iter();
    loop {
        let name = at.next()?;
        if at.next()? != "{" {
            continue;
        }
        let body: Vec<&String> = at.by_ref().take_while(|word| *word != "}").collect();
        if name != section {
            // The semicolon behind the brace.
            at.next();
            continue;
        }
        let user = |words: &[&String]| match words {
            [key, eq, value] if *eq == "=" => {
                let name = key.strip_prefix("user_")?;
                Some((name.to_owned(), (*value).clone()))
            }
            _ => None,
        };
        return Some(body.windows(3).filter_map(user).collect());
    }
}

/// Names, quoted texts and the signs between them, without comments.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '/' if rest.next_if_eq(&'/').is_some() => {
                while rest.next_if(|c| *c != '\n').is_some() {}
            }
            '/' if rest.next_if_eq(&'*').is_some() => {
                let mut last = ' ';
                for c in rest.by_ref() {
                    if (last, c) == ('*', '/') {
                        break;
                    }
                    last = c;
                }
            }
            '"' => {
                let mut word = String::new();
                while let Some(c) = rest.next() {
                    match c {
                        '"' => break,
                        '\\' => word.extend(rest.next()),
                        c => word.push(c),
                    }
                }
                words.push(word);
            }
            '{' | '}' | ';' | '=' => words.push(c.to_string()),
            c if c.is_whitespace() => {}
            c => {
                let mut word = String::from(c);
                while let Some(c) = rest
                    .next_if(|c| !c.is_whitespace() && !matches!(c, '{' | '}' | ';' | '=' | '"'))
                {
                    word.push(c);
                }
                words.push(word);
            }
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_of_the_section_asked_for() {
        let text = r#"
            // The brokers' own.
            Client { org.apache.zookeeper.server.auth.DigestLoginModule required username="kafka" password="x"; };
            Server {
              org.apache.zookeeper.server.auth.DigestLoginModule required
              user_kafka="kafka-secret" /* user_old="gone" */
              user_alice = "with \"quotes\" and ; {"
              user_plain=word;
            };
        "#;
        let expected = [
            ("kafka", "kafka-secret"),
            ("alice", "with \"quotes\" and ; {"),
            ("plain", "word"),
        ];
        let expected: Users = expected
            .map(|(user, password)| (user.to_owned(), password.to_owned()))
            .into_iter()
            .collect();
        assert_eq!(users(text, "Server"), Some(expected));
        assert_eq!(users(text, "Client"), Some(Users::default()));
        assert_eq!(users(text, "Other"), None);
        assert_eq!(users("", "Server"), None);
        assert_eq!(users("Server", "Server"), None);
        assert_eq!(users("Server {", "Server"), Some(Users::default()));
    }
}
