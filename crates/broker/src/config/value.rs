//! Texts of `.properties` to values, with the error texts of Kafka's `ConfigDef`.

use super::error::ConfigError;

/// A type that a config text can be read as. `None` = the key is absent and has no default.
pub trait FromConfig: Sized {
    /// Reads the text.
    fn from_config(key: &str, text: Option<&str>) -> Result<Self, ConfigError>;
}

/// A comma separated list; blanks around elements go, an empty text is an empty list.
pub fn split_list(text: &str) -> Vec<String> {
    let text = text.trim();
    if text.is_empty() {
        Vec::new()
    } else {
        text.split(',').map(|s| s.trim().to_owned()).collect()
    }
}

fn required<'a>(key: &str, text: Option<&'a str>) -> Result<&'a str, ConfigError> {
    text.map(str::trim).ok_or_else(|| ConfigError::Missing {
        key: key.to_owned(),
    })
}

macro_rules! integers {
    ($($t:ty, $name:literal);*) => {$(
        impl FromConfig for $t {
            fn from_config(key: &str, text: Option<&str>) -> Result<Self, ConfigError> {
                let text = required(key, text)?;
                text.parse().map_err(|_| ConfigError::invalid(key, text, concat!("Not a number of type ", $name)))
            }
        }
    )*};
}
integers!(i16, "SHORT"; i32, "INT"; i64, "LONG"; f64, "DOUBLE");

impl FromConfig for bool {
    fn from_config(key: &str, text: Option<&str>) -> Result<Self, ConfigError> {
        let text = required(key, text)?;
        if text.eq_ignore_ascii_case("true") {
            Ok(true)
        } else if text.eq_ignore_ascii_case("false") {
            Ok(false)
        } else {
            Err(ConfigError::invalid(
                key,
                text,
                "Expected value to be either true or false",
            ))
        }
    }
}

impl FromConfig for String {
    fn from_config(key: &str, text: Option<&str>) -> Result<Self, ConfigError> {
        required(key, text).map(str::to_owned)
    }
}

impl FromConfig for Vec<String> {
    fn from_config(key: &str, text: Option<&str>) -> Result<Self, ConfigError> {
        required(key, text).map(split_list)
    }
}

impl<T: FromConfig> FromConfig for Option<T> {
    fn from_config(key: &str, text: Option<&str>) -> Result<Self, ConfigError> {
        match text {
            None => Ok(None),
            Some(_) => T::from_config(key, text).map(Some),
        }
    }
}
