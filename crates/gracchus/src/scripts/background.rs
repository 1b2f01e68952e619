//! Servers in the background, as the scripts start and stop them.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// Starts this binary with these arguments, its output at the end of the file; gives the process id.
pub(super) fn start(arguments: &[String], log: &Path) -> Result<u32, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", log.display());
    if let Some(dir) = log.parent() {
        std::fs::create_dir_all(dir).map_err(failed)?;
    }
    let out = OpenOptions::new()
        .create(true)
        .append(true)
        .open(log)
        .map_err(failed)?;
    let err = out.try_clone().map_err(failed)?;
    let binary = std::env::current_exe().map_err(|e| format!("where this binary is: {e}"))?;
    // its own process group, so that the terminal's Ctrl-C does not reach it
    Command::new(binary)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err)
        .process_group(0)
        .spawn()
        .map(|child| child.id())
        .map_err(|e| format!("cannot start: {e}"))
}

/// Tells a process to stop; false if there is none.
pub(super) fn stop(pid: i32) -> bool {
    Pid::from_raw(pid).is_some_and(|pid| kill_process(pid, Signal::TERM).is_ok())
}

/// Whether a process lives. One that has ended and that nobody has taken notice of does not: a container's first process
/// often takes none.
pub(super) fn lives(pid: i32) -> bool {
    let stat = std::fs::read(Path::new("/proc").join(pid.to_string()).join("stat"));
    // pid (name) state ...
    stat.is_ok_and(|stat| {
        let mut after_name = stat.rsplit(|byte| *byte == b')').take(1).flatten();
        after_name
            .nth(1)
            .is_some_and(|state| !b"ZX".contains(state))
    })
}

/// Stops every process of this very binary that runs the command, as the scripts stop every JVM that runs Kafka.
pub(super) fn stop_all(command: &str) -> ExitCode {
    let what = if command == "broker" {
        "kafka"
    } else {
        "zookeeper"
    };
    let found = running(command);
    if found.is_empty() {
        println!("No {what} server to stop");
        return ExitCode::FAILURE;
    }
    for pid in found {
        stop(pid);
    }
    ExitCode::SUCCESS
}

fn running(command: &str) -> Vec<i32> {
    let Ok(own) = std::fs::read_link("/proc/self/exe") else {
        return Vec::new();
    };
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| {
            let dir = Path::new("/proc").join(pid.to_string());
            std::fs::read_link(dir.join("exe")).is_ok_and(|exe| exe == own)
                && std::fs::read(dir.join("cmdline")).is_ok_and(|line| runs(&words(line), command))
        })
        .collect()
}

fn words(line: Vec<u8>) -> Vec<String> {
    let text = OsString::from_vec(line).to_string_lossy().into_owned();
    text.split_terminator('\0').map(str::to_owned).collect()
}

/// By the command, or by the name of the script that starts it in the foreground.
fn runs(words: &[String], command: &str) -> bool {
    let by_script = words.first().and_then(|called| super::find(called));
    match by_script {
        Some(super::Script::Broker) => command == "broker",
        Some(super::Script::Zookeeper | super::Script::ZkServer) => command == "zookeeper",
        Some(_) => false,
        None => words.get(1).is_some_and(|word| word == command),
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::{WaitId, WaitIdOptions, waitid};

    use super::*;

    #[test]
    fn a_process_that_has_ended_does_not_live() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        assert!(lives(pid) && lives(std::process::id().try_into().unwrap()));
        drop(child.stdin.take());
        // its end is noticed and not taken
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(Pid::from_raw(pid).unwrap()), ended).unwrap();
        assert!(Path::new("/proc").join(pid.to_string()).exists());
        assert!(!lives(pid));
        child.wait().unwrap();
        assert!(!lives(pid) && !lives(-1));
    }

    #[test]
    fn servers_are_known_by_their_command_line() {
        let line = |text: &str| words(text.replace(' ', "\0").into_bytes());
        assert!(runs(
            &line("/usr/bin/gracchus broker s.properties"),
            "broker"
        ));
        assert!(runs(
            &line("bin/kafka-server-start.sh s.properties"),
            "broker"
        ));
        assert!(runs(&line("bin/zkServer.sh start-foreground"), "zookeeper"));
        assert!(!runs(&line("bin/kafka-topics.sh --topic broker"), "broker"));
        assert!(!runs(&line("gracchus start"), "broker"));
        assert!(!runs(&line("gracchus"), "broker"));
    }
}
