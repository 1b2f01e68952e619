//! ZooKeeper's error codes.

macro_rules! codes {
    ($($(#[$meta:meta])* $name:ident = $code:literal, $text:literal;)*) => {
        /// An error the server answers, or that a client makes up for a lost connection.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
        #[repr(i32)]
        pub enum ZkError {
            $($(#[$meta])* #[error($text)] $name = $code,)*
        }

        impl ZkError {
            /// The code on the wire.
            pub fn code(self) -> i32 {
                self as i32
            }

            /// `None` for 0 (no error); an unknown code counts as `SystemError`.
            pub fn from_code(code: i32) -> Option<Self> {
                match code {
                    0 => None,
                    $($code => Some(Self::$name),)*
                    _ => Some(Self::SystemError),
                }
            }
        }
    };
}

codes! {
    SystemError = -1, "SystemError";
    RuntimeInconsistency = -2, "RuntimeInconsistency";
    DataInconsistency = -3, "DataInconsistency";
    ConnectionLoss = -4, "ConnectionLoss";
    MarshallingError = -5, "MarshallingError";
    Unimplemented = -6, "Unimplemented";
    OperationTimeout = -7, "OperationTimeout";
    BadArguments = -8, "BadArguments";
    UnknownSession = -12, "UnknownSession";
    NewConfigNoQuorum = -13, "NewConfigNoQuorum";
    ReconfigInProgress = -14, "ReconfigInProgress";
    ApiError = -100, "APIError";
    NoNode = -101, "NoNode";
    NoAuth = -102, "NoAuth";
    BadVersion = -103, "BadVersion";
    NoChildrenForEphemerals = -108, "NoChildrenForEphemerals";
    NodeExists = -110, "NodeExists";
    NotEmpty = -111, "Directory not empty";
    SessionExpired = -112, "Session expired";
    InvalidCallback = -113, "InvalidCallback";
    InvalidAcl = -114, "InvalidACL";
    AuthFailed = -115, "AuthFailed";
    SessionMoved = -118, "Session moved";
    NotReadOnly = -119, "Not a read-only call";
    EphemeralOnLocalSession = -120, "Ephemeral node on local session";
    NoWatcher = -121, "No such watcher";
    RequestTimeout = -122, "Request timeout";
    ReconfigDisabled = -123, "Reconfig is disabled";
    SessionClosedRequireSaslAuth = -124, "Session closed because client failed to authenticate";
    QuotaExceeded = -125, "Quota has exceeded";
    ThrottledOp = -127, "Op throttled due to high load";
}
