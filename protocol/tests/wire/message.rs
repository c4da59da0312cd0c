//! Any payload, as the golden vectors write it.

use std::fmt;

use bytes::{Bytes, BytesMut};
use tollgate_protocol::{
    check::{CheckBatch, CheckEncoder, Item, Operation},
    control::{Credit, GoAway, GoAwayReason, Ping},
    define::{Define, Defined},
    error::{DecodeError, ErrorFrame},
    frame::{Frame, FrameType},
    hello::{Hello, HelloOk},
    limits::ITEMS_DEFAULT,
    policy::NamedPolicy,
    reply::{self, Reason, ReplyItem},
    varint,
};

/// A decoded payload.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Message {
    Hello(Hello),
    HelloOk(HelloOk),
    Define(Define),
    Defined(Defined),
    Ping(Ping),
    Pong(Ping),
    GoAway(GoAway),
    Credit(Credit),
    Policy(NamedPolicy),
    Error(ErrorFrame),
    Check(CheckBatch),
    Reply(Vec<ReplyItem>),
}

impl Message {
    /// Reads the payload of a frame. A REPLY must have `expected` decisions, where that is known.
    pub(crate) fn decode(frame: &Frame, expected: Option<usize>) -> Result<Self, DecodeError> {
        let payload = &frame.payload;
        Ok(match frame.kind {
            FrameType::Hello => Self::Hello(Hello::decode(payload)?),
            FrameType::HelloOk => Self::HelloOk(HelloOk::decode(payload)?),
            FrameType::Define => Self::Define(Define::decode(payload)?),
            FrameType::Defined => Self::Defined(Defined::decode(payload)?),
            FrameType::Ping => Self::Ping(Ping::decode(payload)?),
            FrameType::Pong => Self::Pong(Ping::decode(payload)?),
            FrameType::GoAway => Self::GoAway(GoAway::decode(payload)?),
            FrameType::Credit => Self::Credit(Credit::decode(payload)?),
            FrameType::Policy => Self::Policy(NamedPolicy::decode(payload)?),
            FrameType::Error => Self::Error(ErrorFrame::decode(payload)?),
            FrameType::Check => Self::Check(CheckBatch::decode(payload.clone(), ITEMS_DEFAULT)?),
            FrameType::Reply => {
                Self::Reply(reply::decode(payload, expected.map_or_else(|| announced(payload), Ok)?)?)
            }
        })
    }

    /// Appends the payload.
    pub(crate) fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::Hello(hello) => hello.encode(out),
            Self::HelloOk(hello_ok) => hello_ok.encode(out),
            Self::Define(define) => define.encode(out),
            Self::Defined(defined) => defined.encode(out),
            Self::Ping(ping) | Self::Pong(ping) => ping.encode(out),
            Self::GoAway(go_away) => go_away.encode(out),
            Self::Credit(credit) => credit.encode(out),
            Self::Policy(policy) => policy.encode(out),
            Self::Error(error) => error.encode(out),
            Self::Check(batch) => encode_check(batch, out),
            Self::Reply(items) => {
                reply::put_count(out, items.len());
                items.iter().for_each(|item| item.encode(out));
            }
        }
    }

    /// The frame's type.
    pub(crate) fn kind(&self) -> FrameType {
        match self {
            Self::Hello(_) => FrameType::Hello,
            Self::HelloOk(_) => FrameType::HelloOk,
            Self::Define(_) => FrameType::Define,
            Self::Defined(_) => FrameType::Defined,
            Self::Ping(_) => FrameType::Ping,
            Self::Pong(_) => FrameType::Pong,
            Self::GoAway(_) => FrameType::GoAway,
            Self::Credit(_) => FrameType::Credit,
            Self::Policy(_) => FrameType::Policy,
            Self::Error(_) => FrameType::Error,
            Self::Check(_) => FrameType::Check,
            Self::Reply(_) => FrameType::Reply,
        }
    }

    /// What the frame means, as the vectors say it.
    pub(crate) fn describe(&self, id: u32) -> String {
        let name = format!("{:?}", self.kind()).to_lowercase();
        let name = if name == "hellook" { "hello_ok".into() } else { name };
        format!("{name} id={id}{self}")
    }
}

fn announced(payload: &Bytes) -> Result<usize, DecodeError> {
    Ok(usize::try_from(varint::get(&mut &payload[..])?).unwrap_or(usize::MAX))
}

fn encode_check(batch: &CheckBatch, out: &mut BytesMut) {
    let mut encoder = CheckEncoder::default();
    for item in &batch.items {
        encoder.push(&Item {
            operation: item.operation,
            alias: u64::from(item.alias),
            cost: item.cost,
            key: batch.key(item),
            linked: item.linked,
        });
    }
    encoder.finish(out, batch.details, batch.deadline_us);
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hello(hello) => write_hello(f, hello),
            Self::HelloOk(hello_ok) => write_hello_ok(f, hello_ok),
            Self::Define(define) => write!(f, " alias={} limits={}", define.alias, define.limits),
            Self::Defined(Defined { refused: None }) => Ok(()),
            Self::Defined(Defined { refused: Some(text) }) => write!(f, " refused={}", quoted(text)),
            Self::Ping(ping) | Self::Pong(ping) => write!(f, " opaque={:016x}", u64::from_be_bytes(ping.0)),
            Self::GoAway(go_away) => write_go_away(f, go_away),
            Self::Credit(credit) => write!(f, " inflight_max={}", credit.inflight_max),
            Self::Policy(policy) => write_policy(f, policy),
            Self::Error(ErrorFrame { code, offending_id, text }) => {
                write!(f, " code={} offending_id={offending_id} text={}", code.to_wire(), quoted(text))
            }
            Self::Check(batch) => write_check(f, batch),
            Self::Reply(items) => items.iter().try_for_each(|item| write_decision(f, item)),
        }
    }
}

fn quoted(text: impl AsRef<[u8]>) -> String {
    let escaped: String = text
        .as_ref()
        .iter()
        // The one escape of a byte that the vectors do not have.
        .map(|byte| if *byte == b'\'' { "'".into() } else { byte.escape_ascii().to_string() })
        .collect();
    format!("\"{escaped}\"")
}

/// Writes ` name=value` where there is a value.
fn write_field(f: &mut fmt::Formatter<'_>, name: &str, value: Option<impl fmt::Display>) -> fmt::Result {
    value.map_or(Ok(()), |value| write!(f, " {name}={value}"))
}

fn write_hello(f: &mut fmt::Formatter<'_>, hello: &Hello) -> fmt::Result {
    write_field(f, "client_name", hello.client_name.as_ref().map(quoted))?;
    write_field(f, "frame_bytes_max", hello.frame_bytes_max)?;
    write_field(f, "inflight_max", hello.inflight_max)?;
    write_field(f, "features", Some(hello.features))
}

fn write_hello_ok(f: &mut fmt::Formatter<'_>, hello_ok: &HelloOk) -> fmt::Result {
    let HelloOk { features, frame_bytes_max, items_max, inflight_max, idle_ms, boot_id, policies } = hello_ok;
    write!(f, " features={features} frame_bytes_max={frame_bytes_max} items_max={items_max}")?;
    write!(f, " inflight_max={inflight_max} idle_ms={idle_ms} boot_id={boot_id:016x}")?;
    policies.iter().try_for_each(|policy| write_policy(f, policy))
}

fn write_policy(f: &mut fmt::Formatter<'_>, policy: &NamedPolicy) -> fmt::Result {
    let NamedPolicy { name, alias, version, limits } = policy;
    write!(f, "\npolicy name={name} alias={alias} version={version} limits={limits}")
}

fn write_go_away(f: &mut fmt::Formatter<'_>, go_away: &GoAway) -> fmt::Result {
    let reason = match go_away.reason {
        GoAwayReason::Shutdown => "shutdown".into(),
        GoAwayReason::Idle => "idle".into(),
        GoAwayReason::Other(code) => code.to_string(),
        other => format!("{other:?}"),
    };
    write!(f, " last_id={} reason={reason}", go_away.last_id)?;
    write_field(f, "reconnect_within_ms", Some(go_away.reconnect_within_ms))
}

fn write_check(f: &mut fmt::Formatter<'_>, batch: &CheckBatch) -> fmt::Result {
    write!(f, " details={}", if batch.details { "yes" } else { "no" })?;
    write_field(f, "deadline_us", batch.deadline_us)?;
    batch.items.iter().try_for_each(|item| {
        let operation = match item.operation {
            Operation::Check => "check".into(),
            Operation::Peek => "peek".into(),
            Operation::Refund => "refund".into(),
            Operation::Reset => "reset".into(),
            Operation::Force => "force".into(),
            Operation::TakeUpTo => "take_up_to".into(),
            Operation::Unknown(code) => format!("unknown_{code}"),
        };
        let (alias, cost, key) = (item.alias, item.cost, quoted(batch.key(item)));
        write!(f, "\n{operation} alias={alias} cost={cost} key={key}")?;
        if item.linked { f.write_str(" linked") } else { Ok(()) }
    })
}

fn write_decision(f: &mut fmt::Formatter<'_>, item: &ReplyItem) -> fmt::Result {
    write!(f, "\n{} ", if item.allow { "allow" } else { "deny" })?;
    match item.reason {
        Reason::Other(code) => write!(f, "other_{code}")?,
        reason => f.write_str(reason.as_str())?,
    }
    if item.degraded {
        f.write_str(" degraded")?;
    }
    write_field(f, "granted", (item.reason == Reason::Partial).then_some(item.granted))?;
    let Some(details) = &item.details else { return Ok(()) };
    write!(f, " remaining={} reset_after_us={}", details.remaining, details.reset_after_us)?;
    write_field(f, "limit_index", Some(details.limit_index))?;
    let retry = details.retry_after_us.map_or("never".into(), |retry_us| retry_us.to_string());
    write_field(f, "retry_after_us", (!item.allow).then_some(retry))
}
