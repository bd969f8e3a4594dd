//! Differential fuzzing: a case is drawn from its seed, runs on any world, and is compared with the references.
//!
//! Integers are compared bit by bit, other operands within the tolerance that K allows, and a repeat bit by bit. Every
//! matrix lies in memory of its own with guards round it and gaps between its rows.

mod call;
mod expect;
mod given;

use std::time::{Duration, Instant};

use tilewire::data::random_at;
use tilewire::kernels::abi::{Activation, Placement, Transport};
use tilewire::kernels::config::{Element, Major};
use tilewire::kernels::entries::{ENTRIES, Op};
use tilewire::world::World;
use tilewire::{Layout, SplitK, Variant};

use super::epilogue::{FORMS, Form};
use super::{Case, TestResult, WAYS, narrow};

pub use expect::compare;
pub use given::Given;

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
    pub input_b: Element,
    pub output: Element,
    /// Which of [`SCALES`] rank 0's operands have; each rank after it has the next ones. Operands of 8 bits only.
    pub scales: Option<usize>,
    /// The epilogue, for plans that have one.
    pub form: Option<Form>,
    /// Whether tiles of a plain product are cut along K.
    pub split_k: SplitK,
    /// The tile, where it is not left to the plan.
    pub tile: Option<[u32; 2]>,
    /// Columns of the tiles of plain products that can have fewer, where they are not left to the plan.
    pub tile_cols: Option<u32>,
    pub raster_group: u32,
    /// Tiles of each CTA for others before own ones come between, by consumers in turns.
    pub head_start: u32,
    /// Elements between rows, beside those that alignment asks for.
    pub gap: usize,
    /// Largest integer operand, or `None` for numbers that are no integers.
    pub integers: Option<u32>,
    /// Rows of each call.
    pub calls: Vec<usize>,
}

/// Scales of A and B; none stands for 1.
pub type Factors = [Option<f32>; 2];

/// Scales of 8-bit operands.
pub const SCALES: [Factors; 5] =
    [[Some(0.37), Some(2.5)], [None, None], [Some(1.0 / 1024.0), None], [None, Some(-3.0)], [Some(0.5), Some(4.0)]];

/// Types of A and B.
pub const INPUTS: [[Element; 2]; 4] = [
    [Element::Bf16, Element::Bf16],
    [Element::F16, Element::F16],
    [Element::E4m3, Element::E4m3],
    [Element::E4m3, Element::E5m2],
];

/// Types of D.
pub const OUTPUTS: [Element; 3] = [Element::Bf16, Element::F16, Element::F32];

/// Extents at which something changes: tiles, panels, steps of 16 bytes, the rows up to which the small tile is used.
const EDGES: [usize; 16] = [0, 1, 2, 7, 8, 9, 63, 64, 65, 100, 127, 128, 129, 255, 256, 257];

/// Epochs of first calls: ordinary, and just below 2³¹ and 2³².
const FIRST_EPOCHS: [u32; 5] = [1, 1, 0x7FFF_FFFE, 0xFFFF_FFFE, 0];

impl FuzzCase {
    /// The case of `seed`.
    pub fn of(seed: u64, limits: &Limits) -> Self {
        let draw = |of: u64, below: usize| (random_at(seed, of, 1) % below.max(1) as u64) as usize;
        // Half of all extents are drawn from the edges.
        let extent = |of: u64, most: usize| match draw(of, 2) {
            0 => EDGES[draw(of + 1, EDGES.len())].min(most),
            _ => draw(of + 1, most + 1),
        };
        let op = if draw(0, 3) == 0 { FuzzOp::Gemm } else { FuzzOp::GemmReduceScatter };
        let ranks = if op == FuzzOp::Gemm { 1 } else { 1 + draw(1, limits.ranks) };
        let (mut m, n, mut k) = (extent(2, limits.m), extent(4, limits.n), extent(6, limits.k));
        while m * n * k * ranks > limits.products {
            if m > k { m /= 2 } else { k /= 2 }
        }
        let (transport, placement, margin) = WAYS[draw(8, WAYS.len())];
        let needs_margin = transport == Transport::Staged && placement == Placement::Epilogue;
        let sm_margin = if draw(9, 2) == 0 { margin } else { draw(10, 3) as u32 }.max(u32::from(needs_margin));
        let [input, input_b] = INPUTS[draw(13, INPUTS.len())];
        let case = Case {
            m,
            n,
            k,
            layout: if input.bytes() == 1 { Layout::Nt } else { Layout::ALL[draw(11, 3)] },
            transport,
            placement,
            sm_margin,
            first_epoch: FIRST_EPOCHS[draw(12, FIRST_EPOCHS.len())],
            tile: None,
        };
        let calls = 1 + draw(14, 3);
        let mut fuzz = Self {
            seed,
            op,
            ranks,
            case,
            input,
            input_b,
            output: OUTPUTS[draw(15, 3)],
            scales: None,
            form: None,
            split_k: [SplitK::Auto, SplitK::Never, SplitK::Always, SplitK::Runs][draw(30, 4)],
            tile: None,
            tile_cols: None,
            raster_group: [1, 2, 3, 16, u32::MAX][draw(16, 5)],
            head_start: [1, 2, 3, u32::MAX][draw(36, 4)],
            gap: [0, 0, 1, 8, 40][draw(17, 5)],
            integers: [None, Some(3)][draw(18, 2)],
            calls: (0..calls).map(|call| if call == 0 { m } else { draw(20 + call as u64, m + 1) }).collect(),
        };
        if draw(31, 2) == 0 {
            fuzz = fuzz.with_form(FORMS[draw(32, FORMS.len())]);
        }
        fuzz.scales = fuzz.may_have_scales().then(|| draw(33, SCALES.len()));
        if draw(34, 2) == 0 {
            let tiles = fuzz.tiles();
            fuzz.tile = tiles.get(draw(35, tiles.len())).copied();
        }
        if draw(37, 6) == 0 {
            fuzz = fuzz.narrowed(draw(38, 1 + narrow::TILES.len()), 8 * (1 + draw(39, 8) as u32));
        }
        fuzz
    }

    pub fn variant(&self) -> Variant {
        Variant { input_b: self.input_b, ..Variant::new(self.case.layout, self.input, self.output) }
    }

    /// With this epilogue, where a kernel with one was compiled.
    pub fn with_form(self, form: Form) -> Self {
        let op = match self.op {
            FuzzOp::Gemm => Op::GemmEpilogue,
            FuzzOp::GemmReduceScatter => Op::GemmReduceScatterEpilogue,
        };
        let is_there = Variant::supported(op).any(|variant| variant == self.variant());
        Self { form: is_there.then_some(form), ..self }
    }

    /// A plain product of 16-bit operands as one in tiles of `cols` columns: in the layout and with results of a type
    /// for which there are such, by the kernel that `tile` is the number of, or, behind the last, by whichever the plan
    /// takes.
    pub fn narrowed(self, tile: usize, cols: u32) -> Self {
        if self.op != FuzzOp::Gemm || self.input.bytes() != 2 {
            return self;
        }
        let of = Self { case: self.case.layout(Layout::Nt), output: self.input, ..self };
        let tiles: Vec<_> = of.tiles().into_iter().filter(|tile| narrow::TILES.contains(tile)).collect();
        let split_k = if of.split_k == SplitK::Auto { SplitK::Auto } else { SplitK::Never };
        Self { tile: tiles.get(tile).copied(), tile_cols: Some(cols), split_k, ..of }
    }

    /// Whether calls take scales beside the epilogue's.
    pub fn may_have_scales(&self) -> bool {
        self.input.bytes() == 1 && self.form.is_none()
    }

    /// Tiles that a plan for products of these types may ask for.
    pub fn tiles(&self) -> Vec<[u32; 2]> {
        let majors = match self.case.layout {
            Layout::Nt => [Major::K, Major::K],
            Layout::Nn => [Major::K, Major::Mn],
            Layout::Tn => [Major::Mn, Major::Mn],
        };
        let is_of_this = |input, input_b, output| (input, input_b, output) == (self.input, self.input_b, self.output);
        // Consumers in turns store rows in whole steps of 16 bytes, and have no epilogue; over ranks they push, add in the
        // epilogue, and want something to multiply.
        let turns = (self.case.n * self.output.bytes() as usize).is_multiple_of(16);
        let turns_over_ranks = turns
            && self.case.k > 0
            && (self.case.transport, self.case.placement) == (Transport::Push, Placement::Epilogue);
        let may_be = |op| match (self.op, self.form) {
            // A tile with an epilogue is one without, too.
            (FuzzOp::Gemm, Some(_)) => op == Op::GemmEpilogue,
            (FuzzOp::Gemm, None) => op == Op::Gemm || op == Op::GemmPingPong && turns,
            (FuzzOp::GemmReduceScatter, _) => {
                op == Op::GemmReduceScatter || op == Op::GemmReduceScatterPingPong && turns_over_ranks
            }
        };
        ENTRIES
            .iter()
            .filter(|e| may_be(e.op) && is_of_this(e.input, e.input_b, e.output))
            .filter(|e| e.majors == majors)
            .map(|e| e.tile_extent())
            .collect()
    }

    /// The scales of `rank`'s operands.
    pub fn factors(&self, rank: usize) -> Factors {
        self.scales.map_or([None; 2], |first| SCALES[(first + rank) % SCALES.len()])
    }

    /// Whether results are known to the last bit: every step is exact up to the roundings that the protocol has.
    fn is_exact(&self) -> bool {
        let form_is = self.form.is_none_or(|form| matches!(form.activation, Activation::None | Activation::Relu));
        self.integers.is_some() && form_is
    }
}

/// Holds ranks back: called before and after each launch with a number of the call.
pub struct Delays<'a> {
    pub before: &'a dyn Fn(u64) -> TestResult,
    pub after: &'a dyn Fn(u64),
}

/// Nobody is held back.
pub const PROMPT: Delays<'static> = Delays { before: &|_| Ok(()), after: &|_| () };

/// Calls `$run` with the types of `$fuzz`.
macro_rules! with_types {
    ($fuzz:expr, $run:ident($($arg:expr),*)) => {{
        use half::{bf16, f16};
        use tilewire::scalar::{F8E4M3, F8E5M2};
        macro_rules! with_output {
            ($a:ty, $b:ty) => {
                match $fuzz.output {
                    Element::F32 => $run::<$a, $b, f32>($($arg),*),
                    Element::F16 => $run::<$a, $b, f16>($($arg),*),
                    _ => $run::<$a, $b, bf16>($($arg),*),
                }
            };
        }
        match ($fuzz.input, $fuzz.input_b) {
            (Element::E4m3, Element::E5m2) => with_output!(F8E4M3, F8E5M2),
            (Element::E4m3, _) => with_output!(F8E4M3, F8E4M3),
            (Element::F16, _) => with_output!(f16, f16),
            _ => with_output!(bf16, bf16),
        }
    }};
}

/// Runs the case on `world`, which has its ranks; `Err` says what is wrong, and how to replay it.
pub fn run_case(world: &World, fuzz: &FuzzCase, delays: &Delays) -> TestResult {
    use call::run_all;
    with_types!(fuzz, run_all(world, fuzz, delays))
        .map_err(|e| format!("TILEWIRE_FUZZ_SEED={} replays: {e}\n  {fuzz:?}", fuzz.seed))
}

/// D of every rank, as bytes, after so many launches over `fuzz.case.m` rows that do not wait for each other; compared with
/// the references if `is_compared`.
pub fn run_in_a_row(
    world: &World,
    fuzz: &FuzzCase,
    launches: usize,
    is_compared: bool,
) -> Result<Vec<Vec<u8>>, String> {
    use call::run_in_a_row;
    with_types!(fuzz, run_in_a_row(world, fuzz, launches, is_compared))
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
