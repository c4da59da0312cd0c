//! A read buffer that grows with what arrives, never with what a client announces.

use bytes::BytesMut;

/// Room for a read on a quiet connection: all that an idle connection holds.
const READ_BYTES_MIN: usize = 4 * 1024;

/// Most room for a read: several batches, and still in the processor's second cache.
const READ_BYTES_MAX: usize = 128 * 1024;

/// The bytes of a client that are not yet frames.
#[derive(Debug)]
pub(crate) struct Input {
    bytes: BytesMut,
    /// Room that the next read gets.
    read_bytes: usize,
}

impl Input {
    pub(crate) fn new() -> Self {
        Self { bytes: BytesMut::new(), read_bytes: READ_BYTES_MIN }
    }

    /// The bytes.
    pub(crate) fn bytes(&mut self) -> &mut BytesMut {
        &mut self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Makes room for a read. Memory that no batch holds any more is used again.
    pub(crate) fn make_room(&mut self) {
        self.bytes.reserve(self.read_bytes);
    }

    /// Learns from a read of `count` bytes: twice the room after one that took it all, half of it after one
    /// that left most.
    pub(crate) fn was_read(&mut self, count: usize) {
        if count >= self.read_bytes {
            self.read_bytes = (2 * self.read_bytes).min(READ_BYTES_MAX);
        } else if count < self.read_bytes / 4 {
            self.read_bytes = (self.read_bytes / 2).max(READ_BYTES_MIN);
        }
    }

    /// Gives the memory back where no bytes wait.
    pub(crate) fn release(&mut self) {
        if self.bytes.is_empty() {
            *self = Self::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Input {
        /// A read of as much as there is room for, or `most`.
        fn read(&mut self, most: usize) {
            self.make_room();
            let count = (self.bytes.capacity() - self.bytes.len()).min(most);
            self.bytes.resize(self.bytes.len() + count, 0);
            self.was_read(count);
        }
    }

    #[test]
    fn it_holds_little_until_bytes_have_come() {
        let mut input = Input::new();
        input.make_room();
        assert!(input.bytes.capacity() < 2 * READ_BYTES_MIN);
        while input.len() < 16 * READ_BYTES_MAX {
            input.read(usize::MAX);
            input.make_room();
            assert!(
                input.bytes.capacity() <= 4 * input.len(),
                "{} for {}",
                input.bytes.capacity(),
                input.len()
            );
        }
        assert_eq!(input.read_bytes, READ_BYTES_MAX);
    }

    #[test]
    fn memory_is_used_again_once_the_frames_are_dealt_with() {
        let mut input = Input::new();
        input.read(READ_BYTES_MIN);
        let room = input.bytes.as_ptr();
        for _ in 0..100 {
            drop(input.bytes.split_to(input.bytes.len()).freeze());
            input.read_bytes = READ_BYTES_MIN;
            input.read(READ_BYTES_MIN);
            assert_eq!(input.bytes.as_ptr(), room);
        }
    }

    #[test]
    fn it_shrinks_with_small_reads_and_is_released_when_empty() {
        let mut input = Input::new();
        input.read_bytes = READ_BYTES_MAX;
        for _ in 0..10 {
            input.read(1);
        }
        assert_eq!(input.read_bytes, READ_BYTES_MIN);
        input.release();
        assert_eq!(input.len(), 10, "bytes that wait are kept");
        input.bytes.clear();
        input.release();
        assert_eq!(input.bytes.capacity(), 0);
    }
}
