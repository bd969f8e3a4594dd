//! GEMM + ReduceScatter: the truth, and the protocol.

use super::{Layout, chunks_of, gemm, product_shape, reduce_scatter};
use crate::matrix::{Matrix, MatrixRef};
use crate::scalar::Scalar;
use crate::{Error, Result};

/// One rank's operands, A_r and B_r, as the call's layout has them. K_r may differ between ranks, and be 0.
pub type Operands<'a, T> = (MatrixRef<'a, T>, MatrixRef<'a, T>);

/// Rank d's chunk of Σ_r A_r·B_r for each d, in f64 and not rounded: the truth, which knows nothing of partials.
///
/// # Errors
/// The number of ranks is 0 or above 8; an A and its B disagree on K, or ranks on M or N.
pub fn truth<T: Scalar>(layout: Layout, ranks: &[Operands<T>]) -> Result<Vec<Matrix<f64>>> {
    let sum = unsharded(layout, ranks)?;
    let chunks = chunks_of(sum.rows(), ranks.len())?;
    chunks
        .iter()
        .map(|c| Ok(sum.view().part(c.first_row as usize, 0, c.rows as usize, sum.cols())?.map(|&x| x)))
        .collect()
}

/// Σ_r A_r·B_r, M×N, in f64.
///
/// # Errors
/// As [`truth`].
pub fn unsharded<T: Scalar>(layout: Layout, ranks: &[Operands<T>]) -> Result<Matrix<f64>> {
    let (m, n) = same_shape(layout, ranks)?;
    let mut sum = Matrix::from_fn(m, n, |_, _| 0.0);
    for (a, b) in ranks {
        let partial = gemm(layout, *a, *b)?;
        sum.data_mut().iter_mut().zip(partial.data()).for_each(|(sum, x)| *sum += x);
    }
    Ok(sum)
}

/// Rank d's result for each d as the protocol defines it, from exact products: each rank's partial is the exact sum
/// rounded to f32 (the accumulator) and then to `P` (the wire); they are reduced by [`reduce_scatter`].
///
/// A kernel gives these bits when its f32 accumulators are exact, as they are for integers whose sums of |products| stay
/// within 2²⁴. Otherwise the bits that it must give are those of [`reduce_scatter`] over its own partials.
///
/// # Errors
/// As [`truth`].
pub fn protocol<T: Scalar, P: Scalar, D: Scalar>(layout: Layout, ranks: &[Operands<T>]) -> Result<Vec<Matrix<D>>> {
    same_shape(layout, ranks)?;
    let partial = |(a, b): &Operands<T>| Ok(gemm(layout, *a, *b)?.map(|&x| P::from_f32(x as f32)));
    let partials = ranks.iter().map(partial).collect::<Result<Vec<Matrix<P>>>>()?;
    reduce_scatter(&partials.iter().map(Matrix::view).collect::<Vec<_>>())
}

/// M and N, on which the ranks, 1 to 8, must agree.
fn same_shape<T: Scalar>(layout: Layout, ranks: &[Operands<T>]) -> Result<(usize, usize)> {
    let shapes = ranks.iter().map(|(a, b)| product_shape(layout, *a, *b)).collect::<Result<Vec<_>>>()?;
    let (m, n, _) = shapes.first().copied().unwrap_or_default();
    chunks_of(m, ranks.len())?;
    for (rank, (m_r, n_r, _)) in shapes.into_iter().enumerate() {
        for (name, value, expected) in [("M", m_r, m), ("N", n_r, n)] {
            if value != expected {
                let (value, expected) = (value.to_string(), expected.to_string());
                return Err(Error::RanksDisagree { argument: name.into(), rank, value, expected });
            }
        }
    }
    Ok((m, n))
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;
    use crate::data;

    fn operands(m: usize, n: usize, ks: &[usize]) -> Vec<(Matrix<bf16>, Matrix<bf16>)> {
        let rank =
            |(r, &k): (usize, &usize)| (data::integers(m, k, r as u64, 3), data::integers(n, k, 100 + r as u64, 3));
        ks.iter().enumerate().map(rank).collect()
    }

    fn views(ranks: &[(Matrix<bf16>, Matrix<bf16>)]) -> Vec<Operands<'_, bf16>> {
        ranks.iter().map(|(a, b)| (a.view(), b.view())).collect()
    }

    #[test]
    fn the_truth_is_the_product_of_the_operands_put_side_by_side() {
        let ks = [8, 0, 24];
        let ranks = operands(10, 7, &ks);
        let (a, b): (Vec<_>, Vec<_>) = views(&ranks).into_iter().unzip();
        let (a, b) = (data::side_by_side(&a).unwrap(), data::side_by_side(&b).unwrap());
        assert_eq!((a.cols(), b.cols()), (32, 32));
        let whole = gemm(Layout::Nt, a.view(), b.view()).unwrap();
        let chunks = truth(Layout::Nt, &views(&ranks)).unwrap();
        assert!(chunks.iter().map(Matrix::rows).eq([4, 4, 2]));
        assert_eq!(chunks.into_iter().flat_map(Matrix::into_data).collect::<Vec<_>>(), whole.data());
    }

    #[test]
    fn for_small_integers_truth_and_protocol_are_the_same_bits() {
        // |sums| ≤ 3 · 8 · 9 = 216: exact in bf16, partials and all.
        let ranks = operands(33, 20, &[8, 8, 8]);
        let exact = truth(Layout::Nt, &views(&ranks)).unwrap();
        let bits: Vec<Matrix<bf16>> = protocol::<_, bf16, _>(Layout::Nt, &views(&ranks)).unwrap();
        for (exact, bits) in exact.iter().zip(&bits) {
            assert_eq!(&bits.map(|x| x.to_f64()), exact);
        }
    }

    #[test]
    fn every_layout_gives_what_nt_gives_for_transposed_operands() {
        let ranks = operands(10, 7, &[8, 0, 24]);
        let flip = |m: &Matrix<bf16>| Matrix::from_fn(m.cols(), m.rows(), |r, c| *m.view().at(c, r));
        let flipped: Vec<_> = ranks.iter().map(|(a, b)| (flip(a), flip(b))).collect();
        let (nt, turned) = (views(&ranks), views(&flipped));
        let nn: Vec<_> = nt.iter().zip(&turned).map(|(nt, turned)| (nt.0, turned.1)).collect();
        let expected: Vec<Matrix<f32>> = protocol::<_, f32, _>(Layout::Nt, &nt).unwrap();
        for (layout, ranks) in [(Layout::Nn, &nn), (Layout::Tn, &turned)] {
            assert_eq!(protocol::<_, f32, f32>(layout, ranks).unwrap(), expected);
            assert_eq!(truth(layout, ranks).unwrap(), truth(Layout::Nt, &nt).unwrap());
        }
    }

    #[test]
    fn ranks_that_disagree_are_errors_that_name_the_argument() {
        let (mut one, other) = (operands(4, 5, &[8]), operands(4, 6, &[8]));
        one.extend(other);
        let e = truth(Layout::Nt, &views(&one)).unwrap_err().to_string();
        assert_eq!(e, "ranks disagree on N: rank 1 has 6, rank 0 has 5");
        assert!(protocol::<bf16, bf16, bf16>(Layout::Nt, &[]).is_err());
    }
}
