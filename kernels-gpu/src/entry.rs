//! The compiled kernels: who is which role, and in which order a CTA's life goes.

mod link;

use core::arch::{asm, global_asm};

use crate::abi::{GemmArgs, GemmEpilogueArgs, GemmReduceScatterArgs, GemmReduceScatterEpilogueArgs, Launch, TensorMap};
// The rows name tiles, layouts and types of it.
use crate::config::*;
use crate::entries::for_each_entry;
use crate::kernels::few_rows_epilogue::{FewRowsReduceScatterEpilogue, LowLatencyReduceScatterEpilogue};
use crate::kernels::few_rows_reduce_scatter::FewRowsReduceScatter;
use crate::kernels::gemm::Gemm;
use crate::kernels::gemm_epilogue::GemmEpilogue;
use crate::kernels::gemm_ping_pong::GemmPingPong;
use crate::kernels::gemm_reduce_scatter::{FewTilesReduceScatter, GemmReduceScatter};
use crate::kernels::gemm_reduce_scatter_epilogue::GemmReduceScatterEpilogue;
use crate::kernels::gemm_reduce_scatter_ping_pong::GemmReduceScatterPingPong;
use crate::kernels::low_latency_reduce_scatter::LowLatencyReduceScatter;
use crate::kernels::{Kernel, Watched};
use crate::machine::WarpgroupRole;
use crate::shape::{CtaPosition, Role, WARPGROUP_THREADS, WARPS_PER_WARPGROUP};
use crate::sm90::machine::{Cta, Warpgroup};
use crate::sm90::{bulk, sync, thread};

global_asm!(".extern .shared .align 1024 .b8 dyn_smem[];");

/// A CTA's life. `launch` gives the parameter's address; each role asks for it anew, since a value that lives through all
/// roles costs each of them a register.
///
/// # Safety
/// Launched as the entry table says for `K`, with arguments that a plan made.
#[inline(always)]
unsafe fn run<K: Kernel>(launch: impl Fn() -> &'static Launch<K::Args>)
where
    K::Args: 'static,
    Warpgroup: WarpgroupRole<K::Config>,
{
    let tid = thread::thread_idx_x();
    let at = || CtaPosition { cta: thread::block_idx_x(), num_ctas: thread::grid_dim_x() };
    // SAFETY: the caller's promise; every thread of the CTA passes each of these points.
    unsafe {
        let cta = |launch: &'static Launch<K::Args>| {
            Cta::new((&raw const launch.maps).cast::<TensorMap>(), launch.args.watchdog())
        };
        if tid == 0 {
            K::setup(&cta(launch()).thread());
            sync::fence_mbarrier_init();
        }
        sync::sync_threads();
        // The producer waits when it knows what it will load.
        let wait_for_previous = || {
            if K::OVERLAPS_PREVIOUS {
                sync::wait_for_previous();
            }
        };
        // An aborted role just ends: the fault record says why, and the host sees it.
        let warp = sync::uniform(tid / 32);
        if warp < WARPS_PER_WARPGROUP {
            sync::give_registers::<K>();
            if warp == 0 {
                if sync::elect() {
                    let launch = launch();
                    let _ = K::mover(&cta(launch).thread(), &launch.args, at(), Role::Producer);
                } else {
                    wait_for_previous();
                }
            } else {
                wait_for_previous();
                if warp == 1 {
                    let launch = launch();
                    let _ = K::mover(&cta(launch).warp(tid % 32), &launch.args, at(), Role::Storer);
                    bulk::wait_group::<0>();
                } else if warp == 2 && sync::elect() {
                    let launch = launch();
                    let _ = K::mover(&cta(launch).thread(), &launch.args, at(), Role::Loader);
                }
            }
        } else {
            sync::take_registers::<K>();
            wait_for_previous();
            let launch = launch();
            let warpgroup = cta(launch).warpgroup(tid % WARPGROUP_THREADS);
            let consumer = if K::Config::CONSUMERS == 1 { 0 } else { warp / WARPS_PER_WARPGROUP - 1 };
            let _ = K::consumer(&warpgroup, &launch.args, at(), consumer);
        }
        sync::sync_threads();
        if thread::thread_idx_x() == 0 {
            let launch = launch();
            K::leave(&cta(launch).thread(), &launch.args, at());
        }
    }
}

/// The first parameter of entry `$name`, where it lies.
macro_rules! parameter {
    ($name:ident, $args:ty) => {{
        let launch: *const Launch<$args>;
        asm!(
            concat!("mov.b64 {p}, ", stringify!($name), "_param_0; cvta.param.u64 {p}, {p};"),
            p = out(reg64) launch,
            options(nomem, nostack)
        );
        &*launch
    }};
}
use parameter;

/// Defines an entry. Its parameter is never touched from Rust, which would copy it to local memory; the kernel reads it
/// through its address in parameter space.
macro_rules! entry {
    ($name:ident, $args:ty, $kernel:ty) => {
        /// # Safety
        /// See [`run`].
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn $name(_launch: Launch<$args>) {
            // SAFETY: the first parameter of this entry is the launch struct.
            unsafe { run::<$kernel>(|| parameter!($name, $args)) }
        }
    };
}

macro_rules! entries {
    ($($args:ident { $($name:ident: $kernel:ident, $config:ty;)* })*) => {
        $($(entry!($name, $args, $kernel<$config, { <$config as TileConfig>::STAGES }, { <$config as TileConfig>::PANEL_BUFS }>);)*)*
    };
}
for_each_entry!(entries);
