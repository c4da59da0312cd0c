//! Kinds of fault that users of other rate limiters reported. Each must be impossible here.
//!
//! | kind | test |
//! |---|---|
//! | stored time floored too low | `properties::envelope::property_01_envelope_holds_after_idle_times_of_every_length` |
//! | several limits | `properties::batches::property_11_…` |
//! | expiry | `redis_store::nothing_is_left_in_redis_after_the_limits_have_reset`, `property_09_…` |
//! | retried calls | `redis_store::scripts_that_redis_forgot_…`, `redis_store::calls_of_a_hung_redis_…` |
//! | hot key | `cluster::one_key_of_many_clients_…`, `properties::batches::property_10_…` |
//! | one slow shard | `cluster::healthy_shards_do_not_wait_for_a_hung_one` |
//! | failover | `cluster::replica_of_a_killed_primary_…`, `cluster::replica_of_a_hung_primary_…` |
//! | store down at start | `redis_store::server_starts_without_its_store_and_finds_it_later` |
//! | deny cache | `deny_cache::reset_…`, and of the library `store::redis::deny::tests` |
//! | own batch over own maximum | `client::client_keeps_to_the_bounds_that_the_server_announces` |
//! | stats | `admin::decisions_are_counted_by_policy_and_reason_and_never_by_key` |
//! | the others | below |

use std::collections::HashSet;

use tollgate::{
    limit::{State, state::STATE_BYTES},
    placement::Placement,
};
use tollgate_protocol::{check::Operation, limit::Limit, policy::Limits, reply::Reason, ring::RingSecret};

use crate::{
    harness::{CLUSTER, REDIS, RedisServer, server::limits},
    stores::{Memory, Redis},
    subject::{Ask, Direct, Subject},
    trace::START_US,
};

const SECOND_US: u64 = 1_000_000;

/// Both algorithms at the same numbers.
const TEN_A_SECOND: [&str; 2] = ["token-bucket:10/1s", "sliding-window:10/1s"];

/// Runs a test against the arithmetic, memory and Redis, under a policy of these limits.
fn against_all(text: &str, test: impl Fn(&mut dyn Subject)) {
    let policies = [limits(text)];
    let mut redis = Redis::new(&REDIS.url());
    redis.configure(&policies);
    let subjects: [Box<dyn Subject>; 3] =
        [Box::new(Direct::new(&policies)), Box::new(Memory::new(&policies)), Box::new(redis)];
    for mut subject in subjects {
        test(&mut *subject);
    }
}

fn remaining(subject: &mut dyn Subject, now_us: u64) -> u64 {
    subject.ask(now_us, Ask::peek(0)).details.expect("details").remaining
}

fn retry_after_us(subject: &mut dyn Subject, now_us: u64, ask: Ask) -> Option<u64> {
    let decision = subject.ask(now_us, ask);
    assert!(!decision.allow, "{decision:?}");
    decision.details.expect("details").retry_after_us
}

/// Callers whose clocks differ used to refill a bucket by turns. Here there is one clock; should it be read as late
/// and as early by turns, nothing is gained.
#[test]
fn trap_callers_clock() {
    for limit in TEN_A_SECOND {
        against_all(limit, |subject| {
            assert!(subject.ask(START_US, Ask::check(10)).allow);
            for turn in 0..100 {
                let now_us = if turn % 2 == 0 { START_US - 9 * SECOND_US } else { START_US };
                assert!(!subject.ask(now_us, Ask::check(1)).allow, "{limit}: turn {turn}");
            }
        });
    }
}

/// A clock that steps back, by however much, refills nothing and locks nobody out.
#[test]
fn trap_clock_steps_back() {
    let steps = [1, 1_000, SECOND_US, 10 * SECOND_US, 10 * SECOND_US + 1, 60 * SECOND_US, 86_400 * SECOND_US];
    for (limit, step_us) in TEN_A_SECOND.iter().flat_map(|limit| steps.map(|step_us| (limit, step_us))) {
        against_all(limit, |subject| {
            assert!(subject.ask(START_US, Ask::check(10)).allow);
            let now_us = START_US - step_us;
            let retry_us = retry_after_us(subject, now_us, Ask::check(1)).expect("passes again");
            assert!(
                retry_us <= step_us.min(10 * SECOND_US) + 2 * SECOND_US,
                "{limit} -{step_us}: {retry_us}"
            );
            assert!(!subject.ask(now_us + retry_us - 1, Ask::check(1)).allow, "{limit} -{step_us}");
            assert!(subject.ask(now_us + retry_us, Ask::check(1)).allow, "{limit} -{step_us}");
        });
    }
}

/// What passes in the long run is the rate to the token, however high or low.
#[test]
fn trap_high_rates() {
    const CASES: [(&str, u64, u64); 6] = [
        ("token-bucket:1000/1m,burst=2", 60 * SECOND_US, 1_000),
        ("token-bucket:1001/1s,burst=2", SECOND_US, 1_001),
        ("token-bucket:700000/1s,burst=10", SECOND_US, 700_000),
        ("token-bucket:10000000/1s,burst=1000000", SECOND_US, 10_000_000),
        ("token-bucket:1/30d", 30 * 86_400 * SECOND_US, 1),
        ("token-bucket:7/30d,burst=2", 30 * 86_400 * SECOND_US, 7),
    ];
    for (limit, period_us, amount) in CASES {
        let mut subject = Direct::new(&[limits(limit)]);
        let burst = remaining(&mut subject, START_US);
        let steps = (amount / burst.max(1)).min(100_000) * 4 + 4;
        let take = Ask::new(Operation::TakeUpTo, 1 << 50);
        let taken = (0..=steps).map(|step| {
            let decision = subject.ask(START_US + period_us * step / steps, take);
            decision.granted
        });
        assert_eq!(taken.sum::<u64>(), burst + amount, "{limit}");
    }
}

/// Scripts that print numbers with 14 digits lose microseconds: what stands in Redis is exact.
#[test]
fn trap_float_text() {
    let redis = RedisServer::start();
    let policies = [limits("token-bucket:10/1s"), limits("sliding-window:4503599627/1s")];
    let (mut subject, mut direct) = (Redis::new(&redis.url()), Direct::new(&policies));
    subject.configure(&policies);
    let now_us = 1_785_123_456_789_123;
    let asks = [Ask::check(7), Ask { policy: 1, ..Ask::check(4_503_599_626) }];
    assert_eq!(subject.decide(now_us, &asks), direct.decide(now_us, &asks));
    let key: Vec<String> = redis.command(&["KEYS", "*"]);
    let states: HashSet<Vec<u8>> = redis.command(&["HVALS", &key[0]]);
    let expected = direct.keys[&0].states.iter().map(|(_, state)| state.to_bytes().to_vec());
    assert_eq!(states, expected.collect());
    assert!(states.iter().all(|state| state.len() == STATE_BYTES));
    let at = states.iter().filter_map(|state| match State::from_bytes(state[..].try_into().ok()?)? {
        State::TokenBucket(bucket) => Some(bucket.at),
        State::SlidingWindow(_) => None,
    });
    assert_eq!(at.collect::<Vec<_>>(), [now_us], "to the microsecond");
}

/// A cost that can never pass has a reason of its own, and no time to come back at.
#[test]
fn trap_cost_over_capacity() {
    for limit in TEN_A_SECOND {
        against_all(limit, |subject| {
            for cost in [11, 1 << 40, (1 << 53) - 1] {
                let decision = subject.ask(START_US, Ask::check(cost));
                assert_eq!((decision.allow, decision.reason), (false, Reason::CostOverLimit), "{limit}");
                assert_eq!(decision.details.expect("details").retry_after_us, None, "{limit}");
            }
            assert!(subject.ask(START_US, Ask::check(10)).allow, "nothing was charged");
        });
    }
}

/// A cost that does not fit burns nothing of what is left.
#[test]
fn trap_cost_not_checked_as_a_whole() {
    for limit in TEN_A_SECOND {
        against_all(limit, |subject| {
            assert!(subject.ask(START_US, Ask::check(8)).allow);
            assert!(!subject.ask(START_US, Ask::check(5)).allow);
            assert_eq!(remaining(subject, START_US), 2, "{limit}");
            let taken = subject.ask(START_US, Ask::new(Operation::TakeUpTo, 5));
            assert_eq!((taken.reason, taken.granted), (Reason::Partial, 2), "{limit}: as asked for");
        });
    }
}

/// Who keeps trying is not held back by the trying.
#[test]
fn trap_denials_that_charge() {
    for limit in TEN_A_SECOND {
        against_all(limit, |subject| {
            assert!(subject.ask(START_US, Ask::check(10)).allow);
            let retry_us = retry_after_us(subject, START_US, Ask::check(1)).expect("passes again");
            for attempt in 0..1_000 {
                assert!(!subject.ask(START_US + retry_us * attempt / 1_000, Ask::check(1)).allow);
            }
            assert!(subject.ask(START_US + retry_us, Ask::check(1)).allow, "{limit}");
        });
    }
}

/// A retry at the told time passes; one a microsecond earlier does not.
#[test]
fn trap_retry_after() {
    for limit in
        ["token-bucket:7/3s,burst=5", "sliding-window:7/3s", "token-bucket:9/1s + sliding-window:7/3s"]
    {
        against_all(limit, |subject| {
            let mut now_us = START_US;
            for cost in [1, 2, 3, 4, 5, 4, 3, 2, 1] {
                subject.ask(now_us, Ask::new(Operation::TakeUpTo, 99));
                let retry_us = retry_after_us(subject, now_us, Ask::check(cost)).expect("passes again");
                assert!(!subject.ask(now_us + retry_us - 1, Ask::check(cost)).allow, "{limit}: {cost}");
                assert!(subject.ask(now_us + retry_us, Ask::check(cost)).allow, "{limit}: {cost}");
                now_us += retry_us;
            }
        });
    }
}

/// The share of the window before is not cut to 0: one of 3 in it still counts a little before its end.
#[test]
fn trap_window_edge() {
    against_all("sliding-window:3/1s", |subject| {
        let edge_us = START_US.next_multiple_of(SECOND_US);
        assert!(subject.ask(edge_us - 1, Ask::check(1)).allow);
        let last_us = edge_us + SECOND_US - 1;
        assert!(!subject.ask(last_us, Ask::check(3)).allow, "a millionth of one counts");
        assert!(subject.ask(last_us + 1, Ask::check(3)).allow);
    });
}

/// Braces in a client's key choose no slot: such keys spread like others, and over all shards.
#[test]
fn trap_slots() {
    let placement = Placement::new(RingSecret::default(), 64, "tollgate");
    let partitions = |key: fn(u32) -> String| {
        let places = (0..1_000).map(|number| placement.partition_of(key(number).as_bytes()));
        places.collect::<HashSet<_>>().len()
    };
    assert_eq!(partitions(|number| format!("{{tenant}}:{number}")), 64);
    assert_eq!(partitions(|number| format!("tenant:{number}")), 64);

    let policies = [limits("token-bucket:10/1h")];
    let mut subject = Redis::new(&CLUSTER.url());
    subject.configure(&policies);
    // Keys of these tests have braces where their number leaves 1 over.
    let asks: Vec<_> = (0..200).map(|number| Ask { key: 4 * number + 1, ..Ask::check(1) }).collect();
    assert!(subject.decide(START_US, &asks).iter().all(|decision| decision.allow));
    for node in &CLUSTER.nodes {
        assert!(node.command::<u64>(&["DBSIZE"]) > 0, "every shard has some");
    }
}

/// A full store refuses new keys and forgets none that is limited; room that comes free is used.
#[test]
fn trap_memory() {
    let policies = [Limits::from(Limit::TokenBucket { rate: 1, period_us: 60 * SECOND_US, capacity: 1 })];
    let mut subject = Memory::with_room(&policies, 100);
    let check = |key| Ask { key, ..Ask::check(1) };
    let mut held = Vec::new();
    for key in 0..1_000 {
        let decision = subject.ask(START_US, check(key));
        match decision.reason {
            Reason::Ok => held.push(key),
            reason => {
                assert_eq!((reason, decision.allow, decision.degraded), (Reason::StoreFull, false, true))
            }
        }
    }
    assert_eq!(held.len(), 100);
    for &key in &held {
        assert_eq!(subject.ask(START_US, check(key)).reason, Reason::Denied, "a limited key is remembered");
    }
    let later_us = START_US + 60 * SECOND_US;
    for key in 2_000..2_100 {
        assert_eq!(subject.ask(later_us, check(key)).reason, Reason::Ok, "expired states make room");
    }
}
