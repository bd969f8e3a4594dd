//! Kernels that announce other bytes than their copies bring. No source that compiles does so: here the PTX is changed.

use std::time::{Duration, Instant};

use half::bf16;
use tilewire::driver::Gpu;
use tilewire::kernels::abi::WaitKind;
use tilewire::kernels::entries::ENTRIES;
use tilewire::kernels::shape::Role;
use tilewire::ops::Gemm;
use tilewire::{Error, Tensor, World, ptx};

use crate::common::{Case, TestResult, expect_eq, expect_text, in_child, text};
use crate::gpu_support::{Job, virtual_ranks};
use crate::{DEADLINE, QUEUES};

pub const TESTS: &[Case] = &[
    Case::one("a_gemm_that_announces_more_bytes_than_come_ends_in_a_fault_that_names_the_barrier", gemm_more),
    Case::one("a_gemm_that_announces_fewer_bytes_than_come_ends_within_its_deadline", gemm_fewer),
    Case::one("ranks_that_announce_more_bytes_than_come_end_in_a_fault", ranks_more),
];

const GEMM: &str = "sm90_bf16_gemm_nt_bf16_128x256x64";
const REDUCE_SCATTER: &str = "sm90_bf16_gemm_reduce_scatter_nt_bf16_128x256x64";

/// The stored kernel, but each announcement differs by `by` bytes.
fn announcing(name: &str, by: i32) -> Result<String, String> {
    let entry = ENTRIES.iter().find(|entry| entry.name == name).ok_or_else(|| format!("no entry {name}"))?;
    let (call, mut changed) = ("mbarrier.arrive.expect_tx.shared::cta.b64 _, ", 0);
    let lines: Vec<String> = ptx::only(entry)
        .map_err(text)?
        .lines()
        .map(|line| match line.trim().strip_prefix(call).and_then(|rest| rest.strip_suffix(';')?.split_once("], ")) {
            Some((barrier, bytes)) => {
                changed += 1;
                format!("{{ .reg .b32 wrong; add.s32 wrong, {bytes}, {by}; {call}{barrier}], wrong; }}")
            }
            None => line.to_string(),
        })
        .collect();
    if changed == 0 { Err(format!("{name} announces nothing")) } else { Ok(lines.join("\n") + "\n") }
}

/// What a call may take: its deadline, the time by which local waits outlast it, and a second.
const LIMIT: Duration = Duration::from_millis(1300).saturating_add(DEADLINE);

struct GemmJob {
    plan: Gemm,
    a: Tensor,
    b: Tensor,
    d: Tensor,
}

/// As many steps along K as there are stages: the producer waits for none of them.
const SHAPE: (usize, usize, usize) = (600, 520, 136);

impl GemmJob {
    fn new(world: &World) -> Result<Self, Error> {
        let (m, n, k) = SHAPE;
        let [a, b] = [suite::uniform::<bf16>(m, k, 1), suite::uniform::<bf16>(n, k, 2)];
        Ok(Self {
            plan: Gemm::builder(world, 0).shape(m, n, k).tile([128, 256]).deadline(DEADLINE).build()?,
            a: Tensor::from_slice(world, 0, m, k, a.data())?,
            b: Tensor::from_slice(world, 0, n, k, b.data())?,
            d: Tensor::poisoned::<bf16>(world, 0, m, n)?,
        })
    }

    fn call(&mut self) -> Result<Vec<u16>, Error> {
        self.d.poison()?;
        self.plan.run(SHAPE.0, &self.a, &self.b, &mut self.d)?;
        Ok(self.d.to_vec::<bf16>()?.iter().map(|x| x.to_bits()).collect())
    }
}

/// Whether `result` is the fault of a consumer that waits for a stage, or of one that waits for such a consumer's rank: waits
/// for peers end first, since a peer may be the cause.
fn names_a_stage_or_a_peer(result: Result<(), Error>) -> TestResult {
    match &result {
        Err(Error::Fault(fault)) if fault.record.is_some_and(|r| r.kind == WaitKind::Signal as u32) => {
            expect_text(&fault.to_string(), &["gemm_reduce_scatter", "partial of tile", "epoch"])
        }
        _ => names_a_stage(result, "gemm_reduce_scatter"),
    }
}

fn names_a_stage(result: Result<(), Error>, op: &str) -> TestResult {
    let fault = match result {
        Err(Error::Fault(fault)) => fault,
        other => return Err(format!("{other:?} is no fault")),
    };
    let record = fault.record.ok_or_else(|| fault.to_string())?;
    expect_eq("kind", WaitKind::from_code(record.kind), Some(WaitKind::StageFull))?;
    expect_eq("role", matches!(Role::from_code(record.role), Role::Consumer(_)), true)?;
    expect_text(&fault.to_string(), &[op, "consumer", "StageFull 0: phase parity 0"])
}

/// A world whose GEMM is wrong, and how its call ended; then ordinary calls must be right.
fn wrong_gemm(by: i32, ended: impl Fn(Result<Vec<u16>, Error>) -> TestResult) -> TestResult {
    let right = GemmJob::new(&virtual_ranks(1)?).and_then(|mut job| job.call()).map_err(text)?;
    let world = virtual_ranks(1)?;
    // SAFETY: a wait that does not end, or one that ends early, spoils D and nothing else.
    unsafe { world.load_instead(GEMM, &announcing(GEMM, by)?) }.map_err(text)?;
    let mut job = GemmJob::new(&world).map_err(text)?;
    for _ in 0..2 {
        let start = Instant::now();
        let result = job.call();
        if start.elapsed() > LIMIT {
            return Err(format!("the call took {:?}, its deadline is {DEADLINE:?}", start.elapsed()));
        }
        ended(result)?;
    }
    let after = GemmJob::new(&virtual_ranks(1)?).and_then(|mut job| job.call()).map_err(text)?;
    expect_eq("bits of the next ordinary call", after == right, true)
}

fn gemm_more(gpu: &Gpu) -> TestResult {
    in_child(TESTS[0].name, gpu, &[QUEUES], |_| wrong_gemm(16, |result| names_a_stage(result.map(drop), "gemm")))
}

/// The barrier's count of bytes passes 0 while copies are still to come: it may have completed by chance at that moment.
fn gemm_fewer(gpu: &Gpu) -> TestResult {
    in_child(TESTS[1].name, gpu, &[QUEUES], |_| {
        wrong_gemm(-16, |result| match result {
            Ok(_) | Err(Error::Fault(_)) => Ok(()),
            Err(other) => Err(format!("neither a result nor a fault: {other}")),
        })
    })
}

fn ranks_more(gpu: &Gpu) -> TestResult {
    in_child(TESTS[2].name, gpu, &[QUEUES], |_| {
        // Whose kernel is changed, whatever the plan would choose.
        let case = suite::Case { tile: Some(suite::MAIN_TILE), ..suite::Case::new(1000, 520, 264) };
        let right = Job::new(&virtual_ranks(3)?, case, Duration::from_secs(5))?.call()?;
        let world = virtual_ranks(3)?;
        // SAFETY: waits that do not end; no rank gets as far as a store.
        unsafe { world.load_instead(REDUCE_SCATTER, &announcing(REDUCE_SCATTER, 16)?) }.map_err(text)?;
        let job = Job::new(&world, case, DEADLINE)?;
        for _ in 0..2 {
            let start = Instant::now();
            job.launch(None).map_err(text)?;
            names_a_stage_or_a_peer(job.plan.finish())?;
            if start.elapsed() > LIMIT {
                return Err(format!("the call took {:?}, its deadline is {DEADLINE:?}", start.elapsed()));
            }
            job.plan.recover().map_err(text)?;
        }
        let after = Job::new(&virtual_ranks(3)?, case, Duration::from_secs(5))?.call()?;
        expect_eq("bits of the next ordinary call", after == right, true)
    })
}
