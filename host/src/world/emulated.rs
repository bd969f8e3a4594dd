//! Ranks on the CPU emulator.

use std::cell::RefCell;

use crate::emulator::{Agent, EmulatedMap, Emulation, EmulatorError, EmulatorOptions, KernelLaunch};
use crate::error::{Error, Result};
use crate::kernels::abi::FaultRecord;
use crate::kernels::config::{TileConfig, roles};
use crate::kernels::kernels::{Kernel, Watched};
use crate::kernels::machine::{Reduce, WarpgroupMma};
use crate::kernels::shape::{GlobalAddr, Rank, Role};
use crate::plan::RankLaunch;
use crate::plan::operand::MapSpec;

/// How a world is emulated.
#[derive(Clone, Debug)]
pub struct EmulatedOptions {
    /// CTAs that a rank can have running at once: its SMs.
    pub ctas_per_rank: u32,
    /// Seed, schedule, delays, trace.
    pub emulator: EmulatorOptions,
}

impl Default for EmulatedOptions {
    /// Four CTAs a rank, seed 0, and a faster schedule than the emulator's own default: agents go on at three of four
    /// operations.
    fn default() -> Self {
        let mut emulator = EmulatorOptions::default();
        emulator.schedule.yield_per_1024 = 256;
        Self { ctas_per_rank: 4, emulator }
    }
}

/// Ranks on the CPU emulator.
pub struct EmulatedWorld {
    emulation: RefCell<Emulation>,
    ranks: usize,
    ctas: u32,
}

impl std::fmt::Debug for EmulatedWorld {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EmulatedWorld({})", self.describe())
    }
}

fn failed(error: EmulatorError) -> Error {
    Error::Emulator(error.to_string())
}

impl EmulatedWorld {
    pub fn new(ranks: usize, options: EmulatedOptions) -> Result<Self> {
        if options.ctas_per_rank == 0 {
            return Err(Error::argument("ctas_per_rank", 0, "a rank needs at least 1 CTA to compute"));
        }
        let emulation = RefCell::new(Emulation::new(options.emulator));
        Ok(Self { emulation, ranks, ctas: options.ctas_per_rank })
    }

    pub fn size(&self) -> usize {
        self.ranks
    }

    pub fn ctas(&self) -> u32 {
        self.ctas
    }

    pub fn describe(&self) -> String {
        format!("CPU emulator, {} rank(s) of {} CTAs", self.ranks, self.ctas)
    }

    pub fn allocate(&self, rank: usize, bytes: u64) -> Result<GlobalAddr> {
        let bytes =
            usize::try_from(bytes).map_err(|_| Error::argument("bytes", bytes, "it must fit the address space"))?;
        Ok(self.emulation.borrow_mut().alloc(Rank(rank as u32), bytes, "buffer"))
    }

    pub fn write(&self, addr: GlobalAddr, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.emulation.borrow_mut().write(addr, bytes).map_err(failed)
    }

    pub fn read(&self, addr: GlobalAddr, bytes: &mut [u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        bytes.copy_from_slice(&self.emulation.borrow().read(addr, bytes.len()).map_err(failed)?);
        Ok(())
    }

    /// Puts the launches on their ranks' streams; [`Self::run`] runs them.
    pub fn launch<'a, K: Kernel>(&self, launches: impl IntoIterator<Item = &'a RankLaunch<K::Args>>) -> Result<()>
    where
        K::Args: Watched + 'static,
        for<'e> Agent<'e>: WarpgroupMma<K::Config> + Reduce<K::Config>,
    {
        for given in launches {
            let args = given.args;
            let roles = roles(K::Config::CONSUMERS);
            let launch = KernelLaunch::new(
                Rank(given.rank as u32),
                given.num_ctas,
                K::Config::SMEM,
                roles,
                move |agent, at, role| match role {
                    Role::Consumer(consumer) => K::consumer(agent, &args, at, consumer),
                    _ => K::mover(agent, &args, at, role),
                },
            )
            .with_setup(|agent| K::setup(agent))
            .with_leave(move |agent, at, _| K::leave(agent, &args, at))
            .with_maps(given.maps.map(|map| map.map(emulated)))
            .with_watchdog(*args.watchdog());
            self.emulation.borrow_mut().launch(launch).map_err(failed)?;
        }
        Ok(())
    }

    pub fn run(&self) -> Result<()> {
        self.emulation.borrow_mut().run().map(drop).map_err(failed)
    }

    pub fn new_records(&self) -> Result<Vec<GlobalAddr>> {
        let bytes = size_of::<FaultRecord>();
        let mut emulation = self.emulation.borrow_mut();
        let records: Vec<_> =
            (0..self.ranks).map(|rank| emulation.alloc(Rank(rank as u32), bytes, "fault record")).collect();
        drop(emulation);
        self.clear_records(&records)?;
        Ok(records)
    }

    pub fn read_records(&self, records: &[GlobalAddr]) -> Result<Vec<FaultRecord>> {
        let emulation = self.emulation.borrow();
        records.iter().map(|addr| emulation.fault_record(*addr).map_err(failed)).collect()
    }

    pub fn clear_records(&self, records: &[GlobalAddr]) -> Result<()> {
        let mut emulation = self.emulation.borrow_mut();
        records.iter().try_for_each(|addr| emulation.fill(*addr, size_of::<FaultRecord>(), 0)).map_err(failed)
    }
}

fn emulated(spec: MapSpec) -> EmulatedMap {
    EmulatedMap {
        base: GlobalAddr(spec.addr),
        rows: spec.rows,
        cols: spec.cols,
        row_stride_bytes: spec.row_stride_bytes,
        element_bytes: spec.element.bytes(),
        box_rows: spec.tile_box.rows,
    }
}
