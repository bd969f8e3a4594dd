//! Epilogues: factors, addends and activations, on the plain product and on the sum over ranks.

use half::{bf16, f16};
use tilewire::compare::{GemmNumerics, Tolerance, compare_chunks};
use tilewire::kernels::config::Element;
use tilewire::matrix::{Matrix, MatrixRef};
use tilewire::ops::{Activation, Gemm, GemmReduceScatter, TensorEpilogue};
use tilewire::reference::epilogue::HostEpilogue;
use tilewire::reference::{fused, gemm};
use tilewire::scalar::{Scalar, unit_roundoff};
use tilewire::world::{Tensor, World};
use tilewire::{Error, Layout, Variant};

use super::{Case, Operands, TestResult, WAYS, bits, uniform};

/// What an epilogue has: a row of the tests' table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Form {
    pub alpha: f32,
    /// Values of the device's scales of A and B.
    pub scales: Option<[f32; 2]>,
    pub beta: f32,
    /// C lies where D does.
    pub in_place: bool,
    pub bias: bool,
    pub activation: Activation,
    pub residual: bool,
}

const PLAIN: Form = Form {
    alpha: 1.0,
    scales: None,
    beta: 0.0,
    in_place: false,
    bias: false,
    activation: Activation::None,
    residual: false,
};

/// Each option alone, and together.
pub const FORMS: [Form; 13] = [
    PLAIN,
    Form { alpha: -0.75, ..PLAIN },
    Form { scales: Some([0.5, 3.0]), ..PLAIN },
    Form { beta: 1.0, in_place: true, ..PLAIN },
    Form { beta: 0.5, ..PLAIN },
    Form { bias: true, ..PLAIN },
    Form { residual: true, ..PLAIN },
    Form { activation: Activation::Relu, bias: true, ..PLAIN },
    Form { activation: Activation::GeluTanh, ..PLAIN },
    Form { activation: Activation::GeluErf, bias: true, residual: true, ..PLAIN },
    Form { activation: Activation::Silu, alpha: 0.25, beta: -2.0, ..PLAIN },
    Form { activation: Activation::Silu, residual: true, ..PLAIN },
    Form {
        alpha: 2.0,
        scales: Some([0.25, 0.5]),
        beta: 1.5,
        in_place: true,
        bias: true,
        activation: Activation::GeluErf,
        residual: false,
    },
];

impl Form {
    /// The same on the host, over these addends.
    pub fn host<'a, O>(&self, c: MatrixRef<'a, O>, residual: MatrixRef<'a, O>, bias: &'a [O]) -> HostEpilogue<'a, O> {
        HostEpilogue {
            alpha: f64::from(self.alpha) * self.scales.map_or(1.0, |[a, b]| f64::from(a) * f64::from(b)),
            beta: f64::from(self.beta),
            activation: self.activation,
            c: Some(c),
            bias: self.bias.then_some(bias),
            residual: self.residual.then_some(residual),
        }
    }
}

/// Addends of an m × n result, on the host and on the device.
pub struct Addends<O> {
    pub c: Matrix<O>,
    pub residual: Matrix<O>,
    pub bias: Matrix<O>,
    tensors: [Tensor; 5],
}

impl<O: Scalar> Addends<O> {
    pub fn new(world: &World, rank: usize, form: &Form, (m, n): (usize, usize)) -> Result<Self, Error> {
        let (c, residual, bias) = (uniform(m, n, 11 + rank), uniform(m, n, 12 + rank), uniform(1, n, 13));
        let upload = |x: &Matrix<O>| Tensor::from_slice(world, rank, x.rows(), x.cols(), x.data());
        let scale = |value: f32| Tensor::from_slice(world, rank, 1, 1, &[value]);
        let [scale_a, scale_b] = form.scales.unwrap_or([f32::NAN; 2]);
        let tensors = [upload(&c)?, upload(&residual)?, upload(&bias)?, scale(scale_a)?, scale(scale_b)?];
        Ok(Self { c, residual, bias, tensors })
    }

    pub fn device(&self, form: &Form) -> TensorEpilogue<'_> {
        let [c, residual, bias, scale_a, scale_b] = &self.tensors;
        TensorEpilogue {
            alpha: form.alpha,
            beta: form.beta,
            activation: form.activation,
            c: (!form.in_place).then_some(c),
            residual: form.residual.then_some(residual),
            bias: form.bias.then_some(bias),
            scale_a: form.scales.map(|_| scale_a),
            scale_b: form.scales.map(|_| scale_b),
        }
    }

    pub fn host(&self, form: &Form) -> HostEpilogue<'_, O> {
        form.host(self.c.view(), self.residual.view(), self.bias.data())
    }

    /// D before the call: C where it lies there, else poison.
    pub fn d(&self, world: &World, rank: usize, form: &Form) -> Result<Tensor, Error> {
        let (m, n) = (self.c.rows(), self.c.cols());
        if form.in_place {
            Tensor::from_slice(world, rank, m, n, self.c.data())
        } else {
            Tensor::poisoned::<O>(world, rank, m, n)
        }
    }
}

/// What no value on the way exceeds, for uniform operands and addends.
pub fn largest(form: &Form, products: usize) -> f64 {
    let alpha = f64::from(form.alpha) * form.scales.map_or(1.0, |[a, b]| f64::from(a) * f64::from(b));
    alpha.abs() * (products as f64) + f64::from(form.beta.abs()) + 2.0
}

/// A product with an epilogue, and what it must be.
struct Outcome<O> {
    actual: Matrix<O>,
    product: Matrix<f64>,
    addends: Addends<O>,
    tolerance: Tolerance,
}

fn outcome<I: Scalar, O: Scalar>(
    world: &World,
    layout: Layout,
    (m, n, k): (usize, usize, usize),
    form: &Form,
) -> Result<Outcome<O>, Error> {
    let ((ar, ac), (br, bc)) = (layout.a_shape(m, k), layout.b_shape(n, k));
    let (a, b) = (uniform::<I>(ar, ac, 1), uniform::<I>(br, bc, 2));
    let (at, bt) = (Tensor::from_slice(world, 0, ar, ac, a.data())?, Tensor::from_slice(world, 0, br, bc, b.data())?);
    let variant = Variant { layout, input: I::ELEMENT, input_b: I::ELEMENT, output: O::ELEMENT };
    let plan = Gemm::builder(world, 0).shape(m, n, k).variant(variant).with_epilogue().build()?;
    let addends = Addends::<O>::new(world, 0, form, (m, n))?;
    let mut d = addends.d(world, 0, form)?;
    plan.run_with(m, &at, &bt, &mut d, &addends.device(form))?;
    let actual = Matrix::from_vec(m, n, d.to_vec::<O>()?)?;
    let product = gemm(layout, a.view(), b.view())?;
    let numerics = GemmNumerics { k_per_rank: k, world: 1, out: O::ELEMENT, partials: Element::F32, scale: 1.0 / 3.0 };
    let tolerance = addends.host(form).tolerance(numerics.tolerance(), largest(form, k));
    Ok(Outcome { actual, product, addends, tolerance })
}

fn compare<O: Scalar>(outcome: &Outcome<O>, expected: &Matrix<f64>) -> Result<(), Error> {
    compare_chunks(&[outcome.actual.view()], &[expected.view()], outcome.tolerance)?.check().map(drop)
}

fn right<I: Scalar, O: Scalar>(world: &World, layout: Layout, shape: (usize, usize, usize), form: &Form) -> TestResult {
    let go = || -> Result<(), Error> {
        let outcome = outcome::<I, O>(world, layout, shape, form)?;
        compare(&outcome, &outcome.addends.host(form).apply(&outcome.product)?)
    };
    go().map_err(|e| format!("{layout} {shape:?} {:?} → {:?} {form:?}: {e}", I::ELEMENT, O::ELEMENT))
}

/// Every layout, type and epilogue on ragged shapes.
pub fn gemm_of_every_variant_and_form(world: &World, shapes: &[(usize, usize, usize)]) -> TestResult {
    for layout in Layout::ALL {
        for shape in shapes {
            for form in &FORMS {
                right::<bf16, bf16>(world, layout, *shape, form)?;
                right::<bf16, f32>(world, layout, *shape, form)?;
                right::<f16, f16>(world, layout, *shape, form)?;
                right::<f16, f32>(world, layout, *shape, form)?;
            }
        }
    }
    Ok(())
}

/// Tiles that follow each other in a CTA: buffers are used again and again.
pub fn many_tiles_with_epilogue(world: &World, (m, n, k): (usize, usize, usize)) -> TestResult {
    for form in &FORMS {
        right::<bf16, bf16>(world, Layout::Nt, (m, n, k), form)?;
        right::<bf16, f32>(world, Layout::Nn, (m, n, k), form)?;
    }
    Ok(())
}

/// K = 0 leaves what is added; one k-tile and tails work.
pub fn k_edges_with_epilogue(world: &World) -> TestResult {
    for k in [0, 1, 8, 64, 72, 200] {
        for form in [&FORMS[4], &FORMS[9], &FORMS[12]] {
            right::<bf16, bf16>(world, Layout::Nt, (70, 40, k), form)?;
        }
    }
    Ok(())
}

/// An epilogue that changes nothing gives the bits of the plain kernel, and beta 0 does not read a C of NaN.
pub fn beta_zero_reads_no_c(world: &World) -> TestResult {
    let (m, n, k) = (131, 264, 72);
    let go = || -> Result<_, Error> {
        let (a, b) = (uniform::<bf16>(m, k, 1), uniform::<bf16>(n, k, 2));
        let (a, b) = (Tensor::from_slice(world, 0, m, k, a.data())?, Tensor::from_slice(world, 0, n, k, b.data())?);
        let plan = Gemm::builder(world, 0).shape(m, n, k).with_epilogue().build()?;
        let mut d = Tensor::poisoned::<bf16>(world, 0, m, n)?;
        plan.run(m, &a, &b, &mut d)?;
        let plain = d.to_vec::<bf16>()?;
        let nans = Tensor::poisoned::<bf16>(world, 0, m, n)?;
        let mut results = Vec::new();
        for beta in [0.0, -0.0] {
            for epilogue in [TensorEpilogue::default().beta(beta), TensorEpilogue::default().beta(beta).c(&nans)] {
                d.poison()?;
                plan.run_with(m, &a, &b, &mut d, &epilogue)?;
                results.push(d.to_vec::<bf16>()?);
            }
        }
        Ok(results.into_iter().all(|result| result.iter().zip(&plain).all(|(x, y)| x.to_bits() == y.to_bits())))
    };
    if go().map_err(|e| e.to_string())? { Ok(()) } else { Err("beta = 0 changes the result".to_string()) }
}

/// A NaN in the bias stays in its column, one in C or in the residual at its place.
pub fn nans_of_addends_stay_where_they_are(world: &World) -> TestResult {
    let (m, n, k) = (70, 136, 64);
    let nan_at = |row: usize, col: usize| (row * 7 + col * 3).is_multiple_of(50);
    let go = || -> Result<Option<String>, Error> {
        let (a, b) = (uniform::<bf16>(m, k, 1), uniform::<bf16>(n, k, 2));
        let (a, b) = (Tensor::from_slice(world, 0, m, k, a.data())?, Tensor::from_slice(world, 0, n, k, b.data())?);
        let plan = Gemm::builder(world, 0).shape(m, n, k).with_epilogue().build()?;
        let spotted = |r, c| if nan_at(r, c) { bf16::NAN } else { bf16::ONE };
        let matrix = Tensor::from_slice(world, 0, m, n, Matrix::from_fn(m, n, spotted).data())?;
        let bias = Tensor::from_slice(world, 0, 1, n, Matrix::from_fn(1, n, spotted).data())?;
        for activation in Activation::ALL {
            let base = TensorEpilogue::default().activation(activation);
            let cases = [
                ("C", base.beta(1.0).c(&matrix), false),
                ("residual", base.residual(&matrix), false),
                ("bias", base.bias(&bias), true),
            ];
            for (name, epilogue, by_column) in cases {
                let mut d = Tensor::poisoned::<bf16>(world, 0, m, n)?;
                plan.run_with(m, &a, &b, &mut d, &epilogue)?;
                for (i, x) in d.to_vec::<bf16>()?.iter().enumerate() {
                    let (row, col) = (i / n, i % n);
                    if x.is_nan() != nan_at(if by_column { 0 } else { row }, col) {
                        return Ok(Some(format!("{name}, {activation:?}: element ({row}, {col}) is {x}")));
                    }
                }
            }
        }
        Ok(None)
    };
    go().map_err(|e| e.to_string())?.map_or(Ok(()), Err)
}

/// GEMM + ReduceScatter with `form` on every rank: D, the sum, and the addends of each rank.
fn scattered<I: Scalar, O: Scalar>(world: &World, case: &Case, form: &Form) -> Result<Scattered<O>, Error> {
    let operands = Operands::<I>::new(world, case, uniform)?;
    let plan = GemmReduceScatter::builder(world)
        .shape(case.m, case.n, case.k)
        .variant(Variant { layout: case.layout, input: I::ELEMENT, input_b: I::ELEMENT, output: O::ELEMENT })
        .transport(case.transport)
        .placement(case.placement)
        .sm_margin(case.sm_margin)
        .with_epilogue()
        .build()?;
    let shape = |rank| (plan.rows_of(case.m, rank), case.n);
    let ranks = 0..world.size();
    let addends = ranks.map(|rank| Addends::<O>::new(world, rank, form, shape(rank))).collect::<Result<Vec<_>, _>>()?;
    let mut d = addends.iter().enumerate().map(|(r, a)| a.d(world, r, form)).collect::<Result<Vec<_>, _>>()?;
    let epilogues: Vec<_> = addends.iter().map(|addends| addends.device(form)).collect();
    // Twice, with what lies in D renewed: slots and epochs go on.
    plan.run_with(case.m, &operands.a_tensors, &operands.b_tensors, &mut d, &epilogues)?;
    let mut d = addends.iter().enumerate().map(|(r, a)| a.d(world, r, form)).collect::<Result<Vec<_>, _>>()?;
    plan.run_with(case.m, &operands.a_tensors, &operands.b_tensors, &mut d, &epilogues)?;
    let actual =
        d.iter().map(|t| Matrix::from_vec(t.rows(), t.cols(), t.to_vec::<O>()?)).collect::<Result<Vec<_>, Error>>()?;
    Ok(Scattered { actual, sum: fused::truth(case.layout, &operands.views())?, addends })
}

struct Scattered<O> {
    actual: Vec<Matrix<O>>,
    sum: Vec<Matrix<f64>>,
    addends: Vec<Addends<O>>,
}

impl<O: Scalar> Scattered<O> {
    /// Compares with the epilogues that `host` makes of each rank's.
    fn check<'a>(
        &'a self,
        case: &Case,
        form: &Form,
        host: impl Fn(&'a Addends<O>) -> HostEpilogue<'a, O>,
    ) -> Result<(), Error> {
        let (out, world) = (O::ELEMENT, self.actual.len());
        let numerics = GemmNumerics { k_per_rank: case.k, world, out, partials: out, scale: 1.0 / 3.0 };
        let mut product = numerics.tolerance();
        if world == 1 {
            // One rank's partial is rounded before the epilogue, too.
            product.absolute += 8.0 / 3.0 * (case.k as f64).sqrt() * unit_roundoff(out);
        }
        for ((actual, sum), addends) in self.actual.iter().zip(&self.sum).zip(&self.addends) {
            let host = host(addends);
            let tolerance = host.tolerance(product, largest(form, case.k * world));
            compare_chunks(&[actual.view()], &[host.apply(sum)?.view()], tolerance)?.check()?;
        }
        Ok(())
    }
}

fn right_scattered<I: Scalar, O: Scalar>(world: &World, case: &Case, form: &Form) -> TestResult {
    let go = || -> Result<(), Error> {
        scattered::<I, O>(world, case, form)?.check(case, form, |addends| addends.host(form))
    };
    go().map_err(|e| format!("{case:?} {:?} → {:?} {form:?}: {e}", I::ELEMENT, O::ELEMENT))
}

/// Every epilogue in every way that tiles can take; shapes whose rows end inside 16 bytes among them.
pub fn every_form_in_every_way(world: &World, shapes: &[(usize, usize, usize)]) -> TestResult {
    for (i, form) in FORMS.iter().enumerate() {
        for (j, &(m, n, k)) in shapes.iter().enumerate() {
            for (way, (transport, placement, margin)) in WAYS.into_iter().enumerate() {
                let case = Case::new(m, n, k).over(transport, placement, margin).layout(Layout::ALL[(i + j + way) % 3]);
                right_scattered::<bf16, bf16>(world, &case, form)?;
            }
        }
    }
    Ok(())
}

/// Every layout, type and epilogue over the sum.
pub fn every_variant_and_form_over_ranks(world: &World, shape: (usize, usize, usize)) -> TestResult {
    for layout in Layout::ALL {
        for (i, form) in FORMS.iter().enumerate() {
            let (transport, placement, margin) = [WAYS[0], WAYS[3]][i % 2];
            let case = Case::new(shape.0, shape.1, shape.2).layout(layout).over(transport, placement, margin);
            right_scattered::<bf16, f32>(world, &case, form)?;
            right_scattered::<f16, f16>(world, &case, form)?;
            right_scattered::<f16, f32>(world, &case, form)?;
        }
    }
    Ok(())
}

/// The bits do not depend on the way that tiles take, with an epilogue neither.
pub fn bits_with_epilogue_are_the_same_in_every_way(world: &World, m: usize, n: usize, k: usize) -> TestResult {
    for form in &FORMS {
        let mut first: Option<Vec<Vec<u8>>> = None;
        for (transport, placement, margin) in WAYS {
            let case = Case::new(m, n, k).over(transport, placement, margin);
            let d = scattered::<bf16, bf16>(world, &case, form).map_err(|e| format!("{case:?} {form:?}: {e}"))?;
            let these = bits(&d.actual);
            if *first.get_or_insert_with(|| these.clone()) != these {
                return Err(format!("{case:?} {form:?} gives other bits than {:?}", WAYS[0]));
            }
        }
    }
    Ok(())
}

/// The bias is added once, not once a rank; its double, or none, does not pass.
pub fn bias_is_added_once(world: &World) -> TestResult {
    let (case, form) = (Case::new(70, 72, 64), Form { bias: true, ..PLAIN });
    let go = || -> Result<bool, Error> {
        let d = scattered::<bf16, bf16>(world, &case, &form)?;
        d.check(&case, &form, |addends| addends.host(&form))?;
        // Σ (product + bias) over ranks would have the bias once a rank.
        let times = world.size() as f32;
        let many: Vec<bf16> = d.addends[0].bias.data().iter().map(|b| bf16::from_f32(b.to_f32() * times)).collect();
        let none = d.check(&case, &form, |addends| HostEpilogue { bias: None, ..addends.host(&form) }).is_err();
        let once_a_rank = d.actual.iter().zip(&d.sum).any(|(actual, sum)| {
            let host = HostEpilogue { bias: Some(&many), ..HostEpilogue::default() };
            let tolerance = host.tolerance(Tolerance { absolute: 0.1, relative: 0.01 }, 100.0);
            let expected = host.apply(sum).expect("shapes agree");
            compare_chunks(&[actual.view()], &[expected.view()], tolerance).is_ok_and(|r| r.check().is_err())
        });
        Ok(none && once_a_rank)
    };
    if go().map_err(|e| e.to_string())? { Ok(()) } else { Err("a wrong bias was not noticed".to_string()) }
}

/// Epilogues over ranks that cannot be are errors.
pub fn bad_epilogues_over_ranks_are_refused(world: &World) -> TestResult {
    let case = Case::new(70, 72, 64);
    let go = || -> Result<_, Error> {
        let operands = Operands::<bf16>::new(world, &case, uniform)?;
        let (a, b) = (&operands.a_tensors, &operands.b_tensors);
        let builder = || GemmReduceScatter::builder(world).shape(case.m, case.n, case.k);
        let (without, plan) = (builder().build()?, builder().with_epilogue().build()?);
        let mut d = (0..world.size())
            .map(|rank| Tensor::poisoned::<bf16>(world, rank, plan.rows_of(case.m, rank), case.n))
            .collect::<Result<Vec<_>, _>>()?;
        let mut epilogues = vec![TensorEpilogue::default(); world.size()];
        let mut said = vec![(without.run_with(case.m, a, b, &mut d, &epilogues), "with_epilogue()")];
        said.push((plan.run_with(case.m, a, b, &mut d, &epilogues[1..]), "number of epilogues"));
        epilogues[1].alpha = 2.0;
        said.push((plan.run_with(case.m, a, b, &mut d, &epilogues), "ranks disagree on alpha: rank 1 has 2"));
        epilogues[1] = TensorEpilogue::default().activation(Activation::Silu);
        said.push((plan.run_with(case.m, a, b, &mut d, &epilogues), "ranks disagree on activation: rank 1 has silu"));
        plan.run_with(case.m, a, b, &mut d, &vec![TensorEpilogue::default(); world.size()])?;
        Ok(said)
    };
    for (result, word) in go().map_err(|e| e.to_string())? {
        let text = result.err().map(|e| e.to_string()).unwrap_or_default();
        if !text.contains(word) {
            return Err(format!("{word:?} is not in {text:?}"));
        }
    }
    Ok(())
}

/// A right result does not pass for one whose addends are in other places, is scaled otherwise or activated otherwise.
pub fn misplaced_addends_are_noticed(world: &World) -> TestResult {
    let n = 136;
    let form = Form { bias: true, beta: 0.5, activation: Activation::GeluTanh, ..PLAIN };
    let go = || -> Result<Vec<&'static str>, Error> {
        let outcome = outcome::<bf16, bf16>(world, Layout::Nt, (n, n, 64), &form)?;
        let host = outcome.addends.host(&form);
        compare(&outcome, &host.apply(&outcome.product)?)?;
        let c = &outcome.addends.c;
        let transposed = Matrix::from_fn(n, n, |r, col| *c.view().at(col, r));
        let shifted_rows = Matrix::from_fn(n, n, |r, col| *c.view().at((r + 1) % n, col));
        let mut bias = outcome.addends.bias.data().to_vec();
        bias.rotate_left(1);
        let wrong = [
            ("bias one column off", HostEpilogue { bias: Some(&bias), ..host }),
            ("no bias", HostEpilogue { bias: None, ..host }),
            ("C transposed", HostEpilogue { c: Some(transposed.view()), ..host }),
            ("C one row off", HostEpilogue { c: Some(shifted_rows.view()), ..host }),
            ("beta of 1", HostEpilogue { beta: 1.0, ..host }),
            ("no activation", HostEpilogue { activation: Activation::None, ..host }),
            ("ReLU", HostEpilogue { activation: Activation::Relu, ..host }),
            ("C after the activation", HostEpilogue { beta: 0.0, residual: Some(c.view()), ..host }),
        ];
        let mut unnoticed = Vec::new();
        for (what, epilogue) in wrong {
            if compare(&outcome, &epilogue.apply(&outcome.product)?).is_ok() {
                unnoticed.push(what);
            }
        }
        Ok(unnoticed)
    };
    let unnoticed = go().map_err(|e| e.to_string())?;
    if unnoticed.is_empty() { Ok(()) } else { Err(format!("not noticed: {unnoticed:?}")) }
}

/// Bad epilogues are errors that name what is wrong, and nothing is lost by them.
pub fn bad_epilogues_are_refused(world: &World) -> TestResult {
    let (m, n, k) = (16, 24, 32);
    let go = || -> Result<_, Error> {
        let (a, b) = (uniform::<bf16>(m, k, 1), uniform::<bf16>(n, k, 2));
        let (a, b) = (Tensor::from_slice(world, 0, m, k, a.data())?, Tensor::from_slice(world, 0, n, k, b.data())?);
        let mut d = Tensor::from_slice(world, 0, m, n, uniform::<bf16>(m, n, 3).data())?;
        let (matrix, narrow) =
            (Tensor::poisoned::<bf16>(world, 0, m, n)?, Tensor::poisoned::<bf16>(world, 0, m, n - 1)?);
        let bias = Tensor::poisoned::<f32>(world, 0, 1, n)?;
        let without = Gemm::builder(world, 0).shape(m, n, k).build()?;
        let plan = Gemm::builder(world, 0).shape(m, n, k).with_epilogue().build()?;
        let none = TensorEpilogue::default();
        let mut said = vec![(without.run_with(m, &a, &b, &mut d, &none), ["epilogue", "with_epilogue()"])];
        for (epilogue, words) in [
            (none.beta(1.0).residual(&matrix), ["beta is 1", "one matrix can be added"]),
            (none.beta(1.0).c(&narrow), ["shape of c", "16 × 24"]),
            (none.residual(&narrow), ["shape of residual", "16 × 23"]),
            (none.bias(&bias), ["element type of bias", "f32"]),
            (none.bias(&narrow), ["shape of bias", "1 × 24"]),
        ] {
            said.push((plan.run_with(m, &a, &b, &mut d, &epilogue), words));
        }
        plan.run_with(m, &a, &b, &mut d, &none)?;
        Ok(said)
    };
    for (result, words) in go().map_err(|e| e.to_string())? {
        let text = result.err().map(|e| e.to_string()).unwrap_or_default();
        if let Some(word) = words.iter().find(|word| !text.contains(**word)) {
            return Err(format!("{word:?} is not in {text:?}"));
        }
    }
    Ok(())
}
