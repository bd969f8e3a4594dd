//! Epilogues: what is added to a finished tile comes through the panel buffers, and what becomes of it leaves through them.
//!
//! | role | per panel |
//! | --- | --- |
//! | loader | waits for the buffer, copies the panel of C or of the residual in, or hands the buffer on as it is |
//! | consumer | finishes its panel with it, and overwrites it with the result |
//! | storer | copies the result to D and frees the buffer |
//!
//! The loader is as far ahead as there are buffers, so what it brings has landed when the main loop ends. The barriers are
//! those of [`super::partials`], of which this is the case without peers.

use super::epilogue::for_each_panel;
use super::partials::{PartialsState, sum_over_ranks};
use super::setup::partial_ring;
use crate::abi::{EpilogueArgs, Source};
use crate::config::TileConfig;
use crate::finish::Finish;
use crate::layout::slot::TileExtent;
use crate::machine::{Aborted, Epilogue, Mbarriers, Watch};
use crate::shape::Role;

/// Panels that the loader brings for one panel of a result to which `peers` peers and an epilogue add: one at least, since
/// the result needs a buffer.
#[inline(always)]
pub fn loads_per_panel(peers: u32, epilogue: Option<&EpilogueArgs>) -> u32 {
    match epilogue {
        Some(args) if args.source != Source::None as u32 || peers == 0 => peers + 1,
        _ => peers,
    }
}

/// Consumer: the epilogue of `cols` columns from column `col` on.
#[inline(always)]
pub fn finish_of<M: Epilogue<C>, C: TileConfig>(m: &M, args: &EpilogueArgs, col: u32, cols: u32) -> Finish {
    let mut alpha = args.alpha;
    if args.scale_a.0 != 0 {
        alpha *= m.load_f32(args.scale_a);
    }
    if args.scale_b.0 != 0 {
        alpha *= m.load_f32(args.scale_b);
    }
    Finish::new(args, alpha, col, cols, C::OUT.bytes())
}

/// Consumer: finishes the panels of the tile that starts at column `col` and hands them to the storer. `peers` is this
/// rank and the number of ranks where peers' panels come before what the epilogue adds: they are added in rank order,
/// the own panel rounded like everyone's, before the sum is finished.
#[expect(clippy::too_many_arguments, reason = "who adds what to which tile")]
#[inline(always)]
pub fn finish_panels<M: Mbarriers + Watch + Epilogue<C>, C: TileConfig, const BUFS: u32>(
    m: &M,
    state: &mut PartialsState<BUFS>,
    consumer: u32,
    col: u32,
    extent: TileExtent,
    peers: Option<(u32, u32)>,
    args: &EpilogueArgs,
    acc: &M::Acc,
) -> Result<(), Aborted> {
    const { assert!(C::WHOLE_PANELS, "a column that two panels hold would be added to twice where C is D") };
    let ring = partial_ring::<M, C, BUFS>(m, Role::Consumer(consumer), consumer);
    let rows = extent.rows_of(consumer);
    for_each_panel!(extent.panels::<C>(), PANEL => {
        // The result takes the buffer of the last load: that of the last peer, or one of its own.
        let has_own_buffer = peers.is_none_or(|(_, world)| world == 1) || args.source != Source::None as u32;
        let mut sum = m.zero_panel();
        match peers {
            Some(who) => {
                let own = || m.round(m.panel::<PANEL>(acc));
                sum_over_ranks::<M, C, BUFS>(&ring, &mut state.ring, consumer, || rows, || who, own, &mut sum)?;
                if has_own_buffer && who.1 > 1 {
                    ring.consumer_release(ring.consumer_take_over(state.ring));
                    state.ring.advance();
                }
            }
            None => sum = m.panel::<PANEL>(acc),
        }
        if has_own_buffer {
            let _freed_by_the_storer = ring.consumer_wait(state.ring)?;
        }
        if rows > 0 {
            // Made anew for each panel: values that live beside the accumulator cost registers that there are not.
            let first = PANEL * C::PANEL_COLS;
            let how = finish_of::<M, C>(m, args, col + first, extent.cols - first);
            m.finish(sum, C::SMEM.panel(consumer, state.ring.index()), rows, &how);
        }
        state.ring.advance();
        // The storer reads the buffer next, and frees it.
        m.arrive(C::SMEM.result_full(consumer).at(state.result.index()));
        state.result.advance();
    });
    Ok(())
}
