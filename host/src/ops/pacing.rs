//! How long a storer pauses between the panels that it pushes.
//!
//! All CTAs finish their tiles at about the same time, and a burst of panels on the link holds up the loads of the next
//! tiles. Spread over the next main loop, the same panels cost less: 2 to 6 % of a short call, measured on two H200s. A call
//! long enough to be bound by power loses 2 % by it.

use crate::kernels::config::PANEL_BYTES;

/// Time of one step along K (64 elements) of a 128 × 256 tile on an SM: 0.7 µs at the 790 TFLOP/s of an H200.
const K_TILE_NS: u64 = 700;

/// Longest pause between pushed panels: a tile's eight then take 28 µs, which is what a burst of all SMs takes.
const MAX_PACE_NS: u64 = 3_500;

/// Calls with more arithmetic than this on each rank are not paced: they run for more than a millisecond.
const PACED_FLOPS: f64 = 1e12;

/// Pause in nanoseconds after each pushed panel of a call of this shape on each rank; 0 is none.
pub fn pace_ns(m: u32, n: u32, k: u32, slot_tile_bytes: u32) -> u32 {
    if 2.0 * f64::from(m) * f64::from(n) * f64::from(k) > PACED_FLOPS {
        return 0;
    }
    let panels = u64::from((slot_tile_bytes / PANEL_BYTES).max(1));
    let main_loop_ns = u64::from(k.div_ceil(64)) * K_TILE_NS;
    // Half of it, since `nanosleep` takes up to twice the time.
    (main_loop_ns / 2 / panels).min(MAX_PACE_NS) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_pauses_of_a_tile_fit_the_next_main_loop() {
        for k in [1, 64, 1000, 4096, 7168, 14336] {
            let pause = u64::from(pace_ns(4096, 4096, k, 8 * PANEL_BYTES));
            assert!(
                pause * 8 * 2 <= u64::from(k.div_ceil(64)) * K_TILE_NS && pause <= MAX_PACE_NS,
                "K = {k}: {pause} ns"
            );
        }
    }

    #[test]
    fn calls_that_power_bounds_are_not_paced() {
        assert_eq!(pace_ns(8192, 8192, 14784, 8 * PANEL_BYTES), 0);
        assert!(pace_ns(8192, 4096, 7168, 8 * PANEL_BYTES) > 0);
    }
}
