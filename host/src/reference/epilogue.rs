//! Epilogues in f64.

use crate::compare::Tolerance;
use crate::kernels::abi::Activation;
use crate::matrix::{Matrix, MatrixRef};
use crate::scalar::Scalar;
use crate::{Error, Result};

/// An epilogue over host matrices: `act(alpha · product + beta · C + bias) + residual`; alpha includes all scales.
#[derive(Clone, Copy, Debug)]
pub struct HostEpilogue<'a, D> {
    /// Factor of the product.
    pub alpha: f64,
    /// Factor of C; with 0, C is not read.
    pub beta: f64,
    /// What is applied to the sum.
    pub activation: Activation,
    /// C, of the product's shape.
    pub c: Option<MatrixRef<'a, D>>,
    /// One element for each column.
    pub bias: Option<&'a [D]>,
    /// Added after the activation, of the product's shape.
    pub residual: Option<MatrixRef<'a, D>>,
}

impl<D> Default for HostEpilogue<'_, D> {
    fn default() -> Self {
        Self { alpha: 1.0, beta: 0.0, activation: Activation::None, c: None, bias: None, residual: None }
    }
}

/// `x` with the activation, to f64's accuracy. ReLU of a NaN is a NaN.
pub fn activate(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::None => x,
        Activation::Relu => {
            if x < 0.0 {
                0.0
            } else {
                x
            }
        }
        Activation::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
            0.5 * x * (1.0 + inner.tanh())
        }
        Activation::GeluErf => 0.5 * x * libm::erfc(-x / std::f64::consts::SQRT_2),
        Activation::Silu => x / (1.0 + (-x).exp()),
    }
}

impl<D: Scalar> HostEpilogue<'_, D> {
    /// The product with its epilogue.
    ///
    /// # Errors
    /// [`Error::Argument`] if beta is not 0 and there is no C, or C, the bias or the residual has another shape.
    pub fn apply(&self, product: &Matrix<f64>) -> Result<Matrix<f64>> {
        let (m, n) = (product.rows(), product.cols());
        let c = if self.beta == 0.0 { None } else { self.c };
        if self.beta != 0.0 && c.is_none() {
            return Err(Error::argument("C", "missing", format!("beta is {}", self.beta)));
        }
        for (name, matrix) in [("C", c), ("residual", self.residual)] {
            if let Some(matrix) = matrix.filter(|matrix| (matrix.rows(), matrix.cols()) != (m, n)) {
                let shape = format!("{} × {}", matrix.rows(), matrix.cols());
                return Err(Error::argument(name, shape, format!("D is {m} × {n}")));
            }
        }
        if let Some(bias) = self.bias.filter(|bias| bias.len() != n) {
            return Err(Error::argument("elements of the bias", bias.len(), format!("D has {n} columns")));
        }
        Ok(Matrix::from_fn(m, n, |row, col| {
            let mut x = self.alpha * product.view().at(row, col);
            x += c.map_or(0.0, |c| self.beta * c.at(row, col).to_f64());
            x += self.bias.map_or(0.0, |bias| bias[col].to_f64());
            activate(self.activation, x) + self.residual.map_or(0.0, |r| r.at(row, col).to_f64())
        }))
    }

    /// How far a result may be from [`Self::apply`], where the product alone may be as far from the truth as `product` says
    /// and no value on the way exceeds `largest`: no activation is steeper than 1.13, additions round in f32, and the
    /// kernels' activations are within 1e-6 of the exact ones, absolute and relative.
    pub fn tolerance(&self, product: Tolerance, largest: f64) -> Tolerance {
        const STEEPEST: f64 = 1.13;
        const ACTIVATION: f64 = 1e-6;
        let rounding = 4.0 * largest * f64::from(f32::EPSILON);
        Tolerance {
            absolute: STEEPEST * (self.alpha.abs() * product.absolute + rounding) + ACTIVATION,
            relative: product.relative + ACTIVATION,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulator::HostArithmetic;
    use crate::kernels::finish::Finish;
    use crate::kernels::shape::GlobalAddr;

    fn kernel(activation: Activation, x: f32) -> f32 {
        let activation = activation as u32;
        let how = Finish { alpha: 1.0, beta: 0.0, activation, source: 0, bias: GlobalAddr(0), cols: 1 };
        how.value::<HostArithmetic>(x, 0.0, 0.0)
    }

    #[test]
    fn the_kernels_activations_are_as_accurate_as_they_say() {
        for activation in Activation::ALL {
            for i in -2_000_000..2_000_000 {
                let x = i as f32 * 1e-5;
                let (actual, expected) = (f64::from(kernel(activation, x)), activate(activation, f64::from(x)));
                let error = (actual - expected).abs();
                assert!(error <= 1e-6 + 1e-6 * expected.abs(), "{activation:?} of {x}: {actual}, not {expected}");
            }
        }
    }

    #[test]
    fn large_values_and_nans_survive_activations() {
        for activation in Activation::ALL {
            assert!(kernel(activation, f32::NAN).is_nan(), "{activation:?}");
            for x in [30.0, 1e10, 1e20, 1e30, f32::MAX] {
                assert_eq!(kernel(activation, x), x, "{activation:?}");
                let low = kernel(activation, -x);
                let expected = if activation == Activation::None { -x } else { 0.0 };
                assert!((low - expected).abs() < 1e-9, "{activation:?} of {}: {low}", -x);
            }
            assert_eq!(kernel(activation, 0.0), 0.0);
        }
    }

    #[test]
    fn c_is_not_read_with_beta_zero_and_shapes_are_checked() {
        let product = Matrix::from_fn(2, 3, |r, c| (r * 3 + c) as f64);
        let c = Matrix::from_fn(2, 3, |_, _| f32::NAN);
        let none = HostEpilogue { c: Some(c.view()), ..HostEpilogue::default() };
        assert_eq!(none.apply(&product).unwrap(), product);
        let text = |e: HostEpilogue<f32>| e.apply(&product).unwrap_err().to_string();
        assert_eq!(text(HostEpilogue { beta: 1.0, ..HostEpilogue::default() }), "C is missing, but beta is 1");
        let bias = [0.0; 2];
        let short = text(HostEpilogue { bias: Some(&bias), ..HostEpilogue::default() });
        assert_eq!(short, "elements of the bias is 2, but D has 3 columns");
    }
}
