//! Each rule of the machine, broken on purpose: the emulator names it under every schedule, and says who and where.

mod emu_support;

use emu_support::{PANEL, STAGES, Small, alloc, broken, emulation, init_barriers, launch, says, wait};
use tilewire::emulator::{Agent, EmulatedMap, Emulation, KernelLaunch, Violation};
use tilewire::kernels::abi::Operand;
use tilewire::kernels::config::{E4m3, F32, Nt, PANEL_BUFS, Tile, TileConfig};
use tilewire::kernels::machine::{BulkCopy, Mbarriers, RowEnds, Signals, WarpgroupMma};
use tilewire::kernels::shape::{CtaPosition, GlobalAddr, Mbarrier, Parity, Rank, Role, SmemAddr};

const FULL: Mbarrier = Small::SMEM.full();
const EMPTY: Mbarrier = Small::SMEM.empty();
const STAGE: SmemAddr = Small::SMEM.stage(0);

fn mma(m: &Agent) {
    let mut acc = WarpgroupMma::<Small>::zero_acc(m);
    WarpgroupMma::<Small>::issue_mma(m, &mut acc, STAGE, STAGE.plus(Small::A_BOX.bytes()), false);
    WarpgroupMma::<Small>::wait_mma::<0>(m, &mut acc);
}

fn store_panel(m: &Agent, dst: SmemAddr) {
    let panel = tilewire::emulator::Panel(vec![1.0; 64 * 64]);
    WarpgroupMma::<Small>::store_panel(m, dst, &panel);
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

/// Two bulk stores of one storer to the same place, which nothing orders: what the second takes begins `apart` bytes behind what
/// the first does.
fn stored_twice(emu: &mut Emulation, apart: u32) {
    let (src, dst) = (alloc(emu, 0, 2048), alloc(emu, 0, 512));
    emu.fill(src.plus(512), 256, 7).unwrap();
    launch(emu, 0, &[Role::Producer], move |m, role| {
        m.arrive_expect_tx(FULL, 2048);
        m.load_bytes(STAGE, src, 2048, FULL);
        wait(m, role, FULL, 0);
        m.store_bytes(dst, STAGE, 512);
        m.commit_group();
        m.store_bytes(dst.plus(256), STAGE.plus(256 + apart), 256);
        m.commit_group();
        m.wait_group_complete::<0>();
    });
}

#[test]
fn a_store_over_ones_own_is_a_race_unless_it_repeats_it() {
    for seed in 0..16 {
        let mut emu = emulation(seed);
        stored_twice(&mut emu, 0);
        emu.run().unwrap();
    }
    let error = broken(Violation::Race, Some(Role::Producer), |emu| stored_twice(emu, 256));
    says(&error, &["stores 256 bytes at", "over others that it stored there, and nothing orders the two"]);
}

#[test]
fn a_box_is_stored_in_steps_of_sixteen_bytes_even_past_the_end_of_its_tensor() {
    const COLS: u32 = 5;
    let map =
        |base| Some(EmulatedMap { base, rows: 2, cols: COLS, row_stride_bytes: 16, element_bytes: 2, box_rows: 64 });
    let store = |emu: &mut Emulation, bytes: usize| {
        let d = alloc(emu, 0, bytes);
        let body = |m: &Agent, _: CtaPosition, role: Role| {
            if role == Role::Storer {
                wait(m, role, Small::SMEM.panel_full(0), 0);
                m.store_box(Operand::D, 0, 0, Small::SMEM.panel(0, 0));
                m.commit_group();
                m.wait_group_complete::<0>();
            } else {
                store_panel(m, Small::SMEM.panel(0, 0));
                m.arrive(Small::SMEM.panel_full(0));
            }
            Ok(())
        };
        let launch = KernelLaunch::new(Rank(0), 1, Small::SMEM, &[Role::Storer, Role::Consumer(0)], body);
        emu.launch(launch.with_setup(init_barriers).with_maps([None, None, map(d), None])).unwrap();
        d
    };
    let one = half::bf16::ONE.to_le_bytes();
    for seed in 0..4 {
        let mut emu = emulation(seed);
        let d = store(&mut emu, 48);
        emu.run().unwrap();
        // Two rows with their padding are written, and nothing behind them.
        assert_eq!(emu.read(d, 48).unwrap(), [one.repeat(16), vec![0; 16]].concat());
    }
    // The last row's padding is not part of the buffer.
    let error = broken(Violation::OutOfBounds, Some(Role::Storer), |emu| {
        store(emu, 26);
    });
    says(&error, &["16 bytes", "data of rank 0, 26 bytes", "offset 16"]);
}

#[test]
fn ends_of_rows_are_stored_alone_after_the_panel_was_written_and_are_less_than_a_step() {
    let panel = Small::SMEM.panel(0, 0);
    let store = |emu: &mut Emulation, ends: RowEnds, waits: bool| {
        let d = alloc(emu, 0, 64);
        let body = move |m: &Agent, _: CtaPosition, role: Role| {
            if role == Role::Storer {
                if waits {
                    wait(m, role, Small::SMEM.panel_full(0), 0);
                }
                m.store_row_ends(&RowEnds { dst: d.plus(ends.dst.0), ..ends });
            } else {
                store_panel(m, panel);
                m.arrive(Small::SMEM.panel_full(0));
            }
            Ok(())
        };
        let launch = KernelLaunch::new(Rank(0), 1, Small::SMEM, &[Role::Storer, Role::Consumer(0)], body);
        emu.launch(launch.with_setup(init_barriers)).unwrap();
        d
    };
    let ends = RowEnds { src: panel, off: 16, bytes: 6, rows: 2, dst: GlobalAddr(16), stride: 32 };
    let mut emu = emulation(1);
    let d = store(&mut emu, ends, true);
    emu.run().unwrap();
    let end = [half::bf16::ONE.to_le_bytes().repeat(3), vec![0; 10]].concat();
    assert_eq!(emu.read(d, 64).unwrap(), [vec![0; 16], end.clone(), vec![0; 16], end].concat());
    let error = broken(Violation::ReadOfUnfilledShared, Some(Role::Storer), |emu| {
        store(emu, ends, false);
    });
    says(&error, &["storer"]);
    for wrong in [
        RowEnds { off: 8, ..ends },
        RowEnds { bytes: 16, ..ends },
        RowEnds { bytes: 3, ..ends },
        RowEnds { rows: 65, ..ends },
        RowEnds { dst: GlobalAddr(8), ..ends },
    ] {
        let error = broken(Violation::Misaligned, Some(Role::Storer), |emu| {
            store(emu, wrong, true);
        });
        says(&error, &["ends of rows"]);
    }
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
                WarpgroupMma::<Promoting>::promote(m, &mut acc);
            },
            "1 wgmma groups running",
        ),
        (
            |m| {
                let mut acc = WarpgroupMma::<Promoting>::zero_acc(m);
                issue(m, &mut acc);
                WarpgroupMma::<Promoting>::wait_mma::<0>(m, &mut acc);
                WarpgroupMma::<Promoting>::promote(m, &mut acc);
                WarpgroupMma::<Promoting>::promote(m, &mut acc);
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
    let map = EmulatedMap { base, rows: 16, cols: 128, row_stride_bytes: 256, element_bytes: 2, box_rows: 64 };
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
