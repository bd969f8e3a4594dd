//! Behaviour that holds on every machine: each function takes a world, so that one body tests the emulator and the GPU.
//!
//! A crate, not a module of each test program: the same bodies would be compiled a dozen times.

pub mod arguments;
pub mod chain;
pub mod epilogue;
pub mod epilogue_over_ranks;
pub mod few_rows;
pub mod fp8;
pub mod fuzz;
pub mod narrow;
pub mod raw;
pub mod split;
pub mod tiles;
pub mod turns;
pub mod turns_over_ranks;

use half::{bf16, f16};
use tilewire::compare::{GemmNumerics, Report, compare_chunks, operand_scale};
use tilewire::data;
use tilewire::kernels::abi::{Placement, Transport};
use tilewire::kernels::config::Element;
use tilewire::matrix::{Matrix, MatrixRef};
use tilewire::ops::{Gemm, GemmReduceScatter};
use tilewire::reference::{chunks_of, fused, gemm};
use tilewire::scalar::Scalar;
use tilewire::world::{Tensor, World};
use tilewire::{Error, Layout, Variant};

pub type TestResult = Result<(), String>;

/// One GEMM + ReduceScatter.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub layout: Layout,
    pub transport: Transport,
    pub placement: Placement,
    pub sm_margin: u32,
    pub first_epoch: u32,
    /// The tile, where it is not the plan that chooses.
    pub tile: Option<[u32; 2]>,
}

/// The tile of which each consumer has a half.
pub const MAIN_TILE: [u32; 2] = [128, 256];

impl Case {
    pub fn new(m: usize, n: usize, k: usize) -> Self {
        Self {
            m,
            n,
            k,
            layout: Layout::Nt,
            transport: Transport::Push,
            placement: Placement::Epilogue,
            sm_margin: 0,
            first_epoch: 1,
            tile: None,
        }
    }

    /// Pushed tiles that are added in the epilogue are those that the plan chooses, often multiplied in turns; with a margin they
    /// are main tiles, so that those are tested too.
    pub fn over(self, transport: Transport, placement: Placement, sm_margin: u32) -> Self {
        let is_either = (transport, placement) == (Transport::Push, Placement::Epilogue) && sm_margin > 0;
        Self { transport, placement, sm_margin, tile: is_either.then_some(MAIN_TILE), ..self }
    }

    pub fn layout(self, layout: Layout) -> Self {
        Self { layout, ..self }
    }
}

/// Every way that tiles can take: transport, placement, margin.
pub const WAYS: [(Transport, Placement, u32); 9] = [
    (Transport::Push, Placement::Epilogue, 0),
    (Transport::Push, Placement::Epilogue, 1),
    (Transport::Push, Placement::Partition, 0),
    (Transport::Push, Placement::Partition, 2),
    (Transport::Staged, Placement::Partition, 0),
    (Transport::Staged, Placement::Partition, 1),
    (Transport::Staged, Placement::Epilogue, 2),
    (Transport::PushStores, Placement::Epilogue, 0),
    (Transport::PushStores, Placement::Partition, 1),
];

/// Operands of every rank, and the tensors they were uploaded to.
pub struct Operands<I> {
    pub a: Vec<Matrix<I>>,
    pub b: Vec<Matrix<I>>,
    pub a_tensors: Vec<Tensor>,
    pub b_tensors: Vec<Tensor>,
}

impl<I: Scalar> Operands<I> {
    pub fn new(world: &World, case: &Case, make: impl Fn(usize, usize, usize) -> Matrix<I>) -> Result<Self, Error> {
        let (ar, ac) = case.layout.a_shape(case.m, case.k);
        let (br, bc) = case.layout.b_shape(case.n, case.k);
        let ranks = 0..world.size();
        let a: Vec<_> = ranks.clone().map(|rank| make(ar, ac, rank)).collect();
        let b: Vec<_> = ranks.map(|rank| make(br, bc, rank + 100)).collect();
        let upload = |x: &[Matrix<I>]| -> Result<Vec<Tensor>, Error> {
            x.iter().enumerate().map(|(r, x)| Tensor::from_slice(world, r, x.rows(), x.cols(), x.data())).collect()
        };
        let (a_tensors, b_tensors) = (upload(&a)?, upload(&b)?);
        Ok(Self { a, b, a_tensors, b_tensors })
    }

    pub fn views(&self) -> Vec<(MatrixRef<'_, I>, MatrixRef<'_, I>)> {
        self.a.iter().zip(&self.b).map(|(a, b)| (a.view(), b.view())).collect()
    }
}

pub fn uniform<I: Scalar>(rows: usize, cols: usize, seed: usize) -> Matrix<I> {
    data::uniform(rows, cols, seed as u64 + 1)
}

pub fn plan<I: Scalar, O: Scalar>(world: &World, case: &Case) -> Result<GemmReduceScatter, Error> {
    let builder = GemmReduceScatter::builder(world)
        .shape(case.m, case.n, case.k)
        .variant(Variant::new(case.layout, I::ELEMENT, O::ELEMENT))
        .transport(case.transport)
        .placement(case.placement)
        .sm_margin(case.sm_margin)
        .first_epoch(case.first_epoch);
    // Kernels of 8-bit operands have another main tile, and no choice.
    let tile = case.tile.filter(|_| I::ELEMENT.bytes() == 2);
    tile.into_iter().fold(builder, |builder, tile| builder.tile(tile)).build()
}

/// Runs the plan on poisoned outputs of `m` rows over all ranks.
pub fn run<I: Scalar, O: Scalar>(
    world: &World,
    plan: &GemmReduceScatter,
    case: &Case,
    operands: &Operands<I>,
) -> Result<Vec<Matrix<O>>, Error> {
    let mut d = (0..world.size())
        .map(|rank| Tensor::poisoned::<O>(world, rank, plan.rows_of(case.m, rank), case.n))
        .collect::<Result<Vec<_>, _>>()?;
    plan.run(case.m, &operands.a_tensors, &operands.b_tensors, &mut d)?;
    d.iter().map(|t| Matrix::from_vec(t.rows(), t.cols(), t.to_vec::<O>()?)).collect()
}

/// Compares with the truth in f64, within the tolerance that K allows.
pub fn check<I: Scalar, O: Scalar>(case: &Case, operands: &Operands<I>, d: &[Matrix<O>]) -> TestResult {
    let report = || -> Result<Report, Error> {
        let truth = fused::truth(case.layout, &operands.views())?;
        let actual: Vec<_> = d.iter().map(Matrix::view).collect();
        let expected: Vec<_> = truth.iter().map(Matrix::view).collect();
        let tolerance = GemmNumerics {
            k_per_rank: case.k,
            world: d.len(),
            out: O::ELEMENT,
            partials: O::ELEMENT,
            scale: 1.0 / 3.0,
        };
        compare_chunks(&actual, &expected, tolerance.tolerance())?.check()
    };
    report().map(drop).map_err(|e| format!("{case:?}: {e}"))
}

pub fn bits<O: Scalar>(d: &[Matrix<O>]) -> Vec<Vec<u8>> {
    d.iter().map(|m| bytemuck::cast_slice(m.data()).to_vec()).collect()
}

pub fn fresh<I: Scalar, O: Scalar>(world: &World, case: &Case) -> TestResult {
    let go = || -> Result<_, Error> {
        let operands = Operands::<I>::new(world, case, uniform)?;
        let d = run::<I, O>(world, &plan::<I, O>(world, case)?, case, &operands)?;
        Ok((operands, d))
    };
    let (operands, d) = go().map_err(|e| format!("{case:?}: {e}"))?;
    check(case, &operands, &d)
}

/// Ragged M, N and K, small M, tails, in every way that tiles can take.
pub fn shapes_in_every_way(world: &World, shapes: &[(usize, usize, usize)]) -> TestResult {
    for &(m, n, k) in shapes {
        for (transport, placement, sm_margin) in WAYS {
            fresh::<bf16, bf16>(world, &Case::new(m, n, k).over(transport, placement, sm_margin))?;
        }
    }
    Ok(())
}

/// The result's bits do not depend on the way that tiles take.
pub fn bits_are_the_same_in_every_way(world: &World, m: usize, n: usize, k: usize) -> TestResult {
    let case = Case::new(m, n, k);
    let go = || -> Result<Vec<_>, Error> {
        let operands = Operands::<bf16>::new(world, &case, uniform)?;
        WAYS.into_iter()
            .map(|(t, p, s)| {
                let case = case.over(t, p, s);
                Ok((case, bits(&run::<bf16, bf16>(world, &plan::<bf16, bf16>(world, &case)?, &case, &operands)?)))
            })
            .collect()
    };
    let results = go().map_err(|e| e.to_string())?;
    match results.iter().find(|(_, b)| *b != results[0].1) {
        Some((case, _)) => Err(format!("{case:?} gives other bits than {:?}", results[0].0)),
        None => Ok(()),
    }
}

/// Many calls of one plan give one result, whatever m was between.
pub fn many_calls_give_the_same_bits(world: &World, case: &Case, calls: usize) -> TestResult {
    let go = || -> Result<_, Error> {
        let operands = Operands::<bf16>::new(world, case, uniform)?;
        let less = Case { m: case.m / 3 + 1, ..*case };
        let fewer = Operands::<bf16>::new(world, &less, uniform)?;
        let plan = plan::<bf16, bf16>(world, case)?;
        let first = run::<bf16, bf16>(world, &plan, case, &operands)?;
        for call in 0..calls {
            if call % 3 == 1 {
                run::<bf16, bf16>(world, &plan, &less, &fewer)?;
            }
            if bits(&run::<bf16, bf16>(world, &plan, case, &operands)?) != bits(&first) {
                return Ok(Some(call));
            }
        }
        Ok(None)
    };
    match go().map_err(|e| format!("{case:?}: {e}"))? {
        None => Ok(()),
        Some(call) => Err(format!("{case:?}: call {call} gives other bits")),
    }
}

/// Epochs that start just below 2³¹ and 2³² change nothing.
pub fn epochs_wrap(world: &World) -> TestResult {
    for first_epoch in [0x7FFF_FFFD, 0xFFFF_FFFD, 0] {
        for (transport, placement, sm_margin) in WAYS {
            let case = Case { first_epoch, ..Case::new(160, 128, 64).over(transport, placement, sm_margin) };
            many_calls_give_the_same_bits(world, &case, 5)?;
        }
    }
    Ok(())
}

/// Calls in every way that tiles take, on ranks that `delays` holds back: all of a way's calls give the same bits, across
/// 2³¹ and 2³² of the epoch, and the right ones.
pub fn calls_with_delays_give_the_same_bits(world: &World, calls: u64, delays: &fuzz::Delays) -> TestResult {
    for (way, (transport, placement, sm_margin)) in WAYS.into_iter().enumerate() {
        let wrap = if way % 2 == 0 { 1 << 31 } else { 0u32 };
        let first_epoch = wrap.wrapping_sub(calls as u32 / 2);
        let case = Case { first_epoch, ..Case::new(150, 136, 72).over(transport, placement, sm_margin) };
        let what = |e: String| format!("{case:?}: {e}");
        let go = || -> Result<_, Error> {
            let operands = Operands::<bf16>::new(world, &case, uniform)?;
            Ok((
                raw::GuardedCall::<bf16, bf16>::new(world, &operands, &case, case.m, 8)?,
                plan::<bf16, bf16>(world, &case)?,
                operands,
            ))
        };
        let (mut guarded, plan, operands) = go().map_err(|e| what(e.to_string()))?;
        let matrices = guarded.matrices();
        let mut first = None;
        for call in 0..calls {
            guarded.poison().map_err(|e| what(e.to_string()))?;
            (delays.before)(call).map_err(what)?;
            // SAFETY: the buffers are alive and of the plan's shape, and the call is waited for.
            let launched = unsafe { plan.launch(case.m, &matrices, None) };
            (delays.after)(call);
            launched.and_then(|()| plan.finish()).map_err(|e| what(format!("call {call}: {e}")))?;
            let d = guarded.results(&plan, case.m).map_err(what)?;
            if call == 0 {
                check(&case, &operands, &d)?;
            }
            if *first.get_or_insert_with(|| bits(&d)) != bits(&d) {
                return Err(what(format!("call {call} gives other bits")));
            }
        }
    }
    Ok(())
}

/// M = 0 and N = 0 write nothing, advance the epoch, and the next call works.
pub fn empty_calls_are_calls(world: &World) -> TestResult {
    fresh::<bf16, bf16>(world, &Case::new(64, 0, 64))?;
    fresh::<bf16, bf16>(world, &Case::new(0, 64, 64))?;
    let case = Case::new(96, 64, 64);
    let go = || -> Result<_, Error> {
        let plan = plan::<bf16, bf16>(world, &case)?;
        let none = Case { m: 0, ..case };
        let (operands, nothing) = (Operands::new(world, &case, uniform)?, Operands::new(world, &none, uniform)?);
        for _ in 0..3 {
            run::<bf16, bf16>(world, &plan, &none, &nothing)?;
        }
        Ok((run::<bf16, bf16>(world, &plan, &case, &operands)?, operands))
    };
    let (d, operands) = go().map_err(|e| e.to_string())?;
    check(&case, &operands, &d)
}

/// k-tiles around the number of stages, and K that is no multiple of a tile; K = 0 gives zeros.
pub fn k_edges(world: &World) -> TestResult {
    for k in [0, 1, 8, 63, 64, 65, 128, 192, 200, 256, 7 * 64, 9 * 64] {
        fresh::<bf16, bf16>(world, &Case::new(130, 72, k))?;
        fresh::<bf16, bf16>(world, &Case { tile: Some(MAIN_TILE), ..Case::new(130, 72, k) })?;
    }
    Ok(())
}

/// Every operand layout and type.
pub fn every_variant(world: &World) -> TestResult {
    for layout in Layout::ALL {
        for (m, n, k) in [(200, 264, 136), (70, 40, 24)] {
            for (transport, placement, sm_margin) in [WAYS[0], WAYS[3], WAYS[6]] {
                let case = Case::new(m, n, k).layout(layout).over(transport, placement, sm_margin);
                fresh::<bf16, bf16>(world, &case)?;
                fresh::<bf16, f32>(world, &case)?;
                fresh::<f16, f16>(world, &case)?;
                fresh::<f16, f32>(world, &case)?;
                fresh::<bf16, f16>(world, &case)?;
                fresh::<f16, bf16>(world, &case)?;
            }
        }
    }
    Ok(())
}

/// With integer-valued operands the result is exact: every element, rank and row is where it belongs.
pub fn integers_are_exact(world: &World) -> TestResult {
    let case = Case::new(300, 136, 96);
    let make = |rows: usize, cols: usize, rank: usize| {
        Matrix::from_fn(rows, cols, |r, c| bf16::from_f32(((r * 7 + c * 3 + rank * 5) % 3) as f32 - 1.0))
    };
    let go = || -> Result<_, Error> {
        let operands = Operands::<bf16>::new(world, &case, make)?;
        let d = run::<bf16, f32>(world, &plan::<bf16, f32>(world, &case)?, &case, &operands)?;
        let truth = fused::truth(case.layout, &operands.views())?;
        Ok(d.iter().zip(&truth).all(|(d, t)| d.data().iter().zip(t.data()).all(|(x, y)| f64::from(*x) == *y)))
    };
    if go().map_err(|e| e.to_string())? { Ok(()) } else { Err("an integer result is not exact".to_string()) }
}

/// The sum over ranks, not the mean: ranks contribute with an identity B.
pub fn ranks_are_summed(world: &World) -> TestResult {
    let case = Case::new(24, 64, 64);
    let go = || -> Result<_, Error> {
        let operands = Operands::<bf16>::new(world, &case, |rows, cols, rank| {
            if rank >= 100 { data::identity(rows, cols) } else { Matrix::from_fn(rows, cols, |_, _| bf16::ONE) }
        })?;
        run::<bf16, bf16>(world, &plan::<bf16, bf16>(world, &case)?, &case, &operands)
    };
    let want = bf16::from_f32(world.size() as f32);
    match go().map_err(|e| e.to_string())?.iter().flat_map(|d| d.data()).find(|x| **x != want) {
        Some(x) => Err(format!("an element is {x}, not {want}")),
        None => Ok(()),
    }
}

/// A NaN row of A stays in its row.
pub fn nan_rows_stay_in_their_row(world: &World) -> TestResult {
    let case = Case::new(150, 80, 64);
    let row_is_nan = |row: usize| row % 2 == 1;
    let go = || -> Result<_, Error> {
        let operands =
            Operands::<bf16>::new(world, &case, |rows, cols, rank| {
                let clean = uniform::<bf16>(rows, cols, rank);
                Matrix::from_fn(rows, cols, |r, c| {
                    if rank < 100 && row_is_nan(r) { bf16::NAN } else { *clean.view().at(r, c) }
                })
            })?;
        run::<bf16, bf16>(world, &plan::<bf16, bf16>(world, &case)?, &case, &operands)
    };
    let d = go().map_err(|e| e.to_string())?;
    let chunks = chunks_of(case.m, world.size()).map_err(|e| e.to_string())?;
    for (d, chunk) in d.iter().zip(chunks) {
        for row in 0..d.rows() {
            let global = chunk.first_row as usize + row;
            if d.view().row(row).iter().any(|x| x.is_nan() != row_is_nan(global)) {
                return Err(format!("row {global} should be {}", if row_is_nan(global) { "NaN" } else { "finite" }));
            }
        }
    }
    Ok(())
}

/// Partials are added in f32 with one rounding: 256 and seven ones are 264 in bf16, not 256.
pub fn partials_are_added_in_f32(world: &World) -> TestResult {
    if world.size() != 8 {
        return Err(format!("needs 8 ranks, has {}", world.size()));
    }
    let case = Case::new(16, 64, 64);
    let go = || -> Result<_, Error> {
        let operands = Operands::<bf16>::new(world, &case, |rows, cols, rank| {
            if rank >= 100 {
                data::identity(rows, cols)
            } else {
                Matrix::from_fn(rows, cols, |_, _| bf16::from_f32(if rank == 0 { 256.0 } else { 1.0 }))
            }
        })?;
        run::<bf16, bf16>(world, &plan::<bf16, bf16>(world, &case)?, &case, &operands)
    };
    // 263 lies between the bf16 neighbours 262 and 264, and is rounded once, to even.
    let want = bf16::from_f32(263.0);
    match go().map_err(|e| e.to_string())?.iter().flat_map(|d| d.data()).find(|x| **x != want) {
        Some(x) => Err(format!("an element is {x}, not {want}")),
        None => Ok(()),
    }
}

/// Plain GEMM: every variant over grids of tiles, with ragged edges.
pub fn gemm_of_every_variant(world: &World) -> TestResult {
    for layout in Layout::ALL {
        for (m, n, k) in [(128, 256, 64), (129, 257, 72), (256, 256, 200), (400, 1288, 328), (1, 8, 8), (7, 105, 112)] {
            plain::<bf16, bf16>(world, layout, m, n, k)?;
            plain::<bf16, f32>(world, layout, m, n, k)?;
            plain::<f16, f16>(world, layout, m, n, k)?;
            plain::<f16, f32>(world, layout, m, n, k)?;
            plain::<bf16, f16>(world, layout, m, n, k)?;
            plain::<f16, bf16>(world, layout, m, n, k)?;
        }
    }
    Ok(())
}

fn plain<I: Scalar, O: Scalar>(world: &World, layout: Layout, m: usize, n: usize, k: usize) -> TestResult {
    let go = || -> Result<(), Error> {
        let ((ar, ac), (br, bc)) = (layout.a_shape(m, k), layout.b_shape(n, k));
        let (a, b) = (uniform::<I>(ar, ac, 1), uniform::<I>(br, bc, 2));
        let variant = Variant::new(layout, I::ELEMENT, O::ELEMENT);
        let plan = Gemm::builder(world, 0).shape(m, n, k).variant(variant).build()?;
        let (at, bt) =
            (Tensor::from_slice(world, 0, ar, ac, a.data())?, Tensor::from_slice(world, 0, br, bc, b.data())?);
        let mut d = Tensor::poisoned::<O>(world, 0, m, n)?;
        plan.run(m, &at, &bt, &mut d)?;
        let actual = Matrix::from_vec(m, n, d.to_vec::<O>()?)?;
        let truth = gemm(layout, a.view(), b.view())?;
        let numerics =
            GemmNumerics { k_per_rank: k, world: 1, out: O::ELEMENT, partials: Element::F32, scale: 1.0 / 3.0 };
        compare_chunks(&[actual.view()], &[truth.view()], numerics.tolerance())?.check().map(drop)
    };
    go().map_err(|e| format!("{layout} {m}×{n}×{k} {:?} → {:?}: {e}", I::ELEMENT, O::ELEMENT))
}

/// Bad input is an error that names argument, value and rule, and the next valid call works.
pub fn bad_input_is_refused_and_nothing_is_lost(world: &World) -> TestResult {
    let case = Case::new(96, 64, 64);
    let expect = |result: Result<(), Error>, parts: &[&str]| -> TestResult {
        let text = result.err().map(|e| e.to_string()).unwrap_or_default();
        match parts.iter().find(|p| !text.contains(**p)) {
            Some(part) => Err(format!("{part:?} is not in {text:?}")),
            None => Ok(()),
        }
    };
    let ctas = world.ctas(0);
    for margin in [ctas, ctas + 1, u32::MAX] {
        let built = plan::<bf16, bf16>(world, &case.over(Transport::Push, Placement::Partition, margin)).map(drop);
        expect(built, &["sm_margin", &margin.to_string(), "at least one"])?;
    }
    if world.size() > 1 {
        let built = plan::<bf16, bf16>(world, &case.over(Transport::Staged, Placement::Epilogue, 0)).map(drop);
        expect(built, &["sm_margin is 0", "staged"])?;
    }
    expect(plan::<bf16, bf16>(world, &Case::new(usize::MAX, 64, 64)).map(drop), &["max_m", "extents"])?;
    let go = || -> Result<_, Error> {
        let plan = plan::<bf16, bf16>(world, &case)?;
        let operands = Operands::<bf16>::new(world, &case, uniform)?;
        Ok((plan, operands))
    };
    let (plan, operands) = go().map_err(|e| e.to_string())?;
    let poisoned = |rows: usize| -> Result<Vec<Tensor>, Error> {
        (0..world.size()).map(|r| Tensor::poisoned::<bf16>(world, r, rows, case.n)).collect()
    };
    let rows = plan.rows_of(case.m, 0);
    let mut d = poisoned(rows).map_err(|e| e.to_string())?;
    let (a, b) = (&operands.a_tensors, &operands.b_tensors);
    expect(plan.run(97, a, b, &mut d), &["a[0]", "96 × 64", "97 × 64"])?;
    expect(plan.run(1000, a, b, &mut d), &["1000"])?;
    expect(
        plan.run(96, &a[1.min(a.len() - 1)..], b, &mut d).and(Ok(())),
        if a.len() > 1 { &["number of tensors in a"] } else { &[] },
    )?;
    let mut narrow = poisoned(rows + 1).map_err(|e| e.to_string())?;
    expect(plan.run(96, a, b, &mut narrow), &["shape of d[0]"])?;
    let d = run::<bf16, bf16>(world, &plan, &case, &operands).map_err(|e| e.to_string())?;
    check(&case, &operands, &d)
}

/// The scale of uniform operands, which the tolerances here assume.
pub fn uniform_operands_have_the_assumed_scale() -> TestResult {
    let (a, b) = (uniform::<bf16>(64, 512, 1), uniform::<bf16>(64, 512, 2));
    let scale = operand_scale(a.view(), b.view());
    if scale <= 1.0 / 3.0 * 1.2 { Ok(()) } else { Err(format!("scale is {scale}")) }
}
