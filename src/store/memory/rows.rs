//! Rows of one length, without gaps, in chunks: growing copies nothing, and what is removed is given back.

/// Rows of a chunk. A table wastes half a chunk on average.
const CHUNK_ROWS: usize = 16;

/// A table of rows that are equally long.
pub(super) struct Rows {
    row_bytes: usize,
    len: usize,
    chunks: Vec<Box<[u8]>>,
}

impl Rows {
    /// No rows, of `row_bytes`.
    pub(super) fn new(row_bytes: usize) -> Self {
        Self { row_bytes, len: 0, chunks: Vec::new() }
    }

    /// The number of rows.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The row at `index`, which is below `len`.
    pub(super) fn row(&self, index: usize) -> &[u8] {
        &self.chunks[index / CHUNK_ROWS][index % CHUNK_ROWS * self.row_bytes..][..self.row_bytes]
    }

    /// See [`Rows::row`].
    pub(super) fn row_mut(&mut self, index: usize) -> &mut [u8] {
        &mut self.chunks[index / CHUNK_ROWS][index % CHUNK_ROWS * self.row_bytes..][..self.row_bytes]
    }

    /// Appends a row of any content, and lends it.
    pub(super) fn push(&mut self) -> &mut [u8] {
        let index = self.len;
        if index == self.chunks.len() * CHUNK_ROWS {
            self.chunks.push(vec![0; CHUNK_ROWS * self.row_bytes].into());
        }
        self.len += 1;
        self.row_mut(index)
    }

    /// Removes the row at `index`, which is below `len`; the last row takes its place.
    pub(super) fn swap_remove(&mut self, index: usize) {
        let Some((last_chunk, chunks)) = self.chunks.split_last_mut() else { return };
        self.len -= 1;
        let from = self.len % CHUNK_ROWS * self.row_bytes;
        let to = index % CHUNK_ROWS * self.row_bytes;
        match chunks.get_mut(index / CHUNK_ROWS) {
            Some(chunk) => {
                chunk[to..][..self.row_bytes].copy_from_slice(&last_chunk[from..][..self.row_bytes]);
            }
            None => last_chunk.copy_within(from..from + self.row_bytes, to),
        }
        if from == 0 {
            self.chunks.pop();
        }
    }

    /// Gives back what the list of chunks has left over after many rows were removed.
    pub(super) fn shrink(&mut self) {
        if self.chunks.capacity() > 4 * self.chunks.len() {
            self.chunks.shrink_to(2 * self.chunks.len());
        }
    }

    /// Bytes from the allocator.
    #[cfg(test)]
    pub(super) fn allocated_bytes(&self) -> usize {
        let chunk_bytes = CHUNK_ROWS * self.row_bytes;
        self.chunks.capacity() * size_of::<Box<[u8]>>() + self.chunks.len() * chunk_bytes
    }
}
