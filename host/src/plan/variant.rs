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

/// The compiled tile configurations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TileShape {
    /// 128 × 256: the main one.
    T128x256,
    /// 64 × 128: for at most 64 rows a rank, where memory bandwidth is the bound. Layout nt only.
    T64x128,
}

impl TileShape {
    /// Rows and columns.
    pub fn extent(self) -> [u32; 2] {
        match self {
            Self::T128x256 => [128, 256],
            Self::T64x128 => [64, 128],
        }
    }
}

/// What the host must know of a compiled variant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VariantFacts {
    pub tile: TileShape,
    pub entry: &'static Entry,
    pub boxes: [TileBox; 3],
    pub slot_tile_bytes: u32,
    pub row_align: u32,
}

impl VariantFacts {
    pub fn of<C: TileConfig>(op: Op, tile: TileShape) -> Option<Self> {
        Some(Self {
            tile,
            entry: entries::find::<C>(op)?,
            boxes: [C::A_BOX, C::B_BOX, C::D_BOX],
            slot_tile_bytes: C::SLOT_TILE_BYTES,
            row_align: C::ROW_ALIGN,
        })
    }
}

/// `$body` with `$config` the tile configuration of `$variant` with tile `$tile`, and `$stages` its stages; `$none` if there
/// is none.
macro_rules! with_config {
    ($variant:expr, $tile:expr, $config:ident, $stages:ident => $body:expr, else $none:expr) => {{
        use $crate::kernels::config::{Bf16, Element, F16, F32, Nn, Nt, Tile64x128, Tile128x256, Tn};
        use $crate::plan::variant::{Layout, TileShape};
        let variant: $crate::plan::Variant = $variant;
        macro_rules! arm {
            ($name:ident, $count:literal, $layout:ident, $input:ident, $output:ident) => {{
                type $config = $name<$layout, $input, $output>;
                #[allow(dead_code, reason = "not every use needs the stages")]
                const $stages: u32 = $count;
                $body
            }};
        }
        match ($tile, variant.layout, variant.input, variant.output) {
            (TileShape::T128x256, Layout::Nt, Element::Bf16, Element::Bf16) => arm!(Tile128x256, 3, Nt, Bf16, Bf16),
            (TileShape::T128x256, Layout::Nn, Element::Bf16, Element::Bf16) => arm!(Tile128x256, 3, Nn, Bf16, Bf16),
            (TileShape::T128x256, Layout::Tn, Element::Bf16, Element::Bf16) => arm!(Tile128x256, 3, Tn, Bf16, Bf16),
            (TileShape::T64x128, Layout::Nt, Element::Bf16, Element::Bf16) => arm!(Tile64x128, 8, Nt, Bf16, Bf16),
            (TileShape::T128x256, Layout::Nt, Element::Bf16, Element::F32) => arm!(Tile128x256, 3, Nt, Bf16, F32),
            (TileShape::T128x256, Layout::Nn, Element::Bf16, Element::F32) => arm!(Tile128x256, 3, Nn, Bf16, F32),
            (TileShape::T128x256, Layout::Tn, Element::Bf16, Element::F32) => arm!(Tile128x256, 3, Tn, Bf16, F32),
            (TileShape::T64x128, Layout::Nt, Element::Bf16, Element::F32) => arm!(Tile64x128, 8, Nt, Bf16, F32),
            (TileShape::T128x256, Layout::Nt, Element::F16, Element::F16) => arm!(Tile128x256, 3, Nt, F16, F16),
            (TileShape::T128x256, Layout::Nn, Element::F16, Element::F16) => arm!(Tile128x256, 3, Nn, F16, F16),
            (TileShape::T128x256, Layout::Tn, Element::F16, Element::F16) => arm!(Tile128x256, 3, Tn, F16, F16),
            (TileShape::T64x128, Layout::Nt, Element::F16, Element::F16) => arm!(Tile64x128, 8, Nt, F16, F16),
            (TileShape::T128x256, Layout::Nt, Element::F16, Element::F32) => arm!(Tile128x256, 3, Nt, F16, F32),
            (TileShape::T128x256, Layout::Nn, Element::F16, Element::F32) => arm!(Tile128x256, 3, Nn, F16, F32),
            (TileShape::T128x256, Layout::Tn, Element::F16, Element::F32) => arm!(Tile128x256, 3, Tn, F16, F32),
            (TileShape::T64x128, Layout::Nt, Element::F16, Element::F32) => arm!(Tile64x128, 8, Nt, F16, F32),
            _ => $none,
        }
    }};
}
pub(crate) use with_config;

impl Variant {
    /// Every variant of `op` that was compiled with its main tile.
    pub fn supported(op: Op) -> impl Iterator<Item = Self> {
        let [m, n] = TileShape::T128x256.extent();
        ENTRIES
            .iter()
            .filter(move |e| e.op == op && e.tile[..2] == [m, n])
            .filter_map(|e| Some(Self { layout: Layout::of(e.majors)?, input: e.input, output: e.output }))
    }

    /// What was compiled for this variant with the main tile.
    ///
    /// # Errors
    /// [`Error::Argument`] that lists the supported variants.
    pub(crate) fn facts(self, op: Op) -> Result<VariantFacts> {
        self.facts_of(op, TileShape::T128x256).ok_or_else(|| {
            let all: Vec<_> = Self::supported(op).map(|v| v.to_string()).collect();
            Error::argument("layout and types", self, format!("supported are {}", all.join(", ")))
        })
    }

    /// What was compiled for this variant with tile `tile`, if anything.
    pub(crate) fn facts_of(self, op: Op, tile: TileShape) -> Option<VariantFacts> {
        with_config!(self, tile, Config, STAGES => VariantFacts::of::<Config>(op, tile), else None)
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
