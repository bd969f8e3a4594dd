//! Waits that pass their deadline: the call ends in a fault that says who waited for what, every rank leaves, and after
//! recovery the next call gives the same bits.
//!
//! What is lost is lost in the machine that the kernels run on, in the first call only: a plant in the world's options.
//! The plan knows nothing of it, so recovery is tested as a user does it.

use std::time::Duration;

use half::bf16;
use suite::{Case, Operands, WAYS};
use tilewire::emulator::{Delay, EmulatorOptions, Fault, Plant};
use tilewire::kernels::abi::{Placement, Transport};
use tilewire::kernels::shape::Rank;
use tilewire::ops::GemmReduceScatter;
use tilewire::world::EmulatedOptions;
use tilewire::{Error, World};

fn world(ranks: usize, seed: u64, plant: Option<Plant>) -> World {
    let emulator = EmulatorOptions { deadlock_is_fault: true, ..EmulatorOptions::with_seed(seed) };
    World::emulated_with(ranks, EmulatedOptions { ctas_per_rank: 3, emulator, plant }).unwrap()
}

fn plan(world: &World, case: &Case) -> GemmReduceScatter {
    GemmReduceScatter::builder(world)
        .shape(case.m, case.n, case.k)
        .transport(case.transport)
        .placement(case.placement)
        .sm_margin(case.sm_margin)
        .deadline(Duration::from_millis(1))
        .build()
        .unwrap()
}

/// The words of the fault with which the first call ends; the calls after it must give the bits of a world without fault.
fn fault_and_recovery(case: &Case, ranks: usize, seed: u64, plant: Plant) -> String {
    let sound = world(ranks, seed, None);
    let operands = Operands::<bf16>::new(&sound, case, suite::uniform).unwrap();
    let bits = |d: Vec<tilewire::matrix::Matrix<bf16>>| -> Vec<Vec<u16>> {
        d.iter().map(|d| d.data().iter().map(|x| x.to_bits()).collect()).collect()
    };
    let expected = bits(suite::run::<bf16, bf16>(&sound, &plan(&sound, case), case, &operands).unwrap());

    let faulty = world(ranks, seed, Some(plant.in_call(0)));
    let operands = Operands::<bf16>::new(&faulty, case, suite::uniform).unwrap();
    let plan = plan(&faulty, case);
    let fault = match suite::run::<bf16, bf16>(&faulty, &plan, case, &operands) {
        Err(Error::Fault(fault)) => fault.to_string(),
        other => panic!("{plant:?}, seed {seed}: {other:?}"),
    };
    let refused = suite::run::<bf16, bf16>(&faulty, &plan, case, &operands).unwrap_err().to_string();
    assert!(refused.contains("recover()"), "{refused}");
    plan.recover().unwrap();
    for call in 0..4 {
        let d = suite::run::<bf16, bf16>(&faulty, &plan, case, &operands);
        let d = d.unwrap_or_else(|e| panic!("{plant:?}, seed {seed}, call {call} after recovery: {e}"));
        assert_eq!(bits(d), expected, "{plant:?}, seed {seed}, call {call} after recovery");
    }
    fault
}

#[test]
fn a_rank_that_never_comes_ends_in_a_fault_of_those_that_wait_for_it() {
    for ((transport, placement, margin), m) in WAYS.into_iter().flat_map(|way| [(way, 140), (way, 20)]) {
        for seed in 0..4 {
            let case = Case::new(m, 72, 72).over(transport, placement, margin);
            let fault = fault_and_recovery(&case, 2, seed, Plant::new(Fault::AbsentRank).on_rank(1));
            // Others wait behind the one that waits for rank 1, and may have begun before it: they give it time.
            // Of few rows, each tile is waited for by the CTA that computes it.
            let tile = if m > 64 { "tile 0: " } else { "tile " };
            for part in ["rank 0, CTA", &format!("rank 1's partial of {tile}"), "epoch 1, seen 0"] {
                assert!(fault.contains(part), "{case:?}, seed {seed}: {fault}");
            }
        }
    }
}

#[test]
fn a_lost_signal_or_arrival_ends_in_a_fault_that_names_the_wait() {
    let push = Case::new(300, 136, 264);
    let partition = push.over(Transport::Push, Placement::Partition, 1);
    let staged = push.over(Transport::Staged, Placement::Partition, 1);
    let mainloop: &[&str] =
        &["StageFull", "StageEmpty", "PanelFull", "Handover", "PartialFull", "ResultFull", "partial of tile"];
    // Where the loss is within a CTA, roles wait behind each other, and each of them may be the first whose deadline
    // passes; so may a peer, which waits for the CTA's tiles.
    let few = Case::new(20, 72, 72);
    let lost: [(_, _, &[&str]); 10] = [
        (few, Fault::UnsentRows, &["partial of tile"]),
        (few, Fault::MissingRow, &["partial of tile"]),
        (partition, Fault::LostSignal, &["partial of tile"]),
        (push, Fault::LostSignal, &["partial of tile"]),
        (push, Fault::DroppedCopy, mainloop),
        (push, Fault::LostArrive, mainloop),
        (partition, Fault::LostPanelCommit, &["PanelFull", "PanelEmpty", "partial of tile"]),
        // By consumers in turns, which this shape takes.
        (push, Fault::LostBuffer, &["PartialFull", "PartialEmpty", "ResultFull", "partial of tile"]),
        (push, Fault::DroppedPartial, &["PartialFull", "ResultFull", "PartialEmpty"]),
        (staged, Fault::LostStagedSignal, &["to be staged", "StageFull", "partial of tile"]),
    ];
    for (case, fault, chain) in lost {
        for seed in 0..4 {
            let text = fault_and_recovery(&case, 2, seed, Plant::new(fault).on_rank(0));
            let names_the_wait = chain.iter().any(|wait| text.contains(wait));
            assert!(names_the_wait && text.contains(", CTA "), "{fault}, seed {seed}: {text}");
        }
    }
}

/// The deadline of calls to which ranks come late, in virtual nanoseconds: far more than a call takes.
const LONG: u64 = 100_000_000;

/// A world whose ranks come at these times, and its plan for `case`.
fn late_world(case: &Case, seed: u64, comes_at: &[u64], plant: Option<Plant>) -> (World, GemmReduceScatter) {
    let delays = (0..).zip(comes_at).map(|(rank, ns)| (Rank(rank), Delay::From(*ns))).collect();
    let emulator = EmulatorOptions { deadlock_is_fault: true, delays, ..EmulatorOptions::with_seed(seed) };
    let world = World::emulated_with(comes_at.len(), EmulatedOptions { ctas_per_rank: 3, emulator, plant }).unwrap();
    let plan = GemmReduceScatter::builder(&world)
        .shape(case.m, case.n, case.k)
        .transport(case.transport)
        .placement(case.placement)
        .sm_margin(case.sm_margin)
        .deadline(Duration::from_nanos(LONG))
        .build()
        .unwrap();
    (world, plan)
}

/// Peers are waited for in the order of ranks, and none comes later than the deadline allows: roles that stand behind
/// all of these waits must not give up.
#[test]
fn ranks_that_come_late_one_after_the_other_are_waited_for() {
    let late = LONG / 10 * 8;
    for order in [[0, 1, 2, 3], [1, 0, 2, 3]] {
        for (transport, placement, margin) in WAYS {
            for m in [20, 140, 600] {
                let case = Case::new(m, 72, 72).over(transport, placement, margin);
                let (world, plan) = late_world(&case, 1, &order.map(|nth| nth * late), None);
                let operands = Operands::<bf16>::new(&world, &case, suite::uniform).unwrap();
                let d = suite::run::<bf16, bf16>(&world, &plan, &case, &operands);
                let d = d.unwrap_or_else(|e| panic!("{case:?}, ranks in order {order:?}: {e}"));
                suite::check(&case, &operands, &d).unwrap();
            }
        }
    }
}

/// However long roles within a CTA would wait, the wait for the rank that is missing ends the call at its deadline.
#[test]
fn a_rank_that_never_comes_is_noticed_at_the_deadline() {
    for (transport, placement, margin) in WAYS {
        for m in [20, 140, 600] {
            let case = Case::new(m, 72, 72).over(transport, placement, margin);
            let (world, plan) = late_world(&case, 1, &[0; 4], Some(Plant::new(Fault::AbsentRank).on_rank(2)));
            let operands = Operands::<bf16>::new(&world, &case, suite::uniform).unwrap();
            let error = suite::run::<bf16, bf16>(&world, &plan, &case, &operands).unwrap_err();
            let Error::Fault(fault) = error else { panic!("{case:?}: {error}") };
            let record = fault.record.unwrap();
            assert!((LONG..LONG + LONG / 100).contains(&record.elapsed_ns), "{case:?}: {fault}, {record:?}");
            assert!(fault.to_string().contains("rank 2's partial"), "{case:?}: {fault}");
        }
    }
}

/// Words that a call left behind carry the epoch of the next one, which recovery starts anew: they are not taken for its own.
#[test]
fn words_of_a_call_that_failed_are_not_those_of_the_next() {
    for ranks in [2, 3, 8] {
        for seed in 0..8 {
            let case = Case::new(20, 136, 72);
            // The absent rank owns rows, and all others have sent it theirs.
            let plant = Plant::new(Fault::AbsentRank).on_rank(1).in_call(0);
            let world = world(ranks, seed, Some(plant));
            let plan = plan(&world, &case);
            let lost = Operands::<bf16>::new(&world, &case, suite::uniform).unwrap();
            assert!(matches!(suite::run::<bf16, bf16>(&world, &plan, &case, &lost), Err(Error::Fault(_))));
            plan.recover().unwrap();
            let operands =
                Operands::<bf16>::new(&world, &case, |rows, cols, seed| suite::uniform(rows, cols, seed + 77)).unwrap();
            let d = suite::run::<bf16, bf16>(&world, &plan, &case, &operands).unwrap();
            suite::check(&case, &operands, &d).unwrap_or_else(|e| panic!("{ranks} ranks, seed {seed}: {e}"));
        }
    }
}

#[test]
fn many_ranks_recover_together() {
    for ranks in [3, 5, 8] {
        for m in [200, 40] {
            let case = Case::new(m, 72, 40);
            fault_and_recovery(&case, ranks, 1, Plant::new(Fault::AbsentRank).on_rank(2));
        }
    }
}

/// An abort word that nobody accounts for: the call must not end as if all were well.
#[test]
fn an_abort_word_without_a_record_is_a_fault_too() {
    for (transport, placement, margin) in WAYS {
        for seed in 0..4 {
            let case = Case::new(140, 72, 72).over(transport, placement, margin);
            let world = world(2, seed, None);
            let operands = Operands::<bf16>::new(&world, &case, suite::uniform).unwrap();
            let plan = plan(&world, &case);
            let expected = suite::bits(&suite::run::<bf16, bf16>(&world, &plan, &case, &operands).unwrap());
            for rank in 0..2 {
                world.emulated_write(plan.workspace(rank).abort(), &1u32.to_le_bytes()).unwrap();
            }
            match suite::run::<bf16, bf16>(&world, &plan, &case, &operands) {
                Err(Error::Fault(fault)) => {
                    assert_eq!(fault.record, None, "{case:?}, seed {seed}");
                    assert!(fault.to_string().contains("left no record"), "{fault}");
                }
                other => panic!("{case:?}, seed {seed}: {other:?}"),
            }
            let refused = suite::run::<bf16, bf16>(&world, &plan, &case, &operands).unwrap_err().to_string();
            assert!(refused.contains("recover()"), "{refused}");
            plan.recover().unwrap();
            let d = suite::run::<bf16, bf16>(&world, &plan, &case, &operands).unwrap();
            assert_eq!(suite::bits(&d), expected, "{case:?}, seed {seed}");
        }
    }
}
