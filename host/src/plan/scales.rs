//! Scales of 8-bit operands: f32 scalars in device memory, one for a whole operand.

use super::{Variant, check};
use crate::error::{Error, Result};
use crate::kernels::abi;
use crate::kernels::config::Element;
use crate::kernels::shape::GlobalAddr;
use crate::world::Tensor;

/// Addresses of the scales of one rank's operands, in its memory; one that is not there stands for 1.
///
/// The product is `scale_a · scale_b · (A · B)`: the sum of products in f32, times the product of both scales in f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scales {
    /// Address of A's scale: one f32, at a multiple of 4 bytes.
    pub a: Option<u64>,
    /// Address of B's scale.
    pub b: Option<u64>,
}

/// The same as owned tensors: each 1 × 1, of f32, on the rank of the operand.
#[derive(Clone, Copy, Debug, Default)]
pub struct TensorScales<'t> {
    /// A's scale.
    pub a: Option<&'t Tensor>,
    /// B's scale.
    pub b: Option<&'t Tensor>,
}

impl Scales {
    /// No scales: both are 1.
    pub const NONE: Self = Self { a: None, b: None };

    /// The scales as kernels take them.
    pub(crate) fn check(self, variant: Variant, rank: usize) -> Result<abi::Scales> {
        let of = |name: &str, scale: Option<u64>| -> Result<GlobalAddr> {
            let Some(addr) = scale else { return Ok(GlobalAddr(0)) };
            let what = format!("address of {name}'s scale on rank {rank}");
            if variant.input.bytes() != 1 {
                let rule = format!("only operands of 8 bits have scales; A is {}", variant.input.name());
                return Err(Error::argument(what, format!("{addr:#x}"), rule));
            }
            if addr == 0 || !addr.is_multiple_of(4) {
                let rule = "it must be a multiple of 4 bytes, and not null; leave it out for a scale of 1";
                return Err(Error::argument(what, format!("{addr:#x}"), rule));
            }
            Ok(GlobalAddr(addr))
        };
        Ok([of("A", self.a)?, of("B", self.b)?])
    }
}

impl TensorScales<'_> {
    /// The addresses, for operands on `rank`.
    pub(crate) fn on(&self, rank: usize) -> Result<Scales> {
        let of = |name: &str, scale: Option<&Tensor>| -> Result<Option<u64>> {
            let Some(scale) = scale else { return Ok(None) };
            scale.expect(&format!("{name}'s scale"), rank, (1, 1), Element::F32)?;
            Ok(Some(scale.arg().addr))
        };
        Ok(Scales { a: of("A", self.a)?, b: of("B", self.b)? })
    }

    /// The addresses for every rank; an empty `given` stands for no scales at all.
    pub(crate) fn all(given: &[Self], world: usize) -> Result<Vec<Scales>> {
        if given.is_empty() {
            return Ok(vec![Scales::NONE; world]);
        }
        check::one_for_each_rank("scales", given.len(), world)?;
        given.iter().enumerate().map(|(rank, scales)| scales.on(rank)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Layout;

    #[test]
    fn scales_are_for_8_bit_operands_and_lie_at_multiples_of_4() {
        let variant = Variant::new(Layout::Nt, Element::E4m3, Element::Bf16);
        let scales = Scales { a: None, b: Some(0x1004) };
        assert_eq!(scales.check(variant, 0).unwrap(), [GlobalAddr(0), GlobalAddr(0x1004)]);
        let text = scales.check(Variant::default(), 3).unwrap_err().to_string();
        assert!(text.contains("B's scale on rank 3") && text.contains("A is bf16"), "{text}");
        for bad in [0, 0x1002] {
            let text = Scales { a: Some(bad), b: None }.check(variant, 1).unwrap_err().to_string();
            assert!(text.contains("A's scale on rank 1") && text.contains("multiple of 4"), "{text}");
        }
        assert_eq!(Scales::NONE.check(Variant::default(), 0).unwrap(), [GlobalAddr(0); 2]);
    }
}
