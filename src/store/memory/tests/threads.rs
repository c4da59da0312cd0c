//! Many threads at once admit exactly what is promised.

use std::{
    sync::atomic::AtomicBool,
    thread::{scope, yield_now},
};

use super::*;

const THREADS: usize = 4;

/// Runs the same on several threads, which get their number; the sum of what they give.
fn on_threads(work: impl Fn(usize) -> u64 + Sync) -> u64 {
    scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                scope.spawn({
                    let work = &work;
                    move || work(number)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread that ends")).sum()
    })
}

/// Runs `work` while another thread does `beside` again and again.
fn beside<T>(beside: impl Fn() + Sync, work: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                beside();
                yield_now();
            }
        });
        let result = work();
        done.store(true, Ordering::Release);
        result
    })
}

#[test]
fn a_hot_key_passes_as_often_as_its_limit_says() {
    let subject = Subject::new(ROOMY, &["token-bucket:1000/1000s"]);
    let hammer =
        || on_threads(|_| (0..100).map(|_| allowed(&subject.decide(&[check(0, 1, b"hot"); 7]))).sum());
    assert_eq!(hammer(), 1_000);
    subject.advance(300 * SECOND_US);
    assert_eq!(hammer(), 300);
}

#[test]
fn each_of_many_keys_passes_as_often_as_its_limits_say() {
    let subject = Subject::new(ROOMY, &["token-bucket:9/1h", "token-bucket:20/1h + sliding-window:7/1h"]);
    let keys: Vec<_> = (0..300).map(|index| format!("user:{index}")).collect();
    let work = |number: usize| {
        let mut sum = 0;
        for turn in 0..10 {
            // Each thread goes another way through the keys.
            let step = [1, 7, 11, 13][number];
            let keys = (0..300).map(|index| &keys[(index * step + turn) % 300]);
            let items: Vec<_> =
                keys.flat_map(|key| [check(0, 1, key.as_bytes()), check(1, 1, key.as_bytes())]).collect();
            sum += allowed(&subject.decide(&items));
        }
        sum
    };
    let sweep = || assert_eq!(subject.sweep(), 0);
    assert_eq!(beside(sweep, || on_threads(work)), 300 * (9 + 7));
    assert!(keys.iter().all(|key| subject.remaining(0, key.as_bytes()) == 0));
    assert!(keys.iter().all(|key| subject.remaining(1, key.as_bytes()) == 0));
}

#[test]
fn linked_checks_of_many_threads_are_never_half_charged() {
    let subject = Subject::new(ROOMY, &["token-bucket:1000/1h", "token-bucket:250/1h"]);
    let group = linked([check(0, 1, b"hot"), check(1, 1, b"hot")]);
    assert_eq!(on_threads(|_| (0..200).map(|_| allowed(&subject.decide(&group))).sum()), 2 * 250);
    assert_eq!(subject.remaining(0, b"hot"), 750);
}

#[test]
fn a_clock_that_goes_on_meanwhile_gives_what_it_owes() {
    let subject = Subject::new(ROOMY, &["token-bucket:1000/10s"]);
    assert!(subject.ask(check(0, 1_000, b"hot")).allow);
    let one = || {
        subject.advance(5_000);
        allowed(&subject.decide(&[check(0, 1, b"hot"); 3]))
    };
    let meanwhile = on_threads(|_| (0..500).map(|_| one()).sum());
    // Ten seconds have passed.
    assert_eq!(meanwhile + subject.remaining(0, b"hot"), 1_000);
}

/// A state that is removed while others read the clock must not count as absent as of before.
#[test]
fn removals_meanwhile_hand_out_nothing() {
    let subject = Subject::new(ROOMY, &["token-bucket:1/10us,burst=2"]);
    let stripe = &subject.store.stripes[subject.stripe_of(b"hot")];
    let sweep = || {
        subject.advance(3);
        subject.sweep_stripe(stripe);
    };
    let work = |_| (0..20_000).map(|_| allowed(&subject.decide(&[check(0, 2, b"hot")]))).sum();
    let sum = 2 * beside(sweep, || on_threads(work));
    let passed_us = subject.now_us.load(Ordering::Acquire) - NOW_US;
    assert!(sum <= 2 + passed_us / 10, "{sum} in {passed_us} us");
}

#[test]
fn many_threads_keep_the_bounds() {
    let bytes_max = 40 * 64;
    for config in [MemoryConfig { keys_max: 40, ..ROOMY }, MemoryConfig { bytes_max, ..ROOMY }] {
        let subject = Subject::new(config, &["token-bucket:10/1h"]);
        let work = |number| {
            let ask = |index| subject.ask(check(0, 1, format!("{number}:{index:04}").as_bytes()));
            (0..500).map(|index| u64::from(ask(index).allow)).sum()
        };
        assert_eq!((on_threads(work), subject.keys()), (40, 40));
        assert_eq!(subject.bytes(), bytes_max);
    }
}

#[test]
fn many_threads_without_room_leave_nothing_half_charged() {
    let subject = Subject::new(
        MemoryConfig { keys_max: 41, ..ROOMY },
        &["token-bucket:10/1h + sliding-window:10/1h", "token-bucket:10/1s"],
    );
    let work = |number| {
        let mut sum = 0;
        for index in 0..500 {
            let (short, long) = (format!("{number}:{index}"), format!("{number}:{index}:long"));
            sum += allowed(&subject.decide(&[check(0, 1, long.as_bytes())]));
            subject.ask(check(1, 1, short.as_bytes()));
            assert!(subject.keys() <= 41);
            subject.advance(SECOND_US / 1_000);
        }
        sum
    };
    let sum = on_threads(work);
    subject.advance(SECOND_US);
    subject.sweep();
    assert_eq!(subject.keys(), 2 * sum);
}
