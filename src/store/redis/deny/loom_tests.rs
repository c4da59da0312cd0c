//! Every order in which a denial and a drop can meet. The comment of each model names the break that it was seen to
//! catch.

use loom::{
    model,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};
use tollgate_protocol::reply::Reason;

use super::tests::{Subject, batch, check, denied, reset};
use crate::limit::decide::refuse;

/// A shard, the cache before it, and a clock that goes on whenever it is read.
struct World {
    subject: Subject,
    clock_us: AtomicU64,
    /// Whether the shard denies: until it is reset.
    denies: AtomicBool,
}

impl World {
    fn new() -> Arc<Self> {
        let (clock_us, denies) = (AtomicU64::new(1), AtomicBool::new(true));
        Arc::new(Self { subject: Subject::new(1), clock_us, denies })
    }

    fn now_us(&self) -> u64 {
        self.clock_us.fetch_add(1, Ordering::SeqCst)
    }

    /// A check that is sent, run and learnt from.
    fn learn(&self) {
        let sent_us = self.now_us();
        if self.denies.load(Ordering::SeqCst) {
            let answered_us = self.now_us();
            self.subject.decided(check(1), denied(500_000), sent_us, answered_us);
        }
    }

    fn is_denied(&self) -> bool {
        self.subject.is_denied(check(1), self.now_us())
    }
}

/// Once a reset is answered, no denial is told that the shard gave before it.
///
/// Fails, by a denial after the answer, where `Set::remember` does not look at the last drop; where
/// `DenyCache::decided` does not drop; and where `DenyCache::remember` compares with the last drop under one lock and
/// writes under a second.
#[test]
fn denial_is_not_remembered_past_a_reset() {
    model(|| {
        let world = World::new();
        let others = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.learn())
        };
        assert_eq!(world.subject.before(reset(), world.now_us()), None);
        world.denies.store(false, Ordering::SeqCst);
        world.subject.decided(reset(), refuse(Reason::Ok), 0, world.now_us());
        assert!(!world.is_denied());
        others.join().unwrap();
        assert!(!world.is_denied());
    });
}

/// A check that stands behind a reset in its batch is left to the shard, whatever others learn meanwhile.
///
/// Fails, by a denial of the check, where `Set::recall` finds what was sent later than it is looked for; where
/// `Set::remember` does not look at the last drop; and where `DenyCache::before` does not drop.
#[test]
fn check_behind_a_reset_is_not_answered_before_it() {
    model(|| {
        let world = World::new();
        world.learn();
        let others = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.learn())
        };
        let batch = batch(&world.subject.policies, true, &[reset(), check(1)]);
        let now = world.subject.at(world.now_us());
        assert_eq!(world.subject.cache.before(&batch, 0..1, now), None);
        assert_eq!(world.subject.cache.before(&batch, 1..2, now), None);
        others.join().unwrap();
    });
}
