//! A structure's declaration: field types, defaults, the facts in its docs.

use super::{Context, has_tags};
use crate::codegen::names::snake_case;
use crate::codegen::schema::{Field, Type, Versions};
use std::fmt::Write as _;

pub(super) fn declaration(out: &mut String, context: &Context<'_>) {
    let derive = if defaults_are_natural(context) {
        ", Default"
    } else {
        ""
    };
    let _ = writeln!(
        out,
        "#[derive(Debug, Clone, PartialEq{derive})]\npub struct {} {{",
        context.shape.name
    );
    for field in &context.shape.fields {
        let _ = writeln!(out, "/// {}.", field_facts(field));
        let _ = writeln!(
            out,
            "pub {}: {},",
            snake_case(&field.name),
            rust_type(field)
        );
    }
    if has_tags(context) {
        out.push_str(
            "/// Tagged fields that this version of the schema does not know, kept as they came.\n",
        );
        out.push_str("pub unknown_tagged_fields: Vec<RawTaggedField>,\n");
    }
    out.push_str("}\n");
}

fn range(versions: Versions) -> String {
    match versions {
        Versions { min, max: i16::MAX } => format!("{min}+"),
        Versions { min, max } if min == max => format!("{min}"),
        Versions { min, max } => format!("{min}-{max}"),
    }
}

fn field_facts(field: &Field) -> String {
    let mut facts = format!("Versions {}", range(field.versions));
    if let Some(nullable) = field.nullable {
        let _ = write!(facts, ", nullable in {}", range(nullable));
    }
    if let Some(tag) = field.tag {
        let _ = write!(facts, ", tag {tag}");
    }
    if let Some(default) = &field.default {
        let _ = write!(
            facts,
            ", default {}",
            if default.is_empty() { "\"\"" } else { default }
        );
    }
    if field.ignorable {
        facts.push_str(", ignorable");
    }
    facts
}

pub(super) fn rust_type(field: &Field) -> String {
    let plain = plain_type(&field.ty);
    if field.nullable.is_some() || field.ty == Type::Records {
        format!("Option<{plain}>")
    } else {
        plain
    }
}

pub(super) fn plain_type(ty: &Type) -> String {
    match ty {
        Type::Bool => "bool".into(),
        Type::Int8 => "i8".into(),
        Type::Int16 => "i16".into(),
        Type::Uint16 => "u16".into(),
        Type::Int32 => "i32".into(),
        Type::Uint32 => "u32".into(),
        Type::Int64 => "i64".into(),
        Type::Float64 => "f64".into(),
        Type::String => "String".into(),
        Type::Bytes => "Bytes".into(),
        Type::Records => "Records".into(),
        Type::Uuid => "Uuid".into(),
        Type::Array(element) => format!("Vec<{}>", plain_type(element)),
        Type::Struct(name) => name.clone(),
    }
}

pub(super) fn is_null_by_default(field: &Field) -> bool {
    field.default.as_deref() == Some("null") || field.ty == Type::Records
}

/// The default as an expression; `None` when it is Rust's own default of the field's type.
pub(super) fn default_value(field: &Field) -> Option<String> {
    if field.nullable.is_some() || field.ty == Type::Records {
        if is_null_by_default(field) {
            return None;
        }
        return Some(match &field.ty {
            Type::String => format!(
                "Some({})",
                string_literal(field.default.as_deref().unwrap_or_default())
            ),
            Type::Struct(name) => format!("Some({name}::default())"),
            Type::Array(_) => "Some(Vec::new())".into(),
            Type::Bytes => "Some(Bytes::new())".into(),
            other => unreachable!("{other:?} cannot be nullable"),
        });
    }
    let default = field.default.as_deref()?;
    match &field.ty {
        Type::Bool => (default == "true").then(|| "true".into()),
        Type::String => (!default.is_empty()).then(|| string_literal(default)),
        Type::Float64 => Some(format!("{default}f64")),
        _ => (default != "0").then(|| default.to_ascii_lowercase()),
    }
}

fn string_literal(text: &str) -> String {
    if text.is_empty() {
        "String::new()".into()
    } else {
        format!("{text:?}.to_owned()")
    }
}

fn natural_default(field: &Field) -> String {
    if field.nullable.is_some() || field.ty == Type::Records {
        return "None".into();
    }
    match &field.ty {
        Type::Bool => "false".into(),
        Type::String => "String::new()".into(),
        Type::Bytes => "Bytes::new()".into(),
        Type::Uuid => "Uuid::ZERO".into(),
        Type::Float64 => "0.0".into(),
        Type::Array(_) => "Vec::new()".into(),
        Type::Struct(name) => format!("{name}::default()"),
        _ => "0".into(),
    }
}

pub(super) fn default_expression(field: &Field) -> String {
    default_value(field).unwrap_or_else(|| natural_default(field))
}

fn defaults_are_natural(context: &Context<'_>) -> bool {
    context
        .shape
        .fields
        .iter()
        .all(|field| default_value(field).is_none())
}

pub(super) fn default_impl(out: &mut String, context: &Context<'_>) {
    if defaults_are_natural(context) {
        return;
    }
    let _ = writeln!(
        out,
        "\nimpl Default for {} {{\nfn default() -> Self {{\nSelf {{",
        context.shape.name
    );
    for field in &context.shape.fields {
        let _ = writeln!(
            out,
            "{}: {},",
            snake_case(&field.name),
            default_expression(field)
        );
    }
    if has_tags(context) {
        out.push_str("unknown_tagged_fields: Vec::new(),\n");
    }
    out.push_str("}\n}\n}\n");
}
