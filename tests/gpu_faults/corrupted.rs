//! Words of the protocol that hold what they must not: every one ends in a fault that names the wait, and is healed.

use std::time::Duration;

use half::bf16;
use tilewire::Error;
use tilewire::driver::{Gpu, raw_memory};
use tilewire::kernels::abi::{Placement, Transport, WaitKind};
use tilewire::kernels::comm::signal::tile_tag;
use tilewire::kernels::shape::{GlobalAddr, Rank, Role};
use tilewire::ops::GemmReduceScatter;

use crate::common::{Case, TestResult, expect_eq, expect_text, in_child, text};
use crate::gpu_support::{Gate, Job, read_word, stream_of, virtual_ranks, write_word};
use crate::{DEADLINE, QUEUES, Waited, fault_of};

pub const TESTS: &[Case] = &[
    Case::one("a_signal_that_never_comes_is_named", no_signal),
    Case::one("an_epoch_that_runs_ahead_is_named", ahead),
    Case::one("a_credit_that_never_comes_is_named", no_credit),
    Case::one("words_are_at_rest_between_calls_and_after_recovery", at_rest),
    Case::one("slots_full_of_poison_change_nothing", poisoned_slots),
    Case::one("an_abort_word_without_a_record_is_a_fault_too", raised),
];

const CALLS: u32 = 3;

/// Two tiles, one a rank, of one panel for each consumer: nobody waits for room in a ring, only for the other rank.
const M: usize = 256;
const N: usize = 64;

/// What is written where before the spoiled call.
struct Word {
    rank: usize,
    addr: GlobalAddr,
    value: u32,
}

/// Three good calls, one with a spoiled word, recovery, three more; what the spoiled call waited for.
fn spoiled(
    gpu: &Gpu,
    placement: Placement,
    delayed: Option<usize>,
    spoil: impl Fn(&GemmReduceScatter, u32) -> Word,
) -> Result<(Waited, u32, String), String> {
    let world = virtual_ranks(2)?;
    let case =
        suite::Case::new(M, N, 64).over(Transport::Push, placement, u32::from(placement == Placement::Partition));
    let mut job = Job::new(&world, case, DEADLINE)?;
    let right = job.call()?;
    for _ in 1..CALLS {
        expect_eq("bits before", job.call()? == right, true)?;
    }
    let epoch = case.first_epoch.wrapping_add(CALLS);
    let word = spoil(&job.plan, epoch);
    write_word(&world, gpu, word.rank, word.addr, word.value)?;
    let gate = delayed.map(|rank| Gate::new(&world, gpu, rank)).transpose()?;
    if let Some(gate) = &gate {
        gate.close(1)?;
    }
    job.launch(None).map_err(text)?;
    if let Some(gate) = &gate {
        std::thread::sleep(DEADLINE / 3);
        gate.open(1);
    }
    let (record, shown) = fault_of(job.plan.finish())?;
    expect_text(&job.launch(None).err().map(text).unwrap_or_default(), &["recover()"])?;
    job.plan.recover().map_err(text)?;
    for call in 0..CALLS {
        expect_eq(&format!("bits of call {call} after recovery"), job.call()? == right, true)?;
    }
    job.check()?;
    Ok((Waited::of(&record), epoch, shown))
}

/// Either consumer may be the first whose deadline passes.
fn expect_waited(found: Waited, roles: &[Role], expected: Waited, shown: &str) -> TestResult {
    let role = found.role.filter(|role| roles.contains(role));
    expect_eq(shown, found, Waited { role, ..expected })?;
    if role.is_some() { Ok(()) } else { Err(format!("the role is none of {roles:?}: {shown}")) }
}

/// Rank 1 believes that it is one call behind: it signals the call before, and rank 0 waits.
fn no_signal(gpu: &Gpu) -> TestResult {
    in_child(TESTS[0].name, gpu, &[QUEUES], |gpu| {
        let (found, epoch, shown) = spoiled(gpu, Placement::Partition, None, |plan, epoch| Word {
            rank: 1,
            addr: plan.workspace(1).epoch(),
            value: epoch.wrapping_sub(1),
        })?;
        let (index, kind) = (tile_tag(1, 0), Some(WaitKind::Signal));
        let expected = Waited { rank: 0, role: None, kind, index, awaited: epoch, seen: epoch.wrapping_sub(1) };
        expect_waited(found, &[Role::Consumer(0), Role::Consumer(1)], expected, &shown)?;
        expect_text(&shown, &["rank 0", "rank 1's partial of tile 0", &format!("epoch {epoch}, seen {}", epoch - 1)])
    })
}

/// Rank 1 believes that it is one call ahead: it waits for signals that rank 0 will send in the next call.
fn ahead(gpu: &Gpu) -> TestResult {
    in_child(TESTS[1].name, gpu, &[QUEUES], |gpu| {
        let (found, epoch, shown) = spoiled(gpu, Placement::Partition, None, |plan, epoch| Word {
            rank: 1,
            addr: plan.workspace(1).epoch(),
            value: epoch.wrapping_add(1),
        })?;
        let (index, kind) = (tile_tag(0, 0), Some(WaitKind::Signal));
        let expected = Waited { rank: 1, role: None, kind, index, awaited: epoch.wrapping_add(1), seen: epoch };
        expect_waited(found, &[Role::Consumer(0), Role::Consumer(1)], expected, &shown)
    })
}

/// Rank 0 has no credit for rank 1's slots, and rank 1 cannot give it before rank 0 sends. Rank 1 starts later, so that
/// it is rank 0 whose deadline passes.
fn no_credit(gpu: &Gpu) -> TestResult {
    in_child(TESTS[2].name, gpu, &[QUEUES], |gpu| {
        let (found, epoch, shown) = spoiled(gpu, Placement::Epilogue, Some(1), |plan, epoch| Word {
            rank: 0,
            addr: plan.workspace(0).credit(Rank(1)),
            value: epoch.wrapping_sub(3),
        })?;
        let (kind, awaited) = (Some(WaitKind::Credit), epoch.wrapping_sub(2));
        let expected = Waited { rank: 0, role: None, kind, index: 1, awaited, seen: epoch.wrapping_sub(3) };
        expect_waited(found, &[Role::Storer], expected, &shown)?;
        expect_text(&shown, &["rank 0", "storer", "rank 1's credit", &format!("epoch {awaited}, seen {}", epoch - 3)])
    })
}

/// The table of values at rest in the workspace's own documentation.
fn at_rest(gpu: &Gpu) -> TestResult {
    let world = virtual_ranks(4)?;
    for first_epoch in [1, 0xFFFF_FFFE] {
        let case = suite::Case { first_epoch, ..suite::Case::new(600, 520, 64) };
        let mut job = Job::new(&world, case, Duration::from_secs(5))?;
        let look = |job: &Job, calls: u32| -> TestResult {
            let epoch = first_epoch.wrapping_add(calls);
            for rank in 0..world.size() {
                let ws = job.plan.workspace(rank);
                let word = |what: &str, addr, expected: u32| {
                    let found = read_word(&world, gpu, rank, addr)?;
                    expect_eq(&format!("{what} of rank {rank} after {calls} calls"), found, expected)
                };
                word("epoch", ws.epoch(), epoch)?;
                word("exit count", ws.exit_count(), 0)?;
                word("abort", ws.abort(), 0)?;
                word("claim", ws.claim(), 0)?;
                for owner in (0..world.size()).filter(|owner| *owner != rank) {
                    word("credit", ws.credit(Rank(owner as u32)), epoch.wrapping_sub(1))?;
                }
            }
            Ok(())
        };
        look(&job, 0)?;
        for calls in 1..=4 {
            job.call()?;
            look(&job, calls)?;
        }
        job.plan.recover().map_err(text)?;
        look(&job, 0)?;
    }
    Ok(())
}

fn poisoned_slots(gpu: &Gpu) -> TestResult {
    let world = virtual_ranks(4)?;
    for (transport, placement, margin) in suite::WAYS {
        let case = suite::Case::new(700, 520, 72).over(transport, placement, margin);
        let right = Job::new(&world, case, Duration::from_secs(5))?.call()?;
        let mut job = Job::new(&world, case, Duration::from_secs(5))?;
        for rank in 0..world.size() {
            let ws = job.plan.workspace(rank);
            let first = ws.slot(0, Rank(0), 0);
            let poison = vec![bf16::NAN; (ws.bytes(transport) - (first.0 - ws.base.0)) as usize / 2];
            let stream = stream_of(&world, gpu, rank)?;
            // SAFETY: from the first slot to the end of the workspace.
            unsafe { raw_memory::write(&stream, first, bytemuck::cast_slice(&poison)) }.map_err(text)?;
        }
        for _ in 0..2 {
            expect_eq(&format!("{case:?}: bits from poisoned slots"), job.call()? == right, true)?;
        }
    }
    Ok(())
}

/// An abort word that nobody accounts for, in every way that tiles take: the call must not end as if all were well, and
/// the plan is usable after recovery.
fn raised(gpu: &Gpu) -> TestResult {
    in_child(TESTS[5].name, gpu, &[QUEUES], |gpu| {
        let world = virtual_ranks(3)?;
        for (transport, placement, margin) in suite::WAYS {
            let case = suite::Case::new(700, 520, 128).over(transport, placement, margin);
            let mut job = Job::new(&world, case, Duration::from_secs(5))?;
            let right = job.call()?;
            for rank in 0..world.size() {
                write_word(&world, gpu, rank, job.plan.workspace(rank).abort(), 1u32)?;
            }
            job.launch(None).map_err(text)?;
            let fault = match job.plan.finish() {
                Err(Error::Fault(fault)) => fault,
                other => return Err(format!("{case:?}: {other:?}, with every abort word raised")),
            };
            expect_eq("record", &fault.record, &None)?;
            expect_text(&fault.to_string(), &["gemm_reduce_scatter", "left no record"])?;
            expect_text(&job.launch(None).err().map(text).unwrap_or_default(), &["recover()"])?;
            job.plan.recover().map_err(text)?;
            expect_eq(&format!("{case:?}: bits after recovery"), job.call()? == right, true)?;
        }
        Ok(())
    })
}
