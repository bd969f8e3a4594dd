//! Structs that the host fills in and kernels read. Their layout is the contract between the two: `tests/abi.rs`
//! compares it with the parameter lists in the PTX.
#![forbid(unsafe_code)]

mod link;

pub use crate::schedule::mixed::Mix;
pub use link::{LinkArgs, LinkMode, LinkRound, LinkTimes};

use crate::shape::{GlobalAddr, MAX_WORLD, Role};

/// Longest time by which a wait within a CTA outlasts those that it may stand behind, in nanoseconds.
const MAX_LOCAL_GRACE_NS: u64 = 500_000_000;

/// A TMA tensor map: 128 opaque bytes, 64-byte aligned once in parameter space.
///
/// Rust sees alignment 16, because rustc 1.96 cannot pass a more strictly aligned struct to a kernel; the builder raises the
/// alignment of the parameter itself in the entry's header.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorMap(pub [u64; 16]);

impl TensorMap {
    /// A map that no kernel may use: for operands that a call does not touch (K = 0, an empty chunk).
    pub const UNUSED: Self = Self([0; 16]);
}

/// Which tensor map a copy uses: the index into [`Launch::maps`].
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A, as its layout says; box of `A_BOX`.
    A = 0,
    /// B, as its layout says; box of `B_BOX`.
    B = 1,
    /// D, M×N row-major, without columns past the last whole step of 16 bytes; box of `D_BOX`.
    D = 2,
    /// C, or what is added after the activation: M×N row-major, of D's type; box of `D_BOX`.
    C = 3,
}

/// Tensor maps of a launch: one for each [`Operand`].
pub const MAPS: usize = 4;

/// The single parameter of every kernel: tensor maps first, then the kernel's own arguments.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug)]
pub struct Launch<Args> {
    /// Tensor maps of A, B, D and C.
    pub maps: [TensorMap; MAPS],
    /// The kernel's arguments.
    pub args: Args,
}

/// How long waits may take, and where a wait that took too long is reported.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watchdog {
    /// Longest wait for another CTA or rank in nanoseconds; 0 waits for ever (for debuggers).
    pub deadline_ns: u64,
    /// This rank's abort word (u32, device memory): non-zero makes every wait end.
    pub abort: GlobalAddr,
    /// This rank's claim word (u32, device memory): the first to report takes it.
    pub claim: GlobalAddr,
    /// This rank's [`FaultRecord`] in mapped host memory.
    pub record: GlobalAddr,
    /// Rank that runs the kernel.
    pub rank: u32,
    /// Ranks whose abort words are raised with this one: entries of `peer_aborts` in use.
    pub world: u32,
    /// Abort words of all ranks, by rank.
    pub peer_aborts: [GlobalAddr; MAX_WORLD],
    /// Longest wait for a copy within a CTA: [`Self::local_deadline_ns`] of the deadline and the ranks.
    pub local_ns: u64,
}

impl Watchdog {
    /// Where the last CTA says that the call was aborted: [`FaultRecord::aborted`].
    #[inline(always)]
    pub const fn aborted(&self) -> GlobalAddr {
        self.record.plus(core::mem::offset_of!(FaultRecord, aborted) as u64)
    }

    /// How long a wait of this kind may take, where `deadline_ns` is not 0.
    #[inline(always)]
    pub const fn limit_ns(&self, kind: WaitKind) -> u64 {
        match kind {
            _ if kind.is_remote() => self.deadline_ns,
            WaitKind::StageFull | WaitKind::PartialFull => self.local_ns,
            // Behind somebody who may wait for a copy: a little longer, so that not chance decides which of them reports.
            _ => self.local_ns.saturating_add(self.local_ns / 64),
        }
    }

    /// How long waits within a CTA may take among `world` ranks.
    ///
    /// They stand behind waits for other CTAs and ranks, each of which may take as long as the deadline: one for the credit
    /// of a tile's owner and then one for each peer's partial, or one for the credit of each owner; `world` at most. They
    /// last an eighth of a deadline longer, so that the wait that is to blame is the one that reports.
    pub const fn local_deadline_ns(deadline_ns: u64, world: u32) -> u64 {
        let grace = deadline_ns / 8;
        let grace = if grace < MAX_LOCAL_GRACE_NS { grace } else { MAX_LOCAL_GRACE_NS };
        deadline_ns.saturating_mul(world as u64).saturating_add(grace)
    }
}

/// What waited for what when a deadline passed. Lives in mapped host memory; `state` is written last.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FaultRecord {
    /// 0 nothing, 1 a complete record.
    pub state: u32,
    /// Rank of the waiting agent.
    pub rank: u32,
    /// CTA of the waiting agent.
    pub cta: u32,
    /// [`Role::code`] of the waiting agent.
    pub role: u32,
    /// [`WaitKind`] as a number.
    pub kind: u32,
    /// Stage, buffer, tile or rank that the wait is about; see [`WaitKind`].
    pub index: u32,
    /// Parity, epoch or count that was awaited.
    pub awaited: u32,
    /// What was seen instead, where the machine can tell; else 0.
    pub seen: u32,
    /// How long the wait took, in nanoseconds.
    pub elapsed_ns: u64,
    /// 1 once a call of this rank was left with the abort word raised, whether a record says why or none does. Written by
    /// the last CTA to leave, in kernels that count theirs.
    pub aborted: u32,
    /// Unused; keeps the layout free of padding.
    pub reserved: u32,
}

/// What a wait is for. The index that goes with it is given in each line.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitKind {
    /// Operand stage filled; stage.
    StageFull = 1,
    /// Operand stage free; stage.
    StageEmpty = 2,
    /// Panel written by the consumer; buffer.
    PanelFull = 3,
    /// Panel buffer free; buffer.
    PanelEmpty = 4,
    /// Consumer done with panels for peers; consumer.
    Handover = 5,
    /// A peer's panel landed in shared memory; buffer.
    PartialFull = 6,
    /// Buffer for a peer's panel free; buffer.
    PartialEmpty = 7,
    /// Reduced panel written by the consumer; buffer.
    ResultFull = 8,
    /// Signal of a peer's tile; slot · 2²⁴ + tile.
    Signal = 9,
    /// Credit from an owner; owner's rank.
    Credit = 10,
    /// Tile stored locally for the reduce partition; owner · 2²⁴ + tile.
    Staged = 11,
    /// Sums of a part of a tile that is cut along K; place of the part among all that are given away.
    Share = 12,
    /// The other consumer done with its turn; consumer that waits.
    Turn = 13,
}

impl WaitKind {
    /// The kind that `code` stands for.
    pub const fn from_code(code: u32) -> Option<Self> {
        Some(match code {
            1 => Self::StageFull,
            2 => Self::StageEmpty,
            3 => Self::PanelFull,
            4 => Self::PanelEmpty,
            5 => Self::Handover,
            6 => Self::PartialFull,
            7 => Self::PartialEmpty,
            8 => Self::ResultFull,
            9 => Self::Signal,
            10 => Self::Credit,
            11 => Self::Staged,
            12 => Self::Share,
            13 => Self::Turn,
            _ => return None,
        })
    }

    /// Whether another CTA or another rank ends the wait.
    #[inline(always)]
    pub const fn is_remote(self) -> bool {
        matches!(self, Self::Signal | Self::Credit | Self::Staged | Self::Share)
    }
}

/// A wait as a kernel announces it, before it is known whether it will fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Who waits.
    pub role: Role,
    /// For what.
    pub kind: WaitKind,
    /// Which one; see [`WaitKind`].
    pub index: u32,
    /// Parity, epoch or count awaited.
    pub awaited: u32,
    /// What the last look found, where known; else 0.
    pub seen: u32,
}

/// Arguments of the plain GEMM, `D = A · B`; the kernel's configuration says how A and B lie.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct GemmArgs {
    /// Rows of A and D.
    pub m: u32,
    /// Rows of B, columns of D.
    pub n: u32,
    /// Columns of A and B.
    pub k: u32,
    /// Rows of tiles that are walked together (see `schedule::raster`).
    pub raster_group: u32,
    /// Tiles that are cut along K into parts (see `schedule::split_k`).
    pub split_tiles: u32,
    /// Parts of each of these; at least 1.
    pub parts: u32,
    /// Where CTAs leave sums for each other: see `collective::share`. Not used where no tile is cut.
    pub shares: GlobalAddr,
    /// Parts that there is room for at `shares`.
    pub share_room: u32,
    /// Tiles that neighbouring CTAs walk side by side in runs of equal length; 0 where tiles are cut into parts, or not at all.
    pub abreast: u32,
    /// Columns of a tile of D: those of the configuration, or fewer where it has `NARROWS`.
    pub tile_cols: u32,
    /// First element of D, for the ends of rows that no box stores.
    pub d: GlobalAddr,
    /// Bytes from one row of D to the next.
    pub d_stride: u64,
    /// Where the scales of A and B lie: see [`Scales`].
    pub scales: Scales,
    /// Bounds of the waits.
    pub watchdog: Watchdog,
}

/// What is applied to each element of a finished product. The codes are those of [`EpilogueArgs::activation`].
#[repr(u32)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Activation {
    /// The value itself.
    #[default]
    None = 0,
    /// `max(x, 0)`; a NaN stays one.
    Relu = 1,
    /// `x / 2 · (1 + tanh(√(2/π) · (x + 0.044715 · x³)))`.
    GeluTanh = 2,
    /// `x / 2 · (1 + erf(x / √2))`.
    GeluErf = 3,
    /// `x / (1 + exp(−x))`.
    Silu = 4,
}

impl Activation {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::None, Self::Relu, Self::GeluTanh, Self::GeluErf, Self::Silu];

    /// The usual name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Relu => "relu",
            Self::GeluTanh => "gelu-tanh",
            Self::GeluErf => "gelu-erf",
            Self::Silu => "silu",
        }
    }
}

/// Where the matrix of [`Operand::C`] goes in an epilogue. The codes are those of [`EpilogueArgs::source`].
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// There is none.
    None = 0,
    /// Times beta, before the bias and the activation.
    Scaled = 1,
    /// As it is, after the activation.
    Residual = 2,
}

/// Epilogue of a product: `D = act(alpha · scale_a · scale_b · (A · B) + beta · C + bias) + residual`, in f32, rounded
/// once.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EpilogueArgs {
    /// Factor of the product.
    pub alpha: f32,
    /// Factor of C.
    pub beta: f32,
    /// [`Activation`] as a number.
    pub activation: u32,
    /// [`Source`] as a number.
    pub source: u32,
    /// One element of D's type a column; address 0 is none.
    pub bias: GlobalAddr,
    /// Scale of A, one f32; address 0 is none.
    pub scale_a: GlobalAddr,
    /// Scale of B, one f32; address 0 is none.
    pub scale_b: GlobalAddr,
    /// First element of C or of the residual, for roles that read it without a tensor map.
    pub c: GlobalAddr,
    /// Bytes from one row of it to the next.
    pub c_stride: u64,
}

/// Arguments of the plain GEMM with an epilogue.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct GemmEpilogueArgs {
    /// The product.
    pub gemm: GemmArgs,
    /// What becomes of it.
    pub epilogue: EpilogueArgs,
}
/// Scales of A and B, f32 in device memory, for 8-bit operands: every sum of products is multiplied by both, once. The null
/// address stands for 1.
pub type Scales = [GlobalAddr; 2];

/// How a finished tile gets to its owner.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// The storer's copy engine writes straight into the owner's slot.
    Push = 0,
    /// The tile is stored locally and the partition carries it over.
    Staged = 1,
    /// The storer writes straight into the owner's slot with plain stores: a slow link then holds up one warp, and not the
    /// copy engine that loads the next tiles.
    PushStores = 2,
}

/// Where an owner adds up the partials of its chunk.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// CTAs of the partition do nothing else (all CTAs after their last tile when `sm_margin` is 0).
    Partition = 0,
    /// Consumers add the peers' partials to the tile they still hold.
    Epilogue = 1,
}

/// Arguments of GEMM + ReduceScatter.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct GemmReduceScatterArgs {
    /// Rows of A on every rank, and of the sum before it is scattered.
    pub m: u32,
    /// Rows of B, columns of D.
    pub n: u32,
    /// Columns of this rank's A and B.
    pub k: u32,
    /// Rows of tiles that are walked together (see `schedule::raster`).
    pub raster_group: u32,
    /// This rank.
    pub rank: u32,
    /// Ranks.
    pub world: u32,
    /// CTAs at the end of the grid that compute nothing; 0 when every CTA computes.
    pub partition_ctas: u32,
    /// [`Transport`] as a number.
    pub transport: u32,
    /// [`Placement`] as a number.
    pub placement: u32,
    /// Nanoseconds that a storer lets pass after each panel it pushes while its CTA computes on: all CTAs finish their
    /// tiles at once, and a burst on the link holds up the loads of the next tiles. 0 is no pause.
    pub pace_ns: u32,
    /// Rows of a whole chunk: `comm::route::shard_of` them.
    pub shard: u32,
    /// Tiles that one slot holds: the stride of the workspace, fixed by the plan.
    pub slot_tiles: u32,
    /// Bytes between the slots of even and of odd epochs, fixed by the plan: calls of different tiles share them.
    pub parity_stride: u64,
    /// Bytes of the flagged words of one parity, fixed by the plan; 0 where no call has such.
    pub flagged_stride: u64,
    /// Base address of this rank's workspace: that in `workspaces`, at a place that does not depend on the rank.
    pub own_workspace: GlobalAddr,
    /// Base address of every rank's workspace, by rank.
    pub workspaces: [GlobalAddr; MAX_WORLD],
    /// This rank's D: its own chunk, row-major.
    pub d: GlobalAddr,
    /// Bytes from one row of D to the next.
    pub d_stride: u64,
    /// Where the scales of this rank's A and B lie: see [`Scales`].
    pub scales: Scales,
    /// The order of tiles by consumers in turns; else unused.
    pub mix: Mix,
    /// Bounds of the waits.
    pub watchdog: Watchdog,
}

/// Arguments of GEMM + ReduceScatter with an epilogue, which is applied to the sum over ranks.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct GemmReduceScatterEpilogueArgs {
    /// Product and reduction.
    pub call: GemmReduceScatterArgs,
    /// What becomes of this rank's rows of the sum.
    pub epilogue: EpilogueArgs,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_waits_outlast_one_remote_wait_a_rank_by_an_eighth_of_a_deadline_and_at_most_half_a_second() {
        let none = GlobalAddr(0);
        let of = |deadline_ns, world| Watchdog {
            deadline_ns,
            abort: none,
            claim: none,
            record: none,
            rank: 0,
            world,
            peer_aborts: [none; MAX_WORLD],
            local_ns: Watchdog::local_deadline_ns(deadline_ns, world),
        };
        for (deadline_ns, world, local) in [
            (800, 1, 900),
            (800, 4, 3300),
            (10_000_000_000, 1, 10_500_000_000),
            (10_000_000_000, 8, 80_500_000_000),
            (u64::MAX, 2, u64::MAX),
            (7, 1, 7),
        ] {
            assert_eq!(of(deadline_ns, world).limit_ns(WaitKind::Signal), deadline_ns);
            for copied in [WaitKind::StageFull, WaitKind::PartialFull] {
                assert_eq!(of(deadline_ns, world).limit_ns(copied), local);
            }
            let behind = of(deadline_ns, world).limit_ns(WaitKind::PanelFull);
            assert!(behind >= local && (local < 64 || local == u64::MAX || behind > local), "{behind} after {local}");
        }
        let remote = (0..32).filter_map(WaitKind::from_code).filter(|kind| kind.is_remote());
        assert!(remote.eq([WaitKind::Signal, WaitKind::Credit, WaitKind::Staged, WaitKind::Share]));
    }
}
