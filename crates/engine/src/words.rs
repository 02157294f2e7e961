//! Many shared words in a row, on cache lines of their own.
//!
//! What an allocator puts next to them shares no line with them, and which of them share one depends on nothing but their
//! place: so a host that models lines models the same ones in every run.
//!
//! Knows nothing of what the words mean.

use crate::host::{LineClass, Shared};
use crossbeam_utils::CachePadded;

/// Words per padded block: as many as fill it on threads.
const BLOCK: usize = 16;

pub(crate) struct Words<S> {
    blocks: Box<[CachePadded<[S; BLOCK]>]>,
    len: usize,
}

impl<S: Shared> Words<S> {
    /// `len` words that hold zero.
    pub(crate) fn new(class: LineClass, len: usize) -> Self {
        let block = |_| CachePadded::new(std::array::from_fn(|_| S::of(class, 0)));
        Words { blocks: (0..len.div_ceil(BLOCK)).map(block).collect(), len }
    }

    /// The word at `index`.
    pub(crate) fn word(&self, index: usize) -> &S {
        &self.blocks[index / BLOCK][index % BLOCK]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &S> {
        self.blocks.iter().flat_map(|block| block.iter()).take(self.len)
    }
}
