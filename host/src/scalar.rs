//! Element types on the CPU: bf16, f16 and f32, with conversions that round once.

use std::fmt::Debug;

use half::{bf16, f16};

use crate::kernels::config::Element;

/// An element type of operands, partials and results.
pub trait Scalar: bytemuck::Pod + Debug + PartialEq + Send + Sync {
    /// The type's name on the device side.
    const ELEMENT: Element;

    /// `x` rounded once, to nearest, ties to even; past the largest finite value it is an infinity.
    fn from_f64(x: f64) -> Self;

    /// `x` rounded once, to nearest, ties to even; past the largest finite value it is an infinity.
    fn from_f32(x: f32) -> Self;

    /// The value; every element type is a subset of f32.
    fn to_f32(self) -> f32;

    /// The bit pattern, in the low bits.
    fn bits(self) -> u32;

    /// The value; every element type is a subset of f64.
    fn to_f64(self) -> f64 {
        f64::from(self.to_f32())
    }
}

impl Scalar for bf16 {
    const ELEMENT: Element = Element::Bf16;

    fn from_f64(x: f64) -> Self {
        Self::from_f32(round_to_odd(x))
    }

    fn from_f32(x: f32) -> Self {
        bf16::from_f32(x)
    }

    fn to_f32(self) -> f32 {
        bf16::to_f32(self)
    }

    fn bits(self) -> u32 {
        self.to_bits().into()
    }
}

impl Scalar for f16 {
    const ELEMENT: Element = Element::F16;

    fn from_f64(x: f64) -> Self {
        Self::from_f32(round_to_odd(x))
    }

    fn from_f32(x: f32) -> Self {
        f16::from_f32(x)
    }

    fn to_f32(self) -> f32 {
        f16::to_f32(self)
    }

    fn bits(self) -> u32 {
        self.to_bits().into()
    }
}

impl Scalar for f32 {
    const ELEMENT: Element = Element::F32;

    fn from_f64(x: f64) -> Self {
        x as f32
    }

    fn from_f32(x: f32) -> Self {
        x
    }

    fn to_f32(self) -> f32 {
        self
    }

    fn bits(self) -> u32 {
        self.to_bits()
    }
}

/// Largest relative error of rounding to `element` once, for values in its normal range: half the spacing at 1.
///
/// bf16 keeps 8 significant bits, so the spacing at 1 is 2⁻⁷ and this is 2⁻⁸; just below a power of two the relative
/// error is at most half of that.
pub const fn unit_roundoff(element: Element) -> f64 {
    match element {
        Element::Bf16 => 1.0 / 256.0,
        Element::F16 => 1.0 / 2048.0,
        Element::F32 => 1.0 / 16_777_216.0,
    }
}

/// Half the spacing of `element`'s subnormal numbers: the absolute error of rounding a value below the normal range.
pub fn subnormal_roundoff(element: Element) -> f64 {
    match element {
        Element::Bf16 => 2f64.powi(-134),
        Element::F16 => 2f64.powi(-25),
        Element::F32 => 2f64.powi(-150),
    }
}

/// `x` in f32, an inexact one with an odd last bit. Rounding that to a type with at least two bits fewer is the same as
/// rounding `x` itself: through f32's own rounding, a value next to a tie would become the tie. (half's `from_f64` is no
/// way out, since it drops the low 32 bits first.)
fn round_to_odd(x: f64) -> f32 {
    let nearest = x as f32;
    if f64::from(nearest) == x || !nearest.is_finite() || nearest.to_bits() & 1 == 1 {
        return nearest;
    }
    let bits = nearest.to_bits();
    f32::from_bits(if f64::from(nearest).abs() > x.abs() { bits - 1 } else { bits + 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_from_f64_happens_once() {
        // 257 lies midway between 256 and 258; so little above it that f32 sees the tie itself.
        let above_tie = 257.0 + 1e-9;
        assert_eq!(above_tie as f32, 257.0);
        assert_eq!(<bf16 as Scalar>::from_f64(257.0).to_f32(), 256.0);
        assert_eq!(<bf16 as Scalar>::from_f64(above_tie).to_f32(), 258.0);
        assert_eq!(<bf16 as Scalar>::from_f64(-above_tie).to_f32(), -258.0);
        assert_eq!(<bf16 as Scalar>::from_f64(259.0 - 1e-9).to_f32(), 258.0);
        assert_eq!(<f16 as Scalar>::from_f64(2049.0).to_f32(), 2048.0);
        assert_eq!(<f16 as Scalar>::from_f64(2049.0 + 1e-9).to_f32(), 2050.0);
    }

    #[test]
    fn rounding_keeps_every_value_of_the_type_and_never_exceeds_the_unit_roundoff() {
        for bits in 0..=u16::MAX {
            let (b, h) = (bf16::from_bits(bits), f16::from_bits(bits));
            assert!(b.is_nan() || <bf16 as Scalar>::from_f64(b.to_f64()) == b);
            assert!(h.is_nan() || <f16 as Scalar>::from_f64(h.to_f64()) == h);
        }
        fn worst<T: Scalar>() -> f64 {
            let x = |i: u32| 1.0 + f64::from(i) / f64::from(1 << 20);
            (0..1 << 20).map(|i| (T::from_f64(x(i)).to_f64() - x(i)).abs() / x(i)).fold(0.0, f64::max)
        }
        for (worst, u) in
            [(worst::<bf16>(), unit_roundoff(Element::Bf16)), (worst::<f16>(), unit_roundoff(Element::F16))]
        {
            assert!(worst <= u && worst > 0.99 * u, "{worst} against {u}");
        }
    }

    #[test]
    fn special_values_survive() {
        assert!(<bf16 as Scalar>::from_f64(f64::NAN).is_nan());
        assert_eq!(<bf16 as Scalar>::from_f64(f64::INFINITY), bf16::INFINITY);
        assert_eq!(<f16 as Scalar>::from_f64(-1e9), f16::NEG_INFINITY);
        assert_eq!(<bf16 as Scalar>::from_f64(-0.0).bits(), 0x8000);
        assert_eq!(<f16 as Scalar>::from_f64(65519.99).to_f32(), 65504.0);
        assert_eq!(<f16 as Scalar>::from_f64(65520.0), f16::INFINITY);
        assert_eq!(<f16 as Scalar>::from_f64(2f64.powi(-25)).bits(), 0, "a tie with zero goes to zero");
        assert_eq!(<f16 as Scalar>::from_f64(2f64.powi(-25) * 1.0000001).bits(), 1);
    }
}
