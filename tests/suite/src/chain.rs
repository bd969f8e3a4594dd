//! Calls of which each reads what the one ahead wrote, and writes over what that one read, with no wait between them: kernels
//! that start before the one ahead has ended must touch nothing before it has.

use half::bf16;
use tilewire::matrix::Matrix;
use tilewire::ops::{Gemm, RankMatrices, RawEpilogue};
use tilewire::world::{Tensor, World};
use tilewire::{Error, SplitK};

use super::TestResult;

/// Column of X that column `col` of X · Wᵀ takes, and the sign it gets.
fn source(col: usize, n: usize) -> (usize, f32) {
    // A prime that does not divide n: no two columns have the same source.
    let step = [3, 5, 7, 11, 13].into_iter().find(|step| !n.is_multiple_of(*step)).unwrap_or(1);
    ((col * step + 1) % n, if col.is_multiple_of(3) { -1.0 } else { 1.0 })
}

/// W of n × n: every column of X · Wᵀ is one of X, with a sign; so what a call writes is exact.
pub fn weights(n: usize) -> Result<Matrix<bf16>, Error> {
    let mut w = vec![bf16::ZERO; n * n];
    for col in 0..n {
        let (from, sign) = source(col, n);
        w[col * n + from] = bf16::from_f32(sign);
    }
    Matrix::from_vec(n, n, w)
}

/// What the first call of a chain reads: m rows of n columns, small integers that bf16 holds.
pub fn first_rows(m: usize, n: usize) -> Vec<bf16> {
    (0..m * n).map(|at| bf16::from_f32((at * 31 % 251) as f32 - 125.0)).collect()
}

/// What a call has written.
pub fn found(d: &Tensor) -> Result<Vec<f32>, Error> {
    Ok(d.to_vec::<bf16>()?.iter().map(|v| v.to_f32()).collect())
}

/// Rows of n columns after so many products.
pub fn expected(x: &[bf16], n: usize, calls: usize) -> Vec<f32> {
    let mut now: Vec<f32> = x.iter().map(|v| v.to_f32()).collect();
    for _ in 0..calls {
        let of = |at: usize| {
            let (from, sign) = source(at % n, n);
            sign * now[at / n * n + from]
        };
        now = (0..now.len()).map(of).collect();
    }
    now
}

/// Plans of every kind that calls may follow each other in: every tile, cut and uncut, with and without an early start.
fn plans(world: &World, m: usize, n: usize) -> Result<Vec<Gemm>, Error> {
    let with = |tile: Option<[u32; 2]>, split_k, early| {
        let builder = Gemm::builder(world, 0).shape(m, n, n).split_k(split_k).dependent_launch(early);
        tile.into_iter().fold(builder, |builder, tile| builder.tile(tile)).build()
    };
    let mut plans = Vec::new();
    for tile in [[128, 256], [128, 128], [64, 128], [128, 64], [64, 64]] {
        plans.extend([with(Some(tile), SplitK::Never, true)?, with(Some(tile), SplitK::Runs, true)?]);
    }
    for tile in [[128, 192], [128, 176], [128, 160], [128, 144], [128, 96], [64, 192], [64, 96]] {
        plans.push(with(Some(tile), SplitK::Never, true)?);
    }
    plans.push(with(None, SplitK::Auto, false)?);
    Ok(plans)
}

/// `calls` calls in a row over each number of rows, by plans in turn and by one plan alone, some with an epilogue.
pub fn every_call_waits_for_the_one_ahead(world: &World, n: usize, rows: &[usize], calls: usize) -> TestResult {
    for &m in rows {
        let go = || -> Result<(), Error> {
            let x = first_rows(m, n);
            let w = weights(n)?;
            let w = Tensor::from_slice(world, 0, n, n, w.data())?;
            let plans = plans(world, m, n)?;
            let auto = Gemm::builder(world, 0).shape(m, n, n).with_epilogue().build()?;
            for kind in ["plans in turn", "one plan", "an epilogue between"] {
                let mut now = Tensor::from_slice(world, 0, m, n, &x)?;
                let mut next = Tensor::poisoned::<bf16>(world, 0, m, n)?;
                for call in 0..calls {
                    let given = RankMatrices { a: now.arg(), b: w.arg(), d: next.arg() };
                    // SAFETY: the tensors are of the plans' shape and outlive the calls, which are waited for below.
                    unsafe {
                        match kind {
                            "plans in turn" => plans[call % plans.len()].launch(m, &given, None)?,
                            "an epilogue between" if call % 2 == 1 => {
                                auto.launch_with(m, &given, &RawEpilogue::default(), None)?;
                            }
                            _ => auto.launch(m, &given, None)?,
                        }
                    }
                    std::mem::swap(&mut now, &mut next);
                }
                auto.finish()?;
                plans.iter().try_for_each(Gemm::finish)?;
                let (found, right) = (found(&now)?, expected(&x, n, calls));
                if let Some(at) = (0..found.len()).find(|at| found[*at] != right[*at]) {
                    let (row, col) = (at / n, at % n);
                    let message = format!("{kind}: row {row}, column {col} is {}, not {}", found[at], right[at]);
                    return Err(Error::argument("result", message, "each call reads what the one ahead wrote"));
                }
            }
            Ok(())
        };
        go().map_err(|e| format!("{m} rows, {n} columns, {calls} calls: {e}"))?;
    }
    Ok(())
}
