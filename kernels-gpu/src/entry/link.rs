//! The link kernel's entry: one thread for bulk copies and signals, all of them for plain accesses.

use core::arch::asm;

use super::parameter;
use crate::abi::{Launch, LinkArgs, LinkMode, TensorMap};
use crate::kernels::link;
use crate::machine::PutSignals;
use crate::shape::CtaPosition;
use crate::sm90::machine::Cta;
use crate::sm90::{bulk, plain, sync, thread};

/// Rounds of a ping-pong whose payload goes by plain stores of all threads. The first thread exchanges signals; the others wait
/// for it in front of each payload.
#[inline(always)]
unsafe fn ping_pong_plain(cta: Cta, args: &LinkArgs, tid: u32) {
    // SAFETY: the caller's promise; every thread passes the same barriers, two a round.
    unsafe {
        let send = || {
            sync::sync_threads();
            plain::store_payload(args, tid);
            sync::sync_threads();
        };
        if tid != 0 {
            let mut round = 0;
            while round < args.repeats {
                send();
                round += 1;
            }
            return;
        }
        let m = cta.thread();
        let sent = core::cell::Cell::new(0);
        let counted = || {
            send();
            sent.set(sent.get() + 1);
        };
        let _ = link::ping_pong(&m, args, counted, |word, epoch| m.store_release_sys(word, epoch));
        // An aborted wait ends the rounds here; the other threads still expect their barriers.
        while sent.get() < args.repeats {
            counted();
        }
    }
}

/// # Safety
/// Launched as the entry table says, with arguments whose addresses and sizes are right.
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn sm90_link(_launch: Launch<LinkArgs>) {
    // SAFETY: the first parameter of this entry is the launch struct; every thread passes the first barrier.
    unsafe {
        let launch = parameter!(sm90_link, LinkArgs);
        let args = &launch.args;
        let tid = thread::thread_idx_x();
        let at = CtaPosition { cta: thread::block_idx_x(), num_ctas: thread::grid_dim_x() };
        let cta = Cta::new((&raw const launch.maps).cast::<TensorMap>(), &args.watchdog);
        if args.mode == LinkMode::Plain as u32 {
            plain::copy(args, at, tid);
        } else if args.mode == LinkMode::PlainPingPong as u32 {
            ping_pong_plain(cta, args, tid);
        } else if tid / 32 == 0 && sync::elect() {
            // One thread does everything, so no barrier is needed after the setup.
            let m = cta.thread();
            link::setup(&m);
            sync::fence_mbarrier_init();
            // An aborted wait just ends: the fault record says why.
            let _ = if args.mode == LinkMode::Bulk as u32 {
                link::copy_bulk(&m, args, at)
            } else {
                link::ping_pong_bulk(&m, args)
            };
            // Shared memory outlives the copies that read it.
            bulk::wait_group::<0>();
        }
    }
}
