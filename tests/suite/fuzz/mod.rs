//! Differential fuzzing: a case is drawn from its seed, runs on any world, and is compared with the references.
//!
//! Integers are compared bit by bit, other operands within the tolerance that K allows, and a repeat bit by bit. Every
//! matrix lies in memory of its own with guards round it and gaps between its rows.

use std::time::{Duration, Instant};

use half::{bf16, f16};
use tilewire::data;
use tilewire::kernels::abi::{Placement, Transport};
use tilewire::kernels::config::Element;
use tilewire::matrix::Matrix;
use tilewire::ops::{Gemm, GemmReduceScatter, RankMatrices};
use tilewire::reference::{fused, gemm};
use tilewire::scalar::Scalar;
use tilewire::world::World;
use tilewire::{Error, Layout, Variant};

use super::raw::{Guarded, GuardedCall};
use super::{Case, Operands, TestResult, WAYS, bits, check};

/// What a machine can take, and in reasonable time.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub ranks: usize,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    /// Multiplications of one call, over all ranks.
    pub products: usize,
}

/// Which op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FuzzOp {
    Gemm,
    GemmReduceScatter,
}

/// One case: everything but the machine.
#[derive(Clone, Debug)]
pub struct FuzzCase {
    pub seed: u64,
    pub op: FuzzOp,
    pub ranks: usize,
    /// Shape, layout, way of the tiles, first epoch; `m` is the most rows of any call.
    pub case: Case,
    pub input: Element,
    pub output: Element,
    pub raster_group: u32,
    /// Elements between rows, beside those that alignment asks for.
    pub gap: usize,
    /// Largest integer operand, or `None` for numbers that are no integers.
    pub integers: Option<u32>,
    /// Rows of each call.
    pub calls: Vec<usize>,
}

/// Extents at which something changes: tiles, panels, steps of 16 bytes, the rows up to which the small tile is used.
const EDGES: [usize; 16] = [0, 1, 2, 7, 8, 9, 63, 64, 65, 100, 127, 128, 129, 255, 256, 257];

/// Epochs of first calls: ordinary, and just below 2³¹ and 2³².
const FIRST_EPOCHS: [u32; 5] = [1, 1, 0x7FFF_FFFE, 0xFFFF_FFFE, 0];

impl FuzzCase {
    /// The case of `seed`.
    pub fn of(seed: u64, limits: &Limits) -> Self {
        let draw = |of: u64, below: usize| (data::random_at(seed, of, 1) % below.max(1) as u64) as usize;
        // Half of all extents are drawn from the edges.
        let extent = |of: u64, most: usize| match draw(of, 2) {
            0 => EDGES[draw(of + 1, EDGES.len())].min(most),
            _ => draw(of + 1, most + 1),
        };
        let op = if draw(0, 4) == 0 { FuzzOp::Gemm } else { FuzzOp::GemmReduceScatter };
        let ranks = if op == FuzzOp::Gemm { 1 } else { 1 + draw(1, limits.ranks) };
        let (mut m, n, mut k) = (extent(2, limits.m), extent(4, limits.n), extent(6, limits.k));
        while m * n * k * ranks > limits.products {
            if m > k { m /= 2 } else { k /= 2 }
        }
        let (transport, placement, margin) = WAYS[draw(8, WAYS.len())];
        let needs_margin = transport == Transport::Staged && placement == Placement::Epilogue;
        let sm_margin = if draw(9, 2) == 0 { margin } else { draw(10, 3) as u32 }.max(u32::from(needs_margin));
        let case = Case {
            m,
            n,
            k,
            layout: Layout::ALL[draw(11, 3)],
            transport,
            placement,
            sm_margin,
            first_epoch: FIRST_EPOCHS[draw(12, FIRST_EPOCHS.len())],
        };
        let input = [Element::Bf16, Element::F16][draw(13, 2)];
        let calls = 1 + draw(14, 3);
        Self {
            seed,
            op,
            ranks,
            case,
            input,
            output: [input, Element::F32][draw(15, 2)],
            raster_group: [1, 2, 3, 16, u32::MAX][draw(16, 5)],
            gap: [0, 0, 1, 8, 40][draw(17, 5)],
            integers: [None, Some(3)][draw(18, 2)],
            calls: (0..calls).map(|call| if call == 0 { m } else { draw(20 + call as u64, m + 1) }).collect(),
        }
    }

    fn variant(&self) -> Variant {
        Variant { layout: self.case.layout, input: self.input, input_b: self.input, output: self.output }
    }

    /// Operands of a call over `m` rows.
    pub fn operands<I: Scalar>(&self, m: usize) -> Operands<I> {
        let make = |rows, cols, of: usize| match self.integers {
            Some(max) => data::integers(rows, cols, self.seed ^ of as u64, max),
            None => data::uniform(rows, cols, self.seed ^ of as u64),
        };
        let ((ar, ac), (br, bc)) =
            (self.case.layout.a_shape(m, self.case.k), self.case.layout.b_shape(self.case.n, self.case.k));
        let a = (0..self.ranks).map(|rank| make(ar, ac, 2 * rank)).collect();
        let b = (0..self.ranks).map(|rank| make(br, bc, 2 * rank + 1)).collect();
        Operands { a, b, a_tensors: Vec::new(), b_tensors: Vec::new() }
    }
}

/// Holds ranks back: called before and after each launch with a number of the call.
pub struct Delays<'a> {
    pub before: &'a dyn Fn(u64) -> TestResult,
    pub after: &'a dyn Fn(u64),
}

/// Nobody is held back.
pub const PROMPT: Delays<'static> = Delays { before: &|_| Ok(()), after: &|_| () };

/// Runs the case on `world`, which has its ranks; `Err` says what is wrong, and how to replay it.
pub fn run_case(world: &World, fuzz: &FuzzCase, delays: &Delays) -> TestResult {
    let run = match (fuzz.input, fuzz.output) {
        (Element::F16, Element::F32) => run_as::<f16, f32>,
        (Element::F16, _) => run_as::<f16, f16>,
        (_, Element::F32) => run_as::<bf16, f32>,
        _ => run_as::<bf16, bf16>,
    };
    run(world, fuzz, delays).map_err(|e| format!("TILEWIRE_FUZZ_SEED={} replays: {e}\n  {fuzz:?}", fuzz.seed))
}

/// One call of a plan on operands, over so many rows, with its number.
type Call<'a, I, O> = dyn Fn(&Operands<I>, usize, u64) -> Result<Vec<Matrix<O>>, String> + 'a;

fn run_as<I: Scalar, O: Scalar>(world: &World, fuzz: &FuzzCase, delays: &Delays) -> TestResult {
    let call: Box<Call<I, O>> = match fuzz.op {
        FuzzOp::Gemm => {
            let plan = gemm_plan(world, fuzz).map_err(|e| e.to_string())?;
            Box::new(move |operands, m, _| gemm_call(world, &plan, fuzz, operands, m))
        }
        FuzzOp::GemmReduceScatter => {
            let plan = reduce_scatter_plan(world, fuzz).map_err(|e| e.to_string())?;
            Box::new(move |operands, m, number| {
                let case = Case { m, ..fuzz.case };
                let guarded =
                    GuardedCall::<I, O>::new(world, operands, &case, m, fuzz.gap).map_err(|e| e.to_string())?;
                (delays.before)(number)?;
                // SAFETY: the buffers are alive and of the plan's shape, and the call is waited for.
                let launched = unsafe { plan.launch(m, &guarded.matrices(), None) };
                (delays.after)(number);
                launched.and_then(|()| plan.finish()).map_err(|e| e.to_string())?;
                guarded.results(&plan, m)
            })
        }
    };
    for (number, &m) in fuzz.calls.iter().enumerate() {
        let operands = fuzz.operands::<I>(m);
        let what = |e: String| format!("call {number} over {m} rows: {e}");
        let d = call(&operands, m, 2 * number as u64).map_err(what)?;
        compare::<I, O>(fuzz, &Case { m, ..fuzz.case }, &operands, &d).map_err(what)?;
        let again = call(&operands, m, 2 * number as u64 + 1).map_err(what)?;
        if bits(&again) != bits(&d) {
            return Err(what("a repeat gives other bits".to_string()));
        }
    }
    Ok(())
}

/// Compares a call's results with what they must be.
pub fn compare<I: Scalar, O: Scalar>(
    fuzz: &FuzzCase,
    case: &Case,
    operands: &Operands<I>,
    d: &[Matrix<O>],
) -> TestResult {
    let exact = || -> Result<Vec<Matrix<O>>, Error> {
        match fuzz.op {
            FuzzOp::GemmReduceScatter => fused::protocol::<I, O, O>(case.layout, &operands.views()),
            FuzzOp::Gemm => {
                let product = gemm(case.layout, operands.a[0].view(), operands.b[0].view())?;
                Ok(vec![product.map(|x| O::from_f32(*x as f32))])
            }
        }
    };
    match fuzz.integers {
        None => check(case, operands, d),
        Some(_) if bits(&exact().map_err(|e| e.to_string())?) == bits(d) => Ok(()),
        Some(_) => Err("not the bits of the exact sums".to_string()),
    }
}

fn gemm_plan(world: &World, fuzz: &FuzzCase) -> Result<Gemm, Error> {
    let Case { m, n, k, sm_margin, .. } = fuzz.case;
    Gemm::builder(world, 0)
        .shape(m, n, k)
        .variant(fuzz.variant())
        .sm_margin(sm_margin)
        .raster_group(fuzz.raster_group)
        .build()
}

fn reduce_scatter_plan(world: &World, fuzz: &FuzzCase) -> Result<GemmReduceScatter, Error> {
    let Case { m, n, k, transport, placement, sm_margin, first_epoch, .. } = fuzz.case;
    GemmReduceScatter::builder(world)
        .shape(m, n, k)
        .variant(fuzz.variant())
        .transport(transport)
        .placement(placement)
        .sm_margin(sm_margin)
        .raster_group(fuzz.raster_group)
        .first_epoch(first_epoch)
        .build()
}

fn gemm_call<I: Scalar, O: Scalar>(
    world: &World,
    plan: &Gemm,
    fuzz: &FuzzCase,
    operands: &Operands<I>,
    m: usize,
) -> Result<Vec<Matrix<O>>, String> {
    let stride = |cols: usize| (cols + fuzz.gap).next_multiple_of(8);
    let go = || -> Result<_, Error> {
        let (a, b) = (&operands.a[0], &operands.b[0]);
        let a = Guarded::new(world, 0, a.view(), stride(a.cols()))?;
        let b = Guarded::new(world, 0, b.view(), stride(b.cols()))?;
        let d = Guarded::<O>::room(world, 0, m, fuzz.case.n, stride(fuzz.case.n))?;
        // SAFETY: the buffers are alive and of the plan's shape, and the call is waited for.
        unsafe { plan.launch(m, &RankMatrices { a: a.arg(), b: b.arg(), d: d.arg() }, None)? };
        plan.finish()?;
        Ok((a, b, d))
    };
    let (a, b, d) = go().map_err(|e| e.to_string())?;
    a.untouched("A")?;
    b.untouched("B")?;
    Ok(vec![d.written_in_steps("D", m)?])
}

/// A number from the environment.
pub fn number_from(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|e| panic!("{name}={text}: {e}")))
}

/// The seeds of a run: `TILEWIRE_FUZZ_SEED` alone if it is set, or as many as `enough` allows from `first` on.
pub fn seeds(first: u64, mut enough: impl FnMut(u64) -> bool) -> impl Iterator<Item = u64> {
    let one = number_from("TILEWIRE_FUZZ_SEED");
    let mut next = 0;
    std::iter::from_fn(move || {
        let number = next;
        next += 1;
        match one {
            Some(seed) => (number == 0).then_some(seed),
            None => (!enough(number)).then(|| first + number),
        }
    })
}

/// For [`seeds`]: enough once `limit` has passed.
pub fn until(limit: Duration) -> impl FnMut(u64) -> bool {
    let start = Instant::now();
    move |_| start.elapsed() > limit
}
