//! How long a storer pauses between the panels that it pushes.
//!
//! All CTAs finish their tiles at about the same time, and a burst of panels on the link holds up the loads of the next
//! tiles. Spread over the next main loop, the same panels cost less: 2 to 6 % of a short call, measured on two H200s. A call
//! long enough to be bound by power loses 2 % by it.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::kernels::config::PANEL_BYTES;
use crate::kernels::entries::{Entry, Op};

/// Time of one step along K (64 elements) of a 128 × 256 tile on an SM: 0.7 µs at the 790 TFLOP/s of an H200.
const K_TILE_NS: u64 = 700;

/// Longest pause between pushed panels: a tile's eight then take 28 µs, which is what a burst of all SMs takes.
const MAX_PACE_NS: u64 = 3_500;

/// Calls with more arithmetic than this on each rank are not paced: they run for more than a millisecond.
const PACED_FLOPS: f64 = 1e12;

/// Elements of that tile.
const MAIN_TILE: u64 = 128 * 256;

/// Pause in nanoseconds after each panel that kernel `entry` pushes in a call of this shape on each rank; 0 is none.
pub fn pace_ns([m, n, k]: [u32; 3], entry: &Entry) -> u32 {
    if 2.0 * f64::from(m) * f64::from(n) * f64::from(k) > PACED_FLOPS {
        return 0;
    }
    let panels = u64::from((entry.slot_tile_bytes / PANEL_BYTES).max(1));
    // Consumers in turns hand their tiles on one after the other, each in the time of its own main loop.
    let tile = match entry.op {
        Op::GemmReduceScatterPingPong => u64::from(entry.tile[0] * entry.tile[1]),
        _ => MAIN_TILE,
    };
    let main_loop_ns = u64::from(k.div_ceil(64)) * K_TILE_NS * tile / MAIN_TILE;
    // Half of it, since `nanosleep` takes up to twice the time.
    (main_loop_ns / 2 / panels).min(MAX_PACE_NS) as u32
}

/// A pause that the caller wants, in nanoseconds.
///
/// # Errors
/// [`Error::Argument`] if it is longer than [`MAX_PACE_NS`].
pub fn check(pause: Duration) -> Result<u32> {
    let rule = || Error::argument("push_pause", format!("{pause:?}"), format!("it is at most {MAX_PACE_NS} ns"));
    let ns = u32::try_from(pause.as_nanos()).map_err(|_| rule())?;
    if u64::from(ns) <= MAX_PACE_NS { Ok(ns) } else { Err(rule()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Variant;
    use crate::plan::variant::TURNS_TILE;

    fn kernel(tile: [u32; 2]) -> &'static Entry {
        Variant::default().entry_of(Op::GemmReduceScatter, tile).unwrap()
    }

    #[test]
    fn all_pauses_of_a_tile_fit_the_next_main_loop() {
        for (entry, panels, k_tile_ns) in [(kernel([128, 256]), 8, K_TILE_NS), (kernel(TURNS_TILE), 6, 525)] {
            for k in [1, 64, 1000, 4096, 7168, 14336] {
                let pause = u64::from(pace_ns([4096, 4096, k], entry));
                let main_loop_ns = u64::from(k.div_ceil(64)) * k_tile_ns;
                assert!(pause * panels * 2 <= main_loop_ns && pause <= MAX_PACE_NS, "K = {k}: {pause} ns");
            }
        }
    }

    #[test]
    fn pauses_that_are_too_long_are_refused() {
        assert_eq!(check(Duration::from_nanos(3_500)).unwrap(), 3_500);
        let text = check(Duration::from_secs(1)).unwrap_err().to_string();
        assert_eq!(text, "push_pause is 1s, but it is at most 3500 ns");
        assert!(check(Duration::MAX).is_err());
    }

    #[test]
    fn calls_that_power_bounds_are_not_paced() {
        assert_eq!(pace_ns([8192, 8192, 14784], kernel([128, 256])), 0);
        assert!(pace_ns([8192, 4096, 7168], kernel([128, 256])) > 0);
    }
}
