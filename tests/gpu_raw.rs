//! Calls on raw memory and what arguments may be, on a GPU: the suite that `cases` runs on the emulator.

mod common;

use std::process::ExitCode;

use common::{Case, TestResult, text};
use suite::{arguments, raw};
use tilewire::World;
use tilewire::driver::Gpu;

fn ranks(count: usize) -> Result<World, String> {
    World::virtual_ranks(0, count).map_err(text)
}

fn ceil_rule(_: &Gpu) -> TestResult {
    let cases: [(usize, &[usize]); 7] = [
        (1023, &[256, 256, 256, 255]),
        (257, &[33, 33, 33, 33, 33, 33, 33, 26]),
        (9, &[2, 2, 2, 2, 1, 0, 0, 0]),
        (5, &[2, 2, 1, 0]),
        (3, &[1, 1, 1, 0]),
        (1, &[1, 0, 0, 0, 0, 0, 0, 0]),
        (0, &[0, 0, 0, 0]),
    ];
    cases.into_iter().try_for_each(|(m, rows)| arguments::rows_follow_the_ceil_rule(&ranks(rows.len())?, m, rows))
}

fn few_rows(_: &Gpu) -> TestResult {
    for count in [2, 4, 8] {
        let world = ranks(count)?;
        for m in [1, 7, 8, 15, 16, 31, 32, 63, 64, 65, 127, 128, 129] {
            suite::shapes_in_every_way(&world, &[(m, 520, 264)])?;
        }
    }
    Ok(())
}

fn small_ring(_: &Gpu) -> TestResult {
    let world = ranks(2)?;
    for k_tiles in [0, 1, 7, 8, 9, 17] {
        for tail in [0, 8] {
            suite::fresh::<half::bf16, half::bf16>(&world, &suite::Case::new(20, 72, 64 * k_tiles + tail))?;
        }
    }
    Ok(())
}

fn gaps(_: &Gpu) -> TestResult {
    raw::gaps_and_guards_stay_untouched(&ranks(3)?, 1000, 520, 264)?;
    raw::gaps_and_guards_stay_untouched(&ranks(8)?, 9, 40, 24)
}

fn caught(_: &Gpu) -> TestResult {
    raw::writes_into_gaps_are_caught(&ranks(2)?)
}

fn past_m(_: &Gpu) -> TestResult {
    raw::rows_past_m_stay_untouched(&ranks(3)?, 1500)
}

fn slices(_: &Gpu) -> TestResult {
    raw::column_slices_are_shards(&ranks(4)?, 700, 520, 264)
}

fn transposed(_: &Gpu) -> TestResult {
    arguments::a_transposed_view_is_a_layout(&ranks(2)?, 520, 264, 136)
}

fn gemm_gaps(_: &Gpu) -> TestResult {
    raw::gemm_gaps_and_guards_stay_untouched(&ranks(1)?)
}

fn strides(_: &Gpu) -> TestResult {
    arguments::obeying_the_stride_message_makes_the_call_work(&ranks(1)?)
}

fn pointers(_: &Gpu) -> TestResult {
    [1, 3].into_iter().try_for_each(|count| arguments::pointers_are_checked(&ranks(count)?))
}

fn disagree(_: &Gpu) -> TestResult {
    arguments::ranks_that_disagree_are_named(&ranks(3)?)
}

fn margins(_: &Gpu) -> TestResult {
    [1, 2].into_iter().try_for_each(|count| arguments::margins_do_not_change_bits(&ranks(count)?))
}

fn places(_: &Gpu) -> TestResult {
    [1, 2, 4, 8].into_iter().try_for_each(|count| raw::permuted_references_are_caught(&ranks(count)?))
}

fn positions(_: &Gpu) -> TestResult {
    arguments::a_row_has_the_same_bits_at_any_position_and_m(&ranks(3)?, 520, 1000)
}

fn main() -> ExitCode {
    common::suite_main(vec![
        Case::one("rows_follow_the_ceil_rule", ceil_rule),
        Case::one("few_rows_are_right", few_rows),
        Case::one("k_tiles_round_the_turns_of_the_small_tiles_ring_are_right", small_ring),
        Case::one("gaps_between_rows_and_guards_round_buffers_stay_untouched", gaps),
        Case::one("writes_into_gaps_are_caught", caught),
        Case::one("rows_past_m_stay_untouched", past_m),
        Case::one("column_slices_of_one_matrix_are_shards", slices),
        Case::one("a_transposed_view_is_a_layout", transposed),
        Case::one("gaps_and_guards_of_a_plain_gemm_stay_untouched", gemm_gaps),
        Case::one("obeying_the_stride_message_makes_the_call_work", strides),
        Case::one("pointers_are_checked_and_nothing_is_lost", pointers),
        Case::one("ranks_that_disagree_are_named", disagree),
        Case::one("margins_do_not_change_bits", margins),
        Case::one("rows_or_ranks_that_change_places_are_caught", places),
        Case::one("a_row_has_the_same_bits_at_any_position_and_m", positions),
    ])
}
