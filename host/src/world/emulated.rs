//! Ranks on the CPU emulator.

use std::cell::{Cell, RefCell};

use crate::emulator::{EmulatedArgs, EmulatedMap, Emulation, EmulatorOptions, EntryLaunch, Plant, RunStats, Trace};
use crate::error::{Error, Result};
use crate::kernels::abi::FaultRecord;
use crate::kernels::shape::{GlobalAddr, Rank};
use crate::plan::RankLaunch;
use crate::plan::operand::MapSpec;

/// How a world is emulated.
#[derive(Clone, Debug)]
pub struct EmulatedOptions {
    /// CTAs that a rank can have running at once: its SMs.
    pub ctas_per_rank: u32,
    /// Seed, schedule, delays, trace.
    pub emulator: EmulatorOptions,
    /// A fault planted in the kernels' machine; none unless told otherwise.
    pub plant: Option<Plant>,
}

impl Default for EmulatedOptions {
    /// Four CTAs a rank, seed 0, and a faster schedule than the emulator's own default: agents go on at three of four
    /// operations.
    fn default() -> Self {
        let mut emulator = EmulatorOptions::default();
        emulator.schedule.yield_per_1024 = 256;
        Self { ctas_per_rank: 4, emulator, plant: None }
    }
}

/// Ranks on the CPU emulator.
pub struct EmulatedWorld {
    emulation: RefCell<Emulation>,
    ranks: usize,
    ctas: u32,
    plant: Option<Plant>,
    /// Bytes that may still be allocated.
    free_bytes: Cell<u64>,
    /// Launches of each rank so far.
    calls: Vec<Cell<usize>>,
}

impl std::fmt::Debug for EmulatedWorld {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EmulatedWorld({})", self.describe())
    }
}

impl EmulatedWorld {
    pub fn new(ranks: usize, options: EmulatedOptions) -> Result<Self> {
        if options.ctas_per_rank == 0 {
            return Err(Error::argument("ctas_per_rank", 0, "a rank needs at least 1 CTA to compute"));
        }
        Ok(Self {
            free_bytes: Cell::new(options.emulator.memory_bytes),
            emulation: RefCell::new(Emulation::new(options.emulator)),
            ranks,
            ctas: options.ctas_per_rank,
            plant: options.plant,
            calls: vec![Cell::new(0); ranks],
        })
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
        let free = self.free_bytes.get();
        if bytes > free {
            return Err(Error::argument("bytes", bytes, format!("the emulated ranks have {free} bytes left")));
        }
        self.free_bytes.set(free - bytes);
        let bytes =
            usize::try_from(bytes).map_err(|_| Error::argument("bytes", bytes, "it must fit the address space"))?;
        Ok(self.emulation.borrow_mut().alloc(Rank(rank as u32), bytes, "buffer"))
    }

    pub fn write(&self, addr: GlobalAddr, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        Ok(self.emulation.borrow_mut().write(addr, bytes)?)
    }

    pub fn read(&self, addr: GlobalAddr, bytes: &mut [u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        bytes.copy_from_slice(&self.emulation.borrow().read(addr, bytes.len())?);
        Ok(())
    }

    /// Puts a launch on its rank's stream; [`Self::run`] runs it.
    pub fn launch<Args: EmulatedArgs>(&self, given: &RankLaunch<Args>) -> Result<()> {
        let (rank, entry) = (given.rank, given.entry);
        let call = self.calls[rank].replace(self.calls[rank].get() + 1);
        if self.plant.is_some_and(|p| p.keeps_away(Rank(rank as u32), call)) {
            return Ok(());
        }
        let launch = Args::launch_of(
            entry,
            &EntryLaunch {
                rank: Rank(rank as u32),
                num_ctas: given.num_ctas,
                maps: given.maps.map(|map| map.map(emulated)),
                args: given.args,
                plant: self.plant,
                call,
            },
        );
        let launch = launch.ok_or_else(|| Error::argument("kernel", entry.name, "it takes other arguments"))?;
        self.emulation.borrow_mut().launch(launch)?;
        Ok(())
    }

    pub fn trace(&self) -> Option<Trace> {
        self.emulation.borrow().trace()
    }

    pub fn stats(&self) -> RunStats {
        self.emulation.borrow().stats()
    }

    pub fn run(&self) -> Result<()> {
        self.emulation.borrow_mut().run()?;
        Ok(())
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
        records.iter().map(|addr| emulation.fault_record(*addr).map_err(Error::from)).collect()
    }

    pub fn clear_records(&self, records: &[GlobalAddr]) -> Result<()> {
        let mut emulation = self.emulation.borrow_mut();
        records.iter().try_for_each(|addr| emulation.fill(*addr, size_of::<FaultRecord>(), 0)).map_err(Error::from)
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
        box_row_bytes: spec.box_row_bytes,
    }
}
