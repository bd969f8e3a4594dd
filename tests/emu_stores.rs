//! Rules of what is stored to global memory, broken on purpose: whole steps of 16 bytes, ends of rows, stores over ones own.

mod emu_support;

use emu_support::{Small, alloc, broken, emulation, init_barriers, launch, says, store_panel, wait};
use tilewire::emulator::{Agent, EmulatedMap, Emulation, KernelLaunch, Violation};
use tilewire::kernels::abi::Operand;
use tilewire::kernels::config::TileConfig;
use tilewire::kernels::machine::{BulkCopy, Mbarriers, RowEnds};
use tilewire::kernels::shape::{CtaPosition, GlobalAddr, Mbarrier, Rank, Role, SmemAddr};

const FULL: Mbarrier = Small::SMEM.full();
const STAGE: SmemAddr = Small::SMEM.stage(0);

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
    let map = |base| {
        Some(EmulatedMap {
            base,
            rows: 2,
            cols: COLS,
            row_stride_bytes: 16,
            element_bytes: 2,
            box_rows: 64,
            box_row_bytes: 128,
        })
    };
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
