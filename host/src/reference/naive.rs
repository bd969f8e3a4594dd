//! The definition of the product as three loops: what checks the reference.

use super::{Layout, product_shape};
use crate::matrix::{Matrix, MatrixRef};
use crate::scalar::Scalar;

/// The product of A and B, one element after another, each summed along K in order.
pub fn naive_gemm<T: Scalar>(layout: Layout, a: MatrixRef<T>, b: MatrixRef<T>) -> Matrix<f64> {
    let (m, n, k) = product_shape(layout, a, b).unwrap();
    let a = |i, p| if layout == Layout::Tn { a.at(p, i) } else { a.at(i, p) }.to_f64();
    let b = |p, j| if layout == Layout::Nt { b.at(j, p) } else { b.at(p, j) }.to_f64();
    let mut d = vec![0.0; m * n];
    for i in 0..m {
        for j in 0..n {
            for p in 0..k {
                d[i * n + j] += a(i, p) * b(p, j);
            }
        }
    }
    Matrix::from_vec(m, n, d).unwrap()
}
