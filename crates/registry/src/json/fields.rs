//! Lenient access to the keys of one JSON object.

use super::{TopicPartition, ZnodeError};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

type Key = &'static str;

pub(super) struct Fields<'a>(Source<'a>);

enum Source<'a> {
    Owned(Map<String, Value>),
    Borrowed(&'a Map<String, Value>),
}

fn wrong(key: Key, expected: &'static str) -> ZnodeError {
    ZnodeError::WrongType { key, expected }
}

/// A number, or a number in a string: both are found in the field, and neither can mean something else.
fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

fn int(value: &Value) -> Option<i32> {
    integer(value).and_then(|n| i32::try_from(n).ok())
}

impl Fields<'static> {
    pub(super) fn parse(data: &[u8]) -> Result<Self, ZnodeError> {
        if data.iter().all(u8::is_ascii_whitespace) {
            return Err(ZnodeError::Empty);
        }
        match serde_json::from_slice(data) {
            Ok(Value::Object(map)) => Ok(Fields(Source::Owned(map))),
            Ok(_) => Err(ZnodeError::NotAnObject),
            Err(error) => Err(ZnodeError::NotJson(error.to_string())),
        }
    }
}

impl<'a> Fields<'a> {
    pub(super) fn of(value: &'a Value) -> Result<Self, ZnodeError> {
        value
            .as_object()
            .map(|map| Fields(Source::Borrowed(map)))
            .ok_or(ZnodeError::NotAnObject)
    }

    /// A key whose value is null counts as absent.
    pub(super) fn get(&self, key: Key) -> Option<&Value> {
        let map = match &self.0 {
            Source::Owned(map) => map,
            Source::Borrowed(map) => map,
        };
        map.get(key).filter(|value| !value.is_null())
    }

    fn need(&self, key: Key) -> Result<&Value, ZnodeError> {
        self.get(key).ok_or(ZnodeError::Missing(key))
    }

    pub(super) fn int(&self, key: Key) -> Result<i32, ZnodeError> {
        int(self.need(key)?).ok_or(wrong(key, "a 32-bit integer"))
    }

    pub(super) fn int_or(&self, key: Key, default: i32) -> Result<i32, ZnodeError> {
        self.get(key).map_or(Ok(default), |value| {
            int(value).ok_or(wrong(key, "a 32-bit integer"))
        })
    }

    pub(super) fn long(&self, key: Key) -> Result<i64, ZnodeError> {
        integer(self.need(key)?).ok_or(wrong(key, "a 64-bit integer"))
    }

    pub(super) fn long_or(&self, key: Key, default: i64) -> Result<i64, ZnodeError> {
        self.get(key).map_or(Ok(default), |value| {
            integer(value).ok_or(wrong(key, "a 64-bit integer"))
        })
    }

    pub(super) fn text(&self, key: Key) -> Result<String, ZnodeError> {
        self.text_opt(key)?.ok_or(ZnodeError::Missing(key))
    }

    pub(super) fn text_opt(&self, key: Key) -> Result<Option<String>, ZnodeError> {
        self.get(key)
            .map(|value| {
                value
                    .as_str()
                    .map(str::to_owned)
                    .ok_or(wrong(key, "a string"))
            })
            .transpose()
    }

    pub(super) fn list(&self, key: Key) -> Result<&Vec<Value>, ZnodeError> {
        self.need(key)?.as_array().ok_or(wrong(key, "an array"))
    }

    pub(super) fn texts(&self, key: Key) -> Result<Vec<String>, ZnodeError> {
        self.list(key)?
            .iter()
            .map(|value| {
                value
                    .as_str()
                    .map(str::to_owned)
                    .ok_or(wrong(key, "an array of strings"))
            })
            .collect()
    }

    pub(super) fn ints(&self, key: Key) -> Result<Vec<i32>, ZnodeError> {
        ints(self.need(key)?, key)
    }

    pub(super) fn map_opt(&self, key: Key) -> Result<Option<&Map<String, Value>>, ZnodeError> {
        self.get(key)
            .map(|value| value.as_object().ok_or(wrong(key, "an object")))
            .transpose()
    }

    /// `{"0":[1,2],...}`; absent is empty.
    pub(super) fn replicas(&self, key: Key) -> Result<BTreeMap<i32, Vec<i32>>, ZnodeError> {
        let Some(map) = self.map_opt(key)? else {
            return Ok(BTreeMap::new());
        };
        map.iter()
            .map(|(partition, brokers)| {
                let partition = partition
                    .parse()
                    .map_err(|_| wrong(key, "an object with partition numbers as keys"))?;
                Ok((partition, ints(brokers, key)?))
            })
            .collect()
    }

    /// `[{"topic":"t","partition":0},...]`.
    pub(super) fn partitions(&self, key: Key) -> Result<Vec<TopicPartition>, ZnodeError> {
        self.list(key)?
            .iter()
            .map(|value| {
                let entry = Fields::of(value)?;
                Ok(TopicPartition {
                    topic: entry.text("topic")?,
                    partition: entry.int("partition")?,
                })
            })
            .collect()
    }
}

fn ints(value: &Value, key: Key) -> Result<Vec<i32>, ZnodeError> {
    let list = value.as_array().ok_or(wrong(key, "an array of integers"))?;
    list.iter()
        .map(|value| int(value).ok_or(wrong(key, "an array of integers")))
        .collect()
}
