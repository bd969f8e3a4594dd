//! The emulator runs right kernels right, under every schedule, replays them, and reports waits that cannot end.

mod emu_support;

use std::time::Instant;

use emu_support::{PANEL, STAGES, Small, SmallGemm, bf16_bytes, bf16_values, emulation, init_barriers, operand_ring};
use emu_support::{panel_ring, watchdogs};
use tilewire::emulator::{Agent, Copies, Delay, Emulation, EmulatorOptions, KernelLaunch, Turns, Violation};
use tilewire::kernels::abi::{WaitKind, Watchdog};
use tilewire::kernels::comm::signal::{put_signal, wait_signal};
use tilewire::kernels::config::TileConfig;
use tilewire::kernels::machine::{BulkCopy, Mbarriers, PutSignals, Reduce, ReduceJob, Signals, WarpgroupMma};
use tilewire::kernels::pipeline::state::PipelineState;
use tilewire::kernels::shape::{CtaPosition, GlobalAddr, Rank, Role};

#[test]
fn a_small_gemm_is_right_under_hundreds_of_schedules() {
    for seed in 0..300 {
        let mut emu = emulation(seed);
        let (m, n, k) = [(64, 128, 64), (100, 70, 200), (1, 8, 8), (130, 150, 456)][seed as usize % 4];
        let gemm = SmallGemm::new(&mut emu, Rank(0), m, n, k);
        emu.launch(gemm.launch(Rank(0))).unwrap();
        emu.run().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        gemm.check(&emu);
    }
}

#[test]
fn every_kind_of_schedule_gives_the_same_result() {
    for turns in [Turns::Uniform, Turns::Sticky, Turns::Priority] {
        for copies in [Copies::Last, Copies::Per1024(64), Copies::Per1024(1024)] {
            for yield_per_1024 in [0, 100, 1024] {
                let mut options = EmulatorOptions::with_seed(5);
                options.schedule = tilewire::emulator::Schedule { yield_per_1024, turns, copies };
                let mut emu = Emulation::new(options);
                let gemm = SmallGemm::new(&mut emu, Rank(0), 70, 100, 300);
                emu.launch(gemm.launch(Rank(0))).unwrap();
                emu.run().unwrap_or_else(|e| panic!("{turns:?} {copies:?} {yield_per_1024}: {e}"));
                gemm.check(&emu);
            }
        }
    }
}

#[test]
fn the_same_seed_replays_the_same_events() {
    let run = |seed| {
        let mut emu = Emulation::new(EmulatorOptions { trace: true, ..EmulatorOptions::with_seed(seed) });
        let gemm = SmallGemm::new(&mut emu, Rank(0), 100, 70, 300);
        emu.launch(gemm.launch(Rank(0))).unwrap();
        let stats = emu.run().unwrap();
        (stats, emu.trace().unwrap())
    };
    let (stats, trace) = run(11);
    assert_eq!((stats.clone(), trace.clone()), run(11));
    assert_ne!(trace, run(12).1);
    assert!(trace.events().len() > 100 && stats.wgmma_groups == 2 * 5);
    let text = trace.to_string();
    for words in
        ["init full[0] for 1 arrivals", "completing on full[1]", "empty[0] completes phase 0", "wgmma group 5 is done"]
    {
        assert!(text.contains(words), "{words}");
    }
    let timeline = trace.timeline(Rank(0), 0, 1, 72);
    assert_eq!(timeline.lines().count(), 1 + 2 * STAGES as usize + 4, "{timeline}");
    assert!(timeline.contains("full[2]") && timeline.contains('|'), "{timeline}");
}

/// Each rank sends one panel an epoch to its right neighbour, whose consumer adds it to what it has.
struct Relay {
    world: u32,
    src: Vec<GlobalAddr>,
    slots: Vec<[GlobalAddr; 2]>,
    sums: Vec<GlobalAddr>,
    signals: Vec<GlobalAddr>,
    credits: Vec<GlobalAddr>,
    dogs: Vec<Watchdog>,
}

impl Relay {
    fn new(emu: &mut Emulation, world: u32, deadline_ns: u64) -> Self {
        let mut per_rank = |bytes: u32, name: &str, written: bool| -> Vec<GlobalAddr> {
            let alloc = |rank| {
                let addr = emu.alloc(Rank(rank), bytes as usize, name);
                written.then(|| emu.fill(addr, bytes as usize, 0).unwrap());
                addr
            };
            (0..world).map(alloc).collect()
        };
        let src = per_rank(PANEL, "src", true);
        let [even, odd] = [0, 1].map(|_| per_rank(PANEL, "slot", false));
        let sums = per_rank(PANEL, "sum", true);
        let (signals, credits) = (per_rank(4, "signal", true), per_rank(4, "credit", true));
        for rank in 0..world {
            emu.write(src[rank as usize], &bf16_bytes(vec![rank as f32 + 1.0; 64 * 64])).unwrap();
        }
        let slots = even.into_iter().zip(odd).map(|(e, o)| [e, o]).collect();
        Self { world, src, slots, sums, signals, credits, dogs: watchdogs(emu, world, deadline_ns) }
    }

    /// The kernel of `rank` in `epoch`, counted from 1. `signalling` off loses the signal.
    fn launch(&self, rank: u32, epoch: u32, signalling: bool) -> KernelLaunch {
        let (me, right) = (rank as usize, ((rank + 1) % self.world) as usize);
        let left = ((rank + self.world - 1) % self.world) as usize;
        let (src, slot, signal) = (self.src[me], self.slots[right][epoch as usize % 2], self.signals[right]);
        let (my_slot, my_signal, sum) = (self.slots[me][epoch as usize % 2], self.signals[me], self.sums[me]);
        let (my_credit, left_credit) = (self.credits[me], self.credits[left]);
        let roles = [Role::Storer, Role::Consumer(0)];
        let body = move |m: &Agent, _, role| {
            if role == Role::Storer {
                let full = Small::SMEM.full();
                m.arrive_expect_tx(full, PANEL);
                m.load_bytes(Small::SMEM.stage(0), src, PANEL, full);
                let slot_ready = operand_ring(m, role).consumer_wait(PipelineState::start())?;
                // Two slots: the one of this epoch was last used two epochs ago.
                wait_signal(m, role, WaitKind::Credit, right as u32, my_credit, epoch.saturating_sub(2))?;
                m.fence_proxy_async_global();
                m.store_bytes(slot, Small::SMEM.stage(slot_ready.index()), PANEL);
                m.commit_group();
                if signalling {
                    put_signal::<0, _>(m, signal, epoch);
                }
                m.wait_group_read::<0>();
            } else {
                wait_signal(m, role, WaitKind::Signal, left as u32, my_signal, epoch)?;
                // Sum and slot lie an arbitrary distance apart, which is all that a slot stride has to be.
                let (first, stride) = (sum.min(my_slot), sum.max(my_slot).0 - sum.min(my_slot).0);
                let job = ReduceJob {
                    slot: first,
                    slot_stride: stride,
                    slots: 2,
                    dst: sum,
                    skip: 0,
                    dst_stride: 128,
                    rows: 64,
                    cols: 64,
                    finish: None,
                };
                Reduce::<Small>::reduce(m, &job);
                m.store_release_sys(left_credit, epoch);
            }
            Ok(())
        };
        KernelLaunch::new(Rank(rank), 1, Small::SMEM, &roles, body)
            .with_setup(init_barriers)
            .with_watchdog(self.dogs[me])
    }

    fn check(&self, emu: &Emulation, epochs: u32) {
        for rank in 0..self.world {
            let left = (rank + self.world - 1) % self.world;
            let sum = bf16_values(&emu.read(self.sums[rank as usize], PANEL as usize).unwrap());
            assert!(sum.iter().all(|v| *v == (epochs * (left + 1)) as f32), "rank {rank}: {}", sum[0]);
        }
    }
}

#[test]
fn ranks_that_run_epochs_ahead_or_behind_get_the_same_sums() {
    for seed in 0..200 {
        let mut options = EmulatorOptions::with_seed(seed);
        options.delays = match seed % 4 {
            0 => vec![],
            1 => vec![(Rank(1), Delay::UntilOthersBlock)],
            2 => vec![(Rank(0), Delay::Seldom(20)), (Rank(2), Delay::Seldom(3))],
            _ => vec![(Rank(0), Delay::UntilOthersBlock), (Rank(2), Delay::UntilOthersBlock)],
        };
        let mut emu = Emulation::new(options);
        let relay = Relay::new(&mut emu, 3, 0);
        // The swizzle permutes each row's chunks, and every element is equal: the plain result has the same bytes.
        for rank in 0..3 {
            for epoch in 1..=4 {
                emu.launch(relay.launch(rank, epoch, true)).unwrap();
            }
        }
        let stats = emu.run().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert_eq!(stats.aborted, [false; 12]);
        relay.check(&emu, 4);
        // A second run goes on where the first one ended.
        for rank in 0..3 {
            emu.launch(relay.launch(rank, 5, true)).unwrap();
        }
        emu.run().unwrap_or_else(|e| panic!("seed {seed}, second run: {e}"));
        relay.check(&emu, 5);
    }
}

#[test]
fn a_lost_signal_is_a_deadlock_report_at_once() {
    for (seed, deadline_ns) in (0..20).zip([0, 1_000_000_000].into_iter().cycle()) {
        let mut emu = emulation(seed);
        let relay = Relay::new(&mut emu, 2, deadline_ns);
        emu.launch(relay.launch(0, 1, false)).unwrap();
        emu.launch(relay.launch(1, 1, true)).unwrap();
        let error = emu.run().unwrap_err();
        assert_eq!(error.violation, Violation::Deadlock, "{error}");
        let text = error.to_string();
        let line = "rank 1 launch 1 CTA 0 consumer 0: waits for Signal 0, epoch 1, seen 0 (word signal (rank 1) + 0)";
        assert!(text.contains(line), "{text}");
        assert_eq!(error.agents.len(), 1, "{text}");
    }
}

#[test]
fn a_deadline_ends_every_rank_and_leaves_one_record() {
    for seed in 0..40 {
        let options = EmulatorOptions { deadlock_is_fault: true, ..EmulatorOptions::with_seed(seed) };
        let mut emu = Emulation::new(options);
        let relay = Relay::new(&mut emu, 2, 50_000);
        emu.launch(relay.launch(0, 1, false)).unwrap();
        for epoch in 1..=3 {
            emu.launch(relay.launch(1, epoch, true)).unwrap();
        }
        let stats = emu.run().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert_eq!(stats.aborted, [false, true, true, true], "seed {seed}");
        let record = emu.fault_record(relay.dogs[1].record).unwrap();
        assert_eq!((record.state, record.rank, record.cta, record.role), (1, 1, 0, Role::Consumer(0).code()));
        assert_eq!((record.kind, record.index, record.awaited, record.seen), (WaitKind::Signal as u32, 0, 1, 0));
        assert!(record.elapsed_ns > 50_000);
        assert_eq!(emu.fault_record(relay.dogs[0].record).unwrap().state, 0);
        assert!(relay.dogs.iter().all(|dog| emu.read(dog.abort, 4).unwrap() == [1, 0, 0, 0]));
    }
}

#[test]
fn leaving_comes_after_the_roles_and_before_the_next_kernel() {
    for seed in 0..50 {
        let mut emu = emulation(seed);
        let count = emu.alloc(Rank(0), 4, "exit count");
        let log = emu.alloc(Rank(0), 4, "epoch");
        emu.fill(count, 4, 0).unwrap();
        emu.fill(log, 4, 0).unwrap();
        for epoch in 0..3 {
            let body = move |m: &Agent, _, _| {
                assert_eq!(m.load_acquire_gpu(log), epoch);
                Ok(())
            };
            let launch = KernelLaunch::new(Rank(0), 5, Small::SMEM, &[Role::Producer, Role::Loader], body);
            let leave = move |m: &Agent, at: CtaPosition, aborted: bool| {
                assert!(!aborted);
                if m.fetch_add_acq_rel_gpu(count, 1) == at.num_ctas - 1 {
                    m.store_release_gpu(count, 0);
                    m.store_release_gpu(log, epoch + 1);
                }
            };
            emu.launch(launch.with_leave(leave)).unwrap();
        }
        emu.run().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert_eq!(emu.read(log, 4).unwrap(), [3, 0, 0, 0]);
    }
}

#[test]
fn a_reduction_adds_in_slot_order_and_rounds_once() {
    let mut emu = emulation(0);
    let slots = emu.alloc(Rank(0), 3 * PANEL as usize, "slots");
    let d = emu.alloc(Rank(0), 5 * 90, "D");
    for (slot, value) in [256.0, 1.0, 1.0].into_iter().enumerate() {
        // Five rows of one panel; the others do not exist, and are never read.
        emu.write(slots.plus(slot as u64 * u64::from(PANEL)), &bf16_bytes(vec![value; 5 * 64])).unwrap();
    }
    let body = move |m: &Agent, _, _| {
        let slot_stride = u64::from(PANEL);
        let job = ReduceJob {
            slot: slots,
            slot_stride,
            slots: 3,
            dst: d,
            skip: 0,
            dst_stride: 90,
            rows: 5,
            cols: 33,
            finish: None,
        };
        Reduce::<Small>::reduce(m, &job);
        Ok(())
    };
    emu.launch(KernelLaunch::new(Rank(0), 1, Small::SMEM, &[Role::Consumer(0)], body)).unwrap();
    emu.run().unwrap();
    for row in 0..5 {
        let at = d.plus(row * 90);
        assert!(bf16_values(&emu.read(at, 66).unwrap()).iter().all(|v| *v == 258.0));
        assert!(!emu.is_written(at.plus(66), 1));
    }
}

#[test]
fn a_ragged_panel_that_a_peer_sent_can_be_loaded_whole() {
    for seed in 0..40 {
        let mut emu = emulation(seed);
        let (src, dst) = (emu.alloc(Rank(1), 640, "slot"), emu.alloc(Rank(0), PANEL as usize, "out"));
        emu.write(src, &bf16_bytes(vec![3.0; 320])).unwrap();
        let body = move |m: &Agent, _, role| {
            let (partial, panels) = (operand_ring(m, role), panel_ring(m, role));
            match role {
                Role::Loader => {
                    let full = Small::SMEM.full();
                    m.arrive_expect_tx(full, 640);
                    m.load_bytes(Small::SMEM.stage(0), src, 640, full);
                }
                Role::Storer => {
                    let slot = panels.consumer_wait(PipelineState::start())?;
                    m.store_bytes(dst, Small::SMEM.panel(0, slot.index()), 640);
                    m.commit_group();
                    m.wait_group_read::<0>();
                    panels.consumer_release(slot);
                }
                _ => {
                    let slot = partial.consumer_wait(PipelineState::start())?;
                    let panel = WarpgroupMma::<Small>::load_panel(m, Small::SMEM.stage(slot.index()), 5);
                    let mut twice = panel.clone();
                    WarpgroupMma::<Small>::add_to(m, &mut twice, &panel);
                    let free = panels.producer_acquire(PipelineState::start())?;
                    WarpgroupMma::<Small>::store_panel(m, Small::SMEM.panel(0, free.index()), &twice);
                    panels.producer_commit(free);
                }
            }
            Ok(())
        };
        let roles = [Role::Loader, Role::Storer, Role::Consumer(0)];
        emu.launch(KernelLaunch::new(Rank(0), 1, Small::SMEM, &roles, body).with_setup(init_barriers)).unwrap();
        emu.run().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert!(bf16_values(&emu.read(dst, 640).unwrap()).iter().all(|v| *v == 6.0));
    }
}

#[test]
#[ignore = "prints how long 512 × 512 × 512 on four ranks takes; run it in release"]
fn four_ranks_of_512_cubed_take_well_under_ten_seconds() {
    for (m, n, k) in [(512, 512, 512), (1024, 1024, 256)] {
        for turns in [Turns::Uniform, Turns::Sticky, Turns::Priority] {
            let start = Instant::now();
            let mut options = EmulatorOptions::with_seed(1);
            options.schedule.turns = turns;
            let mut emu = Emulation::new(options);
            let gemms: Vec<_> = (0..4).map(|rank| SmallGemm::new(&mut emu, Rank(rank), m, n, k)).collect();
            for (rank, gemm) in (0..).zip(&gemms) {
                emu.launch(gemm.launch(Rank(rank))).unwrap();
            }
            let stats = emu.run().unwrap();
            let elapsed = start.elapsed();
            println!("{m}×{n}×{k} on 4 ranks, {turns:?}: {elapsed:?}, {} steps", stats.steps);
            assert!(elapsed.as_secs() < 10);
        }
    }
}
