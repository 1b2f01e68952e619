//! `gracchus dump-log`, as `kafka-dump-log.sh`: segments, indexes, producer snapshots, aborted transactions.

mod indexes;
mod segment;

use super::Failure;
use super::arguments::parse;
use super::stored::{Shown, offsets_record, transaction_record};
use clap::Parser;
use gracchus_log::index::TxnIndex;
use gracchus_log::producer::read_snapshot;
use gracchus_record::Record;
use indexes::Mismatches;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Prints log segments, indexes and snapshots.
#[derive(Debug, Parser)]
#[command(name = "gracchus dump-log", disable_version_flag = true)]
struct Options {
    /// The files to print: .log, .index, .timeindex, .txnindex, .snapshot
    #[arg(long, value_name = "FILE,...", required = true, value_delimiter = ',')]
    files: Vec<PathBuf>,
    /// Print the records' keys and values
    #[arg(long)]
    print_data_log: bool,
    /// Print the records, not only the batches
    #[arg(long)]
    deep_iteration: bool,
    /// Do not print what a record says of itself
    #[arg(long)]
    skip_record_metadata: bool,
    /// Check indexes against their log without printing them
    #[arg(long)]
    verify_index_only: bool,
    /// Check that indexes are sane, as a broker does when it starts
    #[arg(long)]
    index_sanity_check: bool,
    /// Largest batch to look for behind an index entry
    #[arg(long, value_name = "BYTES", default_value_t = 5 << 20)]
    max_message_size: usize,
    /// Read no more than this of a log
    #[arg(long, value_name = "BYTES", default_value_t = i32::MAX)]
    max_bytes: i32,
    /// Decode records of __consumer_offsets
    #[arg(long, group = "decoder")]
    offsets_decoder: bool,
    /// Decode records of __transaction_state
    #[arg(long, group = "decoder")]
    transaction_log_decoder: bool,
    /// How to show keys: org.apache.kafka.tools.api.{String,Long,Integer,Default}Decoder
    #[arg(long, value_name = "CLASS")]
    key_decoder_class: Option<String>,
    /// How to show values
    #[arg(long, value_name = "CLASS")]
    value_decoder_class: Option<String>,
}

impl Options {
    fn prints_data(&self) -> bool {
        self.print_data_log
            || self.offsets_decoder
            || self.transaction_log_decoder
            || self.key_decoder_class.is_some()
            || self.value_decoder_class.is_some()
    }

    fn is_deep(&self) -> bool {
        self.deep_iteration || self.prints_data()
    }

    /// Key and value as text.
    fn show(&self, r: &Record<'_>) -> Shown {
        if self.offsets_decoder {
            return offsets_record(r.offset, r.key, r.value);
        }
        if self.transaction_log_decoder {
            return transaction_record(r.offset, r.key, r.value);
        }
        let show = |class: &Option<String>, field: Option<&[u8]>| {
            field.map(|bytes| shown_as(class.as_deref(), bytes))
        };
        (
            show(&self.key_decoder_class, r.key),
            show(&self.value_decoder_class, r.value),
        )
    }
}

/// Bytes as one of Kafka's decoders would show them; as text when they don't fit.
fn shown_as(class: Option<&str>, bytes: &[u8]) -> String {
    let number = match class.unwrap_or_default().rsplit('.').next() {
        Some("LongDecoder") => bytes
            .try_into()
            .ok()
            .map(|b| i64::from_be_bytes(b).to_string()),
        Some("IntegerDecoder") => bytes
            .try_into()
            .ok()
            .map(|b| i32::from_be_bytes(b).to_string()),
        _ => None,
    };
    number.unwrap_or_else(|| String::from_utf8_lossy(bytes).into_owned())
}

/// Runs the tool; gives its exit code.
pub(super) fn run(arguments: &[String]) -> u8 {
    let options: Options = match parse("gracchus dump-log", arguments) {
        Ok(options) => options,
        Err(code) => return code,
    };
    let mut out = BufWriter::new(std::io::stdout().lock());
    let done = dump(&options, &mut out).and_then(|()| Ok(out.flush()?));
    match done {
        Ok(()) => 0,
        Err(e) => {
            let _ = out.flush();
            if !e.is_closed_output() {
                eprintln!("{e}");
            }
            1
        }
    }
}

fn dump(o: &Options, out: &mut impl Write) -> Result<(), Failure> {
    let mut found = Mismatches::default();
    for file in &o.files {
        writeln!(out, "Dumping {}", file.display())?;
        match file.extension().and_then(|e| e.to_str()) {
            Some("log") => segment::dump(o, file, out, &mut found)?,
            Some("index") => indexes::dump_offsets(o, file, out, &mut found)?,
            Some("timeindex") => indexes::dump_times(o, file, out, &mut found)?,
            Some("txnindex") => dump_aborted(file, out)?,
            Some("snapshot") => dump_producers(file, out)?,
            _ => eprintln!("Ignoring unknown file {}", file.display()),
        }
    }
    out.flush()?;
    found.print();
    Ok(())
}

fn unreadable(file: &Path, error: impl std::fmt::Display) -> Failure {
    Failure::other(format!("{}: {error}", file.display()))
}

/// The offset in a segment file's name.
fn base_offset(file: &Path) -> Result<i64, Failure> {
    file.file_name()
        .and_then(|n| n.to_str()?.split('.').next()?.parse().ok())
        .ok_or_else(|| unreadable(file, "the name does not begin with an offset"))
}

fn dump_aborted(file: &Path, out: &mut impl Write) -> Result<(), Failure> {
    for t in TxnIndex::read(file).map_err(|e| unreadable(file, e))? {
        writeln!(
            out,
            "version: 0 producerId: {} firstOffset: {} lastOffset: {} lastStableOffset: {}",
            t.producer_id, t.first_offset, t.last_offset, t.last_stable_offset
        )?;
    }
    Ok(())
}

fn optional(value: Option<i64>) -> String {
    value.map_or_else(
        || "OptionalLong.empty".to_owned(),
        |v| format!("OptionalLong[{v}]"),
    )
}

fn dump_producers(file: &Path, out: &mut impl Write) -> Result<(), Failure> {
    let entries = match read_snapshot(file) {
        Ok(entries) => entries,
        Err(e) => {
            eprintln!("{e}");
            return Ok(());
        }
    };
    for e in entries {
        write!(
            out,
            "producerId: {} producerEpoch: {} coordinatorEpoch: {} currentTxnFirstOffset: {} lastTimestamp: {} ",
            e.producer_id,
            e.producer_epoch,
            e.coordinator_epoch,
            optional(e.current_txn_first_offset),
            e.last_timestamp
        )?;
        if let Some(b) = e.batches().next() {
            write!(
                out,
                "firstSequence: {} lastSequence: {} lastOffset: {} offsetDelta: {} timestamp: {}",
                b.first_sequence(),
                b.last_sequence,
                b.last_offset,
                b.offset_delta,
                b.timestamp
            )?;
        }
        writeln!(out)?;
    }
    Ok(())
}
