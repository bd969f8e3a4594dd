//! Which of the compiled kernels a plan uses: operand layout and types.

use std::fmt;

use crate::error::{Error, Result};
use crate::kernels::config::{Element, Major, TileBox, TileConfig};
use crate::kernels::entries::{self, ENTRIES, Entry, Op};

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

/// What the host must know of a compiled variant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VariantFacts {
    pub entry: &'static Entry,
    pub boxes: [TileBox; 3],
    pub tile: [u32; 2],
    pub slot_tile_bytes: u32,
}

impl VariantFacts {
    pub fn of<C: TileConfig>(op: Op) -> Option<Self> {
        Some(Self {
            entry: entries::find::<C>(op)?,
            boxes: [C::A_BOX, C::B_BOX, C::D_BOX],
            tile: [C::TILE_M, C::TILE_N],
            slot_tile_bytes: C::SLOT_TILE_BYTES,
        })
    }
}

/// `$body` with `$config` the tile configuration of `$variant`; `$none` if there is none.
macro_rules! with_config {
    ($variant:expr, $config:ident => $body:expr, else $none:expr) => {{
        use $crate::kernels::config::{Bf16, Element, F16, F32, Nn, Nt, Tile128x256, Tn};
        use $crate::plan::variant::Layout;
        let variant: $crate::plan::Variant = $variant;
        macro_rules! arms {
            ($layout:ident, $input:ident, $output:ident) => {{
                type $config = Tile128x256<$layout, $input, $output>;
                $body
            }};
        }
        match (variant.layout, variant.input, variant.output) {
            (Layout::Nt, Element::Bf16, Element::Bf16) => arms!(Nt, Bf16, Bf16),
            (Layout::Nn, Element::Bf16, Element::Bf16) => arms!(Nn, Bf16, Bf16),
            (Layout::Tn, Element::Bf16, Element::Bf16) => arms!(Tn, Bf16, Bf16),
            (Layout::Nt, Element::Bf16, Element::F32) => arms!(Nt, Bf16, F32),
            (Layout::Nn, Element::Bf16, Element::F32) => arms!(Nn, Bf16, F32),
            (Layout::Tn, Element::Bf16, Element::F32) => arms!(Tn, Bf16, F32),
            (Layout::Nt, Element::F16, Element::F16) => arms!(Nt, F16, F16),
            (Layout::Nn, Element::F16, Element::F16) => arms!(Nn, F16, F16),
            (Layout::Tn, Element::F16, Element::F16) => arms!(Tn, F16, F16),
            (Layout::Nt, Element::F16, Element::F32) => arms!(Nt, F16, F32),
            (Layout::Nn, Element::F16, Element::F32) => arms!(Nn, F16, F32),
            (Layout::Tn, Element::F16, Element::F32) => arms!(Tn, F16, F32),
            _ => $none,
        }
    }};
}
pub(crate) use with_config;

impl Variant {
    /// Every compiled variant of `op`.
    pub fn supported(op: Op) -> impl Iterator<Item = Self> {
        ENTRIES
            .iter()
            .filter(move |e| e.op == op)
            .filter_map(|e| Some(Self { layout: Layout::of(e.majors)?, input: e.input, output: e.output }))
    }

    /// What was compiled for this variant.
    ///
    /// # Errors
    /// [`Error::Argument`] that lists the supported variants.
    pub(crate) fn facts(self, op: Op) -> Result<VariantFacts> {
        with_config!(self, Config => VariantFacts::of::<Config>(op), else None).ok_or_else(|| {
            let all: Vec<_> = Self::supported(op).map(|v| v.to_string()).collect();
            Error::argument("layout and types", self, format!("supported are {}", all.join(", ")))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_compiled_entry_is_found_by_its_variant() {
        for op in [Op::Gemm, Op::GemmReduceScatter] {
            assert_eq!(Variant::supported(op).count(), 12);
            for variant in Variant::supported(op) {
                let facts = variant.facts(op).unwrap();
                assert_eq!(
                    (facts.entry.op, facts.entry.input, facts.entry.output),
                    (op, variant.input, variant.output)
                );
                assert_eq!(facts.entry.majors, variant.layout.majors());
            }
        }
    }

    #[test]
    fn an_unsupported_variant_lists_the_supported_ones() {
        let variant = Variant { layout: Layout::Nt, input: Element::F32, output: Element::F32 };
        let text = variant.facts(Op::Gemm).unwrap_err().to_string();
        assert!(text.contains("nt f32 → f32") && text.contains("tn f16 → f32"), "{text}");
    }
}
