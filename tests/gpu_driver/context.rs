//! Contexts, streams, events.

use std::ptr;

use cudarc::driver::sys::cuCtxGetCurrent;
use tilewire::driver::{CUcontext, DeviceBuffer, Event, Gpu, Stream};
use tilewire::kernels::config::MAX_SMEM_BYTES;

use crate::common::{Case, TestResult, expect_eq, expect_text, in_child, text};
use crate::kernels;

pub const TESTS: &[Case] = &[
    Case::one("facts_of_a_hopper_gpu_are_plausible", facts),
    Case::one("entering_a_context_restores_the_one_before", entering),
    Case::one("an_ordinal_that_does_not_exist_is_named", ordinal),
    Case::one("streams_of_others_are_taken_and_left_alive", foreign_stream),
    Case::one("streams_have_ids_of_their_own", stream_ids),
    Case::one("events_measure_and_order", events),
    Case::one("stream_memory_operations_order_two_streams", stream_memory),
    Case::one("an_earlier_error_is_named_as_such", pending_error),
];

fn facts(gpu: &Gpu) -> TestResult {
    let facts = gpu.facts();
    expect_eq("compute capability", facts.compute_capability, (9, 0))?;
    expect_eq("shared memory", facts.smem_per_block_optin, MAX_SMEM_BYTES)?;
    expect_eq("uuid is zero", facts.uuid.0 == [0; 16], false)?;
    if facts.name.is_empty() || !(64..=144).contains(&facts.sm_count) || facts.memory_bytes < 1 << 34 {
        return Err(format!("{facts:?}"));
    }
    let (free, total) = gpu.memory().map_err(text)?;
    if free > total || total as u64 > facts.memory_bytes { Err(format!("{free} of {total}")) } else { Ok(()) }
}

fn current() -> CUcontext {
    let mut context = ptr::null_mut();
    // SAFETY: `context` is a live place; a missing context is null.
    let _ = unsafe { cuCtxGetCurrent(&mut context) };
    context
}

fn entering(gpu: &Gpu) -> TestResult {
    let before = current();
    {
        let _outer = gpu.enter().map_err(text)?;
        expect_eq("context inside", current(), gpu.context())?;
        gpu.with_current(|| Ok(())).map_err(text)?;
        expect_eq("context after the inner one", current(), gpu.context())?;
    }
    expect_eq("context afterwards", current(), before)?;
    let failed = gpu.with_current::<()>(|| Err(tilewire::Error::argument("a", 1, "b")));
    expect_eq("an error inside comes out", failed.is_err(), true)?;
    expect_eq("context after an error", current(), before)
}

fn ordinal(_: &Gpu) -> TestResult {
    let error = Gpu::open(1000).err().ok_or("GPU 1000 was opened")?;
    expect_text(&error.to_string(), &["GPU ordinal is 1000", "this process sees"])
}

fn foreign_stream(gpu: &Gpu) -> TestResult {
    let owner = Stream::new(gpu).map_err(text)?;
    let function = kernels::function(gpu, "late_add")?;
    let out = DeviceBuffer::filled(gpu, 4, 0).map_err(text)?;
    for raw in [owner.raw(), ptr::null_mut()] {
        // SAFETY: `owner` outlives the borrowed stream, and null is the legacy default stream.
        let stream = unsafe { Stream::from_raw(gpu, raw) }.map_err(text)?;
        kernels::late_add(&function, out.addr(), 1, 0, &stream)?;
        out.record_use(&stream).map_err(text)?;
    }
    owner.synchronize().map_err(text)?;
    expect_eq("sum", out.to_vec::<u32>().map_err(text)?, vec![2])
}

fn stream_ids(gpu: &Gpu) -> TestResult {
    let first = Stream::new(gpu).map_err(text)?.id();
    let second = Stream::high_priority(gpu).map_err(text)?;
    if first == second.id() {
        return Err(format!("id {first} was given twice"));
    }
    expect_eq("an idle stream is idle", second.is_idle().map_err(text)?, true)?;
    expect_eq("capture", second.capture_id().map_err(text)?, None)
}

fn events(gpu: &Gpu) -> TestResult {
    let (first, second) = (Stream::new(gpu).map_err(text)?, Stream::new(gpu).map_err(text)?);
    let function = kernels::function(gpu, "late_add")?;
    let out = DeviceBuffer::filled(gpu, 4, 0).map_err(text)?;
    let (start, end) = (Event::timed(gpu).map_err(text)?, Event::timed(gpu).map_err(text)?);
    start.record(&first).map_err(text)?;
    kernels::late_add(&function, out.addr(), 1, 30, &first)?;
    end.record(&first).map_err(text)?;
    expect_eq("reached at once", end.is_reached().map_err(text)?, false)?;
    second.wait(&end).map_err(text)?;
    kernels::late_add(&function, out.addr(), 1, 0, &second)?;
    second.synchronize().map_err(text)?;
    expect_eq("reached after the stream that waited", end.is_reached().map_err(text)?, true)?;
    expect_eq("sum", out.to_vec::<u32>().map_err(text)?, vec![2])?;
    let seconds = end.seconds_since(&start).map_err(text)?;
    if (0.029..1.0).contains(&seconds) { Ok(()) } else { Err(format!("30 ms were measured as {seconds} s")) }
}

fn stream_memory(gpu: &Gpu) -> TestResult {
    let (waiter, writer) = (Stream::new(gpu).map_err(text)?, Stream::new(gpu).map_err(text)?);
    let function = kernels::function(gpu, "late_add")?;
    let word = DeviceBuffer::from_slice(gpu, &[u32::MAX - 1]).map_err(text)?;
    let out = DeviceBuffer::filled(gpu, 4, 0).map_err(text)?;
    // SAFETY: `word` outlives both streams' work, which is waited for below.
    unsafe { waiter.wait_value(word.addr(), 2) }.map_err(text)?;
    kernels::late_add(&function, out.addr(), 1, 0, &waiter)?;
    expect_eq("waits across the wrap-around", waiter.is_idle().map_err(text)?, false)?;
    // SAFETY: as above.
    unsafe { writer.write_value(word.addr(), 3) }.map_err(text)?;
    waiter.synchronize().map_err(text)?;
    writer.synchronize().map_err(text)?;
    expect_eq("sum", out.to_vec::<u32>().map_err(text)?, vec![1])?;
    expect_eq("word", word.to_vec::<u32>().map_err(text)?, vec![3])
}

fn pending_error(gpu: &Gpu) -> TestResult {
    in_child("an_earlier_error_is_named_as_such", gpu, &[], |gpu| {
        let stream = Stream::new(gpu).map_err(text)?;
        let function = kernels::function(gpu, "late_add")?;
        // Address 16 belongs to nobody.
        kernels::late_add(&function, tilewire::kernels::shape::GlobalAddr(16), 1, 0, &stream)?;
        let pending = ["CUDA_ERROR_ILLEGAL_ADDRESS", "an earlier CUDA error is pending"];
        let error = stream.synchronize().err().ok_or("the fault went unnoticed")?;
        expect_text(&error.to_string(), &pending)?;
        let error = gpu.check_pending().err().ok_or("the pending error went unnoticed")?;
        expect_text(&error.to_string(), &pending)?;
        let error = Gpu::open(gpu.ordinal()).err().ok_or("a context with an error was opened")?;
        expect_text(&error.to_string(), &pending)?;
        let error = DeviceBuffer::new(gpu, 64).err().ok_or("memory was allocated after a fault")?;
        expect_text(&error.to_string(), &pending)
    })
}
