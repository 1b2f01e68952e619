//! The line editor of a terminal: history by the arrow keys, completion of commands and paths by the tabulator. It runs on
//! a thread of its own and asks the shell for the children of a node.

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Context, Helper};
use std::sync::mpsc::{Receiver, Sender, SyncSender, sync_channel};
use std::time::Duration;
use tokio::sync::mpsc;

/// A completion that takes longer gives nothing.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// What the editor's thread has for the shell.
pub(super) enum Ask {
    /// A line was entered; None: no more come.
    Line(Option<String>),
    /// The children of this node, for completion.
    Children(String, Sender<Vec<String>>),
}

/// The shell's end.
pub(super) struct Editor {
    prompts: SyncSender<String>,
    pub(super) asks: mpsc::Receiver<Ask>,
}

impl Editor {
    /// None if the terminal cannot be edited on.
    pub(super) fn start(commands: Vec<&'static str>) -> Option<Self> {
        let config = Config::builder()
            .completion_type(CompletionType::List)
            .auto_add_history(true)
            .build();
        let mut editor = rustyline::Editor::<Words, DefaultHistory>::with_config(config).ok()?;
        let (asking, asks) = mpsc::channel(1);
        let (prompts, prompted) = sync_channel(1);
        editor.set_helper(Some(Words {
            commands,
            asking: asking.clone(),
        }));
        std::thread::spawn(move || edit(&mut editor, &prompted, &asking));
        Some(Editor { prompts, asks })
    }

    /// The next line may be entered.
    pub(super) fn prompt(&self, text: String) {
        // a thread that has ended has said so
        let _ = self.prompts.send(text);
    }
}

fn edit(
    editor: &mut rustyline::Editor<Words, DefaultHistory>,
    prompted: &Receiver<String>,
    asking: &mpsc::Sender<Ask>,
) {
    while let Ok(prompt) = prompted.recv() {
        let line = match editor.readline(&prompt) {
            Ok(line) => Some(line),
            Err(ReadlineError::Eof | ReadlineError::Interrupted) => None,
            Err(error) => {
                eprintln!("gracchus zk: {error}");
                None
            }
        };
        let ended = line.is_none();
        if asking.blocking_send(Ask::Line(line)).is_err() || ended {
            return;
        }
    }
}

/// Completes the word before the cursor.
struct Words {
    commands: Vec<&'static str>,
    asking: mpsc::Sender<Ask>,
}

impl Helper for Words {}
impl Highlighter for Words {}
impl Validator for Words {}
impl Hinter for Words {
    type Hint = String;
}

impl Completer for Words {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        pos: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let before = line.get(..pos).unwrap_or(line);
        let start = before.rfind(char::is_whitespace).map_or(0, |at| at + 1);
        let word = before.get(start..).unwrap_or("");
        let found = if before.trim_start() == word {
            of_commands(&self.commands, word)
        } else {
            of_paths(word, |parent| self.children(parent))
        };
        Ok((start, found))
    }
}

impl Words {
    fn children(&self, parent: &str) -> Vec<String> {
        let (reply, answer) = std::sync::mpsc::channel();
        let ask = Ask::Children(parent.to_owned(), reply);
        if self.asking.blocking_send(ask).is_err() {
            return Vec::new();
        }
        answer.recv_timeout(PATIENCE).unwrap_or_default()
    }
}

fn of_commands(commands: &[&str], word: &str) -> Vec<String> {
    let fits = commands.iter().filter(|c| c.starts_with(word));
    fits.map(|c| (*c).to_owned()).collect()
}

/// Nodes that the word may become; a node that is complete goes on with its children.
fn of_paths(word: &str, children: impl Fn(&str) -> Vec<String>) -> Vec<String> {
    let Some((parent, begun)) = word.rsplit_once('/') else {
        return Vec::new();
    };
    if !word.starts_with('/') {
        return Vec::new();
    }
    let at = if parent.is_empty() { "/" } else { parent };
    let mut found: Vec<String> = children(at)
        .into_iter()
        .filter(|child| child.starts_with(begun))
        .map(|child| format!("{parent}/{child}"))
        .collect();
    found.sort();
    if found.len() == 1 && found.first().is_some_and(|f| f == word) && !children(word).is_empty() {
        return vec![format!("{word}/")];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_grow_by_a_part() {
        let tree = |parent: &str| -> Vec<String> {
            let names: &[&str] = match parent {
                "/" => &["brokers", "config", "consumers"],
                "/brokers" => &["ids", "topics"],
                _ => &[],
            };
            names.iter().map(|n| (*n).to_owned()).collect()
        };
        let of = |word: &str| of_paths(word, tree);
        assert_eq!(of("/"), ["/brokers", "/config", "/consumers"]);
        assert_eq!(of("/con"), ["/config", "/consumers"]);
        assert_eq!(of("/bro"), ["/brokers"]);
        assert_eq!(of("/brokers"), ["/brokers/"]);
        assert_eq!(of("/brokers/"), ["/brokers/ids", "/brokers/topics"]);
        assert_eq!(of("/brokers/ids"), ["/brokers/ids"]);
        assert_eq!(of("bro"), [""; 0]);
        assert_eq!(of("/none/x"), [""; 0]);
        assert_eq!(
            of_commands(&["get", "getAcl", "ls"], "get"),
            ["get", "getAcl"]
        );
    }
}
