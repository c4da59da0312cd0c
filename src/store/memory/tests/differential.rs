//! The store against a plain map: whatever is asked, the answers are the same.

use std::{collections::HashMap, ops::Range};

use proptest::{collection::vec, prelude::*};
use tollgate_protocol::limits::KEY_BYTES_MAX;

use super::*;
use crate::{
    limit::{self, Cells, Request, State, StateId},
    store::{memory::plan::Plan, refuse_invalid},
};

/// Policies of the tests; short ones expire between batches, and two share no state although they are equal
/// but for their second limit.
const POLICIES: [&str; 4] = [
    "token-bucket:4/1s",
    "sliding-window:5/2s",
    "token-bucket:4/1s + sliding-window:6/10s",
    "token-bucket:3/1m,burst=5 + sliding-window:8/1m + token-bucket:1/1s,burst=9 + sliding-window:9/1h",
];

/// A plain map that never forgets a state; it knows how many live states are too many.
struct Model {
    states: HashMap<(Vec<u8>, StateId), State>,
    states_max: usize,
}

struct KeyOfMap<'a>(&'a mut HashMap<(Vec<u8>, StateId), State>, &'a [u8]);

impl Cells for KeyOfMap<'_> {
    fn get(&mut self, id: StateId) -> Option<State> {
        self.0.get(&(self.1.to_vec(), id)).copied()
    }

    fn set(&mut self, id: StateId, state: Option<State>) {
        match state {
            Some(state) => self.0.insert((self.1.to_vec(), id), state),
            None => self.0.remove(&(self.1.to_vec(), id)),
        };
    }
}

impl Model {
    fn decide_group(&mut self, batch: &Batch, items: Range<usize>, now_us: u64) -> Vec<Decision> {
        let key = batch.key(&batch.items()[items.start]);
        let requests: Vec<Request<'_>> =
            batch.items()[items.clone()].iter().map(|item| batch.request(item).expect("is valid")).collect();
        let (mut states, mut out) = (self.states.clone(), vec![refuse(Reason::Unavailable); requests.len()]);
        limit::decide(&requests, &mut KeyOfMap(&mut states, key), now_us, &mut out);
        if states.values().filter(|state| state.expires_at_us() > now_us).count() > self.states_max {
            return items.map(|index| batch.undecided(index, Reason::StoreFull)).collect();
        }
        self.states = states;
        out
    }

    /// Decides group by group, in the order in which the store does: it tells who gets the last room.
    fn decide(&mut self, batch: &Batch, subject: &Subject) -> Vec<Decision> {
        let now_us = subject.store.clock.now_us();
        let mut out = vec![refuse(Reason::Deadline); batch.items().len()];
        let mut plan = Plan::new();
        for group in plan.stripes(batch, &subject.store.hasher).flat_map(|(_, groups)| groups) {
            let items = group.items();
            let refused = refuse_invalid(batch, items.clone());
            let decisions = refused.unwrap_or_else(|| self.decide_group(batch, items.clone(), now_us));
            out[items].copy_from_slice(&decisions);
        }
        out
    }
}

/// One check of a batch; the policy and the key are places in a list.
#[derive(Clone, Debug)]
struct Ask {
    operation: Operation,
    policy: usize,
    cost: u64,
    key: usize,
    linked: bool,
}

/// What happens between batches.
#[derive(Clone, Copy, Debug)]
struct Pause {
    /// How far the clock goes on; back, where negative.
    us: i64,
    sweep: bool,
}

fn single(keys: usize) -> impl Strategy<Value = Vec<Ask>> {
    let operation = prop_oneof![
        6 => Just(Operation::Check),
        1 => Just(Operation::Peek),
        1 => Just(Operation::Refund),
        1 => Just(Operation::Reset),
        1 => Just(Operation::Force),
        2 => Just(Operation::TakeUpTo),
        1 => Just(Operation::Unknown(7)),
    ];
    // One policy more than there are.
    (operation, 0..=POLICIES.len(), 0..8u64, 0..keys)
        .prop_map(|(operation, policy, cost, key)| vec![Ask { operation, policy, cost, key, linked: false }])
}

fn group(keys: usize) -> impl Strategy<Value = Vec<Ask>> {
    let checks = vec((0..POLICIES.len(), prop_oneof![1 => Just(0u64), 15 => 1..5u64]), 2..5);
    (checks, 0..keys).prop_map(|(checks, key)| {
        let last = checks.len() - 1;
        let ask = |(index, (policy, cost))| Ask {
            operation: Operation::Check,
            policy,
            cost,
            key,
            linked: index < last,
        };
        checks.into_iter().enumerate().map(ask).collect()
    })
}

fn batch_of(keys: usize) -> impl Strategy<Value = Vec<Ask>> {
    vec(prop_oneof![4 => single(keys), 1 => group(keys)], 1..40).prop_map(|groups| groups.concat())
}

fn forward() -> impl Strategy<Value = Pause> {
    let us = prop_oneof![Just(0), 0..2_000_000i64, 0..20_000_000i64, Just(7_200_000_000)];
    (us, any::<bool>()).prop_map(|(us, sweep)| Pause { us, sweep })
}

fn to_and_fro() -> impl Strategy<Value = Pause> {
    prop_oneof![-15_000_000..15_000_000i64, -7_200_000_000..7_200_000_000i64]
        .prop_map(|us| Pause { us, sweep: false })
}

/// Asks both the same, and in the end what remains of everything.
fn compare(
    subject: &Subject,
    states_max: usize,
    keys: &[Vec<u8>],
    turns: Vec<(Vec<Ask>, Pause)>,
) -> Result<(), TestCaseError> {
    let mut model = Model { states: HashMap::new(), states_max };
    let all = (0..POLICIES.len()).flat_map(|policy| (0..keys.len()).map(move |key| (policy, key)));
    let peeks =
        all.map(|(policy, key)| Ask { operation: Operation::Peek, policy, cost: 1, key, linked: false });
    let end = (peeks.collect(), Pause { us: 0, sweep: false });
    for (asks, pause) in turns.into_iter().chain([end]) {
        let items: Vec<_> = asks
            .iter()
            .map(|ask| Item {
                linked: ask.linked,
                ..item(ask.operation, ask.policy, ask.cost, &keys[ask.key])
            })
            .collect();
        let expected = model.decide(&subject.batch(&items), subject);
        prop_assert_eq!(subject.decide(&items), expected);
        prop_assert!(subject.keys() as usize <= states_max);
        subject.now_us.fetch_add(pause.us as u64, Ordering::AcqRel);
        if pause.sweep {
            subject.sweep();
        }
    }
    Ok(())
}

/// Keys of many lengths, some of which differ only in their last byte or in zeros at the end, and two that no
/// key may be.
fn keys() -> Vec<Vec<u8>> {
    let lengths = [1, 2, 7, 8, 9, 15, 16, 17, 64, 1_023, 1_024];
    let mut keys: Vec<_> = lengths.iter().map(|&length| vec![0; length]).collect();
    keys.extend([b"user:1".to_vec(), b"user:2".to_vec(), Vec::new(), vec![b'x'; KEY_BYTES_MAX + 1]]);
    keys
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Also: deleting states at their expiry changes no answer, for the map deletes none.
    #[test]
    fn answers_are_those_of_a_plain_map(turns in vec((batch_of(15), forward()), 1..12)) {
        compare(&Subject::new(ROOMY, &POLICIES), usize::MAX, &keys(), turns)?;
    }

    #[test]
    fn a_clock_that_steps_to_and_fro_is_read_as_by_a_plain_map(
        turns in vec((batch_of(15), to_and_fro()), 1..12),
    ) {
        compare(&Subject::new(ROOMY, &POLICIES), usize::MAX, &keys(), turns)?;
    }

    /// Room is refused exactly where live states take all of it. All keys are in one stripe, so that whoever
    /// looks for room moves the rows of those who come after.
    #[test]
    fn a_full_store_refuses_only_what_has_no_room(
        states_max in 0..14usize,
        turns in vec((batch_of(8), forward()), 1..12),
    ) {
        let config = MemoryConfig { keys_max: states_max as u64, ..ROOMY };
        let subject = Subject::new(config, &POLICIES);
        let keys = subject.keys_of_one_stripe(8);
        compare(&subject, states_max, &keys, turns)?;
    }

    /// As before, with keys of many lengths all over the store.
    #[test]
    fn a_full_store_of_many_stripes_refuses_only_what_has_no_room(
        states_max in 0..20usize,
        turns in vec((batch_of(15), forward()), 1..12),
    ) {
        let config = MemoryConfig { keys_max: states_max as u64, ..ROOMY };
        compare(&Subject::new(config, &POLICIES), states_max, &keys(), turns)?;
    }
}

#[test]
fn keys_of_every_length_are_told_apart() {
    let subject = Subject::new(ROOMY, &["token-bucket:1000000/1h"]);
    let bytes = [0; KEY_BYTES_MAX];
    let costs = 1..=KEY_BYTES_MAX as u64;
    let items: Vec<_> = costs.clone().map(|cost| check(0, cost, &bytes[..cost as usize])).collect();
    assert_eq!(allowed(&subject.decide(&items)), 1_024);
    assert_eq!(subject.keys(), 1_024);
    for cost in costs {
        assert_eq!(subject.remaining(0, &bytes[..cost as usize]), 1_000_000 - cost, "{cost} bytes");
    }
}
