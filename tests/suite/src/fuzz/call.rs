//! Plans and calls of a case, on raw memory with guards.

use tilewire::matrix::{Matrix, MatrixRef};
use tilewire::ops::{Gemm, GemmReduceScatter, RankMatrices, RawEpilogue};
use tilewire::scalar::Scalar;
use tilewire::world::World;
use tilewire::{Error, Scales};

use super::expect::compare;
use super::given::Given;
use super::{Case, Delays, FuzzCase, FuzzOp};
use crate::epilogue::Form;
use crate::raw::Guarded;
use crate::{TestResult, bits};

enum Plan {
    Gemm(Gemm),
    GemmReduceScatter(GemmReduceScatter),
}

impl Plan {
    fn new(world: &World, fuzz: &FuzzCase) -> Result<Self, Error> {
        let Case { m, n, k, transport, placement, sm_margin, first_epoch, .. } = fuzz.case;
        Ok(match fuzz.op {
            FuzzOp::Gemm => {
                let mut builder = Gemm::builder(world, 0)
                    .shape(m, n, k)
                    .variant(fuzz.variant())
                    .sm_margin(sm_margin)
                    .split_k(fuzz.split_k)
                    .raster_group(fuzz.raster_group);
                if let Some(tile) = fuzz.tile {
                    builder = builder.tile(tile);
                }
                if let Some(cols) = fuzz.tile_cols {
                    builder = builder.tile_cols(cols);
                }
                if fuzz.form.is_some() {
                    builder = builder.with_epilogue();
                }
                Self::Gemm(builder.build()?)
            }
            FuzzOp::GemmReduceScatter => {
                let mut builder = GemmReduceScatter::builder(world)
                    .shape(m, n, k)
                    .variant(fuzz.variant())
                    .transport(transport)
                    .placement(placement)
                    .sm_margin(sm_margin)
                    .raster_group(fuzz.raster_group)
                    .head_start(fuzz.head_start)
                    .first_epoch(first_epoch);
                if let Some(tile) = fuzz.tile {
                    builder = builder.tile(tile);
                }
                if fuzz.form.is_some() {
                    builder = builder.with_epilogue();
                }
                Self::GemmReduceScatter(builder.build()?)
            }
        })
    }

    fn finish(&self) -> Result<(), Error> {
        match self {
            Self::Gemm(plan) => plan.finish(),
            Self::GemmReduceScatter(plan) => plan.finish(),
        }
    }
}

/// One call's memory: everything that it is given, and D.
struct Buffers<A, B, O> {
    m: usize,
    a: Vec<Guarded<A>>,
    b: Vec<Guarded<B>>,
    d: Vec<Guarded<O>>,
    scales: Vec<[Option<Guarded<f32>>; 2]>,
    addends: Vec<Addends<O>>,
}

struct Addends<O> {
    matrices: [Guarded<O>; 2],
    bias: Guarded<O>,
    scales: [Option<Guarded<f32>>; 2],
}

impl<A: Scalar, B: Scalar, O: Scalar> Buffers<A, B, O> {
    fn new(world: &World, fuzz: &FuzzCase, given: &Given<A, B, O>, m: usize) -> Result<Self, Error> {
        let (n, gap) = (fuzz.case.n, fuzz.gap);
        let rows = tilewire::reference::chunks_of(m, fuzz.ranks)?;
        let scale = |rank: usize, scale: Option<f32>| {
            scale.map(|x| guarded(world, rank, Matrix::from_fn(1, 1, |_, _| x).view(), 0)).transpose()
        };
        let scales_of = |rank: usize, [a, b]: [Option<f32>; 2]| Ok::<_, Error>([scale(rank, a)?, scale(rank, b)?]);
        let d = |rank: usize| match (fuzz.form, given.addends.get(rank)) {
            (Some(form), Some(addends)) if form.in_place => guarded(world, rank, addends.c.view(), gap),
            _ => Guarded::room(world, rank, rows[rank].rows as usize, n, stride::<O>(n, gap)),
        };
        let addends = |(rank, x): (usize, &super::given::Addends<O>)| {
            let [a, b] = fuzz.form.and_then(|form| form.scales).map_or([None; 2], |scales| scales.map(Some));
            Ok(Addends {
                matrices: [guarded(world, rank, x.c.view(), gap)?, guarded(world, rank, x.residual.view(), gap)?],
                bias: guarded(world, rank, x.bias.view(), 0)?,
                scales: scales_of(rank, [a, b])?,
            })
        };
        Ok(Self {
            m,
            a: all_guarded(world, &given.a, gap)?,
            b: all_guarded(world, &given.b, gap)?,
            d: (0..fuzz.ranks).map(d).collect::<Result<_, _>>()?,
            scales: given.scales.iter().enumerate().map(|(rank, s)| scales_of(rank, *s)).collect::<Result<_, _>>()?,
            addends: given.addends.iter().enumerate().map(addends).collect::<Result<_, Error>>()?,
        })
    }

    fn launch(&self, fuzz: &FuzzCase, plan: &Plan) -> Result<(), Error> {
        let all = self.a.iter().zip(&self.b).zip(&self.d);
        let matrices: Vec<_> = all.map(|((a, b), d)| RankMatrices { a: a.arg(), b: b.arg(), d: d.arg() }).collect();
        let addr = |scale: &Option<Guarded<f32>>| scale.as_ref().map(|scale| scale.arg().addr);
        let scales: Vec<_> = self.scales.iter().map(|[a, b]| Scales { a: addr(a), b: addr(b) }).collect();
        let m = self.m;
        let Some(form) = &fuzz.form else {
            return match plan {
                // SAFETY: the buffers are alive and of the plan's shape, and callers wait for the call.
                Plan::Gemm(plan) => unsafe { plan.launch_scaled(m, &matrices[0], scales[0], None) },
                // SAFETY: as above.
                Plan::GemmReduceScatter(plan) => unsafe { plan.launch_scaled(m, &matrices, &scales, None) },
            };
        };
        let epilogues: Vec<_> = self.addends.iter().map(|addends| addends.raw(form)).collect();
        match plan {
            // SAFETY: as above; addends have the shapes of D.
            Plan::Gemm(plan) => unsafe { plan.launch_with(m, &matrices[0], &epilogues[0], None) },
            // SAFETY: as above.
            Plan::GemmReduceScatter(plan) => unsafe { plan.launch_with(m, &matrices, &epilogues, None) },
        }
    }

    /// D, once the calls have ended and every guard and gap has been looked at.
    fn results(&self, plan: &Plan) -> Result<Vec<Matrix<O>>, String> {
        for (rank, (a, b)) in self.a.iter().zip(&self.b).enumerate() {
            a.untouched(&format!("A of rank {rank}"))?;
            b.untouched(&format!("B of rank {rank}"))?;
        }
        for (rank, scale) in
            self.scales.iter().enumerate().flat_map(|(rank, s)| s.iter().flatten().map(move |s| (rank, s)))
        {
            scale.untouched(&format!("a scale of rank {rank}"))?;
        }
        for (rank, addends) in self.addends.iter().enumerate() {
            addends.untouched(rank)?;
        }
        let d = self.d.iter().enumerate();
        d.map(|(rank, d)| match plan {
            Plan::Gemm(_) => d.written("D", self.m),
            Plan::GemmReduceScatter(plan) => d.written(&format!("D of rank {rank}"), plan.rows_of(self.m, rank)),
        })
        .collect()
    }
}

impl<O: Scalar> Addends<O> {
    fn raw(&self, form: &Form) -> RawEpilogue {
        let [c, residual] = &self.matrices;
        let [scale_a, scale_b] = [0, 1].map(|of| self.scales[of].as_ref().map(|scale| scale.arg().addr));
        RawEpilogue {
            alpha: form.alpha,
            beta: form.beta,
            activation: form.activation,
            c: (!form.in_place).then(|| c.arg()),
            residual: form.residual.then(|| residual.arg()),
            bias: form.bias.then(|| self.bias.arg().addr),
            scale_a,
            scale_b,
        }
    }

    fn untouched(&self, rank: usize) -> TestResult {
        self.matrices.iter().try_for_each(|x| x.untouched(&format!("an addend of rank {rank}")))?;
        self.scales.iter().flatten().try_for_each(|x| x.untouched(&format!("a scale of rank {rank}")))?;
        self.bias.untouched(&format!("the bias of rank {rank}"))
    }
}

/// The least stride of rows with `gap` elements more: steps of 16 bytes.
fn stride<T>(cols: usize, gap: usize) -> usize {
    (cols + gap).next_multiple_of(16 / size_of::<T>())
}

fn guarded<T: Scalar>(world: &World, rank: usize, matrix: MatrixRef<T>, gap: usize) -> Result<Guarded<T>, Error> {
    let stride = stride::<T>(matrix.cols(), gap);
    Guarded::new(world, rank, matrix, stride)
}

fn all_guarded<T: Scalar>(world: &World, matrices: &[Matrix<T>], gap: usize) -> Result<Vec<Guarded<T>>, Error> {
    matrices.iter().enumerate().map(|(rank, x)| guarded(world, rank, x.view(), gap)).collect()
}

/// Every call of the case and a repeat of each, compared with the references.
pub fn run_all<A: Scalar, B: Scalar, O: Scalar>(world: &World, fuzz: &FuzzCase, delays: &Delays) -> TestResult {
    let plan = Plan::new(world, fuzz).map_err(|e| e.to_string())?;
    let call = |given: &Given<A, B, O>, m: usize, number: u64| -> Result<Vec<Matrix<O>>, String> {
        let buffers = Buffers::new(world, fuzz, given, m).map_err(|e| e.to_string())?;
        (delays.before)(number)?;
        let launched = buffers.launch(fuzz, &plan);
        (delays.after)(number);
        launched.and_then(|()| plan.finish()).map_err(|e| e.to_string())?;
        buffers.results(&plan)
    };
    for (number, &m) in fuzz.calls.iter().enumerate() {
        let given = Given::new(fuzz, m)?;
        let what = |e: String| format!("call {number} over {m} rows: {e}");
        let d = call(&given, m, 2 * number as u64).map_err(what)?;
        compare(fuzz, &given, &d).map_err(what)?;
        let again = call(&given, m, 2 * number as u64 + 1).map_err(what)?;
        if bits(&again) != bits(&d) {
            return Err(what("a repeat gives other bits".to_string()));
        }
    }
    Ok(())
}

/// See [`super::run_in_a_row`].
pub fn run_in_a_row<A: Scalar, B: Scalar, O: Scalar>(
    world: &World,
    fuzz: &FuzzCase,
    launches: usize,
    is_compared: bool,
) -> Result<Vec<Vec<u8>>, String> {
    let m = fuzz.case.m;
    let given = Given::<A, B, O>::new(fuzz, m)?;
    let go = || -> Result<_, Error> {
        let plan = Plan::new(world, fuzz)?;
        let buffers = Buffers::new(world, fuzz, &given, m)?;
        for _ in 0..launches {
            buffers.launch(fuzz, &plan)?;
        }
        plan.finish()?;
        Ok((plan, buffers))
    };
    let (plan, buffers) = go().map_err(|e| e.to_string())?;
    let d = buffers.results(&plan)?;
    if is_compared {
        compare(fuzz, &given, &d)?;
    }
    Ok(bits(&d))
}
