//! The intervals of all threads, put together.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use super::{
    recorder::{Interval, latencies},
    tally::Tally,
};

/// What all threads saw in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Slice {
    pub(super) tally: Tally,
    pub(super) p50_us: u64,
    pub(super) p99_us: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Collector {
    /// Of each thread, the first interval that it may still send more of.
    open_from: Vec<usize>,
    /// Intervals that some thread may still send more of.
    open: BTreeMap<usize, (Tally, Histogram<u64>)>,
    /// The others, in their order.
    slices: Vec<Slice>,
    warm_up: Tally,
    total: Tally,
    latencies: Histogram<u64>,
}

impl Collector {
    pub(super) fn new(threads: usize) -> Self {
        Self {
            open_from: vec![0; threads],
            open: BTreeMap::new(),
            slices: Vec::new(),
            warm_up: Tally::default(),
            total: Tally::default(),
            latencies: latencies(),
        }
    }

    /// Takes what a thread saw. Each sends its intervals in their order, and none twice.
    pub(super) fn take(&mut self, interval: Interval) {
        let Some(index) = interval.index else {
            self.warm_up.add(&interval.tally);
            return;
        };
        self.total.add(&interval.tally);
        add(&mut self.latencies, &interval.latencies);
        let (tally, latencies) = self.open.entry(index).or_insert_with(|| (Tally::default(), latencies()));
        tally.add(&interval.tally);
        add(latencies, &interval.latencies);
        self.open_from[interval.thread] = index + 1;
        self.close_until(self.open_from.iter().copied().min().unwrap_or(0));
    }

    /// Closes the intervals before `end`; those that nobody sent saw nothing.
    fn close_until(&mut self, end: usize) {
        while self.slices.len() < end {
            let slice = self.open.remove(&self.slices.len()).map(|(tally, latencies)| Slice {
                tally,
                p50_us: latencies.value_at_quantile(0.5),
                p99_us: latencies.value_at_quantile(0.99),
            });
            self.slices.push(slice.unwrap_or_default());
        }
    }

    /// The latest interval that all have sent.
    pub(super) fn latest(&self) -> Option<&Slice> {
        self.slices.last()
    }

    /// What all checks came to so far that count.
    pub(super) fn total(&self) -> &Tally {
        &self.total
    }

    /// Ends it: `count` intervals were measured.
    pub(super) fn finish(mut self, count: usize) -> Collected {
        self.close_until(count);
        let Self { slices, warm_up, total, latencies, .. } = self;
        Collected { slices, warm_up, total, latencies }
    }
}

/// All that was seen.
#[derive(Debug)]
pub(super) struct Collected {
    pub(super) slices: Vec<Slice>,
    pub(super) warm_up: Tally,
    pub(super) total: Tally,
    pub(super) latencies: Histogram<u64>,
}

fn add(to: &mut Histogram<u64>, from: &Histogram<u64>) {
    // Both have the same bounds.
    let _ = to.add(from);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(thread: usize, index: Option<usize>, allowed: u64, latency_us: u64) -> Interval {
        let mut latencies = latencies();
        latencies.saturating_record(latency_us);
        Interval { thread, index, tally: Tally { allowed, ..Tally::default() }, latencies }
    }

    #[test]
    fn intervals_of_all_threads_are_put_together() {
        let mut collector = Collector::new(2);
        collector.take(interval(0, None, 1_000, 9));
        collector.take(interval(0, Some(0), 1, 10));
        assert_eq!(collector.latest(), None, "the other thread may still send of it");
        collector.take(interval(1, Some(0), 2, 30));
        let first = Slice { tally: Tally { allowed: 3, ..Tally::default() }, p50_us: 10, p99_us: 30 };
        assert_eq!(collector.latest(), Some(&first));
        // Nothing came in the second one, and the last thread sends none of the fourth.
        collector.take(interval(1, Some(2), 4, 50));
        collector.take(interval(0, Some(3), 8, 70));
        let Collected { slices, warm_up, total, latencies } = collector.finish(5);
        let allowed: Vec<_> = slices.iter().map(|slice| slice.tally.allowed).collect();
        assert_eq!(allowed, [3, 0, 4, 8, 0]);
        assert_eq!((warm_up.allowed, total.allowed), (1_000, 15));
        assert_eq!((latencies.len(), latencies.max()), (4, 70));
    }
}
