//! What the roles that move and reduce cost when they have nothing to do: GEMM + ReduceScatter with one rank against GEMM.

use serde_json::json;
use tilewire::cli::table::Table;
use tilewire::driver::Gpu;
use tilewire::measure::{Candidate, Ratio, calls_per_sample, interleave, num_sets};
use tilewire::ops::{Gemm, GemmReduceScatter, RankMatrices};
use tilewire::{Layout, Result, SplitK, World};

use crate::fused::{MAIN_TILE, TURNS_TILE};
use crate::support::operands::Operands;
use crate::support::report::Report;
use crate::support::{Options, rough_seconds, stream_of};

/// Measures it on one GPU.
pub fn measure(gpu: &Gpu, options: &Options, report: &mut Report) -> Result<()> {
    let world = World::virtual_ranks(gpu.ordinal(), 1)?;
    let stream = stream_of(&world, 0, gpu)?;
    let mut table = Table::new(["M×N×K", "consumers", "time / GEMM's", "spread", "time / GEMM's by the same tile"]);
    let mut worst = 0.0f64;
    for extents in [[8192, 8192, 3584], [8192, 8192, 8192], [8192, 4096, 7168], [2048, 8192, 14336], [512, 8192, 14336]]
    {
        let [m, n, k] = extents;
        let sets = num_sets(Operands::set_bytes(extents, m));
        let operands = Operands::new(gpu, &stream, Layout::Nt, extents, m, sets, 1)?;
        let gemm = Gemm::builder(&world, 0).shape(m, n, k).build()?;
        let by = |tile| Gemm::builder(&world, 0).shape(m, n, k).tile(tile).split_k(SplitK::Never).build();
        let (gemm_together, gemm_in_turns) = (by(MAIN_TILE)?, by(TURNS_TILE)?);
        let together = GemmReduceScatter::builder(&world).shape(m, n, k).tile(MAIN_TILE).build()?;
        let in_turns = GemmReduceScatter::builder(&world).shape(m, n, k).tile(TURNS_TILE).build()?;
        let given = |call: usize| {
            let [a, b, d] = operands.args(call);
            RankMatrices { a, b, d }
        };
        let calls = calls_per_sample(rough_seconds(extents));
        // SAFETY: operands and plans outlive the candidates, and nothing else uses them.
        let mut candidates = unsafe {
            [
                Candidate::captured("gemm", calls, &stream, |call| gemm.launch(m, &given(call), None))?,
                Candidate::captured("together", calls, &stream, |call| together.launch(m, &[given(call)], None))?,
                Candidate::captured("in turns", calls, &stream, |call| in_turns.launch(m, &[given(call)], None))?,
                Candidate::captured("gemm", calls, &stream, |call| gemm_together.launch(m, &given(call), None))?,
                Candidate::captured("gemm", calls, &stream, |call| gemm_in_turns.launch(m, &given(call), None))?,
            ]
        };
        let samples = interleave(std::slice::from_ref(&stream), &mut candidates, options.rounds())?;
        drop(candidates);
        together.finish()?;
        in_turns.finish()?;
        let mut best = f64::INFINITY;
        for (consumers, of) in [("together", 1), ("in turns", 2)] {
            let [gemm, times, alike] = [0, of, of + 2].map(|at| samples[at].worst());
            let Some((ratio, same)) = Ratio::of(&gemm, &times).zip(Ratio::of(&alike, &times)) else { continue };
            let same = 1.0 / same.ratio;
            let (name, cost) = (format!("{m}×{n}×{k}"), 1.0 / ratio.ratio);
            best = best.min(cost);
            let spread = format!("{:.1} %", ratio.spread * 100.0);
            table.row([name.clone(), consumers.into(), format!("{cost:.4}"), spread, format!("{same:.4}")]);
            report.row(
                json!({ "single_rank": name, "consumers": consumers, "relative": cost, "by_the_same_tile": same }),
            );
            let candidate = if consumers == "together" { "one rank / gemm" } else { "one rank in turns / gemm" };
            report.ratio(name, candidate, ratio);
        }
        // The goal is for calls of many waves, where what a call costs once does not count.
        if best.is_finite() && m == 8192 && n == 8192 {
            worst = worst.max(best);
        }
    }
    report.table("GEMM + ReduceScatter with one rank against GEMM", table);
    report.goal("time with one rank / GEMM's, by the better consumers", (worst > 0.0).then_some(worst), 1.01, false);
    Ok(())
}
