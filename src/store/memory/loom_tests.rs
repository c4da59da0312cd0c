//! Every order in which batches and the sweep can come to the stripes. The comment of each model names the break that
//! it was seen to catch.

use std::sync::Arc;

use loom::{model::Builder, thread};

use super::{
    execution::execute_by,
    plan::Plan,
    tests::{ROOMY, Subject, allowed, check, linked},
    *,
};

/// Models in which threads are held up three times at most where they could go on. All orders, which were tried once,
/// take half a minute and come to the same.
fn model(run: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(run);
}

/// Decides a batch; how many of its checks passed. The threads of a model are one to the system, so each has a plan
/// of its own.
fn pass(subject: &Subject, items: &[tollgate_protocol::check::Item<'_>]) -> u64 {
    let mut decisions = Vec::new();
    execute_by(&mut Plan::new(), &subject.store, &subject.batch(items), &mut decisions);
    allowed(&decisions)
}

/// What each of two threads lets pass.
fn on_two_threads(
    subject: &Arc<Subject>,
    first: impl FnOnce(&Subject) -> u64 + Send + 'static,
    second: impl FnOnce(&Subject) -> u64,
) -> (u64, u64) {
    let other = {
        let subject = Arc::clone(subject);
        thread::spawn(move || first(&subject))
    };
    let second = second(subject);
    (other.join().unwrap(), second)
}

/// Two that check one key let no more pass than its limit.
///
/// Fails, by two that pass, where `decide_run` finds the states under one lock and uses them under a second, and
/// `Stripe::insert` leaves the generation as it is, which says that what was found is no longer valid.
#[test]
fn key_passes_as_often_as_its_limit_says() {
    model(|| {
        let subject = Arc::new(Subject::new(ROOMY, &["token-bucket:1/1h"]));
        let one = |subject: &Subject| pass(subject, &[check(0, 1, b"hot")]);
        let (first, second) = on_two_threads(&subject, one, one);
        assert_eq!(first + second, 1);
    });
}

/// Linked checks and a single one of the same key: no limit lets more pass, and none is charged for a group that did
/// not.
///
/// Fails, by a group of which one check passes, where `decide_group` decides each check under a lock of its own.
#[test]
fn linked_checks_pass_together_or_not_at_all() {
    model(|| {
        let subject = Arc::new(Subject::new(ROOMY, &["token-bucket:2/1h", "token-bucket:1/1h"]));
        let group = |subject: &Subject| pass(subject, &linked([check(0, 1, b"hot"), check(1, 1, b"hot")]));
        let single = |subject: &Subject| pass(subject, &[check(1, 1, b"hot")]);
        let (group, single) = on_two_threads(&subject, group, single);
        assert!((group, single) == (2, 0) || (group, single) == (0, 1), "{group} and {single}");
        let left = pass(&subject, &[check(0, 1, b"hot"), check(0, 1, b"hot")]);
        assert_eq!(left, 2 - group / 2);
        assert_eq!(pass(&subject, &[check(1, 1, b"hot")]), 0);
    });
}

/// A state that is removed while a batch is under way that read the clock before must not count as absent as of then.
///
/// Fails, by six that pass, where `Stripe::time_us` is the time that the batch read.
#[test]
fn state_that_the_sweep_removes_hands_out_nothing() {
    model(|| {
        let subject = Arc::new(Subject::new(ROOMY, &["token-bucket:1/10us,burst=2"]));
        let two = |subject: &Subject| 2 * pass(subject, &[check(0, 2, b"hot")]);
        let before = two(&subject);
        let (first, second) = on_two_threads(&subject, two, |subject| {
            // Here the other one may start, and read the clock.
            let early = two(subject);
            subject.advance(20);
            subject.sweep();
            early + two(subject)
        });
        let passed = before + first + second + two(&subject);
        assert!(passed <= 2 + 20 / 10, "{passed}");
    });
}

/// There is room for one state: of two keys one gets it, and when it has expired another one does.
///
/// Fails where `add_within` reads and writes in steps; where `reclaim` does not give room back; and, by a key that
/// nobody makes room for, where `decide_valid` does not try again after a search in vain.
#[test]
fn bounds_hold_and_room_is_given_back() {
    model(|| {
        let config = MemoryConfig { keys_max: 1, ..ROOMY };
        let subject = Arc::new(Subject::new(config, &["token-bucket:1/1s"]));
        let first = |subject: &Subject| pass(subject, &[check(0, 1, b"first")]);
        let second = |subject: &Subject| pass(subject, &[check(0, 1, b"second")]);
        let (first, second) = on_two_threads(&subject, first, second);
        assert_eq!((first + second, subject.keys()), (1, 1));
        subject.advance(1_000_000);
        let third = |subject: &Subject| pass(subject, &[check(0, 1, b"third")]);
        let (_, third) = on_two_threads(&subject, Subject::sweep, third);
        assert_eq!((third, subject.keys()), (1, 1));
    });
}
