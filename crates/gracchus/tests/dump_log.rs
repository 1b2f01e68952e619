//! `gracchus dump-log` prints Kafka's own files as Kafka's own tool does, byte for byte.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::Command;

fn dump_log(arguments: &[&str]) -> (String, bool) {
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/dump-log");
    let output = Command::new(env!("CARGO_BIN_EXE_gracchus"))
        .arg("dump-log")
        .args(arguments)
        .current_dir(golden)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    (text, output.status.success())
}

#[test]
fn every_kind_of_file_is_printed_as_kafka_prints_it() {
    let expected = include_str!("golden/dump-log/expected.txt");
    let mut seen = 0;
    for part in expected.split("## ").skip(1) {
        let (head, text) = part.split_once('\n').unwrap();
        let (flags, file) = head.rsplit_once(' ').unwrap();
        let mut arguments: Vec<_> = flags.split_whitespace().collect();
        arguments.extend(["--files", file]);
        let (printed, good) = dump_log(&arguments);
        assert_eq!(printed, text, "{head}");
        assert!(good);
        seen += 1;
    }
    assert_eq!(seen, 45);
}

#[test]
fn sanity_checks_and_damaged_files() {
    let index = "txn-0/00000000000000000000.index";
    let (text, good) = dump_log(&["--index-sanity-check", "--files", index]);
    assert!(good);
    assert_eq!(
        text,
        format!("Dumping {index}\n{index} passed sanity check.\n")
    );
    let (_, good) = dump_log(&["--files", "nowhere/00000000000000000000.log"]);
    assert!(!good);

    // a torn tail is told, not printed
    let dir = tempfile::tempdir().unwrap();
    let whole = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/golden/dump-log/txn-0/00000000000000000000.log"
    );
    let mut bytes = std::fs::read(whole).unwrap();
    bytes.truncate(bytes.len() - 5);
    let torn = dir.path().join("00000000000000000000.log");
    std::fs::write(&torn, bytes).unwrap();
    let (text, good) = dump_log(&["--files", torn.to_str().unwrap()]);
    assert!(good);
    assert!(
        text.ends_with("Found 73 invalid bytes at the end of 00000000000000000000.log\n"),
        "{text}"
    );
}
