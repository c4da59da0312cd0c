//! Whatever comes: no panic, and it does not matter how it is cut.

use proptest::prelude::*;

use super::*;

/// Frames as a client might send them, and what it should not.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let payload = prop::collection::vec(any::<u8>(), 0..40);
    let known = prop::sample::select(FrameType::ALL);
    let made = (known, 0u32..40, payload.clone())
        .prop_map(|(kind, id, payload)| frame(kind, id, |out| out.extend_from_slice(&payload)).to_vec());
    let good = (2u32..40, 0usize..3).prop_map(|(id, kind)| match kind {
        0 => check(id, "key").to_vec(),
        1 => ping(id).to_vec(),
        _ => define(id, 1, "token-bucket:1/1s").to_vec(),
    });
    prop_oneof![4 => good, 2 => made, 1 => payload]
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        Peer::new(ServerConfig::default()).send(&bytes);
        Peer::open().send(&bytes);
    }

    #[test]
    fn how_bytes_are_cut_changes_nothing(
        sent in prop::collection::vec(any_frame(), 0..12).prop_map(|frames| frames.concat()),
        cut in 1usize..30,
    ) {
        let mut whole = Peer::open();
        whole.send(&sent);
        let mut parts = Peer::open();
        let mut input = BytesMut::new();
        for part in sent.chunks(cut) {
            input.extend_from_slice(part);
            parts.feed(&mut input);
        }
        let ids = |peer: &Peer| peer.requests.iter().map(|request| request.id).collect::<Vec<_>>();
        prop_assert_eq!(ids(&whole), ids(&parts));
        for peer in [&mut whole, &mut parts] {
            peer.session.part(&mut peer.output);
        }
        prop_assert_eq!(&whole.output, &parts.output);
    }
}
