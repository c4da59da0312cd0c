//! What the script answers.

use redis::Value;

use crate::limit::{State, state::STATE_BYTES};

/// What the script answered.
#[derive(Clone, Debug, PartialEq)]
pub(in super::super) struct Answer {
    /// The shard's time.
    pub(in super::super) now_us: u64,
    /// The states before the call, one for each field; none where the call came after its deadline and did
    /// nothing.
    pub(in super::super) states: Vec<Option<State>>,
}

impl Answer {
    /// Reads a script's answer; `None` where it is not one.
    pub(in super::super) fn read(value: &Value) -> Option<Self> {
        let Value::Array(parts) = value else { return None };
        let [Value::Int(now_us), Value::BulkString(bytes)] = &parts[..] else { return None };
        let mut states = Vec::with_capacity(bytes.len().div_ceil(STATE_BYTES));
        let mut rest = &bytes[..];
        while let Some(&kind) = rest.first() {
            if kind == 0 {
                states.push(None);
                rest = &rest[1..];
            } else {
                let (state, tail) = rest.split_first_chunk::<STATE_BYTES>()?;
                states.push(State::from_bytes(state));
                rest = tail;
            }
        }
        Some(Self { now_us: u64::try_from(*now_us).ok()?, states })
    }
}
