//! The link kernel: every means copies right, whatever the sizes, and signals bring their payload. One GPU is its own peer; with
//! two, the same goes over the link.

mod common;

use std::process::ExitCode;

use common::{Case, TestResult, expect_eq, expect_text, text};
use tilewire::driver::{DeviceBuffer, Gpu, Stream};
use tilewire::measure::link::{LinkCopy, LinkKernel, Means, PingPong, ping_pong};

fn pattern(bytes: usize, seed: u32) -> Vec<u32> {
    (0..bytes.div_ceil(4) as u32).map(|i| i.wrapping_mul(0x9E37_79B9).wrapping_add(seed)).collect()
}

/// Message, CTAs, bytes, repeats.
const COPIES: [(usize, u32, usize, u32); 10] = [
    (16, 2, 4096, 1),
    (256, 1, 256, 1),
    (256, 7, 1_000_016, 2),
    (1040, 3, 123_456, 1),
    (2048, 132, 10_000_000, 2),
    (8192, 16, (4 << 20) + 48, 3),
    (16 << 10, 5, 999_984, 1),
    (64 << 10, 40, (32 << 20) + 16, 2),
    (229_376, 2, 1_000_000, 1),
    (512, 4, 0, 1),
];

fn copies(here: &Gpu, there: &Gpu) -> TestResult {
    let (kernel, stream) = (LinkKernel::new(here).map_err(text)?, Stream::new(here).map_err(text)?);
    for means in Means::ALL {
        let (from, to) = if means.pulls() { (there, here) } else { (here, there) };
        for (message, ctas, bytes, repeats) in COPIES {
            let ctas = ctas.min(here.sm_count());
            let copy = LinkCopy { means, message, ctas, bytes, repeats };
            let sent = pattern(bytes.max(16), message as u32);
            let src = DeviceBuffer::from_slice(from, &sent).map_err(text)?;
            let dst = DeviceBuffer::filled(to, bytes + 64, 0xFF).map_err(text)?;
            kernel.copy(&copy, &dst, &src, &stream).map_err(text)?;
            stream.synchronize().map_err(text)?;
            kernel.check().map_err(text)?;
            let found: Vec<u32> = dst.to_vec().map_err(text)?;
            if found[..bytes / 4] != sent[..bytes / 4] {
                return Err(format!("{copy:?} did not copy everything"));
            }
            expect_eq(&format!("what lies behind {copy:?}"), &found[bytes / 4..], &[u32::MAX; 16])?;
        }
    }
    Ok(())
}

fn signals(gpus: [&Gpu; 2]) -> TestResult {
    let kernels = [LinkKernel::new(gpus[0]).map_err(text)?, LinkKernel::new(gpus[1]).map_err(text)?];
    let streams = [Stream::new(gpus[0]).map_err(text)?, Stream::new(gpus[1]).map_err(text)?];
    for (payload, message, plain, waits) in [
        (0, 16, false, true),
        (1, 256, false, true),
        (9, 8192, false, true),
        (4, 16_400, false, false),
        (3, 10_016, true, true),
    ] {
        let spec = PingPong { rounds: 200, payload, message, plain, waits };
        let sent = [pattern(message, 1), pattern(message, 2)];
        let mut sources = Vec::new();
        let mut targets = Vec::new();
        for side in 0..2 {
            sources.push(DeviceBuffer::from_slice(gpus[side], &sent[side]).map_err(text)?);
            targets.push(DeviceBuffer::filled(gpus[side], spec.payload_bytes() + 16, 0xFF).map_err(text)?);
        }
        let times = ping_pong(
            [&kernels[0], &kernels[1]],
            &spec,
            [&targets[0], &targets[1]],
            [&sources[0], &sources[1]],
            [&streams[0], &streams[1]],
        )
        .map_err(|e| format!("{spec:?}: {e}"))?;
        for side in 0..2 {
            let found: Vec<u32> = targets[side].to_vec().map_err(text)?;
            let expected = [sent[1 - side].repeat(payload as usize), vec![u32::MAX; 4]].concat();
            if found != expected {
                return Err(format!("{spec:?}: side {side} did not get its payload"));
            }
        }
        let trips = &times[0].round_trip;
        expect_eq("round trips", trips.len(), 199)?;
        if !trips.iter().all(|seconds| (1e-7..0.1).contains(seconds)) {
            return Err(format!("{spec:?}: round trips of {trips:?} s"));
        }
    }
    Ok(())
}

fn copies_on_one_gpu(gpu: &Gpu) -> TestResult {
    copies(gpu, gpu)
}

fn signals_on_one_gpu(gpu: &Gpu) -> TestResult {
    signals([gpu, gpu])
}

fn connected(gpus: &[Gpu]) -> TestResult {
    gpus[0].enable_peer_access(&gpus[1]).map_err(text)?;
    gpus[1].enable_peer_access(&gpus[0]).map_err(text)
}

fn copies_over_the_link(gpus: &[Gpu]) -> TestResult {
    connected(gpus)?;
    copies(&gpus[0], &gpus[1])?;
    copies(&gpus[1], &gpus[0])
}

fn signals_over_the_link(gpus: &[Gpu]) -> TestResult {
    connected(gpus)?;
    signals([&gpus[0], &gpus[1]])
}

fn bad_sizes_are_refused(gpu: &Gpu) -> TestResult {
    let (kernel, stream) = (LinkKernel::new(gpu).map_err(text)?, Stream::new(gpu).map_err(text)?);
    let buffer = DeviceBuffer::filled(gpu, 4096, 0).map_err(text)?;
    let good = LinkCopy { means: Means::BulkPush, message: 256, ctas: 1, bytes: 4096, repeats: 1 };
    for (copy, words) in [
        (LinkCopy { bytes: 8192, ..good }, "dst is 4096 bytes, but 8192 bytes are copied"),
        (LinkCopy { message: 8, ..good }, "message is 8, but"),
        (LinkCopy { ctas: 10_000, ..good }, "ctas is 10000, but"),
    ] {
        let error = kernel.copy(&copy, &buffer, &buffer, &stream).err().ok_or(format!("{copy:?} was taken"))?;
        expect_text(&error.to_string(), &[words])?;
    }
    Ok(())
}

fn main() -> ExitCode {
    common::suite_main(vec![
        Case::one("copies_on_one_gpu", copies_on_one_gpu),
        Case::one("signals_on_one_gpu", signals_on_one_gpu),
        Case::one("bad_sizes_are_refused", bad_sizes_are_refused),
        Case::several("copies_over_the_link", 2, copies_over_the_link),
        Case::several("signals_over_the_link", 2, signals_over_the_link),
    ])
}
