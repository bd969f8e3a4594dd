//! Which of the compiled kernels a plan uses: operand layout and types.

use std::fmt;

use crate::error::{Error, Result};
use crate::kernels::config::{Element, Major};
use crate::kernels::entries::{ENTRIES, Entry, Op};

/// How the row-major operands of `D = A · B` lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Layout {
    /// A is m × k, B is n × k: `D = A · Bᵀ`, the forward product of a linear layer.
    #[default]
    Nt,
    /// A is m × k, B is k × n: `D = A · B`, as for dX.
    Nn,
    /// A is k × m, B is k × n: `D = Aᵀ · B`, as for dW.
    Tn,
}

impl Layout {
    /// All layouts.
    pub const ALL: [Self; 3] = [Self::Nt, Self::Nn, Self::Tn];

    /// Rows and columns of A as it is stored.
    pub fn a_shape(self, m: usize, k: usize) -> (usize, usize) {
        if self == Self::Tn { (k, m) } else { (m, k) }
    }

    /// Rows and columns of B as it is stored.
    pub fn b_shape(self, n: usize, k: usize) -> (usize, usize) {
        if self == Self::Nt { (n, k) } else { (k, n) }
    }

    fn majors(self) -> [Major; 2] {
        match self {
            Self::Nt => [Major::K, Major::K],
            Self::Nn => [Major::K, Major::Mn],
            Self::Tn => [Major::Mn, Major::Mn],
        }
    }

    fn of(majors: [Major; 2]) -> Option<Self> {
        Self::ALL.into_iter().find(|layout| layout.majors() == majors)
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nt => "nt",
            Self::Nn => "nn",
            Self::Tn => "tn",
        })
    }
}

/// Layout and types of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Variant {
    /// How A and B lie.
    pub layout: Layout,
    /// Type of A and B.
    pub input: Element,
    /// Type of D, and of partials on the wire.
    pub output: Element,
}

impl Default for Variant {
    fn default() -> Self {
        Self { layout: Layout::Nt, input: Element::Bf16, output: Element::Bf16 }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} → {}", self.layout, self.input.name(), self.output.name())
    }
}

/// Rows and columns of the main tile: every variant of every op has it.
pub(crate) const MAIN_TILE: [u32; 2] = [128, 256];
/// Rows and columns of the tile for at most 64 rows a rank, where memory bandwidth is the bound. Layout nt only.
pub(crate) const SMALL_TILE: [u32; 2] = [64, 128];

impl Variant {
    /// Every variant of `op` that was compiled with its main tile.
    pub fn supported(op: Op) -> impl Iterator<Item = Self> {
        ENTRIES
            .iter()
            .filter(move |e| e.op == op && e.tile_extent() == MAIN_TILE)
            .filter_map(|e| Some(Self { layout: Layout::of(e.majors)?, input: e.input, output: e.output }))
    }

    /// What was compiled for this variant with the main tile.
    ///
    /// # Errors
    /// [`Error::Argument`] that lists the supported variants.
    pub(crate) fn entry(self, op: Op) -> Result<&'static Entry> {
        self.entry_of(op, MAIN_TILE).ok_or_else(|| {
            let all: Vec<_> = Self::supported(op).map(|v| v.to_string()).collect();
            Error::argument("layout and types", self, format!("supported are {}", all.join(", ")))
        })
    }

    /// What was compiled for this variant with a tile of these rows and columns, if anything.
    pub(crate) fn entry_of(self, op: Op, tile: [u32; 2]) -> Option<&'static Entry> {
        ENTRIES.iter().find(|e| {
            (e.op, e.input, e.output, e.tile_extent()) == (op, self.input, self.output, tile)
                && e.majors == self.layout.majors()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_compiled_entry_is_found_by_its_variant() {
        for op in [Op::Gemm, Op::GemmReduceScatter, Op::GemmEpilogue, Op::GemmReduceScatterEpilogue] {
            assert_eq!(Variant::supported(op).count(), 12);
            for variant in Variant::supported(op) {
                let entry = variant.entry(op).unwrap();
                assert_eq!((entry.op, entry.input, entry.output), (op, variant.input, variant.output));
                assert_eq!((entry.majors, entry.tile_extent()), (variant.layout.majors(), MAIN_TILE));
            }
        }
    }

    #[test]
    fn an_unsupported_variant_lists_the_supported_ones() {
        let variant = Variant { layout: Layout::Nt, input: Element::F32, output: Element::F32 };
        let text = variant.entry(Op::Gemm).unwrap_err().to_string();
        assert!(text.contains("nt f32 → f32") && text.contains("tn f16 → f32"), "{text}");
    }
}
