//! A rank that does not come: its stream waits for a word that is written too late.

use std::time::{Duration, Instant};

use tilewire::driver::{Gpu, Stream};
use tilewire::kernels::abi::{Placement, Transport, WaitKind};
use tilewire::kernels::shape::Role;

use crate::common::{Case, TestResult, expect_eq, expect_text, in_child, text};
use crate::gpu_support::{Gate, Job, idle_within, stream_of, virtual_ranks};
use crate::{DEADLINE, QUEUES, fault_of};

pub const TESTS: &[Case] = &[
    Case::one("a_starved_rank_is_named_by_the_partitions_that_wait_for_it", partition),
    Case::one("a_starved_rank_is_named_when_tiles_are_staged", staged),
    Case::one("a_starved_rank_ends_a_call_that_adds_in_the_epilogue", epilogue),
    Case::one("a_starved_rank_ends_the_first_call_of_a_plan", first_call),
    Case::one("the_first_call_of_a_process_waits_for_a_late_rank_when_loading_is_lazy", late_lazy),
    Case::one("the_first_call_of_a_process_waits_for_a_late_rank_when_loading_is_eager", late_eager),
    Case::one("blocking_launches_end_in_a_right_result_or_a_fault", blocking),
];

const RANKS: usize = 4;
const STARVED: u32 = 1;

/// Calls before the one in which the rank is missing: slots of both parities are in use.
const GOOD_CALLS: usize = 3;

fn starve(gpu: &Gpu, transport: Transport, placement: Placement, margin: u32, good_calls: usize) -> TestResult {
    let world = virtual_ranks(RANKS)?;
    let case = suite::Case::new(1000, 520, 264).over(transport, placement, margin);
    let right = Job::new(&world, case, Duration::from_secs(10))?.call()?;
    let mut job = Job::new(&world, case, DEADLINE)?;
    for _ in 0..good_calls {
        expect_eq("bits before", job.call()? == right, true)?;
    }
    let others = (0..RANKS).filter(|rank| *rank != STARVED as usize);
    let others: Vec<Stream> = others.map(|rank| stream_of(&world, gpu, rank)).collect::<Result<_, _>>()?;
    // Declared last: opens first, whatever fails below.
    let gate = Gate::new(&world, gpu, STARVED as usize)?;
    gate.close(1)?;
    let start = Instant::now();
    job.launch(None).map_err(text)?;
    let limit = DEADLINE + Duration::from_secs(1);
    let left = idle_within(&others, start, limit)?;
    if left < DEADLINE {
        return Err(format!("ranks left after {left:?}, before the deadline of {DEADLINE:?}"));
    }
    gate.open(1);
    let (record, shown) = fault_of(job.plan.finish())?;
    let epoch = case.first_epoch.wrapping_add(good_calls as u32);
    let names_it = || -> TestResult {
        expect_eq("kind", WaitKind::from_code(record.kind), Some(WaitKind::Signal))?;
        expect_eq("rank awaited", record.index >> 24, STARVED)?;
        expect_eq("epoch awaited", record.awaited, epoch)?;
        let tile = record.index & 0xFF_FFFF;
        let awaited = format!("rank {STARVED}'s partial of tile {tile}: epoch {epoch}, seen {}", record.seen);
        expect_text(&shown, &[&awaited])
    };
    if record.rank == STARVED {
        return Err(format!("the rank that was away is blamed for waiting: {shown}"));
    }
    names_it()?;
    // In the epilogue consumer and storer of the tile wait behind the loader, but give it time.
    let role = Role::from_code(record.role);
    let is_right = match placement {
        Placement::Partition => matches!(role, Role::Consumer(0 | 1)),
        Placement::Epilogue => role == Role::Loader,
    };
    expect_eq("role", is_right, true).map_err(|e| format!("{e}: {role:?}"))?;
    let refused = job.launch(None).err().map(text).unwrap_or_default();
    expect_text(&refused, &["plan is faulted", "recover()"])?;
    job.plan.recover().map_err(text)?;
    for call in 0..4 {
        expect_eq(&format!("bits of call {call} after recovery"), job.call()? == right, true)?;
    }
    job.check()
}

fn partition(gpu: &Gpu) -> TestResult {
    in_child(TESTS[0].name, gpu, &[QUEUES], |gpu| starve(gpu, Transport::Push, Placement::Partition, 2, GOOD_CALLS))
}

fn staged(gpu: &Gpu) -> TestResult {
    in_child(TESTS[1].name, gpu, &[QUEUES], |gpu| starve(gpu, Transport::Staged, Placement::Partition, 2, GOOD_CALLS))
}

fn epilogue(gpu: &Gpu) -> TestResult {
    in_child(TESTS[2].name, gpu, &[QUEUES], |gpu| {
        starve(gpu, Transport::Push, Placement::Epilogue, 0, GOOD_CALLS)?;
        starve(gpu, Transport::Staged, Placement::Epilogue, 2, GOOD_CALLS)
    })
}

fn first_call(gpu: &Gpu) -> TestResult {
    in_child(TESTS[3].name, gpu, &[QUEUES], |gpu| starve(gpu, Transport::Push, Placement::Partition, 2, 0))
}

/// A rank that comes 200 ms late to the first call ever: nothing that ranks need is loaded only while they wait.
fn late(gpu: &Gpu) -> TestResult {
    let world = virtual_ranks(RANKS)?;
    let job = Job::new(&world, suite::Case::new(1000, 520, 264), Duration::from_secs(5))?;
    let gate = Gate::new(&world, gpu, RANKS - 1)?;
    gate.close(1)?;
    job.launch(None).map_err(text)?;
    std::thread::sleep(Duration::from_millis(200));
    gate.open(1);
    job.plan.finish().map_err(text)?;
    job.check()
}

fn late_lazy(gpu: &Gpu) -> TestResult {
    in_child(TESTS[4].name, gpu, &[QUEUES, ("CUDA_MODULE_LOADING", "LAZY")], late)
}

fn late_eager(gpu: &Gpu) -> TestResult {
    in_child(TESTS[5].name, gpu, &[QUEUES, ("CUDA_MODULE_LOADING", "EAGER")], late)
}

/// Where every launch waits for its kernel, ranks on one GPU cannot meet: that must end, and say who waited for whom.
fn blocking(gpu: &Gpu) -> TestResult {
    in_child(TESTS[6].name, gpu, &[("CUDA_LAUNCH_BLOCKING", "1")], |_| {
        let world = virtual_ranks(2)?;
        let job = Job::new(&world, suite::Case::new(300, 256, 64), DEADLINE)?;
        match job.launch(None).and_then(|()| job.plan.finish()) {
            Ok(()) => job.check(),
            Err(error) => fault_of(Err(error)).map(drop),
        }
    })
}
