//! The kernels for few rows with an epilogue on the sum over ranks: those of [`super::few_rows_reduce_scatter`] and
//! [`super::low_latency_reduce_scatter`], which bias, activation and addends join where the partials are added.

use super::Kernel;
use super::few_rows_reduce_scatter::Call;
use super::gemm_reduce_scatter::GemmReduceScatter;
use super::low_latency_reduce_scatter::LowLatencyReduceScatter;
use crate::abi::GemmReduceScatterEpilogueArgs;
use crate::config::{Registers, TileConfig};
use crate::machine::{Aborted, PutSignals, ThreadRole, WarpgroupRole};
use crate::shape::{CtaPosition, Role};

/// Through slots; `STAGES` is `C::STAGES`.
pub struct FewRowsReduceScatterEpilogue<C, const STAGES: u32, const BUFS: u32>(core::marker::PhantomData<C>);

/// From registers to registers; `STAGES` is `C::STAGES`.
pub struct LowLatencyReduceScatterEpilogue<C, const STAGES: u32, const BUFS: u32>(core::marker::PhantomData<C>);

impl<C: TileConfig, const STAGES: u32, const BUFS: u32> Kernel for FewRowsReduceScatterEpilogue<C, STAGES, BUFS> {
    type Args = GemmReduceScatterEpilogueArgs;
    type Config = C;

    const OVERLAPS_PREVIOUS: bool = true;

    #[inline(always)]
    fn mover<M: ThreadRole>(m: &M, args: &Self::Args, at: CtaPosition, role: Role) -> Result<(), Aborted> {
        Call::<C>::move_as::<M, STAGES, BUFS>(m, &args.call, at, role)
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

impl<C: TileConfig, const STAGES: u32, const BUFS: u32> Kernel for LowLatencyReduceScatterEpilogue<C, STAGES, BUFS> {
    type Args = GemmReduceScatterEpilogueArgs;
    type Config = C;

    const REGISTERS: Registers = LowLatencyReduceScatter::<C, STAGES, BUFS>::REGISTERS;
    const OVERLAPS_PREVIOUS: bool = true;

    #[inline(always)]
    fn mover<M: ThreadRole>(m: &M, args: &Self::Args, at: CtaPosition, role: Role) -> Result<(), Aborted> {
        LowLatencyReduceScatter::<C, STAGES, BUFS>::mover(m, &args.call, at, role)
    }

    #[inline(always)]
    fn consumer<M: WarpgroupRole<C>>(m: &M, args: &Self::Args, at: CtaPosition, consumer: u32) -> Result<(), Aborted> {
        Call::<C>::new(m, &args.call, Some(&args.epilogue), at).exchange::<M, STAGES>(m, consumer)
    }

    #[inline(always)]
    fn leave<M: PutSignals>(m: &M, args: &Self::Args, at: CtaPosition) {
        GemmReduceScatter::<C, STAGES, BUFS>::leave(m, &args.call, at);
    }
}
