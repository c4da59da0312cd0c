//! Whether limits were kept, as far as a client can be certain.
//!
//! A check that was sent at s and answered at e was decided at some instant within [s, e]. Certainly decided
//! within an interval [a, b] are those with a <= s and e <= b. Counted for it are all that were answered until b,
//! less all that were sent before a: never more than these. It is fewer only where a check was under way for
//! longer than the whole interval. So a breach that is found is one, whatever the network did.

use super::{
    envelope::Envelope,
    workload::{Key, Workload},
};

/// The first keys are always watched: those are the hot ones.
const HOT_KEYS: u32 = 32;

/// Further keys that are watched, at least half as many, spread evenly over all.
const SPREAD_KEYS: u64 = 64;

/// Ticks that the time of a load test is divided into: it bounds the memory of a watched key to 256 KiB.
const TICKS: u64 = 1 << 14;

/// Which keys are watched: their number among all is bounded, whatever that of all is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    keys: u64,
    /// Keys whose number is a multiple of 2^shift are watched.
    shift: u32,
}

impl Watch {
    /// The watched keys of a workload.
    pub fn new(workload: &Workload) -> Self {
        let keys = workload.keys();
        Self { keys, shift: keys.div_ceil(SPREAD_KEYS).next_power_of_two().trailing_zeros() }
    }

    /// Where a key stands among the watched ones; `None` where it is not.
    #[inline]
    pub fn slot(&self, index: u32) -> Option<usize> {
        if index < HOT_KEYS {
            Some(index as usize)
        } else if index & ((1 << self.shift) - 1) == 0 {
            Some((HOT_KEYS + (index >> self.shift)) as usize)
        } else {
            None
        }
    }

    fn slots(&self) -> usize {
        HOT_KEYS as usize + self.keys.div_ceil(1 << self.shift) as usize
    }

    fn key(&self, slot: usize) -> Key {
        let slot = slot as u32;
        Key::new(if slot < HOT_KEYS { slot } else { (slot - HOT_KEYS) << self.shift })
    }

    /// How many keys are watched.
    pub fn count(&self) -> usize {
        let hot = self.keys.min(HOT_KEYS.into());
        let multiples_below = |end: u64| end.div_ceil(1 << self.shift);
        (hot + multiples_below(self.keys) - multiples_below(hot)) as usize
    }
}

/// What passed for the watched keys, and when.
#[derive(Clone, Debug)]
pub struct Monitor {
    watch: Watch,
    tick_us: u64,
    traces: Vec<Trace>,
}

/// What passed for a key.
#[derive(Clone, Debug, Default)]
struct Trace {
    /// Cost by the tick in which it was sent.
    sent: Vec<u64>,
    /// Cost by the first tick that began when it had been answered.
    answered: Vec<u64>,
}

/// An interval in which more of what may pass did than in others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Worst {
    /// The key.
    pub key: Key,
    /// Index of the limit.
    pub limit: usize,
    /// Length of the interval, in microseconds.
    pub interval_us: u64,
    /// Cost that certainly passed in it.
    pub admitted: u64,
    /// Cost that may pass in it.
    pub promised: u128,
}

impl Worst {
    /// Admitted over promised; above 1 the promise was broken.
    pub fn ratio(&self) -> f64 {
        self.admitted as f64 / self.promised as f64
    }

    /// Whether more passed than may.
    pub fn is_breach(&self) -> bool {
        u128::from(self.admitted) > self.promised
    }
}

impl Monitor {
    /// A monitor of the keys of `watch` for `span_us`; what is answered later is left out.
    pub fn new(watch: Watch, span_us: u64) -> Self {
        let tick_us = span_us.div_ceil(TICKS).max(1);
        Self { watch, tick_us, traces: vec![Trace::default(); watch.slots()] }
    }

    /// Notes that `cost` passed for the key of a slot; times are in microseconds since the load began, the first
    /// rounded down, the second up.
    pub fn admitted(&mut self, slot: usize, sent_us: u64, answered_us: u64, cost: u64) {
        let trace = &mut self.traces[slot];
        add(&mut trace.sent, sent_us / self.tick_us, cost);
        add(&mut trace.answered, answered_us.div_ceil(self.tick_us), cost);
    }

    /// Adds what another monitor of the same watch and span noted.
    pub fn merge(&mut self, other: &Self) {
        for (trace, other) in self.traces.iter_mut().zip(&other.traces) {
            trace.merge(other);
        }
    }

    /// Over all watched keys, limits and intervals, that in which most passed of what may; `None` where nothing
    /// passed.
    pub fn worst(&self, limits: &[Envelope]) -> Option<Worst> {
        let pairs = limits
            .iter()
            .enumerate()
            .flat_map(|limit| self.traces.iter().enumerate().map(move |trace| (limit, trace)));
        let worsts = pairs.filter_map(|((limit, envelope), (slot, trace))| {
            let span = trace.worst(envelope, self.tick_us)?;
            let interval_us = span.ticks * self.tick_us;
            let promised = envelope.promised(interval_us);
            Some(Worst { key: self.watch.key(slot), limit, interval_us, admitted: span.admitted, promised })
        });
        worsts.max_by(|a, b| a.ratio().total_cmp(&b.ratio()))
    }
}

/// Nothing is noted behind the last tick: that is after the span.
fn add(costs: &mut Vec<u64>, tick: u64, cost: u64) {
    if tick > TICKS {
        return;
    }
    let tick = tick as usize;
    if costs.len() <= tick {
        costs.resize(tick + 1, 0);
    }
    costs[tick] += cost;
}

/// An interval of a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Span {
    ticks: u64,
    admitted: u64,
}

impl Trace {
    fn merge(&mut self, other: &Self) {
        for (costs, others) in [(&mut self.sent, &other.sent), (&mut self.answered, &other.answered)] {
            costs.resize(costs.len().max(others.len()), 0);
            costs.iter_mut().zip(others).for_each(|(cost, other)| *cost += other);
        }
    }

    /// The interval in which most passed of what may, by Dinkelbach's method: the greatest excess over a share of
    /// the promise is found in one pass, and shows a greater share, until there is none.
    fn worst(&self, envelope: &Envelope, tick_us: u64) -> Option<Span> {
        let per_tick = envelope.rate_per_us() * tick_us as f64;
        let share = |span: Span| span.admitted as f64 / (envelope.base() + per_tick * span.ticks as f64);
        let mut worst = self.greatest_excess(0.0)?;
        loop {
            let next = self.greatest_excess(share(worst) * per_tick)?;
            if share(next) <= share(worst) {
                return Some(worst);
            }
            worst = next;
        }
    }

    /// The interval in which most passed above `per_tick` for each tick of its length.
    fn greatest_excess(&self, per_tick: f64) -> Option<Span> {
        let (mut sent, mut answered) = (0, 0);
        // The best beginning so far: its value, tick, and what was sent before it.
        let mut begin = (f64::NEG_INFINITY, 0, 0);
        let mut best: Option<(f64, Span)> = None;
        for (tick, &cost) in self.answered.iter().enumerate() {
            let value = per_tick * tick as f64 - sent as f64;
            if value > begin.0 {
                begin = (value, tick as u64, sent);
            }
            sent += self.sent.get(tick).copied().unwrap_or(0);
            answered += cost;
            let excess = answered as f64 - per_tick * tick as f64 + begin.0;
            if cost > 0 && answered > begin.2 && best.is_none_or(|(most, _)| excess > most) {
                best = Some((excess, Span { ticks: tick as u64 - begin.1, admitted: answered - begin.2 }));
            }
        }
        best.map(|(_, span)| span)
    }
}

#[cfg(test)]
mod tests;
