//! The limits once more, written from their definitions and in another form: exact fractions in place of units
//! and quanta, 128 bits in place of bounds, a copy of a key's states in place of an undo list.

mod bucket;
mod window;

use std::collections::{BTreeMap, HashMap};

use tollgate::limit::Decision;
use tollgate_protocol::{
    check::Operation,
    limit::Limit,
    policy::Limits,
    reply::{Details, Reason},
};

use crate::subject::{Ask, Subject, groups, refuse_invalid};
use bucket::Bucket;
use window::Window;

/// Amounts that count in the numbers of a script stay below this.
const EXACT: i128 = 1 << 52;

/// A clock that is behind by more is believed.
const STEP_US: i128 = 10_000_000;

/// What was used of one limit, at one instant.
#[derive(Clone, Debug)]
enum Usage {
    Bucket(Bucket),
    Window(Window),
}

/// The usage of one key, by policy and place of the limit. An unused limit has no entry.
type Key = BTreeMap<(usize, usize), Usage>;

/// Decides by definition.
#[derive(Default)]
pub(crate) struct Model {
    policies: Vec<Limits>,
    keys: HashMap<u32, Key>,
}

impl Model {
    /// Whether a limit can be enforced exactly.
    pub(crate) fn supports(limit: &Limit) -> bool {
        match *limit {
            Limit::TokenBucket { .. } => Bucket::unused(limit, 0).is_some(),
            _ => Window::unused(limit, 0).is_some(),
        }
    }
}

impl Subject for Model {
    fn configure(&mut self, policies: &[Limits]) {
        self.policies = policies.to_vec();
    }

    fn decide(&mut self, now_us: u64, asks: &[Ask]) -> Vec<Decision> {
        let mut out = Vec::with_capacity(asks.len());
        for group in groups(asks) {
            if let Some(refused) = refuse_invalid(group, self.policies.len()) {
                out.extend(refused);
                continue;
            }
            let key = self.keys.entry(group[0].key).or_default();
            for ask in group.iter().filter(|ask| ask.operation != Operation::Peek && ask.cost > 0) {
                settle(&self.policies[ask.policy], ask.policy, key, now_us.into());
            }
            match group {
                [ask] => out.push(decide_one(&self.policies[ask.policy], ask, key, now_us.into())),
                linked => out.extend(decide_linked(&self.policies, linked, key, now_us.into())),
            }
        }
        out
    }
}

fn read(limits: &Limits, policy: usize, key: &Key, now_us: i128) -> Vec<Usage> {
    let place = |(index, limit)| Usage::read(limit, key.get(&(policy, index)), now_us);
    limits.as_slice().iter().enumerate().map(place).collect()
}

/// Usage that ends sooner than it was stored to, by a changed limit or clock, is that from now on. A peek leaves
/// it as it is.
fn settle(limits: &Limits, policy: usize, key: &mut Key, now_us: i128) {
    for (index, usage) in read(limits, policy, key, now_us).into_iter().enumerate() {
        let stored = key.get_mut(&(policy, index));
        if let Some(stored) = stored.filter(|stored| stored.unused_at_us() > now_us)
            && usage.unused_at_us() < stored.unused_at_us()
        {
            *stored = usage;
        }
    }
}

/// Checks of one key of which each must pass on top of those before it, or none does.
fn decide_linked(policies: &[Limits], group: &[Ask], key: &mut Key, now_us: i128) -> Vec<Decision> {
    let mut totals = vec![0; policies.len()];
    let mut refusals = Vec::new();
    for ask in group {
        totals[ask.policy] += i128::from(ask.cost);
        let usages = read(&policies[ask.policy], ask.policy, key, now_us);
        let passes = usages.iter().all(|usage| usage.admits(totals[ask.policy]));
        refusals.push((!passes).then(|| deny(&usages, totals[ask.policy], now_us)));
    }
    if refusals.iter().all(Option::is_none) {
        return group.iter().map(|ask| decide_one(&policies[ask.policy], ask, key, now_us)).collect();
    }
    let waits = refusals.iter().flatten().filter_map(|refusal| refusal.details);
    // Where one can never pass, all never pass.
    let wait_us = waits.map(|details| details.retry_after_us).reduce(|a, b| Some(a?.max(b?))).flatten();
    let hold_back = |(ask, refusal): (&Ask, Option<Decision>)| {
        let usages = read(&policies[ask.policy], ask.policy, key, now_us);
        let (reason, index) = match refusal {
            Some(Decision { reason, details: Some(details), .. }) => (reason, details.limit_index.into()),
            _ => (Reason::Linked, tightest(&usages)),
        };
        answer(false, reason, &usages, now_us, Some((index, wait_us)))
    };
    group.iter().zip(refusals).map(hold_back).collect()
}

fn decide_one(limits: &Limits, ask: &Ask, key: &mut Key, now_us: i128) -> Decision {
    let cost = i128::from(ask.cost);
    let mut usages = read(limits, ask.policy, key, now_us);
    let passes = |usages: &[Usage], cost| usages.iter().all(|usage| usage.admits(cost));
    let (mut reason, mut granted) = (Reason::Ok, 0);
    match ask.operation {
        Operation::Check | Operation::Peek if !passes(&usages, cost) => return deny(&usages, cost, now_us),
        Operation::Check if cost > 0 => usages.iter_mut().for_each(|usage| usage.charge(cost)),
        Operation::Check | Operation::Peek => return answer(true, reason, &usages, now_us, None),
        Operation::Force => usages.iter_mut().for_each(|usage| usage.charge(cost)),
        Operation::Refund => usages.iter_mut().for_each(|usage| usage.refund(cost)),
        Operation::Reset => usages = read(limits, ask.policy, &Key::new(), now_us),
        Operation::TakeUpTo => {
            let most = usages[tightest(&usages)].remaining().min(cost);
            if most == 0 {
                return deny(&usages, 1, now_us);
            }
            if most < cost {
                (reason, granted) = (Reason::Partial, most as u64);
            }
            usages.iter_mut().for_each(|usage| usage.charge(most));
        }
        Operation::Unknown(_) => unreachable!("refused as invalid"),
    }
    let decision = Decision { granted, ..answer(true, reason, &usages, now_us, None) };
    for (index, usage) in usages.into_iter().enumerate() {
        if usage.is_unused() {
            key.remove(&(ask.policy, index));
        } else {
            key.insert((ask.policy, index), usage);
        }
    }
    decision
}

/// The limit that can never let it pass, or the one that holds it back the longest; the first of equals.
fn deny(usages: &[Usage], cost: i128, now_us: i128) -> Decision {
    if let Some(index) = usages.iter().position(|usage| cost > usage.ceiling()) {
        return answer(false, Reason::CostOverLimit, usages, now_us, Some((index, None)));
    }
    let mut last = (0, now_us);
    for (index, usage) in usages.iter().enumerate() {
        if !usage.admits(cost) && usage.admits_at_us(cost) > last.1 {
            last = (index, usage.admits_at_us(cost));
        }
    }
    answer(false, Reason::Denied, usages, now_us, Some((last.0, Some((last.1 - now_us) as u64))))
}

/// Index of the limit with the least remaining; the first of equals.
fn tightest(usages: &[Usage]) -> usize {
    // `min_by_key` keeps the first.
    (0..usages.len()).min_by_key(|&index| usages[index].remaining()).expect("a policy has a limit")
}

/// `denial`: the limit to name, and when to come back.
fn answer(
    allow: bool,
    reason: Reason,
    usages: &[Usage],
    now_us: i128,
    denial: Option<(usize, Option<u64>)>,
) -> Decision {
    let tightest = tightest(usages);
    let (limit_index, retry_after_us) = denial.unwrap_or((tightest, None));
    let resets_at_us = usages.iter().map(Usage::unused_at_us).max().expect("a policy has a limit");
    let details = Details {
        remaining: usages[tightest].remaining() as u64,
        reset_after_us: (resets_at_us - now_us).max(0) as u64,
        retry_after_us,
        limit_index: limit_index as u8,
    };
    Decision { allow, degraded: false, reason, granted: 0, details: Some(details) }
}

impl Usage {
    /// What counts as used of `limit` at `now_us`, given what was stored.
    fn read(limit: &Limit, stored: Option<&Self>, now_us: i128) -> Self {
        let carried = stored.map_or(0, |stored| stored.used_at(now_us));
        match *limit {
            Limit::TokenBucket { .. } => {
                let mut bucket = Bucket::unused(limit, now_us).expect("a supported limit");
                match stored {
                    Some(Self::Bucket(stored)) if stored.drains_as(&bucket) => bucket.carry(stored, now_us),
                    _ => bucket.charge(carried),
                }
                Self::Bucket(bucket)
            }
            _ => {
                let mut window = Window::unused(limit, now_us).expect("a supported limit");
                match stored {
                    Some(Self::Window(stored)) if stored.slides_as(&window) => window.carry(stored, now_us),
                    _ => window.charge(carried),
                }
                Self::Window(window)
            }
        }
    }

    /// Whole cost that counts as used at `now_us`, rounded up.
    fn used_at(&self, now_us: i128) -> i128 {
        match self {
            Self::Bucket(bucket) => bucket.at(now_us).used(),
            Self::Window(window) => window.at(now_us).used(),
        }
    }

    fn ceiling(&self) -> i128 {
        match self {
            Self::Bucket(bucket) => bucket.capacity,
            Self::Window(window) => window.limit,
        }
    }

    fn admits(&self, cost: i128) -> bool {
        match self {
            Self::Bucket(bucket) => bucket.admits(cost),
            Self::Window(window) => window.admits(cost),
        }
    }

    fn remaining(&self) -> i128 {
        match self {
            Self::Bucket(bucket) => bucket.remaining(),
            Self::Window(window) => window.remaining(),
        }
    }

    fn admits_at_us(&self, cost: i128) -> i128 {
        match self {
            Self::Bucket(bucket) => bucket.admits_at_us(cost),
            Self::Window(window) => window.admits_at_us(cost),
        }
    }

    /// When nothing counts any more; 0 where nothing does.
    fn unused_at_us(&self) -> i128 {
        match self {
            _ if self.is_unused() => 0,
            Self::Bucket(bucket) => bucket.unused_at_us(),
            Self::Window(window) => window.unused_at_us(),
        }
    }

    fn is_unused(&self) -> bool {
        match self {
            Self::Bucket(bucket) => bucket.owed == 0,
            Self::Window(window) => window.count == 0 && window.before == 0,
        }
    }

    fn charge(&mut self, cost: i128) {
        match self {
            Self::Bucket(bucket) => bucket.charge(cost),
            Self::Window(window) => window.charge(cost),
        }
    }

    fn refund(&mut self, cost: i128) {
        match self {
            Self::Bucket(bucket) => bucket.refund(cost),
            Self::Window(window) => window.refund(cost),
        }
    }
}

/// The powers of ten of microseconds that divide a period.
fn quanta(period_us: i128) -> impl Iterator<Item = i128> {
    (0..=9).map(|exponent| 10i128.pow(exponent)).filter(move |quantum_us| period_us % quantum_us == 0)
}

fn floor_to(value: i128, step: i128) -> i128 {
    value - value.rem_euclid(step)
}

/// The least multiple of `step` that is at least `dividend / divisor`.
fn ceil_to(dividend: i128, divisor: i128, step: i128) -> i128 {
    -floor_to(-dividend, divisor * step) / divisor
}
