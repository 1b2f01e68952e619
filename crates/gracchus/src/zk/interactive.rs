//! Commands from standard input: with the line editor on a terminal, line by line from elsewhere.

use super::editor::{Ask, Editor, PATIENCE};
use super::line;
use super::shell::{self, Shell};
use std::io::{IsTerminal as _, Write as _};
use tokio::sync::mpsc;

/// Where lines come from.
enum Input {
    Edited(Editor),
    Plain {
        lines: mpsc::Receiver<String>,
        with_prompt: bool,
    },
}

impl Input {
    fn new() -> Self {
        let with_prompt = std::io::stdin().is_terminal();
        if with_prompt
            && std::io::stdout().is_terminal()
            && let Some(editor) = Editor::start(shell::names())
        {
            return Input::Edited(editor);
        }
        let (sender, lines) = mpsc::channel(1);
        std::thread::spawn(move || {
            for line in std::io::stdin().lines().map_while(Result::ok) {
                if sender.blocking_send(line).is_err() {
                    return;
                }
            }
        });
        Input::Plain { lines, with_prompt }
    }
}

impl Shell {
    /// Reads commands until the end of input or `quit`; the exit code is the last command's.
    pub(super) async fn read_lines(&mut self) -> u8 {
        if std::io::stdin().is_terminal() {
            println!(
                "gracchus zk: {}; \"explain PATH\" tells what a znode is, \"quit\" ends",
                self.server
            );
            self.wait_connected().await;
        }
        let mut input = Input::new();
        let mut code = 0;
        while let Some(line) = self.next_line(&mut input).await {
            let words = line::words(&line);
            if words.is_empty() {
                continue;
            }
            self.remember(line);
            let (result, quit) = Box::pin(self.execute(&words)).await;
            code = result;
            if quit {
                break;
            }
        }
        code
    }

    fn prompt(&self) -> String {
        let state = if !self.is_open {
            "CLOSED"
        } else if *self.connected.borrow() {
            "CONNECTED"
        } else {
            "CONNECTING"
        };
        format!("[zk: {}({state}) {}] ", self.server, self.next_number())
    }

    async fn next_line(&mut self, input: &mut Input) -> Option<String> {
        match input {
            Input::Plain { lines, with_prompt } => {
                if *with_prompt {
                    print!("{}", self.prompt());
                    let _ = std::io::stdout().flush();
                }
                lines.recv().await
            }
            Input::Edited(editor) => {
                editor.prompt(self.prompt());
                loop {
                    match editor.asks.recv().await? {
                        Ask::Line(line) => return line,
                        Ask::Children(parent, reply) => {
                            let asked = self.zk.get_children(&parent, false);
                            let children = match self.is_open {
                                true => tokio::time::timeout(PATIENCE, asked).await.ok(),
                                false => None,
                            };
                            let names = children.and_then(Result::ok).map(|(names, _)| names);
                            let _ = reply.send(names.unwrap_or_default());
                        }
                    }
                }
            }
        }
    }
}
