//! Whatever is asked in whatever order, a denial that is told was one that the store would have given.

use std::collections::{HashMap, HashSet, VecDeque};

use proptest::{prelude::*, strategy::ValueTree};

use super::*;
use crate::limit::{self, Cells, State, StateId};

/// By how much the shard's clock is ahead of the instants of the test.
const SHARD_START_US: u64 = 1_785_002_400_000_000;

const KEYS: [&[u8]; 2] = [b"user:1", b"user:2"];

/// What happens next.
#[derive(Clone, Debug)]
enum Event {
    /// Time passes, in microseconds.
    Wait(u64),
    /// A batch is asked.
    Ask { details: bool, items: Vec<(Operation, u64, u64, usize)> },
    /// The shard runs some of the calls that it has not run. They may have been redirected, and come in any order.
    Run(Vec<usize>),
    /// Some of the answers that are on their way arrive.
    Answer(Vec<usize>),
    /// The limits change.
    Redefine,
}

fn places() -> impl Strategy<Value = Vec<usize>> {
    // Mostly the first.
    prop::collection::vec(prop_oneof![4 => Just(0), 1 => 0..8usize], 1..8)
}

fn event() -> impl Strategy<Value = Event> {
    let operation = prop_oneof![
        12 => Just(Operation::Check),
        2 => Just(Operation::TakeUpTo),
        1 => Just(Operation::Force),
        1 => Just(Operation::Refund),
        1 => Just(Operation::Reset),
    ];
    let item = (operation, 0..2u64, 1..=6u64, 0..KEYS.len());
    prop_oneof![
        60 => (0..4_000u64).prop_map(Event::Wait),
        60 => (any::<bool>(), prop::collection::vec(item, 1..4))
            .prop_map(|(details, items)| Event::Ask { details, items }),
        60 => places().prop_map(Event::Run),
        60 => places().prop_map(Event::Answer),
        1 => Just(Event::Redefine),
    ]
}

/// An item that the cache did not answer.
struct Call {
    batch: Arc<Batch>,
    index: usize,
    version: u64,
    sent_us: u64,
}

/// Takes what is at these places out of a queue.
fn take_out<T>(queue: &mut VecDeque<T>, places: &[usize]) -> Vec<T> {
    places.iter().filter_map(|&place| queue.remove(place)).collect()
}

/// The states of a key under a policy.
type Place = (u32, Vec<u8>);

/// The store, the cache before it, and what is between them.
struct World {
    cache: DenyCache,
    now_us: u64,
    version: u64,
    policies: Arc<SessionPolicies>,
    states: HashMap<(StateId, Vec<u8>), State>,
    /// The version under which the states of a place were written.
    written: HashMap<Place, u64>,
    /// Places whose states were read under another version.
    converted: HashSet<Place>,
    to_run: VecDeque<Call>,
    to_answer: VecDeque<(Call, Decision)>,
    /// Checks that the cache answered and that were compared.
    compared: usize,
}

/// Each version has limits that no other has.
fn versioned_policies(version: u64) -> Arc<SessionPolicies> {
    let bucket = format!("token-bucket:{}/200ms,burst=6", 4 + version);
    let both = format!("sliding-window:6/{}us + token-bucket:9/300ms", 100_000 + version);
    policies(&[&bucket, &both])
}

struct KeyCells<'a>(&'a mut HashMap<(StateId, Vec<u8>), State>, &'a [u8]);

impl Cells for KeyCells<'_> {
    fn get(&mut self, id: StateId) -> Option<State> {
        self.0.get(&(id, self.1.to_vec())).copied()
    }

    fn set(&mut self, id: StateId, state: Option<State>) {
        let place = (id, self.1.to_vec());
        match state {
            Some(state) => self.0.insert(place, state),
            None => self.0.remove(&place),
        };
    }
}

impl World {
    fn new(entries: usize) -> Self {
        Self {
            cache: DenyCache::with_secret(entries, [1, 2]),
            now_us: 1,
            version: 0,
            policies: versioned_policies(0),
            states: HashMap::new(),
            written: HashMap::new(),
            converted: HashSet::new(),
            to_run: VecDeque::new(),
            to_answer: VecDeque::new(),
            compared: 0,
        }
    }

    fn at(&self, us: u64) -> Instant {
        self.cache.started + Duration::from_micros(us)
    }

    /// What the shard says now.
    fn decide(&mut self, batch: &Batch, index: usize) -> Decision {
        let item = &batch.items()[index];
        let mut cells = KeyCells(&mut self.states, batch.key(item));
        let mut decisions = [refuse(Reason::Unavailable)];
        let now_us = SHARD_START_US + self.now_us;
        limit::decide(&[batch.request(item).unwrap()], &mut cells, now_us, &mut decisions);
        decisions[0]
    }

    fn run(&mut self, call: &Call) -> Decision {
        let item = &call.batch.items()[call.index];
        let place = (item.alias, call.batch.key(item).to_vec());
        if *self.written.get(&place).unwrap_or(&call.version) != call.version {
            self.converted.insert(place.clone());
        }
        let decision = self.decide(&call.batch, call.index);
        if decision.reason != Reason::Denied {
            self.written.insert(place, call.version);
        }
        decision
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Wait(us) => self.now_us += us,
            Event::Redefine => {
                self.version += 1;
                self.policies = versioned_policies(self.version);
            }
            Event::Ask { details, items } => self.ask(details, &items),
            Event::Run(places) => {
                for call in take_out(&mut self.to_run, &places) {
                    let decision = self.run(&call);
                    self.to_answer.push_back((call, decision));
                }
            }
            Event::Answer(places) => {
                for (call, decision) in take_out(&mut self.to_answer, &places) {
                    let (sent, now) = (self.at(call.sent_us), self.at(self.now_us));
                    let items = call.index..call.index + 1;
                    self.cache.decided(&call.batch, items, &[decision], sent, now);
                }
            }
        }
    }

    fn ask(&mut self, details: bool, items: &[(Operation, u64, u64, usize)]) {
        let items: Vec<_> = items
            .iter()
            .map(|&(operation, policy, cost, key)| item(operation, policy, cost, KEYS[key]))
            .collect();
        let batch = Arc::new(batch(&self.policies, details, &items));
        for index in 0..items.len() {
            match self.cache.before(&batch, index..index + 1, self.at(self.now_us)) {
                None => {
                    let call = Call {
                        batch: Arc::clone(&batch),
                        index,
                        version: self.version,
                        sent_us: self.now_us,
                    };
                    self.to_run.push_back(call);
                }
                Some(told) => self.assert_denied(&batch, index, told),
            }
        }
    }

    /// A denial is one that the store would give now, or would have given before a reset or refund that nobody was
    /// told of yet. Where a state was read under another version, it is one that the store gave.
    fn assert_denied(&mut self, batch: &Batch, index: usize, told: Decision) {
        assert_eq!((told.allow, told.degraded, told.reason), (false, false, Reason::DeniedCached));
        let item = &batch.items()[index];
        assert_eq!(item.operation, Operation::Check);
        let key = batch.key(item);
        let drops = |(call, _): &(Call, Decision)| {
            let other = &call.batch.items()[call.index];
            matches!(other.operation, Operation::Refund | Operation::Reset) && call.batch.key(other) == key
        };
        if self.to_answer.iter().any(drops) || self.converted.contains(&(item.alias, key.to_vec())) {
            return;
        }
        self.compared += 1;
        let before = self.states.clone();
        let now = self.decide(batch, index);
        self.states = before;
        assert_eq!(now.reason, Reason::Denied, "{item:?}: {told:?}");
        let (now, told) = (now.details.unwrap(), told.details.unwrap());
        assert!(told.remaining < item.cost && now.remaining < item.cost);
        assert!(told.retry_after_us > Some(0) && now.retry_after_us > Some(0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn denials_that_are_told_would_have_been_given(
        entries in prop_oneof![Just(1usize), Just(64)],
        events in prop::collection::vec(event(), 1..400),
    ) {
        let mut world = World::new(entries);
        events.into_iter().for_each(|event| world.take(event));
    }
}

/// The property above would hold of a cache that knows nothing.
#[test]
fn cache_answers_many_checks_of_the_model() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut compared = 0;
    for _ in 0..64 {
        let events = prop::collection::vec(event(), 400).new_tree(&mut runner).unwrap().current();
        let mut world = World::new(64);
        events.into_iter().for_each(|event| world.take(event));
        compared += world.compared;
    }
    assert!(compared > 500, "{compared} checks were answered by the cache");
}
