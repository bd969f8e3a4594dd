//! How often a call is repeated, and over how many sets of buffers.

/// Level-2 cache of a Hopper GPU, rounded up.
pub const L2_BYTES: u64 = 60 << 20;

/// Shortest sample: events resolve half a microsecond, and a queue needs time to fill.
const SAMPLE_SECONDS: f64 = 1e-3;
/// Fewest calls a sample: the start and the end of the queue then weigh little.
const MIN_CALLS: usize = 8;
/// Most calls a sample.
const MAX_CALLS: usize = 128;
/// Most sets of buffers: enough for the smallest product to pass the cache, and few enough to be made quickly.
const MAX_SETS: u64 = 64;

/// Sets of buffers to rotate over, so that a set has left the cache when its turn comes again: at least two, and together,
/// without the one in use, twice the cache.
pub fn num_sets(set_bytes: u64) -> usize {
    (1 + (2 * L2_BYTES).div_ceil(set_bytes.max(1))).clamp(2, MAX_SETS) as usize
}

/// Back-to-back calls in one sample, for a call that takes about `seconds`.
pub fn calls_per_sample(seconds: f64) -> usize {
    let calls = (SAMPLE_SECONDS / seconds.max(1e-9)).ceil();
    (calls as usize).clamp(MIN_CALLS, MAX_CALLS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_pass_the_cache_twice_before_one_comes_again() {
        for bytes in [4 << 20, 37 << 20, 60 << 20, 1 << 30] {
            let sets = num_sets(bytes) as u64;
            assert!(sets >= 2 && (sets - 1) * bytes >= 2 * L2_BYTES, "{bytes}: {sets}");
        }
        assert_eq!(num_sets(0), MAX_SETS as usize);
        assert_eq!(num_sets(u64::MAX), 2);
    }

    #[test]
    fn short_calls_are_repeated_and_long_ones_too() {
        assert_eq!(calls_per_sample(1.0), MIN_CALLS);
        assert_eq!(calls_per_sample(10e-6), 100);
        assert_eq!(calls_per_sample(0.0), MAX_CALLS);
    }
}
