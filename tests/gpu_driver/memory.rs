//! Buffers: copies, ranges, and when they are freed.

use std::time::{Duration, Instant};

use tilewire::driver::{DeviceBuffer, Gpu, MappedHost, PinnedBuffer, Stream};
use tilewire::kernels::abi::FaultRecord;

use crate::common::{Case, TestResult, expect_eq, expect_text, text};
use crate::kernels;

pub const TESTS: &[Case] = &[
    Case::one("bytes_come_back_as_they_went", round_trip),
    Case::one("an_empty_buffer_is_fine", empty),
    Case::one("ranges_outside_a_buffer_are_refused", ranges),
    Case::one("a_synchronous_write_is_seen_by_a_stream_that_does_not_wait", visible),
    Case::one("asynchronous_copies_go_through_pinned_memory", asynchronous),
    Case::one("a_kernel_writes_mapped_host_memory", mapped),
    Case::one("a_buffer_dropped_early_outlives_its_kernel", dropped_early),
    Case::one("two_hundred_rounds_of_allocation_leak_nothing", leaks),
    Case::several("peer_access_can_be_enabled_twice_and_with_oneself", 2, peer_access),
    Case::several("a_kernel_writes_its_peers_memory", 2, peer_write),
    Case::several("a_buffer_outlives_its_use_on_another_gpu", 2, peer_dropped_early),
];

fn round_trip(gpu: &Gpu) -> TestResult {
    let values: Vec<u32> = (0..100_003u32).map(|i| i.wrapping_mul(2_654_435_761)).collect();
    let mut buffer = DeviceBuffer::from_slice(gpu, &values).map_err(text)?;
    expect_eq("values", buffer.to_vec::<u32>().map_err(text)? == values, true)?;
    buffer.write(8, &[7u32, 8]).map_err(text)?;
    let mut head = [0u32; 5];
    buffer.read(4, &mut head).map_err(text)?;
    expect_eq("head", head, [values[1], 7, 8, values[4], values[5]])?;
    buffer.fill(0xFF).map_err(text)?;
    expect_eq("filled", buffer.to_vec::<u8>().map_err(text)?.iter().all(|byte| *byte == 0xFF), true)?;
    let stream = Stream::new(gpu).map_err(text)?;
    buffer.fill_async(0, 8, 0, &stream).map_err(text)?;
    buffer.fill_u32_async(4, 2, 0xABCD_EF01, &stream).map_err(text)?;
    buffer.read(0, &mut head).map_err(text)?;
    expect_eq("head", head, [0, 0xABCD_EF01, 0xABCD_EF01, u32::MAX, u32::MAX])
}

fn empty(gpu: &Gpu) -> TestResult {
    let mut buffer = DeviceBuffer::new(gpu, 0).map_err(text)?;
    let stream = Stream::new(gpu).map_err(text)?;
    buffer.fill(1).map_err(text)?;
    buffer.fill_async(0, 0, 1, &stream).map_err(text)?;
    buffer.write::<u8>(0, &[]).map_err(text)?;
    expect_eq("values", buffer.to_vec::<u32>().map_err(text)?, Vec::new())?;
    expect_eq("pinned", PinnedBuffer::new(gpu, 0).map_err(text)?.as_slice().map_err(text)?.len(), 0)
}

fn ranges(gpu: &Gpu) -> TestResult {
    let mut buffer = DeviceBuffer::new(gpu, 16).map_err(text)?;
    let error = buffer.write(9, &[0u64]).err().ok_or("a write past the end was taken")?;
    expect_text(&error.to_string(), &["8 bytes from 9", "16 bytes"])?;
    let stream = Stream::new(gpu).map_err(text)?;
    expect_eq("a fill past the end", buffer.fill_async(16, 1, 0, &stream).is_err(), true)?;
    expect_eq("a misaligned fill", buffer.fill_u32_async(2, 1, 0, &stream).is_err(), true)?;
    let huge = DeviceBuffer::new(gpu, 1 << 50).err().ok_or("a petabyte was allocated")?;
    expect_text(&huge.to_string(), &["cuMemAlloc failed: CUDA_ERROR_OUT_OF_MEMORY"])?;
    // The context still works.
    buffer.fill(0).map_err(text)
}

fn visible(gpu: &Gpu) -> TestResult {
    let stream = Stream::new(gpu).map_err(text)?;
    let function = kernels::function(gpu, "late_add")?;
    let mut buffer = DeviceBuffer::new(gpu, 4).map_err(text)?;
    for round in 0..200u32 {
        buffer.write(0, &[round]).map_err(text)?;
        kernels::late_add(&function, buffer.addr(), 1000, 0, &stream)?;
        buffer.record_use(&stream).map_err(text)?;
        expect_eq("sum", buffer.to_vec::<u32>().map_err(text)?, vec![round + 1000])?;
    }
    Ok(())
}

fn asynchronous(gpu: &Gpu) -> TestResult {
    let stream = Stream::new(gpu).map_err(text)?;
    let mut source = PinnedBuffer::new(gpu, 1 << 20).map_err(text)?;
    for (i, byte) in source.as_mut_slice().map_err(text)?.iter_mut().enumerate() {
        *byte = (i * 31) as u8;
    }
    let mut there = DeviceBuffer::new(gpu, 1 << 20).map_err(text)?;
    let mut copy = DeviceBuffer::new(gpu, 1 << 20).map_err(text)?;
    let mut back = PinnedBuffer::new(gpu, 1 << 20).map_err(text)?;
    there.write_async(0, &source, 0, 1 << 20, &stream).map_err(text)?;
    copy.copy_from_async(0, &there, 0, 1 << 20, &stream).map_err(text)?;
    copy.read_async(0, &mut back, 0, 1 << 20, &stream).map_err(text)?;
    // No explicit wait: `as_slice` waits for the recorded uses.
    let same = back.as_slice().map_err(text)? == source.as_slice().map_err(text)?;
    expect_eq("the bytes are the same", same, true)
}

fn mapped(gpu: &Gpu) -> TestResult {
    let stream = Stream::new(gpu).map_err(text)?;
    let function = kernels::function(gpu, "late_add")?;
    let word = MappedHost::new(gpu, 40u32).map_err(text)?;
    kernels::late_add(&function, word.addr(), 2, 1, &stream)?;
    word.record_use(&stream).map_err(text)?;
    stream.synchronize().map_err(text)?;
    expect_eq("word", (word.first_word(), word.read()), (42, 42))?;
    let record = MappedHost::new(gpu, FaultRecord::default()).map_err(text)?;
    kernels::late_add(&function, record.addr(), 1, 0, &stream)?;
    stream.synchronize().map_err(text)?;
    expect_eq("record", record.read(), FaultRecord { state: 1, ..FaultRecord::default() })
}

fn dropped_early(gpu: &Gpu) -> TestResult {
    let stream = Stream::new(gpu).map_err(text)?;
    let function = kernels::function(gpu, "late_add")?;
    let buffer = DeviceBuffer::filled(gpu, 64 << 20, 0).map_err(text)?;
    kernels::late_add(&function, buffer.addr(), 1, 60, &stream)?;
    buffer.record_use(&stream).map_err(text)?;
    let start = Instant::now();
    drop(buffer);
    let waited = start.elapsed();
    // The same memory, most likely: the kernel must not write to it any more.
    let refilled = DeviceBuffer::filled(gpu, 64 << 20, 0).map_err(text)?;
    stream.synchronize().map_err(text)?;
    let mut first = [0u32];
    refilled.read(0, &mut first).map_err(text)?;
    expect_eq("first word", first, [0])?;
    if waited < Duration::from_millis(50) { Err(format!("freed after {waited:?}")) } else { Ok(()) }
}

fn leaks(gpu: &Gpu) -> TestResult {
    let mut free = Vec::new();
    for round in 0..200 {
        let stream = Stream::new(gpu).map_err(text)?;
        let mut buffer = DeviceBuffer::new(gpu, 32 << 20).map_err(text)?;
        buffer.fill_async(0, 32 << 20, 1, &stream).map_err(text)?;
        let pinned = PinnedBuffer::new(gpu, 1 << 16).map_err(text)?;
        buffer.write_async(0, &pinned, 0, 1 << 16, &stream).map_err(text)?;
        drop((stream, buffer, pinned));
        if round >= 10 {
            free.push(gpu.memory().map_err(text)?.0);
        }
    }
    // Other processes may come and go; a leak of 32 MiB a round would show as 6 GiB.
    let lost = free[0].saturating_sub(free[free.len() - 1]);
    if lost > 256 << 20 { Err(format!("{lost} bytes of device memory are gone")) } else { Ok(()) }
}

fn peer_access(gpus: &[Gpu]) -> TestResult {
    for (a, b) in [(0, 1), (1, 0), (0, 1), (0, 0)] {
        expect_eq("can access", gpus[a].can_access_peer(&gpus[b]).map_err(text)?, true)?;
        gpus[a].enable_peer_access(&gpus[b]).map_err(text)?;
    }
    let facts = gpus[0].peer_facts(&gpus[1]).map_err(text)?;
    expect_eq("access and atomics", (facts.access, facts.atomics), (true, true))
}

fn peer_write(gpus: &[Gpu]) -> TestResult {
    gpus[0].enable_peer_access(&gpus[1]).map_err(text)?;
    let stream = Stream::new(&gpus[0]).map_err(text)?;
    let function = kernels::function(&gpus[0], "late_add")?;
    let there = DeviceBuffer::from_slice(&gpus[1], &[5u32]).map_err(text)?;
    kernels::late_add(&function, there.addr(), 6, 1, &stream)?;
    there.record_use(&stream).map_err(text)?;
    expect_eq("peer's word", there.to_vec::<u32>().map_err(text)?, vec![11])?;
    let mut here = DeviceBuffer::filled(&gpus[0], 4, 0).map_err(text)?;
    here.copy_from_async(0, &there, 0, 4, &stream).map_err(text)?;
    expect_eq("copied word", here.to_vec::<u32>().map_err(text)?, vec![11])
}

fn peer_dropped_early(gpus: &[Gpu]) -> TestResult {
    gpus[0].enable_peer_access(&gpus[1]).map_err(text)?;
    let stream = Stream::new(&gpus[0]).map_err(text)?;
    let function = kernels::function(&gpus[0], "late_add")?;
    let there = DeviceBuffer::filled(&gpus[1], 4, 0).map_err(text)?;
    kernels::late_add(&function, there.addr(), 1, 60, &stream)?;
    there.record_use(&stream).map_err(text)?;
    let start = Instant::now();
    drop(there);
    let waited = start.elapsed();
    if waited < Duration::from_millis(50) { Err(format!("freed after {waited:?}")) } else { Ok(()) }
}
