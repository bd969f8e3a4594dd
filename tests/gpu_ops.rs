//! The ops on a Hopper GPU, with virtual ranks and, where there are several GPUs, with real ones.

mod common;

use std::process::ExitCode;

use common::{Case, TestResult};
use half::bf16;
use tilewire::World;
use tilewire::driver::Gpu;
use tilewire::kernels::abi::{Placement, Transport};

/// Whether loops are to be short, for tools that slow kernels down a hundred times (`scripts/gpu-bundle-run --sanitize`).
fn is_small() -> bool {
    std::env::var("TILEWIRE_SMALL").is_ok_and(|value| value != "0")
}

/// `all`, or its first `small` where loops are to be short.
fn some_of<T>(all: &[T], small: usize) -> &[T] {
    if is_small() { &all[..small.min(all.len())] } else { all }
}

fn virtual_ranks(ranks: usize) -> Result<World, String> {
    World::virtual_ranks(0, ranks).map_err(|e| e.to_string())
}

const SHAPES: [(usize, usize, usize); 10] = [
    (1023, 520, 200),
    (257, 256, 64),
    (9, 72, 136),
    (5, 105, 64),
    (3, 264, 128),
    (1, 8, 8),
    (129, 1000, 328),
    (512, 512, 512),
    (65, 64, 1000),
    (2000, 777, 96),
];

fn shapes() -> &'static [(usize, usize, usize)] {
    some_of(&SHAPES, 4)
}

/// Calls of the tests that repeat one.
fn many() -> usize {
    if is_small() { 6 } else { 200 }
}

fn shapes_in_every_way(_: &Gpu) -> TestResult {
    for ranks in some_of(&[3, 1, 2, 4, 5, 6, 7, 8], 2) {
        suite::shapes_in_every_way(&virtual_ranks(*ranks)?, shapes())?;
    }
    Ok(())
}

/// What lies in slots comes from plain stores alone: initcheck sees those, and bulk stores, it seems, not.
fn tiles_pushed_by_plain_stores(_: &Gpu) -> TestResult {
    for ranks in some_of(&[3, 2, 8], 1) {
        let world = virtual_ranks(*ranks)?;
        for &(m, n, k) in shapes() {
            for sm_margin in [0, 1] {
                let case = suite::Case::new(m, n, k).over(Transport::PushStores, Placement::Partition, sm_margin);
                suite::fresh::<bf16, bf16>(&world, &case)?;
            }
        }
    }
    Ok(())
}

fn bits_are_the_same_in_every_way(_: &Gpu) -> TestResult {
    for ranks in some_of(&[8, 2, 3], 1) {
        suite::bits_are_the_same_in_every_way(&virtual_ranks(*ranks)?, 1100, 520, 264)?;
    }
    Ok(())
}

fn many_calls_give_the_same_bits(_: &Gpu) -> TestResult {
    for (t, p, s) in suite::WAYS {
        let case = suite::Case::new(700, 520, 128).over(t, p, s);
        suite::many_calls_give_the_same_bits(&virtual_ranks(4)?, &case, many())?;
    }
    Ok(())
}

fn epochs_wrap(_: &Gpu) -> TestResult {
    suite::epochs_wrap(&virtual_ranks(3)?)
}

fn empty_calls_are_calls(_: &Gpu) -> TestResult {
    suite::empty_calls_are_calls(&virtual_ranks(4)?)
}

fn k_edges(_: &Gpu) -> TestResult {
    suite::k_edges(&virtual_ranks(4)?)
}

fn every_variant(_: &Gpu) -> TestResult {
    suite::every_variant(&virtual_ranks(3)?)
}

fn integers_are_exact(_: &Gpu) -> TestResult {
    some_of(&[2, 1, 5, 8], 1).iter().try_for_each(|ranks| suite::integers_are_exact(&virtual_ranks(*ranks)?))
}

fn ranks_are_summed(_: &Gpu) -> TestResult {
    [2, 3, 4, 8].into_iter().try_for_each(|ranks| suite::ranks_are_summed(&virtual_ranks(ranks)?))
}

fn nan_rows_stay_in_their_row(_: &Gpu) -> TestResult {
    suite::nan_rows_stay_in_their_row(&virtual_ranks(4)?)
}

fn partials_are_added_in_f32(_: &Gpu) -> TestResult {
    suite::partials_are_added_in_f32(&virtual_ranks(8)?)
}

fn gemm_of_every_variant(_: &Gpu) -> TestResult {
    suite::gemm_of_every_variant(&virtual_ranks(1)?)
}

fn fp8_is_right(_: &Gpu) -> TestResult {
    let world = virtual_ranks(1)?;
    suite::fp8::every_type_on_ragged_tiles(&world)?;
    suite::fp8::k_edges(&world)
}

fn fp8_is_exact_where_it_must_be(_: &Gpu) -> TestResult {
    suite::fp8::integers_are_exact(&virtual_ranks(1)?)?;
    suite::fp8::stages_are_added_in_f32(&virtual_ranks(1)?)
}

fn fp8_extremes_and_nans(_: &Gpu) -> TestResult {
    suite::fp8::extremes(&virtual_ranks(1)?)?;
    suite::fp8::nan_stays_in_its_row_and_column(&virtual_ranks(1)?)
}

fn fp8_reduce_scatter(_: &Gpu) -> TestResult {
    suite::fp8::reduce_scatter_in_every_way(&virtual_ranks(3)?, &[(131, 72, 144), (1023, 520, 656)])?;
    suite::fp8::reduce_scatter_in_every_way(&virtual_ranks(8)?, &[(9, 136, 272), (2000, 776, 96)])
}

fn fp8_bad_input_is_refused(_: &Gpu) -> TestResult {
    suite::fp8::bad_input_is_refused(&virtual_ranks(2)?)
}

/// Few rows on `world`: the bits of tiles that hold one owner's rows, and calls of all tiles in one plan.
fn few_rows_on(world: &World) -> TestResult {
    let shapes =
        [(16, 8192, 328), (1, 64, 64), (5, 105, 72), (63, 1000, 520), (64, 520, 64), (100, 264, 328), (128, 2048, 512)];
    for (m, n, k) in some_of(&shapes, 3) {
        suite::few_rows::same_bits_as_own_tiles(world, &suite::Case::new(*m, *n, *k))?;
    }
    suite::few_rows::calls_share_a_plan(world, 520, 264)?;
    suite::many_calls_give_the_same_bits(world, &suite::Case::new(40, 520, 128), many())
}

fn few_rows(_: &Gpu) -> TestResult {
    some_of(&[2, 1, 3, 4, 8], 2).iter().try_for_each(|ranks| few_rows_on(&virtual_ranks(*ranks)?))
}

fn cut_tiles_are_right_in_every_layout_and_type(_: &Gpu) -> TestResult {
    suite::split::every_variant(
        &virtual_ranks(1)?,
        some_of(&[[16, 4608, 4096], [200, 1000, 5000], [2048, 4608, 2048]], 2),
    )
}

fn every_call_waits_for_the_one_ahead(_: &Gpu) -> TestResult {
    let calls = if is_small() { 3 } else { 200 };
    let rows = some_of(&[1, 130, 512, 64, 4000], 2);
    suite::chain::every_call_waits_for_the_one_ahead(&virtual_ranks(1)?, 1000, rows, calls)
}

fn consumers_in_turns_are_right(_: &Gpu) -> TestResult {
    let world = virtual_ranks(1)?;
    suite::turns::every_variant(
        &world,
        some_of(&[[3000, 2000, 1000], [128, 192, 64], [60, 584, 328], [4096, 5000, 72]], 2),
    )?;
    suite::turns::integers_are_exact(&world, &[[3000, 3000, 1024], [640, 192, 0], [8192, 4096, 200]])?;
    suite::turns::what_it_cannot_do_is_refused(&world)
}

fn consumers_in_turns_are_right_over_ranks(_: &Gpu) -> TestResult {
    // Of 8 ranks each has few SMs, and so each CTA many tiles.
    some_of(&[8, 2, 3, 1], 1).iter().try_for_each(|ranks| turns_over(&virtual_ranks(*ranks)?))
}

fn turns_over(world: &World) -> TestResult {
    let shapes = [[1000, 3000, 200], [4096, 2048, 512], [100, 8, 8], [2048, 4096, 2048]];
    suite::turns_over_ranks::every_variant(world, some_of(&shapes, 1))?;
    suite::turns_over_ranks::calls_share_a_plan(world, if is_small() { [500, 392, 136] } else { [2000, 1032, 264] })?;
    suite::turns_over_ranks::what_it_cannot_do_is_refused(world)
}

fn cut_tiles_lose_no_stage(_: &Gpu) -> TestResult {
    let shapes = [[1, 8, 128], [64, 128, 64 * 64], [130, 520, 8192], [2048, 4608, 640], [3000, 3000, 3000]];
    suite::split::integers_are_exact(&virtual_ranks(1)?, some_of(&shapes, 3))
}

fn bad_input_is_refused_and_nothing_is_lost(_: &Gpu) -> TestResult {
    suite::bad_input_is_refused_and_nothing_is_lost(&virtual_ranks(3)?)
}

/// Worlds over all GPUs: one rank on each, two on each, up to eight ranks.
fn real_worlds(gpus: &[Gpu]) -> impl Iterator<Item = Result<World, String>> {
    let count = gpus.len();
    (1..=8 / count.max(1)).map(move |share| {
        let places: Vec<usize> = (0..count).cycle().take(count * share).collect();
        World::local(&places).map_err(|e| e.to_string())
    })
}

fn few_rows_on_real_ranks(gpus: &[Gpu]) -> TestResult {
    real_worlds(gpus).try_for_each(|world| few_rows_on(&world?))
}

fn real_ranks(gpus: &[Gpu]) -> TestResult {
    for world in real_worlds(gpus) {
        let world = world?;
        suite::shapes_in_every_way(&world, shapes())?;
        suite::bits_are_the_same_in_every_way(&world, 1100, 520, 264)?;
        suite::epochs_wrap(&world)?;
        suite::many_calls_give_the_same_bits(&world, &suite::Case::new(700, 520, 128), many())?;
        suite::every_variant(&world)?;
        suite::empty_calls_are_calls(&world)?;
        suite::k_edges(&world)?;
        suite::bad_input_is_refused_and_nothing_is_lost(&world)?;
        turns_over(&world)?;
    }
    Ok(())
}

fn every_tile_over_its_grids(_: &Gpu) -> TestResult {
    suite::tiles::every_tile_over_its_grids(&virtual_ranks(1)?)
}

fn tiles_of_fewer_columns_have_the_bits_of_whole_ones(_: &Gpu) -> TestResult {
    let world = virtual_ranks(1)?;
    suite::narrow::every_tile_over_its_grids(&world)?;
    suite::narrow::rows_end_anywhere(&world, 70)?;
    suite::narrow::plans_choose_columns_by_themselves(&world, 5000)?;
    suite::narrow::calls_with_an_epilogue_are_not_narrowed(&world)
}

fn a_nan_stays_in_its_row_and_column_of_narrow_tiles(_: &Gpu) -> TestResult {
    suite::narrow::a_nan_stays_in_its_row_and_column(&virtual_ranks(1)?)
}

fn columns_that_no_kernel_can_have_are_refused(_: &Gpu) -> TestResult {
    suite::narrow::what_it_cannot_do_is_refused(&virtual_ranks(1)?)
}

fn boxes_of_a_are_cut_to_few_rows(_: &Gpu) -> TestResult {
    suite::tiles::boxes_of_a_are_cut_to_few_rows(&virtual_ranks(1)?)
}

fn calls_of_other_rows_share_a_plan(_: &Gpu) -> TestResult {
    suite::tiles::calls_of_other_rows_share_a_plan(&virtual_ranks(1)?)
}

fn padding_stays_as_it_was(_: &Gpu) -> TestResult {
    suite::tiles::padding_stays_as_it_was(&virtual_ranks(1)?)
}

fn main() -> ExitCode {
    common::suite_main(vec![
        Case::one("gemm_of_every_variant", gemm_of_every_variant),
        Case::one("shapes_in_every_way", shapes_in_every_way),
        Case::one("tiles_pushed_by_plain_stores", tiles_pushed_by_plain_stores),
        Case::one("bits_are_the_same_in_every_way", bits_are_the_same_in_every_way),
        Case::one("many_calls_give_the_same_bits", many_calls_give_the_same_bits),
        Case::one("epochs_wrap", epochs_wrap),
        Case::one("empty_calls_are_calls", empty_calls_are_calls),
        Case::one("k_edges", k_edges),
        Case::one("every_variant", every_variant),
        Case::one("integers_are_exact", integers_are_exact),
        Case::one("ranks_are_summed", ranks_are_summed),
        Case::one("nan_rows_stay_in_their_row", nan_rows_stay_in_their_row),
        Case::one("partials_are_added_in_f32", partials_are_added_in_f32),
        Case::one("cut_tiles_are_right_in_every_layout_and_type", cut_tiles_are_right_in_every_layout_and_type),
        Case::one("consumers_in_turns_are_right", consumers_in_turns_are_right),
        Case::one("consumers_in_turns_are_right_over_ranks", consumers_in_turns_are_right_over_ranks),
        Case::one("every_call_waits_for_the_one_ahead", every_call_waits_for_the_one_ahead),
        Case::one("cut_tiles_lose_no_stage", cut_tiles_lose_no_stage),
        Case::one("every_tile_over_its_grids", every_tile_over_its_grids),
        Case::one(
            "tiles_of_fewer_columns_have_the_bits_of_whole_ones",
            tiles_of_fewer_columns_have_the_bits_of_whole_ones,
        ),
        Case::one(
            "a_nan_stays_in_its_row_and_column_of_narrow_tiles",
            a_nan_stays_in_its_row_and_column_of_narrow_tiles,
        ),
        Case::one("columns_that_no_kernel_can_have_are_refused", columns_that_no_kernel_can_have_are_refused),
        Case::one("boxes_of_a_are_cut_to_few_rows", boxes_of_a_are_cut_to_few_rows),
        Case::one("calls_of_other_rows_share_a_plan", calls_of_other_rows_share_a_plan),
        Case::one("padding_stays_as_it_was", padding_stays_as_it_was),
        Case::one("fp8_is_right", fp8_is_right),
        Case::one("fp8_is_exact_where_it_must_be", fp8_is_exact_where_it_must_be),
        Case::one("fp8_extremes_and_nans", fp8_extremes_and_nans),
        Case::one("fp8_reduce_scatter", fp8_reduce_scatter),
        Case::one("fp8_bad_input_is_refused", fp8_bad_input_is_refused),
        Case::one("few_rows", few_rows),
        Case::one("bad_input_is_refused_and_nothing_is_lost", bad_input_is_refused_and_nothing_is_lost),
        Case::several("real_ranks", 2, real_ranks),
        Case::several("few_rows_on_real_ranks", 2, few_rows_on_real_ranks),
    ])
}
