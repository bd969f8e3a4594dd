//! Epilogues on the sum over ranks.

use half::{bf16, f16};
use tilewire::compare::{GemmNumerics, Tolerance, compare_chunks};
use tilewire::kernels::config::Element;
use tilewire::matrix::Matrix;
use tilewire::ops::{Activation, GemmReduceScatter, TensorEpilogue};
use tilewire::reference::epilogue::HostEpilogue;
use tilewire::reference::fused;
use tilewire::scalar::{F8E4M3, Scalar, unit_roundoff};
use tilewire::world::{Tensor, World};
use tilewire::{Error, Layout, Variant};

use super::epilogue::{Addends, FORMS, Form, PLAIN, largest};
use super::{Case, Operands, TestResult, WAYS, bits, uniform};

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
        input: Element,
        host: impl Fn(&'a Addends<O>) -> HostEpilogue<'a, O>,
    ) -> Result<(), Error> {
        let (out, world) = (O::ELEMENT, self.actual.len());
        let numerics = GemmNumerics { k_per_rank: case.k, world, out, partials: out, scale: 1.0 / 3.0 };
        let mut product = numerics.tolerance_of(input);
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
        scattered::<I, O>(world, case, form)?.check(case, form, I::ELEMENT, |addends| addends.host(form))
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

/// Every epilogue over the sum of products of 8-bit operands, whose scales belong to each rank's partial.
pub fn every_form_on_8_bit_operands_over_ranks(world: &World, shape: (usize, usize, usize)) -> TestResult {
    for form in &FORMS {
        for (transport, placement, margin) in [WAYS[0], WAYS[3], WAYS[6]] {
            let case = Case::new(shape.0, shape.1, shape.2).over(transport, placement, margin);
            right_scattered::<F8E4M3, bf16>(world, &case, form)?;
            right_scattered::<F8E4M3, f32>(world, &case, form)?;
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

/// Few rows, whose tiles hold those of every owner: every type and form is right, and has the bits of tiles that hold one owner's.
pub fn few_rows(world: &World, rows: &[usize], n: usize, k: usize) -> TestResult {
    for (i, &m) in rows.iter().enumerate() {
        bits_with_epilogue_are_the_same_in_every_way(world, m, n, k)?;
        for (j, form) in FORMS.iter().enumerate() {
            let (transport, placement, margin) = WAYS[(i + j) % WAYS.len()];
            let case = Case::new(m, n, k).over(transport, placement, margin);
            right_scattered::<bf16, f32>(world, &case, form)?;
            right_scattered::<f16, f16>(world, &case, form)?;
            right_scattered::<f16, f32>(world, &case, form)?;
        }
    }
    plain_and_finished_calls_share_a_plan(world, n, k)
}

/// Calls with an epilogue that changes nothing have the bits of calls without one, whatever calls the plan had before.
fn plain_and_finished_calls_share_a_plan(world: &World, n: usize, k: usize) -> TestResult {
    let go = || -> Result<Option<usize>, Error> {
        let builder = GemmReduceScatter::builder(world).shape(400, n, k).first_epoch(u32::MAX - 4);
        let plan = builder.with_epilogue().build()?;
        for m in [16, 400, 100, 16, 190, 64, 65, 0, 128, 1, 16] {
            let case = Case::new(m, n, k);
            let operands = Operands::<bf16>::new(world, &case, uniform)?;
            let (a, b) = (&operands.a_tensors, &operands.b_tensors);
            let room = || -> Result<Vec<Tensor>, Error> {
                let rows = |rank| plan.rows_of(m, rank);
                (0..world.size()).map(|rank| Tensor::poisoned::<bf16>(world, rank, rows(rank), n)).collect()
            };
            let (mut plain, mut finished) = (room()?, room()?);
            plan.run(m, a, b, &mut plain)?;
            plan.run_with(m, a, b, &mut finished, &vec![TensorEpilogue::default(); world.size()])?;
            for (plain, finished) in plain.iter().zip(&finished) {
                let bits = |d: &Tensor| -> Result<Vec<u16>, Error> {
                    Ok(d.to_vec::<bf16>()?.iter().map(|x| x.to_bits()).collect())
                };
                if bits(plain)? != bits(finished)? {
                    return Ok(Some(m));
                }
            }
        }
        Ok(None)
    };
    match go().map_err(|e| e.to_string())? {
        Some(m) => Err(format!("{m} rows: an epilogue that changes nothing changed bits")),
        None => Ok(()),
    }
}

/// The bias is added once, not once a rank; its double, or none, does not pass.
pub fn bias_is_added_once(world: &World) -> TestResult {
    let (case, form) = (Case::new(70, 72, 64), Form { bias: true, ..PLAIN });
    let go = || -> Result<bool, Error> {
        let d = scattered::<bf16, bf16>(world, &case, &form)?;
        d.check(&case, &form, Element::Bf16, |addends| addends.host(&form))?;
        // Σ (product + bias) over ranks would have the bias once a rank.
        let times = world.size() as f32;
        let many: Vec<bf16> = d.addends[0].bias.data().iter().map(|b| bf16::from_f32(b.to_f32() * times)).collect();
        let none =
            d.check(&case, &form, Element::Bf16, |addends| HostEpilogue { bias: None, ..addends.host(&form) }).is_err();
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
