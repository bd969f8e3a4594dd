//! Products of 8-bit operands: e4m3 times e4m3 or e5m2, layout nt, with scales.

use half::{bf16, f16};
use tilewire::compare::{GemmNumerics, compare, compare_chunks};
use tilewire::matrix::Matrix;
use tilewire::ops::{Gemm, GemmReduceScatter};
use tilewire::reference::{chunks_of, gemm};
use tilewire::scalar::{F8E4M3, F8E5M2, Scalar};
use tilewire::world::{Tensor, World};
use tilewire::{Error, Layout, TensorScales, Variant};

use super::{Case, TestResult, WAYS, bits, uniform};

/// Scales of A and B; none stands for 1.
type Factors = [Option<f32>; 2];

/// Powers of two and others, in both operands, in one, in none.
const FACTORS: [Factors; 4] = [[None, None], [Some(0.37), Some(2.5)], [Some(1.0 / 1024.0), None], [None, Some(-3.0)]];

/// Tiles that were compiled for the plain product. Both sum a stage by itself and in the same order: the same bits.
const TILES: [[u32; 2]; 2] = [[128, 256], [128, 128]];

/// The tensors of a pair of scales.
struct ScaleTensors([Option<Tensor>; 2]);

impl ScaleTensors {
    fn new(world: &World, rank: usize, factors: Factors) -> Result<Self, Error> {
        let upload = |factor: Option<f32>| factor.map(|f| Tensor::from_slice(world, rank, 1, 1, &[f])).transpose();
        Ok(Self([upload(factors[0])?, upload(factors[1])?]))
    }

    fn scales(&self) -> TensorScales<'_> {
        TensorScales { a: self.0[0].as_ref(), b: self.0[1].as_ref() }
    }
}

fn product_of(factors: Factors) -> f64 {
    f64::from(factors[0].unwrap_or(1.0) * factors[1].unwrap_or(1.0))
}

fn variant<A: Scalar, B: Scalar, O: Scalar>() -> Variant {
    Variant { input_b: B::ELEMENT, ..Variant::new(Layout::Nt, A::ELEMENT, O::ELEMENT) }
}

/// The plain product of A (m × k) and B (n × k) on rank 0, with every tile.
fn multiply<A: Scalar, B: Scalar, O: Scalar>(
    world: &World,
    a: &Matrix<A>,
    b: &Matrix<B>,
    factors: Factors,
) -> Result<Matrix<O>, Error> {
    let [first, second] = TILES.map(|tile| multiply_with::<A, B, O>(world, a, b, factors, tile));
    let (first, second) = (first?, second?);
    if bits(std::slice::from_ref(&first)) != bits(std::slice::from_ref(&second)) {
        return Err(Error::argument("tile", format!("{:?}", TILES[1]), "it gives other bits than 128 × 256"));
    }
    Ok(first)
}

fn multiply_with<A: Scalar, B: Scalar, O: Scalar>(
    world: &World,
    a: &Matrix<A>,
    b: &Matrix<B>,
    factors: Factors,
    tile: [u32; 2],
) -> Result<Matrix<O>, Error> {
    let (m, n, k) = (a.rows(), b.rows(), a.cols());
    let plan = Gemm::builder(world, 0).shape(m, n, k).variant(variant::<A, B, O>()).tile(tile).build()?;
    let at = Tensor::from_slice(world, 0, m, k, a.data())?;
    let bt = Tensor::from_slice(world, 0, n, k, b.data())?;
    let mut d = Tensor::poisoned::<O>(world, 0, m, n)?;
    let scales = ScaleTensors::new(world, 0, factors)?;
    plan.run_scaled(m, &at, &bt, &mut d, scales.scales())?;
    Matrix::from_vec(m, n, d.to_vec::<O>()?)
}

fn numerics<O: Scalar>(k: usize, world: usize, factor: f64) -> GemmNumerics {
    GemmNumerics { k_per_rank: k, world, out: O::ELEMENT, partials: O::ELEMENT, scale: factor.abs() / 3.0 }
}

fn plain<A: Scalar, B: Scalar, O: Scalar>(
    world: &World,
    (m, n, k): (usize, usize, usize),
    factors: Factors,
) -> TestResult {
    let go = || -> Result<(), Error> {
        let (a, b) = (uniform::<A>(m, k, 1), uniform::<B>(n, k, 2));
        let factor = product_of(factors);
        let truth = gemm(Layout::Nt, a.view(), b.view())?.map(|x| x * factor);
        let d = multiply::<A, B, O>(world, &a, &b, factors)?;
        compare(d.view(), truth.view(), numerics::<O>(k, 1, factor).tolerance_of(A::ELEMENT))?.check().map(drop)
    };
    go().map_err(|e| format!("{} {m}×{n}×{k}, {factors:?}: {e}", variant::<A, B, O>()))
}

fn every_type(world: &World, shape: (usize, usize, usize), factors: Factors) -> TestResult {
    plain::<F8E4M3, F8E4M3, bf16>(world, shape, factors)?;
    plain::<F8E4M3, F8E4M3, f16>(world, shape, factors)?;
    plain::<F8E4M3, F8E4M3, f32>(world, shape, factors)?;
    plain::<F8E4M3, F8E5M2, bf16>(world, shape, factors)?;
    plain::<F8E4M3, F8E5M2, f16>(world, shape, factors)?;
    plain::<F8E4M3, F8E5M2, f32>(world, shape, factors)
}

/// Every type over 1×1, 1×2, 2×1 and 3×5 tiles with ragged edges, and a K that is no whole stage.
pub fn every_type_on_ragged_tiles(world: &World) -> TestResult {
    for (shape, factors) in [
        ((128, 128, 128), FACTORS[0]),
        ((1, 1, 16), FACTORS[1]),
        ((128, 256, 256), FACTORS[3]),
        ((65, 72, 200), FACTORS[3]),
        ((100, 200, 144), FACTORS[1]),
        ((130, 120, 300), FACTORS[2]),
        ((300, 600, 520), FACTORS[1]),
    ] {
        every_type(world, shape, factors)?;
    }
    Ok(())
}

/// No k-tile, one, as many as stages, more; tails. K = 0 gives zeros, whatever the scales.
pub fn k_edges(world: &World) -> TestResult {
    for k in [0, 1, 15, 16, 17, 127, 128, 129, 4 * 128, 5 * 128, 6 * 128 + 40] {
        plain::<F8E4M3, F8E5M2, f32>(world, (70, 24, k), FACTORS[1])?;
    }
    Ok(())
}

/// With small integers every sum is exact: every element is where it belongs.
pub fn integers_are_exact(world: &World) -> TestResult {
    let go = || -> Result<bool, Error> {
        let a = Matrix::from_fn(200, 400, |r, c| F8E4M3::from_f32(((r * 7 + c * 3) % 5) as f32 - 2.0));
        let b = Matrix::from_fn(264, 400, |r, c| F8E5M2::from_f32(((r * 5 + c * 11) % 7) as f32 - 3.0));
        let d = multiply::<_, _, f32>(world, &a, &b, [Some(0.5), Some(4.0)])?;
        let truth = gemm(Layout::Nt, a.view(), b.view())?.map(|x| 2.0 * x);
        Ok(d == truth)
    };
    if go().map_err(|e| e.to_string())? { Ok(()) } else { Err("an integer result is not exact".to_string()) }
}

/// One stage's sum is 2¹⁵, those of the next three are 1: tensor cores that keep 14 bits lose these unless each stage's sum
/// is added in f32.
pub fn stages_are_added_in_f32(world: &World) -> TestResult {
    let a = Matrix::from_fn(130, 4 * 128, |_, c| F8E4M3::from_f32(if c == 0 { 256.0 } else { 1.0 }));
    let b = Matrix::from_fn(131, 4 * 128, |_, c| {
        F8E4M3::from_f32(if c == 0 { 128.0 } else { f32::from(u8::from(c % 128 == 5 && c > 128)) })
    });
    let d = multiply::<_, _, f32>(world, &a, &b, FACTORS[0]).map_err(|e| e.to_string())?;
    match d.data().iter().find(|x| **x != 32_771.0) {
        Some(x) => Err(format!("an element is {x}, not 32771")),
        None => Ok(()),
    }
}

/// Largest values: the product exceeds f16, unless a scale brings it back before it is rounded. Infinities and NaNs of e5m2
/// are such.
pub fn extremes(world: &World) -> TestResult {
    let largest = |rows, cols| Matrix::from_fn(rows, cols, |_, _| F8E4M3::from_f32(1e9));
    let expect = |d: Result<Matrix<f16>, Error>, want: f32, what: &str| -> TestResult {
        let d = d.map_err(|e| e.to_string())?;
        let same = |x: &f16| x.to_f32() == want || x.is_nan() && want.is_nan();
        match d.data().iter().find(|x| !same(x)) {
            Some(x) => Err(format!("{what}: an element is {x}, not {want}")),
            None => Ok(()),
        }
    };
    let (a, b) = (largest(3, 1), largest(5, 1));
    expect(multiply(world, &a, &b, [None, None]), f32::INFINITY, "448 · 448")?;
    expect(multiply(world, &a, &b, [Some(2f32.powi(-5)), Some(2f32.powi(-5))]), 196.0, "448 · 448 / 1024")?;
    let special = |code: u8| Matrix::from_fn(5, 1, |_, _| F8E5M2::from_bits(code));
    expect(multiply(world, &a, &special(0xFC), [None, None]), f32::NEG_INFINITY, "448 · −∞")?;
    expect(multiply(world, &a, &special(0x7F), [None, None]), f32::NAN, "448 · NaN")?;
    expect(multiply(world, &a, &special(0x3C), [Some(f32::NAN), None]), f32::NAN, "a scale of NaN")
}

/// A NaN stays in its row of A and in its row of B.
pub fn nan_stays_in_its_row_and_column(world: &World) -> TestResult {
    let with_nan = |rows: usize, seed: usize, at: usize| {
        let clean = uniform::<F8E4M3>(rows, 144, seed);
        Matrix::from_fn(
            rows,
            144,
            |r, c| {
                if (r, c) == (at, 9) { F8E4M3::from_bits(0x7F) } else { *clean.view().at(r, c) }
            },
        )
    };
    let (a, b) = (with_nan(150, 1, 70), with_nan(140, 2, 130));
    let d = multiply::<_, _, bf16>(world, &a, &b, FACTORS[1]).map_err(|e| e.to_string())?;
    for row in 0..150 {
        for col in 0..140 {
            if d.view().at(row, col).is_nan() != (row == 70 || col == 130) {
                return Err(format!("({row}, {col}) is {}", d.view().at(row, col)));
            }
        }
    }
    Ok(())
}

/// GEMM + ReduceScatter with other scales on every rank.
fn scattered<B: Scalar, O: Scalar>(world: &World, case: &Case) -> Result<Vec<Vec<u8>>, String> {
    let go = || -> Result<_, Error> {
        let plan = GemmReduceScatter::builder(world)
            .shape(case.m, case.n, case.k)
            .variant(variant::<F8E4M3, B, O>())
            .transport(case.transport)
            .placement(case.placement)
            .sm_margin(case.sm_margin)
            .build()?;
        let (mut a, mut b, mut d, mut scales) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (mut truth, mut largest) = (Matrix::from_fn(case.m, case.n, |_, _| 0.0), 0f64);
        for rank in 0..world.size() {
            let (x, y) = (uniform::<F8E4M3>(case.m, case.k, rank), uniform::<B>(case.n, case.k, rank + 100));
            let factors = FACTORS[rank % FACTORS.len()];
            let partial = gemm(Layout::Nt, x.view(), y.view())?;
            let factor = product_of(factors);
            largest = largest.max(factor.abs());
            truth.data_mut().iter_mut().zip(partial.data()).for_each(|(sum, p)| *sum += factor * p);
            a.push(Tensor::from_slice(world, rank, case.m, case.k, x.data())?);
            b.push(Tensor::from_slice(world, rank, case.n, case.k, y.data())?);
            d.push(Tensor::poisoned::<O>(world, rank, plan.rows_of(case.m, rank), case.n)?);
            scales.push(ScaleTensors::new(world, rank, factors)?);
        }
        let scales: Vec<_> = scales.iter().map(ScaleTensors::scales).collect();
        plan.run_scaled(case.m, &a, &b, &mut d, &scales)?;
        let d =
            d.iter().map(|t| Matrix::from_vec(t.rows(), t.cols(), t.to_vec::<O>()?)).collect::<Result<Vec<_>, _>>()?;
        let actual: Vec<_> = d.iter().map(Matrix::view).collect();
        let expected = chunks_of(case.m, world.size())?
            .iter()
            .map(|chunk| truth.view().part(chunk.first_row as usize, 0, chunk.rows as usize, case.n))
            .collect::<Result<Vec<_>, _>>()?;
        let tolerance = numerics::<O>(case.k, world.size(), largest).tolerance_of(F8E4M3::ELEMENT);
        compare_chunks(&actual, &expected, tolerance)?.check()?;
        Ok(bits(&d))
    };
    go().map_err(|e| format!("{} {case:?}: {e}", variant::<F8E4M3, B, O>()))
}

/// GEMM + ReduceScatter: every type, in every way that tiles can take, with the same bits.
pub fn reduce_scatter_in_every_way(world: &World, shapes: &[(usize, usize, usize)]) -> TestResult {
    for &(m, n, k) in shapes {
        let mut first: Option<Vec<Vec<u8>>> = None;
        for (transport, placement, margin) in WAYS {
            let case = Case::new(m, n, k).over(transport, placement, margin);
            let found = scattered::<F8E4M3, bf16>(world, &case)?;
            if *first.get_or_insert_with(|| found.clone()) != found {
                return Err(format!("{case:?} gives other bits than {:?}", WAYS[0]));
            }
        }
        let case = Case::new(m, n, k);
        scattered::<F8E4M3, f16>(world, &case)?;
        scattered::<F8E4M3, f32>(world, &case)?;
        scattered::<F8E5M2, bf16>(world, &case)?;
        scattered::<F8E5M2, f16>(world, &case)?;
        scattered::<F8E5M2, f32>(world, &case)?;
    }
    Ok(())
}

/// What there is no kernel for, and scales that are none, are errors that say what there is.
pub fn bad_input_is_refused(world: &World) -> TestResult {
    let expect = |result: Result<(), Error>, parts: &[&str]| -> TestResult {
        let text = result.err().map(|e| e.to_string()).unwrap_or_default();
        match parts.iter().find(|part| !text.contains(**part)) {
            Some(part) => Err(format!("{part:?} is not in {text:?}")),
            None => Ok(()),
        }
    };
    let nn = Variant { layout: Layout::Nn, ..variant::<F8E4M3, F8E4M3, bf16>() };
    let built = Gemm::builder(world, 0).shape(64, 64, 64).variant(nn).build().map(drop);
    expect(built, &["nn e4m3 → bf16", "supported are", "nt e4m3 → bf16", "nt e4m3 × e5m2 → f32"])?;
    let built = Gemm::builder(world, 0).shape(64, 64, 64).variant(variant::<F8E4M3, F8E4M3, bf16>()).tile([64, 128]);
    expect(built.build().map(drop), &["tile is 64 × 128", "128 × 256 and 128 × 128"])?;
    let built = GemmReduceScatter::builder(world).shape(64, 64, 64).variant(variant::<F8E5M2, F8E4M3, bf16>()).build();
    expect(built.map(drop), &["nt e5m2 × e4m3 → bf16", "nt e4m3 × e5m2 → bf16"])?;
    let go = || -> Result<_, Error> {
        let a = Tensor::from_slice(world, 0, 8, 16, uniform::<bf16>(8, 16, 1).data())?;
        let b = Tensor::from_slice(world, 0, 8, 16, uniform::<bf16>(8, 16, 2).data())?;
        let d = Tensor::poisoned::<bf16>(world, 0, 8, 8)?;
        let plan = Gemm::builder(world, 0).shape(8, 8, 16).build()?;
        let fp8 = Gemm::builder(world, 0).shape(8, 8, 16).variant(variant::<F8E4M3, F8E5M2, bf16>()).build()?;
        let scale = Tensor::from_slice(world, 0, 1, 1, &[1f32])?;
        Ok((a, b, d, plan, fp8, scale))
    };
    let (a, b, mut d, plan, fp8, scale) = go().map_err(|e| e.to_string())?;
    let scales = TensorScales { a: None, b: Some(&scale) };
    expect(plan.run_scaled(8, &a, &b, &mut d, scales), &["B's scale on rank 0", "only operands of 8 bits", "bf16"])?;
    let scales = TensorScales { a: Some(&a), b: None };
    expect(fp8.run_scaled(8, &a, &b, &mut d, scales), &["type of a", "bf16", "e4m3"])?;
    let codes = uniform::<F8E4M3>(8, 16, 1);
    let eight = Tensor::from_slice(world, 0, 8, 16, codes.data()).map_err(|e| e.to_string())?;
    expect(fp8.run(8, &eight, &eight, &mut d), &["type of b", "e4m3", "e5m2"])?;
    let wide = Tensor::from_slice(world, 0, 1, 2, &[1f32; 2]).map_err(|e| e.to_string())?;
    let other = Tensor::from_slice(world, 0, 8, 16, uniform::<F8E5M2>(8, 16, 1).data()).map_err(|e| e.to_string())?;
    let scales = TensorScales { a: Some(&wide), b: None };
    expect(fp8.run_scaled(8, &eight, &other, &mut d, scales), &["shape of A's scale", "1 × 2"])?;
    fp8.run_scaled(8, &eight, &other, &mut d, TensorScales { a: Some(&scale), b: None }).map_err(|e| e.to_string())
}
