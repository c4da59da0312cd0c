//! What a client can do wrong, and the ERROR frame that tells it.

use tollgate_protocol::{
    error::{DecodeError, ErrorCode, ErrorFrame},
    frame::FrameType,
};

use super::timeouts::{FRAME_TIMEOUT, HELLO_TIMEOUT};

/// A rule of a connection that its client broke. The connection is closed for it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Violation {
    #[error(transparent)]
    Decode(#[from] DecodeError),
    #[error("{0:?} came before HELLO")]
    BeforeHello(FrameType),
    #[error("HELLO came twice")]
    SecondHello,
    #[error("{0:?} is sent by servers only")]
    NotFromClient(FrameType),
    #[error("id {id} does not rise above {last_id}, the id before it")]
    IdNotRising { id: u32, last_id: u32 },
    #[error("HELLO was not whole within {} s", HELLO_TIMEOUT.as_secs())]
    HelloTimeout,
    #[error("a frame that had begun was not whole within {} s", FRAME_TIMEOUT.as_secs())]
    FrameTimeout,
}

impl Violation {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Decode(error) => error.code(),
            Self::BeforeHello(_) | Self::SecondHello | Self::NotFromClient(_) | Self::IdNotRising { .. } => {
                ErrorCode::UnexpectedFrame
            }
            Self::HelloTimeout | Self::FrameTimeout => ErrorCode::Timeout,
        }
    }

    /// The frame that tells the client; `offending_id` is 0 where no frame is to blame.
    pub(crate) fn to_frame(&self, offending_id: u32) -> ErrorFrame {
        ErrorFrame { code: self.code(), offending_id, text: self.to_string() }
    }
}
