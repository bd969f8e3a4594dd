//! One GEMM + ReduceScatter: operands, run, check, repeat.

use std::time::Instant;

use half::bf16;
use indicatif::{ProgressBar, ProgressStyle};

use super::epilogue::{Addends, EpilogueOptions};
use super::table::Table;
use crate::compare::{GemmNumerics, Report, compare_placed, operand_scale};
use crate::data;
use crate::error::Result;
use crate::kernels::abi::{Placement, Transport};
use crate::kernels::config::Element;
use crate::matrix::Matrix;
use crate::model::KShards;
use crate::ops::GemmReduceScatter;
use crate::plan::Layout;
use crate::reference::sampled::{Sample, sampled_truth};
use crate::scalar::unit_roundoff;
use crate::world::{Tensor, World};

/// What to run.
pub struct Job {
    pub name: String,
    pub m: usize,
    pub transport: Transport,
    pub placement: Placement,
    pub sm_margin: u32,
    pub epilogue: Option<EpilogueOptions>,
    pub repeats: usize,
    pub seed: u64,
}

/// The operands of every rank, m × k and n × k.
pub struct JobOperands {
    a: Vec<Matrix<bf16>>,
    b: Vec<Matrix<bf16>>,
}

/// How it went.
pub struct Outcome {
    job: String,
    shape: String,
    transport: Transport,
    placement: Placement,
    sm_margin: u32,
    seconds: Option<f64>,
    flops: f64,
    report: Report,
    bits_equal: bool,
}

impl JobOperands {
    /// Random operands for `world` ranks.
    pub fn random(m: usize, n: usize, k: usize, world: usize, seed: u64) -> Result<Self> {
        let progress = bar("making operands", 2 * world as u64);
        let make = |rows, of: u64, rank: usize| {
            let matrix = data::uniform(rows, k, seed.wrapping_mul(1 << 16).wrapping_add(of * 8 + rank as u64));
            progress.inc(1);
            matrix
        };
        let a = (0..world).map(|rank| make(m, 0, rank)).collect();
        let b = (0..world).map(|rank| make(n, 1, rank)).collect();
        progress.finish_and_clear();
        Ok(Self { a, b })
    }

    /// Weights n × K cut along K, with random activations m × K cut alike.
    pub fn from_weights(weights: &Matrix<bf16>, m: usize, world: usize, seed: u64) -> Result<Self> {
        let activations = data::uniform(m, weights.cols(), seed);
        let shards = KShards::new(weights.cols(), world)?;
        Ok(Self { a: shards.cut(activations.view())?, b: shards.cut(weights.view())? })
    }
}

impl Job {
    /// Runs the job: once for the check, then again for time and bits.
    pub fn run(&self, world: &World, operands: &JobOperands) -> Result<Outcome> {
        let ranks = world.size();
        let (m, n, k) = (self.m, operands.b[0].rows(), operands.b[0].cols());
        let builder = GemmReduceScatter::builder(world)
            .shape(m, n, k)
            .transport(self.transport)
            .placement(self.placement)
            .sm_margin(self.sm_margin);
        let plan = if self.epilogue.is_some() { builder.with_epilogue() } else { builder }.build()?;
        let progress =
            bar(&format!("{} {:?}, {:?}", self.name, self.transport, self.placement), 3 + self.repeats as u64);
        let upload = |matrices: &[Matrix<bf16>]| -> Result<Vec<Tensor>> {
            matrices
                .iter()
                .enumerate()
                .map(|(rank, x)| Tensor::from_slice(world, rank, x.rows(), x.cols(), x.data()))
                .collect()
        };
        let (a, b) = (upload(&operands.a)?, upload(&operands.b)?);
        let mut d = (0..ranks)
            .map(|rank| Tensor::poisoned::<bf16>(world, rank, plan.rows_of(m, rank), n))
            .collect::<Result<Vec<_>>>()?;
        let rows: Vec<_> = d.iter().map(Tensor::rows).collect();
        let addends = |options| Addends::random(world, options, &rows, n, self.seed);
        let addends = self.epilogue.map(addends).transpose()?;
        let epilogues = addends.as_ref().map(Addends::epilogues);
        let call = |d: &mut [Tensor]| match &epilogues {
            Some(epilogues) => plan.run_with(m, &a, &b, d, epilogues),
            None => plan.run(m, &a, &b, d),
        };
        progress.inc(1);
        call(&mut d)?;
        let first = download(&d, n)?;
        progress.inc(1);
        let report = self.check(operands, addends.as_ref(), &first)?;
        progress.inc(1);
        let (mut bits_equal, mut times) = (true, Vec::new());
        for _ in 0..self.repeats {
            for tensor in &mut d {
                tensor.poison()?;
            }
            let start = Instant::now();
            call(&mut d)?;
            times.push(start.elapsed().as_secs_f64());
            let again = download(&d, n)?;
            bits_equal &= first.iter().zip(&again).all(|(x, y)| {
                let bits = |m: &Matrix<bf16>| -> Vec<u16> { bytemuck::cast_slice(m.data()).to_vec() };
                bits(x) == bits(y)
            });
            progress.inc(1);
        }
        progress.finish_and_clear();
        times.sort_by(f64::total_cmp);
        Ok(Outcome {
            job: self.name.clone(),
            shape: format!("{m}×{n}×{k}"),
            transport: self.transport,
            placement: self.placement,
            sm_margin: self.sm_margin,
            seconds: world.is_gpu().then(|| times[times.len() / 2]),
            flops: 2.0 * m as f64 * n as f64 * k as f64 * ranks as f64,
            report,
            bits_equal,
        })
    }

    /// Compares with the unsharded product and its epilogue: every element of a small result, edges and random places of a
    /// large one.
    fn check(&self, operands: &JobOperands, addends: Option<&Addends>, actual: &[Matrix<bf16>]) -> Result<Report> {
        let (m, n, k) = (self.m, operands.b[0].rows(), operands.b[0].cols());
        let ranks = operands.a.len();
        let pairs: Vec<_> = operands.a.iter().zip(&operands.b).map(|(a, b)| (a.view(), b.view())).collect();
        let sample = Sample::edges(m, n, ranks, 128, 256)?.with_random(64, self.seed);
        let truth = sampled_truth(Layout::Nt, &pairs, &sample)?;
        let views: Vec<_> = actual.iter().map(Matrix::view).collect();
        let picked = sample.pick_chunks(&views)?;
        let numerics = GemmNumerics {
            k_per_rank: k,
            world: ranks,
            out: Element::Bf16,
            partials: Element::Bf16,
            scale: operand_scale(operands.a[0].view(), operands.b[0].view()),
        };
        let (mut truth, mut tolerance) = (truth, numerics.tolerance());
        if let Some(addends) = addends {
            if ranks == 1 {
                // One rank's partial is rounded before the epilogue, too.
                tolerance.absolute += 8.0 * numerics.scale * (k as f64).sqrt() * unit_roundoff(numerics.out);
            }
            (truth, tolerance) = addends.expected(&sample, &truth, tolerance, (k * ranks) as f64)?;
        }
        compare_placed(picked.view(), truth.view(), tolerance, |i, j| sample.place(i, j))
    }
}

fn download(d: &[Tensor], n: usize) -> Result<Vec<Matrix<bf16>>> {
    d.iter().map(|t| Matrix::from_vec(t.rows(), n, t.to_vec::<bf16>()?)).collect()
}

fn bar(message: &str, steps: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} [{bar:30}] {pos}/{len} {elapsed}");
    let bar = ProgressBar::new(steps).with_message(message.to_string());
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Prints the table; whether everything was right.
pub fn print_outcomes(world: &World, outcomes: &[Outcome]) -> bool {
    let mut table = Table::new([
        "job",
        "M×N×K per rank",
        "world",
        "transport",
        "reduction",
        "sm_margin",
        "time",
        "TFLOP/s",
        "largest error",
        "bits equal",
        "verdict",
    ]);
    for o in outcomes {
        let worst = o.report.largest_absolute.as_ref();
        table.row([
            o.job.clone(),
            o.shape.clone(),
            world.size().to_string(),
            format!("{:?}", o.transport).to_lowercase(),
            format!("{:?}", o.placement).to_lowercase(),
            o.sm_margin.to_string(),
            o.seconds.map_or("-".to_string(), |s| format!("{:.3} ms", s * 1e3)),
            o.seconds.map_or("-".to_string(), |s| format!("{:.0}", o.flops / s * 1e-12)),
            worst.map_or("none".to_string(), |x| format!("{:.2e}", x.error)),
            if o.bits_equal { "yes" } else { "NO" }.to_string(),
            if o.is_right() { "pass" } else { "FAIL" }.to_string(),
        ]);
    }
    println!("{table}");
    for o in outcomes.iter().filter(|o| !o.report.passed()) {
        println!("{}: {}", o.job, o.report);
    }
    let right = !outcomes.is_empty() && outcomes.iter().all(Outcome::is_right);
    println!("verdict: {}", if right { "pass" } else { "FAIL" });
    right
}

impl Outcome {
    fn is_right(&self) -> bool {
        self.bits_equal && self.report.passed()
    }
}
