//! Epilogues of jobs: options, addends of every rank, and what the result must then be.

use clap::{Args, ValueEnum};
use half::bf16;

use crate::compare::Tolerance;
use crate::data;
use crate::error::{Error, Result};
use crate::matrix::{Matrix, MatrixRef};
use crate::ops::{Activation, TensorEpilogue};
use crate::reference::epilogue::HostEpilogue;
use crate::reference::sampled::Sample;
use crate::world::{Tensor, World};

/// What is applied to the sum over ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ActivationArg {
    /// Nothing.
    #[default]
    None,
    /// max(x, 0).
    Relu,
    /// GELU by tanh.
    GeluTanh,
    /// GELU by the error function.
    GeluErf,
    /// x / (1 + exp(-x)).
    Silu,
}

impl From<ActivationArg> for Activation {
    fn from(arg: ActivationArg) -> Self {
        match arg {
            ActivationArg::None => Activation::None,
            ActivationArg::Relu => Activation::Relu,
            ActivationArg::GeluTanh => Activation::GeluTanh,
            ActivationArg::GeluErf => Activation::GeluErf,
            ActivationArg::Silu => Activation::Silu,
        }
    }
}

/// Options of an epilogue; without any of them there is none.
#[derive(Args, Clone, Copy, Debug)]
pub struct EpilogueOptions {
    /// Factor of the sum over ranks.
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    alpha: f32,
    /// Factor of C, a random matrix that is added before the activation.
    #[arg(long, default_value_t = 0.0, allow_negative_numbers = true)]
    beta: f32,
    /// Adds a random bias, one element for each column.
    #[arg(long)]
    bias: bool,
    /// What is applied to the sum.
    #[arg(long, value_enum, default_value_t)]
    activation: ActivationArg,
    /// Adds a random matrix after the activation; not together with a beta other than 0.
    #[arg(long)]
    residual: bool,
}

impl EpilogueOptions {
    /// The options, if there is one that changes the result.
    ///
    /// # Errors
    /// [`Error::Argument`] for factors that are no finite numbers, and for C and a residual together.
    pub fn checked(self) -> Result<Option<Self>> {
        for (name, factor) in [("alpha", self.alpha), ("beta", self.beta)] {
            if !factor.is_finite() {
                return Err(Error::argument(name, factor, "it must be a finite number"));
            }
        }
        if self.beta != 0.0 && self.residual {
            let rule = "one matrix can be added: C before the activation, or with beta = 0 a residual after it";
            return Err(Error::argument("beta", self.beta, rule));
        }
        let changes = self.alpha != 1.0 || self.beta != 0.0 || self.bias || self.residual;
        Ok((changes || self.activation != ActivationArg::None).then_some(self))
    }
}

/// Addends of every rank, on the host and in the ranks' memory.
pub struct Addends {
    options: EpilogueOptions,
    c: Vec<Matrix<bf16>>,
    residual: Vec<Matrix<bf16>>,
    /// One for all ranks, as its columns are.
    bias: Matrix<bf16>,
    tensors: Vec<[Tensor; 3]>,
}

impl Addends {
    /// Random addends, the rows of each rank in `rows`.
    pub fn random(world: &World, options: EpilogueOptions, rows: &[usize], n: usize, seed: u64) -> Result<Self> {
        let seed = seed.wrapping_mul(1 << 16);
        let of = |first: u64| -> Vec<_> {
            (first..).zip(rows).map(|(at, rows)| data::uniform(*rows, n, seed.wrapping_add(at))).collect()
        };
        let (c, residual, bias) = (of(100), of(200), data::uniform(1, n, seed.wrapping_add(300)));
        let upload = |rank: usize, x: &Matrix<bf16>| Tensor::from_slice(world, rank, x.rows(), x.cols(), x.data());
        let tensors = (0..rows.len())
            .map(|rank| Ok([upload(rank, &c[rank])?, upload(rank, &residual[rank])?, upload(rank, &bias)?]))
            .collect::<Result<_>>()?;
        Ok(Self { options, c, residual, bias, tensors })
    }

    /// What each rank's call is given.
    pub fn epilogues(&self) -> Vec<TensorEpilogue<'_>> {
        let EpilogueOptions { alpha, beta, activation, .. } = self.options;
        let of_all = TensorEpilogue::default().alpha(alpha).beta(beta).activation(activation.into());
        self.tensors
            .iter()
            .map(|[c, residual, bias]| TensorEpilogue {
                c: Some(c),
                residual: self.options.residual.then_some(residual),
                bias: self.options.bias.then_some(bias),
                ..of_all
            })
            .collect()
    }

    /// What becomes of the `sum` over ranks in the places of `sample`, and how far a result may be from it: `product` is what
    /// the sum alone may have, and no partial exceeds `largest`.
    ///
    /// # Errors
    /// [`Error::Argument`] for a sample of another shape.
    pub fn expected(
        &self,
        sample: &Sample,
        sum: &Matrix<f64>,
        product: Tolerance,
        largest: f64,
    ) -> Result<(Matrix<f64>, Tolerance)> {
        let pick = |x: &[Matrix<bf16>]| sample.pick_chunks(&x.iter().map(Matrix::view).collect::<Vec<MatrixRef<_>>>());
        let (c, residual) = (pick(&self.c)?, pick(&self.residual)?);
        let bias: Vec<_> = sample.cols().iter().map(|col| *self.bias.view().at(0, *col)).collect();
        let EpilogueOptions { alpha, beta, activation, .. } = self.options;
        let host = HostEpilogue {
            alpha: f64::from(alpha),
            beta: f64::from(beta),
            activation: activation.into(),
            c: Some(c.view()),
            bias: self.options.bias.then_some(&bias),
            residual: self.options.residual.then_some(residual.view()),
        };
        // Addends are uniform in −1..1: bias and residual add 2.
        let largest = f64::from(alpha.abs()) * largest + f64::from(beta.abs()) + 2.0;
        Ok((host.apply(sum)?, host.tolerance(product, largest)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: EpilogueOptions =
        EpilogueOptions { alpha: 1.0, beta: 0.0, bias: false, activation: ActivationArg::None, residual: false };

    #[test]
    fn options_that_change_nothing_are_no_epilogue() {
        assert!(NONE.checked().unwrap().is_none());
        for options in [
            EpilogueOptions { alpha: -1.0, ..NONE },
            EpilogueOptions { beta: 0.5, ..NONE },
            EpilogueOptions { bias: true, ..NONE },
            EpilogueOptions { activation: ActivationArg::Silu, ..NONE },
            EpilogueOptions { residual: true, ..NONE },
        ] {
            assert!(options.checked().unwrap().is_some(), "{options:?}");
        }
    }

    #[test]
    fn factors_that_are_no_numbers_and_two_matrices_are_refused() {
        for (options, words) in [
            (EpilogueOptions { alpha: f32::NAN, ..NONE }, ["alpha is NaN", "finite"]),
            (EpilogueOptions { beta: f32::INFINITY, ..NONE }, ["beta is inf", "finite"]),
            (EpilogueOptions { beta: 2.0, residual: true, ..NONE }, ["beta is 2", "one matrix"]),
        ] {
            let text = options.checked().map(drop).unwrap_err().to_string();
            assert!(words.iter().all(|word| text.contains(word)), "{text}");
        }
    }
}
