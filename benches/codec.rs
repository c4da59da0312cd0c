//! Frames of CHECK and REPLY, written and read.

use bytes::BytesMut;
use criterion::Criterion;
use tollgate::bench::workload::{Distribution, Key, Workload};
use tollgate_protocol::{
    check::{CheckBatch, CheckEncoder},
    frame::{Frame, FrameFormat, FrameType},
    limits::{FRAME_BYTES_DEFAULT, ITEMS_DEFAULT},
    reply::{self, Details, Reason, ReplyItem},
};

use crate::common::{BATCHES, measure, put_check};

const FORMAT: FrameFormat = FrameFormat { payload_bytes_max: FRAME_BYTES_DEFAULT, checksum: false };

pub(crate) fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("codec");
    for items in BATCHES {
        measure(&mut group, "encode_check", items, || {
            let (keys, mut encoder, mut out) = (keys(items), CheckEncoder::default(), BytesMut::new());
            move || {
                out.clear();
                write_check(&mut encoder, &keys, &mut out);
                out.len()
            }
        });
        measure(&mut group, "decode_check", items, || {
            let frame = written(|out| write_check(&mut CheckEncoder::default(), &keys(items), out));
            let mut memory = Some(Vec::new());
            move || {
                let payload = read(&frame).payload;
                let batch =
                    CheckBatch::decode_into(payload, ITEMS_DEFAULT, memory.take().unwrap_or_default())
                        .unwrap();
                // A server reads all keys.
                let key_bytes: usize = batch.items.iter().map(|item| batch.key(item).len()).sum();
                memory = Some(batch.items);
                key_bytes
            }
        });
        measure(&mut group, "encode_reply", items, || {
            let (decisions, mut out) = (decisions(items), BytesMut::new());
            move || {
                out.clear();
                write_reply(&decisions, &mut out);
                out.len()
            }
        });
        measure(&mut group, "decode_reply", items, || {
            let frame = written(|out| write_reply(&decisions(items), out));
            move || {
                let payload = read(&frame).payload;
                let mut input = &payload[..];
                reply::take_count(&mut input, items).unwrap();
                (0..items).filter(|_| ReplyItem::take(&mut input).unwrap().allow).count()
            }
        });
    }
    group.finish();
}

fn keys(count: usize) -> Vec<Key> {
    Workload::new(100_000, Distribution::Uniform, 1, 1).stream(0).take(count).map(Key::new).collect()
}

/// Decisions of which every fourth is a denial.
fn decisions(count: usize) -> Vec<ReplyItem> {
    let decision = |index: u64| {
        let allow = !index.is_multiple_of(4);
        let details = Details {
            remaining: if allow { index % 100 } else { 0 },
            reset_after_us: 10_000 * (1 + index % 100),
            retry_after_us: (!allow).then_some(5_000 + index),
            limit_index: 0,
        };
        let reason = if allow { Reason::Ok } else { Reason::Denied };
        ReplyItem { allow, degraded: false, reason, granted: 0, details: Some(details) }
    };
    (0..count as u64).map(decision).collect()
}

fn write_check(encoder: &mut CheckEncoder, keys: &[Key], out: &mut BytesMut) {
    FORMAT.encode(out, FrameType::Check, 1, |out| put_check(encoder, keys, out));
}

fn write_reply(decisions: &[ReplyItem], out: &mut BytesMut) {
    FORMAT.encode(out, FrameType::Reply, 1, |out| {
        reply::put_count(out, decisions.len());
        decisions.iter().for_each(|decision| decision.encode(out));
    });
}

fn written(write: impl FnOnce(&mut BytesMut)) -> BytesMut {
    let mut out = BytesMut::new();
    write(&mut out);
    out
}

/// Reads a frame; the copy of its bytes stands for what the socket would give.
fn read(frame: &BytesMut) -> Frame {
    FORMAT.decode(&mut frame.clone()).unwrap().expect("it is whole")
}
