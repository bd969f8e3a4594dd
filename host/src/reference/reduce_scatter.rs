//! The protocol's reduction, bit for bit.

use crate::kernels::comm::route::{Chunk, chunk_of};
use crate::kernels::shape::{MAX_WORLD, Rank};
use crate::matrix::{Matrix, MatrixRef};
use crate::scalar::Scalar;
use crate::{Error, Result};

/// The chunks of all ranks over `m` rows, by owner.
///
/// # Errors
/// `world` is 0 or above [`MAX_WORLD`]; `m` does not fit in u32.
pub fn chunks_of(m: usize, world: usize) -> Result<Vec<Chunk>> {
    if !(1..=MAX_WORLD).contains(&world) {
        return Err(Error::argument("world", world, format!("a world has 1 to {MAX_WORLD} ranks")));
    }
    let rows = u32::try_from(m).map_err(|_| Error::argument("M", m, "rows are counted in u32"))?;
    Ok((0..world as u32).map(|owner| chunk_of(rows, world as u32, Rank(owner))).collect())
}

/// Rank d's result for each d: its chunk of Σ_r partials\[r\], (chunk rows) × N.
///
/// `partials[r]` is rank r's M×N partial, already rounded to the type `P` in which it travels. Each element starts as
/// +0 in f32; ranks 0, 1, … W−1 are added to it in that order, each sum rounded to f32; the last one is rounded once to
/// `D`. A single rank's partial is not added to anything. Nothing else is in the arithmetic, so a kernel must give the
/// same bits (a NaN is one bit pattern of many: see [`crate::compare`]).
///
/// # Errors
/// As [`chunks_of`], with one partial a rank; the partials differ in shape.
pub fn reduce_scatter<P: Scalar, D: Scalar>(partials: &[MatrixRef<P>]) -> Result<Vec<Matrix<D>>> {
    let shape = |p: &MatrixRef<P>| (p.rows(), p.cols());
    let (m, n) = partials.first().map_or((0, 0), shape);
    let chunks = chunks_of(m, partials.len())?;
    if let Some(rank) = partials.iter().position(|p| shape(p) != (m, n)) {
        let show = |(m, n): (usize, usize)| format!("{m} × {n}");
        return Err(Error::RanksDisagree {
            argument: "the partial's shape".into(),
            rank,
            value: show(shape(&partials[rank])),
            expected: show((m, n)),
        });
    }
    Ok(chunks.iter().map(|chunk| reduce_chunk(partials, *chunk, n)).collect())
}

fn reduce_chunk<P: Scalar, D: Scalar>(partials: &[MatrixRef<P>], chunk: Chunk, n: usize) -> Matrix<D> {
    let (first, rows) = (chunk.first_row as usize, chunk.rows as usize);
    Matrix::from_fn(rows, n, |row, col| D::from_f32(reduce_element(partials, first + row, col)))
}

fn reduce_element<P: Scalar>(partials: &[MatrixRef<P>], row: usize, col: usize) -> f32 {
    match partials {
        [only] => only.at(row, col).to_f32(),
        // The sum of no f32s is −0 in Rust, but a kernel's sum starts as +0, so that zeros of either sign add up to +0.
        _ => partials.iter().fold(0.0, |sum, p| sum + p.at(row, col).to_f32()),
    }
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;

    /// Every rank's partial is 1×1; the result of rank 0, in bf16.
    fn sum<P: Scalar>(values: &[f32]) -> f32 {
        let partials: Vec<_> = values.iter().map(|&v| Matrix::from_fn(1, 1, |_, _| P::from_f32(v))).collect();
        let views: Vec<_> = partials.iter().map(Matrix::view).collect();
        let d: Vec<Matrix<bf16>> = reduce_scatter(&views).unwrap();
        assert!(d[1..].iter().all(|d| d.rows() == 0));
        d[0].data()[0].to_f32()
    }

    #[test]
    fn partials_are_added_in_f32_and_rounded_once() {
        assert_eq!(sum::<bf16>(&[256.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]), 264.0);
        assert_eq!(sum::<bf16>(&[257.0; 3]), 768.0);
        assert_eq!(sum::<f32>(&[257.0; 3]), 772.0);
    }

    #[test]
    fn the_order_is_the_ranks() {
        let big = 2f32.powi(30);
        assert_eq!(sum::<f32>(&[1.0, big, -big]), 0.0);
        assert_eq!(sum::<f32>(&[big, -big, 1.0]), 1.0);
    }

    #[test]
    fn zeros_of_either_sign_add_up_to_plus_zero() {
        assert!(sum::<bf16>(&[-0.0, -0.0]).is_sign_positive() && sum::<bf16>(&[-0.0, 0.0]).is_sign_positive());
        assert!(sum::<bf16>(&[-0.0]).is_sign_negative(), "one rank's partial is not added to anything");
    }

    #[test]
    fn each_owner_gets_its_rows() {
        for (m, rows) in [(9, vec![2, 2, 2, 2, 1, 0, 0, 0]), (1023, vec![256, 256, 256, 255]), (0, vec![0; 4])] {
            let partial = Matrix::from_fn(m, 3, |r, c| (3 * r + c) as f32);
            let d: Vec<Matrix<f32>> = reduce_scatter(&vec![partial.view(); rows.len()]).unwrap();
            assert!(d.iter().map(Matrix::rows).eq(rows.iter().copied()));
            let all: Vec<f32> = d.into_iter().flat_map(Matrix::into_data).collect();
            let expected = partial.map(|x| x * rows.len() as f32);
            assert_eq!(all, expected.data());
        }
    }

    #[test]
    fn worlds_and_shapes_that_cannot_be_are_errors() {
        let (a, b) = (Matrix::from_fn(2, 3, |_, _| 0f32), Matrix::from_fn(3, 3, |_, _| 0f32));
        let error = |partials: &[MatrixRef<f32>]| reduce_scatter::<f32, f32>(partials).unwrap_err().to_string();
        assert_eq!(error(&[]), "world is 0, but a world has 1 to 8 ranks");
        assert_eq!(error(&[a.view(); 9]), "world is 9, but a world has 1 to 8 ranks");
        let disagree = "ranks disagree on the partial's shape: rank 1 has 3 × 3, rank 0 has 2 × 3";
        assert_eq!(error(&[a.view(), b.view()]), disagree);
    }
}
