//! Topic ids and the like: 16 bytes, shown as 22 letters.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::fmt;
use std::str::FromStr;

/// Kafka's `Uuid`. As text it is base64url without padding, 22 letters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Uuid([u8; 16]);

/// Text that is no base64url of 16 bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the base64url of 16 bytes")]
pub struct InvalidUuid(String);

impl Uuid {
    /// Stands for "no id".
    pub const ZERO: Self = Self([0; 16]);

    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    #[must_use]
    pub const fn is_zero(&self) -> bool {
        u128::from_be_bytes(self.0) == 0
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Uuid {
    type Err = InvalidUuid;

    fn from_str(text: &str) -> Result<Self, InvalidUuid> {
        let invalid = || InvalidUuid(text.chars().take(64).collect());
        if text.len() > 24 {
            return Err(invalid());
        }
        let bytes = URL_SAFE_NO_PAD
            .decode(text.trim_end_matches('='))
            .map_err(|_| invalid())?;
        Ok(Self(bytes.try_into().map_err(|_| invalid())?))
    }
}

#[cfg(test)]
mod tests {
    use super::Uuid;

    #[test]
    fn text_and_back() {
        assert_eq!(Uuid::ZERO.to_string(), "AAAAAAAAAAAAAAAAAAAAAA");
        let id: Uuid = "yUaqS1eSQpmSQTmzXPJhiA".parse().unwrap();
        assert_eq!(id.to_string(), "yUaqS1eSQpmSQTmzXPJhiA");
        for wrong in [
            "",
            "AAAA",
            "yUaqS1eSQpmSQTmzXPJhi!",
            "yUaqS1eSQpmSQTmzXPJhiAyUaqS1eSQpmSQTmzXPJhiA",
        ] {
            assert!(wrong.parse::<Uuid>().is_err(), "{wrong}");
        }
    }
}
