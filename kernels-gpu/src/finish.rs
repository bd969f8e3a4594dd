//! What an epilogue makes of one value of a product: pure arithmetic, the same for every machine and every placement.
//!
//! Errors, for f32 results and any finite `x`: GELU and SiLU lie within 1e-6 + 1e-6 · |result| of the exact function. The
//! error function is Abramowitz and Stegun's 7.1.26, which is within 1.5e-7 of the exact one.
#![forbid(unsafe_code)]

use crate::abi::{Activation, EpilogueArgs, Source};
use crate::shape::GlobalAddr;

/// Arithmetic for which a machine has instructions of its own.
pub trait Arithmetic {
    /// `a · b + c`, rounded once.
    fn fma(a: f32, b: f32, c: f32) -> f32;
    /// 2ˣ, within a few units of the last place; subnormal results may be 0.
    fn exp2(x: f32) -> f32;
    /// 1 / x, within a unit of the last place; subnormal results may be 0.
    fn recip(x: f32) -> f32;
}

/// What is done to the values of a panel, or of rows of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finish {
    /// Factor of the product: alpha times the scales of the operands.
    pub alpha: f32,
    /// Factor of C.
    pub beta: f32,
    /// [`Activation`] as a number.
    pub activation: u32,
    /// [`Source`] as a number.
    pub source: u32,
    /// Bias of the first column; address 0 is none.
    pub bias: GlobalAddr,
    /// Columns that exist, from the first on.
    pub cols: u32,
}

impl Finish {
    /// The epilogue of `args` for `cols` columns from column `col` on; `alpha` includes the scales.
    #[inline(always)]
    pub fn new(args: &EpilogueArgs, alpha: f32, col: u32, cols: u32, element_bytes: u32) -> Self {
        let bias = if args.bias.0 == 0 { args.bias } else { args.bias.plus(col as u64 * element_bytes as u64) };
        Self { alpha, beta: args.beta, activation: args.activation, source: args.source, bias, cols }
    }

    /// Whether there is a bias.
    #[inline(always)]
    pub fn has_bias(&self) -> bool {
        self.bias.0 != 0
    }

    /// Whether a matrix is added before the activation, times beta.
    #[inline(always)]
    pub fn adds_c(&self) -> bool {
        self.source == Source::Scaled as u32
    }

    /// Whether a matrix is added after the activation.
    #[inline(always)]
    pub fn adds_residual(&self) -> bool {
        self.source == Source::Residual as u32
    }

    /// Whether a matrix is added at all.
    #[inline(always)]
    pub fn has_other(&self) -> bool {
        self.source != Source::None as u32
    }

    /// One value, without machine-dependent order: what machines that work value by value compute. `other` is the element
    /// of C or of the residual.
    #[inline(always)]
    pub fn value<A: Arithmetic>(&self, x: f32, other: f32, bias: f32) -> f32 {
        let mut v = x * self.alpha;
        if self.adds_c() {
            v = A::fma(self.beta, other, v);
        }
        if self.has_bias() {
            v += bias;
        }
        if self.activation == Activation::Relu as u32 {
            v = relu(v);
        } else if self.activation == Activation::GeluErf as u32 {
            v = gelu_erf::<A>(v);
        } else if self.activation != Activation::None as u32 {
            v = gated::<A>(v, self.activation == Activation::GeluTanh as u32);
        }
        if self.adds_residual() { v + other } else { v }
    }
}

/// ReLU; a NaN stays one.
#[inline(always)]
pub fn relu(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x }
}

const LOG2_E: f32 = core::f32::consts::LOG2_E;
/// 2 √(2/π), of which GELU's tanh is a logistic function.
const TWICE_SQRT_2_OVER_PI: f32 = 1.595_769;

/// `x` times the logistic function of `x` (SiLU), or of `2 √(2/π) (x + 0.044715 x³)` (GELU by tanh).
#[inline(always)]
pub fn gated<A: Arithmetic>(x: f32, is_gelu: bool) -> f32 {
    const SLOPE: f32 = -LOG2_E * TWICE_SQRT_2_OVER_PI;
    // Apart, not times 0: x² overflows where SiLU does not.
    let slope = if is_gelu { A::fma(SLOPE * 0.044_715, x * x, SLOPE) } else { -LOG2_E };
    x * A::recip(1.0 + A::exp2(x * slope))
}

/// GELU by the error function.
#[inline(always)]
pub fn gelu_erf<A: Arithmetic>(x: f32) -> f32 {
    let z = if x < 0.0 { -x } else { x } * core::f32::consts::FRAC_1_SQRT_2;
    let t = A::recip(A::fma(0.327_591_1, z, 1.0));
    let mut poly = A::fma(1.061_405_4, t, -1.453_152);
    poly = A::fma(poly, t, 1.421_413_7);
    poly = A::fma(poly, t, -0.284_496_74);
    poly = A::fma(poly, t, 0.254_829_6);
    // Half of erfc(z): what lies beyond |x| on one side.
    let tail = 0.5 * (poly * t) * A::exp2(z * z * -LOG2_E);
    x * if x < 0.0 { tail } else { 1.0 - tail }
}
