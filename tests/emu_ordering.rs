//! Accesses to global memory that nothing orders: found under every schedule, and named.

mod emu_support;

use emu_support::{PANEL, SEEDS, Small, alloc, broken, emulation, launch, says, wait, wait_word};
use tilewire::emulator::{Agent, Emulation, KernelLaunch, Violation};
use tilewire::kernels::config::TileConfig;
use tilewire::kernels::machine::{BulkCopy, Mbarriers, PutSignals, Reduce, ReduceJob};
use tilewire::kernels::shape::{CtaPosition, GlobalAddr, Mbarrier, Rank, Role, SmemAddr};

const FULL: Mbarrier = Small::SMEM.full();
const STAGE: SmemAddr = Small::SMEM.stage(0);

#[test]
fn unordered_writes_of_one_place_race() {
    broken(Violation::Race, None, |emu| {
        let dst = alloc(emu, 0, PANEL as usize);
        let body = move |m: &Agent, _: CtaPosition, role: Role| {
            let job = ReduceJob {
                slot: dst,
                slot_stride: 0,
                slots: 0,
                dst,
                skip: 0,
                dst_stride: 128,
                rows: 64,
                cols: 64,
                finish: None,
            };
            assert_eq!(role, Role::Consumer(0));
            Reduce::<Small>::reduce(m, &job);
            Ok(())
        };
        emu.launch(KernelLaunch::new(Rank(0), 2, Small::SMEM, &[Role::Consumer(0)], body)).unwrap();
    });
}

/// Storer: brings a panel from `src` through shared memory to `dst`; the store is issued and committed.
fn carry(m: &Agent, role: Role, src: GlobalAddr, dst: GlobalAddr) {
    m.arrive_expect_tx(FULL, PANEL);
    m.load_bytes(STAGE, src, PANEL, FULL);
    wait(m, role, FULL, 0);
    m.store_bytes(dst, STAGE, PANEL);
    m.commit_group();
}

fn complete(m: &Agent) {
    m.wait_group_complete::<0>();
    m.fence_proxy_async_global();
}

/// Rank 1 waits for the signal and reduces its slot.
fn reader(emu: &mut Emulation, slot: GlobalAddr, signal: GlobalAddr, credit: Option<GlobalAddr>) {
    let d = alloc(emu, 1, PANEL as usize);
    launch(emu, 1, &[Role::Consumer(0)], move |m, role| {
        wait_word(m, role, signal, 1);
        let job = ReduceJob {
            slot,
            slot_stride: 0,
            slots: 1,
            dst: d,
            skip: 0,
            dst_stride: 128,
            rows: 64,
            cols: 64,
            finish: None,
        };
        Reduce::<Small>::reduce(m, &job);
        if let Some(credit) = credit {
            m.store_release_sys(credit, 1);
        }
    });
}

fn exchange(emu: &mut Emulation) -> (GlobalAddr, GlobalAddr, GlobalAddr) {
    (alloc(emu, 0, PANEL as usize), alloc(emu, 1, PANEL as usize), alloc(emu, 1, 4))
}

#[test]
fn a_signal_must_not_overtake_its_data() {
    let error = broken(Violation::SignalBeforeData, Some(Role::Storer), |emu| {
        let (src, slot, signal) = exchange(emu);
        reader(emu, slot, signal, None);
        launch(emu, 0, &[Role::Storer], move |m, role| {
            carry(m, role, src, slot);
            m.wait_group_read::<0>();
            m.fence_proxy_async_global();
            m.store_release_sys(signal, 1);
        });
    });
    says(&error, &["0 of its 1 bulk stores are known complete", "rank 0 launch 1 CTA 0 storer"]);
}

#[test]
fn a_signal_by_another_agent_must_not_overtake_the_data_either() {
    let error = broken(Violation::SignalBeforeData, Some(Role::Consumer(0)), |emu| {
        let (src, slot, signal) = exchange(emu);
        reader(emu, slot, signal, None);
        launch(emu, 0, &[Role::Storer, Role::Loader], move |m, role| match role {
            Role::Storer => {
                carry(m, role, src, slot);
                m.wait_group_read::<0>();
                m.arrive(Small::SMEM.panel_empty(0));
            }
            _ => {
                wait(m, role, Small::SMEM.panel_empty(0), 0);
                m.store_release_sys(signal, 1);
            }
        });
    });
    says(&error, &["signalled before the store was complete", "bulk store 1 of rank 0 launch 1 CTA 0 storer"]);
}

#[test]
fn a_reader_that_takes_no_signal_races() {
    broken(Violation::Race, None, |emu| {
        let (src, slot, signal) = exchange(emu);
        let d = alloc(emu, 0, PANEL as usize);
        launch(emu, 0, &[Role::Storer, Role::Consumer(0)], move |m, role| match role {
            Role::Storer => {
                carry(m, role, src, slot);
                complete(m);
                m.store_release_sys(signal, 1);
            }
            _ => {
                let job = ReduceJob {
                    slot,
                    slot_stride: 0,
                    slots: 1,
                    dst: d,
                    skip: 0,
                    dst_stride: 128,
                    rows: 64,
                    cols: 64,
                    finish: None,
                };
                Reduce::<Small>::reduce(m, &job);
            }
        });
    });
}

#[test]
fn a_slot_must_not_be_written_again_before_the_credit() {
    let prepare = |waits: bool, fences: bool| {
        move |emu: &mut Emulation| {
            let (src, slot, signal) = exchange(emu);
            let credit = alloc(emu, 0, 4);
            reader(emu, slot, signal, Some(credit));
            launch(emu, 0, &[Role::Storer], move |m, role| {
                carry(m, role, src, slot);
                complete(m);
                m.store_release_sys(signal, 1);
                if waits {
                    wait_word(m, role, credit, 1);
                }
                if fences {
                    m.fence_proxy_async_global();
                }
                m.store_bytes(slot, STAGE, PANEL);
                m.commit_group();
                complete(m);
            });
        }
    };
    let error = broken(Violation::SlotOverwrittenBeforeCredit, None, prepare(false, true));
    says(&error, &["data (rank 1)"]);
    let error = broken(Violation::MissingProxyFence, Some(Role::Storer), prepare(true, false));
    says(&error, &["writes bytes 0..8192 of data (rank 1)", "an access of rank 1 launch 0 CTA 0 consumer 0"]);
    for seed in 0..SEEDS {
        let mut emu = emulation(seed);
        prepare(true, true)(&mut emu);
        emu.run().unwrap();
    }
}

#[test]
fn a_proxy_fence_stands_on_both_sides_of_a_signal() {
    let error = broken(Violation::MissingProxyFence, Some(Role::Storer), |emu| {
        let (src, slot, signal) = exchange(emu);
        launch(emu, 0, &[Role::Storer], move |m, role| {
            carry(m, role, src, slot);
            m.wait_group_complete::<0>();
            m.store_release_sys(signal, 1);
        });
    });
    says(&error, &["no proxy fence after the completion"]);
    let error = broken(Violation::MissingProxyFence, Some(Role::Loader), |emu| {
        let (src, slot, signal) = exchange(emu);
        launch(emu, 0, &[Role::Storer], move |m, role| {
            carry(m, role, src, slot);
            complete(m);
            m.store_release_sys(signal, 1);
        });
        launch(emu, 1, &[Role::Loader], move |m, role| {
            wait_word(m, role, signal, 1);
            m.arrive_expect_tx(FULL, PANEL);
            m.load_bytes(STAGE, slot, PANEL, FULL);
            wait(m, role, FULL, 0);
        });
    });
    says(&error, &["no proxy fence between its signal and this copy"]);
}

#[test]
fn words_that_cross_ranks_need_system_scope() {
    let error = broken(Violation::ScopeTooNarrow, Some(Role::Storer), |emu| {
        let word = alloc(emu, 1, 4);
        launch(emu, 0, &[Role::Storer], move |m, _| m.store_release_gpu(word, 1));
    });
    says(&error, &["gpu scope to another rank's word"]);
    broken(Violation::ScopeTooNarrow, Some(Role::Loader), |emu| {
        let word = alloc(emu, 0, 4);
        launch(emu, 0, &[Role::Storer], move |m, _| m.store_release_gpu(word, 1));
        launch(emu, 1, &[Role::Loader], move |m, role| wait_word(m, role, word, 1));
    });
    broken(Violation::ScopeTooNarrow, Some(Role::Loader), |emu| {
        let word = alloc(emu, 1, 4);
        launch(emu, 0, &[Role::Storer], move |m, _| m.store_release_sys(word, 1));
        launch(emu, 1, &[Role::Loader], move |m, role| {
            let kind = tilewire::kernels::abi::WaitKind::Staged;
            tilewire::kernels::comm::signal::wait_local_signal(m, role, kind, 0, word, 1).unwrap();
        });
    });
}
