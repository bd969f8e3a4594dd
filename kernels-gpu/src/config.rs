//! Tile configurations and the shared memory they need, checked when the crate is compiled.
#![forbid(unsafe_code)]

use core::marker::PhantomData;

pub use crate::registers::Registers;
use crate::shape::{Role, WARPGROUP_THREADS, div_ceil, min};
pub use crate::smem::SmemPlan;

/// Bytes of one swizzled row of shared memory: the span of the 128-byte swizzle, and the width of every box.
pub const ROW_BYTES: u32 = 128;
/// Rows of a panel: the rows one warpgroup multiplies.
pub const PANEL_ROWS: u32 = 64;
/// Bytes of one panel, the unit that passes between consumers and the movers.
pub const PANEL_BYTES: u32 = PANEL_ROWS * ROW_BYTES;
/// Panel buffers each consumer has, where they are not few on purpose: a whole tile of 256 columns of 16 bits, so that
/// consumers go on at once however slowly the storer's copies are read. Measured on an H200: pushing over NVLink costs a
/// third less than with two.
pub const PANEL_BUFS: u32 = 4;
/// Panel buffers of a consumer of kernels that store to their own GPU, or whose CTAs have a tile or two in a whole
/// call: one is filled while the one before is read. What four would take is a stage or two more of the operand ring.
/// Measured on H200s: the plain product gains 2 to 6 % where one wave is all, and nothing is lost elsewhere
/// (`docs/performance.md`); 128×8192×28672 over two GPUs takes 76.0 µs with six stages and four buffers, 73.1 with
/// seven and two, 72.2 with eight and one.
pub const FEW_PANEL_BUFS: u32 = 2;
/// Shared memory one CTA may have on sm_90 (227 KiB).
pub const MAX_SMEM_BYTES: u32 = 232_448;
/// Alignment of shared-memory tiles: one period of the 128-byte swizzle.
pub const SMEM_ALIGN: u32 = 1024;

/// Element types of operands and results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Element {
    /// bfloat16.
    Bf16,
    /// IEEE half precision.
    F16,
    /// IEEE single precision.
    F32,
    /// OCP fp8 with 4 exponent and 3 mantissa bits: finite up to 448, no infinities. Operands only.
    E4m3,
    /// OCP fp8 with 5 exponent and 2 mantissa bits: finite up to 57,344. The second operand only.
    E5m2,
}

impl Element {
    /// Bytes of one element.
    pub const fn bytes(self) -> u32 {
        match self {
            Element::E4m3 | Element::E5m2 => 1,
            Element::Bf16 | Element::F16 => 2,
            Element::F32 => 4,
        }
    }

    /// The usual name of the type.
    pub const fn name(self) -> &'static str {
        match self {
            Element::Bf16 => "bf16",
            Element::F16 => "f16",
            Element::F32 => "f32",
            Element::E4m3 => "e4m3",
            Element::E5m2 => "e5m2",
        }
    }
}

/// Which extent of an operand is contiguous in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Major {
    /// K: the operand is M×K or N×K row-major.
    K,
    /// M or N: the operand is K×M or K×N row-major.
    Mn,
}

/// The box of a tensor map, `rows` rows of [`ROW_BYTES`] bytes, and how many of them make up one stage of the operand.
/// Both the copies and their `expect_tx` come from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileBox {
    /// Rows of the box.
    pub rows: u32,
    /// Boxes of a stage, side by side along the contiguous extent.
    pub count: u32,
}

impl TileBox {
    /// Boxes of an operand of `extent` rows (of A) or columns (of B), `depth` elements deep along K.
    const fn of_operand(major: Major, extent: u32, depth: u32, element: Element) -> Self {
        match major {
            Major::K => Self { rows: extent, count: 1 },
            Major::Mn => Self { rows: depth, count: div_ceil(extent * element.bytes(), ROW_BYTES) },
        }
    }

    /// The box with no more rows than `rows` rows of the operand need, in whole periods of the swizzle. For K-major operands.
    pub const fn cut_to(self, rows: u32) -> Self {
        // Cut first: the next multiple of the most rows there can be is no number.
        Self { rows: min(self.rows, min(self.rows, rows).next_multiple_of(SMEM_ALIGN / ROW_BYTES)), count: self.count }
    }

    /// The box of A, which lies as `major` says, in a call of `rows` rows: cut to them where A is K-major.
    pub const fn of_rows(self, major: Major, rows: u32) -> Self {
        match major {
            Major::K => self.cut_to(rows),
            Major::Mn => self,
        }
    }

    /// Bytes that one box brings.
    pub const fn bytes(self) -> u32 {
        self.rows * ROW_BYTES
    }

    /// Bytes that all boxes bring.
    pub const fn total_bytes(self) -> u32 {
        self.count * self.bytes()
    }
}

/// The constants of one compiled kernel. `D = A · B` with M×K, K×N and M×N matrices; [`Major`] says how A and B lie.
pub trait TileConfig: 'static {
    /// Rows of a tile of D.
    const TILE_M: u32;
    /// Columns of a tile of D.
    const TILE_N: u32;
    /// Stages of the operand ring.
    const STAGES: u32;
    /// Type of A.
    const IN: Element;
    /// Type of B, as wide as A's.
    const IN_B: Element;
    /// Type of D and of partials on the wire.
    const OUT: Element;
    /// How A lies in memory.
    const A_MAJOR: Major;
    /// How B lies in memory.
    const B_MAJOR: Major;

    /// Whether the tensor cores sum in less than f32, as Hopper's do for 8-bit operands (about 14 bits): then the sum of each
    /// stage, 128 products, goes to the accumulator proper by additions in f32.
    const PROMOTES: bool = Self::IN.bytes() == 1;
    /// Whether a plain product's tiles may be cut along K. Where sums are promoted, there are no registers left for it; other
    /// tiles than those of 2ᵏ columns are for calls of which they fill the waves.
    const SPLITS: bool = !Self::PROMOTES && Self::TILE_N.is_power_of_two();

    /// Whether a call may have tiles of fewer columns, with boxes of B and D cut to them: tiles of one panel.
    const NARROWS: bool = !Self::PROMOTES && matches!(Self::B_MAJOR, Major::K) && Self::TILE_N == Self::PANEL_COLS;
    /// Elements along K of one stage.
    const TILE_K: u32 = ROW_BYTES / Self::IN.bytes();
    /// Consumer warpgroups: 64 rows each.
    const CONSUMERS: u32 = Self::TILE_M / PANEL_ROWS;
    /// Panel buffers of a consumer; a power of two, at most [`PANEL_BUFS`].
    const PANEL_BUFS: u32 = PANEL_BUFS;
    /// Columns of a panel.
    const PANEL_COLS: u32 = ROW_BYTES / Self::OUT.bytes();
    /// Panels of one consumer's half of a tile: see [`Self::panel_col`].
    const PANELS: u32 = div_ceil(Self::TILE_N, Self::PANEL_COLS);
    /// Boxes of A.
    const A_BOX: TileBox = TileBox::of_operand(Self::A_MAJOR, Self::TILE_M, Self::TILE_K, Self::IN);
    /// Boxes of B.
    const B_BOX: TileBox = TileBox::of_operand(Self::B_MAJOR, Self::TILE_N, Self::TILE_K, Self::IN_B);
    /// Box of D: one panel.
    const D_BOX: TileBox = TileBox { rows: PANEL_ROWS, count: 1 };
    /// Bytes one stage's copies bring, and so the bytes its full barrier expects.
    const STAGE_BYTES: u32 = Self::A_BOX.total_bytes() + Self::B_BOX.total_bytes();
    /// Panels that one stage carries in transport *staged*.
    const CARRY_PANELS: u32 = min(Self::PANELS, Self::STAGE_BYTES / PANEL_BYTES);
    /// Tiles of D start at rows that are multiples of this: the copy engine takes coordinates along the contiguous extent
    /// in steps of 16 bytes.
    const ROW_ALIGN: u32 = match Self::A_MAJOR {
        Major::K => 1,
        Major::Mn => 16 / Self::IN.bytes(),
    };
    /// Threads of a CTA: the movers' warpgroup and the consumers.
    const THREADS: u32 = WARPGROUP_THREADS * (1 + Self::CONSUMERS);
    /// Bytes one tile takes in a slot.
    const SLOT_TILE_BYTES: u32 = Self::CONSUMERS * Self::PANELS * PANEL_BYTES;
    /// The shared-memory plan.
    const SMEM: SmemPlan = SmemPlan::new(Self::STAGES, Self::STAGE_BYTES, Self::CONSUMERS, Self::PANEL_BUFS);
    /// Whether the tile is whole panels, as slots and epilogues need it.
    const WHOLE_PANELS: bool = Self::TILE_N.is_multiple_of(Self::PANEL_COLS);
    /// Compile-time checks; naming this constant runs them.
    const CHECKED: () = {
        assert!(
            Self::TILE_M.is_multiple_of(PANEL_ROWS) && Self::CONSUMERS >= 1,
            "TILE_M is whole warpgroups of 64 rows"
        );
        assert!(Self::TILE_N >= Self::PANEL_COLS, "a tile has a panel");
        assert!(Self::TILE_N.is_multiple_of(16), "panels start at whole steps of 16 bytes");
        assert!(Self::IN.bytes() <= 2 && Self::IN.bytes() == Self::IN_B.bytes(), "operands are 16 or 8 bits wide");
        assert!(
            !Self::PROMOTES || matches!((Self::A_MAJOR, Self::B_MAJOR), (Major::K, Major::K)),
            "8-bit operands are nt"
        );
        assert!(!Self::PROMOTES || Self::TILE_N.is_multiple_of(128), "sums are promoted 128 columns at a time");
        assert!(Self::OUT.bytes() >= 2, "results are 16 or 32 bits wide");
        assert!(Self::TILE_M <= 256 && Self::TILE_N <= 256, "a TMA box has at most 256 rows");
        assert!(Self::STAGES >= 2, "a ring of one stage cannot overlap");
        assert!(Self::PANEL_BUFS.is_power_of_two() && Self::PANEL_BUFS <= PANEL_BUFS, "each buffer has its barriers");
        assert!(Self::SMEM.total_bytes <= MAX_SMEM_BYTES, "shared memory exceeds 227 KiB");
        assert!(Self::A_BOX.bytes().is_multiple_of(SMEM_ALIGN), "stages keep the swizzle's alignment");
        assert!(Self::B_BOX.bytes().is_multiple_of(SMEM_ALIGN), "stages keep the swizzle's alignment");
        assert!(Self::PANELS <= MAX_PANELS, "panels are unrolled up to MAX_PANELS");
        assert!(Registers::MAIN.fit(Self::CONSUMERS), "setmaxnreg totals exceed the register file");
    };

    /// First column of panel `panel` within the tile. Where the columns are no whole panels, the last panel begins within the one
    /// before: both hold the same values there, and whoever stores both stores the same twice.
    #[inline(always)]
    fn panel_col(panel: u32) -> u32 {
        min(panel * Self::PANEL_COLS, Self::TILE_N - Self::PANEL_COLS)
    }
}

/// Most panels a consumer's half of a tile may have.
pub const MAX_PANELS: u32 = 8;

/// An [`Element`] as a type.
pub trait ElementType: 'static {
    /// The element.
    const ELEMENT: Element;
}

/// bfloat16.
pub struct Bf16;
/// IEEE half precision.
pub struct F16;
/// IEEE single precision.
pub struct F32;

/// fp8 with 4 exponent bits.
pub struct E4m3;
/// fp8 with 5 exponent bits.
pub struct E5m2;

impl ElementType for Bf16 {
    const ELEMENT: Element = Element::Bf16;
}
impl ElementType for F16 {
    const ELEMENT: Element = Element::F16;
}
impl ElementType for F32 {
    const ELEMENT: Element = Element::F32;
}
impl ElementType for E4m3 {
    const ELEMENT: Element = Element::E4m3;
}
impl ElementType for E5m2 {
    const ELEMENT: Element = Element::E5m2;
}

/// The types of both operands, as a type: an [`ElementType`] stands for a pair of itself.
pub trait OperandTypes: 'static {
    /// Type of A.
    const A: Element;
    /// Type of B.
    const B: Element;
}

/// Operands of two types.
pub struct Pair<A, B>(PhantomData<(A, B)>);

impl<T: ElementType> OperandTypes for T {
    const A: Element = T::ELEMENT;
    const B: Element = T::ELEMENT;
}
impl<A: ElementType, B: ElementType> OperandTypes for Pair<A, B> {
    const A: Element = A::ELEMENT;
    const B: Element = B::ELEMENT;
}

/// How both operands lie, as a type.
pub trait OperandLayout: 'static {
    /// How A lies in memory.
    const A_MAJOR: Major;
    /// How B lies in memory.
    const B_MAJOR: Major;
}

/// A is M×K, B is N×K: `D = A · Bᵀ`, the forward product of a linear layer.
pub struct Nt;
/// A is M×K, B is K×N: `D = A · B`, as for dX.
pub struct Nn;
/// A is K×M, B is K×N: `D = Aᵀ · B`, as for dW.
pub struct Tn;

impl OperandLayout for Nt {
    const A_MAJOR: Major = Major::K;
    const B_MAJOR: Major = Major::K;
}
impl OperandLayout for Nn {
    const A_MAJOR: Major = Major::K;
    const B_MAJOR: Major = Major::Mn;
}
impl OperandLayout for Tn {
    const A_MAJOR: Major = Major::Mn;
    const B_MAJOR: Major = Major::Mn;
}

/// A configuration as a type: tile rows, tile columns, stages; operand layout, operand types, result type; panel buffers.
pub struct Tile<const M: u32, const N: u32, const STAGES: u32, L = Nt, I = Bf16, O = Bf16, const BUFS: u32 = PANEL_BUFS>(
    PhantomData<(L, I, O)>,
);

impl<const M: u32, const N: u32, const S: u32, L: OperandLayout, I: OperandTypes, O: ElementType, const BUFS: u32>
    TileConfig for Tile<M, N, S, L, I, O, BUFS>
{
    const TILE_M: u32 = M;
    const TILE_N: u32 = N;
    const STAGES: u32 = S;
    const PANEL_BUFS: u32 = BUFS;
    const IN: Element = I::A;
    const IN_B: Element = I::B;
    const OUT: Element = O::ELEMENT;
    const A_MAJOR: Major = L::A_MAJOR;
    const B_MAJOR: Major = L::B_MAJOR;
}

/// 128×256×64, or ×128 on 8-bit operands, three stages: the main configuration of kernels that move panels over ranks or add to
/// them, and of products of 8-bit operands.
pub type Tile128x256<L = Nt, I = Bf16, O = Bf16> = Tile<128, 256, 3, L, I, O>;
/// 64×128×64, eight stages, one consumer: for chunks of at most 64 rows, which memory bandwidth bounds.
pub type Tile64x128<L = Nt, I = Bf16, O = Bf16> = Tile<64, 128, 8, L, I, O>;
/// 128×192×64, four stages: for short K, where two consumers multiply a tile each in turns.
pub type Tile128x192<L = Nt, I = Bf16, O = Bf16> = Tile<128, 192, 4, L, I, O>;
/// 128×176×64, four stages: for consumers in turns, where it fills the waves better than 128×192.
pub type Tile128x176<L = Nt, I = Bf16, O = Bf16> = Tile<128, 176, 4, L, I, O>;
/// 128×160×64, four stages: the same.
pub type Tile128x160<L = Nt, I = Bf16, O = Bf16> = Tile<128, 160, 4, L, I, O>;
/// 128×128×64, or ×128 on 8-bit operands, five stages: sums that are promoted leave 128×256 no registers for more.
pub type Tile128x128<L = Nt, I = Bf16, O = Bf16> = Tile<128, 128, 5, L, I, O>;
/// 64×64×64, twelve stages, one consumer: for calls of at most 64 rows, over all ranks where there are several, since its tiles
/// hold every owner's.
pub type Tile64x64<L = Nt, I = Bf16, O = Bf16> = Tile<64, 64, 12, L, I, O>;

/// Tiles of kernels with few panel buffers: the plain product of 16-bit operands, and few rows or few tiles over ranks.
pub type Few<const M: u32, const N: u32, const STAGES: u32, L, I, O> = Tile<M, N, STAGES, L, I, O, FEW_PANEL_BUFS>;
/// 128×256×64, four stages: the main configuration of the plain product, and of products over ranks of few tiles.
pub type Few128x256<L = Nt, I = Bf16, O = Bf16> = Few<128, 256, 4, L, I, O>;
/// 128×128×64, six stages: where 128×256 leaves SMs idle.
pub type Few128x128<L = Nt, I = Bf16, O = Bf16> = Few<128, 128, 6, L, I, O>;
/// 128×144×64, five stages: where one wave of it is all.
pub type Few128x144<L = Nt, I = Bf16, O = Bf16> = Few<128, 144, 5, L, I, O>;
/// 128×96×64, six stages: the same.
pub type Few128x96<L = Nt, I = Bf16, O = Bf16> = Few<128, 96, 6, L, I, O>;
/// 128×64×64, eight stages: for calls of at most 128 rows, over all ranks where there are several.
pub type Few128x64<L = Nt, I = Bf16, O = Bf16> = Few<128, 64, 8, L, I, O>;
/// 64×192×64, six stages, one consumer: for few rows where one wave of it is all.
pub type Few64x192<L = Nt, I = Bf16, O = Bf16> = Few<64, 192, 6, L, I, O>;
/// 64×128×64, eight stages, one consumer: for few rows.
pub type Few64x128<L = Nt, I = Bf16, O = Bf16> = Few<64, 128, 8, L, I, O>;
/// 64×96×64, ten stages, one consumer: as 64×192.
pub type Few64x96<L = Nt, I = Bf16, O = Bf16> = Few<64, 96, 10, L, I, O>;
/// 64×64×64, thirteen stages, one consumer: for at most 64 rows; over ranks, through slots.
pub type Few64x64<L = Nt, I = Bf16, O = Bf16> = Few<64, 64, 13, L, I, O>;

/// The roles of a CTA with `consumers` consumer warpgroups (at most two), movers first.
pub const fn roles(consumers: u32) -> &'static [Role] {
    const ALL: [Role; 5] = [Role::Producer, Role::Storer, Role::Loader, Role::Consumer(0), Role::Consumer(1)];
    if consumers == 1 { ALL.split_at(4).0 } else { &ALL }
}
