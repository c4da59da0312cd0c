//! Random traffic: limits of every size, costs and instants near the edges that the last answer told of.

use fastrand::Rng;
use tollgate::limit::Decision;
use tollgate_protocol::{
    check::Operation, limit::Limit, limits::PERIOD_US_MAX, policy::Limits, varint::VALUE_MAX,
};

use crate::{model::Model, subject::Ask};

/// Traces start at a real time: about the year 2026.
pub(crate) const START_US: u64 = 1_780_000_000_000_000;

/// No trace goes beyond: epoch times stay below 2^52 until the year 2112.
const END_US: u64 = 4_000_000_000_000_000;

/// What happens at one instant.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) now_us: u64,
    /// Policies that are in force from this step on.
    pub(crate) configure: Option<Vec<Limits>>,
    pub(crate) asks: Vec<Ask>,
}

/// The shape of a trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) policies: usize,
    pub(crate) keys: u32,
    /// Most groups of linked checks in a batch.
    pub(crate) groups: usize,
}

/// An endless trace; the same seed and answers give the same trace.
pub(crate) struct Trace {
    rng: Rng,
    shape: Shape,
    policies: Vec<Limits>,
    now_us: u64,
    started: bool,
    last: Option<Decision>,
}

impl Trace {
    pub(crate) fn new(seed: u64, shape: Shape) -> Self {
        let mut rng = Rng::with_seed(seed);
        let policies = (0..shape.policies).map(|_| limits(&mut rng)).collect();
        let now_us = START_US + rng.u64(0..1_000_000_000_000);
        Self { rng, shape, policies, now_us, started: false, last: None }
    }

    pub(crate) fn next(&mut self) -> Step {
        let configure = self.configure();
        self.advance();
        let mut asks = Vec::new();
        // A batch often asks one key again and again.
        let hot = self.rng.bool().then(|| self.rng.u32(0..self.shape.keys));
        for _ in 0..self.rng.usize(1..=self.shape.groups) {
            let key =
                hot.filter(|_| self.rng.u8(0..4) > 0).unwrap_or_else(|| self.rng.u32(0..self.shape.keys));
            self.group(key, &mut asks);
        }
        Step { now_us: self.now_us, configure, asks }
    }

    /// Tells one of the answers to the last step; the next goes near its edges.
    pub(crate) fn answered(&mut self, decisions: &[Decision]) {
        self.last = self.rng.choice(decisions).copied();
    }

    /// The first policies, then now and then a change of one.
    fn configure(&mut self) -> Option<Vec<Limits>> {
        if self.started {
            if self.rng.u8(..) > 2 {
                return None;
            }
            let changed = self.rng.usize(0..self.policies.len());
            self.policies[changed] = if self.rng.bool() {
                resized(&mut self.rng, &self.policies[changed])
            } else {
                limits(&mut self.rng)
            };
        }
        self.started = true;
        Some(self.policies.clone())
    }

    fn advance(&mut self) {
        let details = self.last.and_then(|last| last.details);
        match self.rng.u8(0..100) {
            0..40 => return,
            40..43 => {
                let step_us = match self.rng.u8(0..4) {
                    0 => 10_000_000 + self.rng.u64(0..3),
                    1 => self.rng.u64(0..100_000_000_000),
                    _ => self.rng.u64(0..=10_000_000),
                };
                self.now_us = self.now_us.saturating_sub(step_us).max(START_US / 2);
                return;
            }
            43..70 if details.is_some() => {
                let details = details.unwrap_or_default();
                let edge_us = if self.rng.bool() { details.retry_after_us } else { None };
                self.now_us +=
                    (edge_us.unwrap_or(details.reset_after_us) + self.rng.u64(0..3)).saturating_sub(1);
            }
            _ => {
                let scale_us = self.scale_us();
                self.now_us +=
                    if self.rng.bool() { scale_us } else { self.rng.u64(0..=scale_us.saturating_mul(2)) };
            }
        }
        if self.now_us > END_US {
            self.now_us = START_US;
        }
    }

    /// A time that matters to some limit.
    fn scale_us(&mut self) -> u64 {
        let limits = &self.policies[self.rng.usize(0..self.policies.len())];
        let limit = limits.as_slice()[self.rng.usize(0..limits.as_slice().len())];
        let (amount, period_us) = match limit {
            Limit::TokenBucket { rate, period_us, .. } => (rate, period_us),
            Limit::SlidingWindow { limit, window_us } => (limit, window_us),
            _ => (1, 1),
        };
        match self.rng.u8(0..5) {
            0 => 1,
            1 => period_us.div_ceil(amount),
            2 => period_us / self.rng.u64(1..20),
            3 => period_us,
            _ => 2 * period_us,
        }
    }

    fn group(&mut self, key: u32, asks: &mut Vec<Ask>) {
        let linked = if self.rng.u8(0..8) == 0 { self.rng.usize(2..=4) } else { 1 };
        for index in 0..linked {
            // Now and then a policy that does not exist.
            let unknown = usize::from(self.rng.u8(0..50) == 0);
            let policy = self.rng.usize(0..self.policies.len() + unknown);
            let operation = if linked > 1 { Operation::Check } else { self.operation() };
            let cost = self.cost(policy);
            asks.push(Ask { operation, cost, policy, key, linked: index + 1 < linked });
        }
    }

    fn operation(&mut self) -> Operation {
        match self.rng.u8(0..100) {
            0..55 => Operation::Check,
            55..65 => Operation::Peek,
            65..75 => Operation::Refund,
            75..78 => Operation::Reset,
            78..86 => Operation::Force,
            86..99 => Operation::TakeUpTo,
            _ => Operation::Unknown(6),
        }
    }

    fn cost(&mut self, policy: usize) -> u64 {
        let limits = self.policies.get(policy).map(Limits::as_slice).unwrap_or_default();
        let ceiling = limits.iter().map(Limit::ceiling).min().unwrap_or(1);
        let remaining = self.last.and_then(|last| last.details).map_or(1, |details| details.remaining);
        let cost = match self.rng.u8(0..20) {
            0..6 => 1,
            6 => 0,
            7..9 => remaining,
            9..11 => remaining + 1,
            11..16 => self.rng.u64(1..=ceiling),
            16 => ceiling,
            17 => ceiling + 1,
            18 => magnitude(&mut self.rng, VALUE_MAX),
            _ if self.rng.bool() => VALUE_MAX,
            _ => ceiling / 2,
        };
        cost.min(VALUE_MAX)
    }
}

/// 1..=`max`, every number of bits as likely.
fn magnitude(rng: &mut Rng, max: u64) -> u64 {
    let bits = rng.u32(0..=max.ilog2());
    (1 + rng.u64(0..1 << bits)).min(max)
}

fn limits(rng: &mut Rng) -> Limits {
    let count = [1, 1, 1, 2, 2, 3, 4][rng.usize(0..7)];
    Limits::new((0..count).map(|_| limit(rng)).collect()).expect("1..=4 limits")
}

/// The same limits with other amounts: what an operator changes most often.
fn resized(rng: &mut Rng, limits: &Limits) -> Limits {
    let resized = limits.as_slice().iter().map(|limit| {
        let factor = |amount: u64, rng: &mut Rng| match rng.u8(0..3) {
            0 => amount,
            1 => amount.div_ceil(rng.u64(1..10)),
            _ => amount.saturating_mul(rng.u64(1..10)).min(VALUE_MAX),
        };
        let changed = match *limit {
            Limit::TokenBucket { rate, period_us, capacity } => {
                Limit::TokenBucket { rate: factor(rate, rng), period_us, capacity: factor(capacity, rng) }
            }
            Limit::SlidingWindow { limit, window_us } => {
                Limit::SlidingWindow { limit: factor(limit, rng), window_us }
            }
            other => other,
        };
        if Model::supports(&changed) { changed } else { *limit }
    });
    Limits::new(resized.collect()).expect("as many limits as before")
}

/// A limit that can be enforced: 1 in 30 days to 10 million a second and beyond.
pub(crate) fn limit(rng: &mut Rng) -> Limit {
    loop {
        let limit = any_limit(rng);
        if Model::supports(&limit) {
            return limit;
        }
    }
}

/// A limit that can perhaps not be enforced.
pub(crate) fn any_limit(rng: &mut Rng) -> Limit {
    const COMMON: [&str; 8] = [
        "token-bucket:10/1s",
        "token-bucket:100/1m,burst=20",
        "token-bucket:1/30d",
        "token-bucket:10000000/1s",
        "token-bucket:700000/1s,burst=1000",
        "sliding-window:1000/1m",
        "sliding-window:3/7us",
        "sliding-window:100000/366d",
    ];
    if rng.u8(0..3) == 0 {
        return COMMON[rng.usize(0..COMMON.len())].parse().expect("a limit");
    }
    // Periods of few digits, and of many.
    let period_us = magnitude(rng, PERIOD_US_MAX);
    let unit = 10u64.pow(rng.u32(0..=period_us.ilog10()));
    let period_us = if rng.bool() { period_us / unit * unit } else { period_us };
    let amount = magnitude(rng, 1 << 52);
    if rng.bool() {
        let capacity = if rng.bool() { amount } else { magnitude(rng, 1 << 52) };
        Limit::TokenBucket { rate: amount, period_us, capacity }
    } else {
        Limit::SlidingWindow { limit: amount, window_us: period_us }
    }
}
