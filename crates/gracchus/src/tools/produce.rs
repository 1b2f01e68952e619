//! `gracchus produce`, as `kafka-console-producer.sh`.

use super::Failure;
use super::arguments::{Properties, connect, is_true, parse, properties};
use super::producer_settings::producer_settings;
use clap::Parser;
use gracchus_client::producer::{Delivery, ProducerRecord};
use gracchus_client::{Producer, ProducerConfig};
use std::collections::VecDeque;
use std::io::{BufRead, IsTerminal, Write};
use std::path::PathBuf;
use tokio::sync::mpsc;

/// Reads lines from standard input and sends each as a record.
#[derive(Debug, Parser)]
#[command(name = "gracchus produce", disable_version_flag = true)]
struct Options {
    /// The Kafka servers to connect to
    #[arg(
        long,
        value_name = "HOST:PORT,...",
        required_unless_present = "broker_list"
    )]
    bootstrap_server: Option<String>,
    /// Deprecated, use --bootstrap-server
    #[arg(long, value_name = "HOST:PORT,...")]
    broker_list: Option<String>,
    /// The topic to send to
    #[arg(long, required = true)]
    topic: String,
    /// Wait for each record's answer before the next is sent
    #[arg(long)]
    sync: bool,
    /// none, gzip, snappy, lz4 or zstd; gzip without a value
    #[arg(long, value_name = "CODEC", num_args = 0..=1, default_missing_value = "gzip")]
    compression_codec: Option<String>,
    /// Bytes of a batch
    #[arg(long, value_name = "BYTES")]
    batch_size: Option<usize>,
    /// Bytes of a batch; stronger than --batch-size
    #[arg(long, value_name = "BYTES")]
    max_partition_memory_bytes: Option<usize>,
    /// How long a record waits for others, ms
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    timeout: u64,
    /// Whose acknowledgement is waited for: 0, 1, -1 or all
    #[arg(long, value_name = "ACKS", allow_hyphen_values = true)]
    request_required_acks: Option<String>,
    /// How long the broker may wait for replicas, ms
    #[arg(long, value_name = "MS", default_value_t = 1500)]
    request_timeout_ms: u64,
    /// Bytes that wait to be sent
    #[arg(long, value_name = "BYTES")]
    max_memory_bytes: Option<usize>,
    /// How a line is read: parse.key, parse.headers, key.separator, headers.delimiter, headers.separator,
    /// headers.key.separator, null.marker, ignore.error (repeatable)
    #[arg(long, value_name = "KEY=VALUE")]
    property: Vec<String>,
    /// A file with these properties
    #[arg(long, value_name = "FILE")]
    reader_config: Option<PathBuf>,
    /// A producer's property (repeatable)
    #[arg(long, value_name = "KEY=VALUE")]
    producer_property: Vec<String>,
    /// A file with the producer's properties
    #[arg(long = "producer.config", value_name = "FILE")]
    producer_config: Option<PathBuf>,
    /// How long to wait between retries, ms
    #[arg(long, value_name = "MS")]
    retry_backoff_ms: Option<u64>,
    /// Accepted for compatibility: retries end with delivery.timeout.ms
    #[arg(long, hide = true)]
    message_send_max_retries: Option<u32>,
    /// Accepted for compatibility
    #[arg(long, hide = true)]
    metadata_expiry_ms: Option<u64>,
    /// Accepted for compatibility
    #[arg(long, hide = true)]
    max_block_ms: Option<u64>,
    /// Accepted for compatibility
    #[arg(long, hide = true)]
    socket_buffer_size: Option<u64>,
    /// Accepted for compatibility: only Kafka's LineMessageReader is known
    #[arg(long, hide = true)]
    line_reader: Option<String>,
}

/// Runs the tool; gives its exit code.
pub(super) async fn run(arguments: &[String]) -> u8 {
    let options: Options = match parse("gracchus produce", arguments) {
        Ok(options) => options,
        Err(code) => return code,
    };
    match execute(&options).await {
        Ok(()) => 0,
        Err(e) => {
            eprintln!("{e}");
            1
        }
    }
}

/// The options are stronger than the properties, but for the linger time.
fn producer_config(o: &Options, p: &Properties) -> Result<ProducerConfig, Failure> {
    let mut p = p.clone();
    let codec = o.compression_codec.as_deref();
    let batch = o.max_partition_memory_bytes.or(o.batch_size);
    for (key, value) in [
        (
            "compression.type",
            codec.map(|name| if name.is_empty() { "gzip" } else { name }.to_owned()),
        ),
        ("acks", o.request_required_acks.clone()),
        ("batch.size", batch.map(|bytes| bytes.to_string())),
        (
            "buffer.memory",
            o.max_memory_bytes.map(|bytes| bytes.to_string()),
        ),
        ("request.timeout.ms", Some(o.request_timeout_ms.to_string())),
    ] {
        if let Some(value) = value {
            p.insert(key.to_owned(), value);
        }
    }
    p.entry("linger.ms".to_owned())
        .or_insert_with(|| o.timeout.to_string());
    producer_settings(&p)
}

/// How a line becomes a record.
#[derive(Debug)]
struct LineReader {
    topic: String,
    parse_key: bool,
    parse_headers: bool,
    ignore_error: bool,
    key_separator: String,
    headers_delimiter: String,
    headers_separator: regex::Regex,
    headers_key_separator: String,
    null_marker: Option<String>,
}

impl LineReader {
    fn new(topic: &str, p: &Properties) -> Result<Self, Failure> {
        let text = |key: &str, default: &str| p.get(key).cloned().unwrap_or_else(|| default.into());
        let key_separator = text("key.separator", "\t");
        let headers_delimiter = text("headers.delimiter", "\t");
        let headers_separator = text("headers.separator", ",");
        let headers_key_separator = text("headers.key.separator", ":");
        let null_marker = p.get("null.marker").cloned();
        let named = [
            ("headers.delimiter", Some(&headers_delimiter)),
            ("headers.separator", Some(&headers_separator)),
            ("headers.key.separator", Some(&headers_key_separator)),
            ("null.marker", null_marker.as_ref()),
            ("key.separator", Some(&key_separator)),
        ];
        for (i, (a, left)) in named.iter().enumerate() {
            for (b, right) in named.iter().skip(i + 1) {
                // a key and headers may be told apart by the same character
                let may = *b == "key.separator" && *a != "null.marker";
                if left.is_some() && left == right && !may {
                    return Err(Failure::usage(format!("{a} and {b} may not be equal")));
                }
            }
        }
        Ok(LineReader {
            topic: topic.to_owned(),
            parse_key: is_true(p, "parse.key").unwrap_or(false),
            parse_headers: is_true(p, "parse.headers").unwrap_or(false),
            ignore_error: is_true(p, "ignore.error").unwrap_or(false),
            key_separator,
            headers_delimiter,
            headers_separator: regex::Regex::new(&headers_separator).map_err(|e| {
                Failure::usage(format!("headers.separator is no regular expression: {e}"))
            })?,
            headers_key_separator,
            null_marker,
        })
    }

    /// Cuts a field off the front of a line.
    fn cut<'a>(
        &self,
        wanted: bool,
        line: &mut &'a str,
        separator: &str,
        name: &str,
        number: u64,
    ) -> Result<Option<&'a str>, Failure> {
        if !wanted {
            return Ok(None);
        }
        match line.split_once(separator) {
            Some((field, rest)) => {
                *line = rest;
                Ok(Some(field))
            }
            None if self.ignore_error => Ok(None),
            None => Err(Failure::other(format!(
                "No {name} found on line number {number}: '{line}'"
            ))),
        }
    }

    fn nullable(&self, field: &str) -> Option<Vec<u8>> {
        (self.null_marker.as_deref() != Some(field)).then(|| field.as_bytes().to_vec())
    }

    fn record(&self, line: &str, number: u64) -> Result<ProducerRecord, Failure> {
        let mut rest = line;
        let delimiter = &self.headers_delimiter;
        let headers = self.cut(
            self.parse_headers,
            &mut rest,
            delimiter,
            "headers delimiter",
            number,
        )?;
        let separator = &self.key_separator;
        let key = self.cut(
            self.parse_key,
            &mut rest,
            separator,
            "key separator",
            number,
        )?;
        let mut record = ProducerRecord {
            topic: self.topic.clone(),
            key: key.and_then(|k| self.nullable(k)),
            value: self.nullable(rest),
            ..ProducerRecord::default()
        };
        let Some(headers) = headers.filter(|h| self.null_marker.as_deref() != Some(*h)) else {
            return Ok(record);
        };
        for header in self.headers_separator.split(headers) {
            match header.split_once(&self.headers_key_separator) {
                Some((name, _)) if self.null_marker.as_deref() == Some(name) => {
                    return Err(Failure::other(format!(
                        "Header keys should not be equal to the null marker '{name}' as they can't be null"
                    )));
                }
                Some((name, value)) => record.headers.push((name.to_owned(), self.nullable(value))),
                None if self.ignore_error => record.headers.push((header.to_owned(), None)),
                None => {
                    return Err(Failure::other(format!(
                        "No header key separator found in pair '{header}' on line number {number}"
                    )));
                }
            }
        }
        Ok(record)
    }
}

/// The lines of standard input, which is read on a thread of its own.
fn lines() -> mpsc::Receiver<std::io::Result<String>> {
    let (sender, receiver) = mpsc::channel(1024);
    let prompt = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        loop {
            if prompt {
                print!(">");
                let _ = std::io::stdout().flush();
            }
            let mut line = Vec::new();
            let read = input.read_until(b'\n', &mut line).map(|n| {
                if line.ends_with(b"\n") {
                    line.pop();
                    if line.ends_with(b"\r") {
                        line.pop();
                    }
                }
                (n, String::from_utf8_lossy(&line).into_owned())
            });
            let item = match read {
                Ok((0, _)) => return,
                Ok((_, line)) => Ok(line),
                Err(e) => Err(e),
            };
            let failed = item.is_err();
            if sender.blocking_send(item).is_err() || failed {
                return;
            }
        }
    });
    receiver
}

async fn execute(o: &Options) -> Result<(), Failure> {
    let mut settings = properties(o.producer_config.as_deref(), &o.producer_property)?;
    if let Some(ms) = o.retry_backoff_ms {
        settings.insert("retry.backoff.ms".into(), ms.to_string());
    }
    let look = properties(o.reader_config.as_deref(), &o.property)?;
    let reader = LineReader::new(&o.topic, &look)?;
    let config = producer_config(o, &settings)?;
    let bootstrap = o
        .bootstrap_server
        .as_ref()
        .or(o.broker_list.as_ref())
        .cloned()
        .unwrap_or_default();
    let cluster = connect(&bootstrap, &settings, "console-producer").await?;
    let producer = Producer::new(cluster, config)?;
    let mut answers: VecDeque<Delivery> = VecDeque::new();
    let mut lines = lines();
    let mut number = 0;
    let result = loop {
        let Some(line) = lines.recv().await else {
            break Ok(());
        };
        number += 1;
        let record = match line
            .map_err(Failure::from)
            .and_then(|l| reader.record(&l, number))
        {
            Ok(record) => record,
            Err(e) => break Err(e),
        };
        let delivery = producer.send(record).await?;
        if o.sync {
            match delivery.await {
                Ok(Err(e)) => break Err(e.into()),
                _ => continue,
            }
        }
        answers.push_back(delivery);
        // those that are answered already
        while let Some(first) = answers.front_mut() {
            match first.try_recv() {
                Err(tokio::sync::oneshot::error::TryRecvError::Empty) => break,
                done => {
                    tell(&o.topic, done.ok());
                    answers.pop_front();
                }
            }
        }
    };
    producer.flush().await?;
    for delivery in answers {
        tell(&o.topic, delivery.await.ok());
    }
    result
}

fn tell<T>(topic: &str, answer: Option<Result<T, gracchus_client::ClientError>>) {
    if let Some(Err(e)) = answer {
        eprintln!("ERROR Error when sending message to topic {topic}: {e}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(pairs: &[&str]) -> Result<LineReader, Failure> {
        let pairs: Vec<_> = pairs.iter().map(|p| (*p).to_owned()).collect();
        LineReader::new("t", &properties(None, &pairs).unwrap())
    }

    #[test]
    fn lines_with_headers_and_keys() {
        let r = reader(&["parse.key=true", "parse.headers=true", "null.marker=NULL"]).unwrap();
        let record = r.record("a:1,b:NULL\tkey\tvalue\twith tab", 1).unwrap();
        assert_eq!(record.key.as_deref(), Some(&b"key"[..]));
        assert_eq!(record.value.as_deref(), Some(&b"value\twith tab"[..]));
        assert_eq!(
            record.headers,
            [
                ("a".to_owned(), Some(b"1".to_vec())),
                ("b".to_owned(), None)
            ]
        );
        let nothing = r.record("NULL\tNULL\tNULL", 2).unwrap();
        assert_eq!((nothing.key, nothing.value), (None, None));
        assert!(nothing.headers.is_empty());
        let error = r.record("a:1\tvalue", 3).unwrap_err().to_string();
        assert_eq!(error, "No key separator found on line number 3: 'value'");
    }

    #[test]
    fn plain_lines_and_separators_that_clash() {
        let record = reader(&[]).unwrap().record("a\tb", 1).unwrap();
        assert_eq!(record.value.as_deref(), Some(&b"a\tb"[..]));
        assert!(reader(&["headers.separator=:"]).is_err());
        assert!(reader(&["null.marker=\t"]).is_err());
        let lenient = reader(&["parse.key=true", "ignore.error=true"]).unwrap();
        assert_eq!(lenient.record("x", 1).unwrap().key, None);
    }
}
