//! What a call is given.

use tilewire::data;
use tilewire::matrix::Matrix;
use tilewire::reference::chunks_of;
use tilewire::reference::epilogue::HostEpilogue;
use tilewire::scalar::Scalar;

use super::{Factors, FuzzCase};
use crate::epilogue::Form;

/// Operands, scales and addends of every rank.
pub struct Given<A, B, O> {
    pub a: Vec<Matrix<A>>,
    pub b: Vec<Matrix<B>>,
    pub scales: Vec<Factors>,
    /// Of each rank's rows of D; none without an epilogue.
    pub addends: Vec<Addends<O>>,
}

/// What an epilogue may add.
pub struct Addends<O> {
    pub c: Matrix<O>,
    pub residual: Matrix<O>,
    pub bias: Matrix<O>,
}

impl<A: Scalar, B: Scalar, O: Scalar> Given<A, B, O> {
    /// For a call over `m` rows.
    pub fn new(fuzz: &FuzzCase, m: usize) -> Result<Self, String> {
        let (n, k, layout) = (fuzz.case.n, fuzz.case.k, fuzz.case.layout);
        let ((ar, ac), (br, bc)) = (layout.a_shape(m, k), layout.b_shape(n, k));
        let ranks = 0..fuzz.ranks;
        let rows = chunks_of(m, fuzz.ranks).map_err(|e| e.to_string())?;
        let addends = |rank: usize| {
            let (rows, of) = (rows[rank].rows as usize, 100 + 3 * rank);
            Addends {
                c: matrix(fuzz, rows, n, of),
                residual: matrix(fuzz, rows, n, of + 1),
                bias: matrix(fuzz, 1, n, of + 2),
            }
        };
        Ok(Self {
            a: ranks.clone().map(|rank| matrix(fuzz, ar, ac, 2 * rank)).collect(),
            b: ranks.clone().map(|rank| matrix(fuzz, br, bc, 2 * rank + 1)).collect(),
            scales: ranks.clone().map(|rank| fuzz.factors(rank)).collect(),
            addends: ranks.filter(|_| fuzz.form.is_some()).map(addends).collect(),
        })
    }
}

impl<O: Scalar> Addends<O> {
    pub fn host(&self, form: &Form) -> HostEpilogue<'_, O> {
        form.host(self.c.view(), self.residual.view(), self.bias.data())
    }
}

fn matrix<T: Scalar>(fuzz: &FuzzCase, rows: usize, cols: usize, of: usize) -> Matrix<T> {
    match fuzz.integers {
        Some(max) => data::integers(rows, cols, fuzz.seed ^ of as u64, max),
        None => data::uniform(rows, cols, fuzz.seed ^ of as u64),
    }
}
