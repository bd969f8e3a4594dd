//! The kernels: which roles there are and what each does, in order. One file a kernel.
#![forbid(unsafe_code)]

#[cfg(not(target_arch = "nvptx64"))]
pub mod dispatch;
pub mod few_rows_epilogue;
pub mod few_rows_reduce_scatter;
pub mod gemm;
pub mod gemm_epilogue;
pub mod gemm_ping_pong;
pub mod gemm_reduce_scatter;
pub mod gemm_reduce_scatter_epilogue;
pub mod gemm_reduce_scatter_ping_pong;
pub mod link;
pub mod low_latency_reduce_scatter;
mod own_tiles;
mod places;

use crate::abi::{GemmArgs, GemmEpilogueArgs, GemmReduceScatterArgs, GemmReduceScatterEpilogueArgs, Watchdog};
use crate::collective::setup::init_barriers;
use crate::config::{Registers, TileConfig};
use crate::machine::{Aborted, Mbarriers, PutSignals, ThreadRole, WarpgroupRole};
use crate::shape::{CtaPosition, Role};

/// Arguments that carry a watchdog.
pub trait Watched {
    /// Bounds of the kernel's waits.
    fn watchdog(&self) -> &Watchdog;
}

impl Watched for GemmArgs {
    #[inline(always)]
    fn watchdog(&self) -> &Watchdog {
        &self.watchdog
    }
}

impl Watched for GemmReduceScatterArgs {
    #[inline(always)]
    fn watchdog(&self) -> &Watchdog {
        &self.watchdog
    }
}

impl Watched for GemmEpilogueArgs {
    #[inline(always)]
    fn watchdog(&self) -> &Watchdog {
        &self.gemm.watchdog
    }
}

impl Watched for GemmReduceScatterEpilogueArgs {
    #[inline(always)]
    fn watchdog(&self) -> &Watchdog {
        &self.call.watchdog
    }
}

/// A kernel as its machine runs it: set up, all roles at once, leave.
pub trait Kernel {
    /// Its arguments, after the tensor maps.
    type Args: Copy + Watched;
    /// Its tile configuration.
    type Config: TileConfig;

    /// How its threads share the registers.
    const REGISTERS: Registers = Registers::MAIN;

    /// Whether it may start before the kernel ahead of it in its stream has ended (programmatic dependent launch): every thread
    /// then waits for that end before it touches global memory, and the producer lets the next kernel start when it has
    /// nothing left to load.
    const OVERLAPS_PREVIOUS: bool = false;

    /// By one thread of each CTA, before the roles start.
    #[inline(always)]
    fn setup<M: Mbarriers>(m: &M) {
        init_barriers::<M, Self::Config>(m);
    }

    /// One mover thread: producer, storer or loader.
    fn mover<M: ThreadRole>(m: &M, args: &Self::Args, at: CtaPosition, role: Role) -> Result<(), Aborted>;

    /// One consumer warpgroup.
    fn consumer<M: WarpgroupRole<Self::Config>>(
        m: &M,
        args: &Self::Args,
        at: CtaPosition,
        consumer: u32,
    ) -> Result<(), Aborted>;

    /// By one thread of each CTA, after all its roles have ended.
    #[inline(always)]
    fn leave<M: PutSignals>(m: &M, args: &Self::Args, at: CtaPosition) {
        let _ = (m, args, at);
    }
}
