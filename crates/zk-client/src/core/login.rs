//! SASL DIGEST-MD5 on a new connection, between the handshake and everything else.

use super::{FrameError, Output, SessionCore, Stage, framed};
use crate::event::{SessionState, ZkEvent};
use bytes::{Bytes, BytesMut};
use gracchus_security::digest_md5::{Answer, Mistrust};
use gracchus_zk_proto::jute::{Jute, Reader};
use gracchus_zk_proto::request::SaslRequest;
use gracchus_zk_proto::response::SaslResponse;
use gracchus_zk_proto::{OpCode, ReplyHeader, RequestHeader, ZkError};

/// Why a login came to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LoginFailure {
    #[error("the server answers {0}: it does not know the user, or another password")]
    Refused(ZkError),
    #[error(
        "the server offers no SASL: give it a login configuration with a section for itself, or take the client's away"
    )]
    NotOffered,
    #[error("the server is not to be trusted: {0}")]
    Mistrust(#[from] Mistrust),
}

/// The step that the server is to answer, as request `xid`.
pub(super) struct Login {
    xid: i32,
    /// `None` until its challenge is answered.
    answer: Option<Answer>,
}

impl<T> SessionCore<T> {
    /// Asks for a challenge.
    pub(super) fn begin_login(&mut self, out: &mut BytesMut) {
        self.send_token(Bytes::new(), None, out);
    }

    fn send_token(&mut self, token: Bytes, answer: Option<Answer>, out: &mut BytesMut) {
        let xid = self.take_xid();
        out.extend_from_slice(&framed(|out| {
            RequestHeader {
                xid,
                op: OpCode::Sasl.code(),
            }
            .write(out);
            SaslRequest { token: Some(token) }.write(out);
        }));
        self.stage = Stage::LoggingIn(Login { xid, answer });
    }

    pub(super) fn logging_in(
        &mut self,
        header: ReplyHeader,
        r: &mut Reader,
        out: &mut BytesMut,
        outputs: &mut Vec<Output<T>>,
    ) -> Result<(), FrameError> {
        let Stage::LoggingIn(login) = std::mem::replace(&mut self.stage, Stage::Opening) else {
            return Err(FrameError::Unasked(header.xid));
        };
        if login.xid != header.xid {
            return Err(FrameError::OutOfOrder {
                got: header.xid,
                expected: login.xid,
            });
        }
        let token = match ZkError::from_code(header.err) {
            Some(error) => Err(LoginFailure::Refused(error)),
            None => SaslResponse::read(r)?.token.ok_or(LoginFailure::NotOffered),
        };
        match (token, login.answer, &self.credentials) {
            (Ok(challenge), None, Some(credentials)) => {
                let cnonce = format!("{:032x}", self.nonce);
                match Answer::new(credentials, &cnonce, &challenge) {
                    Ok(answer) => {
                        let token = Bytes::from(answer.token.clone());
                        self.send_token(token, Some(answer), out);
                    }
                    Err(mistrust) => refused(mistrust.into(), outputs),
                }
            }
            (Ok(proof), Some(answer), _) => match answer.confirm(&proof) {
                Ok(()) => self.ready(out, outputs),
                Err(mistrust) => refused(mistrust.into(), outputs),
            },
            (Ok(_), None, None) => return Err(FrameError::Unasked(header.xid)),
            (Err(failure), _, _) => refused(failure, outputs),
        }
        Ok(())
    }
}

fn refused<T>(failure: LoginFailure, outputs: &mut Vec<Output<T>>) {
    // The reason is known before the event is.
    outputs.push(Output::Refused(failure));
    outputs.push(Output::Event(ZkEvent::Session(SessionState::AuthFailed)));
}
