//! How a record is printed: as Kafka's formatter classes do.

use crate::tools::Failure;
use crate::tools::arguments::{Properties, is_true};
use crate::tools::stored::{transaction_record, try_offsets_record};
use gracchus_client::consumer::ConsumedRecord;
use gracchus_record::TimestampType;
use std::io::Write;

#[derive(Debug)]
pub(super) enum Formatter {
    Default(Box<Columns>),
    Nothing,
    Logging,
    /// Committed offsets in `__consumer_offsets`.
    Offsets,
    /// Group states in `__consumer_offsets`.
    Groups,
    Transactions,
}

/// What the default formatter prints.
#[derive(Debug)]
pub(super) struct Columns {
    timestamp: bool,
    partition: bool,
    offset: bool,
    headers: bool,
    key: bool,
    value: bool,
    key_separator: String,
    line_separator: String,
    headers_separator: String,
    null: String,
    key_class: Option<Class>,
    value_class: Option<Class>,
    headers_class: Option<Class>,
}

/// Java's deserializers that are known here.
#[derive(Debug, Clone, Copy)]
enum Class {
    Text,
    Long,
    Integer,
    Short,
    Double,
    Float,
}

impl Class {
    fn parse(name: &str) -> Result<Self, Failure> {
        match name.rsplit('.').next().unwrap_or_default() {
            "StringDeserializer" | "ByteArrayDeserializer" | "BytesDeserializer" => Ok(Class::Text),
            "LongDeserializer" => Ok(Class::Long),
            "IntegerDeserializer" => Ok(Class::Integer),
            "ShortDeserializer" => Ok(Class::Short),
            "DoubleDeserializer" => Ok(Class::Double),
            "FloatDeserializer" => Ok(Class::Float),
            _ => Err(Failure::usage(format!(
                "The deserializer {name} is not known here; those of org.apache.kafka.common.serialization for strings, bytes and numbers are"
            ))),
        }
    }

    fn write(self, bytes: &[u8], out: &mut impl Write) -> std::io::Result<()> {
        let text = match self {
            Class::Text => return out.write_all(bytes),
            Class::Long => bytes
                .try_into()
                .ok()
                .map(|b| i64::from_be_bytes(b).to_string()),
            Class::Integer => bytes
                .try_into()
                .ok()
                .map(|b| i32::from_be_bytes(b).to_string()),
            Class::Short => bytes
                .try_into()
                .ok()
                .map(|b| i16::from_be_bytes(b).to_string()),
            Class::Double => bytes
                .try_into()
                .ok()
                .map(|b| format!("{:?}", f64::from_be_bytes(b))),
            Class::Float => bytes
                .try_into()
                .ok()
                .map(|b| format!("{:?}", f32::from_be_bytes(b))),
        };
        match text {
            Some(text) => out.write_all(text.as_bytes()),
            // not such a number: its bytes
            None => out.write_all(bytes),
        }
    }
}

impl Formatter {
    pub(super) fn new(class: Option<&str>, p: &Properties) -> Result<Self, Failure> {
        let Some(class) = class else {
            return Ok(Formatter::Default(Box::new(Columns::new(p)?)));
        };
        match class.rsplit(['.', '$']).next().unwrap_or_default() {
            "DefaultMessageFormatter" => Ok(Formatter::Default(Box::new(Columns::new(p)?))),
            "NoOpMessageFormatter" => Ok(Formatter::Nothing),
            "LoggingMessageFormatter" => Ok(Formatter::Logging),
            "OffsetsMessageFormatter" => Ok(Formatter::Offsets),
            "GroupMetadataMessageFormatter" => Ok(Formatter::Groups),
            "TransactionLogMessageFormatter" => Ok(Formatter::Transactions),
            _ => Err(Failure::usage(format!(
                "The formatter {class} is not known here"
            ))),
        }
    }

    pub(super) fn write(&self, r: &ConsumedRecord, out: &mut impl Write) -> std::io::Result<()> {
        match self {
            Formatter::Nothing => Ok(()),
            Formatter::Default(columns) => columns.write(r, out),
            Formatter::Logging => {
                let kind = r.timestamp_type.map_or("NoTimestampType", type_name);
                let text = |f: &Option<bytes::Bytes>| {
                    f.as_ref().map_or("null".to_owned(), |b| {
                        String::from_utf8_lossy(b).into_owned()
                    })
                };
                eprintln!(
                    "{kind}:{}, key:{}, value:{}",
                    r.timestamp,
                    text(&r.key),
                    text(&r.value)
                );
                Ok(())
            }
            Formatter::Offsets => internal(r, out, |kind| kind == "0" || kind == "1"),
            Formatter::Groups => internal(r, out, |kind| kind == "2"),
            Formatter::Transactions => {
                if let (Some(key), Some(value)) =
                    transaction_record(r.offset, r.key.as_deref(), r.value.as_deref())
                {
                    writeln!(out, "{key}::{value}")?;
                }
                Ok(())
            }
        }
    }
}

/// A record of `__consumer_offsets` as JSON, if it is of the kind that is wanted.
fn internal(
    r: &ConsumedRecord,
    out: &mut impl Write,
    wanted: impl Fn(&str) -> bool,
) -> std::io::Result<()> {
    let Ok(Some((mut key, value))) = try_offsets_record(r.key.as_deref(), r.value.as_deref())
    else {
        return Ok(());
    };
    let kind = key
        .get("type")
        .and_then(|t| t.as_str())
        .unwrap_or_default()
        .to_owned();
    if !wanted(&kind) {
        return Ok(());
    }
    // this formatter calls the key's kind its version
    if let Some(map) = key.as_object_mut()
        && let Some(data) = map.remove("data")
    {
        map.remove("type");
        map.insert("version".into(), kind.into());
        map.insert("data".into(), data);
    }
    let line = serde_json::json!({"key": key, "value": value});
    writeln!(out, "{line}")
}

fn type_name(kind: TimestampType) -> &'static str {
    match kind {
        TimestampType::CreateTime => "CreateTime",
        TimestampType::LogAppendTime => "LogAppendTime",
    }
}

impl Columns {
    fn new(p: &Properties) -> Result<Self, Failure> {
        let flag = |key, default| is_true(p, key).unwrap_or(default);
        let text = |key: &str, default: &str| p.get(key).cloned().unwrap_or_else(|| default.into());
        let class = |key: &str| p.get(key).map(|name| Class::parse(name)).transpose();
        Ok(Columns {
            timestamp: flag("print.timestamp", false),
            partition: flag("print.partition", false),
            offset: flag("print.offset", false),
            headers: flag("print.headers", false),
            key: flag("print.key", false),
            value: flag("print.value", true),
            key_separator: text("key.separator", "\t"),
            line_separator: text("line.separator", "\n"),
            headers_separator: text("headers.separator", ","),
            null: text("null.literal", "null"),
            key_class: class("key.deserializer")?,
            value_class: class("value.deserializer")?,
            headers_class: class("headers.deserializer")?,
        })
    }

    fn field(
        &self,
        field: Option<&[u8]>,
        class: Option<Class>,
        out: &mut impl Write,
    ) -> std::io::Result<()> {
        match (field, class) {
            (None, _) => out.write_all(self.null.as_bytes()),
            (Some(bytes), None) => out.write_all(bytes),
            (Some(bytes), Some(class)) => class.write(bytes, out),
        }
    }

    fn write(&self, r: &ConsumedRecord, out: &mut impl Write) -> std::io::Result<()> {
        // a separator stands behind each column, the line's own behind the last
        let columns = [
            self.timestamp,
            self.partition,
            self.offset,
            self.headers,
            self.key,
            self.value,
        ];
        for (i, _) in columns.iter().enumerate().filter(|(_, on)| **on) {
            match i {
                0 => match r.timestamp_type {
                    Some(kind) => write!(out, "{}:{}", type_name(kind), r.timestamp)?,
                    None => write!(out, "NO_TIMESTAMP")?,
                },
                1 => write!(out, "Partition:{}", r.partition)?,
                2 => write!(out, "Offset:{}", r.offset)?,
                3 if r.headers.is_empty() => write!(out, "NO_HEADERS")?,
                3 => {
                    for (n, (name, value)) in r.headers.iter().enumerate() {
                        if n > 0 {
                            out.write_all(self.headers_separator.as_bytes())?;
                        }
                        write!(out, "{name}:")?;
                        self.field(value.as_deref(), self.headers_class, out)?;
                    }
                }
                4 => self.field(r.key.as_deref(), self.key_class, out)?,
                _ => self.field(r.value.as_deref(), self.value_class, out)?,
            }
            let more = columns.iter().skip(i + 1).any(|on| *on);
            let separator = if more {
                &self.key_separator
            } else {
                &self.line_separator
            };
            out.write_all(separator.as_bytes())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(properties: &[&str]) -> String {
        let pairs: Vec<_> = properties.iter().map(|p| (*p).to_owned()).collect();
        let p = crate::tools::arguments::properties(None, &pairs).unwrap();
        let r = ConsumedRecord {
            topic: "t".into(),
            partition: 3,
            offset: 42,
            timestamp: 7,
            timestamp_type: Some(TimestampType::CreateTime),
            leader_epoch: 0,
            key: None,
            value: Some(5i64.to_be_bytes().to_vec().into()),
            headers: vec![("a".into(), Some("1".into())), ("b".into(), None)],
        };
        let mut out = Vec::new();
        Formatter::new(None, &p)
            .unwrap()
            .write(&r, &mut out)
            .unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn columns_as_javas_console_consumer_prints_them() {
        let all = [
            "print.timestamp=true",
            "print.partition=true",
            "print.offset=true",
            "print.headers=true",
            "print.key=true",
            "value.deserializer=org.apache.kafka.common.serialization.LongDeserializer",
        ];
        assert_eq!(
            printed(&all),
            "CreateTime:7\tPartition:3\tOffset:42\ta:1,b:null\tnull\t5\n"
        );
        assert_eq!(
            printed(&[
                "print.value=false",
                "print.key=true",
                "null.literal=-",
                "line.separator=|"
            ]),
            "-|"
        );
    }
}
