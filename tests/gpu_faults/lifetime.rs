//! Plans over their lives: memory, deadlines that are off, and plans beside each other.

use std::time::Duration;

use tilewire::driver::Gpu;
use tilewire::kernels::abi::{Placement, Transport};

use crate::common::{Case, TestResult, expect_eq, in_child, text};
use crate::gpu_support::{Gate, Job, virtual_ranks};
use crate::{DEADLINE, QUEUES, fault_of};

pub const TESTS: &[Case] = &[
    Case::one("a_deadline_of_zero_waits_for_ever_and_calls_are_right", no_deadline),
    Case::one("two_hundred_plans_leave_memory_as_it_was", plans),
    Case::one("ten_worlds_leave_memory_as_it_was", worlds),
    Case::one("calls_allocate_nothing", no_allocation),
    Case::one("a_thousand_calls_need_no_reset", thousand),
    Case::one("a_fault_of_one_plan_leaves_the_others_of_its_world_usable", beside),
];

/// What the driver may keep for itself: one of its pages.
const PAGE: usize = 2 << 20;

fn no_deadline(gpu: &Gpu) -> TestResult {
    in_child(TESTS[0].name, gpu, &[QUEUES], |gpu| {
        let world = virtual_ranks(4)?;
        for (transport, placement, margin) in suite::WAYS {
            let case = suite::Case::new(700, 520, 128).over(transport, placement, margin);
            let mut job = Job::new(&world, case, Duration::ZERO)?;
            let right = job.call()?;
            job.check()?;
            for _ in 0..20 {
                expect_eq("bits", job.call()? == right, true)?;
            }
            // Longer than any deadline that tests use: it must be off, not the shortest.
            let gate = Gate::new(&world, gpu, 2)?;
            gate.close(1)?;
            job.launch(None).map_err(text)?;
            std::thread::sleep(DEADLINE * 2);
            gate.open(1);
            job.plan.finish().map_err(text)?;
            expect_eq("bits with a late rank", job.bits()? == right, true)?;
        }
        Ok(())
    })
}

fn free(gpu: &Gpu) -> Result<usize, String> {
    gpu.synchronize().map_err(text)?;
    gpu.memory().map(|(free, _)| free).map_err(text)
}

/// `once` before the count begins makes what the driver makes once.
fn leaks_nothing(gpu: &Gpu, times: usize, what: &str, mut once: impl FnMut(usize) -> TestResult) -> TestResult {
    (0..5).try_for_each(&mut once)?;
    let before = free(gpu)?;
    (0..times).try_for_each(&mut once)?;
    let after = free(gpu)?;
    if after + PAGE >= before {
        Ok(())
    } else {
        Err(format!("{times} {what} left {} of {before} bytes less free", before - after))
    }
}

fn plans(gpu: &Gpu) -> TestResult {
    let world = virtual_ranks(4)?;
    leaks_nothing(gpu, 200, "plans", |at| {
        let (transport, placement, margin) = suite::WAYS[at % suite::WAYS.len()];
        let case = suite::Case::new(2048, 1024, 64).over(transport, placement, margin);
        let mut job = Job::new(&world, case, DEADLINE * 10)?;
        // Every other plan is dropped without a call.
        if at % 2 == 0 { job.call().map(drop) } else { Ok(()) }
    })
}

fn worlds(gpu: &Gpu) -> TestResult {
    leaks_nothing(gpu, 10, "worlds", |at| {
        let world = virtual_ranks(1 + at % 8)?;
        Job::new(&world, suite::Case::new(300, 256, 64), DEADLINE * 10)?.call().map(drop)
    })
}

fn no_allocation(gpu: &Gpu) -> TestResult {
    let world = virtual_ranks(4)?;
    for (transport, placement, margin) in suite::WAYS {
        let case = suite::Case::new(1000, 520, 264).over(transport, placement, margin);
        // What the driver makes for a kernel's first launch is not the plan's.
        Job::new(&world, case, Duration::from_secs(5))?.call()?;
        let job = Job::new(&world, case, Duration::from_secs(5))?;
        let before = free(gpu)?;
        for _ in 0..100 {
            job.launch(None).map_err(text)?;
        }
        job.plan.finish().map_err(text)?;
        expect_eq(&format!("{case:?}: free bytes after 100 calls"), free(gpu)?, before)?;
        job.check()?;
    }
    Ok(())
}

fn thousand(_: &Gpu) -> TestResult {
    let world = virtual_ranks(4)?;
    for case in
        [suite::Case::new(300, 264, 64), suite::Case::new(9, 72, 64).over(Transport::Staged, Placement::Epilogue, 1)]
    {
        let mut job = Job::new(&world, case, Duration::from_secs(5))?;
        let right = job.call()?;
        for call in 0..1000 {
            job.launch(None).map_err(text)?;
            // Ranks may run a call ahead of each other between the looks.
            if call % 50 == 49 {
                job.plan.finish().map_err(text)?;
                expect_eq(&format!("{case:?}: bits of call {call}"), job.bits()? == right, true)?;
                job.poison()?;
            }
        }
        job.plan.finish().map_err(text)?;
    }
    Ok(())
}

fn beside(gpu: &Gpu) -> TestResult {
    in_child(TESTS[5].name, gpu, &[QUEUES], |gpu| {
        let world = virtual_ranks(3)?;
        let mut first = Job::new(&world, suite::Case::new(700, 520, 128), DEADLINE)?;
        let other = suite::Case::new(300, 264, 64).over(Transport::Staged, Placement::Partition, 1);
        let mut second = Job::new(&world, other, Duration::from_secs(5))?;
        let (right, also_right) = (first.call()?, second.call()?);
        let gate = Gate::new(&world, gpu, 2)?;
        for turn in 1..=3 {
            gate.close(turn)?;
            first.launch(None).map_err(text)?;
            std::thread::sleep(DEADLINE * 2);
            gate.open(turn);
            world.synchronize().map_err(text)?;
            expect_eq("bits of the other plan before recovery", second.call()? == also_right, true)?;
            second.plan.recover().map_err(text)?;
            fault_of(first.plan.finish())?;
            first.plan.recover().map_err(text)?;
            expect_eq("bits of the other plan", second.call()? == also_right, true)?;
            expect_eq("bits of the plan that recovered", first.call()? == right, true)?;
        }
        // A plan made after the faults, too.
        expect_eq("bits of a new plan", Job::new(&world, other, DEADLINE)?.call()? == also_right, true)
    })
}
