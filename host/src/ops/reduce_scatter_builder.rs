//! Builds a plan for GEMM + ReduceScatter.

use std::time::Duration;

use super::gemm_reduce_scatter::{GemmReduceScatter, Options, layout};
use super::kernels::{Kernels, Shared, Wishes};
use super::pacing;
use crate::error::{Error, Result};
use crate::kernels::abi::{Placement, Transport};
use crate::kernels::shape::GlobalAddr;
use crate::plan::{Variant, check};
use crate::world::World;

/// What an op does when its waits take longer than this, unless told otherwise.
pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(10);

/// Tiles that each CTA computes for others before own ones come between, unless told otherwise.
pub const DEFAULT_HEAD_START: u32 = 2;

/// Rows of tiles that CTAs walk together, unless told otherwise.
pub const DEFAULT_RASTER_GROUP: u32 = 16;

/// Builds a [`GemmReduceScatter`]: shape, transport, partition, placement, deadline.
#[derive(Clone, Debug)]
pub struct GemmReduceScatterBuilder<'w> {
    world: &'w World,
    variant: Variant,
    has_epilogue: bool,
    tile: Option<[u32; 2]>,
    max_m: usize,
    n: usize,
    k: usize,
    transport: Transport,
    placement: Placement,
    sm_margin: u32,
    raster_group: u32,
    head_start: u32,
    deadline: Duration,
    first_epoch: u32,
    push_pause: Option<Duration>,
}

impl<'w> GemmReduceScatterBuilder<'w> {
    pub(crate) fn new(world: &'w World) -> Self {
        Self {
            world,
            variant: Variant::default(),
            has_epilogue: false,
            tile: None,
            max_m: 0,
            n: 0,
            k: 0,
            transport: Transport::Push,
            placement: Placement::Epilogue,
            sm_margin: 0,
            raster_group: DEFAULT_RASTER_GROUP,
            head_start: DEFAULT_HEAD_START,
            deadline: DEFAULT_DEADLINE,
            first_epoch: 1,
            push_pause: None,
        }
    }

    /// Shape: most rows of A in any call, columns of D, columns of A and B on each rank (the K shard).
    pub fn shape(mut self, max_m: usize, n: usize, k: usize) -> Self {
        (self.max_m, self.n, self.k) = (max_m, n, k);
        self
    }

    /// Operand layout and types; nt, bf16 in and out unless told otherwise.
    pub fn variant(mut self, variant: Variant) -> Self {
        self.variant = variant;
        self
    }

    /// Makes [`GemmReduceScatter::run_with`] and [`GemmReduceScatter::launch_with`] possible: loads the kernel with an epilogue
    /// beside the plain ones.
    pub fn with_epilogue(mut self) -> Self {
        self.has_epilogue = true;
        self
    }

    /// Rows and columns of the tile of every call without an epilogue, where several were compiled for the variant; what should be
    /// fastest for a call unless told otherwise. 128 × 192 is multiplied by consumers in turns, which hides the way of sums to
    /// their owners; it takes push and reduction in the epilogue, and rows of D that are whole steps of 16 bytes.
    pub fn tile(mut self, tile: [u32; 2]) -> Self {
        self.tile = Some(tile);
        self
    }

    /// How tiles get to their owners; push unless told otherwise.
    pub fn transport(mut self, transport: Transport) -> Self {
        self.transport = transport;
        self
    }

    /// Where partials are added; in the epilogue unless told otherwise.
    pub fn placement(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }

    /// SMs of each rank that compute nothing: they carry staged tiles and add partials, or stay free when there is
    /// nothing to carry or to add.
    pub fn sm_margin(mut self, sm_margin: u32) -> Self {
        self.sm_margin = sm_margin;
        self
    }

    /// Rows of tiles that CTAs walk together; changes which data meet in L2, never the result.
    pub fn raster_group(mut self, tiles: u32) -> Self {
        self.raster_group = tiles;
        self
    }

    /// Tiles that each CTA computes for the last of the other owners before own ones come between, by consumers in turns; 1 at
    /// least. Own tiles in alternation with others leave a link more of the call; `u32::MAX` puts them last. Changes no result.
    pub fn head_start(mut self, tiles: u32) -> Self {
        self.head_start = tiles;
        self
    }

    /// How long any wait for another rank may take inside the kernels before the call ends in [`Error::Fault`]; zero waits for
    /// ever. Ranks may be late one after the other, each by less.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// How long a storer pauses after each panel that it pushes, up to 3.5 µs; by shape and tile unless told otherwise. A burst of
    /// panels holds up the loads of the next tiles. Changes no result.
    pub fn push_pause(mut self, pause: Duration) -> Self {
        self.push_pause = Some(pause);
        self
    }

    /// Epoch of the first call. Any value works; tests start just below a wrap-around.
    pub fn first_epoch(mut self, epoch: u32) -> Self {
        self.first_epoch = epoch;
        self
    }

    /// Checks everything, loads the kernel on every rank, and allocates the workspaces.
    ///
    /// # Errors
    /// [`Error::Argument`] for a shape the copy engine cannot take, an `sm_margin` that leaves no SM to compute, or
    /// *staged* with reduction in the epilogue and no partition (its tiles would be carried only after own tiles, which
    /// wait for peers' tiles that are carried just as late); [`Error::NoGpu`] or [`Error::Driver`] from the machine.
    pub fn build(self) -> Result<GemmReduceScatter> {
        let world_size = self.world.size();
        let (max_m, n, k) =
            (check::extent("max_m", self.max_m)?, check::extent("n", self.n)?, check::extent("k", self.k)?);
        for rank in 0..world_size {
            check::sm_margin(self.sm_margin, self.world.ctas(rank), rank)?;
        }
        if self.transport == Transport::Staged
            && self.placement == Placement::Epilogue
            && self.sm_margin == 0
            && world_size > 1
        {
            let rule = "staged transport with reduction in the epilogue needs a partition of at least 1 SM to carry tiles \
                        while the others wait for them";
            return Err(Error::argument("sm_margin", 0, rule));
        }
        let world = self.world.clone();
        let Self { transport, placement, tile, has_epilogue, .. } = self;
        let wishes = Wishes { transport, placement, tile, has_epilogue };
        // Where there is a partition, it computes nothing; elsewhere the margin's SMs stay free.
        let ctas = (0..world_size).map(|rank| self.world.ctas(rank)).min().unwrap_or(1) - self.sm_margin;
        let shared = Shared { world: world_size as u32, n, k, ctas };
        let kernels = Kernels::of(self.variant, wishes, shared, max_m)?;
        let (slot_tiles, parity_stride) = kernels.slots(n, world_size as u32)?;
        let flagged_stride = kernels.flagged_stride(n, world_size as u32);
        let deadline_ns = check::deadline_ns(self.deadline);
        let options = Options {
            variant: self.variant,
            kernels,
            max_m,
            n,
            k,
            transport: self.transport,
            placement: self.placement,
            sm_margin: self.sm_margin,
            raster_group: check::raster_group(self.raster_group, max_m)?,
            head_start: self.head_start,
            deadline_ns,
            first_epoch: self.first_epoch,
            push_pause_ns: self.push_pause.map(pacing::check).transpose()?,
            slot_tiles,
            parity_stride,
            flagged_stride,
        };
        kernels.used().try_for_each(|used| world.load(used.entry))?;
        let bytes = layout(&options, world_size, GlobalAddr(0)).bytes(self.transport);
        let workspace = world.symmetric(bytes)?;
        let records = world.fault_records()?;
        let plan = GemmReduceScatter { world, options, workspace, records, needs_recovery: false.into() };
        plan.reset()?;
        Ok(plan)
    }
}
