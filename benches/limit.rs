//! The arithmetic of limits, on states that are at hand.

use std::{hint::black_box, slice};

use criterion::Criterion;
use tollgate::limit::{Cells, Decision, PolicyLimit, Request, Rule, State, StateId, decide, decide::refuse};
use tollgate_protocol::{check::Operation, limits::LIMITS_MAX, reply::Reason};

use crate::common::measure;

/// Checks that are decided one after another.
const CHECKS: usize = 256;

const START_US: u64 = 1_785_002_400_000_000;

/// The time between two checks: below any in which a limit here lets one more pass where it is used up.
const STEP_US: u64 = 3;

const ALGORITHMS: [(&str, &[&str]); 3] = [
    ("token_bucket", &["token-bucket:1000/1h"]),
    ("sliding_window", &["sliding-window:1000/1h"]),
    ("both", &["token-bucket:1000/1h", "sliding-window:1000/1h"]),
];

pub(crate) fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("limit");
    for (name, limits) in ALGORITHMS {
        measure(&mut group, format!("{name}/allowed"), CHECKS, || {
            let mut subject = Subject::new(limits);
            move || {
                subject.states = Default::default();
                let allowed = subject.decide();
                assert_eq!(allowed, CHECKS);
            }
        });
        measure(&mut group, format!("{name}/denied"), CHECKS, || {
            let mut subject = Subject::new(limits);
            subject.use_up();
            move || {
                let allowed = subject.decide();
                assert_eq!(allowed, 0);
            }
        });
    }
    group.finish();
}

/// One key under a policy.
struct Subject {
    limits: Vec<PolicyLimit>,
    states: States,
    decisions: [Decision; CHECKS],
}

impl Subject {
    fn new(limits: &[&str]) -> Self {
        let ready = |(index, text): (u64, &&str)| PolicyLimit {
            rule: Rule::new(&text.parse().unwrap()).unwrap(),
            state_id: StateId(index),
        };
        let limits = (0..).zip(limits).map(ready).collect();
        Self { limits, states: States::default(), decisions: [refuse(Reason::Unavailable); CHECKS] }
    }

    /// Charges all that may pass.
    fn use_up(&mut self) {
        let request = Request { operation: Operation::TakeUpTo, cost: u64::MAX >> 12, limits: &self.limits };
        decide(&[request], &mut self.states, START_US, &mut self.decisions[..1]);
    }

    /// Decides [`CHECKS`] checks; how many were allowed.
    fn decide(&mut self) -> usize {
        for (index, decision) in (0..).zip(&mut self.decisions) {
            let request = Request { operation: Operation::Check, cost: 1, limits: &self.limits };
            let now_us = black_box(START_US + index * STEP_US);
            decide(&[request], &mut self.states, now_us, slice::from_mut(decision));
        }
        self.decisions.iter().filter(|decision| decision.allow).count()
    }
}

/// The states of a policy's limits, by their index.
#[derive(Default)]
struct States([Option<State>; LIMITS_MAX]);

impl Cells for States {
    fn get(&mut self, id: StateId) -> Option<State> {
        self.0[id.0 as usize]
    }

    fn set(&mut self, id: StateId, state: Option<State>) {
        self.0[id.0 as usize] = state;
    }
}
