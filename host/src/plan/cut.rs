//! How tiles of plain products are cut: along K, or into fewer columns.

use super::select::eligible;
use super::variant::Variant;
use crate::error::{Error, Result};
use crate::kernels::config::{Major, ROW_BYTES};
use crate::kernels::entries::{Entry, Op};

/// Whether tiles of a plain GEMM may be cut along K, so that every SM has the same work.
///
/// A cut tile is added up from parts. Which tiles are cut, and in which order their parts are added, depends on the shape, the
/// number of SMs, the tile and the raster group alone: the same bits in every call, but not the bits of an uncut tile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SplitK {
    /// Where it should be faster.
    #[default]
    Auto,
    /// Never: every element of D is one sum in the order of K, whatever the number of SMs.
    Never,
    /// Into parts of the last wave's tiles, wherever the tiles are no whole number of waves and there is memory for it, faster or
    /// not.
    Always,
    /// Into runs of equal length, one a CTA, over all tiles, where these are no whole number of waves, have at most four rows, and
    /// at least two stages a CTA; as [`Self::Always`] elsewhere.
    Runs,
}

/// Columns of narrower tiles are multiples of this: boxes of B are whole periods of the swizzle, and tiles of D begin at whole
/// steps of 16 bytes.
pub(crate) const COLS_STEP: u32 = 8;

/// What is cut: so many tiles into so many parts each, or all into runs, so many tiles abreast; or nothing along K, and all tiles
/// to so many columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    pub tiles: u32,
    pub parts: u32,
    pub abreast: u32,
    /// Columns of every tile; 0 for those of the kernel.
    pub cols: u32,
}

impl Cut {
    pub const NONE: Self = Self::into_parts(0, 1);

    pub const fn into_parts(tiles: u32, parts: u32) -> Self {
        Self { tiles, parts, abreast: 0, cols: 0 }
    }

    pub const fn into_runs(abreast: u32) -> Self {
        Self { tiles: 0, parts: 1, abreast, cols: 0 }
    }

    /// Every element stays one sum in the order of K, so nothing is passed between CTAs, and the bits are those of whole tiles.
    pub const fn into_columns(cols: u32) -> Self {
        Self { cols, ..Self::NONE }
    }

    /// Whether any tile may be cut along K.
    pub fn is_along_k(self) -> bool {
        self.tiles > 0 || self.abreast > 0
    }

    /// Rows and columns of the tiles of `entry` that is cut so.
    pub fn tile_of(self, entry: &Entry) -> [u32; 2] {
        let [rows, cols] = entry.tile_extent();
        [rows, if self.cols > 0 { self.cols } else { cols }]
    }
}

/// How a plan may cut tiles.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MayCut {
    pub split_k: SplitK,
    /// Columns of the tiles of every kernel that can have fewer than its own, where they are not left to the plan.
    pub cols: Option<u32>,
}

impl From<SplitK> for MayCut {
    fn from(split_k: SplitK) -> Self {
        Self { split_k, cols: None }
    }
}

impl MayCut {
    /// What a builder is told, if a kernel for plain products can be cut so.
    ///
    /// # Errors
    /// [`Error::Argument`] for columns that no kernel can have, and for cuts along K beside them; as [`Variant::entry_with`].
    pub fn checked(split_k: SplitK, cols: Option<u32>, variant: Variant, tile: Option<[u32; 2]>) -> Result<Self> {
        /// Columns of the tiles that can have fewer.
        const MOST: u32 = 64;
        let Some(of) = cols else { return Ok(split_k.into()) };
        let error = |rule| Err(Error::argument("tile_cols", of, rule));
        if !(1..=MOST).contains(&of) || !of.is_multiple_of(COLS_STEP) {
            return error(format!("it is a multiple of {COLS_STEP} from {COLS_STEP} to {MOST}"));
        }
        if matches!(split_k, SplitK::Always | SplitK::Runs) {
            return error(format!("tiles of so many columns are not cut along K, and split_k is {split_k:?}"));
        }
        variant.entry_with(Op::Gemm, tile)?;
        if !eligible(Op::Gemm, variant, tile).any(narrows) {
            let tile = tile.map_or("any".to_string(), |[rows, cols]| format!("{rows} × {cols}"));
            let rule = "it is for tiles of 64 × 64 and 128 × 64, layout nt, 16-bit operands and results";
            return error(format!("{rule}; here tile is {tile}, and layout and types are {variant}"));
        }
        Ok(Self { split_k, cols })
    }

    /// The cut into columns that is asked of a kernel.
    pub fn fixed(self, entry: &Entry) -> Option<Cut> {
        self.cols.filter(|_| narrows(entry)).map(Cut::into_columns)
    }
}

/// Whether a call may have tiles of fewer columns than the kernel's, as the configuration's `NARROWS` says; kernels with an
/// epilogue read C by boxes that are not cut.
pub(crate) fn narrows(entry: &Entry) -> bool {
    let [_, cols] = entry.tile_extent();
    entry.op == Op::Gemm
        && entry.majors[1] == Major::K
        && entry.input.bytes() == 2
        && cols * entry.output.bytes() == ROW_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Layout;
    use crate::kernels::config::{Bf16, Element, F16, F32, Few128x64, Nn, Nt, Tile64x64, Tile64x128, TileConfig};
    use crate::kernels::entries::ENTRIES;

    #[test]
    fn kernels_narrow_whose_configurations_say_so() {
        const NARROWS: bool = <Tile64x64<Nt, Bf16, Bf16> as TileConfig>::NARROWS
            && <Tile64x64<Nt, F16, F16> as TileConfig>::NARROWS
            && <Few128x64<Nt, Bf16, F16> as TileConfig>::NARROWS;
        const OTHERS: bool = <Tile64x64<Nt, Bf16, F32> as TileConfig>::NARROWS
            || <Tile64x64<Nn, Bf16, Bf16> as TileConfig>::NARROWS
            || <Tile64x128<Nt, Bf16, Bf16> as TileConfig>::NARROWS;
        const { assert!(NARROWS && !OTHERS) };
        for entry in ENTRIES {
            let is_one = entry.op == Op::Gemm
                && [[64, 64], [128, 64]].contains(&entry.tile_extent())
                && [entry.input, entry.output].iter().all(|element| [Element::Bf16, Element::F16].contains(element));
            assert_eq!(narrows(entry), is_one, "{}", entry.name);
        }
    }

    #[test]
    fn columns_that_no_kernel_can_have_are_refused() {
        let checked = |cols, variant, tile, split_k| match MayCut::checked(split_k, Some(cols), variant, tile) {
            Ok(may) => format!("{:?}", may.cols),
            Err(error) => error.to_string(),
        };
        let (nt, small) = (Variant::default(), Some([64, 64]));
        for cols in [8, 16, 40, 64] {
            assert_eq!(checked(cols, nt, small, SplitK::Auto), format!("Some({cols})"));
            assert_eq!(checked(cols, nt, None, SplitK::Never), format!("Some({cols})"));
        }
        for cols in [0, 1, 7, 12, 63, 72, 128, u32::MAX] {
            let text = checked(cols, nt, small, SplitK::Auto);
            assert!(
                text.contains(&format!("tile_cols is {cols}")) && text.contains("multiple of 8 from 8 to 64"),
                "{text}"
            );
        }
        for split_k in [SplitK::Always, SplitK::Runs] {
            let text = checked(48, nt, small, split_k);
            assert!(text.contains("tile_cols is 48") && text.contains(&format!("{split_k:?}")), "{text}");
        }
        let f32_out = Variant::new(Layout::Nt, Element::Bf16, Element::F32);
        let nn = Variant { layout: Layout::Nn, ..nt };
        let fp8 = Variant::new(Layout::Nt, Element::E4m3, Element::Bf16);
        for (variant, tile) in
            [(nt, Some([128, 256])), (nt, Some([64, 128])), (f32_out, small), (nn, None), (fp8, None)]
        {
            let text = checked(48, variant, tile, SplitK::Auto);
            assert!(text.contains("tile_cols is 48") && text.contains("64 × 64 and 128 × 64"), "{text}");
        }
        // A tile that does not exist is the tile's error.
        assert!(checked(48, nt, Some([64, 63]), SplitK::Auto).contains("tile is 64 × 63"));
    }
}
