//! The lock of the parts that are modelled: that of parking_lot, or, with `--cfg tollgate_loom`, that of loom, which
//! tries every order in which threads can take it.

#[cfg(tollgate_loom)]
pub(crate) use self::model::Mutex;
#[cfg(not(tollgate_loom))]
pub(crate) use parking_lot::Mutex;

#[cfg(tollgate_loom)]
mod model {
    use loom::sync::MutexGuard;

    /// Looks like that of parking_lot.
    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            // It is poisoned only where a model has failed already.
            self.0.lock().unwrap()
        }
    }
}
