//! Few rows on the emulator: tiles that hold every owner's rows give the bits of tiles that hold one owner's.

use half::{bf16, f16};
use suite::few_rows::{WAYS, same_bits_as_own_tiles};
use suite::{Case, TestResult, few_rows, plan};
use tilewire::World;
use tilewire::emulator::{Delay, EmulatorOptions};
use tilewire::kernels::abi::{Placement, Transport};
use tilewire::kernels::config::Element;
use tilewire::kernels::shape::Rank;
use tilewire::world::EmulatedOptions;

fn world(ranks: usize, seed: u64) -> World {
    world_with(ranks, EmulatorOptions::with_seed(seed))
}

fn world_with(ranks: usize, emulator: EmulatorOptions) -> World {
    World::emulated_with(ranks, EmulatedOptions { ctas_per_rank: 3, emulator, ..EmulatedOptions::default() }).unwrap()
}

#[test]
fn bits_are_those_of_own_tiles_for_every_world_and_number_of_rows() -> TestResult {
    for ranks in 1..=8 {
        for (at, m) in [1, 2, 7, 8, 9, 16, 17, 31, 33, 63, 64, 65, 72, 100, 127, 128].into_iter().enumerate() {
            // Ragged in K and, but for some, in N: 105 columns end between two steps of 16 bytes.
            let n = [64, 72, 105, 200, 8][(at + ranks) % 5];
            same_bits_as_own_tiles(&world(ranks, at as u64), &Case::new(m, n, 72))?;
        }
    }
    Ok(())
}

#[test]
fn more_tiles_than_ctas_and_many_stages() -> TestResult {
    for m in [16, 100] {
        same_bits_as_own_tiles(&world(2, 3), &Case::new(m, 64 * 8, 64 * 14))?;
    }
    Ok(())
}

#[test]
fn k_edges() -> TestResult {
    for k in [0, 1, 8, 63, 64, 65] {
        same_bits_as_own_tiles(&world(3, k as u64), &Case::new(13, 72, k))?;
    }
    Ok(())
}

#[test]
fn every_type_is_right() -> TestResult {
    for m in [5, 90] {
        let world = world(3, m as u64);
        for (transport, placement, margin) in WAYS {
            let case = Case::new(m, 136, 72).over(transport, placement, margin);
            suite::fresh::<bf16, f32>(&world, &case)?;
            suite::fresh::<f16, f16>(&world, &case)?;
            suite::fresh::<f16, f32>(&world, &case)?;
        }
    }
    Ok(())
}

#[test]
fn calls_of_every_number_of_rows_share_a_plan() -> TestResult {
    few_rows::calls_share_a_plan(&world(3, 9), 136, 72)
}

#[test]
fn schedules_and_slow_ranks_change_nothing() -> TestResult {
    for (transport, placement, margin) in WAYS {
        for (seed, delay) in [(1, Delay::Seldom(16)), (2, Delay::UntilOthersBlock)] {
            let mut options = EmulatorOptions::with_seed(seed);
            options.delays = vec![(Rank(1), delay)];
            let case = Case::new(20, 200, 72).over(transport, placement, margin);
            suite::many_calls_give_the_same_bits(&world_with(3, options), &case, 4)?;
        }
    }
    for seed in 0..40 {
        suite::many_calls_give_the_same_bits(&world(3, seed), &Case::new(70, 136, 72), 1)?;
    }
    Ok(())
}

#[test]
fn the_workspace_of_few_rows_is_small() -> TestResult {
    let world = world(2, 1);
    let bytes_by = |placement| -> Result<u64, String> {
        let case = Case::new(16, 8192, 64).over(Transport::Push, placement, 0);
        Ok(plan::<bf16, bf16>(&world, &case).map_err(|e| e.to_string())?.workspace_bytes())
    };
    // Two parities of 128 tiles from two senders: of 8 KiB in slots, or twice the bytes of the eight own rows; and the words.
    let slots = 2 * 2 * 128 * 64 * 64 * u64::from(Element::Bf16.bytes());
    let flagged = 2 * 2 * 128 * 8 * 64 * 2 * u64::from(Element::Bf16.bytes());
    for (placement, expected) in [(Placement::Partition, slots), (Placement::Epilogue, flagged)] {
        let bytes = bytes_by(placement)?;
        if bytes < expected || bytes >= expected + 8192 {
            return Err(format!("{placement:?}: {bytes} bytes, of which tiles take {expected}"));
        }
    }
    Ok(())
}
