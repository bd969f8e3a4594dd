//! Small kernels over the machine traits, for the tests of the emulator itself.
#![allow(dead_code, reason = "each test file uses its own part")]

use tilewire::emulator::{
    Agent, AgentRole, EmulatedMap, Emulation, EmulatorError, EmulatorOptions, KernelLaunch, Violation,
};
use tilewire::kernels::abi::{FaultRecord, Operand, WaitKind, Watchdog};
use tilewire::kernels::comm::signal::wait_signal;
use tilewire::kernels::config::{PANEL_BYTES, PANEL_ROWS, Tile, TileConfig};
use tilewire::kernels::machine::{Aborted, BulkCopy, Mbarriers, WarpgroupMma};
use tilewire::kernels::pipeline::ring::Ring;
use tilewire::kernels::pipeline::state::PipelineState;
use tilewire::kernels::pipeline::wait::wait_mbarrier;
use tilewire::kernels::shape::{CtaPosition, GlobalAddr, MAX_WORLD, Mbarrier, Parity, Rank, Role, SmemAddr};

/// The configuration of the small kernels: one consumer.
pub type Small = Tile<64, 128, 3>;
/// Its stages.
pub const STAGES: u32 = 3;

/// Bytes of bf16 values.
pub fn bf16_bytes(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(|v| half::bf16::from_f32(v).to_le_bytes()).collect()
}

/// Values of bf16 bytes.
pub fn bf16_values(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(2).map(|b| half::bf16::from_le_bytes([b[0], b[1]]).to_f32()).collect()
}

/// The operand ring as `role` sees it.
pub fn operand_ring<'m, 'y>(m: &'m Agent<'y>, role: Role) -> Ring<'m, Agent<'y>, STAGES> {
    Ring {
        m,
        role,
        full: Small::SMEM.full(),
        empty: Small::SMEM.empty(),
        full_kind: WaitKind::StageFull,
        empty_kind: WaitKind::StageEmpty,
        first_index: 0,
    }
}

/// The panel ring between the consumer and the storer.
pub fn panel_ring<'m, 'y>(m: &'m Agent<'y>, role: Role) -> Ring<'m, Agent<'y>, 2> {
    Ring {
        m,
        role,
        full: Small::SMEM.panel_full(0),
        empty: Small::SMEM.panel_empty(0),
        full_kind: WaitKind::PanelFull,
        empty_kind: WaitKind::PanelEmpty,
        first_index: 0,
    }
}

/// Initialises the barriers of both rings.
pub fn init_barriers(m: &Agent) {
    for stage in 0..STAGES {
        m.mbarrier_init(Small::SMEM.full().at(stage), 1);
        m.mbarrier_init(Small::SMEM.empty().at(stage), 4);
    }
    for buf in 0..2 {
        m.mbarrier_init(Small::SMEM.panel_full(0).at(buf), 4);
        m.mbarrier_init(Small::SMEM.panel_empty(0).at(buf), 1);
    }
}

/// D = A · Bᵀ, one tile of 64 × 128 a CTA.
pub struct SmallGemm {
    pub m: u32,
    pub n: u32,
    pub k: u32,
    pub a: GlobalAddr,
    pub b: GlobalAddr,
    pub d: GlobalAddr,
}

impl SmallGemm {
    /// Values small enough that every sum is exact.
    pub fn a_value(row: u32, k: u32) -> f32 {
        ((row * 7 + k * 3) % 5) as f32 - 2.0
    }

    pub fn b_value(row: u32, k: u32) -> f32 {
        ((row * 5 + k * 11) % 3) as f32 - 1.0
    }

    /// Row stride of a matrix with so many bf16 columns.
    pub fn stride(cols: u32) -> u32 {
        (cols * 2).next_multiple_of(16)
    }

    fn matrix(rows: u32, cols: u32, value: impl Fn(u32, u32) -> f32) -> Vec<u8> {
        let padded = Self::stride(cols) / 2;
        bf16_bytes((0..rows).flat_map(|r| (0..padded).map(move |c| (r, c))).map(|(r, c)| value(r, c)))
    }

    pub fn new(emu: &mut Emulation, rank: Rank, m: u32, n: u32, k: u32) -> Self {
        let a_bytes = Self::matrix(m, k, Self::a_value);
        let b_bytes = Self::matrix(n, k, Self::b_value);
        let a = emu.alloc(rank, a_bytes.len(), "A");
        let b = emu.alloc(rank, b_bytes.len(), "B");
        let d = emu.alloc(rank, (m * Self::stride(n)) as usize, "D");
        emu.write(a, &a_bytes).unwrap();
        emu.write(b, &b_bytes).unwrap();
        Self { m, n, k, a, b, d }
    }

    pub fn maps(&self) -> [Option<EmulatedMap>; 4] {
        let map = |base, rows, cols, box_rows| {
            let row_stride_bytes = u64::from(Self::stride(cols));
            Some(EmulatedMap { base, rows, cols, row_stride_bytes, element_bytes: 2, box_rows, box_row_bytes: 128 })
        };
        [
            map(self.a, self.m, self.k, Small::A_BOX.rows),
            map(self.b, self.n, self.k, Small::B_BOX.rows),
            map(self.d, self.m, self.n, PANEL_ROWS),
            None,
        ]
    }

    pub fn launch(&self, rank: Rank) -> KernelLaunch {
        let k_tiles = self.k.div_ceil(Small::TILE_K);
        let (n, tiles_n) = (self.n, self.n.div_ceil(128));
        let roles = [Role::Producer, Role::Storer, Role::Consumer(0)];
        let body = move |m: &Agent, at: CtaPosition, role: Role| {
            let (row, col) = (at.cta / tiles_n * 64, at.cta % tiles_n * 128);
            let panels = (n - col).min(128).div_ceil(Small::PANEL_COLS);
            match role {
                Role::Producer => produce(m, row, col, k_tiles),
                Role::Storer => store(m, row, col, panels),
                _ => consume(m, role, k_tiles, panels),
            }
        };
        KernelLaunch::new(rank, self.m.div_ceil(64) * tiles_n, Small::SMEM, &roles, body)
            .with_setup(init_barriers)
            .with_maps(self.maps())
    }

    /// What D must be.
    pub fn expected(&self, row: u32, col: u32) -> f32 {
        let sum = (0..self.k).map(|k| Self::a_value(row, k) * Self::b_value(col, k)).sum();
        half::bf16::from_f32(sum).to_f32()
    }

    pub fn check(&self, emu: &Emulation) {
        for row in 0..self.m {
            let at = self.d.plus(u64::from(row * Self::stride(self.n)));
            let values = bf16_values(&emu.read(at, self.n as usize * 2).unwrap());
            for col in 0..self.n {
                assert_eq!(values[col as usize], self.expected(row, col), "({row}, {col})");
            }
            // Stores are clipped to steps of 16 bytes, which is where rows end; what lies between is zeros.
            let padding = (Self::stride(self.n) - self.n * 2) as usize;
            let beyond = emu.read(at.plus(u64::from(self.n * 2)), padding).unwrap();
            assert!(beyond.iter().all(|byte| *byte == 0), "row {row} ends in {beyond:?}");
        }
    }
}

fn produce(m: &Agent, row: u32, col: u32, k_tiles: u32) -> Result<(), Aborted> {
    let ring = operand_ring(m, Role::Producer);
    let mut state = PipelineState::start();
    for k_tile in 0..k_tiles {
        let slot = ring.producer_acquire(state)?;
        let filling = ring.producer_expect(slot, Small::STAGE_BYTES);
        let stage = Small::SMEM.stage(filling.index());
        m.load_box(stage, Operand::A, row, k_tile * Small::TILE_K, filling.full());
        m.load_box(stage.plus(Small::A_BOX.bytes()), Operand::B, col, k_tile * Small::TILE_K, filling.full());
        state.advance();
    }
    ring.producer_tail(state, k_tiles)
}

fn consume(m: &Agent, role: Role, k_tiles: u32, panels: u32) -> Result<(), Aborted> {
    let ring = operand_ring(m, role);
    let mut acc = WarpgroupMma::<Small>::zero_acc(m);
    let mut state = PipelineState::start();
    let mut held = None;
    for k_tile in 0..k_tiles {
        let slot = ring.consumer_wait(state)?;
        let stage = Small::SMEM.stage(slot.index());
        WarpgroupMma::<Small>::issue_mma(m, &mut acc, stage, stage.plus(Small::A_BOX.bytes()), k_tile > 0);
        WarpgroupMma::<Small>::wait_mma::<1>(m, &mut acc);
        if let Some(previous) = held.replace(slot) {
            ring.consumer_release(previous);
        }
        state.advance();
    }
    WarpgroupMma::<Small>::wait_mma::<0>(m, &mut acc);
    if let Some(last) = held {
        ring.consumer_release(last);
    }
    let ring = panel_ring(m, role);
    let mut state = PipelineState::start();
    for p in 0..panels {
        let slot = ring.producer_acquire(state)?;
        let panel = match p {
            0 => WarpgroupMma::<Small>::panel::<0>(m, &acc),
            _ => WarpgroupMma::<Small>::panel::<1>(m, &acc),
        };
        WarpgroupMma::<Small>::store_panel(m, Small::SMEM.panel(0, slot.index()), &panel);
        ring.producer_commit(slot);
        state.advance();
    }
    Ok(())
}

fn store(m: &Agent, row: u32, col: u32, panels: u32) -> Result<(), Aborted> {
    let ring = panel_ring(m, Role::Storer);
    let mut state = PipelineState::start();
    for p in 0..panels {
        let slot = ring.consumer_wait(state)?;
        m.store_box(Operand::D, row, col + p * Small::PANEL_COLS, Small::SMEM.panel(0, slot.index()));
        m.commit_group();
        m.wait_group_read::<0>();
        ring.consumer_release(slot);
        state.advance();
    }
    Ok(())
}

/// Words and records of a watchdog for each of `world` ranks.
pub fn watchdogs(emu: &mut Emulation, world: u32, deadline_ns: u64) -> Vec<Watchdog> {
    let mut peer_aborts = [GlobalAddr(0); MAX_WORLD];
    for rank in 0..world {
        peer_aborts[rank as usize] = emu.alloc(Rank(rank), 4, "abort");
        emu.fill(peer_aborts[rank as usize], 4, 0).unwrap();
    }
    let mut of_rank = |rank: u32| {
        let claim = emu.alloc(Rank(rank), 4, "claim");
        let bytes = size_of::<FaultRecord>();
        let record = emu.alloc(Rank(rank), bytes, "record");
        emu.fill(claim, 4, 0).unwrap();
        emu.fill(record, bytes, 0).unwrap();
        let (abort, local_ns) = (peer_aborts[rank as usize], Watchdog::local_deadline_ns(deadline_ns, world));
        Watchdog { deadline_ns, abort, claim, record, rank, world, peer_aborts, local_ns }
    };
    (0..world).map(&mut of_rank).collect()
}

/// An emulation of this seed.
pub fn emulation(seed: u64) -> Emulation {
    Emulation::new(EmulatorOptions::with_seed(seed))
}

/// One panel's bytes.
pub const PANEL: u32 = PANEL_BYTES;

/// Seeds under which each broken rule must be found.
pub const SEEDS: u64 = 24;

/// Runs what `prepare` launches under many seeds, each of which must end with `violation` by `role`; the last report.
pub fn broken(violation: Violation, role: Option<Role>, prepare: impl Fn(&mut Emulation)) -> EmulatorError {
    let mut last = None;
    for seed in 0..SEEDS {
        let mut emu = emulation(seed);
        prepare(&mut emu);
        let error = emu.run().expect_err("the rule is broken");
        assert_eq!(error.violation, violation, "seed {seed}: {error}");
        if let Some(role) = role {
            assert_eq!(error.place.map(|p| p.role), Some(AgentRole::Role(role)), "seed {seed}: {error}");
        }
        assert_eq!(error.seed, seed);
        assert_eq!(emu.run().unwrap_err().violation, Violation::AlreadyFailed);
        last = Some(error);
    }
    last.expect("at least one seed")
}

/// A launch on one CTA of `rank`, with the barriers of the small kernels.
pub fn launch(emu: &mut Emulation, rank: u32, roles: &[Role], body: impl Fn(&Agent, Role) + 'static) {
    let body = move |m: &Agent, _: CtaPosition, role: Role| {
        body(m, role);
        Ok(())
    };
    let launch = KernelLaunch::new(Rank(rank), 1, Small::SMEM, roles, body).with_setup(init_barriers);
    emu.launch(launch).unwrap();
}

pub fn alloc(emu: &mut Emulation, rank: u32, bytes: usize) -> GlobalAddr {
    let addr = emu.alloc(Rank(rank), bytes, "data");
    emu.fill(addr, bytes, 0).unwrap();
    addr
}

/// Writes a panel of ones.
pub fn store_panel(m: &Agent, dst: SmemAddr) {
    let panel = tilewire::emulator::Panel(vec![1.0; 64 * 64]);
    WarpgroupMma::<Small>::store_panel(m, dst, &panel);
}

/// Waits without a watchdog.
pub fn wait(m: &Agent, role: Role, bar: Mbarrier, parity: u32) {
    let kind = WaitKind::StageFull;
    wait_mbarrier(m, role, kind, 0, bar, Parity(parity)).unwrap();
}

pub fn wait_word(m: &Agent, role: Role, addr: GlobalAddr, value: u32) {
    let kind = WaitKind::Signal;
    wait_signal(m, role, kind, 0, addr, value).unwrap();
}

pub fn says(error: &EmulatorError, words: &[&str]) {
    let text = error.to_string();
    words.iter().for_each(|word| assert!(text.contains(word), "{word:?} is missing in: {text}"));
}
