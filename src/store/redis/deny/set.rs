//! A few denials under one lock, and the last drop among them. Time is a parameter, in microseconds.
//!
//! Which denials share a set is up to their hashes. There are as many as are cheap to look through, so there is no
//! list of what was used last: where all places are taken, what ends first goes. Nothing lives for longer than
//! [`LIFE_US_MAX`], so that is about what was learnt first, and a denial that is asked for is soon learnt again.

/// Denials of a set.
pub(super) const WAYS: usize = 8;

/// Longest life of a denial: for so long a reset, refund or raise through another server may go unseen.
pub(super) const LIFE_US_MAX: u64 = 1_000_000;

/// Least life of a denial that is kept, about a round trip to Redis: what is asked in a shorter one is mostly queued
/// by then.
pub(super) const LIFE_US_MIN: u64 = 100;

/// Names what is remembered of a key under a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Name {
    /// Of policy and key.
    pub(super) hash: [u64; 2],
    /// Of the policy's limits.
    pub(super) version: u64,
}

/// What was denied, and what was told of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Denial {
    /// The cost that was denied.
    pub(super) cost: u64,
    /// When its call was sent.
    pub(super) sent_us: u64,
    /// When the same would pass, by what was told.
    pub(super) retry_at_us: u64,
    /// When the limits are as if never used, by what was told.
    pub(super) reset_at_us: u64,
    /// Cost that would have passed.
    pub(super) remaining: u64,
    /// The limit that denied.
    pub(super) limit_index: u8,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    name: Name,
    /// The denial holds before this instant; 0: there is none.
    until_us: u64,
    denial: Denial,
}

/// Some denials.
#[derive(Debug, Default)]
pub(super) struct Set {
    /// When something was last dropped.
    dropped_at_us: u64,
    /// A part of the hash of each entry. They stand side by side: mostly nothing else is read.
    tags: [u64; WAYS],
    entries: [Entry; WAYS],
}

impl Set {
    /// The denial that holds for `cost` and was learnt from a call that was sent by now.
    pub(super) fn recall(&self, name: Name, cost: u64, now_us: u64) -> Option<Denial> {
        let entry = &self.entries[self.find(name)?];
        let holds = entry.name == name && entry.denial.sent_us <= now_us && now_us < entry.until_us;
        (holds && entry.denial.cost <= cost).then_some(entry.denial)
    }

    /// Remembers a denial that is sure to hold until `until_us`, unless something was dropped since its call was
    /// sent. Of two costs that are denied now, the smaller says more.
    pub(super) fn remember(&mut self, name: Name, denial: Denial, until_us: u64, now_us: u64) {
        let until_us = until_us.min(denial.sent_us + LIFE_US_MAX);
        if denial.sent_us <= self.dropped_at_us || until_us < now_us + LIFE_US_MIN {
            return;
        }
        let says_more =
            |entry: &Entry| entry.name == name && now_us < entry.until_us && entry.denial.cost < denial.cost;
        let place = self.find(name);
        if !place.is_some_and(|place| says_more(&self.entries[place])) {
            let place = place.unwrap_or_else(|| self.first_to_end());
            self.tags[place] = name.hash[1];
            self.entries[place] = Entry { name, until_us, denial };
        }
    }

    /// Drops what is known of a key under all versions of a policy, and whatever of this set is on its way.
    pub(super) fn forget(&mut self, name: Name, now_us: u64) {
        self.dropped_at_us = self.dropped_at_us.max(now_us);
        if let Some(place) = self.find(name) {
            self.entries[place].until_us = 0;
        }
    }

    /// Where the key is, under any version of the policy.
    fn find(&self, name: Name) -> Option<usize> {
        let is_it =
            |place: &usize| self.tags[*place] == name.hash[1] && self.entries[*place].name.hash == name.hash;
        (0..WAYS).find(is_it)
    }

    /// A place that is free, or else the one that is soonest.
    fn first_to_end(&self) -> usize {
        (0..WAYS).min_by_key(|&place| self.entries[place].until_us).unwrap_or(0)
    }
}
