//! `gracchus reassign`, as `kafka-reassign-partitions.sh`: [`plan`] reads and writes its JSON, [`execute`], [`verify`] and
//! [`generate`] are its actions, [`throttle`] the limits on the moves' rate.

mod execute;
mod generate;
mod plan;
mod throttle;
mod verify;

use super::Failure;
use super::arguments::{Format, connect, parse, properties};
use clap::Parser;
use gracchus_client::TopicPartition;
use gracchus_client::admin::Admin;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Moves replicas between brokers and log directories.
#[derive(Debug, Parser)]
#[command(name = "gracchus reassign", disable_version_flag = true)]
struct Options {
    /// The Kafka server to connect to
    #[arg(long, value_name = "HOST:PORT,...")]
    bootstrap_server: Option<String>,
    /// Properties for the client
    #[arg(long, value_name = "FILE")]
    command_config: Option<PathBuf>,
    /// Proposes an assignment of the topics to the brokers
    #[arg(long)]
    generate: bool,
    /// Begins the moves
    #[arg(long)]
    execute: bool,
    /// Tells how far the moves are; when all are done, removes the throttles
    #[arg(long)]
    verify: bool,
    /// Ends the moves, back to where the replicas were
    #[arg(long)]
    cancel: bool,
    /// What is being moved
    #[arg(long)]
    list: bool,
    /// {"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2],"log_dirs":["any","/d"]}]}
    #[arg(long, value_name = "FILE")]
    reassignment_json_file: Option<PathBuf>,
    /// {"version":1,"topics":[{"topic":"t"}]}
    #[arg(long, value_name = "FILE")]
    topics_to_move_json_file: Option<PathBuf>,
    /// The brokers to move to: 0,1,2
    #[arg(long, value_name = "ID,...")]
    broker_list: Option<String>,
    /// Proposes without a look at the racks
    #[arg(long)]
    disable_rack_aware: bool,
    /// Bytes per second that moves between brokers may take
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    throttle: Option<i64>,
    /// Bytes per second that moves between log directories may take
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    replica_alter_log_dirs_throttle: Option<i64>,
    /// How long a broker may take to begin a move between directories, ms
    #[arg(long, value_name = "MS")]
    timeout: Option<u64>,
    /// Beside moves that are going on; changes their throttle, too
    #[arg(long)]
    additional: bool,
    /// Leaves the throttles as they are
    #[arg(long)]
    preserve_throttles: bool,
    /// What --list and --verify print
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Generate,
    Execute,
    Verify,
    Cancel,
    List,
}

/// Runs the tool; gives its exit code. As Java's, it says on standard output what went wrong, wrong usage aside.
pub(super) async fn run(arguments: &[String]) -> u8 {
    let options: Options = match parse("gracchus reassign", arguments) {
        Ok(options) => options,
        Err(code) => return code,
    };
    match act(&options).await {
        Err(Failure::Other(text)) => {
            let _ = writeln!(std::io::stdout(), "{text}");
            1
        }
        Err(Failure::Client(error)) => {
            let _ = writeln!(std::io::stdout(), "Error: {}", super::java_text(&error));
            1
        }
        outcome => super::exit_code(outcome),
    }
}

/// The one action that is asked for, with only the options that it takes.
fn action(o: &Options) -> Result<Action, Failure> {
    let all = [
        (o.generate, Action::Generate, "generate"),
        (o.execute, Action::Execute, "execute"),
        (o.verify, Action::Verify, "verify"),
        (o.cancel, Action::Cancel, "cancel"),
        (o.list, Action::List, "list"),
    ];
    let mut asked = all.iter().filter(|(given, ..)| *given);
    let (Some((_, action, name)), None) = (asked.next(), asked.next()) else {
        return Err(Failure::usage(
            "Command must include exactly one action: --generate, --execute, --verify, --cancel, --list",
        ));
    };
    use Action::{Cancel, Execute, Generate, List, Verify};
    let options: [(bool, &str, &[Action]); 9] = [
        (
            o.reassignment_json_file.is_some(),
            "reassignment-json-file",
            &[Execute, Verify, Cancel],
        ),
        (
            o.topics_to_move_json_file.is_some(),
            "topics-to-move-json-file",
            &[Generate],
        ),
        (o.broker_list.is_some(), "broker-list", &[Generate]),
        (o.disable_rack_aware, "disable-rack-aware", &[Generate]),
        (o.throttle.is_some(), "throttle", &[Execute]),
        (
            o.replica_alter_log_dirs_throttle.is_some(),
            "replica-alter-log-dirs-throttle",
            &[Execute],
        ),
        (o.timeout.is_some(), "timeout", &[Execute, Cancel]),
        (o.additional, "additional", &[Execute]),
        (
            o.preserve_throttles,
            "preserve-throttles",
            &[Verify, Cancel],
        ),
    ];
    for (given, option, actions) in options {
        if given && !actions.contains(action) {
            return Err(Failure::usage(format!(
                "Option \"[{option}]\" can't be used with action \"[{name}]\""
            )));
        }
    }
    if o.format == Format::Json && ![List, Verify].contains(action) {
        return Err(Failure::usage(format!(
            "--format json goes with --list and --verify; --{name} prints Kafka's JSON in its text"
        )));
    }
    Ok(*action)
}

fn required<'a, T: ?Sized>(
    option: &'a Option<impl AsRef<T>>,
    name: &str,
) -> Result<&'a T, Failure> {
    let option = option.as_ref().map(AsRef::as_ref);
    option.ok_or_else(|| Failure::usage(format!("Missing required argument \"[{name}]\"")))
}

fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path)
        .map_err(|e| Failure::other(format!("Error: {}: {e}", path.display())))
}

async fn act(o: &Options) -> Result<(), Failure> {
    let action = action(o)?;
    let bootstrap: &str = o
        .bootstrap_server
        .as_deref()
        .ok_or_else(|| Failure::usage("Please specify --bootstrap-server"))?;
    let file = || required::<Path>(&o.reassignment_json_file, "reassignment-json-file");
    // what is wrong with the command line or the files is told before anybody is asked
    let (topics, plan) = match action {
        Action::Generate => {
            let file = required::<Path>(&o.topics_to_move_json_file, "topics-to-move-json-file")?;
            let brokers = required::<str>(&o.broker_list, "broker-list")?;
            (Some(plan::topics(&read(file)?, brokers)?), None)
        }
        Action::List => (None, None),
        Action::Execute | Action::Verify | Action::Cancel => {
            let plan = plan::Plan::read(&read(file()?)?)?;
            if action == Action::Execute {
                plan.check()?;
            }
            (None, Some(plan))
        }
    };
    let properties = properties(o.command_config.as_deref(), &[])?;
    let admin = Admin::new(connect(bootstrap, &properties, "reassign-partitions-tool").await?);
    match (action, topics, plan) {
        (Action::Generate, Some(topics), _) => {
            generate::run(&admin, &topics, !o.disable_rack_aware).await
        }
        (Action::Execute, _, Some(plan)) => {
            execute::run(&admin, &plan, &execute::Limits::of(o)).await
        }
        (Action::Verify, _, Some(plan)) => {
            verify::run(&admin, &plan, o.preserve_throttles, o.format).await
        }
        (Action::Cancel, _, Some(plan)) => {
            execute::cancel(&admin, &plan, o.preserve_throttles, &execute::Limits::of(o)).await
        }
        _ => verify::list(&admin, o.format).await,
    }
}

/// `1,2,3`
fn ids(ids: &[i32]) -> String {
    ids.iter().map(i32::to_string).collect::<Vec<_>>().join(",")
}

/// `s` unless there is one.
fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// `a-0,b-1`
fn names<'a>(partitions: impl IntoIterator<Item = &'a TopicPartition>) -> String {
    let names = partitions.into_iter().map(TopicPartition::to_string);
    names.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(arguments: &[&str]) -> Result<Action, String> {
        let arguments = std::iter::once(&"x").chain(arguments);
        let options = Options::try_parse_from(arguments).unwrap();
        action(&options).map_err(|e| e.to_string())
    }

    #[test]
    fn one_action_with_its_own_options() {
        assert_eq!(usage(&["--list"]), Ok(Action::List));
        assert_eq!(
            usage(&["--execute", "--throttle", "-1"]),
            Ok(Action::Execute)
        );
        for arguments in [&[][..], &["--list", "--verify"]] {
            let error = usage(arguments).unwrap_err();
            assert!(
                error.starts_with("Command must include exactly one action"),
                "{error}"
            );
        }
        assert_eq!(
            usage(&["--verify", "--additional"]).unwrap_err(),
            "Option \"[additional]\" can't be used with action \"[verify]\""
        );
        usage(&["--generate", "--format", "json"]).unwrap_err();
    }
}
