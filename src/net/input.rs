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
