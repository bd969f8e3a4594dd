//! Inputs for tests and measurements.
//!
//! Every element is a pure function of its seed and its place, through [`random_at`], so a matrix is the same whatever
//! fills it: one thread or many, whole or in parts.

use crate::matrix::{Matrix, MatrixRef};
use crate::scalar::Scalar;
use crate::{Error, Result};

/// The `index`-th number of the `stream`-th sequence of `seed`: 64 uniform bits.
///
/// The three are spread by odd constants and mixed by the finaliser of SplitMix64, a bijection of 64 bits.
pub const fn random_at(seed: u64, stream: u64, index: u64) -> u64 {
    let key = mix(seed.wrapping_mul(0xD1B5_4A32_D192_ED03).wrapping_add(stream));
    mix(key.wrapping_add(index.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
}

const fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// Uniform values in [−1, 1), rounded to `T` (so 1 itself may occur). Mean 0, variance 1/3.
pub fn uniform<T: Scalar>(rows: usize, cols: usize, seed: u64) -> Matrix<T> {
    let scale = 2f64.powi(-63);
    Matrix::from_fn(rows, cols, |r, c| T::from_f64(random_at(seed, r as u64, c as u64).cast_signed() as f64 * scale))
}

/// Nearly normal values, mean 0 and variance 1, rounded to `T`: the sum of four uniform ones, scaled. None exceeds 3.47
/// in size. The bits depend on no mathematical library.
pub fn normal<T: Scalar>(rows: usize, cols: usize, seed: u64) -> Matrix<T> {
    // Four 16-bit numbers, each uniform with variance (2³² − 1) / 12, about a mean of (2¹⁶ − 1) / 2.
    let deviation = (f64::from(u32::MAX) / 3.0).sqrt();
    Matrix::from_fn(rows, cols, |r, c| {
        let bits = random_at(seed, r as u64, c as u64);
        let sum: u64 = (0..4).map(|i| bits >> (16 * i) & 0xFFFF).sum();
        T::from_f64((sum as f64 - 2.0 * 65_535.0) / deviation)
    })
}

/// Uniform integers in [−`max`, `max`].
///
/// Products and sums of such values are exact in every order of summation while K · max² stays within 2²⁴, and so is a
/// bf16 result while sums stay within 256, an f16 one within 2048. `T` must hold integers up to `max` exactly.
pub fn integers<T: Scalar>(rows: usize, cols: usize, seed: u64, max: u32) -> Matrix<T> {
    let span = 2 * u64::from(max) + 1;
    Matrix::from_fn(rows, cols, |r, c| {
        T::from_f64((random_at(seed, r as u64, c as u64) % span) as f64 - f64::from(max))
    })
}

/// The value of [`pattern`] at (`row`, `col`) of rank `rank`: an integer in [−125, 125], exact in every element type.
pub const fn pattern_value(row: usize, col: usize, rank: usize) -> i32 {
    (random_at(rank as u64, row as u64, col as u64) % 251) as i32 - 125
}

/// A matrix whose elements say where they belong: each is [`pattern_value`] of its row, column and rank, so that rows,
/// columns or ranks that change places change values.
pub fn pattern<T: Scalar>(rows: usize, cols: usize, rank: usize) -> Matrix<T> {
    Matrix::from_fn(rows, cols, |r, c| T::from_f64(pattern_value(r, c, rank).into()))
}

/// An N×K matrix of ones where row = column, and zeros: as B (layout nt), it makes column j of D column j of A, exactly.
pub fn identity<T: Scalar>(n: usize, k: usize) -> Matrix<T> {
    Matrix::from_fn(n, k, |r, c| T::from_f64(f64::from(u8::from(r == c))))
}

/// Fills memory with 0xFF bytes: a NaN in every element type. What nobody wrote must not reach a result.
pub fn poison<T: Scalar>(memory: &mut [T]) {
    bytemuck::cast_slice_mut::<T, u8>(memory).fill(0xFF);
}

/// The elements of `matrix` with rows `stride` elements apart; poison lies in the gaps, the last row's too. A `stride`
/// below the number of columns counts as that number.
pub fn with_gaps<T: Scalar>(matrix: &Matrix<T>, stride: usize) -> Vec<T> {
    let stride = stride.max(matrix.cols());
    let mut memory = vec![T::zeroed(); matrix.rows() * stride];
    poison(&mut memory);
    for row in 0..matrix.rows() {
        memory[row * stride..][..matrix.cols()].copy_from_slice(matrix.view().row(row));
    }
    memory
}

/// The parts side by side, along columns: the unsharded operand of the ranks' shards. Empty without parts.
///
/// # Errors
/// The parts differ in rows.
pub fn side_by_side<T: Scalar>(parts: &[MatrixRef<T>]) -> Result<Matrix<T>> {
    let rows = parts.first().map_or(0, MatrixRef::rows);
    if let Some(rank) = parts.iter().position(|p| p.rows() != rows) {
        let (value, expected) = (parts[rank].rows().to_string(), rows.to_string());
        return Err(Error::RanksDisagree { argument: "rows".into(), rank, value, expected });
    }
    let data = (0..rows).flat_map(|row| parts.iter().flat_map(move |p| p.row(row).iter().copied())).collect();
    Matrix::from_vec(rows, parts.iter().map(MatrixRef::cols).sum(), data)
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;

    fn moments(m: &Matrix<f32>) -> (f64, f64) {
        let n = m.data().len() as f64;
        let mean = m.data().iter().map(|&x| f64::from(x)).sum::<f64>() / n;
        (mean, m.data().iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / n)
    }

    #[test]
    fn distributions_have_the_mean_and_variance_they_promise() {
        let cases =
            [(uniform(1000, 1000, 7), 1.0 / 3.0), (normal(1000, 1000, 7), 1.0), (integers(1000, 1000, 7, 9), 30.0)];
        for (m, variance) in cases {
            let (mean, v) = moments(&m);
            assert!(mean.abs() < 5.0 * (variance / 1e6f64).sqrt(), "mean {mean}");
            assert!((v / variance - 1.0).abs() < 0.01, "variance {v} against {variance}");
        }
        assert!(normal::<f32>(1000, 1000, 7).data().iter().all(|x| x.abs() < 3.47));
    }

    #[test]
    fn values_do_not_depend_on_threads_and_do_on_the_seed() {
        let in_pool = |threads, seed| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| normal::<bf16>(67, 129, seed))
        };
        assert_eq!(in_pool(1, 3), in_pool(7, 3));
        assert_ne!(in_pool(1, 3), in_pool(1, 4));
    }

    #[test]
    fn no_two_rows_columns_or_ranks_of_a_pattern_are_alike() {
        let rows: std::collections::HashSet<Vec<i32>> = (0..4)
            .flat_map(|rank| (0..300).map(move |row| (0..16).map(|col| pattern_value(row, col, rank)).collect()))
            .collect();
        assert_eq!(rows.len(), 1200);
        let cols: std::collections::HashSet<Vec<i32>> =
            (0..300).map(|col| (0..16).map(|row| pattern_value(row, col, 1)).collect()).collect();
        assert_eq!(cols.len(), 300);
        assert!(pattern::<bf16>(9, 9, 2).data().iter().all(|x| x.to_f32().fract() == 0.0 && x.to_f32().abs() <= 125.0));
    }

    #[test]
    fn poison_is_nan_and_gaps_hold_it() {
        let m = integers::<bf16>(3, 4, 0, 2);
        let memory = with_gaps(&m, 6);
        assert_eq!(memory.len(), 18);
        for (i, x) in memory.iter().enumerate() {
            assert_eq!(x.is_nan(), i % 6 >= 4);
        }
    }
}
