//! Element types on the CPU: bf16, f16, f32 and the two fp8 types, with conversions that round once.

use std::fmt::Debug;

pub use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};

use crate::kernels::config::Element;

/// An element type of operands, partials and results.
pub trait Scalar: bytemuck::Pod + Debug + PartialEq + Send + Sync {
    /// The type's name on the device side.
    const ELEMENT: Element;

    /// `x` rounded once, to nearest, ties to even; past the largest finite value it is an infinity, or, in fp8, that value.
    fn from_f64(x: f64) -> Self;

    /// As [`Self::from_f64`].
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

/// fp8 for operands: infinities too become the largest finite value, as saturating conversions on a GPU have it.
macro_rules! fp8 {
    ($type:ident, $element:ident) => {
        impl Scalar for $type {
            const ELEMENT: Element = Element::$element;

            fn from_f64(x: f64) -> Self {
                $type::from_f64(x)
            }

            fn from_f32(x: f32) -> Self {
                $type::from_f32(x)
            }

            fn to_f32(self) -> f32 {
                $type::to_f32(&self)
            }

            fn bits(self) -> u32 {
                self.to_bits().into()
            }
        }
    };
}

fp8!(F8E4M3, E4m3);
fp8!(F8E5M2, E5m2);

/// Largest relative error of rounding to `element` once, for values in its normal range: half the spacing at 1.
///
/// bf16 keeps 8 significant bits, so the spacing at 1 is 2⁻⁷ and this is 2⁻⁸; just below a power of two the relative
/// error is at most half of that.
pub const fn unit_roundoff(element: Element) -> f64 {
    match element {
        Element::Bf16 => 1.0 / 256.0,
        Element::F16 => 1.0 / 2048.0,
        Element::F32 => 1.0 / 16_777_216.0,
        Element::E4m3 => 1.0 / 16.0,
        Element::E5m2 => 1.0 / 8.0,
    }
}

/// Half the spacing of `element`'s subnormal numbers: the absolute error of rounding a value below the normal range.
pub fn subnormal_roundoff(element: Element) -> f64 {
    match element {
        Element::Bf16 => 2f64.powi(-134),
        Element::F16 => 2f64.powi(-25),
        Element::F32 => 2f64.powi(-150),
        Element::E4m3 => 2f64.powi(-10),
        Element::E5m2 => 2f64.powi(-17),
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

    /// Values of the codes 0..=0x7F, from the definition of the format: `None` is NaN.
    fn fp8_table(exponent_bits: i32, ieee: bool) -> Vec<Option<f64>> {
        let mantissa_bits = 7 - exponent_bits;
        let bias = (1 << (exponent_bits - 1)) - 1;
        (0..128i32)
            .map(|code| {
                let (exponent, mantissa) = (code >> mantissa_bits, code & ((1 << mantissa_bits) - 1));
                let top = exponent == (1 << exponent_bits) - 1;
                let fraction = f64::from(mantissa) / f64::from(1 << mantissa_bits);
                match (top, exponent) {
                    (true, _) if ieee => (mantissa == 0).then_some(f64::INFINITY),
                    (true, _) if mantissa == (1 << mantissa_bits) - 1 => None,
                    (_, 0) => Some(fraction * 2f64.powi(1 - bias)),
                    _ => Some((1.0 + fraction) * 2f64.powi(exponent - bias)),
                }
            })
            .collect()
    }

    /// Checks all codes, and rounding of values at, between, and next to the middles of all neighbours, against the table.
    fn fp8_is_the_table<T: Scalar>(table: &[Option<f64>], of: impl Fn(u8) -> T) {
        for code in 0..=255u8 {
            let value = of(code).to_f64();
            match table[usize::from(code & 0x7F)] {
                None => assert!(value.is_nan(), "{code:#x} is {value}"),
                Some(expected) => {
                    let expected = if code < 128 { expected } else { -expected };
                    assert_eq!(value.to_bits(), expected.to_bits(), "{code:#x}");
                    if expected.is_finite() {
                        assert_eq!(T::from_f64(expected).bits(), u32::from(code));
                        assert_eq!(T::from_f32(expected as f32).bits(), u32::from(code));
                    }
                }
            }
        }
        let finite: Vec<f64> = table.iter().copied().map_while(|v| v.filter(|v| v.is_finite())).collect();
        let largest = finite.len() as u32 - 1;
        for (low, pair) in (0u32..).zip(finite.windows(2)) {
            let middle = (pair[0] + pair[1]) / 2.0;
            let tiny = middle * 1e-12;
            let even = low + low % 2;
            for (x, code) in [(middle - tiny, low), (middle, even), (middle + tiny, low + 1), (pair[1] - tiny, low + 1)]
            {
                assert_eq!(T::from_f64(x).bits(), code, "{x}");
                assert_eq!(T::from_f64(-x).bits(), code | 0x80, "{x}");
            }
            assert_eq!(T::from_f32(middle as f32).bits(), even);
        }
        let spacing = finite[largest as usize] - finite[largest as usize - 1];
        for over in [spacing * 0.49, spacing * 0.5, spacing * 0.51, spacing, 1e9, 1e300, f64::INFINITY] {
            assert_eq!(T::from_f64(finite[largest as usize] + over).bits(), largest, "{over} past the largest");
            assert_eq!(T::from_f64(-finite[largest as usize] - over).bits(), largest | 0x80, "{over} past the largest");
        }
        assert!(T::from_f64(f64::NAN).to_f64().is_nan() && T::from_f32(f32::NAN).to_f32().is_nan());
        assert_eq!((T::from_f64(-0.0).bits(), T::from_f64(1e-300).bits(), T::from_f32(1e-45).bits()), (0x80, 0, 0));
    }

    #[test]
    fn every_code_of_fp8_is_that_of_a_table_and_rounding_goes_to_the_nearest() {
        let e4m3 = fp8_table(4, false);
        assert_eq!((e4m3[0x7E], e4m3[1]), (Some(448.0), Some(2f64.powi(-9))));
        fp8_is_the_table::<F8E4M3>(&e4m3, F8E4M3::from_bits);
        let e5m2 = fp8_table(5, true);
        assert_eq!((e5m2[0x7B], e5m2[0x7C], e5m2[1]), (Some(57_344.0), Some(f64::INFINITY), Some(2f64.powi(-16))));
        fp8_is_the_table::<F8E5M2>(&e5m2, F8E5M2::from_bits);
    }
}
