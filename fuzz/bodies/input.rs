//! Bytes as numbers and choices. When they run out, everything is 0.

/// The bytes that are left.
pub struct Input<'a>(pub &'a [u8]);

impl Input<'_> {
    pub fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().map_or((0, self.0), |(first, rest)| (*first, rest));
        self.0 = rest;
        first
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    pub fn pick<T: Copy, const N: usize>(&mut self, of: [T; N]) -> T {
        of[usize::from(self.byte()) % N]
    }

    /// Mostly small, now and then at the limits of what fits, or anything.
    pub fn extent(&mut self) -> usize {
        match self.byte() % 8 {
            0..=2 => usize::from(self.byte()),
            3 | 4 => usize::from(self.u16() % 1000),
            5 => usize::from(self.u16()),
            6 => self.pick([
                usize::MAX,
                usize::MAX / 2,
                1 << 32,
                1 << 31,
                (1 << 31) - 1,
                (1 << 31) - 128,
                1 << 30,
                1 << 24,
                (1 << 16) + 1,
            ]),
            _ => self.u64() as usize,
        }
    }
}
