//! What a call must give.

use tilewire::Error;
use tilewire::compare::{GemmNumerics, compare_chunks};
use tilewire::kernels::config::Element;
use tilewire::matrix::Matrix;
use tilewire::reference::{chunks_of, gemm, reduce_scatter};
use tilewire::scalar::{Scalar, unit_roundoff};

use super::{FuzzCase, FuzzOp, Given};
use crate::TestResult;
use crate::epilogue::Form;

/// Compares a call's results with what they must be.
pub fn compare<A: Scalar, B: Scalar, O: Scalar>(
    fuzz: &FuzzCase,
    given: &Given<A, B, O>,
    d: &[Matrix<O>],
) -> TestResult {
    let products = given.a.iter().zip(&given.b).map(|(a, b)| gemm(fuzz.case.layout, a.view(), b.view()));
    let products = products.collect::<Result<Vec<_>, _>>().map_err(|e| e.to_string())?;
    if !fuzz.is_exact() {
        return is_near(fuzz, given, &products, d).map_err(|e| e.to_string());
    }
    let exact = exact(fuzz, given, &products).map_err(|e| e.to_string())?;
    // An epilogue's f64 reference and a world of one promise no sign of a zero (`docs/numerics.md`).
    let any_zero = fuzz.form.is_some() || fuzz.op == FuzzOp::GemmReduceScatter && fuzz.ranks == 1;
    let same = |x: &O, y: &O| x.bits() == y.bits() || any_zero && x.to_f64() == 0.0 && y.to_f64() == 0.0;
    for (rank, (d, exact)) in d.iter().zip(&exact).enumerate() {
        let wrong = d.data().iter().zip(exact.data()).position(|(x, y)| !same(x, y));
        if let Some(at) = wrong {
            let (row, col) = (at / d.cols(), at % d.cols());
            let (found, expected) = (d.data()[at], exact.data()[at]);
            return Err(format!("rank {rank}, row {row}, column {col}: {found:?}, but the exact sum is {expected:?}"));
        }
    }
    let shapes = |all: &[Matrix<O>]| all.iter().map(|d| (d.rows(), d.cols())).collect::<Vec<_>>();
    if shapes(d) == shapes(&exact) { Ok(()) } else { Err(format!("shapes {:?}, not {:?}", shapes(d), shapes(&exact))) }
}

/// By which rank `rank`'s product is multiplied: as the kernels have it, one f32.
fn factor<A, B, O>(given: &Given<A, B, O>, rank: usize) -> f32 {
    let [a, b] = given.scales[rank].map(|scale| scale.unwrap_or(1.0));
    a * b
}

/// The results for products that are exact in f32.
fn exact<A: Scalar, B: Scalar, O: Scalar>(
    fuzz: &FuzzCase,
    given: &Given<A, B, O>,
    products: &[Matrix<f64>],
) -> Result<Vec<Matrix<O>>, Error> {
    // Over ranks, an epilogue's scales of 8-bit operands are factors of each partial, before it is rounded.
    let scales_partials = fuzz.op == FuzzOp::GemmReduceScatter && fuzz.input.bytes() == 1;
    let of_partials = fuzz.form.and_then(|form| form.scales).filter(|_| scales_partials);
    let scaled = products.iter().enumerate().map(|(rank, product)| {
        let factor = of_partials.map_or_else(|| factor(given, rank), |[a, b]| a * b);
        product.map(|x| *x as f32 * factor)
    });
    let scaled: Vec<Matrix<f32>> = scaled.collect();
    // The plain product is rounded once; partials are rounded for the wire too.
    let sums: Vec<Matrix<f32>> = match fuzz.op {
        FuzzOp::Gemm => scaled,
        FuzzOp::GemmReduceScatter => {
            let partials: Vec<Matrix<O>> = scaled.iter().map(|x| x.map(|x| O::from_f32(*x))).collect();
            reduce_scatter(&partials.iter().map(Matrix::view).collect::<Vec<_>>())?
        }
    };
    let Some(form) = fuzz.form else { return Ok(sums.iter().map(|sum| sum.map(|x| O::from_f32(*x))).collect()) };
    let form = if of_partials.is_some() { Form { scales: None, ..form } } else { form };
    let finish = |(sum, addends): (&Matrix<f32>, &super::given::Addends<O>)| {
        let finished = addends.host(&form).apply(&sum.map(|x| f64::from(*x)))?;
        Ok(finished.map(|x| O::from_f32(*x as f32)))
    };
    sums.iter().zip(&given.addends).map(finish).collect()
}

fn is_near<A: Scalar, B: Scalar, O: Scalar>(
    fuzz: &FuzzCase,
    given: &Given<A, B, O>,
    products: &[Matrix<f64>],
    d: &[Matrix<O>],
) -> Result<(), Error> {
    let (k, world, out) = (fuzz.case.k, products.len(), O::ELEMENT);
    let mut sum = products[0].map(|_| 0.0);
    let mut largest_factor = 0f64;
    for (rank, product) in products.iter().enumerate() {
        let factor = f64::from(factor(given, rank));
        largest_factor = largest_factor.max(factor.abs());
        sum.data_mut().iter_mut().zip(product.data()).for_each(|(sum, x)| *sum += factor * x);
    }
    // Largest operand, and the size of a product of two.
    let (largest, size) = match fuzz.integers {
        Some(max) => (f64::from(max), f64::from(max * (max + 1)) / 3.0),
        None => (1.0, 1.0 / 3.0),
    };
    let scale = largest_factor * size;
    let partials = if fuzz.op == FuzzOp::Gemm { Element::F32 } else { out };
    let mut tolerance = GemmNumerics { k_per_rank: k, world, out, partials, scale }.tolerance_of(A::ELEMENT);
    if fuzz.op == FuzzOp::GemmReduceScatter && world == 1 && fuzz.form.is_some() {
        // One rank's partial is rounded before the epilogue, too.
        tolerance.absolute += 8.0 * scale * (k as f64).sqrt() * unit_roundoff(out);
    }
    for (rank, chunk) in chunks_of(sum.rows(), world)?.into_iter().enumerate() {
        let part = sum.view().part(chunk.first_row as usize, 0, chunk.rows as usize, sum.cols())?.map(|x| *x);
        let (expected, tolerance) = match &fuzz.form {
            None => (part, tolerance),
            Some(form) => {
                let host = given.addends[rank].host(form);
                let products = (k * world) as f64 * largest * largest;
                let most = host.alpha.abs() * products + largest * (host.beta.abs() + 2.0);
                (host.apply(&part)?, host.tolerance(tolerance, most))
            }
        };
        compare_chunks(&[d[rank].view()], &[expected.view()], tolerance)?.check()?;
    }
    Ok(())
}
