//! Which command a line means, one-shot or interactive.

use super::options::{self, Given};
use super::output::{CliError, Sink, watched_event};
use super::read::Context;
use super::{Arguments, explain, line, quota, read, reconfig, write};
use gracchus_zk_client::secured::ZOOKEEPERS;
use gracchus_zk_client::{
    ConnectString, EventReceiver, Secured, SessionState, ZkClient, ZkConfig, ZkEvent, look,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// Name, usage, flags without and with an argument.
const COMMANDS: &[(&str, &str, &str, &str)] = &[
    (
        "addWatch",
        "[-m mode] path # optional mode is one of [PERSISTENT, PERSISTENT_RECURSIVE] - default is PERSISTENT_RECURSIVE",
        "",
        "m",
    ),
    ("addauth", "scheme auth", "", ""),
    ("close", "", "", ""),
    ("config", "[-w] [-s]", "ws", ""),
    ("connect", "host:port", "", ""),
    (
        "create",
        "[-s] [-e] [-c] [-t ttl] path [data] [acl]",
        "sec",
        "t",
    ),
    ("delete", "[-v version] path", "", "v"),
    ("deleteall", "path [-b batch size]", "", "b"),
    ("delquota", "[-n|-b|-N|-B] path", "nbNB", ""),
    (
        "explain",
        "path # what a Kafka znode is, who writes and watches it, what its fields mean",
        "",
        "",
    ),
    ("get", "[-s] [-w] [-b] [-x] path", "swbx", ""),
    ("getAcl", "[-s] path", "s", ""),
    ("getAllChildrenNumber", "path", "", ""),
    ("getEphemerals", "path", "", ""),
    ("history", "", "", ""),
    ("listquota", "path", "", ""),
    ("ls", "[-s] [-w] [-R] path", "swR", ""),
    ("printwatches", "on|off", "", ""),
    ("quit", "", "", ""),
    (
        "reconfig",
        "[-s] [-v version] [[-file path] | [-members serverID=host:port1:port2;port3[,...]*]] | [-add serverId=host:port1:port2;port3[,...]]* [-remove serverId[,...]*]",
        "",
        "",
    ),
    ("redo", "cmdno", "", ""),
    ("removewatches", "path [-c|-d|-a] [-l]", "cdal", ""),
    ("set", "path data [-s] [-v version] [-b]", "sb", "v"),
    ("setAcl", "[-s] [-v version] [-R] path acl", "sR", "v"),
    ("setquota", "-n|-b|-N|-B val path", "", "nbNB"),
    ("stat", "[-w] path", "w", ""),
    ("sync", "path", "", ""),
    ("version", "", "", ""),
    ("whoami", "", "", ""),
];

/// How long the first command waits for a server, unless `-waitforconnection`.
const FIRST_WAIT: Duration = Duration::from_secs(5);

/// Lines kept for `history` and `redo`.
const HISTORY: usize = 1000;

pub(super) fn names() -> Vec<&'static str> {
    COMMANDS.iter().map(|(name, ..)| *name).collect()
}

pub(super) fn usage_lines() -> String {
    COMMANDS
        .iter()
        .map(|(name, usage, ..)| format!("\t{name} {usage}\n"))
        .collect()
}

/// The shell's state between commands.
pub(super) struct Shell {
    pub(super) zk: ZkClient,
    pub(super) connected: watch::Receiver<bool>,
    pub(super) server: String,
    timeout: Duration,
    secured: Secured,
    wait: Duration,
    json: bool,
    interactive: bool,
    pub(super) is_open: bool,
    print_watches: Arc<AtomicBool>,
    history: std::collections::VecDeque<String>,
    /// Of the first line in `history`.
    first_line: usize,
    pub(super) sink: Sink,
}

/// Runs the one command, or what standard input says.
pub(super) async fn run(arguments: Arguments) -> u8 {
    let interactive = arguments.command.is_empty();
    let mut shell = match Shell::new(&arguments, interactive) {
        Ok(shell) => shell,
        Err(error) => {
            eprintln!("{error}");
            return 1;
        }
    };
    let code = if interactive {
        shell.read_lines().await
    } else {
        shell.execute(&arguments.command).await.0
    };
    shell.close().await;
    code
}

impl Shell {
    pub(super) fn new(arguments: &Arguments, interactive: bool) -> Result<Self, CliError> {
        let timeout = Duration::from_millis(arguments.timeout_ms.clamp(1, i32::MAX as u64));
        let print_watches = Arc::new(AtomicBool::new(interactive));
        let secured = Secured::from_properties(&arguments.properties, ZOOKEEPERS)
            .map_err(|error| CliError::new(format!("gracchus zk: {error}")))?;
        let (zk, connected) = connect(&arguments.server, timeout, &print_watches, &secured)?;
        Ok(Shell {
            secured,
            zk,
            connected,
            server: arguments.server.clone(),
            timeout,
            wait: if arguments.wait {
                timeout
            } else {
                timeout.min(FIRST_WAIT)
            },
            json: arguments.json,
            interactive,
            is_open: true,
            print_watches,
            history: std::collections::VecDeque::new(),
            first_line: 0,
            sink: Sink::default(),
        })
    }

    /// The number that the prompt shows.
    pub(super) fn next_number(&self) -> usize {
        self.first_line + self.history.len()
    }

    pub(super) fn remember(&mut self, line: String) {
        if self.history.len() == HISTORY {
            self.history.pop_front();
            self.first_line += 1;
        }
        self.history.push_back(line);
    }

    /// Runs one command; its exit code, and whether the shell is to end.
    pub(super) async fn execute(&mut self, words: &[String]) -> (u8, bool) {
        match self.dispatch(words).await {
            Ok(quit) => (0, quit),
            Err(error) => {
                self.sink.err(&error.to_string());
                (error.code, false)
            }
        }
    }

    async fn dispatch(&mut self, words: &[String]) -> Result<bool, CliError> {
        let Some((name, rest)) = words.split_first() else {
            return Ok(false);
        };
        let Some((name, _, plain, valued)) = COMMANDS.iter().find(|(known, ..)| known == name)
        else {
            let usage = format!("ZooKeeper -server host:port cmd args\n{}", usage_lines());
            self.sink.err(usage.trim_end());
            return Err(CliError::not_found(format!(
                "Command not found: Command not found {name}"
            )));
        };
        if *name == "reconfig" && self.is_open {
            return self.reconfig(rest).await.map(|()| false);
        }
        let given = options::parse(rest, plain, valued)?;
        match *name {
            "quit" => return Ok(true),
            "history" => self.print_history(),
            "redo" => return self.redo(&given).await,
            "printwatches" => match given.word(0) {
                None => {
                    let on = self.print_watches.load(Ordering::Relaxed);
                    self.sink.out(&format!(
                        "printwatches is {}",
                        if on { "on" } else { "off" }
                    ));
                }
                Some(word) => self.print_watches.store(word == "on", Ordering::Relaxed),
            },
            "version" => self.sink.out(&format!(
                "ZooKeeper CLI version: gracchus {}, as of ZooKeeper 3.9.5",
                env!("CARGO_PKG_VERSION")
            )),
            "connect" => self.reconnect(given.word(0)).await?,
            "close" => self.close().await,
            "explain" => return self.explain(&given).await.map(|()| false),
            _ if !self.is_open => self.sink.out("Not connected"),
            name => self.ask(name, &given).await?,
        }
        Ok(false)
    }

    /// A command that needs the server.
    async fn ask(&mut self, name: &str, given: &Given) -> Result<(), CliError> {
        // a wrong path is told at once, server or not
        if let Some(path) = given
            .word(0)
            .filter(|_| name != "addauth" && name != "create")
        {
            super::output::check_path(path)?;
        }
        self.need_connection(given.word(0).unwrap_or("/")).await?;
        let c = &mut Context {
            zk: &self.zk,
            sink: &mut self.sink,
            json: given.json.unwrap_or(self.json),
        };
        match name {
            "ls" => read::ls(c, given).await,
            "get" => read::get(c, given).await,
            "stat" => read::stat(c, given).await,
            "getAcl" => read::get_acl(c, given).await,
            "getAllChildrenNumber" => read::get_all_children_number(c, given).await,
            "getEphemerals" => read::get_ephemerals(c, given).await,
            "whoami" => read::who_am_i(c).await,
            "config" => read::config(c, given).await,
            "sync" => read::sync(c, given).await,
            "create" => write::create(c, given).await,
            "set" => write::set(c, given).await,
            "delete" => write::delete(c, given).await,
            "deleteall" => write::delete_all(c, given).await,
            "setAcl" => write::set_acl(c, given).await,
            "addauth" => write::add_auth(c, given).await,
            "addWatch" => write::add_watch(c, given).await,
            "removewatches" => write::remove_watches(c, given).await,
            "setquota" => quota::set(c, given).await,
            "listquota" => quota::list(c, given).await,
            "delquota" => quota::delete(c, given).await,
            other => Err(CliError::not_found(format!(
                "Command not found: Command not found {other}"
            ))),
        }
    }

    async fn need_connection(&mut self, path: &str) -> Result<(), CliError> {
        if self.wait_connected().await {
            return Ok(());
        }
        let seen = look(&config(&self.server, self.timeout, &self.secured)?).await;
        self.sink.err(&format!(
            "gracchus zk: no ZooKeeper server has answered at {} within {} s ({seen})",
            self.server,
            self.wait.as_secs_f64()
        ));
        Err(CliError::new(format!(
            "KeeperErrorCode = ConnectionLoss for {path}"
        )))
    }

    async fn reconfig(&mut self, words: &[String]) -> Result<(), CliError> {
        let change = reconfig::Change::parse(words)?;
        self.need_connection("/zookeeper/config").await?;
        let c = &mut Context {
            zk: &self.zk,
            sink: &mut self.sink,
            json: self.json,
        };
        reconfig::reconfig(c, change).await
    }

    async fn explain(&mut self, given: &Given) -> Result<(), CliError> {
        let path = given.word(0).ok_or_else(|| CliError::new("explain path"))?;
        super::output::check_path(path)?;
        let found = if self.is_open && self.wait_connected().await {
            Some(self.zk.get_data(path, false).await)
        } else {
            None
        };
        let text = if given.json.unwrap_or(self.json) {
            explain::as_json(path, found)
        } else {
            explain::as_text(path, found)
        };
        self.sink.out(text.trim_end());
        Ok(())
    }

    /// The last eleven lines, this one included.
    fn print_history(&mut self) {
        let end = self.first_line + self.history.len();
        if !self.interactive {
            self.sink.out("0 - null");
        }
        for (number, line) in (self.first_line..)
            .zip(&self.history)
            .filter(|(number, _)| number + 11 >= end)
        {
            self.sink.out(&format!("{number} - {line}"));
        }
    }

    async fn redo(&mut self, given: &Given) -> Result<bool, CliError> {
        let number = given.word(0).ok_or_else(|| CliError::new("redo cmdno"))?;
        let line = number
            .parse::<usize>()
            .ok()
            .and_then(|number| number.checked_sub(self.first_line))
            .filter(|at| at + 1 < self.history.len()) // not this redo
            .and_then(|at| self.history.get(at).cloned())
            .ok_or_else(|| CliError::new("Command index out of range"))?;
        let words = line::words(&line);
        if words.first().is_some_and(|word| word == "redo") {
            return Err(CliError::new("No redoing redos"));
        }
        if let Some(last) = self.history.back_mut() {
            *last = line;
        }
        Box::pin(self.dispatch(&words)).await
    }

    async fn reconnect(&mut self, server: Option<&str>) -> Result<(), CliError> {
        let server = server.map_or_else(|| self.server.clone(), str::to_owned);
        let (zk, connected) = connect(&server, self.timeout, &self.print_watches, &self.secured)?;
        self.close().await;
        (self.zk, self.connected, self.server, self.is_open) = (zk, connected, server, true);
        Ok(())
    }

    /// Ends the session, so that its ephemerals go at once.
    pub(super) async fn close(&mut self) {
        if std::mem::replace(&mut self.is_open, false) {
            self.zk.close().await;
        }
    }

    pub(super) async fn wait_connected(&mut self) -> bool {
        let up = self.connected.wait_for(|up| *up);
        matches!(tokio::time::timeout(self.wait, up).await, Ok(Ok(_)))
    }
}

fn config(server: &str, timeout: Duration, secured: &Secured) -> Result<ZkConfig, CliError> {
    let connect: ConnectString = server
        .parse()
        .map_err(|error| CliError::new(format!("gracchus zk: {error}")))?;
    let mut config = ZkConfig::new(connect);
    config.session_timeout = timeout;
    config.name = "zk".to_owned();
    secured.apply(&mut config);
    Ok(config)
}

/// Starts a session; its events are printed while the flag says so. An expired session is replaced by a new one, as the
/// prompt would be of no use else.
fn connect(
    server: &str,
    timeout: Duration,
    print_watches: &Arc<AtomicBool>,
    secured: &Secured,
) -> Result<(ZkClient, watch::Receiver<bool>), CliError> {
    let config = config(server, timeout, secured)?;
    let (zk, events) = ZkClient::start(config);
    let (up, connected) = watch::channel(false);
    tokio::spawn(follow(zk.clone(), events, up, print_watches.clone()));
    Ok((zk, connected))
}

async fn follow(
    zk: ZkClient,
    mut events: EventReceiver,
    up: watch::Sender<bool>,
    print_watches: Arc<AtomicBool>,
) {
    while let Some(event) = events.recv().await {
        if print_watches.load(Ordering::Relaxed)
            && let Some(text) = watched_event(&event)
        {
            Sink::default().out(&format!("\nWATCHER::\n\n{text}"));
        }
        match event {
            ZkEvent::Session(SessionState::Connected { .. }) => {
                up.send_replace(true);
            }
            ZkEvent::Session(SessionState::Disconnected) => {
                up.send_replace(false);
            }
            ZkEvent::Session(SessionState::Expired) => {
                up.send_replace(false);
                zk.reopen().await;
            }
            ZkEvent::Session(SessionState::Closed) => return,
            ZkEvent::Session(SessionState::AuthFailed) => {
                eprintln!("{}", zk.auth_failure().unwrap_or_default());
            }
            ZkEvent::Session(SessionState::Overdue) | ZkEvent::Watch(_) => {}
        }
    }
}
