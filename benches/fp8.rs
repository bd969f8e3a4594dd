//! GEMM on 8-bit operands against cuBLASLt, in turns, in one run: with sums that cuBLASLt promotes to f32, as ours are, and
//! with its fast accumulation, which keeps them in the tensor cores.
//!
//! Ours is timed with each of its tiles. Before a shape is timed, the errors of all three against the product in f64
//! are measured, with results in f32, so that the rounding of the result does not hide them; ours must not be larger
//! than those of cuBLASLt without fast accumulation.

mod support;

use std::process::ExitCode;

use half::bf16;
use serde_json::json;
use tilewire::cli::table::Table;
use tilewire::compare::{GemmNumerics, compare_bits, compare_placed};
use tilewire::driver::cublaslt::{CublasLt, Fp8, GemmPlan, GemmShape};
use tilewire::driver::{DeviceBuffer, Gpu, Stream};
use tilewire::kernels::config::Element;
use tilewire::matrix::Matrix;
use tilewire::measure::{Candidate, Ratio, Samples, calls_per_sample, interleave, num_sets};
use tilewire::ops::{Gemm, RankMatrices};
use tilewire::reference::gemm;
use tilewire::reference::sampled::Sample;
use tilewire::scalar::{F8E4M3, F8E5M2, Scalar};
use tilewire::{Layout, MatrixArg, Result, Scales, Variant, World, data};

use support::operands::moved_round;
use support::report::Report;
use support::shapes::fp8_shapes;
use support::{Options, flops, rough_seconds, stream_of};

/// Scales of A and B.
const FACTORS: [f32; 2] = [0.5, 1.5];

/// What everything is measured on.
struct Bench<'a> {
    gpu: &'a Gpu,
    world: World,
    stream: Stream,
    lt: CublasLt,
    rounds: usize,
    scales: [DeviceBuffer; 2],
}

/// A, B and D of one product in several places: D in bf16.
struct Operands<B> {
    a: Matrix<F8E4M3>,
    b: Matrix<B>,
    sets: Vec<[DeviceBuffer; 3]>,
}

/// Errors of one result: root mean square and largest, in deviations of an element of the result.
#[derive(Clone, Copy)]
struct Errors {
    rms: f64,
    largest: f64,
}

/// Tiles of ours that are timed; errors are those of the first, since all give the same bits.
const TILES: [[u32; 2]; 2] = [[128, 256], [128, 128]];

/// One shape's outcome. Times: ours with each tile, cuBLASLt, cuBLASLt with fast accumulation. Ratios: ours to cuBLASLt, to
/// that with fast accumulation, ours with the second tile to cuBLASLt. Errors: ours, cuBLASLt, the same with fast accumulation.
struct Row {
    name: String,
    extents: [usize; 3],
    seconds: [f64; 4],
    ratios: [Ratio; 3],
    errors: [Errors; 3],
}

fn main() -> ExitCode {
    support::main("fp8", run)
}

fn run(options: &Options, gpus: &[Gpu], report: &mut Report) -> Result<()> {
    let gpu = &gpus[0];
    let world = World::virtual_ranks(gpu.ordinal(), 1)?;
    let stream = stream_of(&world, 0, gpu)?;
    let scale = |factor: f32| DeviceBuffer::from_slice(gpu, &[factor]);
    let scales = [scale(FACTORS[0])?, scale(FACTORS[1])?];
    let bench = Bench { gpu, world, stream, lt: CublasLt::new(gpu)?, rounds: options.rounds(), scales };
    println!("{}; cuBLASLt {}", bench.world.describe(), bench.lt.version());
    let mut rows = Vec::new();
    for (extents, b, quick) in fp8_shapes(&options.shape) {
        let [m, n, k] = extents;
        let name = format!("e4m3 × {} {m}×{n}×{k}", b.name());
        if !options.wants(&name, quick) {
            continue;
        }
        let row = match b {
            Element::E5m2 => bench.measure::<F8E5M2>(name, extents)?,
            _ => bench.measure::<F8E4M3>(name, extents)?,
        };
        let [ratio, fast, second] = row.ratios.map(|ratio| ratio.ratio);
        println!("{:32} {ratio:.3}, fast accumulation {fast:.3}, 128×128 {second:.3}", row.name);
        rows.push(row);
    }
    tables(&rows, report);
    Ok(())
}

impl Bench<'_> {
    /// Checks and times one product.
    fn measure<B: Scalar>(&self, name: String, extents: [usize; 3]) -> Result<Row> {
        let mut operands = self.operands::<B>(extents)?;
        let errors = self.errors(&operands, extents)?;
        let plans = TILES.map(|tile| self.plan::<B, bf16>(extents, tile));
        let [gemm, other] = plans;
        let (gemm, other) = (gemm?, other?);
        let calls = calls_per_sample(rough_seconds(extents) / 2.0);
        let mut lts = Vec::new();
        for fast in [false, true] {
            let mut lt = self.lt_plan::<B, bf16>(extents, fast)?;
            self.select_fastest(&mut lt, &operands, calls)?;
            lts.push(lt);
        }
        let first = self.result(&mut operands, extents, |o| self.run_ours(&gemm, o, extents, 0))?;
        let sample = sample(extents)?;
        let truth = truth(&operands, &sample)?;
        let numerics = numerics(extents[2], Element::Bf16);
        let picked = sample.pick(first.view())?;
        let tolerance = numerics.tolerance_of(Element::E4m3);
        compare_placed(picked.view(), truth.view(), tolerance, |i, j| sample.place(i, j))?.check()?;
        // SAFETY: operands and plans live until the end of this function, and nothing else uses them.
        let mut candidates = unsafe {
            let mut candidates = Vec::new();
            for plan in [&gemm, &other] {
                candidates.push(Candidate::captured("tilewire", calls, &self.stream, |call| {
                    self.run_ours(plan, &operands, extents, call)
                })?);
            }
            for lt in &lts {
                candidates.push(Candidate::captured("cublaslt", calls, &self.stream, |call| {
                    self.run_lt(lt, &operands, call)
                })?);
            }
            candidates
        };
        let samples = interleave(std::slice::from_ref(&self.stream), &mut candidates, self.rounds)?;
        drop(candidates);
        // Timed calls that went wrong would show here.
        let again = self.result(&mut operands, extents, |o| self.run_ours(&gemm, o, extents, 0))?;
        compare_bits(again.view(), first.view(), 0, 0)?;
        let ratio = |baseline: &Samples, ours: &Samples| {
            let none = || tilewire::Error::argument("rounds", self.rounds, "a ratio needs at least one");
            Ratio::of(&baseline.worst(), &ours.worst()).ok_or_else(none)
        };
        let [ours, second, lt, fast] = [0, 1, 2, 3].map(|i| &samples[i]);
        let ratios = [ratio(lt, ours)?, ratio(fast, ours)?, ratio(lt, second)?];
        Ok(Row { name, extents, seconds: [0, 1, 2, 3].map(|i| samples[i].seconds()), ratios, errors })
    }

    fn operands<B: Scalar>(&self, [m, n, k]: [usize; 3]) -> Result<Operands<B>> {
        let (a, b) = (data::uniform::<F8E4M3>(m, k, 2), data::uniform::<B>(n, k, 3));
        let mut sets: Vec<[DeviceBuffer; 3]> = Vec::new();
        for set in 0..num_sets((m * k + n * k + 2 * m * n) as u64) {
            let d = DeviceBuffer::filled(self.gpu, 2 * m * n, 0xFF)?;
            let [a, b] = match sets.first() {
                None => [DeviceBuffer::from_slice(self.gpu, a.data())?, DeviceBuffer::from_slice(self.gpu, b.data())?],
                Some([a, b, _]) => [moved_round(a, set, &self.stream)?, moved_round(b, set, &self.stream)?],
            };
            sets.push([a, b, d]);
        }
        self.stream.synchronize()?;
        Ok(Operands { a, b, sets })
    }

    fn plan<B: Scalar, O: Scalar>(&self, [m, n, k]: [usize; 3], tile: [u32; 2]) -> Result<Gemm> {
        let variant = Variant { input_b: B::ELEMENT, ..Variant::new(Layout::Nt, Element::E4m3, O::ELEMENT) };
        Gemm::builder(&self.world, 0).shape(m, n, k).variant(variant).tile(tile).build()
    }

    fn lt_plan<B: Scalar, O: Scalar>(&self, extents: [usize; 3], fast_accumulation: bool) -> Result<GemmPlan> {
        let [m, n, k] = extents.map(|extent| extent as u64);
        let layout = tilewire::driver::cublaslt::Layout::Nt;
        let shape = GemmShape { layout, m, n, k, input: Element::E4m3, output: O::ELEMENT };
        let scales = [0, 1].map(|i| Some(self.scales[i].addr()));
        self.lt.plan_fp8(&shape, &Fp8 { b: B::ELEMENT, fast_accumulation, scales })
    }

    fn run_ours<B>(&self, gemm: &Gemm, operands: &Operands<B>, extents: [usize; 3], call: usize) -> Result<()> {
        let [a, b, d] = &operands.sets[call % operands.sets.len()];
        self.launch(gemm, [a, b, d], extents)
    }

    fn launch(&self, gemm: &Gemm, [a, b, d]: [&DeviceBuffer; 3], [m, n, k]: [usize; 3]) -> Result<()> {
        let arg = |buffer: &DeviceBuffer, cols| MatrixArg::packed(buffer.addr().0, cols);
        let scales = Scales { a: Some(self.scales[0].addr().0), b: Some(self.scales[1].addr().0) };
        // SAFETY: the operands have the plan's shape; the bench keeps them until it has waited for the stream.
        unsafe { gemm.launch_scaled(m, &RankMatrices { a: arg(a, k), b: arg(b, k), d: arg(d, n) }, scales, None) }
    }

    fn run_lt<B>(&self, lt: &GemmPlan, operands: &Operands<B>, call: usize) -> Result<()> {
        let [a, b, d] = &operands.sets[call % operands.sets.len()];
        // SAFETY: as above; the plan is used in this stream only.
        unsafe { lt.run(&self.stream, a.addr(), b.addr(), d.addr()) }
    }

    /// Selects the algorithm that is fastest as it will be timed: captured, over rotating buffers.
    fn select_fastest<B>(&self, lt: &mut GemmPlan, operands: &Operands<B>, calls: usize) -> Result<()> {
        let (mut candidates, mut algorithms) = (Vec::new(), Vec::new());
        for algorithm in 0..lt.algorithms() {
            lt.select(algorithm)?;
            // SAFETY: operands and plan outlive the candidates.
            let made = unsafe { Candidate::captured("", calls, &self.stream, |call| self.run_lt(lt, operands, call)) };
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

    /// What `enqueue` leaves in the poisoned result of set 0.
    fn result<B>(
        &self,
        operands: &mut Operands<B>,
        [m, n, _]: [usize; 3],
        enqueue: impl Fn(&Operands<B>) -> Result<()>,
    ) -> Result<Matrix<bf16>> {
        self.stream.synchronize()?;
        operands.sets[0][2].fill(0xFF)?;
        enqueue(operands)?;
        self.stream.synchronize()?;
        let mut values = vec![bf16::ZERO; m * n];
        operands.sets[0][2].read(0, &mut values)?;
        Matrix::from_vec(m, n, values)
    }

    /// Errors of results in f32: ours, cuBLASLt's, cuBLASLt's with fast accumulation.
    fn errors<B: Scalar>(&self, operands: &Operands<B>, extents: [usize; 3]) -> Result<[Errors; 3]> {
        let [m, n, k] = extents;
        let [a, b, _] = &operands.sets[0];
        let sample = sample(extents)?;
        let truth = truth(operands, &sample)?;
        let mut d = DeviceBuffer::new(self.gpu, 4 * m * n)?;
        let gemm = self.plan::<B, f32>(extents, TILES[0])?;
        let lts = [self.lt_plan::<B, f32>(extents, false)?, self.lt_plan::<B, f32>(extents, true)?];
        let mut errors = [Errors { rms: 0.0, largest: 0.0 }; 3];
        for (at, errors) in errors.iter_mut().enumerate() {
            d.fill(0xFF)?;
            match at {
                0 => self.launch(&gemm, [a, b, &d], extents)?,
                // SAFETY: the buffers are as large as the shape says, and waited for below.
                _ => unsafe { lts[at - 1].run(&self.stream, a.addr(), b.addr(), d.addr())? },
            }
            self.stream.synchronize()?;
            let mut values = vec![0f32; m * n];
            d.read(0, &mut values)?;
            let found = sample.pick(Matrix::from_vec(m, n, values)?.view())?;
            let deviation = numerics(k, Element::F32).scale * (k as f64).sqrt();
            let errors_of = || found.data().iter().zip(truth.data()).map(|(x, t)| (x.to_f64() - t).abs() / deviation);
            errors.rms = (errors_of().map(|e| e * e).sum::<f64>() / truth.data().len() as f64).sqrt();
            // A NaN counts as infinitely wrong.
            errors.largest = errors_of().fold(0.0, |most, e| {
                if e <= most {
                    most
                } else if e.is_nan() {
                    f64::INFINITY
                } else {
                    e
                }
            });
        }
        Ok(errors)
    }
}

fn numerics(k: usize, out: Element) -> GemmNumerics {
    let factor = f64::from(FACTORS[0] * FACTORS[1]);
    GemmNumerics { k_per_rank: k, world: 1, out, partials: Element::F32, scale: factor / 3.0 }
}

fn sample([m, n, _]: [usize; 3]) -> Result<Sample> {
    Ok(Sample::edges(m, n, 1, 128, 128)?.with_random(64, 7))
}

/// The sample's elements of the scaled product.
fn truth<B: Scalar>(operands: &Operands<B>, sample: &Sample) -> Result<Matrix<f64>> {
    let along_k: Vec<usize> = (0..operands.a.cols()).collect();
    let a = operands.a.view().pick(sample.rows(), &along_k);
    let b = operands.b.view().pick(sample.cols(), &along_k);
    let factor = f64::from(FACTORS[0] * FACTORS[1]);
    Ok(gemm(Layout::Nt, a.view(), b.view())?.map(|x| x * factor))
}

fn tables(rows: &[Row], report: &mut Report) {
    let header = [
        "A × B, M×N×K",
        "TFLOP/s",
        "128×128",
        "cuBLASLt",
        "fast",
        "ratio",
        "spread",
        "ratio to fast",
        "spread",
        "128×128 ratio",
    ];
    let mut times = Table::new(header);
    let mut accuracy = Table::new(["A × B, M×N×K", "", "rms error", "largest"]);
    for Row { name, extents, seconds, ratios, errors } in rows {
        let rate = |seconds: f64| format!("{:.0}", flops(*extents) / seconds * 1e-12);
        let percent = |spread: f64| format!("{:.1} %", spread * 100.0);
        times.row([
            name.clone(),
            rate(seconds[0]),
            rate(seconds[1]),
            rate(seconds[2]),
            rate(seconds[3]),
            format!("{:.3}", ratios[0].ratio),
            percent(ratios[0].spread),
            format!("{:.3}", ratios[1].ratio),
            percent(ratios[1].spread),
            format!("{:.3}", ratios[2].ratio),
        ]);
        for (who, errors) in ["tilewire", "cuBLASLt", "cuBLASLt, fast"].into_iter().zip(errors) {
            accuracy.row([
                name.clone(),
                who.to_string(),
                format!("{:.2e}", errors.rms),
                format!("{:.2e}", errors.largest),
            ]);
        }
        report.row(json!({
            "shape": name, "extents": extents,
            "seconds": {
                "tilewire": seconds[0], "tilewire_128x128": seconds[1], "cublaslt": seconds[2], "cublaslt_fast": seconds[3],
            },
            "ratio": ratios[0].ratio, "spread": ratios[0].spread, "ratio_to_fast": ratios[1].ratio,
            "ratio_128x128": ratios[2].ratio,
            "rms_error": errors.map(|e| e.rms), "largest_error": errors.map(|e| e.largest),
        }));
        report.ratio(name.clone(), "tilewire / cublaslt", ratios[0]);
        report.ratio(name.clone(), "tilewire / cublaslt with fast accumulation", ratios[1]);
        report.goal(&format!("ratio, {name}"), Some(ratios[0].ratio), 1.0, true);
        let worse = errors[0].rms / errors[1].rms;
        report.goal(&format!("rms error / cuBLASLt's, {name}"), Some(worse), 1.0, false);
    }
    report.table("GEMM, e4m3 × e4m3 or e5m2 → bf16; ratio above 1: faster than cuBLASLt's best", times);
    report.table("Errors with results in f32, in deviations of an element of the result", accuracy);
}
