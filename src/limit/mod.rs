//! The arithmetic of limits: whole numbers in, whole numbers out.
//!
//! Nothing here knows a store, a socket or a clock: time is an argument, in microseconds since an epoch that
//! the store chose. The scripts of the Redis store do the same arithmetic in Lua, whose numbers are exact to
//! 2^53; a limit whose products could reach that is refused by [`Rule::new`].
//!
//! | module | subject |
//! |---|---|
//! | [`quantum`] | the unit of time in which a limit counts |
//! | [`token_bucket`], [`sliding_window`] | one algorithm each |
//! | [`rule`] | the list of algorithms: a limit made ready to be applied |
//! | [`state`] | what is remembered of a key under a limit |
//! | [`mod@decide`] | operations on policies of several limits, and linked checks |

pub mod decide;
pub mod quantum;
pub mod rule;
pub mod sliding_window;
pub mod state;
pub mod token_bucket;

#[cfg(test)]
mod tests;

pub use decide::{Cells, Decision, PolicyLimit, Request, decide};
pub use rule::{Rule, UnsupportedLimit};
pub use state::{State, StateId};

/// Products and stored amounts stay below this: two of them add up to less than 2^53.
pub const AMOUNT_MAX: u64 = 1 << 52;

/// A clock further behind a stored time than this is believed: the charge is kept, the time is taken anew.
/// A clock less far behind counts as the stored time.
pub const CLOCK_STEP_US_MAX: u64 = 10_000_000;
