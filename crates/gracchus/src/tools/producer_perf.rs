//! `gracchus producer-perf`, as `kafka-producer-perf-test.sh`.

use super::Failure;
use super::arguments::{connect, parse, properties};
use super::producer_settings::producer_settings;
use clap::{ArgGroup, Parser};
use gracchus_client::Producer;
use gracchus_client::producer::{Delivery, ProducerRecord};
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Sends records and tells how fast that went.
#[derive(Debug, Parser)]
#[command(name = "gracchus producer-perf", disable_version_flag = true)]
#[command(group(ArgGroup::new("payload").required(true).args(["record_size", "payload_file", "payload_monotonic"])))]
struct Options {
    /// The topic to send to
    #[arg(long)]
    topic: String,
    /// How many records
    #[arg(long, value_name = "N")]
    num_records: u64,
    /// What stands between the payloads of the file
    #[arg(long, value_name = "TEXT", default_value = "\\n")]
    payload_delimiter: String,
    /// Records a second at most, about; -1: as fast as it goes
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    throughput: f64,
    /// The producer's properties, bootstrap.servers among them; stronger than --producer.config
    #[arg(long, value_name = "KEY=VALUE", num_args = 1..)]
    producer_props: Vec<String>,
    /// A file with the producer's properties
    #[arg(long = "producer.config", value_name = "FILE")]
    producer_config: Option<PathBuf>,
    /// Bytes of each record
    #[arg(long, value_name = "BYTES")]
    record_size: Option<usize>,
    /// A file of payloads, of which each record takes one by chance
    #[arg(long, value_name = "FILE")]
    payload_file: Option<PathBuf>,
    /// Payloads are 0, 1, 2, ...
    #[arg(long)]
    payload_monotonic: bool,
    /// Accepted for compatibility: this client keeps no metrics
    #[arg(long, hide = true)]
    print_metrics: bool,
    /// Not supported yet
    #[arg(long, hide = true)]
    transactional_id: Option<String>,
    /// Not supported yet
    #[arg(long, hide = true, default_value_t = 0)]
    transaction_duration_ms: u64,
}

/// Deliveries whose answers are not measured yet.
const OPEN: usize = 1 << 20;
/// Between two lines of progress.
const LINE_EVERY: Duration = Duration::from_secs(5);
/// At most as many latencies are kept for the percentiles.
const SAMPLES: u64 = 500_000;

/// Runs the tool; gives its exit code.
pub(super) async fn run(arguments: &[String]) -> u8 {
    let options: Options = match parse("gracchus producer-perf", arguments) {
        Ok(options) => options,
        Err(code) => return code,
    };
    super::exit_code(execute(&options).await)
}

async fn execute(o: &Options) -> Result<(), Failure> {
    if o.transaction_duration_ms > 0 {
        return Err(Failure::usage(
            "--transaction-duration-ms: transactions are not supported by this tool yet",
        ));
    }
    let settings = properties(o.producer_config.as_deref(), &o.producer_props)?;
    let bootstrap = settings.get("bootstrap.servers").ok_or_else(|| {
        Failure::usage(
            "No bootstrap.servers: give it with --producer-props bootstrap.servers=HOST:PORT",
        )
    })?;
    let config = producer_settings(&settings)?;
    let mut payloads = Payloads::new(o)?;
    let cluster = connect(bootstrap, &settings, "perf-producer-client").await?;
    let producer = Producer::new(cluster, config)?;
    let (sent, deliveries) = mpsc::channel(OPEN);
    let begun = Instant::now();
    let measuring = tokio::spawn(measure(deliveries, o.num_records, begun));
    for number in 0..o.num_records {
        let value = payloads.next(number);
        let bytes = value.len();
        let record = ProducerRecord {
            topic: o.topic.clone(),
            value: Some(value),
            ..Default::default()
        };
        let at = Instant::now();
        let delivery = producer.send(record).await?;
        if sent.send((at, bytes, delivery)).await.is_err() {
            break;
        }
        if o.throughput > 0.0 {
            let due = Duration::try_from_secs_f64((number + 1) as f64 / o.throughput)
                .unwrap_or(Duration::MAX);
            let ahead = due.saturating_sub(begun.elapsed());
            // shorter sleeps than the timer's step would only add up to too slow a rate
            if ahead >= Duration::from_millis(1) {
                tokio::time::sleep(ahead).await;
            }
        }
    }
    drop(sent);
    producer.flush().await?;
    let total = measuring
        .await
        .map_err(|e| Failure::other(format!("measuring ended early: {e}")))??;
    writeln!(std::io::stdout(), "{}", total.summary(begun.elapsed()))?;
    Ok(())
}

/// What the records hold.
enum Payloads {
    Random { size: usize, state: u64 },
    Lines { lines: Vec<Vec<u8>>, state: u64 },
    Numbers,
}

impl Payloads {
    fn new(o: &Options) -> Result<Self, Failure> {
        // the same payloads in each run, as there
        let state = 0x9e37_79b9_7f4a_7c15;
        if let Some(path) = &o.payload_file {
            println!(
                "Reading payloads from: {}",
                std::path::absolute(path)?.display()
            );
            let text = std::fs::read_to_string(path)
                .map_err(|e| Failure::other(format!("{}: {e}", path.display())))?;
            let delimiter = o
                .payload_delimiter
                .replace("\\n", "\n")
                .replace("\\t", "\t");
            // Java's split: empty ones at the end do not count
            let mut lines: Vec<Vec<u8>> = text
                .split(&delimiter)
                .map(|l| l.as_bytes().to_vec())
                .collect();
            while lines.last().is_some_and(Vec::is_empty) {
                lines.pop();
            }
            println!("Number of messages read: {}", lines.len());
            if lines.is_empty() {
                return Err(Failure::other(format!(
                    "File does not exist or empty file provided: {}",
                    path.display()
                )));
            }
            return Ok(Payloads::Lines { lines, state });
        }
        Ok(match o.record_size {
            Some(size) => Payloads::Random { size, state },
            None => Payloads::Numbers,
        })
    }

    fn next(&mut self, number: u64) -> Vec<u8> {
        match self {
            Payloads::Random { size, state } => (0..*size)
                .map(|_| b'A' + (step(state) % 26) as u8)
                .collect(),
            Payloads::Lines { lines, state } => {
                let at = (step(state) % lines.len() as u64) as usize;
                lines.get(at).cloned().unwrap_or_default()
            }
            Payloads::Numbers => number.to_string().into_bytes(),
        }
    }
}

/// Marsaglia's xorshift: quick, and good enough for letters.
fn step(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state >> 33
}

/// Counts of answered records.
#[derive(Default)]
struct Window {
    count: u64,
    bytes: u64,
    latency_ms: u64,
    max_ms: u64,
}

impl Window {
    fn add(&mut self, bytes: usize, ms: u64) {
        self.count += 1;
        self.bytes += bytes as u64;
        self.latency_ms += ms;
        self.max_ms = self.max_ms.max(ms);
    }

    /// Records a second, MB a second, mean latency.
    fn rates(&self, elapsed: Duration) -> (f64, f64, f64) {
        let ms = (elapsed.as_millis().max(1)) as f64;
        (
            1000.0 * self.count as f64 / ms,
            1000.0 * self.bytes as f64 / ms / (1024.0 * 1024.0),
            self.latency_ms as f64 / self.count.max(1) as f64,
        )
    }

    fn line(&self, elapsed: Duration) -> String {
        let (records, mb, latency) = self.rates(elapsed);
        format!(
            "{} records sent, {records:.1} records/sec ({mb:.2} MB/sec), {latency:.1} ms avg latency, {:.1} ms max latency.",
            self.count, self.max_ms as f64
        )
    }
}

/// Of the whole run.
struct Total {
    all: Window,
    samples: Vec<u64>,
}

impl Total {
    fn summary(mut self, elapsed: Duration) -> String {
        self.samples.sort_unstable();
        let percentile = |p: f64| {
            let at = (p * self.samples.len() as f64) as usize;
            self.samples
                .get(at.min(self.samples.len().saturating_sub(1)))
                .copied()
                .unwrap_or(0)
        };
        let (records, mb, latency) = self.all.rates(elapsed);
        format!(
            "{} records sent, {records:.6} records/sec ({mb:.2} MB/sec), {latency:.2} ms avg latency, {:.2} ms max latency, \
             {} ms 50th, {} ms 95th, {} ms 99th, {} ms 99.9th.",
            self.all.count,
            self.all.max_ms as f64,
            percentile(0.5),
            percentile(0.95),
            percentile(0.99),
            percentile(0.999)
        )
    }
}

async fn measure(
    mut deliveries: mpsc::Receiver<(Instant, usize, Delivery)>,
    records: u64,
    begun: Instant,
) -> Result<Total, Failure> {
    let every = (records / records.clamp(1, SAMPLES)).max(1);
    let mut total = Total {
        all: Window::default(),
        samples: Vec::new(),
    };
    let (mut window, mut window_begun) = (Window::default(), begun);
    let mut number = 0u64;
    while let Some((sent, bytes, delivery)) = deliveries.recv().await {
        match delivery.await {
            Ok(Err(e)) => eprintln!("{e}"),
            Ok(Ok(_)) => {
                let ms = u64::try_from(sent.elapsed().as_millis()).unwrap_or(u64::MAX);
                total.all.add(bytes, ms);
                window.add(bytes, ms);
                if number.is_multiple_of(every) {
                    total.samples.push(ms);
                }
            }
            Err(_) => {}
        }
        number += 1;
        if window_begun.elapsed() >= LINE_EVERY {
            writeln!(std::io::stdout(), "{}", window.line(window_begun.elapsed()))?;
            (window, window_begun) = (Window::default(), Instant::now());
        }
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_as_kafkas_tool_prints_them() {
        let mut total = Total {
            all: Window::default(),
            samples: Vec::new(),
        };
        for ms in 1..=100 {
            total.all.add(1 << 20, ms);
            total.samples.push(ms);
        }
        assert_eq!(
            total.all.line(Duration::from_secs(5)),
            "100 records sent, 20.0 records/sec (20.00 MB/sec), 50.5 ms avg latency, 100.0 ms max latency."
        );
        assert_eq!(
            total.summary(Duration::from_secs(3)),
            "100 records sent, 33.333333 records/sec (33.33 MB/sec), 50.50 ms avg latency, 100.00 ms max latency, 51 ms 50th, \
             96 ms 95th, 100 ms 99th, 100 ms 99.9th."
        );
    }

    #[test]
    fn payloads() {
        let mut random = Payloads::Random { size: 9, state: 1 };
        let (a, b) = (random.next(0), random.next(1));
        assert!(a.len() == 9 && a != b && a.iter().all(u8::is_ascii_uppercase));
        assert_eq!(Payloads::Numbers.next(7), b"7");
    }
}
