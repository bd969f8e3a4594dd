//! The emulator runs right kernels right, under every schedule, and replays them.

mod emu_support;

use emu_support::{SmallGemm, emulation};
use tilewire::kernels::shape::Rank;

#[test]
fn a_small_gemm_is_right_under_hundreds_of_schedules() {
    for seed in 0..300 {
        let mut emu = emulation(seed);
        let (m, n, k) = [(64, 128, 64), (100, 70, 200), (1, 8, 8), (130, 128, 456)][seed as usize % 4];
        let gemm = SmallGemm::new(&mut emu, Rank(0), m, n, k);
        emu.launch(gemm.launch(Rank(0))).unwrap();
        emu.run().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        gemm.check(&emu);
    }
}
