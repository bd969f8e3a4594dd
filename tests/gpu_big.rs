//! Big problems on a GPU: offsets past 32 bits, the main job's shape, and many repeats with ranks that come at random.

mod common;
mod gpu_support;

use std::process::ExitCode;
use std::time::Duration;

use common::{Case, TestResult, expect_eq, text};
use gpu_support::{Gate, Job, virtual_ranks};
use half::bf16;
use tilewire::Layout;
use tilewire::compare::{GemmNumerics, Place, compare_placed};
use tilewire::data::{random_at, uniform};
use tilewire::driver::{DeviceBuffer, Gpu};
use tilewire::kernels::abi::{Placement, Transport};
use tilewire::kernels::config::Element;
use tilewire::matrix::Matrix;
use tilewire::ops::{Gemm, RankMatrices};
use tilewire::plan::MatrixArg;
use tilewire::reference::gemm;
use tilewire::reference::sampled::{Sample, sampled_truth};

fn free_memory(gigabytes: usize) -> TestResult {
    let (free, _) = Gpu::open(0).and_then(|gpu| gpu.memory()).map_err(text)?;
    if free >= gigabytes << 30 {
        Ok(())
    } else {
        Err(format!("{gigabytes} GiB of GPU memory needed, {free} bytes free"))
    }
}

fn needs_8() -> TestResult {
    free_memory(8)
}

fn needs_16() -> TestResult {
    free_memory(16)
}

fn numerics(k_per_rank: usize, world: usize, partials: Element) -> GemmNumerics {
    GemmNumerics { k_per_rank, world, out: Element::Bf16, partials, scale: 1.0 / 3.0 }
}

/// D has more than 2³¹ elements and more than 2³² bytes: rows before, at and past both, in full width.
fn gemm_past_32_bits(gpu: &Gpu) -> TestResult {
    const GUARD: usize = 1 << 20;
    let (m, n, k) = (65_664, 32_768, 64);
    let world = virtual_ranks(1)?;
    let (a, b) = (uniform::<bf16>(m, k, 1), uniform::<bf16>(n, k, 2));
    let upload = |x: &Matrix<bf16>| DeviceBuffer::from_slice(gpu, bytemuck::cast_slice::<bf16, u16>(x.data()));
    let (a_device, b_device) = (upload(&a).map_err(text)?, upload(&b).map_err(text)?);
    let d_bytes = m * n * 2;
    let d = DeviceBuffer::filled(gpu, d_bytes + 2 * GUARD, 0xFF).map_err(text)?;
    let plan = Gemm::builder(&world, 0).shape(m, n, k).build().map_err(text)?;
    let matrices = RankMatrices {
        a: MatrixArg::packed(a_device.addr().0, k),
        b: MatrixArg::packed(b_device.addr().0, k),
        d: MatrixArg::packed(d.addr().0 + GUARD as u64, n),
    };
    // SAFETY: the buffers are alive and of the plan's shape, and the call is waited for.
    unsafe { plan.launch(m, &matrices, None) }.and_then(|()| world.synchronize()).map_err(text)?;
    // 2³¹ bytes are before row 32768, 2³² bytes and 2³¹ elements before row 65536.
    let rows = [0, 1, 127, 128, m / 2, 32_767, 32_768, 65_535, 65_536, 65_537, m - 1];
    let mut actual = Vec::with_capacity(rows.len() * n);
    for row in rows {
        let mut line = vec![0u16; n];
        d.read(GUARD + row * n * 2, &mut line).map_err(text)?;
        actual.extend(line.into_iter().map(bf16::from_bits));
    }
    let actual = Matrix::from_vec(rows.len(), n, actual).map_err(text)?;
    let columns: Vec<usize> = (0..k).collect();
    let truth = gemm(Layout::Nt, a.view().pick(&rows, &columns).view(), b.view()).map_err(text)?;
    let place = |i: usize, col| Place { rank: 0, row: rows[i], col };
    let tolerance = numerics(k, 1, Element::F32).tolerance();
    let report = compare_placed(actual.view(), truth.view(), tolerance, place).and_then(|r| r.check()).map_err(text)?;
    expect_eq("elements compared", report.elements, (rows.len() * n) as u64)?;
    for offset in [0, GUARD + d_bytes] {
        let mut guard = vec![0u8; GUARD];
        d.read(offset, &mut guard).map_err(text)?;
        expect_eq(&format!("guard at byte {offset} is whole"), guard.iter().all(|byte| *byte == 0xFF), true)?;
    }
    // No element anywhere was left out.
    let mut written = 0;
    for row in (0..m).step_by(64) {
        let mut line = vec![0u16; n];
        d.read(GUARD + row * n * 2, &mut line).map_err(text)?;
        written += line.iter().filter(|bits| **bits != 0xFFFF).count();
    }
    expect_eq("elements written in every 64th row", written, m.div_ceil(64) * n)
}

/// Runs the job and compares a sample of its result: edges of every tile and chunk, and random places.
fn sampled(job: &mut Job) -> TestResult {
    let (case, ranks) = (job.case, job.world.size());
    job.call()?;
    let results = job.results()?;
    let views: Vec<_> = results.iter().map(Matrix::view).collect();
    let sample = Sample::edges(case.m, case.n, ranks, 128, 256).map_err(text)?.with_random(64, 1);
    let truth = sampled_truth(case.layout, &job.operands.views(), &sample).map_err(text)?;
    let actual = sample.pick_chunks(&views).map_err(text)?;
    let tolerance = numerics(case.k, ranks, Element::Bf16).tolerance();
    let report = compare_placed(actual.view(), truth.view(), tolerance, |i, j| sample.place(i, j));
    report.and_then(|report| report.check()).map_err(|e| format!("{case:?}: {e}"))?;
    // What no sample sees: a poisoned element is a NaN that operands without one cannot give.
    match results.iter().position(|d| d.data().iter().any(|x| x.is_nan())) {
        Some(rank) => Err(format!("{case:?}: an element of rank {rank} was not written")),
        None => Ok(()),
    }
}

/// The slots of a rank are longer than 2³¹ bytes.
fn many_rows(_: &Gpu) -> TestResult {
    let world = virtual_ranks(2)?;
    for (transport, placement, margin) in [suite::WAYS[0], suite::WAYS[3], suite::WAYS[6]] {
        let case = suite::Case::new(65_664, 8192, 64).over(transport, placement, margin);
        sampled(&mut Job::new(&world, case, Duration::from_secs(10))?)?;
    }
    Ok(())
}

fn main_job(transport: Transport, placement: Placement, margin: u32) -> TestResult {
    let case = suite::Case::new(8192, 8192, 7168).over(transport, placement, margin);
    let mut job = Job::new(&virtual_ranks(4)?, case, Duration::from_secs(10))?;
    sampled(&mut job)?;
    let right = job.bits()?;
    for repeat in 0..3 {
        expect_eq(&format!("{case:?}: bits of repeat {repeat}"), job.call()? == right, true)?;
    }
    Ok(())
}

fn main_job_pushed(_: &Gpu) -> TestResult {
    main_job(Transport::Push, Placement::Epilogue, 0)
}

fn main_job_staged(_: &Gpu) -> TestResult {
    main_job(Transport::Staged, Placement::Partition, 2)
}

/// Every rank's launch waits for a word of its own; the host writes the words in a random order, at random intervals.
fn delays(gpu: &Gpu, transport: Transport, placement: Placement, margin: u32) -> TestResult {
    const REPEATS: u32 = 200;
    let (ranks, seed) = (4, 17);
    let world = virtual_ranks(ranks)?;
    let case = suite::Case::new(700, 520, 128).over(transport, placement, margin);
    let mut job = Job::new(&world, case, Duration::from_secs(10))?;
    let right = job.call()?;
    job.check()?;
    let gates = (0..ranks).map(|rank| Gate::new(&world, gpu, rank)).collect::<Result<Vec<_>, _>>()?;
    for turn in 1..=REPEATS {
        job.poison()?;
        gates.iter().try_for_each(|gate| gate.close(turn))?;
        job.launch(None).map_err(text)?;
        let random = |of: u64| random_at(seed, u64::from(turn), of);
        let mut order: Vec<usize> = (0..ranks).collect();
        match turn {
            1 => {}
            2 => order.reverse(),
            _ => order.sort_by_key(|rank| random(*rank as u64)),
        }
        for rank in order {
            gates[rank].open(turn);
            std::thread::sleep(Duration::from_micros(random(8 + rank as u64) % 500));
        }
        job.plan.finish().map_err(|e| format!("{case:?}, repeat {turn}: {e}"))?;
        expect_eq(&format!("{case:?}: bits of repeat {turn}"), job.bits()? == right, true)?;
    }
    Ok(())
}

fn random_delays(gpu: &Gpu) -> TestResult {
    common::in_child(RANDOM_DELAYS, gpu, &[("CUDA_DEVICE_MAX_CONNECTIONS", "32")], |gpu| {
        suite::WAYS.into_iter().try_for_each(|(transport, placement, margin)| delays(gpu, transport, placement, margin))
    })
}

/// Ten thousand calls and more; in half of them one rank comes late by a random time.
fn ten_thousand(gpu: &Gpu) -> TestResult {
    const CALLS: u64 = 1_120;
    common::in_child(TEN_THOUSAND, gpu, &[("CUDA_DEVICE_MAX_CONNECTIONS", "32")], |gpu| {
        let (ranks, seed) = (4, 23);
        let world = virtual_ranks(ranks)?;
        let gates = (0..ranks).map(|rank| Gate::new(&world, gpu, rank)).collect::<Result<Vec<_>, _>>()?;
        let turn = std::cell::Cell::new(0u32);
        let late = |turn: u32| {
            let random = |of| random_at(seed, u64::from(turn), of);
            random(0).is_multiple_of(2).then(|| (&gates[random(1) as usize % ranks], random(2) % 150))
        };
        let before = |_| -> TestResult {
            turn.set(turn.get() + 1);
            late(turn.get()).map_or(Ok(()), |(gate, _)| gate.close(turn.get()))
        };
        let after = |_| {
            if let Some((gate, us)) = late(turn.get()) {
                std::thread::sleep(Duration::from_micros(us));
                gate.open(turn.get());
            }
        };
        let delays = suite::fuzz::Delays { before: &before, after: &after };
        suite::calls_with_delays_give_the_same_bits(&world, CALLS, &delays)?;
        if turn.get() >= 10_000 { Ok(()) } else { Err(format!("{} calls", turn.get())) }
    })
}

const TEN_THOUSAND: &str = "ten_thousand_calls_with_random_delays_give_the_same_bits_across_both_wraps";
const RANDOM_DELAYS: &str = "two_hundred_repeats_with_random_delays_give_the_same_bits";

fn main() -> ExitCode {
    common::suite_main(vec![
        Case {
            needs: needs_8,
            ..Case::one("a_gemm_past_32_bits_is_right_in_its_first_middle_and_last_rows", gemm_past_32_bits)
        },
        Case { needs: needs_16, ..Case::one("a_reduce_scatter_of_many_rows_is_right", many_rows) },
        Case { needs: needs_8, ..Case::one("the_main_job_is_right_when_pushed", main_job_pushed) },
        Case { needs: needs_8, ..Case::one("the_main_job_is_right_when_staged", main_job_staged) },
        Case::one(RANDOM_DELAYS, random_delays),
        Case::one(TEN_THOUSAND, ten_thousand),
    ])
}
