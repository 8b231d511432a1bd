//! Text without allocation.

use core::fmt;

/// A text of at most `N` bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Name<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Name<N> {
    pub(super) const EMPTY: Self = Name { bytes: [0; N], length: 0 };

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        let room = &mut self.bytes[self.length..];
        let fits = bytes.len().min(room.len());
        room[..fits].copy_from_slice(&bytes[..fits]);
        self.length += fits;
    }

    /// Replaces each byte by what `to` returns for it.
    pub(super) fn map(mut self, to: impl Fn(u8) -> u8) -> Self {
        self.bytes[..self.length].iter_mut().for_each(|byte| *byte = to(*byte));
        self
    }
}

impl<const N: usize> fmt::Write for Name<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.add(text.as_bytes());
        Ok(())
    }
}
