//! The message table: `kafka-messages.txt` parsed into plain values. Uses only std, since the codec's tests read it too.
#![allow(dead_code, reason = "the generator and the tests each use a part")]

use std::fmt;

/// An inclusive range of message versions; `max == i16::MAX` is open ended ("3+").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions {
    pub min: i16,
    pub max: i16,
}

impl Versions {
    pub fn contains(self, version: i16) -> bool {
        (self.min..=self.max).contains(&version)
    }

    /// The versions in both ranges; `None` when there are none.
    pub fn intersect(self, other: Self) -> Option<Self> {
        let both = Self {
            min: self.min.max(other.min),
            max: self.max.min(other.max),
        };
        (both.min <= both.max).then_some(both)
    }

    /// The smallest range that has both.
    pub fn hull(self, other: Self) -> Self {
        Self {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Type {
    Bool,
    Int8,
    Int16,
    Uint16,
    Int32,
    Uint32,
    Int64,
    Float64,
    String,
    Bytes,
    Records,
    Uuid,
    Array(Box<Type>),
    Struct(String),
}

#[derive(Debug, Clone)]
pub struct Field {
    /// Kafka's name, as in the table.
    pub name: String,
    pub ty: Type,
    pub versions: Versions,
    pub nullable: Option<Versions>,
    pub tag: Option<u32>,
    /// As written, without quotes; `Some("null")` is null.
    pub default: Option<String>,
    pub ignorable: bool,
    /// Keeps the encoding of before flexible versions (RequestHeader.ClientId).
    pub never_compact: bool,
}

#[derive(Debug, Clone)]
pub struct Struct {
    pub name: String,
    pub fields: Vec<Field>,
    /// Versions in which the structure can be on the wire.
    pub versions: Versions,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Request,
    Response,
    Header,
    Data,
}

#[derive(Debug, Clone)]
pub struct Message {
    pub name: String,
    pub kind: Kind,
    pub api_key: Option<i16>,
    pub versions: Versions,
    /// First version with compact lengths and tagged fields.
    pub flexible: Option<i16>,
    pub latest_unstable: bool,
    pub listeners: Vec<String>,
    /// The message itself first, then the structures in it.
    pub structs: Vec<Struct>,
}

impl Message {
    pub fn top(&self) -> &Struct {
        &self.structs[0]
    }

    pub fn find(&self, name: &str) -> Option<&Struct> {
        self.structs.iter().find(|s| s.name == name)
    }

    pub fn is_flexible(&self, version: i16) -> bool {
        self.flexible.is_some_and(|first| version >= first)
    }
}

#[derive(Debug)]
pub struct SchemaError {
    line: usize,
    problem: String,
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kafka-messages.txt line {}: {}", self.line, self.problem)
    }
}

impl std::error::Error for SchemaError {}

/// All messages of the table, in its order.
pub fn parse(text: &str) -> Result<Vec<Message>, SchemaError> {
    let lines: Vec<Line<'_>> = text
        .lines()
        .enumerate()
        .filter(|(_, line)| {
            !line.trim().is_empty() && (!line.starts_with('#') || line.starts_with("## "))
        })
        .map(|(index, line)| Line {
            number: index + 1,
            indent: line.len() - line.trim_start().len(),
            text: line.trim(),
        })
        .collect();
    let mut messages = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let mut message = lines[at].message()?;
        at += 1;
        let mut structs = vec![Struct {
            name: message.name.clone(),
            fields: Vec::new(),
            versions: message.versions,
        }];
        while at < lines.len() && lines[at].indent > 0 {
            if let Some(rest) = lines[at].text.strip_prefix("struct ") {
                let name = rest.split(':').next().unwrap_or_default().to_owned();
                let indent = lines[at].indent;
                at += 1;
                let fields = fields(&lines, &mut at, indent + 2, &mut structs)?;
                structs.push(Struct {
                    name,
                    fields,
                    versions: message.versions,
                });
            } else {
                let indent = lines[at].indent;
                let fields = fields(&lines, &mut at, indent, &mut structs)?;
                structs[0].fields.extend(fields);
            }
        }
        message.structs = structs;
        narrow_versions(&mut message);
        messages.push(message);
    }
    Ok(messages)
}

struct Line<'a> {
    number: usize,
    indent: usize,
    text: &'a str,
}

impl Line<'_> {
    fn error<T>(&self, problem: impl Into<String>) -> Result<T, SchemaError> {
        Err(SchemaError {
            line: self.number,
            problem: problem.into(),
        })
    }

    fn versions(&self, text: &str) -> Result<Versions, SchemaError> {
        let parsed = if let Some(min) = text.strip_suffix('+') {
            min.parse().ok().map(|min| Versions { min, max: i16::MAX })
        } else if let Some((min, max)) = text.split_once('-') {
            min.parse()
                .ok()
                .zip(max.parse().ok())
                .map(|(min, max)| Versions { min, max })
        } else {
            text.parse().ok().map(|only| Versions {
                min: only,
                max: only,
            })
        };
        parsed.map_or_else(
            || self.error(format!("not a range of versions: {text}")),
            Ok,
        )
    }

    fn message(&self) -> Result<Message, SchemaError> {
        let Some(text) = self.text.strip_prefix("## ") else {
            return self.error("expected a message's `## ` line");
        };
        let mut parts = text.split(", ");
        let name = parts.next().unwrap_or_default().to_owned();
        let kind = match parts.next() {
            Some("request") => Kind::Request,
            Some("response") => Kind::Response,
            Some("header") => Kind::Header,
            Some("data") => Kind::Data,
            other => return self.error(format!("unknown kind {other:?}")),
        };
        let mut message = Message {
            name,
            kind,
            api_key: None,
            versions: Versions { min: 0, max: 0 },
            flexible: None,
            latest_unstable: false,
            listeners: Vec::new(),
            structs: Vec::new(),
        };
        for part in parts {
            match part.split_once(' ') {
                Some(("key", key)) => {
                    message.api_key = Some(
                        key.parse()
                            .or_else(|_| self.error(format!("not an API key: {key}")))?,
                    );
                }
                Some(("versions", range)) => message.versions = self.versions(range)?,
                Some(("flexible", "none")) => {}
                Some(("flexible", range)) => message.flexible = Some(self.versions(range)?.min),
                Some(("latest", "unstable")) => message.latest_unstable = true,
                Some(("listeners", list)) => {
                    message.listeners = list.split('/').map(str::to_owned).collect()
                }
                Some(("deprecated", _)) => {}
                _ => return self.error(format!("unknown property {part}")),
            }
        }
        Ok(message)
    }

    fn field(&self) -> Result<Field, SchemaError> {
        let Some((name, rest)) = self.text.split_once(": ") else {
            return self.error("expected `Name: type, versions`");
        };
        let mut parts = rest.split(", ");
        let ty = parse_type(parts.next().unwrap_or_default());
        let versions = self.versions(parts.next().unwrap_or_default())?;
        let mut field = Field {
            name: name.to_owned(),
            ty,
            versions,
            nullable: None,
            tag: None,
            default: None,
            ignorable: false,
            never_compact: false,
        };
        for part in parts {
            match part.split_once(' ') {
                None if part == "ignorable" => field.ignorable = true,
                None if part == "key" => {}
                Some(("is", _)) => {}
                Some(("nullable", range)) => field.nullable = Some(self.versions(range)?),
                Some(("default", value)) => {
                    field.default = Some(value.trim_matches('"').to_owned())
                }
                Some(("flexible", "none")) => field.never_compact = true,
                Some(("tag", rest)) => {
                    let Some((tag, range)) = rest.split_once(" in ") else {
                        return self.error(format!("unknown tag {rest}"));
                    };
                    if self.versions(range)? != versions {
                        return self.error(
                            "a field that is tagged in some of its versions only is not supported",
                        );
                    }
                    field.tag = Some(
                        tag.parse()
                            .or_else(|_| self.error(format!("not a tag: {tag}")))?,
                    );
                }
                _ => return self.error(format!("unknown property {part}")),
            }
        }
        Ok(field)
    }
}

fn parse_type(text: &str) -> Type {
    match text {
        "bool" => Type::Bool,
        "int8" => Type::Int8,
        "int16" => Type::Int16,
        "uint16" => Type::Uint16,
        "int32" => Type::Int32,
        "uint32" => Type::Uint32,
        "int64" => Type::Int64,
        "float64" => Type::Float64,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "records" => Type::Records,
        "uuid" => Type::Uuid,
        _ => match text.strip_prefix("[]") {
            Some(element) => Type::Array(Box::new(parse_type(element))),
            None => Type::Struct(text.to_owned()),
        },
    }
}

/// The fields at one depth; structures opened by deeper lines are added to `structs`, outer before inner.
fn fields(
    lines: &[Line<'_>],
    at: &mut usize,
    indent: usize,
    structs: &mut Vec<Struct>,
) -> Result<Vec<Field>, SchemaError> {
    let mut found = Vec::new();
    while let Some(line) = lines
        .get(*at)
        .filter(|line| line.indent == indent && !line.text.starts_with("struct "))
    {
        let field = line.field()?;
        *at += 1;
        if lines.get(*at).is_some_and(|next| next.indent > indent) {
            let name = match &field.ty {
                Type::Struct(name) => name.clone(),
                Type::Array(element) => match element.as_ref() {
                    Type::Struct(name) => name.clone(),
                    other => return line.error(format!("{other:?} cannot have fields")),
                },
                other => return line.error(format!("{other:?} cannot have fields")),
            };
            let place = structs.len();
            structs.push(Struct {
                name,
                fields: Vec::new(),
                versions: field.versions,
            });
            let inner = fields(lines, at, indent + 2, structs)?;
            structs[place].fields = inner;
        }
        found.push(field);
    }
    Ok(found)
}

/// Sets each structure's versions to those in which some field on the wire has it.
fn narrow_versions(message: &mut Message) {
    let mut known: Vec<Option<Versions>> = vec![None; message.structs.len()];
    known[0] = Some(message.versions);
    loop {
        let mut changed = false;
        for outer in 0..message.structs.len() {
            let Some(outer_versions) = known[outer] else {
                continue;
            };
            for field in &message.structs[outer].fields {
                let name = match &field.ty {
                    Type::Struct(name) => name,
                    Type::Array(element) => match element.as_ref() {
                        Type::Struct(name) => name,
                        _ => continue,
                    },
                    _ => continue,
                };
                let Some(on_wire) = field.versions.intersect(outer_versions) else {
                    continue;
                };
                let Some(inner) = message.structs.iter().position(|s| s.name == *name) else {
                    continue;
                };
                let next = known[inner].map_or(on_wire, |have| have.hull(on_wire));
                if known[inner] != Some(next) {
                    known[inner] = Some(next);
                    changed = true;
                }
            }
        }
        if !changed {
            break;
        }
    }
    for (shape, versions) in message.structs.iter_mut().zip(known) {
        if let Some(versions) = versions {
            shape.versions = versions;
        }
    }
}
