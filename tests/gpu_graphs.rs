//! The op in CUDA graphs: captured once from all ranks' streams, replayed with other operands and among direct calls.

mod common;
mod gpu_support;

use std::process::ExitCode;
use std::time::Duration;

use common::{Case, TestResult, expect_eq, text};
use gpu_support::{Bits, Job, stream_of, virtual_ranks};
use half::bf16;
use tilewire::driver::{CaptureMode, DeviceBuffer, Event, Function, Gpu, Graph, LaunchShape, Module, Stream, launch};
use tilewire::kernels::abi::{Launch, MAPS, Placement, TensorMap, Transport};
use tilewire::ops::{Gemm, RankMatrices};
use tilewire::world::{RawStream, Tensor, World};

const RANKS: usize = 4;
const REPLAYS: usize = 5;
const DEADLINE: Duration = Duration::from_secs(10);
const MODES: [CaptureMode; 2] = [CaptureMode::Relaxed, CaptureMode::Global];

/// One capture over all ranks: their streams fork from `main` and rejoin it. `before` may enqueue work on a rank's stream
/// ahead of its kernel.
fn captured(
    gpu: &Gpu,
    job: &Job,
    (main, sides): (&Stream, &[Stream]),
    mode: CaptureMode,
    before: impl Fn(usize, &Stream) -> TestResult,
) -> Result<Graph, String> {
    let (fork, joins) = (Event::new(gpu).map_err(text)?, sides.iter().map(|_| Event::new(gpu)));
    let joins = joins.collect::<Result<Vec<_>, _>>().map_err(text)?;
    let raw: Vec<_> = sides.iter().map(|side| RawStream(side.raw().cast())).collect();
    let capture = main.begin_capture(mode).map_err(text)?;
    fork.record(main).map_err(text)?;
    for (rank, side) in sides.iter().enumerate() {
        side.wait(&fork).map_err(text)?;
        before(rank, side)?;
    }
    job.launch(Some(&raw)).map_err(text)?;
    for (side, join) in sides.iter().zip(&joins) {
        join.record(side).map_err(text)?;
        main.wait(join).map_err(text)?;
    }
    capture.end().map_err(text)
}

fn replayed(job: &mut Job, graph: &mut Graph, main: &Stream) -> Result<Bits, String> {
    job.poison()?;
    // SAFETY: the tensors and the workspaces live in `job`, and nothing else uses them until the stream has been waited for.
    unsafe { graph.launch(main) }.map_err(text)?;
    main.synchronize().map_err(text)?;
    job.plan.check().map_err(text)?;
    job.bits()
}

/// Streams that ranks are captured from: the world's own, or the caller's.
fn sides(gpu: &Gpu, world: &World, own: bool) -> Result<Vec<Stream>, String> {
    let side = |rank| if own { Stream::new(gpu).map_err(text) } else { stream_of(world, gpu, rank) };
    (0..world.size()).map(side).collect()
}

fn nothing_before(_: usize, _: &Stream) -> TestResult {
    Ok(())
}

/// Replays with new operands each time, a direct call after each replay.
fn replays(gpu: &Gpu, own_streams: bool) -> TestResult {
    let world = virtual_ranks(RANKS)?;
    for mode in MODES {
        for (transport, placement, margin) in suite::WAYS {
            let case = suite::Case::new(700, 520, 136).over(transport, placement, margin);
            let mut job = Job::new(&world, case, DEADLINE)?;
            job.call()?;
            let (main, sides) = (Stream::new(gpu).map_err(text)?, sides(gpu, &world, own_streams)?);
            let mut graph = captured(gpu, &job, (&main, &sides), mode, nothing_before)?;
            let mut before = Bits::new();
            for replay in 0..REPLAYS {
                job.refill(gpu, replay + 1)?;
                let bits = replayed(&mut job, &mut graph, &main)?;
                job.check().map_err(|e| format!("{mode:?}, replay {replay}: {e}"))?;
                expect_eq("operands are new", bits == before, false)?;
                let direct = job.call()?;
                expect_eq(
                    &format!("{mode:?}, {case:?}, replay {replay}: bits of the direct call"),
                    direct == bits,
                    true,
                )?;
                before = bits;
            }
        }
    }
    Ok(())
}

fn on_world_streams(gpu: &Gpu) -> TestResult {
    replays(gpu, false)
}

fn on_own_streams(gpu: &Gpu) -> TestResult {
    replays(gpu, true)
}

fn first_call(gpu: &Gpu) -> TestResult {
    for mode in MODES {
        let world = virtual_ranks(RANKS)?;
        let case = suite::Case::new(700, 520, 136);
        let mut job = Job::new(&world, case, DEADLINE)?;
        let (main, sides) = (Stream::new(gpu).map_err(text)?, sides(gpu, &world, false)?);
        let mut graph = captured(gpu, &job, (&main, &sides), mode, nothing_before)?;
        let bits = replayed(&mut job, &mut graph, &main)?;
        job.check().map_err(|e| format!("{mode:?}: {e}"))?;
        let mut other = Job::new(&world, case, DEADLINE)?;
        expect_eq(&format!("{mode:?}: bits of another plan's direct call"), other.call()? == bits, true)?;
        expect_eq(&format!("{mode:?}: bits of the next replay"), replayed(&mut job, &mut graph, &main)? == bits, true)?;
    }
    Ok(())
}

/// Plain products of which each reads what the one ahead wrote: in a graph too they may start before that one has ended.
fn chained(gpu: &Gpu) -> TestResult {
    let (world, n, calls) = (virtual_ranks(1)?, 1000, 24);
    for (m, mode) in [1, 130, 2000].into_iter().zip([MODES[0], MODES[1], MODES[0]]) {
        let x = suite::chain::first_rows(m, n);
        let w = suite::chain::weights(n).map_err(text)?;
        let w = Tensor::from_slice(&world, 0, n, n, w.data()).map_err(text)?;
        let plan = Gemm::builder(&world, 0).shape(m, n, n).build().map_err(text)?;
        let tensors = [Tensor::from_slice(&world, 0, m, n, &x), Tensor::poisoned::<bf16>(&world, 0, m, n)];
        let [here, there] = tensors.map(|tensor| tensor.map_err(text));
        let (here, there) = (here?, there?);
        let stream = Stream::new(gpu).map_err(text)?;
        let capture = stream.begin_capture(mode).map_err(text)?;
        for call in 0..calls {
            let [a, d] = if call % 2 == 0 { [here.arg(), there.arg()] } else { [there.arg(), here.arg()] };
            let given = RankMatrices { a, b: w.arg(), d };
            // SAFETY: the tensors are of the plan's shape, and live until the stream has been waited for.
            unsafe { plan.launch(m, &given, Some(RawStream(stream.raw().cast()))) }.map_err(text)?;
        }
        let mut graph = capture.end().map_err(text)?;
        for replay in 1..=REPLAYS {
            // SAFETY: as above.
            unsafe { graph.launch(&stream) }.map_err(text)?;
            unsafe { graph.launch(&stream) }.map_err(text)?;
            stream.synchronize().map_err(text)?;
            plan.check().map_err(text)?;
            let found = suite::chain::found(&here).map_err(text)?;
            let right = suite::chain::expected(&x, n, 2 * replay * calls);
            expect_eq(&format!("{m} rows, replay {replay}, is right"), found == right, true)?;
        }
    }
    Ok(())
}

/// Epochs live on the device: they wrap between replays of one graph.
fn wrap(gpu: &Gpu) -> TestResult {
    let world = virtual_ranks(RANKS)?;
    for first_epoch in [0x7FFF_FFFD, 0xFFFF_FFFD] {
        let case = suite::Case { first_epoch, ..suite::Case::new(300, 264, 64) };
        let case = case.over(Transport::Staged, Placement::Partition, 1);
        let mut job = Job::new(&world, case, DEADLINE)?;
        let (main, sides) = (Stream::new(gpu).map_err(text)?, sides(gpu, &world, false)?);
        let mut graph = captured(gpu, &job, (&main, &sides), CaptureMode::Relaxed, nothing_before)?;
        let right = Job::new(&world, suite::Case { first_epoch: 1, ..case }, DEADLINE)?.call()?;
        for replay in 0..REPLAYS {
            let bits = replayed(&mut job, &mut graph, &main)?;
            expect_eq(&format!("bits of replay {replay} from {first_epoch:#x}"), bits == right, true)?;
        }
    }
    Ok(())
}

/// Several replays on their way at once, without a wait between them.
fn back_to_back(gpu: &Gpu) -> TestResult {
    let world = virtual_ranks(RANKS)?;
    let mut job = Job::new(&world, suite::Case::new(700, 520, 136), DEADLINE)?;
    let right = job.call()?;
    let (main, sides) = (Stream::new(gpu).map_err(text)?, sides(gpu, &world, false)?);
    let mut graph = captured(gpu, &job, (&main, &sides), CaptureMode::Relaxed, nothing_before)?;
    job.poison()?;
    for _ in 0..50 {
        // SAFETY: the tensors and the workspaces live in `job`; replays follow each other in one stream.
        unsafe { graph.launch(&main) }.map_err(text)?;
    }
    main.synchronize().map_err(text)?;
    job.plan.check().map_err(text)?;
    expect_eq("bits after 50 replays", job.bits()? == right, true)
}

#[repr(C)]
#[derive(Clone, Copy)]
struct LateArgs {
    out: u64,
    value: u32,
    nanoseconds: u32,
}

fn late_add(function: &Function, out: &DeviceBuffer, milliseconds: u32, stream: &Stream) -> TestResult {
    let args = LateArgs { out: out.addr().0, value: 1, nanoseconds: milliseconds * 1_000_000 };
    let params = Launch { maps: [TensorMap::UNUSED; MAPS], args };
    // SAFETY: the parameter is the kernel's, and the graph keeps `out`, whose use is recorded.
    unsafe { launch(function, &LaunchShape::linear(1, 1, 0), &params, stream) }.map_err(text)?;
    out.record_use(stream).map_err(text)
}

/// A rank whose branch of the graph starts 20 ms after the others.
fn delayed_rank(gpu: &Gpu) -> TestResult {
    let world = virtual_ranks(RANKS)?;
    let module = Module::load(gpu, include_str!("common/kernels.ptx")).map_err(text)?;
    let function = module.function("late_add").map_err(text)?;
    let out = DeviceBuffer::filled(gpu, 4, 0).map_err(text)?;
    for delayed in [0, RANKS - 1] {
        let mut job = Job::new(&world, suite::Case::new(700, 520, 136), DEADLINE)?;
        let right = job.call()?;
        let (main, sides) = (Stream::new(gpu).map_err(text)?, sides(gpu, &world, false)?);
        let mut graph = captured(gpu, &job, (&main, &sides), CaptureMode::Global, |rank, side| {
            if rank == delayed { late_add(&function, &out, 20, side) } else { Ok(()) }
        })?;
        for replay in 0..REPLAYS {
            let bits = replayed(&mut job, &mut graph, &main)?;
            expect_eq(&format!("rank {delayed} late: bits of replay {replay}"), bits == right, true)?;
        }
    }
    expect_eq("the delays were there", out.to_vec::<u32>().map_err(text)?, vec![2 * REPLAYS as u32])
}

/// A capture that is given up never ran: the plan's epochs have not moved, and its streams work.
fn abandoned(gpu: &Gpu) -> TestResult {
    let world = virtual_ranks(RANKS)?;
    let mut job = Job::new(&world, suite::Case::new(700, 520, 136), DEADLINE)?;
    let right = job.call()?;
    for mode in MODES {
        let (main, sides) = (Stream::new(gpu).map_err(text)?, sides(gpu, &world, true)?);
        let fork = Event::new(gpu).map_err(text)?;
        let raw: Vec<_> = sides.iter().map(|side| RawStream(side.raw().cast())).collect();
        let capture = main.begin_capture(mode).map_err(text)?;
        fork.record(&main).map_err(text)?;
        sides.iter().try_for_each(|side| side.wait(&fork)).map_err(text)?;
        job.launch(Some(&raw)).map_err(text)?;
        drop(capture);
        for _ in 0..3 {
            expect_eq(&format!("{mode:?}: bits after a capture was given up"), job.call()? == right, true)?;
        }
    }
    gpu.check_pending().map_err(text)
}

fn main() -> ExitCode {
    common::suite_main(vec![
        Case::one("replays_with_new_operands_are_right_on_the_worlds_streams", on_world_streams),
        Case::one("replays_with_new_operands_are_right_on_the_callers_streams", on_own_streams),
        Case::one("the_first_call_of_a_plan_may_be_in_a_capture", first_call),
        Case::one("chained_products_are_right_in_a_graph", chained),
        Case::one("epochs_wrap_between_replays", wrap),
        Case::one("replays_may_follow_each_other_without_a_wait", back_to_back),
        Case::one("a_rank_whose_branch_starts_late_changes_nothing", delayed_rank),
        Case::one("a_capture_that_is_given_up_poisons_nothing", abandoned),
    ])
}
