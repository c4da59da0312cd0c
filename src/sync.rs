//! The locks and atomics of the parts that are modelled: those of parking_lot and the standard library, or, with
//! `--cfg tollgate_loom`, those of loom, which tries every order in which threads can come to them.

#[cfg(not(tollgate_loom))]
pub(crate) use std::sync::atomic;

#[cfg(tollgate_loom)]
pub(crate) use loom::sync::atomic;
#[cfg(not(tollgate_loom))]
pub(crate) use parking_lot::{Mutex, MutexGuard};

#[cfg(tollgate_loom)]
pub(crate) use self::model::{Mutex, MutexGuard};

#[cfg(tollgate_loom)]
mod model {
    use std::ops::{Deref, DerefMut};

    /// Looks like that of parking_lot.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    /// Looks like that of parking_lot. It holds the lock but for the time of [`MutexGuard::unlocked`].
    pub(crate) struct MutexGuard<'a, T> {
        mutex: &'a Mutex<T>,
        guard: Option<loom::sync::MutexGuard<'a, T>>,
    }

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            // It is poisoned only where a model has failed already.
            MutexGuard { mutex: self, guard: Some(self.0.lock().unwrap()) }
        }
    }

    impl<T> MutexGuard<'_, T> {
        pub(crate) fn unlocked<U>(guard: &mut Self, work: impl FnOnce() -> U) -> U {
            guard.guard = None;
            let result = work();
            guard.guard = guard.mutex.lock().guard;
            result
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.guard.as_ref().unwrap()
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.guard.as_mut().unwrap()
        }
    }
}
