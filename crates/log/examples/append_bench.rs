//! CPU seconds per GB of appends, against a bare write with a checksum; and the time to load many partitions.
//! `cargo run --release -p gracchus-log --example append_bench -- DIR`

use bytes::Bytes;
use gracchus_log::dirs::LogDirs;
use gracchus_log::{
    AppendOrigin, LoadControl, LogConfig, LogManager, LogManagerConfig, TopicPartition,
};
use gracchus_record::{BatchBuilder, Codec, NewRecord};
use std::error::Error;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// CPU time of this process, threads that ended included: in hundredths of a second.
fn cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = text.rsplit(')').next().unwrap_or_default();
    let tick = |n: usize| {
        let field = fields.split_whitespace().nth(n);
        field.and_then(|f| f.parse::<u64>().ok()).unwrap_or(0)
    };
    Duration::from_millis((tick(11) + tick(12)) * 10)
}

fn batch(size: usize, record: usize) -> Outcome<Bytes> {
    let value = vec![b'x'; record];
    let mut builder = BatchBuilder::new(Codec::None);
    while builder.size() + record + 20 < size {
        builder.push(NewRecord {
            timestamp: 1,
            key: None,
            value: Some(&value),
            headers: &[],
        });
    }
    Ok(builder.build()?.bytes().clone())
}

fn report(name: &str, bytes: u64, cpu_before: Duration, wall: Instant) {
    let gb = bytes as f64 / 1e9;
    println!(
        "{name:44} {:6.3} CPU-s/GB {:8.0} MB/s",
        cpu().saturating_sub(cpu_before).as_secs_f64() / gb,
        bytes as f64 / 1e6 / wall.elapsed().as_secs_f64()
    );
}

fn bare(dir: &Path, bytes: &Bytes, total: u64, reserve: bool) -> Outcome<()> {
    let path = dir.join("bare");
    let file = std::fs::File::create(&path)?;
    let (before, wall) = (cpu(), Instant::now());
    if reserve {
        let status = std::process::Command::new("fallocate")
            .args(["-n", "-l", &total.to_string()])
            .arg(&path)
            .status();
        if !status.is_ok_and(|s| s.success()) {
            println!("(no fallocate)");
        }
    }
    let mut written = 0u64;
    let mut sum = 0u64;
    while written < total {
        let copy = Bytes::copy_from_slice(bytes); // as it would come off a socket
        sum ^= crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &copy);
        file.write_all_at(&copy, written)?;
        written += copy.len() as u64;
    }
    let name = format!(
        "bare write + crc, {} KB{}",
        bytes.len() / 1024,
        if reserve { ", reserved" } else { "" }
    );
    report(&name, written, before, wall);
    std::hint::black_box(sum);
    std::fs::remove_file(&path)?;
    Ok(())
}

fn load(dir: &Path, config: &Arc<LogConfig>) -> Outcome<LogManager> {
    let topic = config.clone();
    Ok(LogManager::load(
        LogDirs::open(&[dir.to_path_buf()])?,
        LogManagerConfig::default(),
        config.clone(),
        &move |_| topic.clone(),
        0,
        &LoadControl::default(),
    )?)
}

fn appends(dir: &Path, bytes: &Bytes, total: u64, what: &str) -> Outcome<()> {
    let config = Arc::new(LogConfig::default());
    let manager = load(dir, &config)?;
    let partition = TopicPartition::new("bench", 0);
    let log = manager.get_or_create(&partition, true, None, config, 0)?;
    let (before, wall) = (cpu(), Instant::now());
    let mut written = 0u64;
    while written < total {
        let copy = Bytes::copy_from_slice(bytes);
        written += copy.len() as u64;
        log.lock()
            .append_as_leader(copy, 0, AppendOrigin::Client, 1)?;
    }
    let name = format!("append, {} KB batches, {what}", bytes.len() / 1024);
    report(&name, written, before, wall);
    drop(log);
    manager.delete(&partition, 0)?;
    manager.run_file_deletion_once(i64::MAX);
    manager.shutdown(0);
    Ok(())
}

fn many(dir: &Path, count: i32) -> Outcome<()> {
    let config = Arc::new(LogConfig::default());
    let timed = |name: &str, from: Instant, before: Duration| {
        println!(
            "{name:44} {:6.0} ms, {:.0} ms CPU",
            from.elapsed().as_secs_f64() * 1e3,
            cpu().saturating_sub(before).as_secs_f64() * 1e3
        );
    };
    let manager = load(dir, &config)?;
    let (before, wall) = (cpu(), Instant::now());
    for partition in 0..count {
        let partition = TopicPartition::new("many", partition);
        let id = gracchus_log::Uuid::from_bytes([1; 16]);
        let log = manager.get_or_create(&partition, true, Some(id), config.clone(), 0)?;
        log.lock().assign_epoch_start(0, 0)?;
    }
    timed(&format!("create {count} logs"), wall, before);
    let one = batch(2048, 100)?;
    for (_, log) in manager.logs() {
        log.lock()
            .append_as_leader(one.clone(), 0, AppendOrigin::Client, 1)?;
    }
    let (before, wall) = (cpu(), Instant::now());
    manager.checkpoint_high_watermarks();
    timed("checkpoint the high watermarks", wall, before);
    drop(manager); // killed
    let (before, wall) = (cpu(), Instant::now());
    let manager = load(dir, &config)?;
    timed(&format!("load {count} logs after a kill"), wall, before);
    let (before, wall) = (cpu(), Instant::now());
    manager.shutdown(0);
    timed(
        &format!("stop {count} logs, each to be flushed"),
        wall,
        before,
    );
    let (before, wall) = (cpu(), Instant::now());
    let manager = load(dir, &config)?;
    timed(
        &format!("load {count} logs after a clean stop"),
        wall,
        before,
    );
    let status = std::fs::read_to_string("/proc/self/status")?;
    for line in status.lines().filter(|l| l.starts_with("VmRSS")) {
        println!(
            "{line}, files open: {}",
            std::fs::read_dir("/proc/self/fd")?.count()
        );
    }
    manager.shutdown(0);
    Ok(())
}

fn main() -> Outcome<()> {
    let dir = PathBuf::from(std::env::args().nth(1).ok_or("DIR is missing")?);
    std::fs::create_dir_all(&dir)?;
    if std::env::args().nth(2).as_deref() == Some("many") {
        return many(&dir.join("many"), 2000);
    }
    let total = 2_000_000_000;
    for size in [16 << 10, 256 << 10] {
        for record in [100, 1000] {
            let bytes = batch(size, record)?;
            if record == 100 {
                bare(&dir, &bytes, total, false)?;
                bare(&dir, &bytes, total, true)?;
            }
            appends(
                &dir.join("logs"),
                &bytes,
                total,
                &format!("{record} B records"),
            )?;
        }
    }
    many(&dir.join("many"), 2000)?;
    std::fs::remove_dir_all(dir.join("many"))?;
    Ok(())
}
