//! The script, and the calls of it: many checks of one partition in one round trip.

use std::{
    collections::HashMap,
    ops::Range,
    sync::{Arc, LazyLock},
};

use redis::{Cmd, Value};
use smallvec::SmallVec;
use tokio::time::Instant;
use tollgate_protocol::check::{CheckItem, Operation};

use crate::{
    batch::Batch,
    limit::{Cells, Decision, PolicyLimit, Request, State, StateId, decide, state::STATE_BYTES},
};

/// Most states that a call touches: it holds its shard for some 100 us.
pub(super) const FIELDS_MAX: usize = 128;

/// Most steps of a call, for keys that are asked different things again and again.
const STEPS_MAX: usize = 1_024;

const CHARGE: &str = include_str!("charge.lua");

/// The script as Redis knows it.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) text: String,
    pub(super) sha: String,
}

impl Script {
    fn new(prelude: &str) -> Self {
        let text = format!("{prelude}\n{CHARGE}");
        let sha = sha1_smol::Sha1::from(&text).digest().to_string();
        Self { text, sha }
    }
}

/// The script that reads the shard's clock.
pub(super) static ON_SHARD_CLOCK: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("prelude_shard_clock.lua")));

/// The script whose time is an argument, for tests.
pub(super) static ON_ARGUMENT: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("prelude_argument_clock.lua")));

/// How a step is tied to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    None = 0,
    Next = 1,
    Last = 2,
}

/// One operation on one or more keys.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Step {
    operation: u8,
    link: Link,
    rules: Rules,
    /// Index of the first key's first field.
    field_first: u16,
    /// Keys, whose fields follow one another.
    keys: u16,
    /// Times that each key is asked.
    times: u32,
    cost: u64,
}

/// Some rules of a call that follow one another: those of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rules {
    first: u16,
    count: u8,
}

/// A group of linked items of one batch.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// Which of the batches that share a pipeline.
    pub(super) work: usize,
    /// Its items.
    pub(super) items: Range<usize>,
    /// For each item, the index of the first field of its policy and key.
    fields: Range<usize>,
}

/// A call under construction, and afterwards what is needed to send it and to read its answer.
#[derive(Debug)]
pub(super) struct Call {
    /// The partition that all its keys are in.
    pub(super) partition: usize,
    /// The groups that it answers.
    pub(super) groups: Vec<Group>,
    fields: Vec<Vec<u8>>,
    rules: Vec<PolicyLimit>,
    steps: Vec<Step>,
    /// First field of each item, of all groups.
    item_fields: Vec<u16>,
    /// Of a field: its index. Fields of one policy and key follow one another.
    index_of_field: HashMap<Vec<u8>, u16, ahash::RandomState>,
    /// Of a policy's first state: its rules.
    rules_of_policy: HashMap<StateId, Rules, ahash::RandomState>,
    /// Of a field that starts a key: the last step that touches it.
    step_of_field: HashMap<u16, usize, ahash::RandomState>,
}

impl Call {
    pub(super) fn new(partition: usize) -> Self {
        Self {
            partition,
            groups: Vec::new(),
            fields: Vec::new(),
            rules: Vec::new(),
            steps: Vec::new(),
            item_fields: Vec::new(),
            index_of_field: HashMap::default(),
            rules_of_policy: HashMap::default(),
            step_of_field: HashMap::default(),
        }
    }

    /// Adds a group of valid items, or answers `false` where it has no room or reads a state by other rules.
    pub(super) fn add(&mut self, work: usize, batch: &Batch, items: Range<usize>) -> bool {
        let group = &batch.items()[items.clone()];
        let requests = valid_requests(batch, group);
        let fields_new: usize = requests.iter().map(|request| request.limits.len()).sum();
        // An empty call has room for any group: `LINKED_MAX` checks of `LIMITS_MAX` limits each.
        let fits =
            self.fields.len() + fields_new <= FIELDS_MAX && self.steps.len() + group.len() <= STEPS_MAX;
        if !(fits && requests.iter().all(|request| self.knows_rules(request.limits))) {
            return false;
        }
        let start = self.item_fields.len();
        for (index, (item, request)) in group.iter().zip(&requests).enumerate() {
            let link = match group.len() {
                1 => Link::None,
                count if index + 1 == count => Link::Last,
                _ => Link::Next,
            };
            let field_first = self.add_fields(request.limits, batch.key(item));
            self.item_fields.push(field_first);
            self.add_step(request, link, field_first);
        }
        self.groups.push(Group { work, items, fields: start..self.item_fields.len() });
        true
    }

    /// Takes the groups out whose deadline has passed, and returns them.
    pub(super) fn take_late(&mut self, batches: &[Arc<Batch>], now: Instant) -> Vec<Group> {
        let is_late = |group: &Group| batches[group.work].deadline.is_some_and(|deadline| deadline <= now);
        if !self.groups.iter().any(is_late) {
            return Vec::new();
        }
        let groups = std::mem::replace(self, Self::new(self.partition)).groups;
        let (late, rest): (Vec<_>, Vec<_>) = groups.into_iter().partition(is_late);
        for group in rest {
            // They fitted together with others.
            self.add(group.work, &batches[group.work], group.items);
        }
        late
    }

    /// Whether a state of this policy is new to the call, or is read by the same rules.
    fn knows_rules(&self, limits: &[PolicyLimit]) -> bool {
        let known = limits.first().and_then(|limit| self.rules_of_policy.get(&limit.state_id));
        known
            .is_none_or(|rules| self.rules[usize::from(rules.first)..][..usize::from(rules.count)] == *limits)
    }

    fn rules(&mut self, limits: &[PolicyLimit]) -> Rules {
        let next = Rules { first: self.rules.len() as u16, count: limits.len() as u8 };
        // A policy has at least one limit.
        let rules = *self.rules_of_policy.entry(limits[0].state_id).or_insert(next);
        if rules == next {
            self.rules.extend_from_slice(limits);
        }
        rules
    }

    /// Index of the first field of a policy and key.
    fn add_fields(&mut self, limits: &[PolicyLimit], key: &[u8]) -> u16 {
        let field = |limit: &PolicyLimit| [&limit.state_id.0.to_le_bytes()[..], key].concat();
        let next = self.fields.len() as u16;
        let first = *self.index_of_field.entry(field(&limits[0])).or_insert(next);
        if first == next {
            self.fields.extend(limits.iter().map(field));
        }
        first
    }

    /// Adds what changes states; a peek changes none.
    fn add_step(&mut self, request: &Request<'_>, link: Link, field_first: u16) {
        let rules = self.rules(request.limits);
        let Some(operation) = operation_code(request) else { return };
        let step = Step { operation, link, rules, field_first, keys: 1, times: 1, cost: request.cost };
        if let Some(&index) = self.step_of_field.get(&field_first) {
            let last = &mut self.steps[index];
            if link == Link::None && *last == (Step { times: last.times, ..step }) {
                last.times += 1;
                return;
            }
        }
        self.step_of_field.insert(field_first, self.steps.len());
        self.steps.push(step);
    }

    /// The command. `time` is what the script's prelude takes: a deadline by the shard's clock, or the time.
    pub(super) fn command(&self, script: &Script, by_text: bool, redis_key: &str, time: u64) -> Cmd {
        let mut command = if by_text { redis::cmd("EVAL") } else { redis::cmd("EVALSHA") };
        command.arg(if by_text { &script.text } else { &script.sha });
        command.arg(1).arg(redis_key).arg(time).arg(self.plan());
        for field in &self.fields {
            command.arg(field);
        }
        command
    }

    /// What `charge.lua` reads: counts, rules, steps. Indices start at 1.
    fn plan(&self) -> Vec<u8> {
        let steps = self.merged_steps();
        let mut plan = Vec::with_capacity(4 + self.rules.len() * STATE_BYTES + steps.len() * 21);
        plan.extend_from_slice(&(self.rules.len() as u16).to_le_bytes());
        plan.extend_from_slice(&(steps.len() as u16).to_le_bytes());
        for limit in &self.rules {
            let (kind, exponent, numbers) = limit.rule.constants();
            plan.extend_from_slice(&[kind, exponent]);
            for number in numbers {
                plan.extend_from_slice(&(number as f64).to_le_bytes());
            }
        }
        for step in steps {
            plan.extend_from_slice(&[step.operation, step.rules.count, step.link as u8]);
            for number in [step.rules.first + 1, step.field_first + 1, step.keys] {
                plan.extend_from_slice(&number.to_le_bytes());
            }
            plan.extend_from_slice(&step.times.to_le_bytes());
            plan.extend_from_slice(&(step.cost as f64).to_le_bytes());
        }
        plan
    }

    /// The steps, those that differ only in their key made one.
    fn merged_steps(&self) -> Vec<Step> {
        let mut merged: Vec<Step> = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            if let Some(last) = merged.last_mut() {
                let field_next = last.field_first + last.keys * u16::from(last.rules.count);
                let follows = Step { field_first: last.field_first, keys: last.keys, ..*step } == *last;
                if step.link == Link::None && step.field_first == field_next && follows {
                    last.keys += 1;
                    continue;
                }
            }
            merged.push(*step);
        }
        merged
    }

    /// Takes the steps of the script on the states that it found, and gives each group its decisions.
    pub(super) fn decide(
        &self,
        answer: Answer,
        batches: &[Arc<Batch>],
        mut give: impl FnMut(&Group, &[Decision]),
    ) {
        let mut states = answer.states;
        let mut decisions = Vec::new();
        let mut layout = Vec::new();
        for group in &self.groups {
            let batch = &batches[group.work];
            let requests = valid_requests(batch, &batch.items()[group.items.clone()]);
            layout.clear();
            for (request, &first) in requests.iter().zip(&self.item_fields[group.fields.clone()]) {
                let fields = usize::from(first)..;
                layout.extend(request.limits.iter().map(|limit| limit.state_id).zip(fields));
            }
            decisions.clear();
            let mut cells = CallCells { states: &mut states, layout: &layout };
            decide(&requests, &mut cells, answer.now_us, &mut decisions);
            give(group, &decisions);
        }
    }

    /// Number of fields, which is the number of states in its answer.
    pub(super) fn fields_count(&self) -> usize {
        self.fields.len()
    }

    /// Number of checks that it answers.
    pub(super) fn items_count(&self) -> usize {
        self.item_fields.len()
    }
}

/// The requests of a group. Only valid items are added to a call.
fn valid_requests<'a>(batch: &'a Batch, items: &[CheckItem]) -> SmallVec<[Request<'a>; 1]> {
    items.iter().filter_map(|item| batch.request(item).ok()).collect()
}

/// The code of an operation that changes states.
fn operation_code(request: &Request<'_>) -> Option<u8> {
    match request.operation {
        Operation::Check if request.cost == 0 => None,
        Operation::Check => Some(0),
        Operation::Refund => Some(2),
        Operation::Reset => Some(3),
        Operation::Force => Some(4),
        Operation::TakeUpTo => Some(5),
        Operation::Peek | Operation::Unknown(_) => None,
    }
}

/// The states that a group touches, among those of its call.
struct CallCells<'a> {
    states: &'a mut [Option<State>],
    layout: &'a [(StateId, usize)],
}

impl CallCells<'_> {
    fn slot(&mut self, id: StateId) -> Option<&mut Option<State>> {
        let (_, index) = self.layout.iter().find(|(known, _)| *known == id)?;
        self.states.get_mut(*index)
    }
}

impl Cells for CallCells<'_> {
    fn get(&mut self, id: StateId) -> Option<State> {
        *self.slot(id)?
    }

    fn set(&mut self, id: StateId, state: Option<State>) {
        if let Some(slot) = self.slot(id) {
            *slot = state;
        }
    }
}

/// What the script answered.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Answer {
    /// The shard's time.
    pub(super) now_us: u64,
    /// The states before the call, one for each field; none where the call came after its deadline and did
    /// nothing.
    pub(super) states: Vec<Option<State>>,
}

impl Answer {
    /// Reads a script's answer; `None` where it is not one.
    pub(super) fn read(value: &Value) -> Option<Self> {
        let Value::Array(parts) = value else { return None };
        let [Value::Int(now_us), Value::BulkString(bytes)] = &parts[..] else { return None };
        let mut states = Vec::new();
        let mut rest = &bytes[..];
        while let Some(&kind) = rest.first() {
            if kind == 0 {
                states.push(None);
                rest = &rest[1..];
            } else {
                let (state, tail) = rest.split_first_chunk::<STATE_BYTES>()?;
                states.push(State::from_bytes(state));
                rest = tail;
            }
        }
        Some(Self { now_us: u64::try_from(*now_us).ok()?, states })
    }
}

#[cfg(test)]
mod tests;
