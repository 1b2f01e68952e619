//! JAAS login configurations: `Name { module.Class required key="value" ...; };`

use crate::digest_md5::Users;
use std::collections::BTreeMap;

/// The login modules of one name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Section {
    pub modules: Vec<Module>,
}

/// A login module and its options. Passwords are among them: not shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Module {
    pub class: String,
    pub options: BTreeMap<String, String>,
}

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Module")
            .field("class", &self.class)
            .field("options", &self.options.keys())
            .finish()
    }
}

impl Section {
    /// The users whom ZooKeeper's server section names: `user_NAME="password"`.
    pub fn users(&self) -> Users {
        let options = self.modules.iter().flat_map(|module| &module.options);
        options
            .filter_map(|(key, value)| Some((key.strip_prefix("user_")?.to_owned(), value.clone())))
            .collect()
    }
}

/// The section of that name; `None` if there is none.
pub fn section(text: &str, name: &str) -> Option<Section> {
    let words = words(text);
    let mut at = words.iter();
    loop {
        let found = at.next()?;
        if at.next()? != "{" {
            continue;
        }
        let body: Vec<&String> = at.by_ref().take_while(|word| *word != "}").collect();
        if found == name {
            let modules = body.split(|word| *word == ";").filter_map(module);
            return Some(Section {
                modules: modules.collect(),
            });
        }
        // The semicolon behind the brace.
        at.next();
    }
}

/// The class, a flag such as `required`, and options.
fn module(words: &[&String]) -> Option<Module> {
    let options = words.windows(3).filter_map(|words| match words {
        [key, eq, value] if *eq == "=" => Some(((*key).clone(), (*value).clone())),
        _ => None,
    });
    Some(Module {
        class: (*words.first()?).clone(),
        options: options.collect(),
    })
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
            Client { org.apache.zookeeper.server.auth.DigestLoginModule required username="kafka" password="x; = y"; };
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
        let users = |text, name| section(text, name).map(|section| section.users());
        assert_eq!(users(text, "Server"), Some(expected));
        assert_eq!(users(text, "Client"), Some(Users::default()));
        assert_eq!(users(text, "Other"), None);
        assert_eq!(users("", "Server"), None);
        assert_eq!(users("Server", "Server"), None);
        assert_eq!(users("Server {", "Server"), Some(Users::default()));
        let client = section(text, "Client").unwrap();
        let [module] = &client.modules[..] else {
            panic!("{client:?}");
        };
        assert_eq!(
            module.class,
            "org.apache.zookeeper.server.auth.DigestLoginModule"
        );
        assert_eq!(module.options["username"], "kafka");
        assert_eq!(module.options["password"], "x; = y");
        assert!(!format!("{client:?}").contains("x; = y"));
    }
}
