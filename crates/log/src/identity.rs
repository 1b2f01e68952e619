//! Whose data it is: `meta.properties` of a log directory, `partition.metadata` of a partition.

use crate::disk::{self, Sync};
use crate::error::{LogError, StartError};
use gracchus_kafka_proto::Uuid;
use std::path::Path;

pub const META_PROPERTIES: &str = "meta.properties";
pub const PARTITION_METADATA: &str = "partition.metadata";

/// A log directory's `meta.properties`, version 0 (ZooKeeper mode).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MetaProperties {
    pub broker_id: Option<i32>,
    pub cluster_id: Option<String>,
    /// Written by brokers of KRaft mode; kept.
    pub directory_id: Option<String>,
}

impl MetaProperties {
    /// `None` if the directory has none yet.
    pub fn read(dir: &Path) -> Result<Option<Self>, StartError> {
        let path = dir.join(META_PROPERTIES);
        let Some(bytes) = disk::read_small(&path, 1 << 20)? else {
            return Ok(None);
        };
        Self::parse(&bytes)
            .map(Some)
            .map_err(|detail| StartError::MetaProperties { path, detail })
    }

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let text = String::from_utf8_lossy(bytes);
        let mut found = Self::default();
        let mut version = None::<i32>;
        for line in text.lines().map(str::trim_start) {
            if line.is_empty() || line.starts_with(['#', '!']) {
                continue;
            }
            let Some((key, value)) = line.split_once(['=', ':']) else {
                continue;
            };
            // Java escapes '=' and ':' in values; ids hold neither but for base64url's padding.
            let value = value.trim().replace('\\', "");
            match key.trim() {
                "version" => {
                    let number = value
                        .parse()
                        .map_err(|_| format!("its version is {value:?}"))?;
                    version = Some(number);
                }
                "broker.id" => {
                    let id = value
                        .parse()
                        .map_err(|_| format!("its broker.id is {value:?}"))?;
                    found.broker_id = Some(id);
                }
                "cluster.id" => found.cluster_id = Some(value),
                "directory.id" => found.directory_id = Some(value),
                _ => {}
            }
        }
        if version.is_none() && found == Self::default() && !text.trim().is_empty() {
            return Err("it is damaged: it has no version, broker.id or cluster.id. Restore it: the lines version=0, broker.id=N and cluster.id=ID, the last as in ZooKeeper's /cluster/id".into());
        }
        let version = version.unwrap_or(0);
        if version != 0 {
            return Err(format!(
                "its version is {version}: it was formatted for KRaft mode, which this broker does not run. Point log.dirs at a directory of a ZooKeeper-mode broker"
            ));
        }
        Ok(found)
    }

    /// Replaces the file, on the device, as Kafka writes it.
    pub fn write(&self, dir: &Path, now_ms: i64) -> Result<(), LogError> {
        disk::replace(
            &dir.join(META_PROPERTIES),
            self.format(now_ms).as_bytes(),
            Sync::Device,
        )
    }

    fn format(&self, now_ms: i64) -> String {
        let mut text = format!("#\n#{}\n", java_date(now_ms));
        if let Some(id) = self.broker_id {
            text += &format!("broker.id={id}\n");
        }
        text += "version=0\n";
        if let Some(id) = &self.directory_id {
            text += &format!("directory.id={id}\n");
        }
        if let Some(id) = &self.cluster_id {
            text += &format!("cluster.id={id}\n");
        }
        text
    }
}

/// A date as Java's `Properties` prints it, in UTC: `Mon Nov 30 22:46:14 UTC 2026`.
fn java_date(ms: i64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let seconds = ms.div_euclid(1000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Days since 0000-03-01 in the proleptic Gregorian calendar, by eras of 400 years.
    let z = days + 719_468;
    let (era, day_of_era) = (z.div_euclid(146_097), z.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 2
    } else {
        shifted - 10
    };
    let year = year_of_era + era * 400 + i64::from(month < 2);
    format!(
        "{} {} {day:02} {:02}:{:02}:{:02} UTC {year}",
        DAYS.get(days.rem_euclid(7) as usize).unwrap_or(&""),
        MONTHS.get(month as usize).unwrap_or(&""),
        second / 3600,
        second / 60 % 60,
        second % 60,
    )
}

/// The topic id in `partition.metadata`; `None` if there is no file (topics older than topic ids).
pub fn read_topic_id(dir: &Path) -> Result<Option<Uuid>, LogError> {
    let path = dir.join(PARTITION_METADATA);
    let Some(bytes) = disk::read_small(&path, 4096)? else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(&bytes);
    let mut lines = text.lines();
    if lines.next().map(str::trim) != Some("version: 0") {
        return Err(LogError::corrupt(
            &path,
            "its first line is not \"version: 0\"",
        ));
    }
    let id = lines
        .next()
        .and_then(|l| l.trim().strip_prefix("topic_id: "))
        .and_then(|id| id.parse::<Uuid>().ok())
        .filter(|id| !id.is_zero())
        .ok_or_else(|| LogError::corrupt(&path, "it holds no topic_id"))?;
    Ok(Some(id))
}

/// Writes `partition.metadata`; without a newline at its end, as Kafka.
pub fn write_topic_id(dir: &Path, id: Uuid) -> Result<(), LogError> {
    let text = format!("version: 0\ntopic_id: {id}");
    disk::replace(
        &dir.join(PARTITION_METADATA),
        text.as_bytes(),
        Sync::PageCache,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meta_properties_as_kafka_wrote_it() {
        let text = "#\n#Mon Nov 30 22:46:14 UTC 2026\nbroker.id=7\nversion=0\ncluster.id=obh3WxB5Qw-8jBzksV3UAg\n";
        let meta = MetaProperties::parse(text.as_bytes()).unwrap();
        assert_eq!(meta.broker_id, Some(7));
        assert_eq!(meta.cluster_id.as_deref(), Some("obh3WxB5Qw-8jBzksV3UAg"));
        assert_eq!(meta.format(1_796_078_774_000), text);
    }

    #[test]
    fn kraft_and_nonsense_are_refused() {
        let error = MetaProperties::parse(b"version=1\nnode.id=1\n").unwrap_err();
        assert!(error.contains("KRaft"), "{error}");
        assert!(MetaProperties::parse(b"broker.id=x\n").is_err());
        let error = MetaProperties::parse(b"garbage\n").unwrap_err();
        assert!(error.contains("damaged"), "{error}");
        // as Kafka takes it
        let meta = MetaProperties::parse(b"broker.id=1\n").unwrap();
        assert_eq!(meta.broker_id, Some(1));
        assert_eq!(
            MetaProperties::parse(b"").unwrap(),
            MetaProperties::default()
        );
    }

    #[test]
    fn dates() {
        assert_eq!(java_date(0), "Thu Jan 01 00:00:00 UTC 1970");
        assert_eq!(java_date(951_827_696_000), "Tue Feb 29 12:34:56 UTC 2000");
        assert_eq!(java_date(1_735_689_599_999), "Tue Dec 31 23:59:59 UTC 2024");
    }

    #[test]
    fn partition_metadata() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read_topic_id(dir.path()).unwrap(), None);
        let id: Uuid = "7Zz7RZ8ASgyrbMoFnCJo-A".parse().unwrap();
        write_topic_id(dir.path(), id).unwrap();
        let bytes = std::fs::read(dir.path().join(PARTITION_METADATA)).unwrap();
        assert_eq!(bytes, b"version: 0\ntopic_id: 7Zz7RZ8ASgyrbMoFnCJo-A");
        assert_eq!(read_topic_id(dir.path()).unwrap(), Some(id));
        std::fs::write(dir.path().join(PARTITION_METADATA), b"").unwrap();
        assert!(read_topic_id(dir.path()).is_err());
    }
}
