//! Plain products by consumers that multiply whole tiles in turns.

use half::{bf16, f16};
use tilewire::compare::{GemmNumerics, compare};
use tilewire::data;
use tilewire::matrix::Matrix;
use tilewire::ops::{Gemm, GemmBuilder};
use tilewire::reference::gemm;
use tilewire::scalar::Scalar;
use tilewire::world::{Tensor, World};
use tilewire::{Error, Layout, Variant};

use super::{TestResult, bits, uniform};

/// The tiles whose kernels these are: the first in every layout, the others in nt, with a last panel that begins in the one before.
const TILES: [[u32; 2]; 3] = [[128, 192], [128, 176], [128, 160]];

fn tiles_of(layout: Layout) -> &'static [[u32; 2]] {
    if layout == Layout::Nt { &TILES } else { &TILES[..1] }
}

fn plan<'a, T: Scalar>(world: &'a World, tile: [u32; 2], layout: Layout, [m, n, k]: [usize; 3]) -> GemmBuilder<'a> {
    let variant = Variant::new(layout, T::ELEMENT, T::ELEMENT);
    Gemm::builder(world, 0).shape(m, n, k).variant(variant).tile(tile).raster_group(2)
}

/// Three calls on one plan; their result, which must be the same bits.
fn product<T: Scalar>(
    world: &World,
    tile: [u32; 2],
    layout: Layout,
    [a, b]: [&Matrix<T>; 2],
    [m, n, k]: [usize; 3],
) -> Result<Matrix<T>, Error> {
    let plan = plan::<T>(world, tile, layout, [m, n, k]).build()?;
    let at = Tensor::from_slice(world, 0, a.rows(), a.cols(), a.data())?;
    let bt = Tensor::from_slice(world, 0, b.rows(), b.cols(), b.data())?;
    let once = || -> Result<Matrix<T>, Error> {
        let mut d = Tensor::poisoned::<T>(world, 0, m, n)?;
        plan.run(m, &at, &bt, &mut d)?;
        Matrix::from_vec(m, n, d.to_vec::<T>()?)
    };
    let first = once()?;
    for _ in 0..2 {
        let again = once()?;
        if bits(std::slice::from_ref(&again)) != bits(std::slice::from_ref(&first)) {
            return Err(Error::argument("result", "other bits", "equal calls give equal bits"));
        }
    }
    Ok(first)
}

fn is_right<T: Scalar>(world: &World, tile: [u32; 2], layout: Layout, shape: [usize; 3]) -> TestResult {
    let [m, n, k] = shape;
    let ((ar, ac), (br, bc)) = (layout.a_shape(m, k), layout.b_shape(n, k));
    let (a, b) = (uniform::<T>(ar, ac, 5), uniform::<T>(br, bc, 6));
    let go = || -> Result<(), Error> {
        let d = product(world, tile, layout, [&a, &b], shape)?;
        let truth = gemm(layout, a.view(), b.view())?;
        let (out, partials) = (T::ELEMENT, T::ELEMENT);
        let tolerance = GemmNumerics { k_per_rank: k, world: 1, out, partials, scale: 1.0 / 3.0 }.tolerance();
        compare(d.view(), truth.view(), tolerance)?.check().map(drop)
    };
    go().map_err(|e| format!("{layout} {m}×{n}×{k} {} by {tile:?}: {e}", T::ELEMENT.name()))
}

/// Every layout and type: one tile and many, whole and ragged, sums shorter than the ring, as long, and longer.
pub fn every_variant(world: &World, shapes: &[[usize; 3]]) -> TestResult {
    for &shape in shapes {
        for layout in Layout::ALL {
            for &tile in tiles_of(layout) {
                is_right::<bf16>(world, tile, layout, shape)?;
                is_right::<f16>(world, tile, layout, shape)?;
            }
        }
    }
    Ok(())
}

/// A stage that goes to the wrong consumer, or to none, shows in the bits of sums of small integers.
pub fn integers_are_exact(world: &World, shapes: &[[usize; 3]]) -> TestResult {
    for &shape in shapes {
        let [m, n, k] = shape;
        let (a, b): (Matrix<bf16>, Matrix<bf16>) = (data::integers(m, k, 1, 3), data::integers(n, k, 2, 3));
        for tile in TILES {
            let go = || -> Result<bool, Error> {
                let d = product(world, tile, Layout::Nt, [&a, &b], shape)?;
                let exact = gemm(Layout::Nt, a.view(), b.view())?.map(|x| bf16::from_f64(*x));
                Ok(d.data() == exact.data())
            };
            if !go().map_err(|e| format!("{shape:?} by {tile:?}: {e}"))? {
                return Err(format!("{shape:?} by {tile:?}: sums of integers are not exact"));
            }
        }
    }
    Ok(())
}

/// Rows of D that end inside 16 bytes are for other tiles, and results of other types have no such kernel.
pub fn what_it_cannot_do_is_refused(world: &World) -> TestResult {
    let text = |built: Result<Gemm, Error>| built.err().map(|e| e.to_string()).unwrap_or_default();
    let ragged = text(plan::<bf16>(world, TILES[0], Layout::Nt, [64, 60, 64]).build());
    let wide =
        Variant::new(Layout::Nt, tilewire::kernels::config::Element::Bf16, tilewire::kernels::config::Element::F32);
    let wide = text(Gemm::builder(world, 0).shape(64, 64, 64).variant(wide).tile(TILES[0]).build());
    let with_epilogue = text(plan::<bf16>(world, TILES[0], Layout::Nt, [64, 64, 64]).with_epilogue().build());
    for (text, words) in [
        (&ragged, ["tile is 128 × 192", "whole steps of 16 bytes, and n is 60"]),
        (&wide, ["tile is 128 × 192", "nt bf16 → f32 has 128 × 256"]),
        (&with_epilogue, ["tile is 128 × 192", "128 × 256"]),
    ] {
        if let Some(word) = words.iter().find(|word| !text.contains(**word)) {
            return Err(format!("{word:?} is not in {text:?}"));
        }
    }
    Ok(())
}
