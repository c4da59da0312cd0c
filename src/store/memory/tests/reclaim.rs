//! Removal of states that are the same as none.

use std::time::Duration;

use super::*;

fn fill(subject: &Subject, policy: usize, keys: usize) {
    let keys: Vec<_> = (0..keys).map(|index| format!("{policy}:user:{index:012}")).collect();
    for keys in keys.chunks(1_000) {
        let items: Vec<_> = keys.iter().map(|key| check(policy, 1, key.as_bytes())).collect();
        assert_eq!(allowed(&subject.decide(&items)), items.len() as u64);
    }
}

#[test]
fn states_are_removed_at_the_instant_of_their_expiry() {
    let subject = Subject::new(ROOMY, &["token-bucket:10/10s", "sliding-window:10/10s"]);
    subject.decide(&[check(0, 3, b"a"), check(1, 3, b"a")]);
    subject.advance(3 * SECOND_US - 1);
    assert_eq!((subject.sweep(), subject.keys()), (0, 2));
    subject.advance(1);
    assert_eq!((subject.sweep(), subject.keys()), (1, 1));
    subject.advance(17 * SECOND_US - 1);
    assert_eq!((subject.sweep(), subject.keys()), (0, 1), "the window before still counts");
    subject.advance(1);
    assert_eq!((subject.sweep(), subject.keys(), subject.bytes()), (1, 0, 0));
}

#[test]
fn live_states_stay_and_go_on() {
    let subject = Subject::new(ROOMY, &["token-bucket:10/1s", "token-bucket:10/1h"]);
    fill(&subject, 0, 5_000);
    fill(&subject, 1, 3_000);
    subject.advance(10 * SECOND_US);
    assert_eq!((subject.sweep(), subject.keys()), (5_000, 3_000));
    let live: Vec<_> = (0..3_000).map(|index| format!("1:user:{index:012}")).collect();
    for key in &live {
        assert_eq!(subject.remaining(1, key.as_bytes()), 9);
    }
}

#[test]
fn memory_is_given_back() {
    let subject = Subject::new(ROOMY, &["token-bucket:10/1s", "token-bucket:10/1h"]);
    fill(&subject, 0, 50_000);
    let full_bytes = subject.allocated_bytes();
    fill(&subject, 1, 500);
    subject.advance(10 * SECOND_US);
    subject.sweep();
    assert_eq!(subject.keys(), 500);
    assert!(subject.allocated_bytes() < full_bytes / 10, "{} bytes are left", subject.allocated_bytes());
    subject.advance(3_600 * SECOND_US);
    subject.sweep();
    assert_eq!((subject.keys(), subject.bytes()), (0, 0));
    // An empty list for each length of rows.
    assert!(subject.allocated_bytes() < 100_000, "{} bytes are left", subject.allocated_bytes());
}

#[test]
fn no_less_is_counted_than_states_take() {
    let subject = Subject::new(ROOMY, &["token-bucket:10/1h"]);
    let empty_bytes = subject.allocated_bytes();
    for keys in [100_000, 150_000, 200_000] {
        fill(&subject, 0, keys);
        // In each of the 256 stripes: a chunk of 16 rows that is not full, and the list of row lengths.
        let spare_bytes = 256 * (16 * 64 + 256);
        let taken_bytes = subject.allocated_bytes() - empty_bytes;
        assert!(taken_bytes as u64 <= subject.bytes() + spare_bytes, "{taken_bytes} of {}", subject.bytes());
    }
}

#[test]
fn a_reset_or_a_whole_refund_frees_the_state() {
    let subject = Subject::new(ROOMY, &["token-bucket:10/1h + sliding-window:10/1h"]);
    for free in [item(Operation::Reset, 0, 1, b"a"), item(Operation::Refund, 0, 3, b"a")] {
        subject.ask(check(0, 3, b"a"));
        assert_eq!(subject.keys(), 2);
        subject.ask(free);
        assert_eq!((subject.keys(), subject.bytes()), (0, 0));
    }
}

#[test]
fn a_step_is_bounded_and_steps_reach_every_state() {
    let subject = Subject::new(ROOMY, &["token-bucket:10/1s"]);
    let keys = subject.keys_of_one_stripe(600);
    let items: Vec<_> = keys.iter().map(|key| check(0, 1, key)).collect();
    subject.decide(&items);
    subject.advance(SECOND_US);
    let stripe = &subject.store.stripes[subject.stripe_of(&keys[0])].0;
    let steps: Vec<_> = (0..3).map(|_| subject.store.step(stripe)).collect();
    assert_eq!(steps.iter().map(|step| step.visited).collect::<Vec<_>>(), [256, 256, 88]);
    assert_eq!(steps.iter().map(|step| step.finished).collect::<Vec<_>>(), [false, false, true]);
    assert_eq!(subject.keys(), 0);
}

#[test]
fn states_that_come_and_go_between_steps_hide_none() {
    let subject = Subject::new(ROOMY, &["token-bucket:10/1s", "token-bucket:10/1h"]);
    let keys = subject.keys_of_one_stripe(900);
    let stripe = &subject.store.stripes[subject.stripe_of(&keys[0])].0;
    let (short, long) = keys.split_at(600);
    subject.decide(&short.iter().map(|key| check(0, 1, key)).collect::<Vec<_>>());
    subject.advance(SECOND_US);
    let mut long = long.chunks(100);
    loop {
        let step = subject.store.step(stripe);
        if let Some(keys) = long.next() {
            subject.decide(&keys.iter().map(|key| check(1, 1, key)).collect::<Vec<_>>());
            subject.ask(item(Operation::Reset, 1, 1, &keys[0]));
        }
        if step.finished {
            break;
        }
    }
    assert_eq!(subject.keys(), 3 * 99, "what was expired when the pass began is gone, and nothing else");
}

#[test]
fn a_clock_that_steps_back_removes_nothing_that_counts() {
    for back_us in [5 * SECOND_US, 3_600 * SECOND_US] {
        let subject = Subject::new(ROOMY, &["token-bucket:10/10s", "sliding-window:10/10s"]);
        subject.decide(&[check(0, 10, b"a"), check(1, 10, b"a")]);
        subject.step_back(back_us);
        assert_eq!((subject.sweep(), subject.keys()), (0, 2));
        assert_eq!(allowed(&subject.decide(&[check(0, 1, b"a"), check(1, 1, b"a")])), 0);
    }
}

/// Otherwise a key would get twice what it may: once as of now, once when the clock is there again.
#[test]
fn after_a_removal_a_clock_that_is_behind_stands_still() {
    let subject = Subject::new(ROOMY, &["token-bucket:10/10s"]);
    assert!(subject.ask(check(0, 10, b"a")).allow);
    subject.advance(10 * SECOND_US);
    assert_eq!(subject.sweep(), 1);
    subject.step_back(5 * SECOND_US);
    assert!(subject.ask(check(0, 10, b"a")).allow);
    subject.advance(5 * SECOND_US);
    assert!(!subject.ask(check(0, 1, b"a")).allow);
    subject.advance(SECOND_US);
    assert!(subject.ask(check(0, 1, b"a")).allow);
}

#[test]
fn after_a_removal_a_clock_that_is_far_behind_is_believed() {
    let subject = Subject::new(ROOMY, &["token-bucket:10/10s"]);
    assert!(subject.ask(check(0, 10, b"a")).allow);
    subject.advance(10 * SECOND_US);
    assert_eq!(subject.sweep(), 1);
    subject.step_back(3_600 * SECOND_US);
    assert!(subject.ask(check(0, 10, b"a")).allow);
    subject.advance(SECOND_US);
    assert_eq!(subject.remaining(0, b"a"), 1, "the bucket fills again, an hour before it would");
}

#[tokio::test(start_paused = true)]
async fn the_background_pass_takes_about_a_second() {
    let subject = Subject::new(ROOMY, &["token-bucket:10/1s"]);
    fill(&subject, 0, 20_000);
    let metrics = &subject.store.metrics;
    let sweep = |duration| tokio::time::timeout(duration, subject.store.sweep());
    assert!(sweep(Duration::from_millis(1_100)).await.is_err());
    assert_eq!(subject.keys(), 20_000);
    assert_eq!((metrics.memory_keys.get(), metrics.memory_bytes.get()), (20_000, 20_000 * 80));
    subject.advance(10 * SECOND_US);
    assert!(sweep(Duration::from_millis(1_100)).await.is_err());
    assert_eq!(subject.keys(), 0);
    assert_eq!((metrics.memory_keys.get(), metrics.memory_bytes.get()), (0, 0));
}
