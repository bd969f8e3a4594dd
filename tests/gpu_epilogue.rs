//! Epilogues on a Hopper GPU, with virtual ranks and, where there are several GPUs, with real ones.

mod common;

use std::process::ExitCode;

use common::{Case, TestResult};
use suite::{epilogue, epilogue_over_ranks, tiles};
use tilewire::World;
use tilewire::driver::Gpu;

fn virtual_ranks(ranks: usize) -> Result<World, String> {
    World::virtual_ranks(0, ranks).map_err(|e| e.to_string())
}

fn every_variant_and_form(_: &Gpu) -> TestResult {
    let shapes = [(131, 264, 72), (70, 40, 24), (1, 8, 8), (257, 105, 200), (512, 1000, 328)];
    epilogue::gemm_of_every_variant_and_form(&virtual_ranks(1)?, &shapes)
}

fn many_tiles(_: &Gpu) -> TestResult {
    epilogue::many_tiles_with_epilogue(&virtual_ranks(1)?, (4000, 4104, 136))
}

fn every_tile(_: &Gpu) -> TestResult {
    let world = virtual_ranks(1)?;
    tiles::every_epilogue_on_every_tile(&world, &[(131, 264, 200), (9, 105, 4136), (300, 2000, 1544)])?;
    tiles::every_epilogue_on_cut_tiles(&world, (1100, 5000, 1032))
}

fn operands_of_8_bits(_: &Gpu) -> TestResult {
    tiles::every_epilogue_on_8_bit_operands(&virtual_ranks(1)?, &[(131, 264, 144), (9, 105, 272), (2000, 3000, 528)])
}

fn not_compiled(_: &Gpu) -> TestResult {
    tiles::epilogues_that_were_not_compiled_are_refused(&virtual_ranks(1)?)
}

fn k_edges(_: &Gpu) -> TestResult {
    epilogue::k_edges_with_epilogue(&virtual_ranks(1)?)
}

fn beta_zero_reads_no_c(_: &Gpu) -> TestResult {
    epilogue::beta_zero_reads_no_c(&virtual_ranks(1)?)
}

fn nans_of_addends_stay_where_they_are(_: &Gpu) -> TestResult {
    epilogue::nans_of_addends_stay_where_they_are(&virtual_ranks(1)?)
}

fn misplaced_addends_are_noticed(_: &Gpu) -> TestResult {
    epilogue::misplaced_addends_are_noticed(&virtual_ranks(1)?)
}

fn bad_epilogues_are_refused(_: &Gpu) -> TestResult {
    epilogue::bad_epilogues_are_refused(&virtual_ranks(1)?)?;
    epilogue_over_ranks::bad_epilogues_over_ranks_are_refused(&virtual_ranks(3)?)
}

fn every_form_in_every_way(_: &Gpu) -> TestResult {
    for ranks in [1, 2, 3, 8] {
        epilogue_over_ranks::every_form_in_every_way(&virtual_ranks(ranks)?, &[(1023, 520, 200), (9, 105, 24)])?;
    }
    Ok(())
}

fn every_variant_and_form_over_ranks(_: &Gpu) -> TestResult {
    [1, 3]
        .into_iter()
        .try_for_each(|r| epilogue_over_ranks::every_variant_and_form_over_ranks(&virtual_ranks(r)?, (300, 520, 136)))
}

fn bits_are_the_same_in_every_way(_: &Gpu) -> TestResult {
    for ranks in [1, 2, 3, 8] {
        epilogue_over_ranks::bits_with_epilogue_are_the_same_in_every_way(&virtual_ranks(ranks)?, 1100, 520, 264)?;
    }
    Ok(())
}

fn few_rows(_: &Gpu) -> TestResult {
    for (ranks, rows) in [(1, &[37][..]), (2, &[16, 65]), (3, &[64]), (8, &[128])] {
        epilogue_over_ranks::few_rows(&virtual_ranks(ranks)?, rows, 520, 328)?;
    }
    Ok(())
}

fn operands_of_8_bits_over_ranks(_: &Gpu) -> TestResult {
    [1, 3].into_iter().try_for_each(|ranks| {
        epilogue_over_ranks::every_form_on_8_bit_operands_over_ranks(&virtual_ranks(ranks)?, (700, 520, 528))
    })
}

fn bias_is_added_once(_: &Gpu) -> TestResult {
    [2, 4, 8].into_iter().try_for_each(|ranks| epilogue_over_ranks::bias_is_added_once(&virtual_ranks(ranks)?))
}

fn real_ranks(gpus: &[Gpu]) -> TestResult {
    let ordinals: Vec<usize> = (0..gpus.len()).collect();
    let world = World::local(&ordinals).map_err(|e| e.to_string())?;
    epilogue_over_ranks::every_form_in_every_way(&world, &[(1023, 520, 200), (9, 105, 24)])?;
    epilogue_over_ranks::every_variant_and_form_over_ranks(&world, (300, 520, 136))?;
    epilogue_over_ranks::few_rows(&world, &[16, 37, 100], 520, 328)?;
    epilogue_over_ranks::bits_with_epilogue_are_the_same_in_every_way(&world, 1100, 520, 264)
}

fn main() -> ExitCode {
    common::suite_main(vec![
        Case::one("every_variant_and_form", every_variant_and_form),
        Case::one("many_tiles", many_tiles),
        Case::one("every_tile_cut_and_uncut", every_tile),
        Case::one("operands_of_8_bits", operands_of_8_bits),
        Case::one("epilogues_that_were_not_compiled_are_refused", not_compiled),
        Case::one("k_edges", k_edges),
        Case::one("beta_zero_reads_no_c", beta_zero_reads_no_c),
        Case::one("nans_of_addends_stay_where_they_are", nans_of_addends_stay_where_they_are),
        Case::one("misplaced_addends_are_noticed", misplaced_addends_are_noticed),
        Case::one("bad_epilogues_are_refused", bad_epilogues_are_refused),
        Case::one("every_form_in_every_way", every_form_in_every_way),
        Case::one("every_variant_and_form_over_ranks", every_variant_and_form_over_ranks),
        Case::one("bits_are_the_same_in_every_way", bits_are_the_same_in_every_way),
        Case::one("few_rows", few_rows),
        Case::one("operands_of_8_bits_over_ranks", operands_of_8_bits_over_ranks),
        Case::one("bias_is_added_once", bias_is_added_once),
        Case::several("real_ranks", 2, real_ranks),
    ])
}
