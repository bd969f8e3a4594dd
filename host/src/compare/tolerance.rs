//! How far a right result may be from the truth. `docs/numerics.md` derives what is computed here.

use approx::{AbsDiffEq, RelativeEq};

use crate::kernels::config::Element;
use crate::matrix::{Matrix, MatrixRef};
use crate::scalar::{Scalar, subnormal_roundoff, unit_roundoff};

/// An element is within tolerance when |actual − expected| ≤ `absolute` + `relative` · |expected|.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// In units of the result.
    pub absolute: f64,
    /// Dimensionless.
    pub relative: f64,
}

/// What the error of a GEMM depends on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GemmNumerics {
    /// Products that one rank sums: K of its operands.
    pub k_per_rank: usize,
    /// Ranks whose partials are added.
    pub world: usize,
    /// Type of the result.
    pub out: Element,
    /// Type in which partials travel.
    pub partials: Element,
    /// Size of a product, in units of the result: see [`operand_scale`].
    pub scale: f64,
}

/// Standard deviations of a sub-Gaussian error that are tolerated: an element of a right result is beyond them with a
/// probability of at most 2·exp(−32) = 2.53e-14.
const DEVIATIONS: f64 = 8.0;

/// Largest relative error of one addition in a tensor core's accumulator, which truncates: a whole unit of f32's last
/// place, where rounding would give half.
const TRUNCATION: f64 = 1.0 / 8_388_608.0;

/// The same where products of 8-bit operands are summed: reported to keep 14 bits.
const TRUNCATION_OF_8_BITS: f64 = 1.0 / 8192.0;

/// Products of 8-bit operands that the tensor cores sum before the sum is added in f32: those of one stage.
const PROMOTED_PRODUCTS: f64 = 128.0;

/// Room for terms of second order, the rounding of a roundoff: the largest is twice bf16's 2⁻⁸.
const SECOND_ORDER: f64 = 1.0 + 1.0 / 64.0;

impl Tolerance {
    /// Nothing but the value itself.
    pub const EXACT: Self = Self { absolute: 0.0, relative: 0.0 };

    /// For `k_per_rank` products a rank of operands with mean 0 and variance 1, partials in the type of the result.
    pub fn for_gemm(k_per_rank: usize, world: usize, out: Element) -> Self {
        GemmNumerics { k_per_rank, world, out, partials: out, scale: 1.0 }.tolerance()
    }

    /// Whether `actual` is within this of `expected`. A NaN is within tolerance of a NaN and an infinity of itself, and
    /// of nothing else.
    pub fn admits(&self, actual: f64, expected: f64) -> bool {
        let same_kind = actual == expected || actual.is_nan() && expected.is_nan();
        same_kind || (actual - expected).abs() <= self.allowed(expected)
    }

    /// Largest error allowed at `expected`; 0 unless that is finite.
    pub fn allowed(&self, expected: f64) -> f64 {
        if expected.is_finite() { self.absolute + self.relative * expected.abs() } else { 0.0 }
    }
}

impl GemmNumerics {
    /// The tolerance: one rounding of the result, relative; the partials' roundings and the accumulators' errors,
    /// absolute, as deviations of sums of `k_per_rank` · `world` products.
    pub fn tolerance(&self) -> Tolerance {
        self.tolerance_of(Element::Bf16)
    }

    /// The same for operands of type `input`. Sums of 8-bit operands err by more: each stage's, by as much as a sum of
    /// 14 bits may. Stages' errors are independent of each other, as ranks' are.
    pub fn tolerance_of(&self, input: Element) -> Tolerance {
        let products = (self.k_per_rank * self.world) as f64;
        let additions = (self.k_per_rank + self.world) as f64;
        let of_stages = if input.bytes() == 1 { PROMOTED_PRODUCTS * TRUNCATION_OF_8_BITS } else { 0.0 };
        let accumulation = 2.0 / 3.0 * (additions * TRUNCATION + of_stages);
        // A world of one rounds its partial to the type of the result, which the relative term covers, unless the two
        // types differ. f32 partials are the accumulators themselves.
        let rounds_partials = self.partials != Element::F32 && (self.world > 1 || self.partials != self.out);
        let partials = if rounds_partials { unit_roundoff(self.partials) } else { 0.0 };
        let deviation = self.scale * products.sqrt() * (partials + accumulation);
        let subnormals = subnormal_roundoff(self.out) + self.world as f64 * subnormal_roundoff(self.partials);
        Tolerance {
            absolute: SECOND_ORDER * DEVIATIONS * deviation + subnormals,
            relative: SECOND_ORDER * unit_roundoff(self.out),
        }
    }
}

/// The size of a product of A and B (layout nt: M×K and N×K): the largest root mean square of a row of A, times that of
/// a row of B. 0 for operands without elements.
///
/// √K times this is the standard deviation of an element of D, at most, for operands whose signs are random.
pub fn operand_scale<T: Scalar>(a: MatrixRef<T>, b: MatrixRef<T>) -> f64 {
    let largest_rms = |m: MatrixRef<T>| {
        let mean_square = |row| m.row(row).iter().map(|x| x.to_f64().powi(2)).sum::<f64>() / m.cols().max(1) as f64;
        (0..m.rows()).map(mean_square).fold(0.0, f64::max).sqrt()
    };
    largest_rms(a) * largest_rms(b)
}

/// An element under comparison, for approx's traits and macros: `epsilon` and `max_relative` are the two terms of a
/// [`Tolerance`], added. (approx's own f64 takes the larger; errors of different origin add up.)
#[derive(Clone, Copy, Debug)]
pub struct Value(pub f64);

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        Tolerance::EXACT.admits(self.0, other.0)
    }
}

impl AbsDiffEq for Value {
    type Epsilon = f64;

    fn default_epsilon() -> f64 {
        0.0
    }

    fn abs_diff_eq(&self, expected: &Self, epsilon: f64) -> bool {
        Tolerance { absolute: epsilon, relative: 0.0 }.admits(self.0, expected.0)
    }
}

impl RelativeEq for Value {
    fn default_max_relative() -> f64 {
        0.0
    }

    fn relative_eq(&self, expected: &Self, epsilon: f64, max_relative: f64) -> bool {
        Tolerance { absolute: epsilon, relative: max_relative }.admits(self.0, expected.0)
    }
}

impl<T: Scalar> PartialEq<Matrix<f64>> for Matrix<T> {
    fn eq(&self, expected: &Matrix<f64>) -> bool {
        self.abs_diff_eq(expected, 0.0)
    }
}

/// A result against its reference: of one shape, and each element as [`Value`] has it.
impl<T: Scalar> AbsDiffEq<Matrix<f64>> for Matrix<T> {
    type Epsilon = f64;

    fn default_epsilon() -> f64 {
        0.0
    }

    fn abs_diff_eq(&self, expected: &Matrix<f64>, epsilon: f64) -> bool {
        self.relative_eq(expected, epsilon, 0.0)
    }
}

impl<T: Scalar> RelativeEq<Matrix<f64>> for Matrix<T> {
    fn default_max_relative() -> f64 {
        0.0
    }

    fn relative_eq(&self, expected: &Matrix<f64>, epsilon: f64, max_relative: f64) -> bool {
        (self.rows(), self.cols()) == (expected.rows(), expected.cols())
            && self
                .data()
                .iter()
                .zip(expected.data())
                .all(|(a, &e)| Value(a.to_f64()).relative_eq(&Value(e), epsilon, max_relative))
    }
}

#[cfg(test)]
mod tests {
    use approx::{assert_abs_diff_eq, assert_relative_eq, assert_relative_ne};

    use super::*;

    #[test]
    fn approx_macros_compare_results_with_references() {
        let expected = Matrix::from_vec(1, 3, vec![1.0, f64::NAN, f64::INFINITY]).unwrap();
        let actual = Matrix::from_vec(1, 3, vec![1.01f32, f32::NAN, f32::INFINITY]).unwrap();
        assert_relative_eq!(actual, expected, epsilon = 0.005, max_relative = 0.0051);
        assert_relative_ne!(actual, expected, epsilon = 0.005, max_relative = 0.0049);
        assert_abs_diff_eq!(actual, expected, epsilon = 0.0101);
        assert_abs_diff_eq!(Value(f64::NAN), Value(f64::NAN));
        assert_relative_ne!(Value(f64::INFINITY), Value(f64::NEG_INFINITY), epsilon = 1e300);
        assert_relative_ne!(Value(0.0), Value(f64::NAN), epsilon = f64::INFINITY, max_relative = 1.0);
    }

    #[test]
    fn the_terms_are_those_of_the_derivation() {
        let t = Tolerance::for_gemm(7168, 4, Element::Bf16);
        assert_relative_eq!(t.relative, 65.0 / 64.0 / 256.0);
        let deviation = 28_672f64.sqrt() * (1.0 / 256.0 + 2.0 / 3.0 * 7172.0 / 8_388_608.0);
        assert_relative_eq!(t.absolute, 65.0 / 64.0 * 8.0 * deviation, max_relative = 1e-12);
        // Half the operands' size is a quarter of the product's; f32 partials are not rounded; one rank has no partials.
        let scaled =
            GemmNumerics { k_per_rank: 7168, world: 4, out: Element::Bf16, partials: Element::Bf16, scale: 0.25 };
        assert_relative_eq!(scaled.tolerance().absolute, t.absolute / 4.0, max_relative = 1e-12);
        let exact_partials = GemmNumerics { partials: Element::F32, scale: 1.0, ..scaled };
        assert!(exact_partials.tolerance().absolute < t.absolute * 0.2);
        let of_8_bits = exact_partials.tolerance_of(Element::E4m3).absolute;
        let deviation = 28_672f64.sqrt() * 2.0 / 3.0 * (7172.0 / 8_388_608.0 + 128.0 / 8192.0);
        assert_relative_eq!(of_8_bits, 65.0 / 64.0 * 8.0 * deviation, max_relative = 1e-12);
        let alone = Tolerance::for_gemm(28_672, 1, Element::Bf16);
        assert_relative_eq!(
            alone.absolute,
            Tolerance::for_gemm(28_672, 1, Element::F32).absolute,
            max_relative = 1e-12
        );
    }

    #[test]
    fn the_scale_is_that_of_the_largest_rows() {
        let a = Matrix::from_vec(2, 2, vec![1f32, 1.0, 3.0, 4.0]).unwrap();
        let b = Matrix::from_vec(1, 2, vec![2f32, 0.0]).unwrap();
        assert_relative_eq!(operand_scale(a.view(), b.view()), 12.5f64.sqrt() * 2f64.sqrt(), max_relative = 1e-12);
        assert_eq!(operand_scale(MatrixRef::<f32>::new(&[], 0, 0, 0).unwrap(), b.view()), 0.0);
    }
}
