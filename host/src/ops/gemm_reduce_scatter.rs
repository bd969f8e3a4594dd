//! GEMM + ReduceScatter: rank r holds A_r and B_r, K sharded over the ranks; rank d ends with its rows of the M×N sum
//! `Σ_r A_r · B_r`. [`Layout`](crate::Layout) says how A and B lie: `nt`, the default, is M×K times (N×K)ᵀ.

use super::kernels::{Kernels, is_low_latency};
use super::maps::maps;
use super::pacing;
use super::reduce_scatter_builder::GemmReduceScatterBuilder;
use crate::error::{Error, Result};
use crate::kernels::abi::{GemmReduceScatterArgs, Mix, Placement, Transport, Watchdog};
use crate::kernels::comm::route::{chunk_of, shard_of};
use crate::kernels::comm::workspace::Workspace;
use crate::kernels::entries::{Entry, Op};
use crate::kernels::schedule::chunked::ChunkedTiles;
use crate::kernels::shape::{GlobalAddr, MAX_WORLD, Rank};
use crate::plan::operand::MatrixArg;
use crate::plan::{RankLaunch, Scales, TensorScales, Variant, check};
use crate::world::{FaultRecords, RawStream, SymmetricBuffer, Tensor, World};

/// One rank's matrices in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankMatrices {
    /// A_r: m × k, or k × m in layout tn.
    pub a: MatrixArg,
    /// B_r: n × k, or k × n in layouts nn and tn.
    pub b: MatrixArg,
    /// D: this rank's rows of the result × n. Rank d owns `[d·s, min(m, (d+1)·s))` with `s = ceil(m / world)`.
    pub d: MatrixArg,
}

/// A plan for GEMM + ReduceScatter on every rank of a world.
///
/// Everything large is fixed when it is built; a call allocates nothing, is ordered on each rank's stream, and can be
/// captured into a graph and replayed.
#[derive(Debug)]
pub struct GemmReduceScatter {
    pub(super) world: World,
    pub(super) options: Options,
    pub(super) workspace: SymmetricBuffer,
    // Dropped after the workspace, whose drop waits for the kernels that may still write here.
    pub(super) records: FaultRecords,
    pub(super) needs_recovery: std::cell::Cell<bool>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    pub(super) variant: Variant,
    pub(super) kernels: Kernels,
    pub(super) max_m: u32,
    pub(super) n: u32,
    pub(super) k: u32,
    pub(super) transport: Transport,
    pub(super) placement: Placement,
    pub(super) sm_margin: u32,
    pub(super) raster_group: u32,
    pub(super) head_start: u32,
    pub(super) deadline_ns: u64,
    pub(super) first_epoch: u32,
    /// The caller's wish.
    pub(super) push_pause_ns: Option<u32>,
    pub(super) slot_tiles: u32,
    pub(super) parity_stride: u64,
    pub(super) flagged_stride: u64,
}

pub(super) fn layout(options: &Options, world: usize, base: GlobalAddr) -> Workspace {
    Workspace {
        base,
        world: world as u32,
        slot_tiles: options.slot_tiles,
        tile_bytes: options.kernels.for_rows(options.max_m).slot_tile_bytes,
        parity_stride: options.parity_stride,
        flagged_stride: options.flagged_stride,
    }
}

impl GemmReduceScatter {
    /// Starts a plan on `world`.
    pub fn builder(world: &World) -> GemmReduceScatterBuilder<'_> {
        GemmReduceScatterBuilder::new(world)
    }

    /// The world of the plan.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Rows of `rank`'s result in a call over `m` rows.
    pub fn rows_of(&self, m: usize, rank: usize) -> usize {
        chunk_of(m as u32, self.world.size() as u32, Rank(rank as u32)).rows as usize
    }

    /// Bytes of workspace on each rank.
    pub fn workspace_bytes(&self) -> u64 {
        layout(&self.options, self.world.size(), GlobalAddr(0)).bytes(self.options.transport)
    }

    /// Where the words of the protocol and the slots of `rank` lie, for tools and tests that look at them or spoil them. Tiles lie
    /// in slots as in calls of the most rows.
    ///
    /// # Panics
    /// The world has no such rank.
    pub fn workspace(&self, rank: usize) -> Workspace {
        layout(&self.options, self.world.size(), self.workspace.base(rank))
    }

    /// Runs one call over `m` rows on owned tensors, on the world's own streams, and waits for it.
    ///
    /// `a[r]` and `b[r]` are as [`RankMatrices`] says, `d[r]` is [`Self::rows_of`]`(m, r)` × n, each on rank r.
    ///
    /// # Errors
    /// [`Error::Argument`] or [`Error::RanksDisagree`] before anything is launched; [`Error::Fault`] if a wait passed its
    /// deadline: then every rank has left the call, and [`Self::recover`] makes the plan usable again.
    pub fn run(&self, m: usize, a: &[Tensor], b: &[Tensor], d: &mut [Tensor]) -> Result<()> {
        self.run_scaled(m, a, b, d, &[])
    }

    /// The same with scales of 8-bit operands: of A_r and B_r in `scales[r]`, each a 1 × 1 tensor of f32 on rank r or none,
    /// which stands for 1; an empty slice is no scales at all. A partial is multiplied by its rank's scales, then rounded.
    ///
    /// # Errors
    /// As [`Self::run`]; [`Error::Argument`] for scales of 16-bit operands, and for tensors of another shape, type or rank.
    pub fn run_scaled(
        &self,
        m: usize,
        a: &[Tensor],
        b: &[Tensor],
        d: &mut [Tensor],
        scales: &[TensorScales<'_>],
    ) -> Result<()> {
        let matrices = self.matrices(m, a, b, d)?;
        let scales = TensorScales::all(scales, self.world.size())?;
        // SAFETY: the tensors are alive and of the right shape, the call ends before their borrow does, and `d` is borrowed
        // exclusively.
        unsafe { self.launch_scaled(m, &matrices, &scales, None)? };
        self.finish()
    }

    /// Checks owned tensors.
    pub(super) fn matrices(&self, m: usize, a: &[Tensor], b: &[Tensor], d: &[Tensor]) -> Result<Vec<RankMatrices>> {
        let world = self.world.size();
        for (name, given) in [("a", a.len()), ("b", b.len()), ("d", d.len())] {
            check::one_for_each_rank(&format!("tensors in {name}"), given, world)?;
        }
        let Variant { layout, input, input_b, output } = self.options.variant;
        check::agreed("rows of A", a.iter().map(Tensor::rows))?;
        check::agreed("columns of A", a.iter().map(Tensor::cols))?;
        check::agreed("element type", a.iter().map(|t| t.element().name()))?;
        let (n, k) = (self.options.n as usize, self.options.k as usize);
        let mut matrices = Vec::with_capacity(world);
        for rank in 0..world {
            a[rank].expect(&format!("a[{rank}]"), rank, layout.a_shape(m, k), input)?;
            b[rank].expect(&format!("b[{rank}]"), rank, layout.b_shape(n, k), input_b)?;
            d[rank].expect(&format!("d[{rank}]"), rank, (self.rows_of(m, rank), n), output)?;
            matrices.push(RankMatrices { a: a[rank].arg(), b: b[rank].arg(), d: d[rank].arg() });
        }
        Ok(matrices)
    }

    /// Enqueues one call over `m` rows on raw memory: `matrices[r]` on stream `streams[r]` of rank r (the world's own
    /// streams when `None`). Allocates nothing and waits for nothing; call [`Self::finish`], or wait for the streams and
    /// call [`Self::check`], before using the results.
    ///
    /// # Errors
    /// [`Error::Argument`] before anything is launched; [`Error::Driver`] if a launch fails.
    ///
    /// # Safety
    /// Each matrix lies in memory that rank r can read (A, B) and write (D) until the call has ended on the stream, with
    /// the shapes of [`RankMatrices`]. Every rank of the world makes the same calls in the same order, on streams that run
    /// concurrently.
    pub unsafe fn launch(&self, m: usize, matrices: &[RankMatrices], streams: Option<&[RawStream]>) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { self.launch_scaled(m, matrices, &[Scales::NONE; MAX_WORLD][..self.world.size()], streams) }
    }

    /// The same with scales of 8-bit operands: those of A_r and B_r in `scales[r]`; see [`Self::run_scaled`].
    ///
    /// # Errors
    /// As [`Self::launch`]; [`Error::Argument`] for scales of 16-bit operands and misaligned or null addresses.
    ///
    /// # Safety
    /// As [`Self::launch`]; rank r can read its scales, four bytes each, until the call has ended.
    pub unsafe fn launch_scaled(
        &self,
        m: usize,
        matrices: &[RankMatrices],
        scales: &[Scales],
        streams: Option<&[RawStream]>,
    ) -> Result<()> {
        let launches = self.prepare(m, matrices, scales, self.options.kernels.for_rows(m as u32))?;
        // SAFETY: the caller's.
        unsafe { self.world.launch(launches.iter().flatten(), streams) }
    }

    pub(super) fn prepare(
        &self,
        m: usize,
        matrices: &[RankMatrices],
        scales: &[Scales],
        entry: &'static Entry,
    ) -> Result<[Option<RankLaunch<GemmReduceScatterArgs>>; MAX_WORLD]> {
        let (o, world) = (&self.options, self.world.size());
        if self.needs_recovery.get() {
            return Err(Error::argument("plan", "faulted", "call recover() before the next call"));
        }
        check::one_for_each_rank("matrices", matrices.len(), world)?;
        check::one_for_each_rank("scales", scales.len(), world)?;
        if m > o.max_m as usize {
            return Err(Error::argument("m", m, format!("the plan was built for at most {} rows", o.max_m)));
        }
        let m = m as u32;
        let mut workspaces = [GlobalAddr(0); MAX_WORLD];
        for (rank, base) in workspaces.iter_mut().enumerate().take(world) {
            *base = self.workspace.base(rank);
        }
        let mut launches = [const { None }; MAX_WORLD];
        for (rank, given) in matrices.iter().enumerate() {
            let rows = chunk_of(m, world as u32, Rank(rank as u32)).rows;
            let (k, n) = (o.k, o.n);
            let maps = maps(o.variant, entry, [m, rows, n, k], [given.a, given.b, given.d], rank)?;
            let share = self.world.ctas(rank);
            // A box is stored in steps of 16 bytes: rows of D that are no whole number of them are added up from the slots,
            // with stores of single elements.
            let ends_in_a_step = (n * o.variant.output.bytes()).is_multiple_of(16);
            let stores_elements = ends_in_a_step || is_low_latency(entry);
            let placement = if stores_elements { o.placement } else { Placement::Partition };
            let staged = o.transport == Transport::Staged && world > 1;
            let has_partition = staged || placement == Placement::Partition;
            let partition_ctas = if has_partition { o.sm_margin } else { 0 };
            let num_ctas = if has_partition { share } else { share - o.sm_margin };
            let args = GemmReduceScatterArgs {
                m,
                n,
                k,
                raster_group: o.raster_group,
                rank: rank as u32,
                world: world as u32,
                partition_ctas,
                transport: o.transport as u32,
                placement: placement as u32,
                pace_ns: o.push_pause_ns.unwrap_or_else(|| pacing::pace_ns([m, n, k], entry)),
                shard: shard_of(m, world as u32),
                slot_tiles: o.slot_tiles,
                parity_stride: o.parity_stride,
                flagged_stride: o.flagged_stride,
                own_workspace: self.workspace.base(rank),
                workspaces,
                d: GlobalAddr(given.d.addr),
                // Not checked where the rank has no rows, nor used.
                d_stride: given.d.row_stride.saturating_mul(u64::from(o.variant.output.bytes())),
                scales: scales[rank].check(o.variant, rank)?,
                mix: self.mix(m, rank, entry, num_ctas),
                watchdog: self.watchdog(rank),
            };
            launches[rank] = Some(RankLaunch { rank, entry, maps, args, num_ctas, overlaps_previous: true });
        }
        Ok(launches)
    }

    /// The order of `rank`'s tiles in a call that consumers take turns in.
    fn mix(&self, m: u32, rank: usize, entry: &Entry, num_ctas: u32) -> Mix {
        if entry.op != Op::GemmReduceScatterPingPong {
            return Mix::default();
        }
        let (o, world) = (&self.options, self.world.size() as u32);
        let [tile_m, tile_n, _] = entry.tile;
        let (rank, shard, group) = (Rank(rank as u32), shard_of(m, world), o.raster_group);
        let tiles = ChunkedTiles { m, n: o.n, rank, world, shard, tile_m, tile_n, group, row_align: entry.row_align };
        Mix::new(&tiles, num_ctas, o.head_start)
    }

    fn watchdog(&self, rank: usize) -> Watchdog {
        let world = self.world.size();
        let of = |r| layout(&self.options, world, self.workspace.base(r));
        let mut peer_aborts = [GlobalAddr(0); MAX_WORLD];
        for (r, abort) in peer_aborts.iter_mut().enumerate().take(world) {
            *abort = of(r).abort();
        }
        Watchdog {
            deadline_ns: self.options.deadline_ns,
            abort: of(rank).abort(),
            claim: of(rank).claim(),
            record: self.records.addr(rank),
            rank: rank as u32,
            world: world as u32,
            peer_aborts,
            local_ns: Watchdog::local_deadline_ns(self.options.deadline_ns, world as u32),
        }
    }

    /// Waits for the calls on the world's own streams, and reports a fault.
    ///
    /// # Errors
    /// As [`Self::check`], and [`Error::Driver`] if a kernel failed otherwise.
    pub fn finish(&self) -> Result<()> {
        self.world.synchronize()?;
        self.check()
    }

    /// Whether a kernel of this plan gave up a wait. To be called when the calls' streams have been waited for.
    ///
    /// # Errors
    /// [`Error::Fault`] with who waited for what, or without a record if ranks were aborted and none says why.
    pub fn check(&self) -> Result<()> {
        match self.world.fault("gemm_reduce_scatter", &self.records)? {
            None => Ok(()),
            Some(fault) => {
                self.needs_recovery.set(true);
                Err(Error::Fault(Box::new(fault)))
            }
        }
    }

    /// Makes the plan usable after a fault: waits for all ranks' kernels to leave, and resets every word of the protocol.
    /// Results of calls since the fault are void. Epochs start anew.
    ///
    /// Calls may have been launched on any streams, or as parts of graphs, so this waits for everything that runs on the
    /// ranks' GPUs in this process, other work included. Not to be called while a stream is being captured.
    ///
    /// # Errors
    /// [`Error::Driver`] if the GPU does not answer any more.
    pub fn recover(&self) -> Result<()> {
        self.world.quiesce()?;
        self.world.clear_faults(&self.records)?;
        self.reset()?;
        self.needs_recovery.set(false);
        Ok(())
    }

    /// Writes every word of the protocol as it is at rest before the first call.
    pub(super) fn reset(&self) -> Result<()> {
        let world = self.world.size();
        for rank in 0..world {
            let ws = layout(&self.options, world, self.workspace.base(rank));
            let at_rest = self.options.first_epoch.wrapping_sub(1);
            // Credits, signals and staged words are epochs; the four words before them are not.
            let mut words = vec![at_rest; (ws.control_bytes() / 4) as usize];
            words[..16].fill(0);
            words[0] = self.options.first_epoch;
            self.world.write(rank, ws.base, bytemuck::cast_slice(&words))?;
            // Flags of a call that failed are those of the next one.
            self.world.fill(rank, ws.flagged_words(), 2 * ws.flagged_stride, at_rest)?;
        }
        Ok(())
    }
}
