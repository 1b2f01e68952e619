//! Values of any message, made and encoded by interpreting the schema: knows nothing of the generated code.

use crate::schema::{Field, Message, Struct, Type};

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    Blob(Vec<u8>),
    Id([u8; 16]),
    List(Vec<Value>),
    /// In the order of the schema's fields, then the tagged fields that it does not know.
    Struct(Vec<Value>, Vec<(u32, Vec<u8>)>),
}

/// The version cannot carry the value.
#[derive(Debug)]
pub struct Unencodable;

/// splitmix64: the same values in every run.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn blob(&mut self, longest: u64) -> Vec<u8> {
        (0..self.below(longest + 1))
            .map(|_| self.next() as u8)
            .collect()
    }
}

/// All fields of the version set at random.
pub fn random(message: &Message, version: i16, random: &mut Random) -> Value {
    Maker {
        message,
        version,
        random,
        sparse: false,
    }
    .structure(message.top(), 0)
}

/// Most fields left at their defaults.
pub fn sparse(message: &Message, version: i16, random: &mut Random) -> Value {
    Maker {
        message,
        version,
        random,
        sparse: true,
    }
    .structure(message.top(), 0)
}

pub fn default(message: &Message) -> Value {
    default_struct(message, message.top())
}

struct Maker<'a> {
    message: &'a Message,
    version: i16,
    random: &'a mut Random,
    sparse: bool,
}

impl Maker<'_> {
    fn structure(&mut self, shape: &Struct, depth: u32) -> Value {
        let fields = shape
            .fields
            .iter()
            .map(|field| self.field(field, depth))
            .collect();
        let mut unknown = Vec::new();
        if self.message.is_flexible(self.version) && !self.sparse && self.random.one_in(5) {
            unknown.push((100 + self.random.below(1_000) as u32, self.random.blob(20)));
            if self.random.one_in(2) {
                unknown.push((2_000, self.random.blob(700)));
            }
        }
        Value::Struct(fields, unknown)
    }

    fn field(&mut self, field: &Field, depth: u32) -> Value {
        let absent = !field.versions.contains(self.version);
        let left_out = field.tag.is_some() && self.random.one_in(2);
        if absent || left_out || (self.sparse && !self.random.one_in(4)) {
            let default = default_value(self.message, field);
            let nullable = field
                .nullable
                .is_some_and(|versions| versions.contains(self.version));
            return if default == Value::Null && !absent && !nullable {
                // A field that is null by default in a version that has it, but not null in it.
                self.value(&field.ty, depth)
            } else {
                default
            };
        }
        if field
            .nullable
            .is_some_and(|versions| versions.contains(self.version))
            && self.random.one_in(4)
        {
            return Value::Null;
        }
        self.value(&field.ty, depth)
    }

    fn value(&mut self, ty: &Type, depth: u32) -> Value {
        let random = &mut *self.random;
        match ty {
            Type::Bool => Value::Bool(random.one_in(2)),
            Type::Int8 => Value::Int(i64::from(random.next() as i8)),
            Type::Int16 => Value::Int(i64::from(random.next() as i16)),
            Type::Uint16 => Value::Int(i64::from(random.next() as u16)),
            Type::Int32 if random.one_in(3) => Value::Int(random.below(5) as i64 - 2),
            Type::Int32 => Value::Int(i64::from(random.next() as i32)),
            Type::Uint32 => Value::Int(i64::from(random.next() as u32)),
            Type::Int64 => Value::Int(random.next() as i64),
            Type::Float64 => Value::Float(random.next() as i32 as f64 / 64.0),
            Type::String => {
                let pool = ["a", "topic", "Straße", "x-y_z.0", "日本", "\u{0}"];
                let mut text = String::new();
                // Now and then over 127 bytes: a compact length of two bytes.
                let pieces = if random.one_in(10) {
                    60
                } else {
                    random.below(4)
                };
                for _ in 0..pieces {
                    text.push_str(pool[random.below(6) as usize]);
                }
                Value::Text(text)
            }
            Type::Bytes | Type::Records => {
                let longest = if random.one_in(6) { 1_500 } else { 40 };
                Value::Blob(random.blob(longest))
            }
            Type::Uuid => {
                let mut id = [0; 16];
                id[..8].copy_from_slice(&random.next().to_be_bytes());
                id[8..].copy_from_slice(&random.next().to_be_bytes());
                Value::Id(id)
            }
            Type::Array(element) => {
                let length = random.below(if depth > 2 { 2 } else { 4 });
                Value::List((0..length).map(|_| self.value(element, depth)).collect())
            }
            Type::Struct(name) => self.structure(self.message.find(name).unwrap(), depth + 1),
        }
    }
}

fn default_struct(message: &Message, shape: &Struct) -> Value {
    Value::Struct(
        shape
            .fields
            .iter()
            .map(|field| default_value(message, field))
            .collect(),
        Vec::new(),
    )
}

fn default_value(message: &Message, field: &Field) -> Value {
    let default = field.default.as_deref();
    if default == Some("null") || field.ty == Type::Records {
        return Value::Null;
    }
    match &field.ty {
        Type::Bool => Value::Bool(default == Some("true")),
        Type::Float64 => Value::Float(default.map_or(0.0, |text| text.parse().unwrap())),
        Type::String => Value::Text(default.unwrap_or_default().to_owned()),
        Type::Bytes => Value::Blob(Vec::new()),
        Type::Uuid => Value::Id([0; 16]),
        Type::Array(_) => Value::List(Vec::new()),
        Type::Struct(name) => default_struct(message, message.find(name).unwrap()),
        _ => Value::Int(default.map_or(0, |text| match text.strip_prefix("0x") {
            Some(hex) => i64::from_str_radix(hex, 16).unwrap(),
            None => text.parse().unwrap(),
        })),
    }
}

pub fn encode(message: &Message, value: &Value, version: i16) -> Result<Vec<u8>, Unencodable> {
    let mut out = Vec::new();
    structure(message, message.top(), value, version, &mut out)?;
    Ok(out)
}

fn structure(
    message: &Message,
    shape: &Struct,
    value: &Value,
    version: i16,
    out: &mut Vec<u8>,
) -> Result<(), Unencodable> {
    let Value::Struct(values, unknown) = value else {
        panic!("{value:?} is no structure")
    };
    let flexible = message.is_flexible(version);
    let mut tagged = unknown.clone();
    for (field, value) in shape.fields.iter().zip(values) {
        if !field.versions.contains(version) {
            if !field.ignorable && *value != default_value(message, field) {
                return Err(Unencodable);
            }
        } else if let Some(tag) = field.tag {
            if *value != default_value(message, field) {
                let mut content = Vec::new();
                write_field(message, field, value, version, &mut content)?;
                tagged.push((tag, content));
            }
        } else {
            write_field(message, field, value, version, out)?;
        }
    }
    if flexible {
        tagged.sort();
        varint(tagged.len() as u32, out);
        for (tag, content) in tagged {
            varint(tag, out);
            varint(content.len() as u32, out);
            out.extend(content);
        }
    } else if !tagged.is_empty() {
        return Err(Unencodable);
    }
    Ok(())
}

fn write_field(
    message: &Message,
    field: &Field,
    value: &Value,
    version: i16,
    out: &mut Vec<u8>,
) -> Result<(), Unencodable> {
    let compact = message.is_flexible(version) && !field.never_compact;
    if *value == Value::Null {
        if !field
            .nullable
            .is_some_and(|versions| versions.contains(version))
        {
            return Err(Unencodable);
        }
        match &field.ty {
            Type::Struct(_) => out.push(0xff),
            _ if compact => out.push(0),
            Type::String => out.extend((-1i16).to_be_bytes()),
            _ => out.extend((-1i32).to_be_bytes()),
        }
        return Ok(());
    }
    if matches!(field.ty, Type::Struct(_))
        && field
            .nullable
            .is_some_and(|versions| versions.contains(version))
    {
        out.push(1);
    }
    write(message, &field.ty, value, version, compact, out)
}

fn write(
    message: &Message,
    ty: &Type,
    value: &Value,
    version: i16,
    compact: bool,
    out: &mut Vec<u8>,
) -> Result<(), Unencodable> {
    let length = |length: usize, out: &mut Vec<u8>| {
        if compact {
            varint(length as u32 + 1, out)
        } else {
            out.extend((length as i32).to_be_bytes())
        }
    };
    match (ty, value) {
        (Type::Bool, Value::Bool(value)) => out.push(u8::from(*value)),
        (Type::Int8, Value::Int(value)) => out.push(*value as u8),
        (Type::Int16 | Type::Uint16, Value::Int(value)) => {
            out.extend((*value as u16).to_be_bytes())
        }
        (Type::Int32 | Type::Uint32, Value::Int(value)) => {
            out.extend((*value as u32).to_be_bytes())
        }
        (Type::Int64, Value::Int(value)) => out.extend(value.to_be_bytes()),
        (Type::Float64, Value::Float(value)) => out.extend(value.to_be_bytes()),
        (Type::String, Value::Text(text)) => {
            if compact {
                length(text.len(), out);
            } else {
                out.extend((text.len() as i16).to_be_bytes());
            }
            out.extend(text.as_bytes());
        }
        (Type::Bytes | Type::Records, Value::Blob(bytes)) => {
            length(bytes.len(), out);
            out.extend(bytes);
        }
        (Type::Uuid, Value::Id(id)) => out.extend(id),
        (Type::Array(element), Value::List(values)) => {
            length(values.len(), out);
            for value in values {
                write(message, element, value, version, compact, out)?;
            }
        }
        (Type::Struct(name), value) => {
            structure(message, message.find(name).unwrap(), value, version, out)?
        }
        (ty, value) => panic!("{value:?} is no {ty:?}"),
    }
    Ok(())
}

fn varint(mut value: u32, out: &mut Vec<u8>) {
    while value > 0x7f {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
