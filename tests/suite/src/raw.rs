//! Calls on raw memory: row strides longer than rows, interior pointers, guards round every buffer.
//!
//! Whatever is not an element of an operand is 0xFF bytes, a NaN of every type: reading it shows in the result, writing
//! it shows in the guards.

use half::{bf16, f16};
use tilewire::data;
use tilewire::matrix::{Matrix, MatrixRef};
use tilewire::ops::{Gemm, GemmReduceScatter, RankMatrices};
use tilewire::plan::MatrixArg;
use tilewire::reference::chunks_of;
use tilewire::scalar::Scalar;
use tilewire::world::{Tensor, World};
use tilewire::{Error, Layout};

use super::{Case, Operands, TestResult, WAYS, bits, check, plan, run, uniform};

/// Bytes before the first element and after the last row: longer than a row of tiles that was not clipped.
const GUARD_BYTES: usize = 1 << 14;

/// A strided matrix inside a longer buffer of poison.
pub struct Guarded<T> {
    buffer: Tensor,
    cols: usize,
    stride: usize,
    memory: Vec<T>,
}

impl<T: Scalar> Guarded<T> {
    const GUARD: usize = GUARD_BYTES / size_of::<T>();

    /// `matrix` on `rank`, with rows `stride` elements apart.
    pub fn new(world: &World, rank: usize, matrix: MatrixRef<T>, stride: usize) -> Result<Self, Error> {
        let mut memory = Self::poison(matrix.rows(), stride);
        for row in 0..matrix.rows() {
            memory[Self::GUARD + row * stride..][..matrix.cols()].copy_from_slice(matrix.row(row));
        }
        Self::upload(world, rank, matrix.cols(), stride, memory)
    }

    /// Room for rows × cols elements, poisoned like everything round it.
    pub fn room(world: &World, rank: usize, rows: usize, cols: usize, stride: usize) -> Result<Self, Error> {
        Self::upload(world, rank, cols, stride, Self::poison(rows, stride))
    }

    fn poison(rows: usize, stride: usize) -> Vec<T> {
        let mut memory = vec![T::zeroed(); 2 * Self::GUARD + rows * stride];
        data::poison(&mut memory);
        memory
    }

    fn upload(world: &World, rank: usize, cols: usize, stride: usize, memory: Vec<T>) -> Result<Self, Error> {
        let buffer = Tensor::from_slice(world, rank, 1, memory.len(), &memory)?;
        Ok(Self { buffer, cols, stride, memory })
    }

    /// The matrix as raw calls take it: an address inside the buffer.
    pub fn arg(&self) -> MatrixArg {
        MatrixArg { addr: self.buffer.arg().addr + GUARD_BYTES as u64, row_stride: self.stride as u64 }
    }

    /// The part `cols` wide from column `first` on: the same rows, another address.
    pub fn columns_from(&self, first: usize) -> MatrixArg {
        let arg = self.arg();
        MatrixArg { addr: arg.addr + (first * size_of::<T>()) as u64, ..arg }
    }

    /// Its first `rows` rows; everything else must be as it was.
    pub fn written(&self, what: &str, rows: usize) -> Result<Matrix<T>, String> {
        let now = self.buffer.to_vec::<T>().map_err(|e| e.to_string())?;
        for (at, (now, before)) in now.iter().zip(&self.memory).enumerate() {
            let place = at.checked_sub(Self::GUARD).map(|at| (at / self.stride.max(1), at % self.stride.max(1)));
            let is_element = place.is_some_and(|(row, col)| row < rows && col < self.cols);
            if !is_element && now.bits() != before.bits() {
                return Err(format!("{what}: (row, column) {place:?} is outside, but was written: {now:?}"));
            }
        }
        let (cols, stride) = (self.cols, self.stride);
        Ok(Matrix::from_fn(rows, cols, |row, col| now[Self::GUARD + row * stride + col]))
    }

    /// Nothing was written at all.
    pub fn untouched(&self, what: &str) -> TestResult {
        self.written(what, 0).map(drop)
    }
}

/// A call on guarded matrices of every rank; strides are a row and `gap` more elements, rounded up to what may be.
pub struct GuardedCall<I, O> {
    pub a: Vec<Guarded<I>>,
    pub b: Vec<Guarded<I>>,
    pub d: Vec<Guarded<O>>,
}

impl<I: Scalar, O: Scalar> GuardedCall<I, O> {
    /// D has room for `max_m` rows over all ranks.
    pub fn new(world: &World, operands: &Operands<I>, case: &Case, max_m: usize, gap: usize) -> Result<Self, Error> {
        let stride = |cols: usize| (cols + gap).next_multiple_of(8);
        let guard = |matrices: &[Matrix<I>]| -> Result<Vec<_>, Error> {
            matrices.iter().enumerate().map(|(r, x)| Guarded::new(world, r, x.view(), stride(x.cols()))).collect()
        };
        let (a, b) = (guard(&operands.a)?, guard(&operands.b)?);
        let rows = chunks_of(max_m, world.size())?;
        let d = (0..world.size())
            .map(|r| Guarded::room(world, r, rows[r].rows as usize, case.n, stride(case.n)))
            .collect::<Result<_, _>>()?;
        Ok(Self { a, b, d })
    }

    pub fn matrices(&self) -> Vec<RankMatrices> {
        let all = self.a.iter().zip(&self.b).zip(&self.d);
        all.map(|((a, b), d)| RankMatrices { a: a.arg(), b: b.arg(), d: d.arg() }).collect()
    }

    /// Makes D what it was before the first call.
    pub fn poison(&mut self) -> Result<(), Error> {
        self.d.iter_mut().try_for_each(|d| d.buffer.poison())
    }

    /// Launches on raw memory and waits; the results, once every guard and gap has been looked at.
    pub fn call(&self, plan: &GemmReduceScatter, m: usize) -> Result<Vec<Matrix<O>>, String> {
        // SAFETY: the buffers are alive and of the plan's shape, and the call is waited for.
        let launched = unsafe { plan.launch(m, &self.matrices(), None) };
        launched.and_then(|()| plan.finish()).map_err(|e| e.to_string())?;
        self.results(plan, m)
    }

    /// The results of a call that has ended, once every guard and gap has been looked at.
    pub fn results(&self, plan: &GemmReduceScatter, m: usize) -> Result<Vec<Matrix<O>>, String> {
        for (rank, (a, b)) in self.a.iter().zip(&self.b).enumerate() {
            a.untouched(&format!("A of rank {rank}"))?;
            b.untouched(&format!("B of rank {rank}"))?;
        }
        let d = self.d.iter().enumerate();
        d.map(|(rank, d)| d.written(&format!("D of rank {rank}"), plan.rows_of(m, rank))).collect()
    }
}

fn guarded<I: Scalar, O: Scalar>(world: &World, case: &Case, gap: usize) -> TestResult {
    let go = || -> Result<_, Error> {
        let operands = Operands::<I>::new(world, case, uniform)?;
        let plan = plan::<I, O>(world, case)?;
        let packed = run::<I, O>(world, &plan, case, &operands)?;
        let guarded = GuardedCall::<I, O>::new(world, &operands, case, case.m, gap)?;
        Ok((plan, operands, packed, guarded))
    };
    let (plan, operands, packed, guarded) = go().map_err(|e| format!("{case:?}: {e}"))?;
    let d = guarded.call(&plan, case.m).map_err(|e| format!("{case:?}, gap {gap}: {e}"))?;
    check(case, &operands, &d)?;
    if bits(&d) == bits(&packed) { Ok(()) } else { Err(format!("{case:?}: a gap of {gap} changes bits")) }
}

/// Strides of about two rows, and of one piece more than a row: the same bits as without gaps, in every way, layout and
/// type; nothing outside is read or written.
pub fn gaps_and_guards_stay_untouched(world: &World, m: usize, n: usize, k: usize) -> TestResult {
    for (transport, placement, sm_margin) in WAYS {
        let case = Case::new(m, n, k).over(transport, placement, sm_margin);
        guarded::<bf16, bf16>(world, &case, k)?;
        guarded::<bf16, f32>(world, &case, 8)?;
    }
    for layout in Layout::ALL {
        guarded::<bf16, bf16>(world, &Case::new(m, n, k).layout(layout), k)?;
        guarded::<f16, f32>(world, &Case::new(m, n, k).layout(layout), 1)?;
    }
    Ok(())
}

/// A call over fewer rows than D has room for leaves the rest as it was.
pub fn rows_past_m_stay_untouched(world: &World, max_m: usize) -> TestResult {
    let most = Case::new(max_m, 72, 64);
    let plan = plan::<bf16, bf16>(world, &most).map_err(|e| e.to_string())?;
    for m in [max_m, max_m / 2 + 1, 37, 1, 0] {
        let case = Case { m, ..most };
        let go = || -> Result<_, Error> {
            let operands = Operands::<bf16>::new(world, &case, uniform)?;
            let guarded = GuardedCall::<bf16, bf16>::new(world, &operands, &case, max_m, 24)?;
            Ok((operands, guarded))
        };
        let (operands, guarded) = go().map_err(|e| format!("m = {m}: {e}"))?;
        let d = guarded.call(&plan, m).map_err(|e| format!("m = {m} of {max_m}: {e}"))?;
        check(&case, &operands, &d)?;
    }
    Ok(())
}

/// Rank r's shard is columns r·K.. of one matrix, taken by address alone: the sum is the product of the whole.
pub fn column_slices_are_shards(world: &World, m: usize, n: usize, k: usize) -> TestResult {
    let (case, ranks) = (Case::new(m, n, k), world.size());
    let (a, b) = (uniform::<bf16>(m, k * ranks, 1), uniform::<bf16>(n, k * ranks, 2));
    let go = || -> Result<_, Error> {
        let slice = |x: &Matrix<bf16>, r: usize| x.view().part(0, r * k, x.rows(), k).map(|part| part.map(|x| *x));
        let shards = |x: &Matrix<bf16>| (0..ranks).map(|r| slice(x, r)).collect::<Result<Vec<_>, _>>();
        let operands = Operands { a: shards(&a)?, b: shards(&b)?, a_tensors: Vec::new(), b_tensors: Vec::new() };
        let wide = |x: &Matrix<bf16>| -> Result<Vec<_>, Error> {
            (0..ranks).map(|r| Guarded::new(world, r, x.view(), k * ranks)).collect()
        };
        let (a, b) = (wide(&a)?, wide(&b)?);
        let none = Operands { a: Vec::new(), b: Vec::new(), a_tensors: Vec::new(), b_tensors: Vec::new() };
        let d = GuardedCall::<bf16, bf16>::new(world, &none, &case, m, 8)?.d;
        Ok((plan::<bf16, bf16>(world, &case)?, operands, a, b, d))
    };
    let (plan, operands, a, b, d) = go().map_err(|e| e.to_string())?;
    let matrices: Vec<_> = (0..ranks)
        .map(|r| RankMatrices { a: a[r].columns_from(r * k), b: b[r].columns_from(r * k), d: d[r].arg() })
        .collect();
    // SAFETY: the buffers are alive and of the plan's shape, and the call is waited for.
    unsafe { plan.launch(m, &matrices, None) }.and_then(|()| plan.finish()).map_err(|e| e.to_string())?;
    let d = d.iter().enumerate().map(|(r, d)| d.written(&format!("D of rank {r}"), plan.rows_of(m, r)));
    check(&case, &operands, &d.collect::<Result<Vec<_>, _>>()?)
}

/// The guards find what they are for: a result stored one piece too far to the right is outside in every row.
pub fn writes_into_gaps_are_caught(world: &World) -> TestResult {
    let case = Case::new(40 * world.size(), 64, 64);
    let go = || -> Result<_, Error> {
        let operands = Operands::<bf16>::new(world, &case, uniform)?;
        let guarded = GuardedCall::<bf16, bf16>::new(world, &operands, &case, case.m, 24)?;
        let plan = plan::<bf16, bf16>(world, &case)?;
        let mut matrices = guarded.matrices();
        matrices[0].d = guarded.d[0].columns_from(8);
        // SAFETY: the buffers are alive, the last row's gap is as long as the shift, and the call is waited for.
        unsafe { plan.launch(case.m, &matrices, None) }?;
        plan.finish()?;
        Ok(guarded)
    };
    let guarded = go().map_err(|e| e.to_string())?;
    match guarded.d[0].written("D of rank 0", 40) {
        Err(text) if text.contains("Some((0, 64)) is outside") => Ok(()),
        other => Err(format!("a shifted store went unnoticed: {:?}", other.map(drop))),
    }
}

/// Plain GEMM: gaps and guards stay untouched, and bits are those of packed matrices.
pub fn gemm_gaps_and_guards_stay_untouched(world: &World) -> TestResult {
    for (m, n, k) in [(130, 264, 72), (1, 8, 8), (65, 105, 200)] {
        let go = || -> Result<_, Error> {
            let plan = Gemm::builder(world, 0).shape(m, n, k).build()?;
            let (a, b) = (uniform::<bf16>(m, k, 1), uniform::<bf16>(n, k, 2));
            let tensor = |x: &Matrix<bf16>| Tensor::from_slice(world, 0, x.rows(), x.cols(), x.data());
            let mut packed = Tensor::poisoned::<bf16>(world, 0, m, n)?;
            plan.run(m, &tensor(&a)?, &tensor(&b)?, &mut packed)?;
            let guard = |x: &Matrix<bf16>| Guarded::new(world, 0, x.view(), (2 * k).next_multiple_of(8));
            let room = Guarded::<bf16>::room(world, 0, m, n, (n + 8).next_multiple_of(8))?;
            Ok((plan, packed.to_vec::<bf16>()?, guard(&a)?, guard(&b)?, room))
        };
        let (plan, packed, a, b, d) = go().map_err(|e| format!("{m}×{n}×{k}: {e}"))?;
        let matrices = RankMatrices { a: a.arg(), b: b.arg(), d: d.arg() };
        // SAFETY: the buffers are alive and of the plan's shape, and the call is waited for.
        let launched = unsafe { plan.launch(m, &matrices, None) };
        launched.and_then(|()| world.synchronize()).map_err(|e| format!("{m}×{n}×{k}: {e}"))?;
        a.untouched("A").and_then(|()| b.untouched("B"))?;
        let strided = d.written("D", m)?;
        if strided.data().iter().zip(&packed).any(|(x, y)| x.bits() != y.bits()) {
            return Err(format!("{m}×{n}×{k}: strides change bits"));
        }
    }
    Ok(())
}

/// A result with rows or ranks in another order than the reference is not passed: the comparison sees every place.
pub fn permuted_references_are_caught(world: &World) -> TestResult {
    let case = Case::new(40 * world.size(), 72, 64);
    let go = || -> Result<_, Error> {
        let operands = Operands::<bf16>::new(world, &case, uniform)?;
        let d = run::<bf16, bf16>(world, &plan::<bf16, bf16>(world, &case)?, &case, &operands)?;
        Ok((d, operands))
    };
    let (d, operands) = go().map_err(|e| e.to_string())?;
    check(&case, &operands, &d)?;
    let last = d.len() - 1;
    let mutant = |name: &str, of: &dyn Fn(&mut Vec<Matrix<bf16>>)| -> TestResult {
        let mut moved = d.clone();
        of(&mut moved);
        match check(&case, &operands, &moved) {
            Err(text) if text.contains("wrong result") => Ok(()),
            other => Err(format!("{name}: {other:?}")),
        }
    };
    let swap_rows = |x: &mut Matrix<bf16>, r: usize, s: usize| {
        let old = x.clone();
        let from = |row: usize| {
            if row == r {
                s
            } else if row == s {
                r
            } else {
                row
            }
        };
        *x = Matrix::from_fn(old.rows(), old.cols(), |row, col| *old.view().at(from(row), col));
    };
    mutant("rows 0 and 1 exchanged", &|d| swap_rows(&mut d[0], 0, 1))?;
    mutant("rows 7 and 39 exchanged", &|d| swap_rows(&mut d[last], 7, 39))?;
    mutant("one element lost", &|d| d[last].data_mut()[5] = bf16::ZERO)?;
    if last > 0 {
        mutant("ranks 0 and 1 exchanged", &|d| d.swap(0, 1))?;
        mutant("ranks turned by one", &|d| d.rotate_left(1))?;
    }
    Ok(())
}
