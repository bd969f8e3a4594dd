//! Thousands of seeded schedules of the real kernels: every one keeps the rules of the machine and gives the same bits.
//!
//! `TILEWIRE_SCHEDULES=N` sets how many run, `TILEWIRE_SEED=S` replays schedule S alone. The schedule's number settles
//! everything: the case, the delays, the order of turns and copies.

mod suite;

use half::bf16;
use rayon::prelude::*;
use suite::{Case, Operands, WAYS};
use tilewire::emulator::{Copies, Delay, EmulatorOptions, Turns};
use tilewire::kernels::shape::Rank;
use tilewire::matrix::Matrix;
use tilewire::ops::{Gemm, GemmReduceScatter, RankMatrices};
use tilewire::reference::gemm;
use tilewire::world::EmulatedOptions;
use tilewire::{Error, Layout, Tensor, World};

/// Schedules of a run that asks for no number.
const SCHEDULES: u64 = 5_000;

/// M, N, K: one tile and several, whole and ragged, of the main tile and of the small one.
const SHAPES: [(usize, usize, usize); 10] = [
    (64, 72, 24),
    (9, 104, 136),
    (130, 72, 64),
    (200, 136, 40),
    (77, 264, 72),
    (33, 128, 200),
    (1, 80, 64),
    (150, 256, 24),
    (196, 88, 100),
    (118, 200, 128),
];

/// One way to run one call.
#[derive(Clone, Debug)]
struct Run {
    number: u64,
    /// `None` for the plain GEMM.
    case: Option<Case>,
    shape: (usize, usize, usize),
    ranks: usize,
    ctas: u32,
    calls: usize,
    options: EmulatorOptions,
}

/// Operands, but for the plain GEMM, and D of every rank.
type Results = Result<(Option<Operands<bf16>>, Vec<Matrix<bf16>>), Error>;

/// A well-mixed number for each draw of a schedule.
fn draw(number: u64, of: u64, below: u64) -> usize {
    (tilewire::data::random_at(number, of, 0) % below) as usize
}

impl Run {
    fn of(number: u64) -> Self {
        let pick = |of, below| draw(number, of, below);
        let shape = SHAPES[pick(0, SHAPES.len() as u64)];
        let is_gemm = pick(1, 8) == 0;
        let ranks = if is_gemm { 1 } else { 1 + pick(2, 8) };
        let (transport, placement, margin) = WAYS[pick(3, WAYS.len() as u64)];
        let case = (!is_gemm).then(|| Case::new(shape.0, shape.1, shape.2).over(transport, placement, margin));
        let mut options = EmulatorOptions::with_seed(number);
        options.schedule.yield_per_1024 = [64, 256, 1024][pick(4, 3)];
        options.schedule.turns = [Turns::Uniform, Turns::Sticky, Turns::Priority][pick(5, 3)];
        options.schedule.copies =
            [Copies::Last, Copies::Per1024(16), Copies::Per1024(128), Copies::Per1024(700)][pick(6, 4)];
        let delay = [None, None, Some(Delay::Seldom(16)), Some(Delay::Seldom(200)), Some(Delay::UntilOthersBlock)];
        for rank in 0..ranks {
            let drawn = delay[pick(16 + rank as u64, delay.len() as u64)];
            options.delays.extend(drawn.map(|d| (Rank(rank as u32), d)));
        }
        let ctas = 3 - u32::from(margin == 0) * pick(7, 2) as u32;
        let calls = if pick(8, 8) == 0 { 4 } else { 1 };
        Self { number, case, shape, ranks, ctas, calls, options }
    }

    fn world(&self, options: EmulatorOptions) -> Result<World, Error> {
        let emulated = EmulatedOptions { ctas_per_rank: self.ctas, emulator: options, ..EmulatedOptions::default() };
        World::emulated_with(self.ranks, emulated)
    }

    /// D of every rank, as bits.
    fn bits(&self, options: EmulatorOptions) -> Result<Vec<Vec<u16>>, Error> {
        Ok(self.results(options)?.1.iter().map(|d| d.data().iter().map(|x| x.to_bits()).collect()).collect())
    }

    fn results(&self, options: EmulatorOptions) -> Results {
        let world = self.world(options)?;
        let Some(case) = self.case else { return Ok((None, vec![self.gemm(&world)?])) };
        let operands = Operands::new(&world, &case, suite::uniform)?;
        let plan = suite::plan::<bf16, bf16>(&world, &case)?;
        let d = if self.calls == 1 {
            suite::run(&world, &plan, &case, &operands)?
        } else {
            self.run_in_a_row(&world, &plan, &case, &operands)?
        };
        Ok((Some(operands), d))
    }

    /// Calls that do not wait for each other: ranks run ahead of one another as far as credits let them.
    fn run_in_a_row(
        &self,
        world: &World,
        plan: &GemmReduceScatter,
        case: &Case,
        operands: &Operands<bf16>,
    ) -> Result<Vec<Matrix<bf16>>, Error> {
        let d = (0..self.ranks)
            .map(|rank| Tensor::poisoned::<bf16>(world, rank, plan.rows_of(case.m, rank), case.n))
            .collect::<Result<Vec<_>, _>>()?;
        let (a, b) = (&operands.a_tensors, &operands.b_tensors);
        let matrices: Vec<_> =
            (0..self.ranks).map(|r| RankMatrices { a: a[r].arg(), b: b[r].arg(), d: d[r].arg() }).collect();
        for _ in 0..self.calls {
            // SAFETY: the tensors have the shapes of the call and outlive `finish`.
            unsafe { plan.launch(case.m, &matrices, None)? };
        }
        plan.finish()?;
        d.iter().map(|t| Matrix::from_vec(t.rows(), t.cols(), t.to_vec()?)).collect()
    }

    fn gemm_operands(&self) -> [Matrix<bf16>; 2] {
        let (m, n, k) = self.shape;
        [suite::uniform(m, k, 1), suite::uniform(n, k, 2)]
    }

    fn gemm(&self, world: &World) -> Result<Matrix<bf16>, Error> {
        let (m, n, k) = self.shape;
        let [a, b] = self.gemm_operands();
        let (a, b) = (Tensor::from_slice(world, 0, m, k, a.data())?, Tensor::from_slice(world, 0, n, k, b.data())?);
        let mut d = Tensor::poisoned::<bf16>(world, 0, m, n)?;
        Gemm::builder(world, 0).shape(m, n, k).build()?.run(m, &a, &b, &mut d)?;
        Matrix::from_vec(m, n, d.to_vec()?)
    }

    /// What decides the result's bits: shape and ranks, but for the plain GEMM, which rounds once.
    fn problem(&self) -> Problem {
        Problem { shape: self.shape, ranks: self.ranks, is_gemm: self.case.is_none() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Problem {
    shape: (usize, usize, usize),
    ranks: usize,
    is_gemm: bool,
}

/// The bits of one problem in the plainest way, once they are known to be near the truth.
fn reference(problem: Problem) -> Result<Vec<Vec<u16>>, String> {
    let (m, n, k) = problem.shape;
    let run = Run {
        number: 0,
        case: (!problem.is_gemm).then(|| Case::new(m, n, k)),
        shape: problem.shape,
        ranks: problem.ranks,
        ctas: 3,
        calls: 1,
        options: EmulatorOptions::with_seed(0),
    };
    let (operands, d) = run.results(run.options.clone()).map_err(|e| format!("{problem:?}: {e}"))?;
    match (run.case, operands) {
        (Some(case), Some(operands)) => suite::check(&case, &operands, &d)?,
        _ => {
            let [a, b] = run.gemm_operands();
            let truth = gemm(Layout::Nt, a.view(), b.view()).map_err(|e| e.to_string())?;
            let near = |(x, y): (&bf16, &f64)| (x.to_f64() - y).abs() <= 2f64.powi(-7) * (y.abs() + 0.1);
            if !d[0].data().iter().zip(truth.data()).all(near) {
                return Err(format!("{problem:?}: far from the truth"));
            }
        }
    }
    Ok(d.iter().map(|d| d.data().iter().map(|x| x.to_bits()).collect()).collect())
}

fn number_from(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|e| panic!("{name}={text}: {e}")))
}

#[test]
fn thousands_of_schedules_keep_the_rules_and_give_the_same_bits() {
    let numbers = match number_from("TILEWIRE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number_from("TILEWIRE_SCHEDULES").unwrap_or(SCHEDULES),
    };
    let start = std::time::Instant::now();
    let mut problems: Vec<Problem> = numbers.clone().into_par_iter().map(|n| Run::of(n).problem()).collect();
    problems.sort_unstable();
    problems.dedup();
    let references: std::collections::HashMap<_, _> =
        problems.par_iter().map(|p| (*p, reference(*p).unwrap_or_else(|e| panic!("{e}")))).collect();
    let count = numbers.end - numbers.start;
    let wrong: Vec<String> = numbers
        .into_par_iter()
        .filter_map(|number| {
            let run = Run::of(number);
            match run.bits(run.options.clone()) {
                Ok(bits) if bits == references[&run.problem()] => None,
                Ok(_) => Some(format!("TILEWIRE_SEED={number} replays: other bits in {run:?}")),
                Err(e) => Some(format!("TILEWIRE_SEED={number} replays: {e}\n  in {run:?}")),
            }
        })
        .collect();
    let seconds = start.elapsed().as_secs_f64();
    println!("{count} schedules of {} problems in {seconds:.1} s", problems.len());
    let shown: Vec<_> = wrong.iter().take(5).cloned().collect();
    assert!(wrong.is_empty(), "{} of {count} schedules are wrong; the first:\n{}", wrong.len(), shown.join("\n"));
}

#[test]
fn schedules_cover_every_way_and_every_world_size() {
    let runs: Vec<Run> = (0..SCHEDULES).map(Run::of).collect();
    for ranks in 1..=8 {
        for way in WAYS {
            let here =
                |r: &&Run| r.ranks == ranks && r.case.is_some_and(|c| (c.transport, c.placement, c.sm_margin) == way);
            assert!(runs.iter().filter(here).count() >= 10, "{ranks} ranks, {way:?}");
        }
    }
    assert!(runs.iter().filter(|r| r.case.is_none()).count() >= 100);
    assert!(runs.iter().enumerate().all(|(n, r)| r.number == n as u64));
}
