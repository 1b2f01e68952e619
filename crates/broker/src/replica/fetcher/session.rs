//! The client's side of a fetch session (KIP-227): its id and epoch. What is in it is the fetcher's affair.

use gracchus_kafka_proto::ErrorCode;

/// A session, or the wish for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Session {
    /// 0 none.
    pub id: i32,
    /// 0: the next request names all partitions and asks for a new session.
    pub epoch: i32,
}

impl Session {
    /// The next request names all partitions.
    pub fn is_full(&self) -> bool {
        self.epoch == 0
    }

    /// An answer came; what it says of the session. An error says that the next request has to name all partitions.
    pub fn answered(&mut self, id: i32, error: ErrorCode) {
        match error {
            ErrorCode::None if self.is_full() => {
                // id 0: the leader had no room
                self.id = id;
                self.epoch = i32::from(id != 0);
            }
            ErrorCode::None => {
                self.epoch = match self.epoch {
                    i32::MAX => 1,
                    epoch => epoch + 1,
                }
            }
            ErrorCode::FetchSessionIdNotFound => *self = Self::default(),
            _ => self.epoch = 0,
        }
    }

    /// No answer came: nobody knows what the leader took in.
    pub fn lost(&mut self) {
        self.epoch = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_count_the_requests_of_a_session() {
        let mut session = Session::default();
        session.answered(0, ErrorCode::None);
        assert!(session.is_full(), "no room");
        session.answered(7, ErrorCode::None);
        assert_eq!((session.id, session.epoch), (7, 1));
        session.answered(7, ErrorCode::None);
        assert_eq!((session.id, session.epoch), (7, 2));
        // The old one is named, so that the leader closes it.
        session.answered(0, ErrorCode::InvalidFetchSessionEpoch);
        assert_eq!((session.id, session.epoch), (7, 0));
        session.answered(0, ErrorCode::FetchSessionIdNotFound);
        assert_eq!(session, Session::default());
        session.epoch = i32::MAX;
        session.answered(7, ErrorCode::None);
        assert_eq!(session.epoch, 1);
    }
}
