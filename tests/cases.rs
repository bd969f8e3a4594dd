//! Failures that users of such libraries have met, as tests on the emulator. Which kind is tested where:
//!
//! | kind | on the CPU | on a GPU |
//! | --- | --- | --- |
//! | ragged M | here; `emu_ops` (every world size) | `gpu_ops`, `gpu_raw` |
//! | small M | here; `emu_ops` | `gpu_ops`, `gpu_raw` |
//! | empty | `emu_ops` | `gpu_ops` |
//! | K edge | here (few rows); `emu_ops` | `gpu_ops` |
//! | ranks disagree | here; `reference` | `gpu_raw` |
//! | alignment | here; `plan::operand` | `gpu_raw` |
//! | strides | here | `gpu_raw` |
//! | descriptor | here (pointers); `abi` (alignment) | `gpu_driver` (an earlier error), `gpu_raw` |
//! | beta = 0 reads C | not applicable: no op reads C. Poisoned D: every test | the same |
//! | poison | every test here and in `emu_ops`; the emulator names reads of unwritten memory | `gpu_raw`, `gpu_faults` |
//! | NaN leak | `emu_ops`, `reference` | `gpu_ops` |
//! | sum, not avg | `emu_ops`, `reference` | `gpu_ops` |
//! | data that hides faults | here; `reference`; the count of tests is the runner's last line | `gpu_raw` |
//! | precision across ranks | `emu_ops`, `numerics` | `gpu_ops` |
//! | determinism | here (rows, margins); `emu_ops` (schedules, ways) | `gpu_ops`, `gpu_raw`, `gpu_big` (delays) |
//! | one option broken | `emu_ops` | `gpu_ops` |
//! | big tensors | `prop_schedule`, `reference` (addresses) | `gpu_big` |
//! | `sm_margin` ignored | here (values, bits) | `gpu_raw`; no kernel records its SM yet, so not which SMs stay free |
//! | co-residency | a world's ranks share its CTAs by construction | `gpu_driver` (occupancy) |
//! | lazy loading | - | `gpu_faults`, `gpu_driver` |
//! | `CUDA_LAUNCH_BLOCKING` | - | `gpu_faults` |
//! | epochs | `emu_ops` | `gpu_ops`, `gpu_graphs` (replay), `gpu_big` (delays) |
//! | memory order | `emu_ordering`, `ptx_contract` (scopes) | not applicable yet: needs two processes on two GPUs |
//! | signals by hand | here | `gpu_faults` |
//! | interior pointer | here (raw addresses) | `gpu_raw`; of exported memory: not applicable yet, no IPC |
//! | handle opened twice, own handle | not applicable yet: no IPC | the same |
//! | device ordinals | `driver::capability` (UUIDs) | not applicable yet: no processes |
//! | wire format | not applicable yet: no messages between processes | the same |
//! | peer opens fail, peer dies | not applicable yet: no processes | `gpu_faults` (a rank that never comes; 200 plans) |
//! | exit | - | not applicable yet: nothing is kept in statics |
//! | buffers freed early | - | `gpu_driver` |
//! | capture | - | `gpu_graphs`, `gpu_driver` |
//! | wgmma serialized | `ptx_contract`, the assembler's gate | - |
//! | old driver, wrong GPU | `driver::capability` | - |

use suite::{Case, TestResult, WAYS, arguments, raw};
use tilewire::World;
use tilewire::emulator::EmulatorOptions;
use tilewire::world::EmulatedOptions;

fn world(ranks: usize) -> World {
    world_of(ranks, 3)
}

fn world_of(ranks: usize, ctas_per_rank: u32) -> World {
    let emulator = EmulatorOptions::with_seed(ranks as u64);
    World::emulated_with(ranks, EmulatedOptions { ctas_per_rank, emulator, plant: None }).unwrap()
}

#[test]
fn rows_follow_the_ceil_rule() -> TestResult {
    let cases: [(usize, &[usize]); 7] = [
        (1023, &[256, 256, 256, 255]),
        (257, &[33, 33, 33, 33, 33, 33, 33, 26]),
        (9, &[2, 2, 2, 2, 1, 0, 0, 0]),
        (5, &[2, 2, 1, 0]),
        (3, &[1, 1, 1, 0]),
        (1, &[1, 0, 0, 0, 0, 0, 0, 0]),
        (0, &[0, 0, 0, 0]),
    ];
    cases.into_iter().try_for_each(|(m, rows)| arguments::rows_follow_the_ceil_rule(&world(rows.len()), m, rows))
}

#[test]
fn few_rows_are_right_for_four_ranks() -> TestResult {
    let world = world(4);
    for m in [1, 7, 8, 15, 16, 31, 32, 63, 64, 65, 127, 128, 129] {
        for (transport, placement, margin) in [WAYS[0], WAYS[3], WAYS[6]] {
            suite::fresh::<half::bf16, half::bf16>(&world, &Case::new(m, 136, 72).over(transport, placement, margin))?;
        }
    }
    Ok(())
}

/// The small tile has eight stages: one turn of its ring, one less, one more, and two and one.
#[test]
fn k_tiles_round_the_turns_of_the_small_tiles_ring_are_right() -> TestResult {
    let world = world(2);
    for k_tiles in [0, 1, 7, 8, 9, 17] {
        for tail in [0, 8] {
            suite::fresh::<half::bf16, half::bf16>(&world, &Case::new(20, 72, 64 * k_tiles + tail))?;
        }
    }
    Ok(())
}

#[test]
fn gaps_between_rows_and_guards_round_buffers_stay_untouched() -> TestResult {
    raw::gaps_and_guards_stay_untouched(&world(3), 140, 136, 72)?;
    raw::gaps_and_guards_stay_untouched(&world(2), 9, 40, 24)
}

#[test]
fn writes_into_gaps_are_caught() -> TestResult {
    raw::writes_into_gaps_are_caught(&world(2))
}

#[test]
fn rows_past_m_stay_untouched() -> TestResult {
    raw::rows_past_m_stay_untouched(&world(3), 300)
}

#[test]
fn column_slices_of_one_matrix_are_shards() -> TestResult {
    raw::column_slices_are_shards(&world(4), 150, 72, 72)
}

#[test]
fn a_transposed_view_is_a_layout() -> TestResult {
    arguments::a_transposed_view_is_a_layout(&world(2), 136, 72, 72)
}

#[test]
fn gaps_and_guards_of_a_plain_gemm_stay_untouched() -> TestResult {
    raw::gemm_gaps_and_guards_stay_untouched(&world(1))
}

#[test]
fn obeying_the_stride_message_makes_the_call_work() -> TestResult {
    arguments::obeying_the_stride_message_makes_the_call_work(&world(1))
}

#[test]
fn pointers_are_checked_and_nothing_is_lost() -> TestResult {
    [1, 3].into_iter().try_for_each(|ranks| arguments::pointers_are_checked(&world(ranks)))
}

#[test]
fn ranks_that_disagree_are_named() -> TestResult {
    arguments::ranks_that_disagree_are_named(&world(3))
}

#[test]
fn margins_do_not_change_bits() -> TestResult {
    arguments::margins_do_not_change_bits(&world_of(2, 12))
}

#[test]
fn rows_or_ranks_that_change_places_are_caught() -> TestResult {
    [1, 2, 4].into_iter().try_for_each(|ranks| raw::permuted_references_are_caught(&world(ranks)))
}

#[test]
fn a_row_has_the_same_bits_at_any_position_and_m() -> TestResult {
    arguments::a_row_has_the_same_bits_at_any_position_and_m(&world(3), 72, 136)
}

/// No wait can be as short as one plan's deadline: its call always faults.
#[test]
fn a_fault_belongs_to_the_plan_that_had_it() -> TestResult {
    let mut emulator = EmulatorOptions::with_seed(1);
    emulator.deadlock_is_fault = true;
    let world = World::emulated_with(2, EmulatedOptions { ctas_per_rank: 4, emulator, plant: None }).unwrap();
    arguments::a_fault_belongs_to_the_plan_that_had_it(&world)
}

#[test]
fn a_thousand_calls_need_no_reset() -> TestResult {
    suite::many_calls_give_the_same_bits(&world(2), &Case::new(10, 8, 8), 1000)
}
