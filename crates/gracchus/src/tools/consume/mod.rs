//! `gracchus consume`, as `kafka-console-consumer.sh`.

mod formatter;

use super::Failure;
use super::arguments::{
    Properties, connect, is_internal, is_true, name_filter, number, parse, properties,
};
use clap::Parser;
use formatter::Formatter;
use gracchus_client::admin::{Admin, IsolationLevel, OffsetSpec};
use gracchus_client::consumer::OffsetReset;
use gracchus_client::{Cluster, Consumer, ConsumerConfig, TopicPartition};
use std::collections::BTreeSet;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::Instant;

/// Reads records from topics and prints them.
#[derive(Debug, Parser)]
#[command(name = "gracchus consume", disable_version_flag = true)]
struct Options {
    /// The Kafka server to connect to
    #[arg(long, value_name = "HOST:PORT,...", required = true)]
    bootstrap_server: String,
    /// The topic to read
    #[arg(long, required_unless_present_any = ["include", "whitelist"], conflicts_with_all = ["include", "whitelist"])]
    topic: Option<String>,
    /// A regular expression of topics to read
    #[arg(long, value_name = "REGEX")]
    include: Option<String>,
    /// Deprecated, use --include
    #[arg(long, value_name = "REGEX")]
    whitelist: Option<String>,
    /// The partition to read, from its end unless --offset is given
    #[arg(long, requires = "topic", conflicts_with = "group")]
    partition: Option<i32>,
    /// Where to begin: a number, 'earliest' or 'latest'
    #[arg(long, requires = "partition", conflicts_with = "from_beginning")]
    offset: Option<String>,
    /// The consumer group
    #[arg(long)]
    group: Option<String>,
    /// Begin with the first record there is, unless the group has an offset
    #[arg(long)]
    from_beginning: bool,
    /// Stop after this many records
    #[arg(long, value_name = "N")]
    max_messages: Option<u64>,
    /// Stop when there is no record for this long, ms
    #[arg(long, value_name = "MS", allow_negative_numbers = true)]
    timeout_ms: Option<i64>,
    /// Go on when a record cannot be printed
    #[arg(long)]
    skip_message_on_error: bool,
    /// read_committed leaves records of open and aborted transactions out
    #[arg(long, value_name = "LEVEL")]
    isolation_level: Option<String>,
    /// The formatter's Java class
    #[arg(long, value_name = "CLASS")]
    formatter: Option<String>,
    /// The formatter's properties: print.timestamp, print.key, print.offset, print.partition, print.headers, print.value,
    /// key.separator, line.separator, headers.separator, null.literal, key.deserializer, value.deserializer (repeatable)
    #[arg(long, value_name = "KEY=VALUE")]
    property: Vec<String>,
    /// A file with the formatter's properties
    #[arg(long, value_name = "FILE")]
    formatter_config: Option<PathBuf>,
    /// A consumer's property (repeatable)
    #[arg(long, value_name = "KEY=VALUE")]
    consumer_property: Vec<String>,
    /// A file with the consumer's properties
    #[arg(long = "consumer.config", value_name = "FILE")]
    consumer_config: Option<PathBuf>,
    /// How to show keys
    #[arg(long, value_name = "CLASS")]
    key_deserializer: Option<String>,
    /// How to show values
    #[arg(long, value_name = "CLASS")]
    value_deserializer: Option<String>,
    /// Accepted for compatibility
    #[arg(long, hide = true)]
    enable_systest_events: bool,
}

/// Runs the tool; gives its exit code.
pub(super) async fn run(arguments: &[String]) -> u8 {
    let options: Options = match parse("gracchus consume", arguments) {
        Ok(options) => options,
        Err(code) => return code,
    };
    let mut count = 0;
    let result = execute(&options, &mut count).await;
    let code = match result {
        Ok(()) => 0,
        Err(Failure::Usage(text)) => {
            eprintln!("{text}");
            return 1;
        }
        Err(e) if e.is_closed_output() => {
            eprintln!("Unable to write to standard out, closing consumer.");
            0
        }
        Err(e) => {
            eprintln!("ERROR {e}");
            1
        }
    };
    eprintln!("Processed a total of {count} messages");
    code
}

/// Where to begin in a partition: `None` at the end.
fn start(o: &Options) -> Result<OffsetStart, Failure> {
    match o.offset.as_deref().map(str::to_lowercase).as_deref() {
        None if o.from_beginning => Ok(OffsetStart::Earliest),
        None | Some("latest") => Ok(OffsetStart::Latest),
        Some("earliest") => Ok(OffsetStart::Earliest),
        Some(text) => match text.parse::<i64>() {
            Ok(n) if n >= 0 => Ok(OffsetStart::At(n)),
            _ => Err(Failure::usage(format!(
                "The provided offset value '{text}' is incorrect. Valid values are 'earliest', 'latest', or a non-negative long."
            ))),
        },
    }
}

#[derive(Debug, Clone, Copy)]
enum OffsetStart {
    Earliest,
    Latest,
    At(i64),
}

fn consumer_config(o: &Options, p: &Properties) -> Result<ConsumerConfig, Failure> {
    let reset = match p.get("auto.offset.reset").map(|v| v.to_lowercase()) {
        Some(value) if o.from_beginning && value != "earliest" => {
            return Err(Failure::usage(format!(
                "Can't simultaneously specify --from-beginning and 'auto.offset.reset={value}', please remove one option"
            )));
        }
        Some(value) => match value.as_str() {
            "earliest" => OffsetReset::Earliest,
            "latest" => OffsetReset::Latest,
            "none" => OffsetReset::None,
            _ => {
                return Err(Failure::usage(format!(
                    "Invalid value {value} for configuration auto.offset.reset"
                )));
            }
        },
        None if o.from_beginning => OffsetReset::Earliest,
        None => OffsetReset::Latest,
    };
    let level = o
        .isolation_level
        .as_ref()
        .or_else(|| p.get("isolation.level"));
    let isolation = match level.map(String::as_str) {
        None | Some("read_uncommitted") => IsolationLevel::ReadUncommitted,
        Some("read_committed") => IsolationLevel::ReadCommitted,
        Some(other) => {
            return Err(Failure::usage(format!(
                "Invalid value {other} for configuration isolation.level"
            )));
        }
    };
    let mut groups: BTreeSet<&String> = o.group.iter().collect();
    groups.extend(p.get("group.id"));
    if groups.len() > 1 {
        return Err(Failure::usage(
            "The group ids provided in different places (directly using '--group', via '--consumer-property', or via '--consumer.config') do not match.",
        ));
    }
    let mut config = ConsumerConfig {
        group: groups.into_iter().next().cloned(),
        instance_id: p.get("group.instance.id").cloned(),
        offset_reset: reset,
        isolation,
        ..ConsumerConfig::default()
    };
    let millis = |key| number::<u64>(p, key).map(|v| v.map(Duration::from_millis));
    if config.group.is_none() || is_true(p, "enable.auto.commit") == Some(false) {
        config.auto_commit = None;
    } else if let Some(d) = millis("auto.commit.interval.ms")? {
        config.auto_commit = Some(d);
    }
    if let Some(d) = millis("session.timeout.ms")? {
        config.session_timeout = d;
    }
    if let Some(d) = millis("heartbeat.interval.ms")? {
        config.heartbeat_interval = d;
    }
    if let Some(d) = millis("max.poll.interval.ms")? {
        config.rebalance_timeout = d;
    }
    if let Some(d) = millis("fetch.max.wait.ms")? {
        config.fetch_max_wait = d;
    }
    if let Some(n) = number(p, "fetch.min.bytes")? {
        config.fetch_min_bytes = n;
    }
    if let Some(n) = number(p, "fetch.max.bytes")? {
        config.fetch_max_bytes = n;
    }
    if let Some(n) = number(p, "max.partition.fetch.bytes")? {
        config.partition_max_bytes = n;
    }
    if let Some(n) = number(p, "max.poll.records")? {
        config.max_poll_records = n;
    }
    if is_true(p, "allow.auto.create.topics") == Some(false) {
        config.allow_auto_create = false;
    }
    Ok(config)
}

async fn execute(o: &Options, count: &mut u64) -> Result<(), Failure> {
    let settings = properties(o.consumer_config.as_deref(), &o.consumer_property)?;
    let mut look = properties(o.formatter_config.as_deref(), &o.property)?;
    for (key, class) in [
        ("key.deserializer", &o.key_deserializer),
        ("value.deserializer", &o.value_deserializer),
    ] {
        if let Some(class) = class {
            look.insert(key.into(), class.clone());
        }
    }
    let formatter = Formatter::new(o.formatter.as_deref(), &look)?;
    let config = consumer_config(o, &settings)?;
    let begin = start(o)?;
    let patience = patience(o);
    let deadline = patience.map(|p| Instant::now() + p);
    let ready = within(deadline, prepare(o, settings, &config, begin)).await?;
    let Some((mut consumer, mut topics)) = ready else {
        tell_timeout();
        return Ok(());
    };
    let done = read(o, &formatter, &mut consumer, &mut topics, count).await;
    // leaves the group in any case
    let closing = consumer.close();
    let closed = match patience {
        // who asked for an end gets one, even from a server that is silent
        Some(_) => tokio::time::timeout(CLOSE, closing).await.unwrap_or(Ok(())),
        None => closing.await,
    };
    done?;
    if config.group.is_some() {
        closed?;
    }
    Ok(())
}

/// A poll without records ends after this long, to look for new partitions.
const LOOK: Duration = Duration::from_millis(500);
/// Leaving the group gets this long when there is a `--timeout-ms`.
const CLOSE: Duration = Duration::from_secs(5);

fn patience(o: &Options) -> Option<Duration> {
    let ms = o.timeout_ms.and_then(|ms| u64::try_from(ms).ok());
    ms.map(Duration::from_millis)
}

fn tell_timeout() {
    eprintln!("ERROR Error processing message, terminating consumer process: TimeoutException");
}

/// None when the time is up, whatever it waits for: a record, the group, or a broker that can be reached.
async fn within<T>(
    deadline: Option<Instant>,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<Option<T>, Failure> {
    let Some(deadline) = deadline else {
        return work.await.map(Some);
    };
    match tokio::time::timeout_at(deadline, work).await {
        Err(_) => Ok(None),
        Ok(Err(Failure::Client(e))) if e.is_retriable() && Instant::now() >= deadline => Ok(None),
        Ok(done) => done.map(Some),
    }
}

/// Connects, and says what is to be read.
async fn prepare<'a>(
    o: &'a Options,
    mut settings: Properties,
    config: &ConsumerConfig,
    begin: OffsetStart,
) -> Result<(Consumer, Topics<'a>), Failure> {
    if let Some(ms) = patience(o).map(|p| p.as_millis())
        && number::<u128>(&settings, "default.api.timeout.ms")?.unwrap_or(60_000) > ms
    {
        settings.insert("default.api.timeout.ms".into(), ms.to_string());
    }
    let cluster = connect(&o.bootstrap_server, &settings, "console-consumer").await?;
    let mut consumer = Consumer::new(cluster.clone(), config.clone());
    let mut topics = Topics::new(o, &cluster, config.allow_auto_create)?;
    if let (Some(topic), Some(partition)) = (&o.topic, o.partition) {
        let tp = TopicPartition::new(topic, partition);
        let offset = offset(&Admin::new(cluster), &tp, begin).await?;
        consumer.assign(&[(tp, Some(offset))]);
        topics.fixed = true;
    } else if config.group.is_some() {
        consumer.subscribe(&topics.names().await?)?;
        topics.fixed = true;
    }
    Ok((consumer, topics))
}

async fn offset(admin: &Admin, tp: &TopicPartition, begin: OffsetStart) -> Result<i64, Failure> {
    let spec = match begin {
        OffsetStart::At(offset) => return Ok(offset),
        OffsetStart::Earliest => OffsetSpec::Earliest,
        OffsetStart::Latest => OffsetSpec::Latest,
    };
    let listed = admin
        .list_offsets(&[(tp.clone(), spec)], IsolationLevel::ReadUncommitted)
        .await?;
    match listed.into_iter().next() {
        Some((_, listed)) => Ok(listed?.offset),
        None => Err(Failure::other(format!("no offset of {tp} was told"))),
    }
}

/// The partitions to read without a group: those of the topics as they are, and as they become.
struct Topics<'a> {
    o: &'a Options,
    cluster: Cluster,
    filter: Option<regex::Regex>,
    create: bool,
    /// Assigned otherwise.
    fixed: bool,
    known: BTreeSet<TopicPartition>,
    next_look: Option<Instant>,
}

impl<'a> Topics<'a> {
    fn new(o: &'a Options, cluster: &Cluster, create: bool) -> Result<Self, Failure> {
        let pattern = o.include.as_deref().or(o.whitelist.as_deref());
        Ok(Topics {
            o,
            cluster: cluster.clone(),
            filter: pattern.map(name_filter).transpose()?,
            create,
            fixed: false,
            known: BTreeSet::new(),
            next_look: None,
        })
    }

    /// The topics' names as they are now.
    async fn names(&self) -> Result<Vec<String>, Failure> {
        if let Some(topic) = &self.o.topic {
            return Ok(vec![topic.clone()]);
        }
        let mut names: Vec<_> = Admin::new(self.cluster.clone())
            .list_topics()
            .await?
            .into_iter()
            .map(|t| t.name)
            .collect();
        // as Java's consumer, which leaves internal topics out of a pattern
        names.retain(|n| !is_internal(n) && self.filter.as_ref().is_some_and(|f| f.is_match(n)));
        Ok(names)
    }

    /// Adds partitions that are new; looks oftener while there are none.
    async fn look(&mut self, consumer: &mut Consumer) -> Result<(), Failure> {
        let now = Instant::now();
        if self.fixed || self.next_look.is_some_and(|at| now < at) {
            return Ok(());
        }
        let first = self.next_look.is_none();
        let names = self.names().await?;
        let answer = if self.create {
            self.cluster.metadata_creating(&names).await?
        } else {
            self.cluster.metadata(Some(&names)).await?
        };
        let mut fresh = Vec::new();
        for topic in answer.topics {
            let name = topic.name.unwrap_or_default();
            for p in topic.partitions {
                let tp = TopicPartition::new(&name, p.partition_index);
                if p.leader_id >= 0 && self.known.insert(tp.clone()) {
                    fresh.push(tp);
                }
            }
        }
        // what came into being meanwhile is read from its beginning
        let begin = if first && !self.o.from_beginning {
            OffsetSpec::Latest
        } else {
            OffsetSpec::Earliest
        };
        let wanted: Vec<_> = fresh.into_iter().map(|tp| (tp, begin)).collect();
        if !wanted.is_empty() {
            let admin = Admin::new(self.cluster.clone());
            for (tp, listed) in admin
                .list_offsets(&wanted, IsolationLevel::ReadUncommitted)
                .await?
            {
                consumer.assign_more(&[(tp, Some(listed?.offset))]);
            }
        }
        let pause = if self.known.is_empty() { 1 } else { 30 };
        self.next_look = Some(now + Duration::from_secs(pause));
        Ok(())
    }
}

async fn read(
    o: &Options,
    formatter: &Formatter,
    consumer: &mut Consumer,
    topics: &mut Topics<'_>,
    count: &mut u64,
) -> Result<(), Failure> {
    let mut stop = std::pin::pin!(stopped());
    let patience = patience(o);
    let mut quiet_since = Instant::now();
    let mut out = BufWriter::new(std::io::stdout());
    while o.max_messages.is_none_or(|max| *count < max) {
        let deadline = patience.map(|p| quiet_since + p);
        let next = async {
            topics.look(consumer).await?;
            Ok(consumer.poll(LOOK).await?)
        };
        let records = tokio::select! {
            biased;
            () = &mut stop => break,
            records = within(deadline, next) => records?,
        };
        let Some(records) = records else {
            tell_timeout();
            break;
        };
        if records.is_empty() {
            continue;
        }
        for r in &records {
            if o.max_messages.is_some_and(|max| *count >= max) {
                // these were not printed, so they are not to be committed
                let tp = TopicPartition::new(&r.topic, r.partition);
                if consumer.position(&tp).is_some_and(|at| at > r.offset) {
                    consumer.seek(&tp, r.offset);
                }
                continue;
            }
            *count += 1;
            formatter.write(r, &mut out)?;
        }
        out.flush()?;
        quiet_since = Instant::now();
    }
    out.flush()?;
    Ok(())
}

/// Ctrl-C or SIGTERM.
async fn stopped() {
    let terminated = async {
        match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
            Ok(mut signal) => drop(signal.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        () = terminated => {}
    }
}
