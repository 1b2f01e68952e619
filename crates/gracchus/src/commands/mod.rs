//! The servers: `start`, `broker`, `zookeeper`; and `check-config`, a look at a configuration without starting anything.

mod broker;
mod check_config;
mod console;
mod figures;
mod start;
mod zookeeper;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use gracchus_broker::config::{ConfigError, Loaded, Sources};
use gracchus_broker::lifecycle::StartOptions;

/// Apache Kafka in ZooKeeper mode, and the ZooKeeper under it, as one binary.
#[derive(Debug, Parser)]
#[command(name = "gracchus", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Everything in one process: coordination server, broker, console
    Start(StartArgs),
    /// One broker of a cluster, as kafka-server-start.sh
    Broker(BrokerArgs),
    /// The coordination server alone, as zkServer.sh start-foreground
    Zookeeper(ZookeeperArgs),
    /// Every key of a server.properties with its value and where that comes from; starts nothing
    CheckConfig(CheckConfigArgs),
    /// Links of the names of Kafka's and ZooKeeper's scripts to this binary, which then acts as they do
    Link {
        /// Where the links go
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
    /// The ZooKeeper shell, as zkCli.sh (gracchus zk --help)
    Zk,
    /// Topics, as kafka-topics.sh
    Topics,
    /// Consumer groups, as kafka-consumer-groups.sh
    Groups,
    /// Configurations, as kafka-configs.sh
    Configs,
    /// Writes lines as records, as kafka-console-producer.sh
    Produce,
    /// Prints records, as kafka-console-consumer.sh
    Consume,
    /// Prints log segments, as kafka-dump-log.sh
    DumpLog,
    /// Offsets of partitions, as kafka-get-offsets.sh
    Offsets,
    /// Deletes the oldest records, as kafka-delete-records.sh
    DeleteRecords,
    /// What the log directories hold, as kafka-log-dirs.sh
    LogDirs,
    /// APIs and versions of the brokers, as kafka-broker-api-versions.sh
    ApiVersions,
    /// Sends records and measures, as kafka-producer-perf-test.sh
    ProducerPerf,
    /// Reads records and measures, as kafka-consumer-perf-test.sh
    ConsumerPerf,
    /// Has leaders elected, as kafka-leader-election.sh
    Elect,
    /// Moves replicas between brokers and log directories, as kafka-reassign-partitions.sh
    Reassign,
    /// Who is controller, since when, in which epoch, and the elections before
    Controller,
}

#[derive(Debug, Args)]
struct StartArgs {
    /// Where everything is kept
    #[arg(long, value_name = "DIR", default_value = "./gracchus-data")]
    data: PathBuf,
    /// Brokers in this process, 1 to 9
    #[arg(long, value_name = "N", default_value_t = 1)]
    brokers: u16,
    /// Kafka clients connect here; further brokers listen on the ports above
    #[arg(long, value_name = "PORT", default_value_t = 9092)]
    kafka_port: u16,
    /// ZooKeeper clients connect here
    #[arg(long, value_name = "PORT", default_value_t = 2181)]
    zookeeper_port: u16,
    /// Health, metrics
    #[arg(long, value_name = "PORT", default_value_t = 9080)]
    console_port: u16,
    /// A broker's key, as in server.properties (repeatable)
    #[arg(long, value_name = "KEY=VALUE")]
    config: Vec<String>,
    #[command(flatten)]
    adopt: AdoptArgs,
}

/// A broker's configuration.
#[derive(Debug, Args)]
struct ConfigArgs {
    /// Kafka's server.properties
    #[arg(value_name = "server.properties")]
    file: PathBuf,
    /// Overrides a key of the file (repeatable)
    #[arg(long = "override", visible_alias = "config", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
}

impl ConfigArgs {
    fn load(&self) -> Result<Loaded, ConfigError> {
        let mut sources = Sources::default();
        sources.file(&self.file)?;
        for text in &self.overrides {
            sources.assignment("--override", text)?;
        }
        // Where Kafka's scripts are told the system properties.
        if let Ok(options) = std::env::var("KAFKA_OPTS") {
            sources.jvm_options(&options);
        }
        sources.check()
    }
}

#[derive(Debug, Args)]
struct BrokerArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Serve /health and /metrics on this port of all addresses
    #[arg(long, value_name = "PORT")]
    http_port: Option<u16>,
    #[command(flatten)]
    adopt: AdoptArgs,
}

/// After the loss of ZooKeeper's data.
#[derive(Debug, Clone, Copy, Args)]
struct AdoptArgs {
    /// Give a ZooKeeper without topics the cluster id of the log directories
    #[arg(long)]
    adopt_cluster_id: bool,
    /// In a cluster of one broker: restore the topics from the log directories, too
    #[arg(long, requires = "adopt_cluster_id")]
    adopt_topics: bool,
}

impl From<AdoptArgs> for StartOptions {
    fn from(args: AdoptArgs) -> Self {
        StartOptions {
            adopt_cluster_id: args.adopt_cluster_id,
            adopt_topics: args.adopt_topics,
        }
    }
}

#[derive(Debug, Args)]
struct CheckConfigArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Only keys that are given, without those that have their default
    #[arg(long)]
    given: bool,
    /// What is printed
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Text,
    Json,
}

#[derive(Debug, Args)]
struct ZookeeperArgs {
    /// ZooKeeper's zoo.cfg
    #[arg(value_name = "zoo.cfg")]
    file: PathBuf,
    /// Serve /health and /metrics on this port of all addresses
    #[arg(long, value_name = "PORT")]
    http_port: Option<u16>,
}

/// Parses the command line, the binary's name first, and runs the command until it ends.
pub fn run(words: impl IntoIterator<Item = String>) -> ExitCode {
    let cli = Cli::parse_from(words);
    crate::logging::start();
    crate::process::raise_file_limit();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return crate::process::fail(&format!("the runtime cannot start: {error}")),
    };
    let code = runtime.block_on(async {
        match cli.command {
            Command::Start(args) => start::run(args).await,
            Command::Broker(args) => broker::run(args).await,
            Command::Zookeeper(args) => zookeeper::run(args).await,
            Command::CheckConfig(args) => check_config::run(&args),
            Command::Link { dir } => crate::scripts::link(&dir),
            _ => crate::process::fail(&"this tool is not in this build"),
        }
    });
    // what still blocks (a log that is being recovered) must not hold up the exit
    runtime.shutdown_background();
    code
}
