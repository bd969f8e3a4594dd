//! Arguments of calls: what is refused and how, and what must not change the result.

use std::time::Duration;

use half::{bf16, f16};
use tilewire::ops::{Gemm, GemmReduceScatter, RankMatrices};
use tilewire::plan::MatrixArg;
use tilewire::reference::chunks_of;
use tilewire::world::{Tensor, World};
use tilewire::{Error, Layout};

use super::raw::Guarded;
use super::{Case, Operands, TestResult, bits, check, fresh, plan, run, uniform};

/// `Err` unless `result` is an error whose text has all of `parts`.
pub fn expect_error<T>(result: Result<T, Error>, parts: &[&str]) -> TestResult {
    let text = result.err().map(|e| e.to_string()).unwrap_or_else(|| "no error".to_string());
    match parts.iter().find(|part| !text.contains(**part)) {
        Some(part) => Err(format!("{part:?} is not in {text:?}")),
        None => Ok(()),
    }
}

/// The ceil rule: ceil(m / W) rows a rank, the last ones short or empty; the result is right.
pub fn rows_follow_the_ceil_rule(world: &World, m: usize, rows: &[usize]) -> TestResult {
    let case = Case::new(m, 72, 64);
    let plan = plan::<bf16, bf16>(world, &case).map_err(|e| e.to_string())?;
    let found: Vec<_> = (0..world.size()).map(|rank| plan.rows_of(m, rank)).collect();
    if found != rows {
        return Err(format!("m = {m}: rows are {found:?}, not {rows:?}"));
    }
    fresh::<bf16, bf16>(world, &case)
}

/// Row strides of K, K+1 and K+8 (and N alike for D): each works, or is refused with operand, bytes and rule, and the
/// stride that the message advises works.
pub fn obeying_the_stride_message_makes_the_call_work(world: &World) -> TestResult {
    for extent in [1, 7, 8, 9, 105, 107] {
        for stride in [extent, extent + 1, extent + 8] {
            for operand in ["A", "B", "D"] {
                let (n, k) = if operand == "D" { (extent, 64) } else { (40, extent) };
                let message = match strided(world, n, k, operand, stride) {
                    Ok(()) if stride.is_multiple_of(8) => continue,
                    Ok(()) => return Err(format!("a stride of {stride} elements of {operand} was taken")),
                    Err(message) => message,
                };
                let expected = [
                    format!("row stride of {operand} on rank 0"),
                    format!("{} bytes", 2 * stride),
                    "multiple of 16 bytes".to_string(),
                ];
                if let Some(part) = expected.iter().find(|part| !message.contains(*part)) {
                    return Err(format!("{part:?} is not in {message:?}"));
                }
                let advised = message.split("bytes: ").nth(1).and_then(|text| text.split(' ').next());
                let advised = advised.and_then(|text| text.parse().ok()).ok_or(format!("no advice in {message:?}"))?;
                strided(world, n, k, operand, advised)?;
            }
        }
    }
    Ok(())
}

/// A plain GEMM in which `operand` has rows `stride` elements apart, checked against the same with packed rows.
fn strided(world: &World, n: usize, k: usize, operand: &str, stride: usize) -> TestResult {
    let (m, whole) = (20, |cols: usize| cols.next_multiple_of(8));
    let of = |name: &str, cols: usize| if name == operand { stride } else { whole(cols) };
    let (a, b) = (uniform::<bf16>(m, k, 1), uniform::<bf16>(n, k, 2));
    let go = || -> Result<_, Error> {
        let plan = Gemm::builder(world, 0).shape(m, n, k).build()?;
        let given = Guarded::new(world, 0, a.view(), of("A", k))?;
        let other = Guarded::new(world, 0, b.view(), of("B", k))?;
        let room = Guarded::<bf16>::room(world, 0, m, n, of("D", n))?;
        let matrices = RankMatrices { a: given.arg(), b: other.arg(), d: room.arg() };
        // SAFETY: the buffers are alive and of the plan's shape, and the call is waited for.
        unsafe { plan.launch(m, &matrices, None) }?;
        world.synchronize()?;
        let tensor = |x: &tilewire::matrix::Matrix<bf16>| Tensor::from_slice(world, 0, x.rows(), x.cols(), x.data());
        let mut packed = Tensor::poisoned::<bf16>(world, 0, m, n)?;
        plan.run(m, &tensor(&a)?, &tensor(&b)?, &mut packed)?;
        Ok((room, packed.to_vec::<bf16>()?))
    };
    let (room, packed) = go().map_err(|e| e.to_string())?;
    let d = room.written("D", m)?;
    let same = d.data().iter().zip(&packed).all(|(x, y)| x.to_bits() == y.to_bits());
    if same { Ok(()) } else { Err(format!("{operand} with a stride of {stride} gives other bits")) }
}

/// Null and misaligned pointers are refused before anything is launched; an operand without elements needs no memory.
pub fn pointers_are_checked(world: &World) -> TestResult {
    const NULL: MatrixArg = MatrixArg { addr: 0, row_stride: 64 };
    let case = Case::new(40, 64, 64);
    let go = || -> Result<_, Error> {
        let plan = plan::<bf16, bf16>(world, &case)?;
        let operands = Operands::<bf16>::new(world, &case, uniform)?;
        let d = (0..world.size())
            .map(|r| Tensor::poisoned::<bf16>(world, r, plan.rows_of(case.m, r), case.n))
            .collect::<Result<Vec<_>, _>>()?;
        Ok((plan, operands, d))
    };
    let (plan, operands, d) = go().map_err(|e| e.to_string())?;
    let arg = |rank: usize| RankMatrices {
        a: operands.a_tensors[rank].arg(),
        b: operands.b_tensors[rank].arg(),
        d: d[rank].arg(),
    };
    let last = world.size() - 1;
    let spoiled = |of: &dyn Fn(&mut RankMatrices)| {
        let mut matrices: Vec<_> = (0..world.size()).map(arg).collect();
        of(&mut matrices[last]);
        // SAFETY: the call is refused before it is launched.
        unsafe { plan.launch(case.m, &matrices, None) }
    };
    let on = |name: &str| format!("address of {name} on rank {last}");
    expect_error(spoiled(&|m| m.a = NULL), &[&on("A"), "null", "needs memory"])?;
    expect_error(spoiled(&|m| m.b = NULL), &[&on("B"), "null", "needs memory"])?;
    if plan.rows_of(case.m, last) > 0 {
        expect_error(spoiled(&|m| m.d = NULL), &[&on("D"), "null", "needs memory"])?;
    }
    expect_error(spoiled(&|m| m.a.addr += 2), &[&on("A"), &format!("{:#x}", arg(last).a.addr + 2), "16 bytes"])?;
    expect_error(spoiled(&|m| m.b.row_stride = 56), &["row stride of B", "56 elements", "64 columns"])?;
    let nothing = vec![RankMatrices { a: NULL, b: NULL, d: NULL }; world.size()];
    // SAFETY: a call over no rows touches no operand.
    unsafe { plan.launch(0, &nothing, None) }.and_then(|()| plan.finish()).map_err(|e| format!("m = 0: {e}"))?;
    let d = run::<bf16, bf16>(world, &plan, &case, &operands).map_err(|e| e.to_string())?;
    check(&case, &operands, &d)
}

/// Ranks that pass different M, K or types are told which and what; nothing is launched, and the next call works.
pub fn ranks_that_disagree_are_named(world: &World) -> TestResult {
    let case = Case::new(256, 64, 64);
    let operands = || Operands::<bf16>::new(world, &case, uniform).map_err(|e| e.to_string());
    let plan = plan::<bf16, bf16>(world, &case).map_err(|e| e.to_string())?;
    let call = |of: &Operands<bf16>| run::<bf16, bf16>(world, &plan, &case, of);
    let tensor = |rows: usize, cols: usize| {
        let x = uniform::<bf16>(rows, cols, 3);
        Tensor::from_slice(world, 1, rows, cols, x.data()).map_err(|e| e.to_string())
    };
    let mut spoiled = operands()?;
    spoiled.a_tensors[1] = tensor(384, 64)?;
    expect_error(call(&spoiled), &["ranks disagree on rows of A", "rank 1 has 384", "rank 0 has 256"])?;
    spoiled.a_tensors[1] = tensor(256, 72)?;
    expect_error(call(&spoiled), &["ranks disagree on columns of A", "rank 1 has 72", "rank 0 has 64"])?;
    let half = uniform::<f16>(256, 64, 3);
    spoiled.a_tensors[1] = Tensor::from_slice(world, 1, 256, 64, half.data()).map_err(|e| e.to_string())?;
    expect_error(call(&spoiled), &["ranks disagree on element type", "rank 1 has f16", "rank 0 has bf16"])?;
    let mut spoiled = operands()?;
    spoiled.b_tensors[1] = tensor(64, 72)?;
    expect_error(call(&spoiled), &["shape of b[1]", "64 × 72", "64 × 64"])?;
    let mut spoiled = operands()?;
    spoiled.a_tensors.swap(0, 1);
    expect_error(call(&spoiled), &["rank of a[0]", "is 1", "belongs on rank 0"])?;
    let operands = operands()?;
    let d = call(&operands).map_err(|e| e.to_string())?;
    check(&case, &operands, &d)
}

/// Every margin from 0 to all SMs but one gives the same bits.
pub fn margins_do_not_change_bits(world: &World) -> TestResult {
    use super::{Placement, Transport};
    let case = Case::new(300, 136, 72);
    let most = world.ctas(0) - 1;
    let operands = Operands::<bf16>::new(world, &case, uniform).map_err(|e| e.to_string())?;
    let bits_with = |transport, margin| -> Result<_, String> {
        let case = case.over(transport, Placement::Partition, margin);
        let plan = plan::<bf16, bf16>(world, &case).map_err(|e| format!("{case:?}: {e}"))?;
        run::<bf16, bf16>(world, &plan, &case, &operands).map(|d| bits(&d)).map_err(|e| format!("{case:?}: {e}"))
    };
    let expected = bits_with(Transport::Push, 0)?;
    let mut margins = vec![0, 1, 8, 64, most];
    margins.retain(|margin| *margin <= most);
    margins.dedup();
    for (transport, margin) in margins.iter().flat_map(|m| [(Transport::Push, *m), (Transport::Staged, *m)]) {
        if bits_with(transport, margin)? != expected {
            return Err(format!("{transport:?} with a margin of {margin} gives other bits"));
        }
    }
    Ok(())
}

/// One row of A gives one row of D, the same bits, at M = 1, 128 and 1000, at any position, whoever owns it, and for
/// whatever M the plan was built.
pub fn a_row_has_the_same_bits_at_any_position_and_m(world: &World, n: usize, k: usize) -> TestResult {
    let mut expected: Option<Vec<bf16>> = None;
    for (m, max_m) in [(1, 1), (1, 1000), (128, 128), (128, 1000), (1000, 1000)] {
        let plan = plan::<bf16, bf16>(world, &Case::new(max_m, n, k)).map_err(|e| e.to_string())?;
        for at in std::collections::BTreeSet::from([0, m / 3, m / 2, m - 1]) {
            let case = Case::new(m, n, k);
            let make = |rows: usize, cols: usize, rank: usize| {
                if rank >= 100 {
                    return uniform(rows, cols, rank);
                }
                let (others, row) = (uniform::<bf16>(rows, cols, rank + m + at), uniform::<bf16>(1, cols, rank));
                tilewire::matrix::Matrix::from_fn(rows, cols, |r, c| {
                    if r == at { *row.view().at(0, c) } else { *others.view().at(r, c) }
                })
            };
            let go = || -> Result<_, Error> {
                let d = run::<bf16, bf16>(world, &plan, &case, &Operands::<bf16>::new(world, &case, make)?)?;
                let owner = chunks_of(m, world.size())?
                    .into_iter()
                    .position(|chunk| (chunk.first_row..chunk.first_row + chunk.rows).contains(&(at as u32)));
                Ok((d, owner))
            };
            let (d, owner) = go().map_err(|e| format!("row {at} of {m}: {e}"))?;
            let owner = owner.ok_or("a row has an owner")?;
            let first = chunks_of(m, world.size()).map_err(|e| e.to_string())?[owner].first_row as usize;
            let row = d[owner].view().row(at - first).to_vec();
            let expected = expected.get_or_insert_with(|| row.clone());
            if row.iter().zip(&*expected).any(|(x, y)| x.to_bits() != y.to_bits()) {
                return Err(format!("row {at} of {m} in a plan for {max_m} has other bits than at M = 1"));
            }
        }
    }
    Ok(())
}

/// A transposed operand is passed by its layout, without a copy: nn and tn on transposes give the bits of nt.
pub fn a_transposed_view_is_a_layout(world: &World, m: usize, n: usize, k: usize) -> TestResult {
    let of = |layout: Layout| -> Result<_, Error> {
        let case = Case::new(m, n, k).layout(layout);
        // Operands are made row-major as nt has them, and turned where the layout stores them the other way.
        let operands = Operands::<bf16>::new(world, &case, |rows, cols, rank| {
            let turned = if rank >= 100 { layout != Layout::Nt } else { layout == Layout::Tn };
            let nt = if turned { uniform::<bf16>(cols, rows, rank) } else { uniform::<bf16>(rows, cols, rank) };
            if turned { tilewire::matrix::Matrix::from_fn(rows, cols, |r, c| *nt.view().at(c, r)) } else { nt }
        })?;
        Ok(bits(&run::<bf16, bf16>(world, &plan::<bf16, bf16>(world, &case)?, &case, &operands)?))
    };
    let nt = of(Layout::Nt).map_err(|e| e.to_string())?;
    for layout in [Layout::Nn, Layout::Tn] {
        if of(layout).map_err(|e| format!("{layout}: {e}"))? != nt {
            return Err(format!("{layout} on transposed operands gives other bits than nt"));
        }
    }
    Ok(())
}

/// A plan that faulted says so, whatever other plans of its world did since; they neither report its fault nor erase it.
/// The deadline of the one is shorter than any wait.
pub fn a_fault_belongs_to_the_plan_that_had_it(world: &World) -> TestResult {
    let case = Case::new(64 * world.size() + 128, 64, 64);
    let build = |deadline| {
        let builder = GemmReduceScatter::builder(world).shape(case.m, case.n, case.k);
        builder.deadline(Duration::from_nanos(deadline)).build().map_err(|e| e.to_string())
    };
    let (hasty, patient) = (build(1)?, build(1_000_000_000)?);
    let operands = Operands::<bf16>::new(world, &case, uniform).map_err(|e| e.to_string())?;
    let call = |plan: &GemmReduceScatter| run::<bf16, bf16>(world, plan, &case, &operands);
    for _ in 0..2 {
        match call(&hasty) {
            Err(Error::Fault(_)) => {}
            other => return Err(format!("a deadline of 1 ns gave {:?}", other.map(drop))),
        }
        let d = call(&patient).map_err(|e| format!("the other plan: {e}"))?;
        check(&case, &operands, &d)?;
        patient.recover().map_err(|e| e.to_string())?;
        match hasty.check() {
            Err(Error::Fault(_)) => {}
            other => return Err(format!("after the other plan recovered, the fault was {other:?}")),
        }
        expect_error(call(&hasty), &["plan is faulted", "recover()"])?;
        hasty.recover().map_err(|e| e.to_string())?;
        hasty.check().map_err(|e| format!("after recovery: {e}"))?;
    }
    Ok(())
}
