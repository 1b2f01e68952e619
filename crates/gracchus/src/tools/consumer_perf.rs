//! `gracchus consumer-perf`, as `kafka-consumer-perf-test.sh`.

use super::Failure;
use super::arguments::{connect, number, parse, properties};
use clap::Parser;
use gracchus_client::consumer::OffsetReset;
use gracchus_client::{Consumer, ConsumerConfig};
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Reads records and tells how fast that went.
#[derive(Debug, Parser)]
#[command(name = "gracchus consumer-perf", disable_version_flag = true)]
struct Options {
    /// The Kafka server to connect to
    #[arg(long, value_name = "HOST:PORT,...", alias = "broker-list")]
    bootstrap_server: String,
    /// The topic to read
    #[arg(long)]
    topic: String,
    /// The consumer group (default: one of its own)
    #[arg(long)]
    group: Option<String>,
    /// Bytes of one partition in one fetch
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20)]
    fetch_size: i32,
    /// Begin at the end, unless the group has an offset
    #[arg(long)]
    from_latest: bool,
    /// A file with the consumer's properties
    #[arg(long = "consumer.config", value_name = "FILE")]
    consumer_config: Option<PathBuf>,
    /// How many records to read
    #[arg(long, value_name = "N")]
    messages: u64,
    /// Stop when there is no record for this long, ms
    #[arg(long, value_name = "MS", default_value_t = 10_000)]
    timeout: u64,
    /// A line for each interval instead of one at the end
    #[arg(long)]
    show_detailed_stats: bool,
    /// The interval, ms
    #[arg(long, value_name = "MS", default_value_t = 5000)]
    reporting_interval: u64,
    /// Leave the header out
    #[arg(long)]
    hide_header: bool,
    /// How times are printed, by the letters of Java's SimpleDateFormat: y M d H m s S
    #[arg(long, value_name = "FORMAT", default_value = "yyyy-MM-dd HH:mm:ss:SSS")]
    date_format: String,
    /// Accepted for compatibility
    #[arg(long, hide = true)]
    socket_buffer_size: Option<i32>,
    /// Accepted for compatibility
    #[arg(long, hide = true)]
    threads: Option<i32>,
    /// Accepted for compatibility
    #[arg(long, hide = true)]
    num_fetch_threads: Option<i32>,
    /// Accepted for compatibility: this client keeps no metrics
    #[arg(long, hide = true)]
    print_metrics: bool,
}

/// How finely the moment of the assignment is seen.
const LOOK: Duration = Duration::from_millis(20);

/// Runs the tool; gives its exit code.
pub(super) async fn run(arguments: &[String]) -> u8 {
    let options: Options = match parse("gracchus consumer-perf", arguments) {
        Ok(options) => options,
        Err(code) => return code,
    };
    super::exit_code(execute(&options).await)
}

/// What has been read, and how long joining the group took.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Reading {
    bytes: u64,
    records: u64,
    joining: Duration,
}

const COLUMNS: &str = "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec";

impl Reading {
    /// The columns behind the times. `all` is what had been read at the end, `self` what of it counts for the rates.
    fn columns(&self, all: &Reading, elapsed: Duration) -> String {
        let ms = |d: Duration| d.as_millis();
        let mb = |bytes: u64| bytes as f64 / (1024.0 * 1024.0);
        let rate = |amount: f64, ms: u128| {
            if ms == 0 {
                0.0
            } else {
                amount * 1000.0 / ms as f64
            }
        };
        let fetching = ms(elapsed).saturating_sub(ms(self.joining));
        format!(
            "{:.4}, {:.4}, {}, {:.4}, {}, {fetching}, {:.4}, {:.4}",
            mb(all.bytes),
            rate(mb(self.bytes), ms(elapsed)),
            all.records,
            rate(self.records as f64, ms(elapsed)),
            ms(self.joining),
            rate(mb(self.bytes), fetching),
            rate(self.records as f64, fetching),
        )
    }

    fn since(&self, before: &Reading) -> Reading {
        Reading {
            bytes: self.bytes - before.bytes,
            records: self.records - before.records,
            joining: self.joining.saturating_sub(before.joining),
        }
    }
}

/// Java's letters as `strftime`'s.
fn time_format(pattern: &str) -> String {
    let mut out = String::new();
    let mut rest = pattern;
    while let Some(first) = rest.chars().next() {
        let length = rest.chars().take_while(|c| *c == first).count();
        let run = rest.get(..length * first.len_utf8()).unwrap_or(rest);
        out.push_str(match (first, length) {
            ('y', 2) => "%y",
            ('y', _) => "%Y",
            ('M', 1 | 2) => "%m",
            ('M', 3) => "%b",
            ('d', _) => "%d",
            ('H', _) => "%H",
            ('m', _) => "%M",
            ('s', _) => "%S",
            ('S', _) => "%3f",
            _ => run,
        });
        rest = rest.get(run.len()..).unwrap_or("");
    }
    out
}

async fn execute(o: &Options) -> Result<(), Failure> {
    let settings = properties(o.consumer_config.as_deref(), &[])?;
    let group = o
        .group
        .clone()
        .or_else(|| settings.get("group.id").cloned())
        .unwrap_or_else(|| format!("perf-consumer-{}", std::process::id()));
    let config = ConsumerConfig {
        group: Some(group),
        offset_reset: if o.from_latest {
            OffsetReset::Latest
        } else {
            OffsetReset::Earliest
        },
        partition_max_bytes: o.fetch_size,
        fetch_min_bytes: number(&settings, "fetch.min.bytes")?.unwrap_or(1),
        max_poll_records: number(&settings, "max.poll.records")?.unwrap_or(500),
        ..ConsumerConfig::default()
    };
    let format = time_format(&o.date_format);
    let now = || jiff::Zoned::now().strftime(&format).to_string();
    let cluster = connect(&o.bootstrap_server, &settings, "perf-consumer-client").await?;
    let mut consumer = Consumer::new(cluster, config);
    consumer.subscribe(std::slice::from_ref(&o.topic))?;
    if !o.hide_header {
        let times = if o.show_detailed_stats {
            "time, threadId"
        } else {
            "start.time, end.time"
        };
        writeln!(std::io::stdout(), "{times}, {COLUMNS}")?;
    }
    let (start, begun) = (now(), Instant::now());
    let mut reading = Reading::default();
    let mut told = (begun, reading);
    let mut last_record = begun;
    let timeout = Duration::from_millis(o.timeout);
    let mut assigned = false;
    while reading.records < o.messages && last_record.elapsed() < timeout {
        let left = timeout.saturating_sub(last_record.elapsed());
        let wait = if assigned {
            left.min(Duration::from_millis(100))
        } else {
            LOOK
        };
        let Ok(records) = tokio::time::timeout(left, consumer.poll(wait)).await else {
            break;
        };
        let records = records?;
        if !assigned && !consumer.assigned().is_empty() {
            assigned = true;
            reading.joining = begun.elapsed();
        }
        if !records.is_empty() {
            last_record = Instant::now();
        }
        for r in &records {
            let size = |part: &Option<bytes::Bytes>| part.as_ref().map_or(0, |b| b.len() as u64);
            reading.records += 1;
            reading.bytes += size(&r.key) + size(&r.value);
        }
        if o.show_detailed_stats && told.0.elapsed() >= Duration::from_millis(o.reporting_interval)
        {
            let part = reading.since(&told.1);
            writeln!(
                std::io::stdout(),
                "{}, 0, {}",
                now(),
                part.columns(&reading, told.0.elapsed())
            )?;
            told = (Instant::now(), reading);
        }
    }
    let (end, elapsed) = (now(), begun.elapsed());
    if reading.records < o.messages {
        writeln!(
            std::io::stdout(),
            "WARNING: Exiting before consuming the expected number of messages: timeout ({} ms) exceeded. You can use the --timeout option to increase the timeout.",
            o.timeout
        )?;
    }
    if !o.show_detailed_stats {
        writeln!(
            std::io::stdout(),
            "{start}, {end}, {}",
            reading.columns(&reading, elapsed)
        )?;
    }
    // commits and leaves the group
    consumer.close().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_as_kafkas_tool_prints_them() {
        let all = Reading {
            bytes: 2_002_100,
            records: 20_021,
            joining: Duration::from_millis(3616),
        };
        // a real line of it
        assert_eq!(
            all.columns(&all, Duration::from_millis(3742)),
            "1.9094, 0.5102, 20021, 5350.3474, 3616, 126, 15.1536, 158896.8254"
        );
        let nothing = Reading::default();
        assert_eq!(
            nothing.columns(&nothing, Duration::from_millis(2009)),
            "0.0000, 0.0000, 0, 0.0000, 0, 2009, 0.0000, 0.0000"
        );
    }

    #[test]
    fn date_formats() {
        assert_eq!(
            time_format("yyyy-MM-dd HH:mm:ss:SSS"),
            "%Y-%m-%d %H:%M:%S:%3f"
        );
        assert_eq!(time_format("dd MMM yy"), "%d %b %y");
    }
}
