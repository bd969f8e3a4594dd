//! Epilogues of plain products: factors, addends and activations.

use half::{bf16, f16};
use tilewire::compare::{GemmNumerics, Tolerance, compare_chunks};
use tilewire::kernels::config::Element;
use tilewire::matrix::{Matrix, MatrixRef};
use tilewire::ops::{Activation, Gemm, TensorEpilogue};
use tilewire::reference::epilogue::HostEpilogue;
use tilewire::reference::gemm;
use tilewire::scalar::Scalar;
use tilewire::world::{Tensor, World};
use tilewire::{Error, Layout, SplitK, Variant};

use super::{TestResult, uniform};

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

pub const PLAIN: Form = Form {
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

/// Which of a variant's kernels multiplies: the plan's choice unless told otherwise.
#[derive(Clone, Copy, Debug, Default)]
pub struct By {
    pub tile: Option<[u32; 2]>,
    pub split_k: SplitK,
}

/// A product with an epilogue, and what it must be.
struct Outcome<O> {
    actual: Matrix<O>,
    product: Matrix<f64>,
    addends: Addends<O>,
    tolerance: Tolerance,
}

fn outcome<A: Scalar, B: Scalar, O: Scalar>(
    world: &World,
    by: By,
    layout: Layout,
    (m, n, k): (usize, usize, usize),
    form: &Form,
) -> Result<Outcome<O>, Error> {
    let ((ar, ac), (br, bc)) = (layout.a_shape(m, k), layout.b_shape(n, k));
    let (a, b) = (uniform::<A>(ar, ac, 1), uniform::<B>(br, bc, 2));
    let (at, bt) = (Tensor::from_slice(world, 0, ar, ac, a.data())?, Tensor::from_slice(world, 0, br, bc, b.data())?);
    let variant = Variant { layout, input: A::ELEMENT, input_b: B::ELEMENT, output: O::ELEMENT };
    let builder = Gemm::builder(world, 0).shape(m, n, k).variant(variant).split_k(by.split_k).with_epilogue();
    let plan = by.tile.into_iter().fold(builder, |builder, tile| builder.tile(tile)).build()?;
    let addends = Addends::<O>::new(world, 0, form, (m, n))?;
    let mut d = addends.d(world, 0, form)?;
    plan.run_with(m, &at, &bt, &mut d, &addends.device(form))?;
    let actual = Matrix::from_vec(m, n, d.to_vec::<O>()?)?;
    let product = gemm(layout, a.view(), b.view())?;
    let numerics = GemmNumerics { k_per_rank: k, world: 1, out: O::ELEMENT, partials: Element::F32, scale: 1.0 / 3.0 };
    let tolerance = addends.host(form).tolerance(numerics.tolerance_of(A::ELEMENT), largest(form, k));
    Ok(Outcome { actual, product, addends, tolerance })
}

fn compare<O: Scalar>(outcome: &Outcome<O>, expected: &Matrix<f64>) -> Result<(), Error> {
    compare_chunks(&[outcome.actual.view()], &[expected.view()], outcome.tolerance)?.check().map(drop)
}

fn right<I: Scalar, O: Scalar>(world: &World, layout: Layout, shape: (usize, usize, usize), form: &Form) -> TestResult {
    right_by::<I, I, O>(world, By::default(), layout, shape, form)
}

/// The product with `form` is right, by the kernel that `by` says.
pub fn right_by<A: Scalar, B: Scalar, O: Scalar>(
    world: &World,
    by: By,
    layout: Layout,
    shape: (usize, usize, usize),
    form: &Form,
) -> TestResult {
    let go = || -> Result<(), Error> {
        let outcome = outcome::<A, B, O>(world, by, layout, shape, form)?;
        compare(&outcome, &outcome.addends.host(form).apply(&outcome.product)?)
    };
    let types = [A::ELEMENT, B::ELEMENT, O::ELEMENT];
    go().map_err(|e| format!("{layout} {shape:?} {types:?}, {by:?}, {form:?}: {e}"))
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

/// A right result does not pass for one whose addends are in other places, is scaled otherwise or activated otherwise.
pub fn misplaced_addends_are_noticed(world: &World) -> TestResult {
    let n = 136;
    let form = Form { bias: true, beta: 0.5, activation: Activation::GeluTanh, ..PLAIN };
    let go = || -> Result<Vec<&'static str>, Error> {
        let outcome = outcome::<bf16, bf16, bf16>(world, By::default(), Layout::Nt, (n, n, 64), &form)?;
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
