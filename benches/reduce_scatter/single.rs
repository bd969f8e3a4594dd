//! What the roles that move and reduce cost when they have nothing to do: GEMM + ReduceScatter with one rank against GEMM.

use serde_json::json;
use tilewire::cli::table::Table;
use tilewire::driver::Gpu;
use tilewire::measure::{Candidate, Ratio, calls_per_sample, interleave, num_sets};
use tilewire::ops::{Gemm, GemmReduceScatter, RankMatrices};
use tilewire::{Layout, Result, World};

use crate::support::operands::Operands;
use crate::support::report::Report;
use crate::support::{Options, rough_seconds, stream_of};

/// Measures it on one GPU.
pub fn measure(gpu: &Gpu, options: &Options, report: &mut Report) -> Result<()> {
    let world = World::virtual_ranks(gpu.ordinal(), 1)?;
    let stream = stream_of(&world, 0, gpu)?;
    let mut table = Table::new(["M×N×K", "time / GEMM's", "spread"]);
    let mut worst = 0.0f64;
    for extents in [[8192, 8192, 3584], [8192, 8192, 8192]] {
        let [m, n, k] = extents;
        let sets = num_sets(Operands::set_bytes(extents, m));
        let operands = Operands::new(gpu, &stream, Layout::Nt, extents, m, sets, 1)?;
        let gemm = Gemm::builder(&world, 0).shape(m, n, k).build()?;
        let scatter = GemmReduceScatter::builder(&world).shape(m, n, k).build()?;
        let given = |call: usize| {
            let [a, b, d] = operands.args(call);
            RankMatrices { a, b, d }
        };
        let calls = calls_per_sample(rough_seconds(extents));
        // SAFETY: operands and plans outlive the candidates, and nothing else uses them.
        let mut candidates = unsafe {
            [
                Candidate::captured("gemm", calls, &stream, |call| gemm.launch(m, &given(call), None))?,
                Candidate::captured("scatter", calls, &stream, |call| scatter.launch(m, &[given(call)], None))?,
            ]
        };
        let samples = interleave(std::slice::from_ref(&stream), &mut candidates, options.rounds())?;
        drop(candidates);
        scatter.finish()?;
        let Some(ratio) = Ratio::of(&samples[0].worst(), &samples[1].worst()) else { continue };
        let (name, cost) = (format!("{m}×{n}×{k}"), 1.0 / ratio.ratio);
        worst = worst.max(cost);
        table.row([name.clone(), format!("{cost:.4}"), format!("{:.1} %", ratio.spread * 100.0)]);
        report.row(json!({ "single_rank": name, "relative": cost }));
        report.ratio(name, "one rank / gemm", ratio);
    }
    report.table("GEMM + ReduceScatter with one rank against GEMM", table);
    report.goal("time with one rank / GEMM's", (worst > 0.0).then_some(worst), 1.01, false);
    Ok(())
}
