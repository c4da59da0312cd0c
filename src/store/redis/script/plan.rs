//! What a call does with its fields: rules and steps, as the script reads them.
//!
//! ```text
//! u16 rules    u16 lone checks    u16 other steps
//! rules        u8 kind, u8 exponent of the quantum, four doubles: see Rule::constants
//! lone checks  u16 rule, u16 first field, u16 keys, u32 times, double cost
//! other steps  u8 operation, u8 rules, u8 link, u16 first rule, u16 first field, u16 keys, u32 times, double cost
//! ```
//!
//! Little-endian, and indices start at 1. The fields of a step's keys follow one another, as many for each key as the
//! step has rules.

use smallvec::SmallVec;
use tollgate_protocol::check::Operation;

use crate::limit::{PolicyLimit, Request, StateId, state::STATE_BYTES};

/// Bytes of a step that is no lone check, the longest.
const STEP_BYTES: usize = 21;

/// Of a field: no step touches it.
const NO_STEP: u16 = u16::MAX;

/// How a step is tied to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    None = 0,
    Next = 1,
    Last = 2,
}

/// Some rules of a call that follow one another: those of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rules {
    first: u16,
    count: u8,
}

/// One operation on one or more keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Step {
    pub(super) operation: u8,
    link: Link,
    rules: Rules,
    /// Index of the first key's first field.
    field_first: u16,
    /// Keys, whose fields follow one another.
    pub(super) keys: u16,
    /// Times that each key is asked.
    pub(super) times: u32,
    cost: u64,
    /// An unlinked check under one limit, of keys that no other step touches.
    pub(super) is_lone: bool,
}

/// Rules and steps.
#[derive(Debug, Default)]
pub(super) struct Plan {
    limits: Vec<PolicyLimit>,
    /// By a policy's first state. There are few: a call has room for few fields, and mostly all are of one policy.
    policies: SmallVec<[(StateId, Rules); 4]>,
    steps: Vec<Step>,
    /// Of each field that starts a key: the last step that touches it.
    last_steps: Vec<u16>,
}

impl Plan {
    /// Room for about this many steps and fields.
    pub(super) fn with_capacity(count: usize) -> Self {
        Self { steps: Vec::with_capacity(count), last_steps: Vec::with_capacity(count), ..Self::default() }
    }

    /// Steps so far, at least as many as are sent.
    pub(super) fn steps_count(&self) -> usize {
        self.steps.len()
    }

    /// Whether the states of this policy are new to the call, or read by the same rules.
    pub(super) fn knows_rules(&self, limits: &[PolicyLimit]) -> bool {
        let Some(rules) = limits.first().and_then(|limit| self.find(limit.state_id)) else { return true };
        self.limits[usize::from(rules.first)..][..usize::from(rules.count)] == *limits
    }

    fn find(&self, id: StateId) -> Option<Rules> {
        self.policies.iter().find(|(known, _)| *known == id).map(|(_, rules)| *rules)
    }

    fn rules(&mut self, limits: &[PolicyLimit]) -> Rules {
        // A policy has at least one limit.
        let id = limits[0].state_id;
        self.find(id).unwrap_or_else(|| {
            let rules = Rules { first: self.limits.len() as u16, count: limits.len() as u8 };
            self.limits.extend_from_slice(limits);
            self.policies.push((id, rules));
            rules
        })
    }

    /// Adds what changes states; a peek changes none, but has rules, too.
    pub(super) fn add(&mut self, request: &Request<'_>, link: Link, field_first: u16) {
        let rules = self.rules(request.limits);
        let Some(operation) = operation_code(request) else { return };
        let is_lone = request.operation == Operation::Check && rules.count == 1 && link == Link::None;
        let mut step =
            Step { operation, link, rules, field_first, keys: 1, times: 1, cost: request.cost, is_lone };
        let field = usize::from(field_first);
        if self.last_steps.len() <= field {
            self.last_steps.resize(field + 1, NO_STEP);
        }
        if let Some(last) = self.steps.get_mut(usize::from(self.last_steps[field])) {
            let again = Step { times: last.times, is_lone: last.is_lone, ..step };
            if link == Link::None && *last == again {
                last.times += 1;
                return;
            }
            (last.is_lone, step.is_lone) = (false, false);
        }
        self.last_steps[field] = self.steps.len() as u16;
        self.steps.push(step);
    }

    /// The steps, those that differ only in their key made one: the lone checks and the others.
    pub(super) fn merged_steps(&self) -> (Vec<Step>, Vec<Step>) {
        let (mut lone, mut others) = (Vec::new(), Vec::new());
        for step in &self.steps {
            let merged = if step.is_lone { &mut lone } else { &mut others };
            if let Some(last) = merged.last_mut().filter(|last| follows(last, step)) {
                last.keys += 1;
            } else {
                merged.push(*step);
            }
        }
        (lone, others)
    }

    /// As the script reads it.
    pub(super) fn encode(&self) -> Vec<u8> {
        let (lone, others) = self.merged_steps();
        let steps_bytes = (lone.len() + others.len()) * STEP_BYTES;
        let mut out = Vec::with_capacity(6 + self.limits.len() * STATE_BYTES + steps_bytes);
        for count in [self.limits.len(), lone.len(), others.len()] {
            out.extend_from_slice(&(count as u16).to_le_bytes());
        }
        for limit in &self.limits {
            let (kind, exponent, numbers) = limit.rule.constants();
            out.extend_from_slice(&[kind, exponent]);
            numbers.iter().for_each(|&number| put_double(&mut out, number));
        }
        lone.iter().for_each(|step| put_charge(&mut out, step));
        for step in &others {
            out.extend_from_slice(&[step.operation, step.rules.count, step.link as u8]);
            put_charge(&mut out, step);
        }
        out
    }
}

/// Whether an unlinked step is the one before it, on the next key.
fn follows(before: &Step, step: &Step) -> bool {
    let field_next = before.field_first + before.keys * u16::from(before.rules.count);
    let same = Step { field_first: before.field_first, keys: before.keys, ..*step };
    step.link == Link::None && step.field_first == field_next && same == *before
}

fn put_charge(out: &mut Vec<u8>, step: &Step) {
    for number in [step.rules.first + 1, step.field_first + 1, step.keys] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(&step.times.to_le_bytes());
    put_double(out, step.cost);
}

fn put_double(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&(number as f64).to_le_bytes());
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
