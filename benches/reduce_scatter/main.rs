//! GEMM + ReduceScatter against cuBLASLt, then NCCL, in turns, in one run on the same GPUs.
//!
//! One rank on every GPU that there is. With a single GPU, virtual ranks share it: then the only honest baseline is one
//! cuBLASLt product over all of K on the whole GPU, the same arithmetic without any communication.
//!
//! Calls are enqueued back to back, at least eight a sample, so that what a launch costs the host is hidden; the clock starts
//! behind a call that is not counted. A sample's time is that of its slowest rank.

#[path = "../support/mod.rs"]
mod support;

mod fused;
mod ranks;
mod single;
mod torch;
mod unfused;

use std::process::ExitCode;

use serde_json::json;
use tilewire::Result;
use tilewire::cli::table::Table;
use tilewire::driver::Gpu;
use tilewire::measure::{Candidate, Ratio, Samples, calls_per_sample, interleave};

use fused::{Fused, Way};
use ranks::Ranks;
use support::report::Report;
use support::shapes::reduce_scatter_shapes;
use support::{Options, flops, rough_seconds};
use unfused::Unfused;

fn main() -> ExitCode {
    support::main("reduce_scatter", run)
}

fn run(options: &Options, gpus: &[Gpu], report: &mut Report) -> Result<()> {
    let ranks = Ranks::new(gpus, options.world)?;
    println!("{}", ranks.world.describe());
    for (extents, goal, quick) in reduce_scatter_shapes(&options.shape) {
        let extents = ranks.fit(extents);
        let name = shape_name(extents);
        if options.wants(&name, quick) {
            println!("{name}");
            shape(&ranks, extents, goal, options, report)?;
        }
    }
    if options.wants_table("margins") {
        margins(&ranks, options, report)?;
    }
    if options.wants_table("pauses") {
        pauses(&ranks, options, report)?;
    }
    if options.wants_table("head starts") {
        head_starts(&ranks, options, report)?;
    }
    if options.wants_table("one rank") {
        single::measure(&gpus[0], options, report)?;
    }
    Ok(())
}

fn shape_name([m, n, k]: [usize; 3]) -> String {
    format!("{m}×{n}×{k}")
}

/// One shape: every way, the product alone, and the paths without fusion.
fn shape(ranks: &Ranks, extents: [usize; 3], goal: Option<f64>, options: &Options, report: &mut Report) -> Result<()> {
    let mut operands = ranks.operands(extents)?;
    let fused = Fused::all(ranks, extents, &Way::table(ranks))?;
    fused::check(ranks, &fused, &mut operands)?;
    let unfused = Unfused::new(ranks, extents, &operands)?;
    unfused.check(ranks, &mut operands)?;
    let calls = calls_per_sample(rough_seconds(ranks.on_one_gpu(extents)));
    let mut candidates: Vec<Candidate<'_>> = fused.iter().map(|plan| plan.candidate(calls, &operands)).collect();
    candidates.extend(unfused.candidates(ranks, calls, &operands));
    let samples = interleave(&ranks.streams, &mut candidates, options.rounds())?;
    drop(candidates);
    // Timed calls that gave up a wait, or went wrong, show here.
    fused::check(ranks, &fused, &mut operands)?;
    tabulate(ranks, extents, goal, &samples, options, report);
    Ok(())
}

fn tabulate(
    ranks: &Ranks,
    extents: [usize; 3],
    goal: Option<f64>,
    samples: &[Samples],
    options: &Options,
    report: &mut Report,
) {
    let [m, n, _] = extents;
    let name = shape_name(extents);
    let world = ranks.world.size();
    let find = |name: &str| samples.iter().find(|s| s.name == name);
    let gemm = samples.iter().filter(|s| s.name.starts_with("gemm ")).map(Samples::seconds).reduce(f64::min);
    let path = find(unfused::PATH);
    // Without a link, the product alone is what there is to compare with.
    let baseline = path.or_else(|| samples.iter().find(|s| s.name.starts_with("gemm ")));
    let sent_bytes = (m * n * 2) as f64 * (world - 1) as f64 / world as f64;
    let against = baseline.map_or("-", |s| s.name.as_str());
    let mut table = Table::new([
        "candidate",
        "p50, worst rank",
        "TFLOP/s a GPU",
        &format!("ratio to {against}"),
        "spread",
        "overlap",
        "GB/s out",
    ]);
    let mut best: Option<(f64, Option<f64>)> = None;
    for s in samples {
        let (worst, seconds) = (s.worst(), s.seconds());
        let ratio = baseline.and_then(|baseline| Ratio::of(&baseline.worst(), &worst));
        let is_fused = s.name.starts_with("tilewire");
        let overlap = match (gemm, path) {
            (Some(gemm), Some(path)) if is_fused => Some(1.0 - (seconds - gemm) / (path.seconds() - gemm)),
            _ => None,
        };
        let rate = flops(extents) / ranks.gpus.len() as f64 / seconds * 1e-12;
        let moves = world > 1 && !s.name.starts_with("gemm ");
        let link = (ranks.is_real() && moves).then(|| sent_bytes / seconds * 1e-9);
        let shown = |value: Option<f64>, digits: usize| value.map_or("-".to_string(), |v| format!("{v:.digits$}"));
        table.row([
            s.name.clone(),
            format!("{:.4} ms", seconds * 1e3),
            format!("{rate:.0}"),
            shown(ratio.map(|r| r.ratio), 3),
            ratio.map_or("-".to_string(), |r| format!("{:.1} %", r.spread * 100.0)),
            shown(overlap, 3),
            shown(link, 0),
        ]);
        report.row(json!({
            "extents": extents, "world": world, "gpus": ranks.gpus.len(), "candidate": s.name, "seconds": seconds,
            "slowest_rank_seconds": s.slowest_rank_seconds(), "tflops_per_gpu": rate, "against": against,
            "ratio": ratio.map(|r| r.ratio), "spread": ratio.map(|r| r.spread), "overlap": overlap, "link_gb_s": link,
        }));
        if let (Some(ratio), true) = (ratio, is_fused) {
            let place = format!("{name} world {world} on {} GPUs", ranks.gpus.len());
            report.ratio(place, format!("{} / {against}", s.name), ratio);
            if best.is_none_or(|(least, _)| ratio.ratio > least) {
                best = Some((ratio.ratio, overlap));
            }
        }
    }
    for found in if ranks.is_real() { torch::of(options.out.as_deref(), extents, world) } else { Vec::new() } {
        let rate = flops(extents) / ranks.gpus.len() as f64 / found.seconds * 1e-12;
        let (ratio, spread) = found.ratio.unzip();
        table.row([
            format!("{}, not in turns", found.name),
            format!("{:.4} ms", found.seconds * 1e3),
            format!("{rate:.0}"),
            ratio.map_or("-".to_string(), |ratio| format!("{ratio:.3} to torch's")),
            spread.map_or("-".to_string(), |spread| format!("{:.1} %", spread * 100.0)),
            "-".to_string(),
            "-".to_string(),
        ]);
        report.row(json!({
            "extents": extents, "world": world, "gpus": ranks.gpus.len(), "candidate": found.name,
            "seconds": found.seconds, "tflops_per_gpu": rate, "against": "torch gemm, then nccl", "ratio": ratio,
            "spread": spread,
        }));
    }
    let title = format!("GEMM + ReduceScatter {name}, {world} ranks on {} GPU(s); K over all ranks", ranks.gpus.len());
    report.table(title, table);
    if let (Some(goal), true) = (goal, ranks.is_real()) {
        report.goal(&format!("{name}: best ratio to {against}"), best.map(|b| b.0), goal, true);
        if m >= 4096 {
            report.goal(&format!("{name}: overlap"), best.and_then(|b| b.1), 0.95, true);
        }
    }
}

/// What a partition costs, over its size, and what a deadline costs.
fn margins(ranks: &Ranks, options: &Options, report: &mut Report) -> Result<()> {
    sweep(ranks, "margins and deadlines", [8192, 8192, 4096], &Way::sweep(ranks), options, report)
}

/// What pauses between pushed panels bring.
fn pauses(ranks: &Ranks, options: &Options, report: &mut Report) -> Result<()> {
    for extents in [[8192, 8192, 4096], [8192, 4096, 14336], [4096, 4096, 8192], [8192, 8192, 28672]] {
        sweep(ranks, "pauses", extents, &Way::pauses(), options, report)?;
    }
    Ok(())
}

/// What own tiles between others bring, after how many of them.
fn head_starts(ranks: &Ranks, options: &Options, report: &mut Report) -> Result<()> {
    for extents in [[8192, 8192, 4096], [8192, 4096, 14336], [4096, 4096, 8192], [8192, 8192, 28672]] {
        sweep(ranks, "head starts", extents, &Way::head_starts(), options, report)?;
    }
    Ok(())
}

fn sweep(
    ranks: &Ranks,
    title: &str,
    extents: [usize; 3],
    ways: &[Way],
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    let extents = ranks.fit(extents);
    let mut operands = ranks.operands(extents)?;
    let fused = Fused::all(ranks, extents, ways)?;
    fused::check(ranks, &fused, &mut operands)?;
    let calls = calls_per_sample(rough_seconds(ranks.on_one_gpu(extents)));
    let mut candidates: Vec<Candidate<'_>> = fused.iter().map(|plan| plan.candidate(calls, &operands)).collect();
    let samples = interleave(&ranks.streams, &mut candidates, options.rounds())?;
    drop(candidates);
    fused.iter().try_for_each(|plan| plan.finish())?;
    let mut table = Table::new(["candidate", "p50, worst rank", "time / first"]);
    for s in &samples {
        let relative = s.seconds() / samples[0].seconds();
        table.row([s.name.clone(), format!("{:.4} ms", s.seconds() * 1e3), format!("{relative:.3}")]);
        report.row(json!({ "sweep": shape_name(extents), "candidate": s.name, "relative": relative }));
    }
    report.table(format!("{title}, {}", shape_name(extents)), table);
    Ok(())
}
