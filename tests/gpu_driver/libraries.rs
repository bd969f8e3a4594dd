//! cuBLASLt and NCCL, as the benchmarks use them.

use half::{bf16, f16};
use tilewire::driver::cublaslt::{self, CublasLt, Fp8, GemmShape, Layout};
use tilewire::driver::nccl::{self, Communicators};
use tilewire::driver::{DeviceBuffer, Gpu, Stream};
use tilewire::kernels::config::Element;
use tilewire::scalar::{F8E4M3, F8E5M2};

use crate::common::{Case, Run, TestResult, expect_eq, text};

pub const TESTS: &[Case] = &[
    Case { name: "cublaslt_multiplies_in_every_layout", run: Run::One(multiply), needs: has_cublaslt },
    Case { name: "cublaslt_multiplies_8_bit_operands_with_scales", run: Run::One(multiply_fp8), needs: has_cublaslt },
    Case { name: "cublaslt_algorithms_can_be_compared", run: Run::One(fastest), needs: has_cublaslt },
    Case { name: "nccl_reduces_and_gathers_on_one_gpu", run: Run::One(alone), needs: has_nccl },
    Case { name: "nccl_reduces_and_gathers_on_two_gpus", run: Run::Several(2, collectives), needs: has_nccl },
];

fn has_cublaslt() -> TestResult {
    cublaslt::available().map_err(text)
}

fn has_nccl() -> TestResult {
    nccl::version().map(|_| ()).map_err(text)
}

/// Small integers, so that every sum is exact; a function of the position, so that nothing can be swapped.
fn value(row: usize, col: usize, salt: usize) -> f32 {
    ((row * 3 + col * 5 + salt) % 7) as f32 - 3.0
}

fn laid(rows: usize, cols: usize, at: impl Fn(usize, usize) -> f32) -> Vec<f32> {
    (0..rows * cols).map(|i| at(i / cols, i % cols)).collect()
}

fn multiply(gpu: &Gpu) -> TestResult {
    let (m, n, k) = (72, 136, 200);
    let (lt, stream) = (CublasLt::new(gpu).map_err(text)?, Stream::new(gpu).map_err(text)?);
    let (a, b) = (|i, p| value(i, p, 1), |j, p| value(j, p, 4));
    let expected = laid(m, n, |i, j| (0..k).map(|p| a(i, p) * b(j, p)).sum());
    for layout in [Layout::Nt, Layout::Nn, Layout::Tn] {
        let a = if layout == Layout::Tn { laid(k, m, |p, i| a(i, p)) } else { laid(m, k, a) };
        let b = if layout == Layout::Nt { laid(n, k, b) } else { laid(k, n, |p, j| b(j, p)) };
        for input in [Element::Bf16, Element::F16] {
            let upload = |values: &[f32]| match input {
                Element::F16 => {
                    DeviceBuffer::from_slice(gpu, &values.iter().copied().map(f16::from_f32).collect::<Vec<_>>())
                }
                _ => DeviceBuffer::from_slice(gpu, &values.iter().copied().map(bf16::from_f32).collect::<Vec<_>>()),
            };
            let (a, b) = (upload(&a).map_err(text)?, upload(&b).map_err(text)?);
            let d = DeviceBuffer::filled(gpu, m * n * 4, 0xFF).map_err(text)?;
            let (m, n, k) = (m as u64, n as u64, k as u64);
            let shape = GemmShape { layout, m, n, k, input, output: Element::F32 };
            let plan = lt.plan(&shape).map_err(text)?;
            // SAFETY: the buffers are as large as the shape says; `d`'s use is recorded, and it is read below.
            unsafe { plan.run(&stream, a.addr(), b.addr(), d.addr()) }.map_err(text)?;
            d.record_use(&stream).map_err(text)?;
            let found = d.to_vec::<f32>().map_err(text)?;
            if let Some(at) = (0..found.len()).find(|at| found[*at] != expected[*at]) {
                return Err(format!("{layout:?}, {input:?}: {} at {at}, expected {}", found[at], expected[at]));
            }
        }
    }
    Ok(())
}

fn multiply_fp8(gpu: &Gpu) -> TestResult {
    let (m, n, k) = (64, 128, 256);
    let (lt, stream) = (CublasLt::new(gpu).map_err(text)?, Stream::new(gpu).map_err(text)?);
    let (a, b) = (laid(m, k, |i, p| value(i, p, 1)), laid(n, k, |j, p| value(j, p, 4)));
    let expected = laid(m, n, |i, j| 3.0 * (0..k).map(|p| a[i * k + p] * b[j * k + p]).sum::<f32>());
    let codes_a: Vec<F8E4M3> = a.iter().map(|x| F8E4M3::from_f32(*x)).collect();
    let scale = |factor: f32| DeviceBuffer::from_slice(gpu, &[factor]).map_err(text);
    let (scale_a, scale_b) = (scale(0.5)?, scale(6.0)?);
    let scales = [Some(scale_a.addr()), Some(scale_b.addr())];
    for (of_b, fast_accumulation) in [(Element::E4m3, false), (Element::E4m3, true), (Element::E5m2, false)] {
        let da = DeviceBuffer::from_slice(gpu, &codes_a).map_err(text)?;
        let db = match of_b {
            Element::E5m2 => DeviceBuffer::from_slice(gpu, &b.iter().map(|x| F8E5M2::from_f32(*x)).collect::<Vec<_>>()),
            _ => DeviceBuffer::from_slice(gpu, &b.iter().map(|x| F8E4M3::from_f32(*x)).collect::<Vec<_>>()),
        }
        .map_err(text)?;
        let d = DeviceBuffer::filled(gpu, m * n * 4, 0xFF).map_err(text)?;
        let (input, output) = (Element::E4m3, Element::F32);
        let shape = GemmShape { layout: Layout::Nt, m: m as u64, n: n as u64, k: k as u64, input, output };
        let plan = lt.plan_fp8(&shape, &Fp8 { b: of_b, fast_accumulation, scales }).map_err(text)?;
        // SAFETY: the buffers are as large as the shape says; `d`'s use is recorded, and it is read below.
        unsafe { plan.run(&stream, da.addr(), db.addr(), d.addr()) }.map_err(text)?;
        d.record_use(&stream).map_err(text)?;
        let found = d.to_vec::<f32>().map_err(text)?;
        if let Some(at) = (0..found.len()).find(|at| found[*at] != expected[*at]) {
            return Err(format!("{of_b:?}, {fast_accumulation}: {} at {at}, expected {}", found[at], expected[at]));
        }
    }
    Ok(())
}

fn fastest(gpu: &Gpu) -> TestResult {
    let (lt, stream) = (CublasLt::new(gpu).map_err(text)?, Stream::new(gpu).map_err(text)?);
    let size = 2048;
    let shape =
        GemmShape { layout: Layout::Nt, m: size, n: size, k: size, input: Element::Bf16, output: Element::Bf16 };
    let mut plan = lt.plan(&shape).map_err(text)?;
    let matrix = || DeviceBuffer::filled(gpu, (size * size * 2) as usize, 0).map_err(text);
    let (a, b, d) = (matrix()?, matrix()?, matrix()?);
    // SAFETY: the buffers are as large as the shape says, and the stream is waited for.
    let seconds = unsafe { plan.select_fastest(&stream, a.addr(), b.addr(), d.addr(), 5) }.map_err(text)?;
    stream.synchronize().map_err(text)?;
    expect_eq("a selection past the end", plan.select(plan.algorithms()).is_err(), true)?;
    if plan.selected() < plan.algorithms() && (1e-6..1.0).contains(&seconds) {
        Ok(())
    } else {
        Err(format!("algorithm {} of {}: {seconds} s", plan.selected(), plan.algorithms()))
    }
}

fn alone(gpu: &Gpu) -> TestResult {
    collectives(std::slice::from_ref(gpu))
}

fn collectives(gpus: &[Gpu]) -> TestResult {
    const COUNT: usize = 1000;
    let world = gpus.len();
    let comms = Communicators::new(gpus).map_err(text)?;
    expect_eq("world size", comms.world_size(), world)?;
    let streams = gpus.iter().map(Stream::new).collect::<Result<Vec<_>, _>>().map_err(text)?;
    let sent = |rank: usize| (0..world * COUNT).map(|i| bf16::from_f32(value(i, rank, 2))).collect::<Vec<_>>();
    let inputs = (0..world).map(|rank| DeviceBuffer::from_slice(&gpus[rank], &sent(rank)));
    let inputs = inputs.collect::<Result<Vec<_>, _>>().map_err(text)?;
    let outputs = |count: usize| {
        let buffers = gpus.iter().map(|gpu| DeviceBuffer::filled(gpu, count * 2, 0xFF));
        buffers.collect::<Result<Vec<_>, _>>().map_err(text)
    };
    let (reduced, gathered) = (outputs(COUNT)?, outputs(world * COUNT)?);
    let element = Element::Bf16;
    let all = |from: &[DeviceBuffer], to: &[DeviceBuffer], gather: bool| {
        comms.group(|| {
            (0..world).try_for_each(|rank| {
                let (send, receive, stream) = (from[rank].addr(), to[rank].addr(), &streams[rank]);
                // SAFETY: the buffers are as large as the counts say, and their uses are recorded below.
                unsafe {
                    match gather {
                        false => comms.reduce_scatter(rank, send, receive, COUNT, element, stream),
                        true => comms.all_gather(rank, send, receive, COUNT, element, stream),
                    }
                }
            })
        })
    };
    all(&inputs, &reduced, false).map_err(text)?;
    all(&reduced, &gathered, true).map_err(text)?;
    let expected: Vec<bf16> =
        (0..world * COUNT).map(|i| bf16::from_f32((0..world).map(|rank| value(i, rank, 2)).sum())).collect();
    for rank in 0..world {
        for buffer in [&inputs[rank], &reduced[rank], &gathered[rank]] {
            buffer.record_use(&streams[rank]).map_err(text)?;
        }
    }
    for (rank, buffer) in gathered.iter().enumerate() {
        expect_eq(&format!("rank {rank} has the sum"), buffer.to_vec::<bf16>().map_err(text)? == expected, true)?;
    }
    Ok(())
}
