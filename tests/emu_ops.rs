//! The ops on the emulator: the kernels' own source, on a machine without a GPU.

use suite::{Case, TestResult, WAYS};
use tilewire::World;
use tilewire::emulator::{Delay, EmulatorOptions};
use tilewire::kernels::shape::Rank;
use tilewire::world::EmulatedOptions;

fn world(ranks: usize, seed: u64) -> World {
    world_with(ranks, EmulatorOptions::with_seed(seed))
}

fn world_with(ranks: usize, emulator: EmulatorOptions) -> World {
    World::emulated_with(ranks, EmulatedOptions { ctas_per_rank: 3, emulator, ..EmulatedOptions::default() }).unwrap()
}

#[test]
fn ragged_shapes_are_right_in_every_way_and_for_every_world_size() -> TestResult {
    for ranks in 1..=8 {
        suite::shapes_in_every_way(&world(ranks, ranks as u64), &[(9, 72, 136), (131, 105, 64), (3, 264, 72)])?;
    }
    Ok(())
}

#[test]
fn few_rows_are_right() -> TestResult {
    for m in [1, 7, 8, 15, 16, 31, 32, 63, 64, 65, 127, 128, 129] {
        suite::shapes_in_every_way(&world(2, m as u64), &[(m, 40, 24)])?;
    }
    Ok(())
}

#[test]
fn bits_do_not_depend_on_the_way_of_the_tiles() -> TestResult {
    for ranks in [2, 3, 8] {
        suite::bits_are_the_same_in_every_way(&world(ranks, 7), 270, 136, 72)?;
    }
    Ok(())
}

#[test]
fn a_hundred_schedules_give_one_result() -> TestResult {
    let (transport, placement, margin) = WAYS[6];
    for (way, case) in
        [Case::new(140, 72, 72), Case::new(140, 72, 72).over(transport, placement, margin)].iter().enumerate()
    {
        for seed in 0..50 {
            suite::many_calls_give_the_same_bits(&world(3, seed), case, 1)
                .map_err(|e| format!("way {way}, seed {seed}: {e}"))?;
        }
    }
    Ok(())
}

/// A few of the calls that `gpu_big` makes ten thousand of.
#[test]
fn calls_across_both_wraps_of_the_epoch_give_the_same_bits() -> TestResult {
    let mut options = EmulatorOptions::with_seed(11);
    options.delays = vec![(Rank(1), Delay::Seldom(64))];
    suite::calls_with_delays_give_the_same_bits(&world_with(3, options), 24, &suite::fuzz::PROMPT)
}

#[test]
fn a_slow_rank_changes_nothing() -> TestResult {
    for (transport, placement, margin) in WAYS {
        for delay in [Delay::Seldom(16), Delay::UntilOthersBlock] {
            let mut options = EmulatorOptions::with_seed(3);
            options.delays = vec![(Rank(1), delay)];
            let case = Case::new(140, 72, 72).over(transport, placement, margin);
            suite::many_calls_give_the_same_bits(&world_with(3, options), &case, 3)?;
        }
    }
    Ok(())
}

#[test]
fn epochs_wrap() -> TestResult {
    suite::epochs_wrap(&world(3, 1))
}

#[test]
fn empty_calls_are_calls() -> TestResult {
    suite::empty_calls_are_calls(&world(4, 1))
}

#[test]
fn k_edges_are_right() -> TestResult {
    suite::k_edges(&world(2, 1))
}

#[test]
fn every_layout_and_type_is_right() -> TestResult {
    suite::every_variant(&world(3, 1))
}

#[test]
fn integers_are_exact() -> TestResult {
    [1, 2, 5].into_iter().try_for_each(|ranks| suite::integers_are_exact(&world(ranks, 1)))
}

#[test]
fn ranks_are_summed() -> TestResult {
    [2, 3, 4, 8].into_iter().try_for_each(|ranks| suite::ranks_are_summed(&world(ranks, 1)))
}

#[test]
fn nan_rows_stay_in_their_row() -> TestResult {
    suite::nan_rows_stay_in_their_row(&world(4, 1))
}

#[test]
fn partials_are_added_in_f32() -> TestResult {
    suite::partials_are_added_in_f32(&world(8, 1))
}

#[test]
fn plain_gemm_of_every_layout_and_type_is_right() -> TestResult {
    suite::gemm_of_every_variant(&world(1, 1))
}

#[test]
fn cut_tiles_are_right_in_every_layout_and_type() -> TestResult {
    suite::split::every_variant(&world(1, 1), &[[130, 264, 200], [60, 72, 328]])
}

#[test]
fn every_call_waits_for_the_one_ahead() -> TestResult {
    suite::chain::every_call_waits_for_the_one_ahead(&world(1, 1), 136, &[1, 70, 130], 13)
}

#[test]
fn consumers_in_turns_are_right() -> TestResult {
    suite::turns::every_variant(&world(1, 3), &[[130, 200, 24], [300, 600, 64], [60, 584, 328]])?;
    suite::turns::what_it_cannot_do_is_refused(&world(1, 3))
}

#[test]
fn consumers_in_turns_are_right_over_ranks() -> TestResult {
    for (ranks, ctas) in [(1, 2), (2, 3), (3, 2), (4, 1), (8, 2)] {
        let shapes = [[260, 400, 24], [500, 192, 72], [96 * ranks, 584, 136], [ranks - 1, 8, 8]];
        suite::turns_over_ranks::every_variant(&world(ranks, ctas), &shapes)?;
        suite::turns_over_ranks::calls_share_a_plan(&world(ranks, ctas), [150 * ranks, 400, 80])?;
    }
    suite::turns_over_ranks::what_it_cannot_do_is_refused(&world(2, 3))
}

#[test]
fn consumers_in_turns_take_every_stage_once() -> TestResult {
    for (ctas_per_rank, seed) in [(1, 1), (2, 2), (3, 3), (7, 4)] {
        let emulator = EmulatorOptions::with_seed(seed);
        let options = EmulatedOptions { ctas_per_rank, emulator, ..EmulatedOptions::default() };
        let world = World::emulated_with(1, options).map_err(|e| e.to_string())?;
        // An odd number of tiles and an even one a CTA; no stage, one, as many as the ring has, one more, and laps of it.
        let shapes = [[640, 192, 64], [256, 384, 0], [500, 392, 256], [130, 776, 320], [384, 576, 9 * 64]];
        suite::turns::integers_are_exact(&world, &shapes)?;
    }
    Ok(())
}

#[test]
fn cut_tiles_lose_no_stage() -> TestResult {
    for (ctas_per_rank, seed) in [(2, 1), (3, 2), (5, 3), (7, 4), (16, 5)] {
        let emulator = EmulatorOptions::with_seed(seed);
        let options = EmulatedOptions { ctas_per_rank, emulator, ..EmulatedOptions::default() };
        let world = World::emulated_with(1, options).map_err(|e| e.to_string())?;
        suite::split::integers_are_exact(&world, &[[1, 8, 128], [130, 520, 192], [64, 128, 16 * 64], [300, 264, 320]])?;
    }
    Ok(())
}

#[test]
fn every_tile_is_right_over_its_grids() -> TestResult {
    suite::tiles::every_tile_over_its_grids(&world(1, 1))
}

#[test]
fn tiles_of_fewer_columns_have_the_bits_of_whole_ones() -> TestResult {
    suite::narrow::every_tile_over_its_grids(&world(1, 1))?;
    suite::narrow::rows_end_anywhere(&world(1, 2), 70)?;
    suite::narrow::plans_choose_columns_by_themselves(&world(1, 3), 126)?;
    suite::narrow::calls_with_an_epilogue_are_not_narrowed(&world(1, 4))
}

#[test]
fn a_nan_stays_in_its_row_and_column_of_narrow_tiles() -> TestResult {
    suite::narrow::a_nan_stays_in_its_row_and_column(&world(1, 1))
}

#[test]
fn columns_that_no_kernel_can_have_are_refused() -> TestResult {
    suite::narrow::what_it_cannot_do_is_refused(&world(1, 1))
}

#[test]
fn boxes_of_a_are_cut_to_few_rows() -> TestResult {
    suite::tiles::boxes_of_a_are_cut_to_few_rows(&world(1, 1))
}

#[test]
fn calls_of_other_rows_share_a_plan() -> TestResult {
    suite::tiles::calls_of_other_rows_share_a_plan(&world(1, 1))
}

#[test]
fn padding_stays_as_it_was() -> TestResult {
    suite::tiles::padding_stays_as_it_was(&world(1, 1))
}

#[test]
fn bad_input_is_refused_and_nothing_is_lost() -> TestResult {
    suite::bad_input_is_refused_and_nothing_is_lost(&world(3, 1))
}

#[test]
fn operands_have_the_scale_that_tolerances_assume() -> TestResult {
    suite::uniform_operands_have_the_assumed_scale()
}

#[test]
fn a_world_has_one_to_eight_ranks() {
    for ranks in [0, 9] {
        let text = World::emulated(ranks).unwrap_err().to_string();
        assert!(text.contains("number of ranks") && text.contains(&ranks.to_string()), "{text}");
    }
}

#[test]
fn products_of_8_bit_operands_are_right() -> TestResult {
    suite::fp8::every_type_on_ragged_tiles(&world(1, 1))?;
    suite::fp8::k_edges(&world(1, 2))
}

#[test]
fn sums_of_8_bit_products_are_exact_where_they_must_be() -> TestResult {
    suite::fp8::integers_are_exact(&world(1, 1))?;
    suite::fp8::stages_are_added_in_f32(&world(1, 1))
}

#[test]
fn extremes_and_nans_of_8_bit_operands_go_where_they_must() -> TestResult {
    suite::fp8::extremes(&world(1, 1))?;
    suite::fp8::nan_stays_in_its_row_and_column(&world(1, 1))
}

#[test]
fn partials_of_8_bit_operands_are_scaled_and_reduced() -> TestResult {
    suite::fp8::reduce_scatter_in_every_way(&world(3, 1), &[(131, 72, 144)])?;
    suite::fp8::reduce_scatter_in_every_way(&world(4, 2), &[(9, 136, 272)])
}

#[test]
fn bad_8_bit_input_is_refused() -> TestResult {
    suite::fp8::bad_input_is_refused(&world(2, 1))
}
