//! Removal of states that are the same as none.

use std::{convert::Infallible, time::Duration};

use tokio::{
    task::yield_now,
    time::{MissedTickBehavior, interval},
};

use super::{
    MemoryStore, STRIPES,
    stripe::{Step, Stripe},
};
use crate::sync::{Mutex, atomic::Ordering};

/// Most states that are looked at under one lock.
const STEP_ROWS_MAX: usize = 256;

/// Most states that are looked at by one who needs room.
const SEARCH_ROWS_MAX: usize = 1_024;

/// Time of a pass over all stripes. Above a million states it is longer, so that the sweep stays a small part
/// of the work.
const PASS: Duration = Duration::from_secs(1);

/// Parts of a pass. A part is done at once, step by step, up to a bound.
const PASS_PARTS: usize = 16;

/// Most states that are looked at before the next tick: about a million a second.
const TICK_ROWS_MAX: usize = 65_536;

impl MemoryStore {
    /// Removes expired states, in passes of a second, and keeps the gauges.
    pub async fn sweep(&self) -> Infallible {
        let mut ticks = interval(PASS / PASS_PARTS as u32);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            for part in self.stripes.chunks(STRIPES / PASS_PARTS) {
                ticks.tick().await;
                let mut visited = 0;
                for stripe in part {
                    while let Step { finished: false, visited: of_step, .. } = self.step(&stripe.0) {
                        visited += of_step;
                        if visited < TICK_ROWS_MAX {
                            yield_now().await;
                        } else {
                            visited = 0;
                            ticks.tick().await;
                        }
                    }
                }
                self.report();
            }
        }
    }

    /// Looks for expired states until some were removed, within a bound and in each stripe at most once.
    /// False where there were none.
    pub(super) fn make_room(&self) -> bool {
        let mut visited = 0;
        for _ in 0..STRIPES {
            let next = self.next_stripe.fetch_add(1, Ordering::Relaxed);
            let step = self.step(&self.stripes[next % STRIPES].0);
            visited += step.visited;
            if step.reclaimed > 0 || visited >= SEARCH_ROWS_MAX {
                return step.reclaimed > 0;
            }
        }
        false
    }

    /// One step of the pass over a stripe.
    pub(super) fn step(&self, stripe: &Mutex<Stripe>) -> Step {
        let now_us = self.clock.now_us();
        stripe.lock().reclaim(now_us, STEP_ROWS_MAX, &self.hasher, &self.bounds)
    }

    fn report(&self) {
        self.metrics.memory_keys.set(self.bounds.keys() as i64);
        self.metrics.memory_bytes.set(self.bounds.bytes() as i64);
    }
}
