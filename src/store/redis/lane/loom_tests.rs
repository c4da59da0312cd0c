//! Every order in which checks can come to a lane and leave it. The comment of each model names the break that it was
//! seen to catch.

use loom::{model, thread};

use super::*;

/// More than half of what a lane takes: two do not fit.
const ITEMS: usize = QUEUED_ITEMS_MAX / 2 + 1;

/// Of two that come to an idle lane at once and do not fit together, one is taken: the bound holds, and an idle lane
/// refuses nobody.
///
/// Fails, by none that is taken, where `try_hold` reads the number again after it has added to it; and, by two that
/// are, where it reads the number first and adds to it then.
#[test]
fn one_of_two_that_come_at_once_is_taken() {
    model(|| {
        let backlog = Backlog::default();
        let other = {
            let backlog = backlog.clone();
            thread::spawn(move || backlog.try_hold(ITEMS))
        };
        let own = backlog.try_hold(ITEMS);
        let other = other.join().unwrap();
        assert_eq!(usize::from(own.is_some()) + usize::from(other.is_some()), 1);
    });
}

/// What has left counts no more: then any number fits again.
///
/// Fails, by a number that does not fit, where `Held` gives back by a read and a write, and where a refusal keeps
/// what it has added.
#[test]
fn lane_that_all_have_left_takes_any_number() {
    model(|| {
        let backlog = Backlog::default();
        let redirected = backlog.hold(ITEMS);
        let other = {
            let backlog = backlog.clone();
            thread::spawn(move || drop(backlog.try_hold(ITEMS)))
        };
        drop(redirected);
        drop(backlog.try_hold(1));
        other.join().unwrap();
        assert!(backlog.try_hold(2 * QUEUED_ITEMS_MAX).is_some());
    });
}
