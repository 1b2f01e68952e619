//! The shell over a server in this process, compared with what zkCli printed over the same data.

use super::Arguments;
use super::output::Sink;
use super::shell::Shell;
use flate2::read::GzDecoder;
use gracchus_zk_server::{ZkConfig, ZkServer};
use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Unpacks the data directories of Apache ZooKeeper: plain ustar, regular files only.
fn unpack(into: &Path) {
    let mut tar = Vec::new();
    let file = fs::File::open(here("../zk-server/tests/golden/datadir.tar.gz")).unwrap();
    GzDecoder::new(file).read_to_end(&mut tar).unwrap();
    let mut rest = &tar[..];
    while rest.len() >= 512 && rest[0] != 0 {
        let text = |from: usize, to: usize| {
            String::from_utf8_lossy(&rest[from..to])
                .trim_matches(['\0', ' '])
                .to_owned()
        };
        let (name, size, kind) = (
            text(0, 100),
            usize::from_str_radix(&text(124, 136), 8).unwrap(),
            rest[156],
        );
        let path = into.join(name);
        if kind == b'0' || kind == 0 {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, &rest[512..512 + size]).unwrap();
        }
        rest = &rest[512 + size.div_ceil(512) * 512..];
    }
}

/// What one `gracchus zk` process prints, and its exit code.
async fn one_shot(server: &str, command: &[&str]) -> (String, u8) {
    let arguments = Arguments {
        server: server.to_owned(),
        timeout_ms: 30_000,
        wait: true,
        json: false,
        properties: BTreeMap::default(),
        command: command.iter().map(|word| (*word).to_owned()).collect(),
    };
    let mut shell = Shell::new(&arguments, false).unwrap();
    shell.sink = Sink {
        captured: Some(String::new()),
    };
    let (code, _) = shell.execute(&arguments.command).await;
    shell.close().await;
    (shell.sink.captured.take().unwrap(), code)
}

/// Times depend on the zone, and what the run itself wrote has zxids of its own.
fn normal(text: &str, own: bool) -> String {
    let line = |line: &str| match line.split_once(" = ") {
        Some((key @ ("ctime" | "mtime"), _)) => format!("{key} = TIME"),
        Some((key @ ("cZxid" | "mZxid" | "pZxid"), _)) if own => format!("{key} = ZXID"),
        _ => line.to_owned(),
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn prints_what_zkcli_prints() {
    let dir = tempfile::tempdir().unwrap();
    unpack(dir.path());
    let mut config = ZkConfig::new(dir.path().join("clean/data"));
    config.data_log_dir = Some(dir.path().join("clean/log"));
    config.client_address = "127.0.0.1:0".parse().unwrap();
    config.extended_types = true;
    config.container_check_interval_ms = u64::from(u32::MAX); // nothing may go while we look
    let server = ZkServer::start(config).await.unwrap();
    let address = server.local_addr().to_string();

    let mut files: Vec<PathBuf> = fs::read_dir(here("tests/golden/zkcli"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    let mut compared = 0;
    for file in files {
        let golden = fs::read_to_string(&file).unwrap();
        let mut lines = golden.lines();
        let command: Vec<&str> = lines
            .next()
            .unwrap()
            .strip_prefix("$ zkCli ")
            .unwrap()
            .split(' ')
            .collect();
        let banner = |line: &&str| {
            line.is_empty()
                || line.starts_with("Connecting to")
                || *line == "WATCHER::"
                || line.starts_with("WatchedEvent")
        };
        let mut expected: Vec<&str> = lines.skip_while(banner).collect();
        if file.ends_with("08-get_-s__bin.txt") {
            expected.insert(0, ""); // the banner's end and an empty result look alike
        }
        let code: u8 = expected
            .pop()
            .unwrap()
            .strip_prefix("exit ")
            .unwrap()
            .parse()
            .unwrap();
        let (printed, exit) = one_shot(&address, &command).await;
        let own =
            command.iter().any(|word| word.starts_with("/cli")) || command == ["ls", "-s", "/"];
        assert_eq!(
            normal(&printed, own),
            normal(&expected.join("\n"), own),
            "{}",
            command.join(" ")
        );
        assert_eq!(exit, code, "{}", command.join(" "));
        compared += 1;
    }
    assert!(compared > 35, "{compared}");
    server.shutdown().await;
}

#[tokio::test]
async fn what_needs_no_server_is_told_without_one() {
    let nowhere = "127.0.0.1:1";
    let (text, code) = one_shot(nowhere, &["nosuchcommand"]).await;
    assert!(
        text.ends_with("Command not found: Command not found nosuchcommand\n"),
        "{text}"
    );
    assert_eq!(code, 127);
    assert_eq!(
        one_shot(nowhere, &["ls", "-z", "/"]).await,
        ("Unrecognized option: -z\n".to_owned(), 1)
    );
    assert_eq!(
        one_shot(nowhere, &["ls", "bad"]).await,
        ("Path must start with / character\n".to_owned(), 1)
    );
    assert_eq!(one_shot(nowhere, &["close"]).await, (String::new(), 0));
}

#[test]
fn arguments_end_at_the_command() {
    let parse = |text: &str| {
        super::parse(
            &text
                .split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>(),
        )
    };
    let parsed = parse("-server h:1/kafka -timeout 5 get -s /x")
        .unwrap()
        .unwrap();
    assert_eq!(
        (
            parsed.server.as_str(),
            parsed.timeout_ms,
            parsed.command.len()
        ),
        ("h:1/kafka", 5, 3)
    );
    assert_eq!(parse("--help"), Ok(None));
    assert_eq!(
        parse("-server").unwrap_err(),
        "Error: no argument found for option -server"
    );
    assert!(parse("-bogus ls /").is_err());
    assert!(parse("--format xml ls /").is_err());
}
