//! What a kernel may ask of the machine it runs on: small traits, each with only the operations that kernels need.
//!
//! The unit is a role, not a lane. One agent is the elected producer thread, the storer warp, the elected loader thread
//! or a consumer warpgroup; what the 128 lanes of a warpgroup do inside one operation is the machine's affair (their
//! arithmetic is in [`crate::layout`], for both machines).
//!
//! The methods are safe to call so that everything above this layer can forbid `unsafe`. The promise that makes them so
//! (only the roles of the launched configuration call them, on the offsets of its shared-memory plan) is made once,
//! where the GPU machine is created; the emulator and the models check it.
#![forbid(unsafe_code)]

use crate::abi::{Operand, Wait};
use crate::config::TileConfig;
use crate::finish::Finish;
use crate::layout::flagged::FlaggedRows;
use crate::shape::{GlobalAddr, Mbarrier, Parity, SmemAddr};

/// The watchdog ended a wait, or another agent's watchdog did: leave the kernel, results are void.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aborted;

/// Barriers in shared memory with PTX's semantics: pending arrivals, transaction bytes, phase bit.
pub trait Mbarriers {
    /// `mbarrier.init`: the barrier's phases complete after `arrivals` arrivals and all expected bytes. Before any
    /// other use, by one thread.
    fn mbarrier_init(&self, bar: Mbarrier, arrivals: u32);

    /// Whether the phase with this parity has completed. Acquires, at CTA scope, what arrivals released. The same
    /// answer for every thread of the role. May suspend for a short time; does not wait.
    fn try_wait_parity(&self, bar: Mbarrier, parity: Parity) -> bool;

    /// The same without suspending.
    #[inline(always)]
    fn test_wait_parity(&self, bar: Mbarrier, parity: Parity) -> bool {
        self.try_wait_parity(bar, parity)
    }

    /// Arrives, releasing at CTA scope: once for a thread role, once per warp (four times) for a warpgroup role.
    fn arrive(&self, bar: Mbarrier);

    /// Arrives `count` times at once, for a thread role.
    fn arrive_many(&self, bar: Mbarrier, count: u32);

    /// `mbarrier.arrive.expect_tx`: announces `bytes` and arrives once, for a thread role.
    fn arrive_expect_tx(&self, bar: Mbarrier, bytes: u32);
}

/// Bounded waiting.
pub trait Watch {
    /// How often and how long one wait has looked so far.
    type Patience;

    /// The state of a wait that begins now.
    fn patience(&self) -> Self::Patience;

    /// One failed look: pauses, and gives up with [`Aborted`] when the deadline has passed or somebody raised the abort
    /// word. The one whose deadline passes first writes the fault record from `wait` and raises the abort words.
    fn pause(&self, patience: &mut Self::Patience, wait: impl Fn() -> Wait) -> Result<(), Aborted>;

    /// Lets about `ns` nanoseconds pass. Changes no result; machines without a clock do nothing.
    fn linger(&self, ns: u32) {
        let _ = ns;
    }
}

/// What roles with few registers say of what they keep. Machines that have memory enough say nothing.
pub trait Settle {
    /// `value`, found by now: of what it was found from nothing is kept to find it later.
    #[inline(always)]
    fn settle(&self, value: u32) -> u32 {
        value
    }
}

/// The kernels ahead of this one and behind it in its stream.
pub trait NeighbourKernels {
    /// `griddepcontrol.wait`: until the kernel ahead has ended and what it wrote is there; at once if this one was not
    /// launched before that. In kernels that may be, the producer calls it before it touches global memory, as often as
    /// it likes; every other role has waited when it starts. Machines on which kernels follow each other do nothing.
    fn wait_for_previous(&self) {}

    /// `griddepcontrol.launch_dependents`: it may start as soon as every CTA has called this or has ended, if it was
    /// launched so that it may. It waits for this kernel's end before it touches global memory, so this changes no
    /// result; machines without it do nothing.
    fn let_next_start(&self) {}
}

/// Clocks, for kernels that time something.
pub trait Stopwatch {
    /// Ticks of the SM's clock, wrapping.
    fn ticks(&self) -> u32;
    /// Nanoseconds of the GPU's timer, wrapping.
    fn nanoseconds(&self) -> u32;
}

/// Reads of words in global memory that agents of several CTAs or ranks share. Scope and order are in the names.
pub trait Signals {
    /// `ld.acquire.sys.u32`, the same answer for every thread of the role.
    fn load_acquire_sys(&self, addr: GlobalAddr) -> u32;
    /// The same where nothing is read on the strength of the answer: `ld.relaxed.sys.u32`, whose latency nobody waits
    /// for before the value is used.
    #[inline(always)]
    fn load_relaxed_sys(&self, addr: GlobalAddr) -> u32 {
        self.load_acquire_sys(addr)
    }
    /// `ld.acquire.gpu.u32`, the same answer for every thread of the role.
    fn load_acquire_gpu(&self, addr: GlobalAddr) -> u32;

    /// The same for a word of this GPU that nobody writes while a role may still read it, so that the kernel's start is
    /// all the order that it needs: `ld.relaxed.gpu.u32`, whose latency nobody waits for before the value is used.
    #[inline(always)]
    fn load_settled_gpu(&self, addr: GlobalAddr) -> u32 {
        self.load_acquire_gpu(addr)
    }
}

/// Writes of such words, by one thread.
pub trait PutSignals: Signals {
    /// `st.release.sys.u32`.
    fn store_release_sys(&self, addr: GlobalAddr, value: u32);
    /// `st.release.gpu.u32`.
    fn store_release_gpu(&self, addr: GlobalAddr, value: u32);

    /// For a word of this GPU that is next read when this kernel has ended: `st.relaxed.gpu.u32`.
    #[inline(always)]
    fn store_settled_gpu(&self, addr: GlobalAddr, value: u32) {
        self.store_release_gpu(addr, value);
    }

    /// `fence.acq_rel.sys`: each later [`Self::store_fenced_sys`] releases what came before the fence. For several
    /// words it is one wait instead of one a word.
    fn fence_sys(&self);
    /// `st.relaxed.sys.u32`, behind a [`Self::fence_sys`].
    fn store_fenced_sys(&self, addr: GlobalAddr, value: u32);
    /// `atom.add.acq_rel.gpu.u32`; returns the value before.
    fn fetch_add_acq_rel_gpu(&self, addr: GlobalAddr, value: u32) -> u32;
}

/// The ends of rows of a panel, where these are no whole number of the 16 bytes in which the copy engine stores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowEnds {
    /// The panel in shared memory, swizzled by 128 bytes.
    pub src: SmemAddr,
    /// Byte of a row at which its end begins: a multiple of 16, below 128.
    pub off: u32,
    /// Bytes of an end: a multiple of 2, below 16.
    pub bytes: u32,
    /// Rows that exist.
    pub rows: u32,
    /// Where the end of the first row goes; a multiple of 16.
    pub dst: GlobalAddr,
    /// Bytes from there to where that of the next row goes.
    pub stride: u64,
}

/// The copy engine of an SM (TMA), driven by one thread.
pub trait BulkCopy {
    /// `cp.async.bulk.tensor.2d` from global to shared memory: the box of `operand` whose first element is at (`row`,
    /// `col`), swizzled by 128 bytes. `col` is a multiple of 16 bytes. Elements outside the tensor arrive as zeros.
    /// Completes its bytes on `full`.
    fn load_box(&self, dst: SmemAddr, operand: Operand, row: u32, col: u32, full: Mbarrier);

    /// `cp.async.bulk.tensor.2d` from shared to global memory; elements outside the tensor are not written. `row` is
    /// not negative: for a row before the tensor the copy engine of an H200 raises an illegal instruction.
    fn store_box(&self, operand: Operand, row: u32, col: u32, src: SmemAddr);

    /// `cp.async.bulk` from global to shared memory; addresses and `bytes` are multiples of 16.
    fn load_bytes(&self, dst: SmemAddr, src: GlobalAddr, bytes: u32, full: Mbarrier);

    /// `cp.async.bulk` from shared to global memory, own or a peer's; addresses and `bytes` are multiples of 16.
    fn store_bytes(&self, dst: GlobalAddr, src: SmemAddr, bytes: u32);

    /// Stores `bytes` from shared to global memory, own or a peer's, with plain stores of the role instead of the copy
    /// engine; addresses and `bytes` are multiples of 16. The source has been read when it returns, before later copies
    /// by the copy engine once a barrier has been passed; the destination is there for whoever acquires a later signal
    /// of the role.
    fn push_bytes(&self, dst: GlobalAddr, src: SmemAddr, bytes: u32);

    /// Stores the ends of rows of a panel with plain stores of the role: see [`RowEnds`]. The source has been read when
    /// it returns, before later copies by the copy engine once a barrier has been passed; the destination is there when
    /// the kernel has ended.
    fn store_row_ends(&self, ends: &RowEnds);

    /// Closes a bulk group over the stores issued since the last one.
    fn commit_group(&self);

    /// Waits until at most `PENDING` of the latest bulk groups have yet to read their sources.
    fn wait_group_read<const PENDING: u32>(&self);

    /// Waits until at most `PENDING` of the latest bulk groups have yet to be written to their destinations.
    fn wait_group_complete<const PENDING: u32>(&self);

    /// Orders async-proxy accesses and generic accesses (signals) of this thread to global memory: before a signal is
    /// released after bulk stores, after a signal is acquired before bulk loads, and after a credit is acquired before
    /// bulk stores.
    fn fence_proxy_async_global(&self);
}

/// Tensor-core multiplication by one warpgroup, and the way of its accumulator to shared memory.
///
/// A panel is 64 rows × `C::PANEL_COLS` columns of a tile, in `C::OUT` in shared memory, swizzled by 128 bytes.
pub trait WarpgroupMma<C: TileConfig> {
    /// 64 × `TILE_N` accumulators in f32; where `C::PROMOTES`, with the sums of the latest stage beside them.
    type Acc;
    /// Where the operands of a stage lie, as [`Self::issue_mma_at`] takes it.
    type Operands: Copy;
    /// One panel's values in f32.
    type Panel;
    /// An accumulator rounded to a `C::OUT` of 16 bits, in half the registers.
    type Rounded;

    /// An accumulator of zeros.
    fn zero_acc(&self) -> Self::Acc;

    /// Issues `acc (+)= A · Bᵀ` over one stage: 64 rows of A at `a`, `TILE_N` rows of B at `b`, `TILE_K` deep. The old
    /// value counts only if `accumulate`. Asynchronous: closes one wgmma group. A role that gave up a wait may issue it
    /// on anything, for worthless sums.
    ///
    /// Where `C::PROMOTES`, the product goes to the sums beside the accumulator, and [`Self::promote`], told the same
    /// of `accumulate`, adds it: once between two of these, after the wait for the group. A machine that has room for a
    /// part of the product may wait for and add all parts but the last by itself.
    fn issue_mma(&self, acc: &mut Self::Acc, a: SmemAddr, b: SmemAddr, accumulate: bool);

    /// The same, where only the first `rows` rows of A and of B exist: the others hold anything, and their sums are
    /// unspecified. Those of B are counted where it is K-major.
    #[inline(always)]
    fn issue_mma_of_rows(&self, acc: &mut Self::Acc, [a, b]: [SmemAddr; 2], rows: [u32; 2], accumulate: bool) {
        let _ = rows;
        self.issue_mma(acc, a, b, accumulate);
    }

    /// Finds where a stage's operands lie, A at `a` and B at `b`: now, not when they are multiplied.
    fn operands(&self, a: SmemAddr, b: SmemAddr) -> Self::Operands;

    /// [`Self::issue_mma_of_rows`] of operands that were found before. Only where `C::PROMOTES`.
    fn issue_mma_at(&self, acc: &mut Self::Acc, operands: Self::Operands, rows: [u32; 2], accumulate: bool);

    /// Waits until at most `PENDING` of the latest wgmma groups are still running.
    fn wait_mma<const PENDING: u32>(&self, acc: &mut Self::Acc);

    /// Adds the latest stage's product to the accumulator, in f32; the old value counts only if `accumulate`. Only
    /// where `C::PROMOTES`.
    fn promote(&self, acc: &mut Self::Acc, accumulate: bool);

    /// Multiplies every accumulator by `factor`, in f32.
    fn scale(&self, acc: &mut Self::Acc, factor: f32);

    /// A panel of zeros.
    fn zero_panel(&self) -> Self::Panel;

    /// Panel `P` of the accumulator.
    fn panel<const P: u32>(&self, acc: &Self::Acc) -> Self::Panel;

    /// The panel rounded to `C::OUT` and back to f32.
    fn round(&self, panel: Self::Panel) -> Self::Panel;

    /// The accumulator rounded to `C::OUT`, which has 16 bits: from here on, nothing needs `acc`.
    fn round_acc(&self, acc: &Self::Acc) -> Self::Rounded;

    /// Panel `P` of it, in f32.
    fn rounded_panel<const P: u32>(&self, acc: &Self::Rounded) -> Self::Panel;

    /// Writes panel `P` of it as [`Self::store_panel`] does.
    #[inline(always)]
    fn store_rounded<const P: u32>(&self, dst: SmemAddr, acc: &Self::Rounded) {
        self.store_panel(dst, &self.rounded_panel::<P>(acc));
    }

    /// Adds `other` to `sum`, element by element, in f32.
    fn add_to(&self, sum: &mut Self::Panel, other: &Self::Panel);

    /// Reads the first `rows` rows of a panel from shared memory, ordered before later copies by the copy engine once a
    /// barrier has been passed; the other rows are unspecified numbers.
    fn load_panel(&self, src: SmemAddr, rows: u32) -> Self::Panel;

    /// Rounds a panel to `C::OUT` and writes it to shared memory, ordered before later copies by the copy engine once a
    /// barrier has been passed.
    fn store_panel(&self, dst: SmemAddr, panel: &Self::Panel);
}

/// Sums that pass from one CTA's consumer to the same consumer of another through global memory.
pub trait ShareAcc<C: TileConfig>: WarpgroupMma<C> {
    /// Writes the accumulator, [`crate::collective::share::acc_bytes`] bytes, in an order of the machine's own.
    fn store_acc(&self, dst: GlobalAddr, acc: &Self::Acc);

    /// Adds what [`Self::store_acc`] wrote, in f32.
    fn add_acc(&self, src: GlobalAddr, acc: &mut Self::Acc);

    /// `st.release.gpu.u32` by the warpgroup: after all accesses of all its threads.
    fn publish(&self, addr: GlobalAddr, value: u32);
}

/// Rows of a panel that go to another rank as flagged words (see [`crate::layout::flagged`]), and what came from
/// others.
pub trait ExchangeRows<C: TileConfig>: WarpgroupMma<C> {
    /// Stores `rows` of `panel`, rounded to `C::OUT`, as words flagged with `epoch`: `st.relaxed.sys`. They become
    /// visible one by one, in any order.
    fn send_rows(&self, rows: &FlaggedRows, panel: &Self::Panel, epoch: u32);

    /// Looks at `rows` for words flagged with `epoch`: `ld.relaxed.sys`. If all are, their panel in f32, of which the
    /// other rows are unspecified; else a flag that was not `epoch`. The same outcome for every thread of a warp; warps
    /// may differ.
    fn take_rows(&self, rows: &FlaggedRows, epoch: u32) -> Result<Self::Panel, u32>;

    /// Finishes the rows of `panel` that `out` names, rounds them to `C::OUT` and stores them, with plain stores.
    fn store_rows(&self, out: &RowsOut, panel: &Self::Panel);
}

/// Rows of a panel that need nothing from other ranks any more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowsOut {
    /// First row, counted from the start of the consumer's half of the tile.
    pub first: u32,
    /// Number of rows.
    pub rows: u32,
    /// Columns of the panel that exist.
    pub cols: u32,
    /// First element of row `first`; a multiple of 16.
    pub dst: GlobalAddr,
    /// Bytes from one row to the next, a multiple of 16.
    pub stride: u64,
    /// What becomes of the sums before they are rounded; nothing if none.
    pub finish: Option<RowsFinish>,
}

/// What becomes of finished values, by one warpgroup.
pub trait Epilogue<C: TileConfig>: WarpgroupMma<C> {
    /// One f32 of global memory that was written before the kernel began, the same for every thread of the role.
    fn load_f32(&self, addr: GlobalAddr) -> f32;

    /// Applies `how` to a panel and writes it to shared memory as [`WarpgroupMma::store_panel`] does. Where `how` adds
    /// a matrix, `buffer` holds the first `rows` rows of its panel; the result takes their place. Reads the bias of the
    /// `how.cols` columns that exist, which was written before the kernel began.
    fn finish(&self, panel: Self::Panel, buffer: SmemAddr, rows: u32, how: &Finish);
}

/// The epilogue of rows that are stored by elements: those that [`Reduce`] adds up, and those of [`RowsOut`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowsFinish {
    /// What is done to each value; its columns are those of the job, or of the panel.
    pub how: Finish,
    /// First element of C or of the residual: what belongs to `dst`.
    pub c: GlobalAddr,
    /// Bytes from one row of it to the next.
    pub c_stride: u64,
}

/// One half tile to add up: rows that a consumer's index owns, all panels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReduceJob {
    /// First byte of the half tile in slot 0.
    pub slot: GlobalAddr,
    /// Bytes from one slot to the next.
    pub slot_stride: u64,
    /// Slots to add, in order.
    pub slots: u32,
    /// Rows at the start of the half tile that are not stored; they may hold anything.
    pub skip: u32,
    /// First element of the result: where row `skip` goes.
    pub dst: GlobalAddr,
    /// Bytes from one row of the result to the next.
    pub dst_stride: u64,
    /// Rows that exist, the skipped ones included.
    pub rows: u32,
    /// Columns that exist.
    pub cols: u32,
    /// What becomes of the sums before they are rounded; nothing if none.
    pub finish: Option<RowsFinish>,
}

/// Addition in global memory by one warpgroup.
pub trait Reduce<C: TileConfig> {
    /// Adds the slots in f32 to +0, slot 0 first, finishes the sums, rounds once, and stores rows `skip..rows` × cols
    /// elements. Slots hold panels as [`crate::layout::slot`] describes.
    fn reduce(&self, job: &ReduceJob);
}

/// What a mover role needs: a thread, or a warp that acts as one.
pub trait ThreadRole: Mbarriers + Watch + Settle + NeighbourKernels + PutSignals + BulkCopy {}
impl<T: Mbarriers + Watch + Settle + NeighbourKernels + PutSignals + BulkCopy> ThreadRole for T {}

/// What a consumer warpgroup needs.
pub trait WarpgroupRole<C: TileConfig>:
    Mbarriers + Watch + Settle + Signals + Epilogue<C> + ShareAcc<C> + ExchangeRows<C> + Reduce<C>
{
}
impl<C: TileConfig, T> WarpgroupRole<C> for T where
    T: Mbarriers + Watch + Settle + Signals + Epilogue<C> + ShareAcc<C> + ExchangeRows<C> + Reduce<C>
{
}
