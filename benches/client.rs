//! The client with its batcher, over the loopback, on a server that decides nothing: it allows.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    thread,
};

use bytes::BytesMut;
use criterion::Criterion;
use tollgate_protocol::{
    define::Defined,
    frame::{Frame, FrameFormat, FrameType},
    hello::HelloOk,
    limits::{FRAME_BYTES_DEFAULT, INFLIGHT_DEFAULT, ITEMS_DEFAULT},
    reply::{self, Details, Reason, ReplyItem},
    varint,
};

use crate::round_trip;

const FORMAT: FrameFormat = FrameFormat { payload_bytes_max: FRAME_BYTES_DEFAULT, checksum: false };

pub(crate) fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("client");
    round_trip::bench(&mut group, || {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let thread = thread::spawn(move || {
            let (stream, _) = listener.accept()?;
            serve(stream)
        });
        (address, thread)
    });
    group.finish();
}

/// Answers until the client closes.
fn serve(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut input, mut output, mut chunk) = (BytesMut::new(), BytesMut::new(), vec![0; FRAME_BYTES_DEFAULT]);
    loop {
        let read_bytes = stream.read(&mut chunk)?;
        if read_bytes == 0 {
            return Ok(());
        }
        input.extend_from_slice(&chunk[..read_bytes]);
        while let Some(frame) = FORMAT.decode(&mut input).expect("frames of the client") {
            answer(&frame, &mut output);
        }
        stream.write_all(&output)?;
        output.clear();
    }
}

fn answer(frame: &Frame, out: &mut BytesMut) {
    let Frame { kind, id, payload } = frame;
    match kind {
        FrameType::Hello => FORMAT.encode(out, FrameType::HelloOk, *id, |out| hello_ok().encode(out)),
        FrameType::Define => {
            FORMAT.encode(out, FrameType::Defined, *id, |out| Defined { refused: None }.encode(out));
        }
        FrameType::Ping => FORMAT.encode(out, FrameType::Pong, *id, |out| out.extend_from_slice(payload)),
        // The count of items stands after the byte of flags.
        _ => allow(*id, varint::get(&mut &payload[1..]).expect("a CHECK of the client"), out),
    }
}

fn allow(id: u32, count: u64, out: &mut BytesMut) {
    let details = Details { remaining: 99, reset_after_us: 10_000, ..Details::default() };
    let allowed =
        ReplyItem { allow: true, degraded: false, reason: Reason::Ok, granted: 0, details: Some(details) };
    FORMAT.encode(out, FrameType::Reply, id, |out| {
        reply::put_count(out, count as usize);
        (0..count).for_each(|_| allowed.encode(out));
    });
}

fn hello_ok() -> HelloOk {
    HelloOk {
        features: 0,
        frame_bytes_max: FRAME_BYTES_DEFAULT as u64,
        items_max: ITEMS_DEFAULT as u64,
        inflight_max: INFLIGHT_DEFAULT as u64,
        idle_ms: 0,
        boot_id: 1,
        policies: Vec::new(),
    }
}
