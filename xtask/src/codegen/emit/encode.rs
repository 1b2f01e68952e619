//! A structure's encoder.

use super::decode::{primitive, tagged};
use super::shape::{default_expression, default_value, is_null_by_default};
use super::{
    Context, When, bind, field_flexible, flexible_local, has_tags, has_word, range_check, when,
};
use crate::codegen::names::snake_case;
use crate::codegen::schema::{Field, Type};
use std::fmt::Write as _;

pub(super) fn encode(out: &mut String, context: &Context<'_>) {
    let mut body = String::new();
    for field in &context.shape.fields {
        if field.tag.is_some() {
            continue;
        }
        let write = write(context, field, "w");
        guarded(&mut body, context, field, &write);
    }
    if has_tags(context) {
        encode_tags(&mut body, context);
    }
    let top = context.shape.name == context.message.name;
    let uses_version = has_word(&body, "version") || context.flexible == "flexible";
    let _ = writeln!(
        out,
        "\nfn encode(&self, {}: &mut Writer, {}: i16) -> Result<(), EncodeError> {{",
        bind(has_word(&body, "w"), "w"),
        bind(uses_version || top, "version"),
    );
    range_check(out, context);
    if has_word(&body, "flexible") {
        flexible_local(out, context);
    }
    out.push_str(&body);
    out.push_str("Ok(())\n}\n");
}

/// `write` where the version has the field; elsewhere an error when the value would be lost and matters.
fn guarded(body: &mut String, context: &Context<'_>, field: &Field, write: &str) {
    let refuse = format!(
        "{} {{ return Err(EncodeError::not_in_version({:?}, {:?}, version)); }}",
        format_args!("if {}", differs_from_default(field)),
        context.shape.name,
        field.name,
    );
    let _ = match when(field.versions, context.shape.versions) {
        When::Always => writeln!(body, "{write}"),
        When::Never if field.ignorable => Ok(()),
        When::Never => writeln!(body, "{refuse}"),
        When::If(condition) if field.ignorable => writeln!(body, "if {condition} {{ {write} }}"),
        When::If(condition) => writeln!(body, "if {condition} {{ {write} }} else {refuse}"),
    };
}

fn differs_from_default(field: &Field) -> String {
    let name = format!("self.{}", snake_case(&field.name));
    if field.nullable.is_some() || field.ty == Type::Records {
        if is_null_by_default(field) {
            return format!("{name}.is_some()");
        }
        return match &field.ty {
            Type::String => {
                format!(
                    "{name}.as_deref() != Some({:?})",
                    field.default.as_deref().unwrap_or_default()
                )
            }
            Type::Struct(inner) => format!("{name}.as_ref() != Some(&{inner}::default())"),
            _ => format!("{name}.as_ref().is_none_or(|value| !value.is_empty())"),
        };
    }
    match &field.ty {
        Type::Bool if default_value(field).is_some() => format!("!{name}"),
        Type::Bool => name,
        Type::String if default_value(field).is_none() => format!("!{name}.is_empty()"),
        Type::Bytes | Type::Array(_) => format!("!{name}.is_empty()"),
        _ => format!("{name} != {}", default_expression(field)),
    }
}

fn encode_tags(body: &mut String, context: &Context<'_>) {
    let fields = tagged(context);
    let mut section = String::new();
    if fields.is_empty() {
        section.push_str("w.tagged_fields(Vec::new(), &self.unknown_tagged_fields)?;\n");
    } else {
        section.push_str("let mut known = Vec::new();\n");
        for field in &fields {
            let write = write(context, field, "field");
            let add = format!(
                "let mut field = Writer::new(); {write} known.push(field.into_tagged({})?);",
                field.tag.unwrap_or_default()
            );
            let differs = differs_from_default(field);
            let _ = match when(field.versions, context.shape.versions) {
                When::Never => Ok(()),
                When::If(condition) if Some(field.versions.min) != context.message.flexible => {
                    writeln!(section, "if {condition} && {differs} {{ {add} }}")
                }
                _ => writeln!(section, "if {differs} {{ {add} }}"),
            };
        }
        section.push_str("w.tagged_fields(known, &self.unknown_tagged_fields)?;\n");
    }
    let mut otherwise = String::new();
    for field in &fields {
        if !field.ignorable {
            let _ = writeln!(
                otherwise,
                "if {} {{ return Err(EncodeError::not_in_version({:?}, {:?}, version)); }}",
                differs_from_default(field),
                context.shape.name,
                field.name,
            );
        }
    }
    let _ = writeln!(
        otherwise,
        "refuse_tags({:?}, &self.unknown_tagged_fields, version)?;",
        context.shape.name
    );
    let _ = match context.flexible {
        "true" => writeln!(body, "{section}"),
        "false" => writeln!(body, "{otherwise}"),
        _ => writeln!(body, "if flexible {{ {section} }} else {{ {otherwise} }}"),
    };
    // In flexible versions that lack a tagged field of a later version.
    for field in &fields {
        if let (false, Some(first)) = (field.ignorable, context.message.flexible)
            && field.versions.min > first.max(context.shape.versions.min)
        {
            let _ = writeln!(
                body,
                "if ({first}..{}).contains(&version) && {} {{ return Err(EncodeError::not_in_version({:?}, {:?}, version)); }}",
                field.versions.min,
                parenthesised(&differs_from_default(field)),
                context.shape.name,
                field.name,
            );
        }
    }
}

fn parenthesised(expression: &str) -> String {
    if expression.contains("||") {
        format!("({expression})")
    } else {
        expression.to_owned()
    }
}

/// The statement that writes a field that the version has.
fn write(context: &Context<'_>, field: &Field, w: &str) -> String {
    let value = format!("self.{}", snake_case(&field.name));
    let Some(nullable) = field.nullable else {
        return write_plain(context, field, w, &value);
    };
    let present = field
        .versions
        .intersect(context.shape.versions)
        .unwrap_or(context.shape.versions);
    let refuse = format!(
        "return Err(EncodeError::not_nullable({:?}, {:?}, version))",
        context.shape.name, field.name
    );
    let none = match when(nullable, present) {
        When::Always => write_null(context, field, w),
        When::Never => refuse,
        When::If(condition) => format!(
            "if {condition} {{ {} }} else {{ {refuse}; }}",
            write_null(context, field, w)
        ),
    };
    let some = if matches!(field.ty, Type::Struct(_)) {
        format!("{w}.i8(1); {}", write_plain(context, field, w, "value"))
    } else {
        write_plain(context, field, w, "value")
    };
    format!("match &{value} {{ Some(value) => {{ {some} }} None => {{ {none} }} }}")
}

fn write_null(context: &Context<'_>, field: &Field, w: &str) -> String {
    let flexible = field_flexible(context, field);
    match &field.ty {
        Type::String => format!("{w}.null_string({flexible});"),
        Type::Struct(_) => format!("{w}.i8(-1);"),
        // Bytes, records and arrays: -1 as an int32, or 0 as a varint.
        _ => format!("{w}.null_array({flexible});"),
    }
}

fn write_plain(context: &Context<'_>, field: &Field, w: &str, value: &str) -> String {
    let flexible = field_flexible(context, field);
    let borrowed = if value.starts_with("self.") {
        format!("&{value}")
    } else {
        value.to_owned()
    };
    let writer = if w == "w" { "w" } else { "&mut field" };
    match &field.ty {
        Type::String => format!("{w}.string({borrowed}, {flexible})?;"),
        Type::Bytes => format!("{w}.bytes({borrowed}, {flexible})?;"),
        Type::Records if field.nullable.is_some() => {
            format!("{w}.records({borrowed}, {flexible})?;")
        }
        Type::Records => format!(
            "match {borrowed} {{ Some(value) => {w}.records(value, {flexible})?, None => return Err(EncodeError::not_nullable({:?}, {:?}, version)) }}",
            context.shape.name, field.name
        ),
        Type::Array(element) => {
            let each = match element.as_ref() {
                Type::Struct(_) => format!("element.encode({writer}, version)?;"),
                Type::String => format!("{w}.string(element, {flexible})?;"),
                Type::Bytes => format!("{w}.bytes(element, {flexible})?;"),
                other => format!("{w}.{}(*element);", primitive(other)),
            };
            format!(
                "{w}.array_length({value}.len(), {flexible})?; for element in {borrowed} {{ {each} }}"
            )
        }
        Type::Struct(_) => format!("{value}.encode({writer}, version)?;"),
        other => {
            let value = if value.starts_with("self.") {
                value.to_owned()
            } else {
                format!("*{value}")
            };
            format!("{w}.{}({value});", primitive(other))
        }
    }
}
