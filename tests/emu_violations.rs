//! Each rule of the machine, broken on purpose: the emulator names it under every schedule, and says who and where.

mod emu_support;

use emu_support::{PANEL, STAGES, Small, alloc, broken, emulation, launch, says, store_panel, wait};
use tilewire::emulator::{Agent, EmulatedMap, Emulation, KernelLaunch, Violation};
use tilewire::kernels::abi::Operand;
use tilewire::kernels::config::{E4m3, F32, Nt, PANEL_BUFS, Tile, TileConfig};
use tilewire::kernels::machine::{BulkCopy, Mbarriers, Signals, WarpgroupMma};
use tilewire::kernels::shape::{GlobalAddr, Mbarrier, Parity, Rank, Role, SmemAddr};

const FULL: Mbarrier = Small::SMEM.full();
const EMPTY: Mbarrier = Small::SMEM.empty();
const STAGE: SmemAddr = Small::SMEM.stage(0);

fn mma(m: &Agent) {
    let mut acc = WarpgroupMma::<Small>::zero_acc(m);
    WarpgroupMma::<Small>::issue_mma(m, &mut acc, STAGE, STAGE.plus(Small::A_BOX.bytes()), false);
    WarpgroupMma::<Small>::wait_mma::<0>(m, &mut acc);
}

fn fill_stage(m: &Agent, src: GlobalAddr, expected: u32) {
    m.arrive_expect_tx(FULL, expected);
    m.load_bytes(STAGE, src, Small::STAGE_BYTES, FULL);
}

#[test]
fn a_copy_that_overruns_its_allocation_is_out_of_bounds() {
    let error = broken(Violation::OutOfBounds, Some(Role::Producer), |emu| {
        let src = alloc(emu, 0, 1024);
        launch(emu, 0, &[Role::Producer], move |m, _| {
            m.arrive_expect_tx(FULL, 1024);
            m.load_bytes(STAGE, src.plus(32), 1024, FULL);
        });
    });
    says(&error, &["rank 0 launch 0 CTA 0 producer", "data of rank 0, 1024 bytes", "offset 32"]);
    broken(Violation::OutOfBounds, Some(Role::Producer), |emu| {
        let src = alloc(emu, 0, 1024);
        let past = SmemAddr(Small::SMEM.total_bytes.next_multiple_of(16));
        launch(emu, 0, &[Role::Producer], move |m, _| m.load_bytes(past, src, 1024, FULL));
    });
}

#[test]
fn addresses_and_sizes_of_bulk_copies_are_multiples_of_sixteen_and_boxes_of_1024() {
    for (off, bytes, dst) in [(8, 16, 0), (0, 24, 0), (0, 16, 8), (0, 0, 0)] {
        broken(Violation::Misaligned, Some(Role::Producer), move |emu| {
            let src = alloc(emu, 0, 1024);
            launch(emu, 0, &[Role::Producer], move |m, _| m.load_bytes(SmemAddr(dst), src.plus(off), bytes, FULL));
        });
    }
    broken(Violation::Misaligned, Some(Role::Consumer(0)), |emu| {
        launch(emu, 0, &[Role::Consumer(0)], |m, _| store_panel(m, SmemAddr(512)));
    });
}

#[test]
fn global_memory_that_nobody_wrote_must_not_be_read() {
    let error = broken(Violation::ReadOfUnwrittenGlobal, Some(Role::Producer), |emu| {
        let src = emu.alloc(Rank(0), 1024, "slot");
        emu.fill(src, 512, 0).unwrap();
        launch(emu, 0, &[Role::Producer], move |m, _| m.load_bytes(STAGE, src, 1024, FULL));
    });
    says(&error, &["slot", "byte 512"]);
    broken(Violation::ReadOfUnwrittenGlobal, Some(Role::Producer), |emu| {
        let word = emu.alloc(Rank(0), 4, "word");
        launch(emu, 0, &[Role::Producer], move |m, _| {
            m.load_acquire_sys(word);
        });
    });
}

#[test]
fn a_stage_must_not_be_read_before_its_barrier() {
    let error = broken(Violation::ReadOfUnfilledShared, Some(Role::Consumer(0)), |emu| {
        let src = alloc(emu, 0, 32 << 10);
        launch(emu, 0, &[Role::Producer, Role::Consumer(0)], move |m, role| match role {
            Role::Producer => {
                fill_stage(m, src, Small::STAGE_BYTES);
                wait(m, role, FULL, 0);
            }
            _ => mma(m),
        });
    });
    says(&error, &["CTA 0 consumer 0", "shared bytes 0..8192"]);
}

#[test]
fn a_stage_must_not_be_filled_again_before_its_release() {
    // The consumer releases the stage although its wgmma group is still running.
    let error = broken(Violation::WriteIntoStageInUse, Some(Role::Producer), |emu| {
        let src = alloc(emu, 0, 32 << 10);
        launch(emu, 0, &[Role::Producer, Role::Consumer(0)], move |m, role| match role {
            Role::Producer => {
                fill_stage(m, src, Small::STAGE_BYTES);
                wait(m, role, EMPTY, 0);
                fill_stage(m, src, Small::STAGE_BYTES);
                wait(m, role, FULL, 1);
            }
            _ => {
                wait(m, role, FULL, 0);
                let mut acc = WarpgroupMma::<Small>::zero_acc(m);
                WarpgroupMma::<Small>::issue_mma(m, &mut acc, STAGE, STAGE.plus(Small::A_BOX.bytes()), false);
                m.arrive(EMPTY);
                WarpgroupMma::<Small>::wait_mma::<0>(m, &mut acc);
            }
        });
    });
    says(&error, &["wgmma group 1 of rank 0 launch 0 CTA 0 consumer 0", "barrier full[0], phase 1"]);
}

#[test]
fn a_panel_must_not_be_written_while_a_store_reads_it() {
    let error = broken(Violation::WriteIntoStageInUse, Some(Role::Consumer(0)), |emu| {
        let dst = alloc(emu, 0, PANEL as usize);
        launch(emu, 0, &[Role::Storer, Role::Consumer(0)], move |m, role| match role {
            Role::Storer => {
                wait(m, role, Small::SMEM.panel_full(0), 0);
                m.store_bytes(dst, STAGE, PANEL);
                m.commit_group();
                m.arrive(Small::SMEM.panel_empty(0));
                m.wait_group_read::<0>();
            }
            _ => {
                store_panel(m, STAGE);
                m.arrive(Small::SMEM.panel_full(0));
                wait(m, role, Small::SMEM.panel_empty(0), 0);
                store_panel(m, STAGE);
            }
        });
    });
    says(&error, &["the read of bulk store 1", "storer"]);
}

#[test]
fn a_barrier_must_not_be_overwritten() {
    let error = broken(Violation::BarrierOverwritten, Some(Role::Producer), |emu| {
        let src = alloc(emu, 0, 1024);
        launch(emu, 0, &[Role::Producer], move |m, _| {
            let last_panel = Small::SMEM.panel(0, PANEL_BUFS - 1);
            m.load_bytes(last_panel.plus(PANEL - 16), src, 48, FULL);
        });
    });
    says(&error, &["full[0]"]);
}

#[test]
fn arrivals_are_counted() {
    let error = broken(Violation::ArrivalOverflow, Some(Role::Producer), |emu| {
        launch(emu, 0, &[Role::Producer], |m, _| m.arrive_many(EMPTY, 5));
    });
    says(&error, &["arrives 5 times", "barrier empty[0], phase 0: 4 of 4 arrivals pending"]);
    let error = broken(Violation::ArrivalOverflow, Some(Role::Producer), |emu| {
        launch(emu, 0, &[Role::Producer], |m, _| {
            m.arrive_expect_tx(FULL.at(1), 64);
            m.arrive(FULL.at(1));
        });
    });
    says(&error, &["barrier full[1], phase 0: 0 of 1 arrivals pending, 64 bytes still expected, no copy in flight"]);
}

#[test]
fn bytes_are_counted() {
    let error = broken(Violation::ExpectTxTooSmall, Some(Role::Producer), |emu| {
        let src = alloc(emu, 0, 32 << 10);
        launch(emu, 0, &[Role::Producer], move |m, role| {
            fill_stage(m, src, Small::STAGE_BYTES - 16);
            wait(m, role, FULL, 0);
        });
    });
    says(&error, &["full[0]", "phase 0", "24560 bytes still expected"]);
    broken(Violation::TxCountOverflow, Some(Role::Producer), |emu| {
        launch(emu, 0, &[Role::Producer], |m, _| m.arrive_expect_tx(FULL, 1 << 20));
    });
}

#[test]
fn bytes_that_never_come_are_in_the_deadlock_report() {
    let error = broken(Violation::Deadlock, None, |emu| {
        let src = alloc(emu, 0, 32 << 10);
        launch(emu, 0, &[Role::Producer, Role::Consumer(0)], move |m, role| match role {
            Role::Producer => {
                fill_stage(m, src, Small::STAGE_BYTES + 128);
                wait(m, role, EMPTY, 0);
            }
            _ => {
                wait(m, role, FULL, 0);
                mma(m);
                m.arrive(EMPTY);
            }
        });
    });
    says(
        &error,
        &[
            "all 2 agents wait and no copy is in flight",
            "rank 0 launch 0 CTA 0 consumer 0: waits for StageFull 0, parity 0, seen 1",
            "barrier full[0], phase 0: 0 of 1 arrivals pending, 128 bytes still expected, no copy in flight",
            "barrier empty[0], phase 0: 4 of 4 arrivals pending",
        ],
    );
    assert_eq!((error.agents.len(), error.barriers.len()), (2, 1));
}

#[test]
fn a_wait_two_phases_behind_is_named() {
    let error = broken(Violation::ParityTwoPhasesBehind, Some(Role::Loader), |emu| {
        launch(emu, 0, &[Role::Producer, Role::Loader], |m, role| match role {
            Role::Producer => m.arrive_many(EMPTY, 4),
            // Waits for the phase before the first, whatever happens to the barrier meanwhile.
            _ => while m.try_wait_parity(EMPTY, Parity(1)) {},
        });
    });
    says(&error, &["parity 1 for phase -1", "barrier empty[0], phase 1"]);
}

#[test]
fn barriers_are_initialised_once_and_before_use() {
    let error = broken(Violation::UninitialisedBarrier, Some(Role::Producer), |emu| {
        launch(emu, 0, &[Role::Producer], |m, _| m.arrive(Small::SMEM.handover(0)));
    });
    says(&error, &["barrier handover[0], not initialised"]);
    let error = broken(Violation::DoubleInit, Some(Role::Producer), |emu| {
        launch(emu, 0, &[Role::Producer], |m, _| m.mbarrier_init(FULL.at(STAGES - 1), 1));
    });
    says(&error, &["barrier full[2]"]);
    broken(Violation::InvalidArrivalCount, Some(Role::Producer), |emu| {
        launch(emu, 0, &[Role::Producer], |m, _| m.mbarrier_init(Small::SMEM.handover(0), 0));
    });
}

#[test]
fn an_accumulator_is_read_only_when_its_groups_are_done() {
    type Read = fn(&Agent, &<Agent<'_> as WarpgroupMma<Small>>::Acc);
    let prepare = |read: Read| {
        move |emu: &mut Emulation| {
            let src = alloc(emu, 0, 32 << 10);
            launch(emu, 0, &[Role::Producer, Role::Consumer(0)], move |m, role| match role {
                Role::Producer => {
                    fill_stage(m, src, Small::STAGE_BYTES);
                    wait(m, role, FULL, 0);
                }
                _ => {
                    wait(m, role, FULL, 0);
                    let mut acc = WarpgroupMma::<Small>::zero_acc(m);
                    WarpgroupMma::<Small>::issue_mma(m, &mut acc, STAGE, STAGE.plus(Small::A_BOX.bytes()), false);
                    WarpgroupMma::<Small>::wait_mma::<1>(m, &mut acc);
                    read(m, &acc);
                }
            });
        }
    };
    let panel: Read = |m, acc| drop(WarpgroupMma::<Small>::panel::<0>(m, acc));
    let rounded: Read = |m, acc| drop(WarpgroupMma::<Small>::round_acc(m, acc));
    for (read, words) in [(panel, "panel 0"), (rounded, "rounds an accumulator")] {
        let error = broken(Violation::AccumulatorInFlight, Some(Role::Consumer(0)), prepare(read));
        says(&error, &[words, "1 wgmma groups running"]);
    }
    broken(Violation::AccumulatorInFlight, Some(Role::Consumer(0)), prepare(|_, _| ()));
}

/// A configuration whose products are promoted; its stages are no larger than those of [`Small`].
type Promoting = Tile<64, 128, 2, Nt, E4m3, F32>;

#[test]
fn a_product_is_promoted_once_when_it_is_there() {
    fn issue(m: &Agent, acc: &mut <Agent<'_> as WarpgroupMma<Promoting>>::Acc) {
        WarpgroupMma::<Promoting>::issue_mma(m, acc, STAGE, STAGE.plus(Promoting::A_BOX.bytes()), false);
    }
    /// What the consumer does wrong, and words of the report.
    type Step = (fn(&Agent), &'static str);
    let steps: [Step; 4] = [
        (
            |m| {
                let mut acc = WarpgroupMma::<Promoting>::zero_acc(m);
                issue(m, &mut acc);
                WarpgroupMma::<Promoting>::promote(m, &mut acc, false);
            },
            "1 wgmma groups running",
        ),
        (
            |m| {
                let mut acc = WarpgroupMma::<Promoting>::zero_acc(m);
                issue(m, &mut acc);
                WarpgroupMma::<Promoting>::wait_mma::<0>(m, &mut acc);
                WarpgroupMma::<Promoting>::promote(m, &mut acc, false);
                WarpgroupMma::<Promoting>::promote(m, &mut acc, false);
            },
            "promotes",
        ),
        (
            |m| {
                let mut acc = WarpgroupMma::<Promoting>::zero_acc(m);
                issue(m, &mut acc);
                WarpgroupMma::<Promoting>::wait_mma::<0>(m, &mut acc);
                issue(m, &mut acc);
            },
            "not yet promoted",
        ),
        (
            |m| {
                let mut acc = WarpgroupMma::<Promoting>::zero_acc(m);
                issue(m, &mut acc);
                WarpgroupMma::<Promoting>::scale(m, &mut acc, 2.0);
            },
            "scales an accumulator with 1",
        ),
    ];
    for (step, words) in steps {
        let error = broken(Violation::AccumulatorInFlight, Some(Role::Consumer(0)), move |emu| {
            let src = alloc(emu, 0, 32 << 10);
            launch(emu, 0, &[Role::Producer, Role::Consumer(0)], move |m, role| match role {
                Role::Producer => {
                    fill_stage(m, src, Small::STAGE_BYTES);
                    wait(m, role, FULL, 0);
                }
                _ => {
                    wait(m, role, FULL, 0);
                    step(m);
                }
            });
        });
        says(&error, &[words]);
    }
}

#[test]
fn a_role_must_not_end_while_copies_use_its_shared_memory() {
    let error = broken(Violation::ExitWithCopyInFlight, Some(Role::Storer), |emu| {
        let dst = alloc(emu, 1, PANEL as usize);
        launch(emu, 0, &[Role::Storer, Role::Consumer(0)], move |m, role| match role {
            Role::Storer => {
                wait(m, role, Small::SMEM.panel_full(0), 0);
                m.store_bytes(dst, STAGE, PANEL);
                m.commit_group();
            }
            _ => {
                store_panel(m, STAGE);
                m.arrive(Small::SMEM.panel_full(0));
            }
        });
    });
    says(&error, &["1 of its bulk stores"]);
}

#[test]
fn threads_and_warpgroups_keep_to_their_operations() {
    broken(Violation::WrongRole, Some(Role::Consumer(0)), |emu| {
        launch(emu, 0, &[Role::Consumer(0)], |m, _| m.arrive_expect_tx(FULL, 16));
    });
    broken(Violation::WrongRole, Some(Role::Producer), |emu| {
        launch(emu, 0, &[Role::Producer], |m, _| mma(m));
    });
    broken(Violation::WrongRole, Some(Role::Consumer(0)), |emu| {
        let src = alloc(emu, 0, 64);
        launch(emu, 0, &[Role::Consumer(0)], move |m, _| m.load_bytes(STAGE, src, 64, FULL));
    });
}

#[test]
fn tensor_maps_are_given_and_obey_their_rules() {
    let error = broken(Violation::InvalidTensorMap, Some(Role::Producer), |emu| {
        launch(emu, 0, &[Role::Producer], |m, _| m.load_box(STAGE, Operand::B, 0, 0, FULL));
    });
    says(&error, &["box of B"]);
    let mut emu = emulation(0);
    let base = alloc(&mut emu, 0, 4096);
    let map = EmulatedMap {
        base,
        rows: 16,
        cols: 128,
        row_stride_bytes: 256,
        element_bytes: 2,
        box_rows: 64,
        box_row_bytes: 128,
    };
    let with = |map| {
        KernelLaunch::new(Rank(0), 1, Small::SMEM, &[Role::Producer], |_, _, _| Ok(())).with_maps([
            Some(map),
            None,
            None,
            None,
        ])
    };
    emu.launch(with(map)).unwrap();
    let refused = |emu: &mut Emulation, map| emu.launch(with(map)).unwrap_err().violation;
    assert_eq!(refused(&mut emu, EmulatedMap { row_stride_bytes: 264, ..map }), Violation::InvalidTensorMap);
    assert_eq!(refused(&mut emu, EmulatedMap { rows: 17, ..map }), Violation::OutOfBounds);
}

#[test]
fn launches_that_cannot_work_are_refused() {
    let mut emu = emulation(0);
    let good = KernelLaunch::new(Rank(0), 1, Small::SMEM, &[Role::Producer], |_, _, _| Ok(()));
    for bad in [
        KernelLaunch { num_ctas: 0, ..good.clone() },
        KernelLaunch { roles: Vec::new(), ..good.clone() },
        KernelLaunch { smem_bytes: 240_000, ..good.clone() },
    ] {
        assert_eq!(emu.launch(bad).unwrap_err().violation, Violation::InvalidLaunch);
    }
    assert_eq!(emu.launch(good).unwrap(), 0);
}

#[test]
fn a_loop_without_end_meets_the_step_limit() {
    let mut options = tilewire::emulator::EmulatorOptions::with_seed(0);
    options.max_steps = 1000;
    let mut emu = Emulation::new(options);
    launch(&mut emu, 0, &[Role::Producer], |m, _| while !m.try_wait_parity(FULL, Parity(0)) {});
    assert_eq!(emu.run().unwrap_err().violation, Violation::StepLimit);
}

#[test]
fn a_panic_in_a_kernel_is_an_error_value() {
    let error = broken(Violation::KernelPanicked, Some(Role::Producer), |emu| {
        launch(emu, 0, &[Role::Producer], |_, _| std::panic::panic_any("index out of bounds, for example"));
    });
    says(&error, &["index out of bounds, for example", "rank 0 launch 0 CTA 0 producer"]);
}
