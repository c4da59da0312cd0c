//! Strategies for every payload.

use bytes::BytesMut;
use proptest::{collection::vec, option, prelude::*, sample::select};
use tollgate_protocol::{
    check::{CheckBatch, CheckEncoder, Item, Operation},
    control::{Credit, GoAway, GoAwayReason, Ping},
    define::{ALIAS_MAX, Define, Defined},
    error::{ErrorCode, ErrorFrame},
    hello::{Hello, HelloOk},
    limit::Limit,
    limits::{
        FRAME_BYTES_MAX, FRAME_BYTES_MIN, INFLIGHT_MAX, ITEMS_DEFAULT, LIMITS_MAX, PERIOD_US_MAX,
        RESET_UNIT_US,
    },
    policy::{Limits, NamedPolicy},
    reply::{Details, Reason, ReplyItem},
    varint::VALUE_MAX,
};

use crate::message::Message;

/// Whole numbers from `min` to `max` of every length.
fn number(min: u64, max: u64) -> impl Strategy<Value = u64> {
    (any::<u64>(), 0..64u32).prop_map(move |(bits, shift)| (bits >> shift).clamp(min, max))
}

/// A value of `vi`.
pub(crate) fn value() -> impl Strategy<Value = u64> {
    number(0, VALUE_MAX)
}

/// A text for a person.
fn text() -> impl Strategy<Value = String> {
    ".{0,60}"
}

/// A limit that is known here.
pub(crate) fn limit() -> impl Strategy<Value = Limit> {
    let (amount, period_us) = (|| number(1, VALUE_MAX), || number(1, PERIOD_US_MAX));
    prop_oneof![
        (amount(), period_us(), amount()).prop_map(|(rate, period_us, capacity)| Limit::TokenBucket {
            rate,
            period_us,
            capacity
        }),
        (amount(), period_us()).prop_map(|(limit, window_us)| Limit::SlidingWindow { limit, window_us }),
    ]
}

fn limits_of(limit: impl Strategy<Value = Limit>) -> impl Strategy<Value = Limits> {
    vec(limit, 1..=LIMITS_MAX).prop_map(|limits| Limits::new(limits).expect("1..=4 limits"))
}

fn named_policy() -> impl Strategy<Value = NamedPolicy> {
    let unknown = (3..=255u8).prop_map(|algorithm| Limit::Unknown { algorithm });
    let limits = limits_of(prop_oneof![4 => limit(), 1 => unknown]);
    ("[a-zA-Z0-9._/-]{1,64}", 0..1u64 << 31, value(), limits)
        .prop_map(|(name, index, version, limits)| NamedPolicy { name, alias: 2 * index, version, limits })
}

fn hello() -> impl Strategy<Value = Hello> {
    (option::of(text()), option::of(value()), option::of(value()), value()).prop_map(
        |(client_name, frame_bytes_max, inflight_max, features)| Hello {
            client_name,
            frame_bytes_max,
            inflight_max,
            features,
        },
    )
}

fn hello_ok() -> impl Strategy<Value = HelloOk> {
    let bounds = (
        number(FRAME_BYTES_MIN as u64, FRAME_BYTES_MAX as u64),
        number(1, FRAME_BYTES_MAX as u64),
        number(1, INFLIGHT_MAX as u64),
    );
    (value(), bounds, value(), any::<u64>(), vec(named_policy(), 0..4)).prop_map(
        |(features, (frame_bytes_max, items_max, inflight_max), idle_ms, boot_id, policies)| HelloOk {
            features,
            frame_bytes_max,
            items_max,
            inflight_max,
            idle_ms,
            boot_id,
            policies,
        },
    )
}

fn define() -> impl Strategy<Value = Define> {
    (0..=ALIAS_MAX / 2, limits_of(limit()))
        .prop_map(|(index, limits)| Define { alias: 2 * index + 1, limits })
}

fn go_away() -> impl Strategy<Value = GoAway> {
    let reason = prop_oneof![
        Just(GoAwayReason::Shutdown),
        Just(GoAwayReason::Idle),
        (3..=255u8).prop_map(GoAwayReason::Other),
    ];
    (any::<u32>(), reason, value()).prop_map(|(last_id, reason, reconnect_within_ms)| GoAway {
        last_id,
        reason,
        reconnect_within_ms,
    })
}

fn error_frame() -> impl Strategy<Value = ErrorFrame> {
    (any::<u8>(), any::<u32>(), text()).prop_map(|(code, offending_id, text)| ErrorFrame {
        code: ErrorCode::from_wire(code),
        offending_id,
        text,
    })
}

/// A check with a key of its own.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OwnedItem {
    pub(crate) operation: Operation,
    pub(crate) alias: u32,
    pub(crate) cost: u64,
    pub(crate) key: Vec<u8>,
    pub(crate) linked: bool,
}

impl OwnedItem {
    fn as_item(&self) -> Item<'_> {
        let Self { operation, alias, cost, linked, .. } = *self;
        Item { operation, alias: alias.into(), cost, key: &self.key, linked }
    }
}

/// A batch before it is encoded.
#[derive(Clone, Debug)]
pub(crate) struct Checks {
    pub(crate) items: Vec<OwnedItem>,
    pub(crate) details: bool,
    pub(crate) deadline_us: Option<u64>,
}

impl Checks {
    /// Appends the payload.
    pub(crate) fn encode(&self, out: &mut BytesMut) {
        let mut encoder = CheckEncoder::default();
        self.items.iter().for_each(|item| encoder.push(&item.as_item()));
        assert_eq!(encoder.count(), self.items.len());
        let bound = encoder.payload_bytes_max();
        encoder.finish(out, self.details, self.deadline_us);
        assert!(out.len() <= bound);
    }
}

fn operation() -> impl Strategy<Value = Operation> {
    select(vec![
        Operation::Check,
        Operation::Peek,
        Operation::Refund,
        Operation::Reset,
        Operation::Force,
        Operation::TakeUpTo,
        Operation::Unknown(6),
        Operation::Unknown(7),
    ])
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![select(vec![b"".to_vec(), b"a".to_vec(), b"user:1".to_vec()]), vec(any::<u8>(), 0..200),]
}

/// Items that stand together: one of any operation, or several linked checks.
fn group() -> impl Strategy<Value = Vec<OwnedItem>> {
    let numbers = || (prop_oneof![0..4u32, any::<u32>()], prop_oneof![Just(1), value()]);
    let one = (operation(), numbers(), key()).prop_map(|(operation, (alias, cost), key)| {
        vec![OwnedItem { operation, alias, cost, key, linked: false }]
    });
    let linked = (vec(numbers(), 2..5), key()).prop_map(|(numbers, key)| {
        let last = numbers.len() - 1;
        let item = |(index, (alias, cost))| OwnedItem {
            operation: Operation::Check,
            alias,
            cost,
            key: key.clone(),
            linked: index < last,
        };
        numbers.into_iter().enumerate().map(item).collect()
    });
    prop_oneof![3 => one, 1 => linked]
}

/// A batch.
pub(crate) fn checks() -> impl Strategy<Value = Checks> {
    (vec(group(), 1..12), any::<bool>(), option::of(value()))
        .prop_map(|(groups, details, deadline_us)| Checks { items: groups.concat(), details, deadline_us })
}

fn details() -> impl Strategy<Value = Details> {
    (value(), 0..=VALUE_MAX / RESET_UNIT_US, option::of(number(1, VALUE_MAX)), 0..4u8).prop_map(
        |(remaining, reset_units, retry_after_us, limit_index)| Details {
            remaining,
            reset_after_us: reset_units * RESET_UNIT_US,
            retry_after_us,
            limit_index,
        },
    )
}

/// A decision that is the same after encoding.
fn decision() -> impl Strategy<Value = ReplyItem> {
    (any::<bool>(), any::<bool>(), 0..32u8, value(), option::of(details())).prop_map(
        |(allow, degraded, reason, granted, mut details)| {
            let reason = Reason::from_wire(reason);
            if let Some(details) = &mut details
                && allow
            {
                details.retry_after_us = None;
            }
            let granted = if reason == Reason::Partial { granted } else { 0 };
            ReplyItem { allow, degraded, reason, granted, details }
        },
    )
}

/// Any payload that is the same after encoding and decoding.
pub(crate) fn message() -> impl Strategy<Value = Message> {
    prop_oneof![
        hello().prop_map(Message::Hello),
        hello_ok().prop_map(Message::HelloOk),
        define().prop_map(Message::Define),
        option::of(text()).prop_map(|refused| Message::Defined(Defined { refused })),
        any::<[u8; 8]>().prop_map(|opaque| Message::Ping(Ping(opaque))),
        any::<[u8; 8]>().prop_map(|opaque| Message::Pong(Ping(opaque))),
        go_away().prop_map(Message::GoAway),
        (1..=u16::MAX).prop_map(|inflight_max| Message::Credit(Credit { inflight_max })),
        named_policy().prop_map(Message::Policy),
        error_frame().prop_map(Message::Error),
        checks().prop_map(|checks| {
            let mut payload = BytesMut::new();
            checks.encode(&mut payload);
            Message::Check(CheckBatch::decode(payload.freeze(), ITEMS_DEFAULT).expect("a batch"))
        }),
        vec(decision(), 1..20).prop_map(Message::Reply),
    ]
}
