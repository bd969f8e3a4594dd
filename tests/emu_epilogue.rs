//! Epilogues on the emulator: the kernels' own source, on a machine without a GPU.

use suite::{TestResult, epilogue, epilogue_over_ranks, tiles};
use tilewire::World;
use tilewire::emulator::EmulatorOptions;
use tilewire::world::EmulatedOptions;

fn world(ranks: usize, seed: u64) -> World {
    let emulator = EmulatorOptions::with_seed(seed);
    World::emulated_with(ranks, EmulatedOptions { ctas_per_rank: 3, emulator, ..EmulatedOptions::default() }).unwrap()
}

#[test]
fn every_layout_type_and_epilogue_is_right() -> TestResult {
    epilogue::gemm_of_every_variant_and_form(&world(1, 1), &[(131, 264, 72), (70, 40, 24)])
}

#[test]
fn tiles_that_follow_each_other_in_a_cta_are_right() -> TestResult {
    (0..4).try_for_each(|seed| epilogue::many_tiles_with_epilogue(&world(1, seed), (400, 520, 8)))
}

#[test]
fn every_epilogue_on_every_tile_is_right_cut_and_uncut() -> TestResult {
    tiles::every_epilogue_on_every_tile(&world(1, 1), &[(131, 264, 200), (9, 105, 136), (70, 392, 72)])?;
    tiles::every_epilogue_on_cut_tiles(&world(1, 2), (140, 392, 264))
}

#[test]
fn every_epilogue_on_8_bit_operands_is_right() -> TestResult {
    tiles::every_epilogue_on_8_bit_operands(&world(1, 1), &[(131, 264, 144), (9, 105, 272)])
}

#[test]
fn epilogues_that_were_not_compiled_are_refused() -> TestResult {
    tiles::epilogues_that_were_not_compiled_are_refused(&world(1, 1))
}

#[test]
fn k_edges_are_right() -> TestResult {
    epilogue::k_edges_with_epilogue(&world(1, 1))
}

#[test]
fn beta_zero_reads_no_c() -> TestResult {
    epilogue::beta_zero_reads_no_c(&world(1, 1))
}

#[test]
fn nans_of_addends_stay_where_they_are() -> TestResult {
    epilogue::nans_of_addends_stay_where_they_are(&world(1, 1))
}

#[test]
fn misplaced_addends_are_noticed() -> TestResult {
    epilogue::misplaced_addends_are_noticed(&world(1, 1))
}

#[test]
fn bad_epilogues_are_refused() -> TestResult {
    epilogue::bad_epilogues_are_refused(&world(1, 1))
}

#[test]
fn every_epilogue_over_ranks_is_right_in_every_way() -> TestResult {
    for ranks in [1, 2, 3] {
        epilogue_over_ranks::every_form_in_every_way(&world(ranks, ranks as u64), &[(131, 72, 40), (9, 105, 24)])?;
    }
    Ok(())
}

#[test]
fn every_layout_type_and_epilogue_over_ranks_is_right() -> TestResult {
    [1, 3]
        .into_iter()
        .try_for_each(|ranks| epilogue_over_ranks::every_variant_and_form_over_ranks(&world(ranks, 1), (140, 264, 40)))
}

#[test]
fn every_epilogue_on_8_bit_operands_over_ranks_is_right() -> TestResult {
    [1, 3].into_iter().try_for_each(|ranks| {
        epilogue_over_ranks::every_form_on_8_bit_operands_over_ranks(&world(ranks, 1), (140, 136, 144))
    })
}

#[test]
fn bits_do_not_depend_on_the_way_of_the_tiles() -> TestResult {
    for ranks in [1, 3] {
        epilogue_over_ranks::bits_with_epilogue_are_the_same_in_every_way(&world(ranks, 7), 150, 136, 40)?;
    }
    Ok(())
}

#[test]
fn few_rows_over_ranks_are_right() -> TestResult {
    for (ranks, rows) in [(1, &[37][..]), (2, &[64]), (3, &[20, 100])] {
        epilogue_over_ranks::few_rows(&world(ranks, ranks as u64), rows, 105, 72)?;
    }
    Ok(())
}

#[test]
fn the_bias_is_added_once() -> TestResult {
    [2, 4].into_iter().try_for_each(|ranks| epilogue_over_ranks::bias_is_added_once(&world(ranks, 1)))
}

#[test]
fn bad_epilogues_over_ranks_are_refused() -> TestResult {
    epilogue_over_ranks::bad_epilogues_over_ranks_are_refused(&world(3, 1))
}
