//! Random histories of a connection: whatever happens, each call has exactly one outcome, and it is true.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use proptest::prelude::*;
use tollgate_protocol::{
    check::CheckBatch,
    control::GoAwayReason,
    define::Define,
    limit::Limit,
    reply::{Details, ReplyItem},
};

use super::*;
use crate::{
    policy::PolicyRef,
    request::Request,
    slots::{SlotId, Slots},
    waiting::Size,
};

const ITEMS_MAX: u64 = 5;
const INFLIGHT_MAX: u64 = 3;

/// What happens next on the connection.
#[derive(Clone, Debug)]
enum Step {
    /// A call of requests, each of policy 0 to 2, some linked with the next; with a deadline in milliseconds.
    Call {
        policies: Vec<u8>,
        linked: bool,
        deadline_ms: u64,
    },
    /// A call of one request.
    CallOne {
        policy: u8,
        deadline_ms: u64,
    },
    Encode,
    /// Up to this many bytes leave.
    Write(usize),
    /// The server answers one of the frames that it has not answered.
    Answer(prop::sample::Index),
    /// Time passes, in milliseconds.
    Pass(u64),
    Credit(u16),
    /// The server will execute up to one of the frames that it knows, or all.
    GoAway(Option<prop::sample::Index>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (prop::collection::vec(0u8..3, 1..12), any::<bool>(), 1u64..100)
            .prop_map(|(policies, linked, deadline_ms)| Step::Call { policies, linked, deadline_ms }),
        5 => (0u8..3, 1u64..100).prop_map(|(policy, deadline_ms)| Step::CallOne { policy, deadline_ms }),
        6 => Just(Step::Encode),
        5 => (1usize..400).prop_map(Step::Write),
        6 => any::<prop::sample::Index>().prop_map(Step::Answer),
        1 => (0u64..30).prop_map(Step::Pass),
        1 => (1u16..6).prop_map(Step::Credit),
        1 => prop::option::of(any::<prop::sample::Index>()).prop_map(Step::GoAway),
    ];
    prop::collection::vec(step, 1..80)
}

/// A batcher, its callers, and a server that sees what was written.
struct World {
    batcher: Batcher,
    policies: Vec<PolicyRef>,
    now: Instant,
    /// Encoded and not written.
    out: BytesMut,
    /// Written and not a whole frame yet.
    wire: BytesMut,
    /// Checks that the server has not answered: id, and the number of each item.
    unanswered: BTreeMap<u32, Vec<u64>>,
    /// Frame in which the server has seen each request.
    seen: HashMap<u64, u32>,
    defines: HashMap<u64, Define>,
    last_id: u32,
    last_executed: u32,
    credit: usize,
    requests: u64,
    slots: Slots,
    /// The numbers of the requests of each call.
    calls: BTreeMap<SlotId, Range<u64>>,
}

impl World {
    fn new() -> Self {
        let registry = Arc::new(Registry::new(1));
        registry.announce_all(0, ["api".into()]);
        let limit = |text: &str| text.parse::<Limit>().unwrap();
        let api = NamedPolicy {
            name: "api".into(),
            alias: 0,
            version: 1,
            limits: limit("token-bucket:1/1s").into(),
        };
        let policies = vec![
            registry.named("api").unwrap(),
            registry.inline(limit("token-bucket:2/1s").into()).unwrap(),
            // The server refuses this one.
            registry.inline(limit("token-bucket:3/1s").into()).unwrap(),
        ];
        let hello = HelloOk {
            features: 0,
            frame_bytes_max: 4_096,
            items_max: ITEMS_MAX,
            inflight_max: INFLIGHT_MAX,
            idle_ms: 0,
            boot_id: 1,
            policies: vec![api],
        };
        Self {
            batcher: Batcher::new("server".into(), registry, hello).unwrap(),
            policies,
            now: Instant::now(),
            out: BytesMut::new(),
            wire: BytesMut::new(),
            unanswered: BTreeMap::new(),
            seen: HashMap::new(),
            defines: HashMap::new(),
            last_id: HELLO_ID,
            last_executed: u32::MAX,
            credit: INFLIGHT_MAX as usize,
            requests: 0,
            slots: Slots::default(),
            calls: BTreeMap::new(),
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Call { policies, linked, deadline_ms } => self.call(&policies, linked, deadline_ms),
            Step::CallOne { policy, deadline_ms } => self.call_one(policy, deadline_ms),
            Step::Encode => self.encode(),
            Step::Write(bytes) => self.write(bytes),
            Step::Answer(index) => self.answer(index),
            Step::Pass(time_ms) => {
                self.now += Duration::from_millis(time_ms);
                self.batcher.expire(self.now);
            }
            Step::Credit(inflight_max) => {
                self.credit = usize::from(inflight_max);
                self.tell(FrameType::Credit, 0, |out| Credit { inflight_max }.encode(out));
            }
            Step::GoAway(index) => self.go_away(index),
        }
    }

    fn deadline(&self, deadline_ms: u64) -> Instant {
        self.now + Duration::from_millis(deadline_ms)
    }

    /// As the connection does: a batcher that was left is handed nothing.
    fn takes_calls(&self) -> bool {
        !self.batcher.leaving
    }

    /// A slot for the next `count` requests.
    fn open(&mut self, count: u64) -> SlotId {
        let slot = self.slots.open(None);
        self.calls.insert(slot, self.requests..self.requests + count);
        self.requests += count;
        slot
    }

    /// A request whose key and cost are its number.
    fn call_one(&mut self, policy: u8, deadline_ms: u64) {
        if !self.takes_calls() {
            return;
        }
        let (number, deadline) = (self.requests, self.deadline(deadline_ms));
        let slot = self.open(1);
        let key = number.to_string();
        let request = Request::check(&self.policies[usize::from(policy)], &key).cost(number);
        self.batcher.ready.push_request(&request, slot, deadline);
    }

    /// Requests whose cost is their number, in groups of one key, in as many calls as they need.
    fn call(&mut self, policies: &[u8], linked: bool, deadline_ms: u64) {
        if !self.takes_calls() {
            return;
        }
        let deadline = self.deadline(deadline_ms);
        for call in policies.chunks(ITEMS_MAX as usize) {
            let first = self.requests;
            let slot = self.open(call.len() as u64);
            let mut numbers = first..;
            for policies in call.chunks(if linked { 3 } else { 1 }) {
                let key = numbers.start.to_string();
                let requests =
                    policies.iter().zip(numbers.by_ref()).enumerate().map(|(index, (policy, number))| {
                        let mut request =
                            Request::check(&self.policies[usize::from(*policy)], &key).cost(number);
                        request.linked = index + 1 < policies.len();
                        request
                    });
                self.batcher.ready.push_group(Size::of_group(policies.len(), key.len()), requests);
            }
            self.batcher.ready.push_call(slot, deadline);
        }
    }

    fn encode(&mut self) {
        let in_flight = self.batcher.pending.len();
        self.batcher.encode(self.now, &mut self.out);
        assert!(self.batcher.pending.len() <= self.credit.max(in_flight), "more in flight than the credit");
    }

    fn write(&mut self, bytes: usize) {
        let bytes = bytes.min(self.out.len());
        self.wire.extend_from_slice(&self.out.split_to(bytes));
        self.batcher.written(bytes);
        while let Some(frame) = self.batcher.format().decode(&mut self.wire).unwrap() {
            assert!(frame.id > self.last_id, "ids rise");
            self.last_id = frame.id;
            match frame.kind {
                FrameType::Define => self.define(&frame),
                FrameType::Check => self.check(frame),
                kind => panic!("{kind:?}"),
            }
        }
    }

    fn define(&mut self, frame: &Frame) {
        let define = Define::decode(&frame.payload).unwrap();
        let refused = is_refused(&define).then(|| "no".into());
        assert!(self.defines.insert(define.alias, define).is_none(), "defined twice");
        if frame.id <= self.last_executed {
            self.tell(FrameType::Defined, frame.id, |out| Defined { refused }.encode(out));
        }
    }

    fn check(&mut self, frame: Frame) {
        if frame.id > self.last_executed {
            return;
        }
        let batch = CheckBatch::decode(frame.payload, ITEMS_MAX as usize).unwrap();
        assert!(batch.deadline_us.is_some_and(|deadline_us| (1..=100_000).contains(&deadline_us)));
        let mut numbers = Vec::new();
        for item in &batch.items {
            assert!(
                item.alias == 0 || self.defines.contains_key(&u64::from(item.alias)),
                "used before its DEFINE"
            );
            assert!(self.seen.insert(item.cost, frame.id).is_none(), "sent twice");
            numbers.push(if self.is_refused(item.alias) { u64::MAX } else { item.cost });
        }
        self.unanswered.insert(frame.id, numbers);
    }

    fn is_refused(&self, alias: u32) -> bool {
        self.defines.get(&u64::from(alias)).is_some_and(is_refused)
    }

    fn answer(&mut self, index: prop::sample::Index) {
        if !self.unanswered.is_empty() {
            let id = *self.unanswered.keys().nth(index.index(self.unanswered.len())).unwrap();
            self.answer_id(id);
        }
    }

    fn answer_id(&mut self, id: u32) {
        let numbers = self.unanswered.remove(&id).unwrap();
        self.tell(FrameType::Reply, id, |out| {
            reply::put_count(out, numbers.len());
            numbers.into_iter().for_each(|number| reply_item(number).encode(out));
        });
    }

    fn go_away(&mut self, index: Option<prop::sample::Index>) {
        let last_id = match index {
            Some(index) if self.last_executed == u32::MAX => {
                // The server may not take back what it has answered: it names the last frame that it has seen,
                // or one before it that has no answer.
                let ids: Vec<_> = self.unanswered.keys().copied().chain([self.last_id]).collect();
                let last_id = ids[index.index(ids.len())];
                let dropped = self.unanswered.split_off(&(last_id + 1));
                let answered_above = self.seen.values().any(|&id| id > last_id && !dropped.contains_key(&id));
                if answered_above {
                    self.unanswered.extend(dropped);
                    return;
                }
                self.seen.retain(|_, id| *id <= last_id);
                self.last_executed = last_id;
                last_id
            }
            _ => self.last_executed,
        };
        let go_away = GoAway { last_id, reason: GoAwayReason::Shutdown, reconnect_within_ms: 7 };
        let event = self.tell(FrameType::GoAway, 0, |out| go_away.encode(out));
        assert_eq!(event, Event::GoAway(Duration::from_millis(7)));
    }

    fn tell(&mut self, kind: FrameType, id: u32, write: impl FnOnce(&mut BytesMut)) -> Event {
        let mut bytes = BytesMut::new();
        self.batcher.format().encode(&mut bytes, kind, id, write);
        let frame = self.batcher.format().decode(&mut bytes).unwrap().unwrap();
        self.batcher.handle(&frame).unwrap()
    }

    /// Answers all that the server has seen, sends and answers what is left, and then breaks the connection.
    fn finish(mut self, answer_all: bool) {
        if answer_all {
            self.tell(FrameType::Credit, 0, |out| Credit { inflight_max: 4 }.encode(out));
            self.credit = 4;
            while !self.out.is_empty() || !self.unanswered.is_empty() || self.can_encode() {
                self.encode();
                self.write(usize::MAX);
                while let Some((&id, _)) = self.unanswered.first_key_value() {
                    self.answer_id(id);
                }
            }
            assert!(self.batcher.pending.is_empty(), "every batch that was answered gave its credit back");
            assert_eq!(self.batcher.has_credit(), self.takes_calls());
        }
        self.batcher.close(&"broken".into());
        assert_eq!(self.batcher.first_deadline(), None);
        for done in std::mem::take(&mut self.batcher.done) {
            let numbers = self.calls.remove(&done.slot).expect("two outcomes for one call");
            match done.outcome {
                Outcome::One(answer) => self.judge_all(numbers, vec![answer]),
                Outcome::Many(answers) => self.judge_all(numbers, answers),
                Outcome::NotExecuted => {
                    assert!(!numbers.clone().any(|number| self.seen.contains_key(&number)), "{numbers:?}");
                }
                Outcome::Failed(error) => numbers.for_each(|number| self.judge(number, &Err(error.clone()))),
            }
        }
        assert!(self.calls.is_empty(), "an outcome for each call");
    }

    fn judge_all(&self, numbers: Range<u64>, answers: Vec<Answer>) {
        assert_eq!(answers.len() as u64, numbers.end - numbers.start, "an answer for each request");
        numbers.zip(&answers).for_each(|(number, answer)| self.judge(number, answer));
    }

    fn can_encode(&self) -> bool {
        self.batcher.has_credit() && !self.batcher.ready.is_empty()
    }

    /// Whether an answer agrees with what the server has seen.
    fn judge(&self, number: u64, answer: &Answer) {
        let executed = self.seen.contains_key(&number);
        match answer {
            Ok(decision) => {
                assert!(executed);
                assert_eq!(decision.remaining, Some(number), "another's answer");
            }
            Err(error) if error.ambiguous() => {}
            Err(CheckError::PolicyRefused { reason, .. }) => assert_eq!(&**reason, "no"),
            Err(error) => assert!(!executed, "request {number} was executed: {error}"),
        }
    }
}

fn is_refused(define: &Define) -> bool {
    define.limits.as_slice()[0].ceiling() == 3
}

/// The decision of a request, which carries its number; `u64::MAX` for one of a policy that was refused.
fn reply_item(number: u64) -> ReplyItem {
    if number == u64::MAX {
        let reason = Reason::UnknownPolicy;
        return ReplyItem { allow: false, degraded: false, reason, granted: 0, details: None };
    }
    let details = Some(Details { remaining: number, ..Details::default() });
    ReplyItem { allow: true, degraded: false, reason: Reason::Ok, granted: 0, details }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn each_call_has_one_true_outcome(steps in steps(), answer_all: bool) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
        }
        world.finish(answer_all);
    }
}
