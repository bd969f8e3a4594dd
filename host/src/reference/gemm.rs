//! D = alpha · A · B + beta · C in f64, for the three operand layouts.

use matrixmultiply::dgemm;
use rayon::prelude::*;

use crate::matrix::{Matrix, MatrixRef};
pub use crate::plan::Layout;
use crate::scalar::Scalar;
use crate::{Error, Result};

/// M, N and K of the product of A and B.
///
/// # Errors
/// A and B disagree on K.
pub fn product_shape<A, B>(layout: Layout, a: MatrixRef<A>, b: MatrixRef<B>) -> Result<(usize, usize, usize)> {
    let (m, k) = if layout == Layout::Tn { (a.cols(), a.rows()) } else { (a.rows(), a.cols()) };
    let (n, k_of_b) = if layout == Layout::Nt { (b.rows(), b.cols()) } else { (b.cols(), b.rows()) };
    if k != k_of_b {
        return Err(Error::argument("K of B", k_of_b, format!("K of A is {k} (layout {layout})")));
    }
    Ok((m, n, k))
}

/// Rows of D that one task computes. Part of the result: see the module's promise about threads.
const ROWS_PER_TASK: usize = 128;

/// The product of A and B, M×N, in f64.
///
/// Both operands are converted to f64 first: 8 · (M·K + N·K) bytes of memory besides D. Zeros do not hide NaNs:
/// 0 · NaN is NaN, and only the rows and columns that meet a NaN have one. For K = 0, D is zero.
///
/// # Errors
/// A and B disagree on K.
pub fn gemm<A: Scalar, B: Scalar>(layout: Layout, a: MatrixRef<A>, b: MatrixRef<B>) -> Result<Matrix<f64>> {
    let (m, n, k) = product_shape(layout, a, b)?;
    let mut d = vec![0.0; m * n];
    if m * n * k > 0 {
        let (a, b) = (a.map(|x| x.to_f64()), b.map(|x| x.to_f64()));
        d.par_chunks_mut(ROWS_PER_TASK * n)
            .enumerate()
            .for_each(|(task, d)| multiply_rows(layout, a.data(), b.data(), task * ROWS_PER_TASK, d, (m, n, k)));
    }
    Matrix::from_vec(m, n, d)
}

/// Rows `first..` of D, as many as `d` holds. `a` and `b` are whole operands without gaps; no extent is 0.
fn multiply_rows(layout: Layout, a: &[f64], b: &[f64], first: usize, d: &mut [f64], (m, n, k): (usize, usize, usize)) {
    let rows = d.len() / n;
    assert!(first + rows <= m && a.len() == m * k && b.len() == n * k && d.len() == rows * n);
    // Steps along (row of D, k) in A and along (k, column of D) in B.
    let (a_steps, a_start) = match layout {
        Layout::Nt | Layout::Nn => ((k, 1), first * k),
        Layout::Tn => ((1, m), first),
    };
    let b_steps = match layout {
        Layout::Nt => (1, k),
        Layout::Nn | Layout::Tn => (n, 1),
    };
    let step = |s: usize| s as isize;
    // SAFETY: dgemm reads rows × k elements of A, k × n of B, and writes rows × n of D, at these steps from these
    // pointers. The assertion puts the last of each inside its slice, and D, borrowed mutably, overlaps nothing.
    unsafe {
        dgemm(
            rows,
            k,
            n,
            1.0,
            a[a_start..].as_ptr(),
            step(a_steps.0),
            step(a_steps.1),
            b.as_ptr(),
            step(b_steps.0),
            step(b_steps.1),
            0.0,
            d.as_mut_ptr(),
            step(n),
            1,
        );
    }
}

/// alpha · (product of A and B) + beta · C, M×N, in f64.
///
/// With beta = 0 (or −0) C is never read, whatever it holds, and may be left out.
///
/// # Errors
/// A and B disagree on K; beta is not 0 and C is missing or not M×N.
pub fn gemm_scaled<A: Scalar, B: Scalar, C: Scalar>(
    layout: Layout,
    a: MatrixRef<A>,
    b: MatrixRef<B>,
    alpha: f32,
    beta: f32,
    c: Option<MatrixRef<C>>,
) -> Result<Matrix<f64>> {
    let mut d = gemm(layout, a, b)?;
    let (m, n) = (d.rows(), d.cols());
    let (alpha, beta) = (f64::from(alpha), f64::from(beta));
    if beta == 0.0 {
        d.data_mut().par_iter_mut().for_each(|d| *d *= alpha);
        return Ok(d);
    }
    let c = c.ok_or_else(|| Error::argument("C", "missing", format!("beta is {beta}")))?;
    if (c.rows(), c.cols()) != (m, n) {
        return Err(Error::argument("C", format!("{} × {}", c.rows(), c.cols()), format!("D is {m} × {n}")));
    }
    let c = c.map(|x| x.to_f64());
    d.data_mut().par_iter_mut().zip(c.data()).for_each(|(d, c)| *d = alpha * *d + beta * c);
    Ok(d)
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;
    use crate::data;
    use crate::reference::naive::naive_gemm;

    /// A and B of `layout` for M×N×K, integer-valued, so that every order of summation gives the same bits.
    fn operands<T: Scalar>(layout: Layout, m: usize, n: usize, k: usize) -> (Matrix<T>, Matrix<T>) {
        let (am, ak) = if layout == Layout::Tn { (k, m) } else { (m, k) };
        let (bn, bk) = if layout == Layout::Nt { (n, k) } else { (k, n) };
        (data::integers(am, ak, 1, 9), data::integers(bn, bk, 2, 9))
    }

    fn agrees_with_naive<T: Scalar>() {
        for layout in Layout::ALL {
            for (m, n, k) in [(0, 3, 3), (3, 0, 3), (3, 3, 0), (1, 1, 1), (7, 5, 3), (129, 65, 33), (300, 17, 130)] {
                let (a, b) = operands::<T>(layout, m, n, k);
                let d = gemm(layout, a.view(), b.view()).unwrap();
                assert_eq!(d, naive_gemm(layout, a.view(), b.view()), "{layout} {m}×{n}×{k}");
            }
        }
    }

    #[test]
    fn it_agrees_with_the_naive_triple_loop_for_every_layout_and_type() {
        agrees_with_naive::<bf16>();
        agrees_with_naive::<f16>();
        agrees_with_naive::<f32>();
    }

    #[test]
    fn gaps_between_rows_are_never_read() {
        for layout in Layout::ALL {
            let (a, b) = operands::<bf16>(layout, 19, 21, 23);
            let (wide_a, wide_b) = (data::with_gaps(&a, a.cols() + 5), data::with_gaps(&b, 2 * b.cols()));
            let wide_a = MatrixRef::new(&wide_a, a.rows(), a.cols(), a.cols() + 5).unwrap();
            let wide_b = MatrixRef::new(&wide_b, b.rows(), b.cols(), 2 * b.cols()).unwrap();
            assert_eq!(gemm(layout, wide_a, wide_b).unwrap(), gemm(layout, a.view(), b.view()).unwrap());
        }
    }

    #[test]
    fn beta_zero_never_reads_c_and_k_zero_leaves_beta_times_c() {
        let (a, b) = operands::<bf16>(Layout::Nt, 5, 4, 3);
        let c = Matrix::from_fn(5, 4, |r, _| if r % 2 == 0 { f32::NAN } else { f32::INFINITY });
        let plain = gemm(Layout::Nt, a.view(), b.view()).unwrap();
        for beta in [0.0, -0.0] {
            let d = gemm_scaled(Layout::Nt, a.view(), b.view(), 2.0, beta, Some(c.view())).unwrap();
            assert_eq!(d, plain.map(|x| 2.0 * x));
            assert!(gemm_scaled::<_, _, f32>(Layout::Nt, a.view(), b.view(), 2.0, beta, None).is_ok());
        }
        let c = Matrix::from_fn(5, 4, |r, col| (r * 4 + col) as f32);
        let (a, b) = operands::<bf16>(Layout::Nt, 5, 4, 0);
        let d = gemm_scaled(Layout::Nt, a.view(), b.view(), 2.0, -0.5, Some(c.view())).unwrap();
        assert_eq!(d, c.map(|&x| -0.5 * f64::from(x)));
    }

    #[test]
    fn a_nan_stays_in_its_row() {
        let (mut a, b) = operands::<bf16>(Layout::Nt, 9, 6, 5);
        a.data_mut()[4 * 5..].fill(bf16::NAN);
        let d = gemm(Layout::Nt, a.view(), b.view()).unwrap();
        assert!(d.data()[..4 * 6].iter().all(|x| x.is_finite()) && d.data()[4 * 6..].iter().all(|x| x.is_nan()));
    }

    #[test]
    fn shapes_that_disagree_are_errors() {
        let (a, b) = (data::integers::<f32>(2, 3, 0, 1), data::integers::<f32>(2, 4, 0, 1));
        let e = gemm(Layout::Nt, a.view(), b.view()).unwrap_err().to_string();
        assert_eq!(e, "K of B is 4, but K of A is 3 (layout nt)");
        let scaled = |c| gemm_scaled::<_, _, f32>(Layout::Nt, a.view(), a.view(), 1.0, 1.0, c).unwrap_err().to_string();
        assert_eq!(scaled(None), "C is missing, but beta is 1");
        assert_eq!(scaled(Some(b.view())), "C is 2 × 4, but D is 2 × 2");
    }

    #[test]
    fn results_do_not_depend_on_the_number_of_threads() {
        let (a, b) = (data::normal::<bf16>(300, 200, 1), data::normal::<bf16>(150, 200, 2));
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| gemm(Layout::Nt, a.view(), b.view()).unwrap())
        };
        assert_eq!(run(1), run(5));
    }
}
