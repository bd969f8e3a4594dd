//! Plain products whose tiles are cut along K.

use half::{bf16, f16};
use tilewire::compare::{GemmNumerics, compare};
use tilewire::matrix::Matrix;
use tilewire::ops::Gemm;
use tilewire::reference::gemm;
use tilewire::scalar::Scalar;
use tilewire::world::{Tensor, World};
use tilewire::{Error, Layout, SplitK, Variant};

use super::{TestResult, bits, uniform};

/// A product with `calls` calls on one plan, whose results must be the same bits; the last of them.
fn product<I: Scalar, O: Scalar>(
    world: &World,
    layout: Layout,
    split_k: SplitK,
    [a, b]: [&Matrix<I>; 2],
    [m, n, k]: [usize; 3],
    calls: usize,
) -> Result<Matrix<O>, String> {
    let run = || -> Result<Vec<Matrix<O>>, Error> {
        let variant = Variant::new(layout, I::ELEMENT, O::ELEMENT);
        let plan = Gemm::builder(world, 0).shape(m, n, k).variant(variant).split_k(split_k).build()?;
        let at = Tensor::from_slice(world, 0, a.rows(), a.cols(), a.data())?;
        let bt = Tensor::from_slice(world, 0, b.rows(), b.cols(), b.data())?;
        (0..calls)
            .map(|_| {
                let mut d = Tensor::poisoned::<O>(world, 0, m, n)?;
                plan.run(m, &at, &bt, &mut d)?;
                Matrix::from_vec(m, n, d.to_vec::<O>()?)
            })
            .collect()
    };
    let results = run().map_err(|e| format!("{layout} {m}×{n}×{k}, {split_k:?}: {e}"))?;
    if results.windows(2).any(|pair| bits(&pair[..1]) != bits(&pair[1..])) {
        return Err(format!("{layout} {m}×{n}×{k}, {split_k:?}: two calls differ"));
    }
    results.into_iter().last().ok_or_else(|| "no calls".into())
}

fn operands<I: Scalar>(layout: Layout, [m, n, k]: [usize; 3]) -> [Matrix<I>; 2] {
    let ((ar, ac), (br, bc)) = (layout.a_shape(m, k), layout.b_shape(n, k));
    [uniform::<I>(ar, ac, 5), uniform::<I>(br, bc, 6)]
}

/// Ways to cut.
const CUTS: [SplitK; 2] = [SplitK::Always, SplitK::Runs];

fn is_right<I: Scalar, O: Scalar>(world: &World, layout: Layout, shape: [usize; 3]) -> TestResult {
    CUTS.into_iter().try_for_each(|split_k| is_right_cut::<I, O>(world, layout, split_k, shape))
}

fn is_right_cut<I: Scalar, O: Scalar>(world: &World, layout: Layout, split_k: SplitK, shape: [usize; 3]) -> TestResult {
    let [a, b] = operands::<I>(layout, shape);
    let d = product::<I, O>(world, layout, split_k, [&a, &b], shape, 3)?;
    let truth = gemm(layout, a.view(), b.view()).map_err(|e| e.to_string())?;
    let numerics =
        GemmNumerics { k_per_rank: shape[2], world: 1, out: O::ELEMENT, partials: O::ELEMENT, scale: 1.0 / 3.0 };
    compare(d.view(), truth.view(), numerics.tolerance())
        .and_then(|report| report.check())
        .map(drop)
        .map_err(|e| format!("{layout} {shape:?} {split_k:?} {} → {}: {e}", I::ELEMENT.name(), O::ELEMENT.name()))
}

/// Every layout and type, over shapes with fewer tiles than SMs and with more.
pub fn every_variant(world: &World, shapes: &[[usize; 3]]) -> TestResult {
    for &shape in shapes {
        for layout in Layout::ALL {
            is_right::<bf16, bf16>(world, layout, shape)?;
            is_right::<bf16, f32>(world, layout, shape)?;
            is_right::<f16, f16>(world, layout, shape)?;
            is_right::<f16, f32>(world, layout, shape)?;
        }
    }
    Ok(())
}

/// Sums of small integers are exact in every order, so that a stage that is left out, or counted twice, shows in the bits.
pub fn integers_are_exact(world: &World, shapes: &[[usize; 3]]) -> TestResult {
    for &shape in shapes {
        for layout in Layout::ALL {
            let [a, b] = operands::<f32>(layout, shape).map(|x| {
                let small = x.data().iter().map(|v| bf16::from_f32((v * 2.9).trunc())).collect();
                Matrix::from_vec(x.rows(), x.cols(), small)
            });
            let (a, b) = (a.map_err(|e| e.to_string())?, b.map_err(|e| e.to_string())?);
            let whole = product::<bf16, f32>(world, layout, SplitK::Never, [&a, &b], shape, 1)?;
            let whole = bits(&[whole]);
            for split_k in CUTS {
                let cut = product::<bf16, f32>(world, layout, split_k, [&a, &b], shape, 2)?;
                if whole != bits(&[cut]) {
                    return Err(format!("{layout} {shape:?} {split_k:?}: cut tiles differ from whole ones"));
                }
            }
        }
    }
    Ok(())
}
