//! Captures and graphs.

use tilewire::driver::{CaptureMode, DeviceBuffer, Event, Gpu, PinnedBuffer, Stream};

use crate::common::{Case, TestResult, expect_eq, expect_text, text};
use crate::kernels;

pub const TESTS: &[Case] = &[
    Case::one("a_graph_replays_in_every_capture_mode", replays),
    Case::one("a_graph_keeps_the_buffers_it_was_captured_with", keeps),
    Case::one("side_streams_fork_and_rejoin_in_a_capture", forks),
    Case::one("an_abandoned_capture_leaves_the_stream_usable", abandoned),
    Case::one("an_unjoined_side_stream_is_an_error_that_poisons_nothing", unjoined),
    Case::one("allocating_during_a_capture_does_not_spoil_it", allocating),
];

const MODES: [CaptureMode; 3] = [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed];

fn replays(gpu: &Gpu) -> TestResult {
    for mode in MODES {
        let stream = Stream::new(gpu).map_err(text)?;
        let function = kernels::function(gpu, "late_add")?;
        let out = DeviceBuffer::filled(gpu, 4, 0).map_err(text)?;
        let capture = stream.begin_capture(mode).map_err(text)?;
        kernels::late_add(&function, out.addr(), 3, 0, &stream)?;
        out.record_use(&stream).map_err(text)?;
        let mut graph = capture.end().map_err(text)?;
        expect_eq("sum before the first launch", out.to_vec::<u32>().map_err(text)?, vec![0])?;
        for _ in 0..5 {
            // SAFETY: `out` is kept by the graph.
            unsafe { graph.launch(&stream) }.map_err(text)?;
        }
        expect_eq("sum", out.to_vec::<u32>().map_err(text)?, vec![15])?;
    }
    Ok(())
}

fn keeps(gpu: &Gpu) -> TestResult {
    let stream = Stream::new(gpu).map_err(text)?;
    let mut back = PinnedBuffer::new(gpu, 1 << 20).map_err(text)?;
    let source = DeviceBuffer::filled(gpu, 1 << 20, 0x5A).map_err(text)?;
    let capture = stream.begin_capture(CaptureMode::Global).map_err(text)?;
    source.read_async(0, &mut back, 0, 1 << 20, &stream).map_err(text)?;
    let mut graph = capture.end().map_err(text)?;
    drop(source);
    // What would be given the memory, had it been freed.
    let other = DeviceBuffer::filled(gpu, 1 << 20, 0xFF).map_err(text)?;
    // SAFETY: both buffers are kept by the graph, and no slice of `back` is borrowed.
    unsafe { graph.launch(&stream) }.map_err(text)?;
    drop(graph);
    drop(other);
    expect_eq("all bytes", back.as_slice().map_err(text)?.iter().all(|byte| *byte == 0x5A), true)
}

fn forks(gpu: &Gpu) -> TestResult {
    let (main, side) = (Stream::new(gpu).map_err(text)?, Stream::new(gpu).map_err(text)?);
    let (fork, join) = (Event::new(gpu).map_err(text)?, Event::new(gpu).map_err(text)?);
    let function = kernels::function(gpu, "late_add")?;
    let out = DeviceBuffer::filled(gpu, 4, 0).map_err(text)?;
    let capture = main.begin_capture(CaptureMode::Global).map_err(text)?;
    fork.record(&main).map_err(text)?;
    side.wait(&fork).map_err(text)?;
    kernels::late_add(&function, out.addr(), 1, 1, &side)?;
    out.record_use(&side).map_err(text)?;
    join.record(&side).map_err(text)?;
    main.wait(&join).map_err(text)?;
    kernels::late_add(&function, out.addr(), 10, 0, &main)?;
    let mut graph = capture.end().map_err(text)?;
    expect_eq("the side stream captures no more", side.capture_id().map_err(text)?, None)?;
    // SAFETY: `out` is kept by the graph.
    unsafe { graph.launch(&main) }.map_err(text)?;
    expect_eq("sum", out.to_vec::<u32>().map_err(text)?, vec![11])
}

fn abandoned(gpu: &Gpu) -> TestResult {
    let stream = Stream::new(gpu).map_err(text)?;
    let function = kernels::function(gpu, "late_add")?;
    let out = DeviceBuffer::filled(gpu, 4, 0).map_err(text)?;
    let capture = stream.begin_capture(CaptureMode::ThreadLocal).map_err(text)?;
    kernels::late_add(&function, out.addr(), 1, 0, &stream)?;
    drop(capture);
    kernels::late_add(&function, out.addr(), 5, 0, &stream)?;
    out.record_use(&stream).map_err(text)?;
    expect_eq("sum", out.to_vec::<u32>().map_err(text)?, vec![5])
}

fn unjoined(gpu: &Gpu) -> TestResult {
    let (main, side) = (Stream::new(gpu).map_err(text)?, Stream::new(gpu).map_err(text)?);
    let fork = Event::new(gpu).map_err(text)?;
    let function = kernels::function(gpu, "late_add")?;
    let out = DeviceBuffer::filled(gpu, 4, 0).map_err(text)?;
    let capture = main.begin_capture(CaptureMode::Global).map_err(text)?;
    fork.record(&main).map_err(text)?;
    side.wait(&fork).map_err(text)?;
    kernels::late_add(&function, out.addr(), 1, 0, &side)?;
    let error = capture.end().err().ok_or("an unjoined stream went unnoticed")?;
    expect_text(&error.to_string(), &["cuStreamEndCapture failed: CUDA_ERROR_STREAM_CAPTURE_UNJOINED"])?;
    for stream in [&main, &side] {
        kernels::late_add(&function, out.addr(), 4, 0, stream)?;
        out.record_use(stream).map_err(text)?;
    }
    expect_eq("sum", out.to_vec::<u32>().map_err(text)?, vec![8])
}

fn allocating(gpu: &Gpu) -> TestResult {
    for mode in MODES {
        let stream = Stream::new(gpu).map_err(text)?;
        let capture = stream.begin_capture(mode).map_err(text)?;
        let function = kernels::function(gpu, "late_add")?;
        let out = DeviceBuffer::filled(gpu, 4, 0).map_err(text)?;
        drop(DeviceBuffer::filled(gpu, 1 << 20, 1).map_err(text)?);
        kernels::late_add(&function, out.addr(), 7, 0, &stream)?;
        out.record_use(&stream).map_err(text)?;
        let mut graph = capture.end().map_err(text)?;
        // SAFETY: `out` is kept by the graph.
        unsafe { graph.launch(&stream) }.map_err(text)?;
        expect_eq("sum", out.to_vec::<u32>().map_err(text)?, vec![7])?;
    }
    Ok(())
}
