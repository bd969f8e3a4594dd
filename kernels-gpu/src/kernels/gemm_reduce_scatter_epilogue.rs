//! GEMM + ReduceScatter with an epilogue on the sum over ranks: the kernel of [`super::gemm_reduce_scatter`], which bias,
//! activation and addends join where the partials are added.

use super::Kernel;
use super::gemm_reduce_scatter::{Call, GemmReduceScatter};
use crate::abi::GemmReduceScatterEpilogueArgs;
use crate::config::TileConfig;
use crate::machine::{Aborted, PutSignals, ThreadRole, WarpgroupRole};
use crate::shape::{CtaPosition, Role};

/// The kernel; `STAGES` is `C::STAGES`, `BUFS` is `C::PANEL_BUFS`.
pub struct GemmReduceScatterEpilogue<C, const STAGES: u32, const BUFS: u32>(core::marker::PhantomData<C>);

impl<C: TileConfig, const STAGES: u32, const BUFS: u32> Kernel for GemmReduceScatterEpilogue<C, STAGES, BUFS> {
    type Args = GemmReduceScatterEpilogueArgs;
    type Config = C;

    const OVERLAPS_PREVIOUS: bool = true;

    #[inline(always)]
    fn mover<M: ThreadRole>(m: &M, args: &Self::Args, at: CtaPosition, role: Role) -> Result<(), Aborted> {
        Call::<C>::move_as::<M, STAGES, BUFS>(m, &args.call, Some(&args.epilogue), at, role)
    }

    #[inline(always)]
    fn consumer<M: WarpgroupRole<C>>(m: &M, args: &Self::Args, at: CtaPosition, consumer: u32) -> Result<(), Aborted> {
        Call::<C>::new(m, &args.call, Some(&args.epilogue), at).consume::<M, STAGES, BUFS>(m, consumer)
    }

    #[inline(always)]
    fn leave<M: PutSignals>(m: &M, args: &Self::Args, at: CtaPosition) {
        GemmReduceScatter::<C, STAGES, BUFS>::leave(m, &args.call, at);
    }
}
