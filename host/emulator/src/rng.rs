//! The seeded source of every choice: which agent runs, which copy proceeds, where an agent yields.

/// SplitMix64. The same seed gives the same choices on every machine, which is what makes a failure replay.
#[derive(Clone, Debug)]
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in `0..n`; 0 when `n` is 0. The bias of the high-word method is far below what a schedule could notice.
    pub(super) fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }

    /// True `per_1024` times in 1024.
    pub(super) fn chance(&mut self, per_1024: u32) -> bool {
        per_1024 >= 1024 || (self.next() & 1023) < u64::from(per_1024)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let (mut a, mut b) = (Rng::new(7), Rng::new(7));
        assert!((0..100).all(|_| a.next() == b.next()));
        assert_ne!(Rng::new(1).next(), Rng::new(2).next());
    }

    #[test]
    fn numbers_stay_below_the_bound_and_reach_all_of_it() {
        let mut rng = Rng::new(3);
        let mut seen = [0u32; 5];
        for _ in 0..1000 {
            seen[rng.below(5)] += 1;
        }
        assert!(seen.iter().all(|n| *n > 100), "{seen:?}");
        assert!((0..100).all(|_| rng.chance(1024)) && (0..100).all(|_| !rng.chance(0)));
    }
}
