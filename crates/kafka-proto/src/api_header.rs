//! Which header version goes with a request or response.

use crate::ApiKey;

impl ApiKey {
    /// Whether this version has compact lengths and tagged fields.
    #[must_use]
    pub const fn is_flexible(self, version: i16) -> bool {
        match self.first_flexible_version() {
            Some(first) => version >= first,
            None => false,
        }
    }

    /// 2 in flexible versions, else 1; 0 (no client id) only for ControlledShutdown version 0.
    #[must_use]
    pub const fn request_header_version(self, version: i16) -> i16 {
        match self {
            Self::ControlledShutdown if version == 0 => 0,
            _ if self.is_flexible(version) => 2,
            _ => 1,
        }
    }

    /// 1 in flexible versions, else 0. ApiVersions stays at 0: its reader does not know yet what the broker speaks
    /// (KIP-511).
    #[must_use]
    pub const fn response_header_version(self, version: i16) -> i16 {
        match self {
            Self::ApiVersions => 0,
            _ if self.is_flexible(version) => 1,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ApiKey;

    #[test]
    fn header_versions() {
        assert_eq!(ApiKey::ControlledShutdown.request_header_version(0), 0);
        assert_eq!(ApiKey::ControlledShutdown.request_header_version(1), 1);
        assert_eq!(ApiKey::Produce.request_header_version(8), 1);
        assert_eq!(ApiKey::Produce.request_header_version(9), 2);
        assert_eq!(ApiKey::ApiVersions.request_header_version(3), 2);
        assert_eq!(ApiKey::ApiVersions.response_header_version(4), 0);
        assert_eq!(ApiKey::SaslHandshake.request_header_version(1), 1);
        assert_eq!(ApiKey::Fetch.response_header_version(12), 1);
    }
}
