//! Every compiled tile by itself: a plan chooses one by its shape, so small shapes would meet few of them.

use half::{bf16, f16};
use tilewire::compare::{GemmNumerics, compare};
use tilewire::kernels::config::Element;
use tilewire::kernels::entries::{ENTRIES, Op};
use tilewire::matrix::Matrix;
use tilewire::ops::{Gemm, RankMatrices, RawEpilogue};
use tilewire::reference::gemm;
use tilewire::scalar::{F8E4M3, F8E5M2, Scalar};
use tilewire::world::{Tensor, World};
use tilewire::{Error, Layout, SplitK, Variant};

use super::epilogue::{By, FORMS, right_by};
use super::raw::Guarded;
use super::{TestResult, uniform};

/// The tiles that were compiled for `op` on operands of type `I` and results of type `O`, layout nt.
pub fn tiles<I: Scalar, O: Scalar>(op: Op) -> Vec<[u32; 2]> {
    let types = (I::ELEMENT, O::ELEMENT);
    let mut tiles: Vec<_> =
        ENTRIES.iter().filter(|e| e.op == op && (e.input, e.output) == types).map(|e| e.tile_extent()).collect();
    tiles.sort_unstable();
    tiles.dedup();
    tiles
}

/// Without cuts along K, and with either kind.
const CUTS: [SplitK; 3] = [SplitK::Never, SplitK::Always, SplitK::Runs];

/// A product by `by`, checked.
fn product<I: Scalar, O: Scalar>(world: &World, by: By, layout: Layout, [m, n, k]: [usize; 3]) -> TestResult {
    let go = || -> Result<(), Error> {
        let ((ar, ac), (br, bc)) = (layout.a_shape(m, k), layout.b_shape(n, k));
        let (a, b) = (uniform::<I>(ar, ac, 1), uniform::<I>(br, bc, 2));
        let variant = Variant::new(layout, I::ELEMENT, O::ELEMENT);
        let builder = Gemm::builder(world, 0).shape(m, n, k).variant(variant).split_k(by.split_k);
        let plan = by.tile.into_iter().fold(builder, |builder, tile| builder.tile(tile)).build()?;
        let (at, bt) =
            (Tensor::from_slice(world, 0, ar, ac, a.data())?, Tensor::from_slice(world, 0, br, bc, b.data())?);
        let mut d = Tensor::poisoned::<O>(world, 0, m, n)?;
        plan.run(m, &at, &bt, &mut d)?;
        let truth = gemm(layout, a.view(), b.view())?;
        let (out, partials) = (O::ELEMENT, Element::F32);
        let tolerance = GemmNumerics { k_per_rank: k, world: 1, out, partials, scale: 1.0 / 3.0 }.tolerance();
        compare(Matrix::from_vec(m, n, d.to_vec::<O>()?)?.view(), truth.view(), tolerance)?.check().map(drop)
    };
    go().map_err(|e| format!("{layout} {m}×{n}×{k} {:?} → {:?}, {by:?}: {e}", I::ELEMENT, O::ELEMENT))
}

/// 1×1, 1×2, 2×1 and 3×5 tiles, ragged, and a K that is no whole stage, cut and uncut.
pub fn every_tile_over_its_grids(world: &World) -> TestResult {
    tiles_over_their_grids::<bf16, bf16>(world)?;
    tiles_over_their_grids::<bf16, f32>(world)?;
    tiles_over_their_grids::<f16, f16>(world)?;
    tiles_over_their_grids::<f16, f32>(world)
}

fn tiles_over_their_grids<I: Scalar, O: Scalar>(world: &World) -> TestResult {
    for tile in tiles::<I, O>(Op::Gemm) {
        let [rows, cols] = tile.map(|extent| extent as usize);
        for (grid, k) in [([1, 1], 64), ([1, 2], 136), ([2, 1], 328), ([3, 5], 200)] {
            let shape = [grid[0] * rows - 5, grid[1] * cols - 3, k];
            for split_k in CUTS {
                product::<I, O>(world, By { tile: Some(tile), split_k }, Layout::Nt, shape)?;
            }
        }
    }
    Ok(())
}

/// Rows round the steps in which A's box is cut, on every tile and in every layout.
pub fn boxes_of_a_are_cut_to_few_rows(world: &World) -> TestResult {
    for m in [1, 7, 8, 9, 16, 56, 57, 63, 64, 65, 72, 100, 127, 128, 129] {
        for tile in tiles::<bf16, bf16>(Op::Gemm) {
            for split_k in [SplitK::Always, SplitK::Runs] {
                let by = By { tile: Some(tile), split_k };
                product::<bf16, bf16>(world, by, Layout::Nt, [m, 40, 200])?;
            }
        }
        for layout in Layout::ALL {
            product::<f16, f32>(world, By::default(), layout, [m, 72, 72])?;
        }
    }
    Ok(())
}

/// One plan, built for many rows, takes calls of fewer, whose boxes are smaller and whose tiles are others.
pub fn calls_of_other_rows_share_a_plan(world: &World) -> TestResult {
    let (n, k) = (392, 520);
    let b = uniform::<bf16>(n, k, 2);
    let go = |split_k| -> Result<(), Error> {
        let plan = Gemm::builder(world, 0).shape(300, n, k).split_k(split_k).with_epilogue().build()?;
        let bt = Tensor::from_slice(world, 0, n, k, b.data())?;
        for m in [300, 16, 100, 16, 300, 64, 200, 1, 0, 128, 300] {
            let a = uniform::<bf16>(m, k, m);
            let at = Tensor::from_slice(world, 0, m, k, a.data())?;
            let truth = gemm(Layout::Nt, a.view(), b.view())?;
            let (out, partials) = (Element::Bf16, Element::F32);
            let tolerance = GemmNumerics { k_per_rank: k, world: 1, out, partials, scale: 1.0 / 3.0 }.tolerance();
            for with_epilogue in [false, true] {
                let mut d = Tensor::poisoned::<bf16>(world, 0, m, n)?;
                match with_epilogue {
                    true => plan.run_with(m, &at, &bt, &mut d, &Default::default())?,
                    false => plan.run(m, &at, &bt, &mut d)?,
                }
                let d = Matrix::from_vec(m, n, d.to_vec::<bf16>()?)?;
                compare(d.view(), truth.view(), tolerance)?.check()?;
            }
        }
        Ok(())
    };
    [SplitK::Always, SplitK::Runs].into_iter().try_for_each(|cut| go(cut).map_err(|e| format!("{cut:?}: {e}")))
}

/// Every epilogue on every tile that has one, cut and uncut.
pub fn every_epilogue_on_every_tile(world: &World, shapes: &[(usize, usize, usize)]) -> TestResult {
    for tile in tiles::<bf16, bf16>(Op::GemmEpilogue) {
        for (i, form) in FORMS.iter().enumerate() {
            for (j, &shape) in shapes.iter().enumerate() {
                let by = By { tile: Some(tile), split_k: CUTS[(i + j) % 3] };
                right_by::<bf16, bf16, bf16>(world, by, Layout::Nt, shape, form)?;
                let by = By { tile: Some(tile), split_k: CUTS[(i + j + 1) % 3] };
                right_by::<bf16, bf16, f32>(world, by, Layout::Nt, shape, form)?;
                right_by::<f16, f16, f16>(world, by, Layout::Nt, shape, form)?;
                right_by::<f16, f16, f32>(world, by, Layout::Nt, shape, form)?;
            }
        }
    }
    Ok(())
}

/// Every epilogue on cut tiles of the other layouts.
pub fn every_epilogue_on_cut_tiles(world: &World, shape: (usize, usize, usize)) -> TestResult {
    for layout in [Layout::Nn, Layout::Tn] {
        for form in &FORMS {
            let by = By { tile: None, split_k: SplitK::Always };
            right_by::<bf16, bf16, bf16>(world, by, layout, shape, form)?;
            right_by::<f16, f16, f32>(world, by, layout, shape, form)?;
        }
    }
    Ok(())
}

/// Every epilogue of products of 8-bit operands.
pub fn every_epilogue_on_8_bit_operands(world: &World, shapes: &[(usize, usize, usize)]) -> TestResult {
    for form in &FORMS {
        for &shape in shapes {
            right_by::<F8E4M3, F8E4M3, bf16>(world, By::default(), Layout::Nt, shape, form)?;
            right_by::<F8E4M3, F8E4M3, f32>(world, By::default(), Layout::Nt, shape, form)?;
            right_by::<F8E4M3, F8E5M2, bf16>(world, By::default(), Layout::Nt, shape, form)?;
            right_by::<F8E4M3, F8E5M2, f32>(world, By::default(), Layout::Nt, shape, form)?;
        }
    }
    Ok(())
}

/// Variants that have no epilogue, and tiles that have none, are errors that list those that do.
pub fn epilogues_that_were_not_compiled_are_refused(world: &World) -> TestResult {
    let text = |variant: Variant, tile: Option<[u32; 2]>| {
        let builder = Gemm::builder(world, 0).shape(16, 16, 16).variant(variant).with_epilogue();
        let built = tile.into_iter().fold(builder, |builder, tile| builder.tile(tile)).build();
        built.err().map(|e| e.to_string()).unwrap_or_default()
    };
    let of = |input, output| Variant::new(Layout::Nt, input, output);
    for (text, words) in [
        (
            text(of(Element::E4m3, Element::F16), None),
            ["is nt e4m3 → f16, but supported with an epilogue are", "nt e4m3 × e5m2 → f32"],
        ),
        (
            text(of(Element::Bf16, Element::F16), None),
            ["is nt bf16 → f16, but supported with an epilogue are", "tn f16 → f32"],
        ),
        (
            text(of(Element::Bf16, Element::Bf16), Some([128, 64])),
            ["tile is 128 × 64", "128 × 256, 64 × 64 and 64 × 128"],
        ),
    ] {
        if let Some(word) = words.iter().find(|word| !text.contains(**word)) {
            return Err(format!("{word:?} is not in {text:?}"));
        }
    }
    Ok(())
}

/// Rows that end inside 16 bytes: nothing behind them is written, by any tile, with or without an epilogue.
pub fn padding_stays_as_it_was(world: &World) -> TestResult {
    for n in [1, 7, 8, 9, 63, 65, 105, 130] {
        for tile in tiles::<bf16, bf16>(Op::Gemm) {
            padded::<bf16, bf16>(world, tile, [70, n, 72])?;
        }
        for tile in tiles::<f16, f32>(Op::Gemm) {
            padded::<f16, f32>(world, tile, [9, n, 200])?;
        }
        for tile in tiles::<F8E4M3, bf16>(Op::Gemm) {
            padded::<F8E4M3, bf16>(world, tile, [70, n, 80])?;
        }
    }
    Ok(())
}

fn padded<I: Scalar, O: Scalar>(world: &World, tile: [u32; 2], [m, n, k]: [usize; 3]) -> TestResult {
    let what = |e: String| format!("{m}×{n}×{k} {:?} → {:?}, {tile:?}: {e}", I::ELEMENT, O::ELEMENT);
    let (a, b) = (uniform::<I>(m, k, 1), uniform::<I>(n, k, 2));
    let whole = |cols: usize, bytes: usize| cols.next_multiple_of(16 / bytes);
    let has_epilogue = tiles::<I, O>(Op::GemmEpilogue).contains(&tile);
    let go = || -> Result<_, Error> {
        let variant = Variant::new(Layout::Nt, I::ELEMENT, O::ELEMENT);
        let builder = Gemm::builder(world, 0).shape(m, n, k).variant(variant).split_k(SplitK::Always).tile(tile);
        let plan = if has_epilogue { builder.with_epilogue() } else { builder }.build()?;
        let stride = whole(k, size_of::<I>());
        let (a, b) = (Guarded::new(world, 0, a.view(), stride)?, Guarded::new(world, 0, b.view(), stride)?);
        let room = || Guarded::<O>::room(world, 0, m, n, whole(n, size_of::<O>()));
        let rooms = [room()?, room()?];
        let given = |d: &Guarded<O>| RankMatrices { a: a.arg(), b: b.arg(), d: d.arg() };
        // SAFETY: the buffers are alive and of the plan's shape, and the calls are waited for.
        unsafe {
            plan.launch(m, &given(&rooms[0]), None)?;
            if has_epilogue {
                plan.launch_with(m, &given(&rooms[1]), &RawEpilogue::default(), None)?;
            }
        }
        plan.finish()?;
        Ok(rooms)
    };
    let rooms = go().map_err(|e| what(e.to_string()))?;
    let truth = gemm(Layout::Nt, a.view(), b.view()).map_err(|e| what(e.to_string()))?;
    let numerics = GemmNumerics { k_per_rank: k, world: 1, out: O::ELEMENT, partials: Element::F32, scale: 1.0 / 3.0 };
    for room in &rooms[..1 + usize::from(has_epilogue)] {
        let d = room.written("D", m).map_err(what)?;
        compare(d.view(), truth.view(), numerics.tolerance_of(I::ELEMENT))
            .and_then(|report| report.check())
            .map_err(|e| what(e.to_string()))?;
    }
    Ok(())
}
