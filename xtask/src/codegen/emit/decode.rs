//! A structure's decoder.

use super::shape::{default_expression, plain_type, rust_type};
use super::{
    Context, When, bind, field_flexible, flexible_local, has_tags, has_word, local, range_check,
    when,
};
use crate::codegen::names::snake_case;
use crate::codegen::schema::{Field, Message, Type, Versions};
use std::fmt::Write as _;

pub(super) fn decode(out: &mut String, context: &Context<'_>) {
    let mut body = String::new();
    for field in &context.shape.fields {
        let name = local(field);
        let mut default = default_expression(field);
        if field.tag.is_some() {
            let annotation = if default.contains("Vec::new()") || default == "None" {
                format!(": {}", rust_type(field))
            } else {
                String::new()
            };
            let _ = writeln!(body, "let mut {name}{annotation} = {default};");
            continue;
        }
        match when(field.versions, context.shape.versions) {
            When::Always => {
                let _ = writeln!(body, "let {name} = {};", read(context, field, "r"));
            }
            When::Never => {
                if default == "0" {
                    default = format!("0{}", plain_type(&field.ty));
                }
                let _ = writeln!(body, "let {name} = {default};");
            }
            When::If(condition) => {
                let read = read(context, field, "r");
                let _ = writeln!(
                    body,
                    "let {name} = if {condition} {{ {read} }} else {{ {default} }};"
                );
            }
        }
    }
    if has_tags(context) {
        decode_tags(&mut body, context);
    }
    let uses_version = has_word(&body, "version") || context.flexible == "flexible";
    let top = context.shape.name == context.message.name;
    let _ = writeln!(
        out,
        "fn decode({}: &mut Reader, {}: i16) -> Result<Self, DecodeError> {{",
        bind(has_word(&body, "r"), "r"),
        bind(uses_version || top, "version"),
    );
    range_check(out, context);
    if has_word(&body, "flexible") {
        flexible_local(out, context);
    }
    out.push_str(&body);
    out.push_str("Ok(Self {");
    for field in &context.shape.fields {
        let (name, local) = (snake_case(&field.name), local(field));
        let _ = if name == local {
            write!(out, "{name}, ")
        } else {
            write!(out, "{name}: {local}, ")
        };
    }
    if has_tags(context) {
        out.push_str("unknown_tagged_fields,");
    }
    out.push_str("})\n}\n");
}

pub(super) fn tagged<'a>(context: &'a Context<'_>) -> Vec<&'a Field> {
    let mut fields: Vec<&Field> = context
        .shape
        .fields
        .iter()
        .filter(|field| field.tag.is_some())
        .collect();
    fields.sort_by_key(|field| field.tag);
    fields
}

fn decode_tags(body: &mut String, context: &Context<'_>) {
    let fields = tagged(context);
    if fields.is_empty() {
        let _ = match context.flexible {
            "true" => writeln!(
                body,
                "let unknown_tagged_fields = r.unknown_tagged_fields()?;"
            ),
            "false" => writeln!(body, "let unknown_tagged_fields = Vec::new();"),
            _ => writeln!(
                body,
                "let unknown_tagged_fields = if flexible {{ r.unknown_tagged_fields()? }} else {{ Vec::new() }};"
            ),
        };
        return;
    }
    let mut arms = String::new();
    for field in fields {
        let guard = match when(field.versions, context.shape.versions) {
            When::Always => String::new(),
            When::Never => continue,
            // A tag exists only in flexible versions; a guard that says the same is noise.
            When::If(_)
                if Some(field.versions.min) == context.message.flexible
                    && field.versions.max == i16::MAX =>
            {
                String::new()
            }
            When::If(condition) => format!(" if {condition}"),
        };
        let _ = writeln!(
            arms,
            "{}{guard} => {{ {} = {}; field.finish()?; }}",
            field.tag.unwrap_or_default(),
            local(field),
            read(context, field, "field"),
        );
    }
    let section = format!(
        "for _ in 0..r.tag_count()? {{
            let (tag, mut field) = r.tagged_field()?;
            match tag {{
                {arms}
                _ => unknown_tagged_fields.push(field.into_raw(tag)),
            }}
        }}"
    );
    let section = section.replace("(field,", "(&mut field,");
    body.push_str("let mut unknown_tagged_fields = Vec::new();\n");
    let _ = match context.flexible {
        "true" => writeln!(body, "{section}"),
        _ => writeln!(body, "if flexible {{ {section} }}"),
    };
}

/// The expression that reads a field present on the wire.
fn read(context: &Context<'_>, field: &Field, reader: &str) -> String {
    let Some(nullable) = field.nullable else {
        return read_plain(context, field, reader, false);
    };
    let present = field
        .versions
        .intersect(context.shape.versions)
        .unwrap_or(context.shape.versions);
    match when(nullable, present) {
        When::Always => read_plain(context, field, reader, true),
        When::Never => format!("Some({})", read_plain(context, field, reader, false)),
        When::If(condition) => format!(
            "if {condition} {{ {} }} else {{ Some({}) }}",
            read_plain(context, field, reader, true),
            read_plain(context, field, reader, false),
        ),
    }
}

fn read_plain(context: &Context<'_>, field: &Field, r: &str, nullable: bool) -> String {
    let flexible = field_flexible(context, field);
    let nullable_ = if nullable { "nullable_" } else { "" };
    match &field.ty {
        Type::String => format!("{r}.{nullable_}string({flexible})?"),
        Type::Bytes => format!("{r}.{nullable_}bytes({flexible})?"),
        Type::Records => {
            if field.nullable.is_some() && nullable {
                format!("{r}.nullable_records({flexible})?")
            } else {
                format!("Some({r}.records({flexible})?)")
            }
        }
        Type::Array(element) => {
            let least = least_size(context.message, element, context.shape.versions);
            let read = match element.as_ref() {
                Type::Struct(name) => format!("|r| {name}::decode(r, version)"),
                Type::String => format!("|r| r.string({flexible})"),
                Type::Bytes => format!("|r| r.bytes({flexible})"),
                other => format!("Reader::{}", primitive(other)),
            };
            format!("{r}.{nullable_}array({flexible}, {least}, {read})?")
        }
        Type::Struct(name) => {
            let reader = if r == "r" { "r" } else { "&mut field" };
            if nullable {
                format!(
                    "if {r}.is_null_struct()? {{ None }} else {{ Some({name}::decode({reader}, version)?) }}"
                )
            } else {
                format!("{name}::decode({reader}, version)?")
            }
        }
        other => format!("{r}.{}()?", primitive(other)),
    }
}

pub(super) fn primitive(ty: &Type) -> &'static str {
    match ty {
        Type::Bool => "bool",
        Type::Int8 => "i8",
        Type::Int16 => "i16",
        Type::Uint16 => "u16",
        Type::Int32 => "i32",
        Type::Uint32 => "u32",
        Type::Int64 => "i64",
        Type::Float64 => "f64",
        Type::Uuid => "uuid",
        other => unreachable!("{other:?} is not of a fixed size"),
    }
}

/// The fewest bytes that an element takes in any version: what bounds an array's length by the bytes that remain.
fn least_size(message: &Message, ty: &Type, versions: Versions) -> usize {
    match ty {
        Type::Bool | Type::Int8 => 1,
        Type::Int16 | Type::Uint16 => 2,
        Type::Int32 | Type::Uint32 => 4,
        Type::Int64 | Type::Float64 => 8,
        Type::Uuid => 16,
        Type::String | Type::Bytes | Type::Records | Type::Array(_) => 1,
        Type::Struct(name) => message.find(name).map_or(1, |shape| {
            let sum: usize = shape
                .fields
                .iter()
                .filter(|field| {
                    field.tag.is_none() && matches!(when(field.versions, versions), When::Always)
                })
                .map(|field| match field.ty {
                    Type::Struct(_) if field.nullable.is_some() => 1,
                    _ => least_size(message, &field.ty, versions),
                })
                .sum();
            sum.max(1)
        }),
    }
}
