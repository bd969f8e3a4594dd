//! GEMM against cuBLASLt, in turns, in one run.
//!
//! cuBLASLt's time is that of the fastest of the first eight algorithms that its heuristics name, found here on the same
//! buffers. Every result is checked before it is timed, against cuBLASLt's and, in places, against the product in f64.

mod support;

use std::process::ExitCode;
use std::time::Instant;

use half::bf16;
use serde_json::json;
use tilewire::cli::table::Table;
use tilewire::compare::{GemmNumerics, Tolerance, compare, compare_bits, compare_placed};
use tilewire::driver::cublaslt::{CublasLt, GemmPlan, GemmShape};
use tilewire::driver::{Gpu, Stream};
use tilewire::kernels::config::Element;
use tilewire::matrix::Matrix;
use tilewire::measure::{Candidate, Ratio, Samples, calls_per_sample, geometric_mean, interleave, median, num_sets};
use tilewire::ops::{Gemm, RankMatrices};
use tilewire::reference::sampled::{Sample, sampled_gemm};
use tilewire::{Layout, Result, SplitK, Variant, World};

use support::operands::Operands;
use support::report::Report;
use support::shapes::{Product, gemm_products};
use support::{Options, cublaslt_layout, flops, rough_seconds, stream_of};

/// What everything is measured on.
struct Bench<'a> {
    gpu: &'a Gpu,
    world: World,
    stream: Stream,
    lt: CublasLt,
    rounds: usize,
}

/// One shape's outcome.
struct Row {
    product: Product,
    ours: f64,
    theirs: f64,
    ratio: Ratio,
}

fn main() -> ExitCode {
    support::main("gemm", run)
}

fn run(options: &Options, gpus: &[Gpu], report: &mut Report) -> Result<()> {
    let world = World::virtual_ranks(gpus[0].ordinal(), 1)?;
    let stream = stream_of(&world, 0, &gpus[0])?;
    let bench = Bench { gpu: &gpus[0], lt: CublasLt::new(&gpus[0])?, world, stream, rounds: options.rounds() };
    println!("{}; cuBLASLt {}", bench.world.describe(), bench.lt.version());
    let mut rows = Vec::new();
    for product in gemm_products(&options.shape).into_iter().filter(|p| options.wants(&p.name(), p.quick)) {
        let row = bench.measure(product)?;
        println!("{:28} {:.3}", row.product.name(), row.ratio.ratio);
        rows.push(row);
    }
    shapes_table(&rows, report);
    let is_whole = options.only.is_empty() && options.shape.is_empty();
    let margins = if is_whole { bench.margins(report)? } else { None };
    if is_whole {
        bench.cuts(report)?;
        bench.rasters(report)?;
    }
    let host = bench.host_cost()?;
    println!("host cost of a call, median of 1000: ours {:.2} µs, cuBLASLt {:.2} µs", host[0], host[1]);
    report.row(json!({ "host_us": { "tilewire": host[0], "cublaslt": host[1] } }));
    goals(&rows, margins, host[0], report);
    Ok(())
}

impl Bench<'_> {
    /// Checks and times one product.
    fn measure(&self, product: Product) -> Result<Row> {
        let (Product { layout, extents, .. }, m) = (product.clone(), product.extents[0]);
        let sets = num_sets(Operands::set_bytes(extents, m));
        let mut operands = Operands::new(self.gpu, &self.stream, layout, extents, m, sets, 1)?;
        let gemm = self.plan(layout, extents, 0)?;
        let mut lt = self.lt.plan(&cublaslt_shape(layout, extents))?;
        let calls = calls_per_sample(rough_seconds(extents));
        self.select_fastest(&mut lt, &operands, calls)?;
        let theirs = self.result(&mut operands, |operands| run_lt(&lt, &self.stream, operands, 0))?;
        let ours = self.result(&mut operands, |operands| run_ours(&gemm, operands, 0))?;
        check(&product, &operands, &ours, &theirs)?;
        // SAFETY: operands and plans live until the end of this function, and nothing else uses them.
        let mut candidates = unsafe {
            [
                Candidate::captured("tilewire", calls, &self.stream, |call| run_ours(&gemm, &operands, call))?,
                Candidate::captured("cublaslt", calls, &self.stream, |call| {
                    run_lt(&lt, &self.stream, &operands, call)
                })?,
            ]
        };
        let samples = interleave(std::slice::from_ref(&self.stream), &mut candidates, self.rounds)?;
        drop(candidates);
        // Timed calls that went wrong would show here.
        let again = self.result(&mut operands, |operands| run_ours(&gemm, operands, 0))?;
        compare_bits(again.view(), ours.view(), 0, 0)?;
        let none = || tilewire::Error::argument("rounds", self.rounds, "a ratio needs at least one");
        let ratio = Ratio::of(&samples[1].worst(), &samples[0].worst()).ok_or_else(none)?;
        Ok(Row { product, ours: samples[0].seconds(), theirs: samples[1].seconds(), ratio })
    }

    fn plan(&self, layout: Layout, [m, n, k]: [usize; 3], sm_margin: u32) -> Result<Gemm> {
        let variant = Variant { layout, ..Variant::default() };
        Gemm::builder(&self.world, 0).shape(m, n, k).variant(variant).sm_margin(sm_margin).build()
    }

    /// Selects the algorithm that is fastest as it will be timed: captured, over rotating buffers.
    fn select_fastest(&self, lt: &mut GemmPlan, operands: &Operands, calls: usize) -> Result<()> {
        let (mut candidates, mut algorithms) = (Vec::new(), Vec::new());
        for algorithm in 0..lt.algorithms() {
            lt.select(algorithm)?;
            // SAFETY: operands and plan outlive the candidates.
            let made = unsafe {
                Candidate::captured("", calls, &self.stream, |call| run_lt(lt, &self.stream, operands, call))
            };
            // An algorithm that refuses the shape is passed over; if all do, the next call says so.
            if let Ok(candidate) = made {
                candidates.push(candidate);
                algorithms.push(algorithm);
            }
        }
        let samples = interleave(std::slice::from_ref(&self.stream), &mut candidates, 5)?;
        let seconds = |at: &usize| samples[*at].seconds();
        let best = (0..samples.len()).min_by(|a, b| seconds(a).total_cmp(&seconds(b)));
        lt.select(best.map_or(0, |best| algorithms[best]))
    }

    /// What `enqueue` leaves in a poisoned result.
    fn result(&self, operands: &mut Operands, enqueue: impl Fn(&Operands) -> Result<()>) -> Result<Matrix<bf16>> {
        self.stream.synchronize()?;
        operands.poison()?;
        enqueue(operands)?;
        self.stream.synchronize()?;
        operands.result(operands.extents[0])
    }

    /// Each tile whole, cut into parts and cut into runs, and 64×64 with as few columns as make one wave, beside what a
    /// plan chooses by itself and what it takes where no call may start before the one ahead has ended.
    fn cuts(&self, report: &mut Report) -> Result<()> {
        let cut = [[128, 256], [128, 128], [64, 128], [128, 64], [64, 64]];
        let whole = [[128, 192], [128, 176], [128, 160], [128, 144], [128, 96], [64, 192], [64, 96]];
        let named = |[rows, cols]: [u32; 2]| format!("{rows}×{cols}");
        let of_cut = |tile| [named(tile), "parts".to_string(), "runs".to_string()];
        let first = std::iter::once("nt M×N×K, µs".to_string());
        let last = ["chosen", "tile", "chosen / best", "not early", "early / not"].map(str::to_string);
        let narrow = std::iter::once("columns".to_string());
        let tiles = cut.into_iter().flat_map(of_cut).chain(narrow).chain(whole.into_iter().map(named));
        let mut table = Table::new(first.chain(tiles).chain(last));
        for extents in [
            [8192, 1280, 8192],
            [2048, 4608, 12288],
            [4096, 4096, 4096],
            [512, 12288, 6144],
            [512, 4608, 12288],
            [512, 12288, 1536],
            [128, 12288, 6144],
            [128, 4608, 12288],
            [128, 12288, 1536],
            [16, 12288, 6144],
            [16, 6144, 12288],
            [16, 12288, 1536],
            [128, 6144, 12288],
            [1, 4608, 12288],
            [1, 12288, 6144],
            [1, 6144, 12288],
            [16, 4608, 12288],
            [8192, 7168, 8192],
            [8192, 12288, 1536],
            [8192, 6144, 12288],
            [2048, 12288, 1536],
            [512, 6144, 12288],
            [64, 8192, 8192],
        ] {
            let [m, n, k] = extents;
            let sets = num_sets(Operands::set_bytes(extents, m));
            let operands = Operands::new(self.gpu, &self.stream, Layout::Nt, extents, m, sets, 1)?;
            let fixed =
                |tile: [u32; 2], split_k| Gemm::builder(&self.world, 0).shape(m, n, k).tile(tile).split_k(split_k);
            // What could have fewer columns is whole with all of them.
            let whole_of = |tile: [u32; 2], split_k| match (tile[1], split_k) {
                (64, SplitK::Never) => fixed(tile, split_k).tile_cols(64).build(),
                _ => fixed(tile, split_k).build(),
            };
            let tiles_a_row = (self.world.ctas(0) as usize / m.div_ceil(64)).max(1);
            let cols = n.div_ceil(tiles_a_row).next_multiple_of(8).min(64);
            let mut plans = Vec::new();
            for tile in cut {
                let cuts = [SplitK::Never, SplitK::Always, SplitK::Runs];
                plans.extend(cuts.into_iter().map(|cut| whole_of(tile, cut)).collect::<Result<Vec<_>>>()?);
            }
            let narrow_at = plans.len();
            plans.push(fixed([64, 64], SplitK::Never).tile_cols(cols as u32).build()?);
            plans.extend(whole.into_iter().map(|tile| whole_of(tile, SplitK::Never)).collect::<Result<Vec<_>>>()?);
            plans.push(self.plan(Layout::Nt, extents, 0)?);
            plans.push(Gemm::builder(&self.world, 0).shape(m, n, k).dependent_launch(false).build()?);
            let us: Vec<f64> = self.seconds_of(&plans, &operands)?.into_iter().map(|seconds| seconds * 1e6).collect();
            let [fixed @ .., chosen, not_early] = us.as_slice() else {
                return Err(tilewire::Error::argument("plans", us.len(), "there are some"));
            };
            let best = fixed.iter().copied().fold(f64::INFINITY, f64::min);
            let shape = format!("{m}×{n}×{k}");
            let mut cells = vec![shape.clone()];
            cells.extend(fixed.iter().chain([chosen]).map(|us| format!("{us:.1}")));
            cells[1 + narrow_at] += &format!(" by {cols}");
            cells.push(named(plans[fixed.len()].tile_of(m)?));
            cells.push(format!("{:.3}", chosen / best));
            cells.push(format!("{not_early:.1}"));
            cells.push(format!("{:.3}", chosen / not_early));
            table.row(cells);
            report.row(json!({ "cuts": shape, "us": us }));
        }
        report.table("What cutting tiles along K brings", table);
        Ok(())
    }

    /// Seconds of a call by each of the plans, in turns.
    fn seconds_of(&self, plans: &[Gemm], operands: &Operands) -> Result<Vec<f64>> {
        let calls = calls_per_sample(rough_seconds(operands.extents));
        // SAFETY: operands and plans outlive the candidates, and nothing else uses them.
        let captured = plans
            .iter()
            .map(|plan| unsafe { Candidate::captured("", calls, &self.stream, |call| run_ours(plan, operands, call)) });
        let mut candidates = captured.collect::<Result<Vec<_>>>()?;
        let samples = interleave(std::slice::from_ref(&self.stream), &mut candidates, 9)?;
        Ok(samples.iter().map(Samples::seconds).collect())
    }

    /// The order of tiles: how many rows of tiles are walked together, against what plans take.
    fn rasters(&self, report: &mut Report) -> Result<()> {
        let groups = [2, 4, 8, 12, 16, 24, 32];
        let mut table = Table::new(
            std::iter::once("nt M×N×K, time against the default's".to_string())
                .chain(groups.iter().map(|group| format!("{group} rows of tiles"))),
        );
        for extents in
            [[8192, 8192, 8192], [8192, 7168, 8192], [8192, 8192, 3584], [16384, 8192, 2048], [8192, 12288, 1536]]
        {
            let [m, n, k] = extents;
            let sets = num_sets(Operands::set_bytes(extents, m));
            let operands = Operands::new(self.gpu, &self.stream, Layout::Nt, extents, m, sets, 1)?;
            let builder = || Gemm::builder(&self.world, 0).shape(m, n, k);
            let of_groups = groups.into_iter().map(|group| builder().raster_group(group).build());
            let plans = std::iter::once(builder().build()).chain(of_groups).collect::<Result<Vec<_>>>()?;
            let seconds = self.seconds_of(&plans, &operands)?;
            let shape = format!("{m}×{n}×{k}");
            let against = seconds[1..].iter().map(|time| format!("{:.3}", time / seconds[0]));
            table.row(std::iter::once(shape.clone()).chain(against));
            report.row(json!({ "rasters": shape, "groups": groups, "seconds": seconds }));
        }
        report.table("Rows of tiles that are walked together", table);
        Ok(())
    }

    /// Throughput with SMs set apart, as a share of what the remaining SMs should give; the worst of them.
    fn margins(&self, report: &mut Report) -> Result<Option<f64>> {
        let extents = [8192, 8192, 3584];
        let sms = self.world.ctas(0);
        let margins: Vec<u32> = [0, 2, 4, 8, 16, 32].into_iter().filter(|margin| *margin < sms).collect();
        let sets = num_sets(Operands::set_bytes(extents, extents[0]));
        let operands = Operands::new(self.gpu, &self.stream, Layout::Nt, extents, extents[0], sets, 1)?;
        let plans = margins.iter().map(|s| self.plan(Layout::Nt, extents, *s)).collect::<Result<Vec<_>>>()?;
        let calls = calls_per_sample(rough_seconds(extents));
        let mut candidates = Vec::new();
        for plan in &plans {
            // SAFETY: operands and plans outlive the candidates.
            candidates
                .push(unsafe { Candidate::captured("", calls, &self.stream, |call| run_ours(plan, &operands, call))? });
        }
        let samples = interleave(std::slice::from_ref(&self.stream), &mut candidates, self.rounds)?;
        let mut table = Table::new(["sm_margin", "throughput / full", "of the SMs' share"]);
        let mut worst = f64::INFINITY;
        for (margin, sample) in margins.iter().zip(&samples) {
            let throughput = samples[0].seconds() / sample.seconds();
            let share = throughput / (f64::from(sms - margin) / f64::from(sms));
            worst = worst.min(share);
            table.row([margin.to_string(), format!("{throughput:.3}"), format!("{share:.3}")]);
            report.row(json!({ "sm_margin": margin, "throughput": throughput, "share": share }));
        }
        report.table("GEMM 8192×8192×3584 with SMs set apart", table);
        Ok(worst.is_finite().then_some(worst))
    }

    /// Microseconds that a call takes on the host, the median of 1000 calls without a wait: ours, cuBLASLt's. The product is
    /// so small that the queue never fills.
    fn host_cost(&self) -> Result<[f64; 2]> {
        let extents = [128, 256, 64];
        let operands = Operands::new(self.gpu, &self.stream, Layout::Nt, extents, extents[0], 2, 1)?;
        let gemm = self.plan(Layout::Nt, extents, 0)?;
        let lt = self.lt.plan(&cublaslt_shape(Layout::Nt, extents))?;
        let cost = |enqueue: &dyn Fn(usize) -> Result<()>| -> Result<f64> {
            let mut costs = Vec::with_capacity(1000);
            for call in 0..1000 {
                if call % 100 == 0 {
                    self.stream.synchronize()?;
                }
                let start = Instant::now();
                enqueue(call)?;
                costs.push(start.elapsed().as_secs_f64() * 1e6);
            }
            self.stream.synchronize()?;
            Ok(median(&costs).unwrap_or(f64::NAN))
        };
        Ok([cost(&|call| run_ours(&gemm, &operands, call))?, cost(&|call| run_lt(&lt, &self.stream, &operands, call))?])
    }
}

fn run_ours(gemm: &Gemm, operands: &Operands, call: usize) -> Result<()> {
    let [a, b, d] = operands.args(call);
    // SAFETY: the operands have the plan's shape; the bench keeps them until it has waited for the stream.
    unsafe { gemm.launch(operands.extents[0], &RankMatrices { a, b, d }, None) }
}

fn run_lt(lt: &GemmPlan, stream: &Stream, operands: &Operands, call: usize) -> Result<()> {
    let [a, b, d] = operands.set(call);
    // SAFETY: as above; the plan is used in this stream only.
    unsafe { lt.run(stream, a.addr(), b.addr(), d.addr()) }
}

fn cublaslt_shape(layout: Layout, extents: [usize; 3]) -> GemmShape {
    let [m, n, k] = extents.map(|extent| extent as u64);
    GemmShape { layout: cublaslt_layout(layout), m, n, k, input: Element::Bf16, output: Element::Bf16 }
}

/// Both results against the truth in f64, in places, and against each other everywhere.
fn check(product: &Product, operands: &Operands, ours: &Matrix<bf16>, theirs: &Matrix<bf16>) -> Result<()> {
    let [m, n, k] = product.extents;
    let (out, partials) = (Element::Bf16, Element::F32);
    let tolerance = GemmNumerics { k_per_rank: k, world: 1, out, partials, scale: 1.0 / 3.0 }.tolerance();
    let sample = Sample::edges(m, n, 1, 128, 256)?.with_random(64, 7);
    let truth = sampled_gemm(product.layout, operands.a.view(), operands.b.view(), &sample)?;
    for result in [ours, theirs] {
        let picked = sample.pick(result.view())?;
        compare_placed(picked.view(), truth.view(), tolerance, |i, j| sample.place(i, j))?.check()?;
    }
    // Each may be off by the tolerance, in opposite directions.
    let twice = Tolerance { absolute: 2.0 * tolerance.absolute, relative: 2.0 * tolerance.relative };
    compare(ours.view(), theirs.map(|x| x.to_f64()).view(), twice)?.check().map(drop)
}

fn shapes_table(rows: &[Row], report: &mut Report) {
    let mut table = Table::new(["layout M×N×K", "of", "time", "TFLOP/s", "cuBLASLt", "TFLOP/s", "ratio", "spread"]);
    for Row { product, ours, theirs, ratio } in rows {
        let flops = flops(product.extents);
        let milliseconds = |seconds: f64| format!("{:.4} ms", seconds * 1e3);
        let rate = |seconds: f64| format!("{:.0}", flops / seconds * 1e-12);
        table.row([
            product.name(),
            product.of.to_string(),
            milliseconds(*ours),
            rate(*ours),
            milliseconds(*theirs),
            rate(*theirs),
            format!("{:.3}", ratio.ratio),
            format!("{:.1} %", ratio.spread * 100.0),
        ]);
        report.row(json!({
            "layout": product.layout.to_string(), "extents": product.extents, "of": product.of,
            "seconds": { "tilewire": ours, "cublaslt": theirs }, "ratio": ratio.ratio, "spread": ratio.spread,
        }));
        report.ratio(product.name(), "tilewire / cublaslt", *ratio);
    }
    report.table("GEMM, bf16 → bf16; ratio above 1: faster than cuBLASLt's best", table);
}

fn goals(rows: &[Row], margins: Option<f64>, host_us: f64, report: &mut Report) {
    let ratios = |wanted: &dyn Fn(&Product) -> bool| -> Vec<f64> {
        rows.iter().filter(|row| wanted(&row.product)).map(|row| row.ratio.ratio).collect()
    };
    let least = |ratios: &[f64]| ratios.iter().copied().reduce(f64::min);
    let large = ratios(&|p| p.is_large() && p.layout == Layout::Nt);
    report.goal("ratio, geometric mean, M ≥ 2048, nt", geometric_mean(&large), 1.05, true);
    report.goal("ratio, worst, M ≥ 2048, nt", least(&large), 1.0, true);
    report.goal("ratio, worst, M ≤ 512", least(&ratios(&|p| p.extents[0] <= 512)), 0.97, true);
    for layout in [Layout::Nn, Layout::Tn] {
        let figure = format!("ratio, geometric mean, {layout}");
        report.goal(&figure, geometric_mean(&ratios(&|p| p.layout == layout)), 1.0, true);
    }
    report.goal("throughput with a margin, of the SMs' share, worst", margins, 0.98, true);
    report.goal("host cost of a call, µs", Some(host_us), 5.0, false);
}
