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
    /// Type of A.
    pub input: Element,
    /// Type of B: that of A, or e5m2 beside e4m3.
    pub input_b: Element,
    /// Type of D, and of partials on the wire.
    pub output: Element,
}

impl Default for Variant {
    fn default() -> Self {
        Self::new(Layout::Nt, Element::Bf16, Element::Bf16)
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.layout, self.input.name())?;
        if self.input_b != self.input {
            write!(f, " × {}", self.input_b.name())?;
        }
        write!(f, " → {}", self.output.name())
    }
}

/// Rows and columns of the main tile: every variant of the op has it. Sums of 8-bit products are promoted, and only
/// the plain kernel without an epilogue has registers for that beside 256 columns.
pub(crate) const fn main_tile(op: Op, input: Element) -> [u32; 2] {
    if !matches!(op, Op::Gemm) && input.bytes() == 1 { MIDDLE_TILE } else { [128, 256] }
}
/// Rows and columns of the tile between: for 8-bit operands, and where the main tile leaves SMs idle. Layout nt, and plain
/// products of the others where D has the operands' type.
pub(crate) const MIDDLE_TILE: [u32; 2] = [128, 128];
/// Rows and columns of the tile whose kernels multiply by consumers in turns, where D has the operands' type: for plain products
/// of every layout, and over ranks for nt and nn.
pub(crate) const TURNS_TILE: [u32; 2] = [128, 192];
/// The same of those tiles of plain products that fill the waves of other shapes. Layout nt and results in the operands'
/// type only.
pub(crate) const WAVE_TILES: [[u32; 2]; 6] = [[128, 176], [128, 160], [128, 144], [128, 96], [64, 192], [64, 96]];
/// Rows and columns of the tile for at most 64 rows a rank, where memory bandwidth is the bound. Layout nt only.
pub(crate) const SMALL_TILE: [u32; 2] = [64, 128];
/// Rows and columns of the tiles for so many rows, over all ranks where there are several. Layout nt only.
pub(crate) const SHARED_TILES: [[u32; 2]; 2] = [[64, 64], [128, 64]];

impl Variant {
    /// Both operands of type `input`.
    pub const fn new(layout: Layout, input: Element, output: Element) -> Self {
        Self { layout, input, input_b: input, output }
    }

    /// Every variant of `op` that was compiled with its main tile.
    pub fn supported(op: Op) -> impl Iterator<Item = Self> {
        ENTRIES.iter().filter(move |e| e.op == op && e.tile_extent() == main_tile(op, e.input)).filter_map(|e| {
            Some(Self { layout: Layout::of(e.majors)?, input: e.input, input_b: e.input_b, output: e.output })
        })
    }

    /// What was compiled for this variant with the main tile.
    ///
    /// # Errors
    /// [`Error::Argument`] that lists the supported variants.
    pub(crate) fn entry(self, op: Op) -> Result<&'static Entry> {
        self.entry_of(op, main_tile(op, self.input)).ok_or_else(|| {
            let all: Vec<_> = Self::supported(op).map(|v| v.to_string()).collect();
            let with = match op {
                Op::GemmEpilogue | Op::GemmReduceScatterEpilogue => " with an epilogue",
                _ => "",
            };
            Error::argument("layout and types", self, format!("supported{with} are {}", all.join(", ")))
        })
    }

    /// What was compiled for this variant with the tile that the caller wants, or else with the main one.
    ///
    /// # Errors
    /// As [`Self::entry`]; [`Error::Argument`] that lists the tiles of this variant.
    pub(crate) fn entry_with(self, op: Op, tile: Option<[u32; 2]>) -> Result<&'static Entry> {
        let main = self.entry(op)?;
        let Some(tile) = tile else { return Ok(main) };
        self.entry_of(op, tile).ok_or_else(|| {
            let shown = |[rows, cols]: [u32; 2]| format!("{rows} × {cols}");
            let is_of_this = |e: &&Entry| self.entry_of(op, e.tile_extent()).is_some_and(|mine| mine.name == e.name);
            let all: Vec<_> = ENTRIES.iter().filter(is_of_this).map(|e| shown(e.tile_extent())).collect();
            let (last, others) =
                all.split_last().map_or(("none", [].as_slice()), |(last, others)| (last.as_str(), others));
            let all = if others.is_empty() { last.to_string() } else { format!("{} and {last}", others.join(", ")) };
            Error::argument("tile", shown(tile), format!("{self} has {all}"))
        })
    }

    /// What was compiled for this variant with a tile of these rows and columns, if anything.
    pub(crate) fn entry_of(self, op: Op, tile: [u32; 2]) -> Option<&'static Entry> {
        ENTRIES.iter().find(|e| {
            let in_turns = matches!(
                (e.op, op),
                (Op::GemmPingPong, Op::Gemm) | (Op::GemmReduceScatterPingPong, Op::GemmReduceScatter)
            );
            let computes = e.op == op || in_turns;
            computes
                && (e.tile_extent(), e.majors) == (tile, self.layout.majors())
                && (e.input, e.input_b, e.output) == (self.input, self.input_b, self.output)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_compiled_entry_is_found_by_its_variant() {
        for op in [Op::Gemm, Op::GemmReduceScatter] {
            assert_eq!(Variant::supported(op).count(), 3 * 2 * 3 + 2 * 3);
            for variant in Variant::supported(op) {
                let entry = variant.entry(op).unwrap();
                assert_eq!((entry.op, entry.input, entry.output), (op, variant.input, variant.output));
                assert_eq!(
                    (entry.majors, entry.tile_extent()),
                    (variant.layout.majors(), main_tile(op, variant.input))
                );
            }
        }
    }

    #[test]
    fn a_tile_that_was_not_compiled_lists_those_that_were() {
        let variant = Variant::new(Layout::Nt, Element::E4m3, Element::Bf16);
        assert_eq!(variant.entry_with(Op::Gemm, Some([128, 128])).unwrap().tile_extent(), [128, 128]);
        assert_eq!(variant.entry_with(Op::Gemm, None).unwrap().tile_extent(), [128, 256]);
        let text = variant.entry_with(Op::Gemm, Some([64, 128])).unwrap_err().to_string();
        assert!(text.contains("tile is 64 × 128") && text.contains("has 128 × 256 and 128 × 128"), "{text}");
    }

    #[test]
    fn an_unsupported_variant_lists_the_supported_ones() {
        let text_of = |variant: Variant| variant.entry(Op::Gemm).unwrap_err().to_string();
        let text = text_of(Variant::new(Layout::Nt, Element::F32, Element::F32));
        assert!(text.contains("nt f32 → f32") && text.contains("tn f16 → f32"), "{text}");
        let text = text_of(Variant::new(Layout::Nn, Element::E4m3, Element::Bf16));
        assert!(text.contains("is nn e4m3 → bf16") && text.contains("nt e4m3 × e5m2 → bf16"), "{text}");
        let text = text_of(Variant::new(Layout::Nt, Element::E5m2, Element::Bf16));
        assert!(text.contains("is nt e5m2 → bf16") && text.contains("nt bf16 → f16"), "{text}");
    }
}
