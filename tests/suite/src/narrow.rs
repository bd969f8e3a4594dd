//! Plain products in tiles of fewer columns than a panel: the bits of whole tiles, and nothing written beside them.

use half::{bf16, f16};
use tilewire::kernels::entries::Op;
use tilewire::matrix::Matrix;
use tilewire::ops::{Gemm, RankMatrices};
use tilewire::reference::gemm;
use tilewire::scalar::Scalar;
use tilewire::world::World;
use tilewire::{Error, Layout, SplitK, Variant};

use super::arguments::expect_error;
use super::raw::Guarded;
use super::{GemmNumerics, TestResult, bits, compare_chunks, uniform};

/// Tiles that can have fewer columns.
pub const TILES: [[u32; 2]; 2] = [[64, 64], [128, 64]];

/// Columns of narrower tiles: the fewest, the most, and what an H200 takes of products of few rows.
const COLS: [u32; 5] = [8, 16, 40, 48, 56];

/// Tiles of fixed columns.
#[derive(Clone, Copy, Debug)]
struct Narrow {
    tile: [u32; 2],
    cols: u32,
}

impl Narrow {
    /// D of the last of `calls` calls of one plan over poison, all of the same bits. Rows end in steps of 16 bytes and more; two
    /// rows lie behind the call's.
    fn product<I: Scalar, O: Scalar>(
        self,
        world: &World,
        [a, b]: [&Matrix<I>; 2],
        calls: usize,
    ) -> Result<Matrix<O>, String> {
        let Self { tile, cols } = self;
        let (m, n, k) = (a.rows(), b.rows(), a.cols());
        let what = |e: String| format!("{m}×{n}×{k} {:?} → {:?}, {self:?}: {e}", I::ELEMENT, O::ELEMENT);
        let go = || -> Result<Vec<Guarded<O>>, Error> {
            let variant = Variant::new(Layout::Nt, I::ELEMENT, O::ELEMENT);
            let plan = Gemm::builder(world, 0).shape(m, n, k).variant(variant).tile(tile).tile_cols(cols).build()?;
            let stride = |cols: usize| cols.next_multiple_of(8);
            let (a, b) = (Guarded::new(world, 0, a.view(), stride(k))?, Guarded::new(world, 0, b.view(), stride(k))?);
            let call = |_| {
                let d = Guarded::<O>::room(world, 0, m + 2, n, stride(n) + 8)?;
                // SAFETY: the buffers are alive and of the plan's shape, and the call is waited for.
                unsafe { plan.launch(m, &RankMatrices { a: a.arg(), b: b.arg(), d: d.arg() }, None) }?;
                plan.finish()?;
                Ok(d)
            };
            (0..calls).map(call).collect()
        };
        let rooms = go().map_err(|e| what(e.to_string()))?;
        let results = rooms.iter().map(|d| d.written("D", m)).collect::<Result<Vec<_>, _>>().map_err(what)?;
        if results.windows(2).any(|pair| bits(&pair[..1]) != bits(&pair[1..])) {
            return Err(what("two calls differ".to_string()));
        }
        results.into_iter().last().ok_or_else(|| what("no calls".to_string()))
    }

    /// The bits of `whole`, which has the operands' truth.
    fn has_bits_of<I: Scalar, O: Scalar>(
        self,
        world: &World,
        operands: [&Matrix<I>; 2],
        whole: &Matrix<O>,
        calls: usize,
    ) -> TestResult {
        let d = self.product::<I, O>(world, operands, calls)?;
        match bits(std::slice::from_ref(&d)) == bits(std::slice::from_ref(whole)) {
            true => Ok(()),
            false => {
                Err(format!("{}×{}×{}, {self:?}: other bits than whole tiles", d.rows(), d.cols(), operands[0].cols()))
            }
        }
    }
}

/// D by whole tiles, near the truth.
fn whole<I: Scalar, O: Scalar>(world: &World, tile: [u32; 2], [a, b]: [&Matrix<I>; 2]) -> Result<Matrix<O>, String> {
    let d = Narrow { tile, cols: tile[1] }.product::<I, O>(world, [a, b], 1)?;
    let (out, partials) = (O::ELEMENT, O::ELEMENT);
    let tolerance = GemmNumerics { k_per_rank: a.cols(), world: 1, out, partials, scale: 1.0 / 3.0 }.tolerance();
    gemm(Layout::Nt, a.view(), b.view())
        .and_then(|truth| compare_chunks(&[d.view()], &[truth.view()], tolerance)?.check())
        .map_err(|e| format!("{tile:?}: {e}"))?;
    Ok(d)
}

/// 1×1 to 3×5 narrow tiles, whole and ragged, with ends of rows that no box stores, over stages up to twice round the ring.
pub fn every_tile_over_its_grids(world: &World) -> TestResult {
    over_grids::<bf16, bf16>(world)?;
    over_grids::<f16, f16>(world)
}

fn over_grids<I: Scalar, O: Scalar>(world: &World) -> TestResult {
    for (tile, cols) in TILES.into_iter().flat_map(|tile| COLS.map(|cols| (tile, cols))) {
        let (rows, width) = (tile[0] as usize, cols as usize);
        for (grid, less, k) in [
            ([1, 1], [0, 0], 64),
            ([1, 2], [5, 3], 136),
            ([2, 1], [63, 7], 0),
            ([1, 4], [56, 1], 1544),
            ([3, 5], [5, 4], 200),
        ] {
            let (m, n) = (grid[0] * rows - less[0], grid[1] * width - less[1]);
            let (a, b) = (uniform::<I>(m, k, 1), uniform::<I>(n, k, 2));
            let whole = whole::<I, O>(world, tile, [&a, &b])?;
            Narrow { tile, cols }.has_bits_of(world, [&a, &b], &whole, 2)?;
        }
    }
    Ok(())
}

/// A row end at every place of a tile: within, at and just behind the border of two of them.
pub fn rows_end_anywhere(world: &World, m: usize) -> TestResult {
    for tile in TILES {
        for n in (1..=34).chain([47, 48, 49, 57, 63, 64, 65, 95, 96, 97]) {
            let (a, b) = (uniform::<bf16>(m, 72, 1), uniform::<bf16>(n, 72, 2));
            let whole = whole::<bf16, bf16>(world, tile, [&a, &b])?;
            for cols in [8, 16, 48] {
                Narrow { tile, cols }.has_bits_of(world, [&a, &b], &whole, 1)?;
            }
        }
    }
    Ok(())
}

/// A NaN in a row of B stays in its column, and one in a row of A in its row, at both sides of a border of tiles.
pub fn a_nan_stays_in_its_row_and_column(world: &World) -> TestResult {
    for (tile, cols) in TILES.into_iter().flat_map(|tile| COLS.map(|cols| (tile, cols))) {
        let (m, n, k) = (tile[0] as usize + 9, 2 * cols as usize + 5, 136);
        for (row, col) in [(0, cols as usize - 1), (8, cols as usize), (m - 1, n - 1)] {
            let with_nan = |mut x: Matrix<bf16>, row: usize, at: usize| {
                x.data_mut()[row * k + at] = bf16::NAN;
                x
            };
            let a = with_nan(uniform::<bf16>(m, k, 1), row, 130);
            let b = with_nan(uniform::<bf16>(n, k, 2), col, 3);
            let d = Narrow { tile, cols }.product::<bf16, bf16>(world, [&a, &b], 1)?;
            for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
                if d.view().at(i, j).is_nan() != (i == row || j == col) {
                    return Err(format!(
                        "{tile:?} of {cols} columns, NaN in row {row} and column {col}: wrong at {i}, {j}"
                    ));
                }
            }
        }
    }
    Ok(())
}

/// What a plan chooses by itself on few SMs: narrower tiles are among it, and its bits are those of whole ones where nothing is cut
/// along K. One plan takes calls of other rows.
pub fn plans_choose_columns_by_themselves(world: &World, n: usize) -> TestResult {
    let k = 2048;
    let b = uniform::<bf16>(n, k, 2);
    for tile in TILES {
        let go = || -> Result<Gemm, Error> {
            Gemm::builder(world, 0).shape(130, n, k).tile(tile).split_k(SplitK::Never).build()
        };
        let plan = go().map_err(|e| e.to_string())?;
        let mut narrow = 0;
        for m in [130, 1, 16, 64, 65, 130, 8] {
            let a = uniform::<bf16>(m, k, m);
            let expected = whole::<bf16, bf16>(world, tile, [&a, &b])?;
            let run = || -> Result<_, Error> {
                let d = Guarded::<bf16>::room(world, 0, m, n, n.next_multiple_of(8))?;
                let stride = k.next_multiple_of(8);
                let (a, b) = (Guarded::new(world, 0, a.view(), stride)?, Guarded::new(world, 0, b.view(), stride)?);
                // SAFETY: the buffers are alive and of the plan's shape, and the call is waited for.
                unsafe { plan.launch(m, &RankMatrices { a: a.arg(), b: b.arg(), d: d.arg() }, None) }?;
                plan.finish()?;
                Ok((d, plan.tile_of(m)?))
            };
            let (d, [rows, cols]) = run().map_err(|e| e.to_string())?;
            narrow += usize::from(cols < tile[1]);
            if rows != tile[0] || bits(&[d.written("D", m)?]) != bits(std::slice::from_ref(&expected)) {
                return Err(format!("{m}×{n}×{k} by {rows} × {cols} of {tile:?}: other bits than whole tiles"));
            }
        }
        if narrow == 0 {
            return Err(format!("no call of {n} columns took narrower tiles than {tile:?}"));
        }
    }
    Ok(())
}

/// Columns that no kernel can have are errors that say so; with those that one can have, the plan says what it takes.
pub fn what_it_cannot_do_is_refused(world: &World) -> TestResult {
    let builder = || Gemm::builder(world, 0).shape(64, 256, 64);
    for cols in [0, 4, 12, 63, 72, u32::MAX] {
        let built = builder().tile_cols(cols).build();
        expect_error(built, &[&format!("tile_cols is {cols}"), "multiple of 8 from 8 to 64"])?;
    }
    for split_k in [SplitK::Always, SplitK::Runs] {
        let built = builder().tile(TILES[0]).tile_cols(48).split_k(split_k).build();
        expect_error(built, &["tile_cols is 48", "not cut along K", &format!("{split_k:?}")])?;
    }
    let rule = "tiles of 64 × 64 and 128 × 64, layout nt, 16-bit operands and results";
    for tile in [[128, 256], [64, 128], [64, 96]] {
        let built = builder().tile(tile).tile_cols(48).build();
        expect_error(built, &["tile_cols is 48", rule, &format!("{} × {}", tile[0], tile[1])])?;
    }
    for variant in [
        Variant { layout: Layout::Nn, ..Variant::default() },
        Variant::new(Layout::Nt, bf16::ELEMENT, f32::ELEMENT),
        Variant::new(Layout::Nt, tilewire::kernels::config::Element::E4m3, bf16::ELEMENT),
    ] {
        expect_error(
            builder().variant(variant).tile_cols(48).build(),
            &["tile_cols is 48", rule, &variant.to_string()],
        )?;
    }
    for (tile, cols) in TILES.into_iter().flat_map(|tile| [8, 48, 64].map(|cols| (tile, cols))) {
        let plan = builder().tile(tile).tile_cols(cols).build().map_err(|e| e.to_string())?;
        let found = plan.tile_of(64).map_err(|e| e.to_string())?;
        if found != [tile[0], cols] {
            return Err(format!("{tile:?} with {cols} columns is {found:?}"));
        }
    }
    Ok(())
}

/// The wish is for calls without an epilogue; those with one take the kernel's own columns, in the same plan.
pub fn calls_with_an_epilogue_are_not_narrowed(world: &World) -> TestResult {
    let tile = TILES[0];
    if !super::tiles::tiles::<bf16, bf16>(Op::GemmEpilogue).contains(&tile) {
        return Err(format!("{tile:?} has no epilogue"));
    }
    let (m, n, k) = (70, 150, 136);
    let (a, b) = (uniform::<bf16>(m, k, 1), uniform::<bf16>(n, k, 2));
    let expected = whole::<bf16, bf16>(world, tile, [&a, &b])?;
    let go = || -> Result<_, Error> {
        let builder = Gemm::builder(world, 0).shape(m, n, k).tile(tile).tile_cols(24);
        let plan = builder.split_k(SplitK::Never).with_epilogue().build()?;
        let tensor = |x: &Matrix<bf16>| tilewire::world::Tensor::from_slice(world, 0, x.rows(), x.cols(), x.data());
        let (a, b) = (tensor(&a)?, tensor(&b)?);
        let mut d = tilewire::world::Tensor::poisoned::<bf16>(world, 0, m, n)?;
        plan.run_with(m, &a, &b, &mut d, &Default::default())?;
        let finished = d.to_vec::<bf16>()?;
        d.poison()?;
        plan.run(m, &a, &b, &mut d)?;
        Ok([finished, d.to_vec::<bf16>()?])
    };
    let results = go().map_err(|e| e.to_string())?;
    let same = |d: &Vec<bf16>| d.iter().zip(expected.data()).all(|(x, y)| x.to_bits() == y.to_bits());
    if results.iter().all(same) { Ok(()) } else { Err("other bits than whole tiles".to_string()) }
}
