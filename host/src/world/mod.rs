//! Worlds: the ranks, the machines they run on, and their memory. One API for all of them.
//!
//! | world | ranks | runs on |
//! | --- | --- | --- |
//! | [`World::emulated`] | any number, 1..=8 | the CPU: the kernels' source on the emulator |
//! | [`World::virtual_ranks`] | all on one GPU, each on its share of the SMs, really concurrent | a Hopper GPU |
//! | [`World::local`] | one or more on each of several GPUs of this process | Hopper GPUs with peer access |

mod emulated;
mod gpu;
mod tensor;

use std::rc::Rc;

use crate::driver::MappedHost;
use crate::emulator::{EmulatedArgs, RunStats, Trace};
use crate::error::{Error, Result};
use crate::fault::Fault;
use crate::kernels::abi::{FaultRecord, WaitKind};
use crate::kernels::entries::{ENTRIES, Entry};
use crate::kernels::shape::GlobalAddr;
use crate::plan::{RankLaunch, check};

pub use emulated::EmulatedOptions;

pub use tensor::Tensor;

/// A stream of any framework, as its driver handle (`CUstream`). On the emulator there are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawStream(pub *mut std::ffi::c_void);

/// The ranks of one process and the machines they run on. Cheap to clone; clones share everything.
#[derive(Clone, Debug)]
pub struct World {
    machine: Rc<Machine>,
}

#[derive(Debug)]
enum Machine {
    Emulated(emulated::EmulatedWorld),
    Gpu(gpu::GpuWorld),
}

/// Memory of one rank; freed when the last owner is gone, after everything enqueued on the world's streams has ended.
#[derive(Debug)]
pub struct Buffer {
    memory: Memory,
    bytes: u64,
}

#[derive(Debug)]
enum Memory {
    Emulated(GlobalAddr),
    Gpu(gpu::GpuMemory),
}

impl Buffer {
    /// Address on its rank, and on every rank that maps it.
    pub fn addr(&self) -> GlobalAddr {
        match &self.memory {
            Memory::Emulated(addr) => *addr,
            Memory::Gpu(memory) => memory.addr(),
        }
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// A buffer of the same size on every rank, which every rank can address.
#[derive(Debug)]
pub struct SymmetricBuffer {
    buffers: Vec<Buffer>,
}

impl SymmetricBuffer {
    /// Address of `rank`'s part.
    pub fn base(&self, rank: usize) -> GlobalAddr {
        self.buffers[rank].addr()
    }
}

/// Fault records of one plan, one for each rank: a plan's own, so that no other plan takes its fault for its own or
/// erases it.
#[derive(Debug)]
pub(crate) enum FaultRecords {
    Emulated(Vec<GlobalAddr>),
    Gpu(Vec<MappedHost<FaultRecord>>),
}

impl FaultRecords {
    /// Address of `rank`'s record.
    pub(crate) fn addr(&self, rank: usize) -> GlobalAddr {
        match self {
            Self::Emulated(records) => records[rank],
            Self::Gpu(records) => records[rank].addr(),
        }
    }
}

impl World {
    /// `ranks` ranks on the CPU emulator, with its default number of CTAs a rank.
    ///
    /// # Errors
    /// [`Error::Argument`] if `ranks` is not in `1..=8`.
    pub fn emulated(ranks: usize) -> Result<Self> {
        Self::emulated_with(ranks, EmulatedOptions::default())
    }

    /// `ranks` ranks on the CPU emulator.
    ///
    /// # Errors
    /// [`Error::Argument`] if `ranks` is not in `1..=8` or there are no CTAs.
    pub fn emulated_with(ranks: usize, options: EmulatedOptions) -> Result<Self> {
        check::world_size(ranks)?;
        Ok(Self { machine: Rc::new(Machine::Emulated(emulated::EmulatedWorld::new(ranks, options)?)) })
    }

    /// `ranks` ranks on GPU `gpu`, each with an equal share of its SMs, so that all of them run at once.
    ///
    /// # Errors
    /// [`Error::Argument`] if `ranks` is not in `1..=8`; [`Error::NoGpu`] if there is no such Hopper GPU.
    pub fn virtual_ranks(gpu: usize, ranks: usize) -> Result<Self> {
        check::world_size(ranks)?;
        Ok(Self { machine: Rc::new(Machine::Gpu(gpu::GpuWorld::new(&vec![gpu; ranks])?)) })
    }

    /// One rank on each of `gpus`, by ordinal; an ordinal that stands several times gets several ranks, which share its
    /// SMs.
    ///
    /// # Errors
    /// [`Error::Argument`] if the number of ranks is not in `1..=8`; [`Error::NoGpu`] if a GPU is missing, is no Hopper GPU,
    /// or cannot reach another one's memory.
    pub fn local(gpus: &[usize]) -> Result<Self> {
        check::world_size(gpus.len())?;
        Ok(Self { machine: Rc::new(Machine::Gpu(gpu::GpuWorld::new(gpus)?)) })
    }

    /// Number of ranks.
    pub fn size(&self) -> usize {
        match &*self.machine {
            Machine::Emulated(world) => world.size(),
            Machine::Gpu(world) => world.size(),
        }
    }

    /// CTAs that `rank` can have running at once: its SMs.
    pub fn ctas(&self, rank: usize) -> u32 {
        match &*self.machine {
            Machine::Emulated(world) => world.ctas(),
            Machine::Gpu(world) => world.ctas(rank),
        }
    }

    /// What the world runs on, for people.
    pub fn describe(&self) -> String {
        match &*self.machine {
            Machine::Emulated(world) => world.describe(),
            Machine::Gpu(world) => world.describe(),
        }
    }

    /// Whether the world runs on GPUs.
    pub fn is_gpu(&self) -> bool {
        matches!(&*self.machine, Machine::Gpu(_))
    }

    /// Events of the emulated machine so far; `None` on GPUs, and unless the options asked for a trace.
    pub fn emulated_trace(&self) -> Option<Trace> {
        match &*self.machine {
            Machine::Emulated(world) => world.trace(),
            Machine::Gpu(_) => None,
        }
    }

    /// What the emulated machine did so far; `None` on GPUs.
    pub fn emulated_stats(&self) -> Option<RunStats> {
        match &*self.machine {
            Machine::Emulated(world) => Some(world.stats()),
            Machine::Gpu(_) => None,
        }
    }

    /// Writes emulated memory from the host, for tools and tests that spoil it.
    ///
    /// # Errors
    /// [`Error::Argument`] if the world runs on GPUs, [`Error::Emulator`] if the bytes lie outside every allocation.
    pub fn emulated_write(&self, addr: GlobalAddr, bytes: &[u8]) -> Result<()> {
        match &*self.machine {
            Machine::Emulated(world) => world.write(addr, bytes),
            Machine::Gpu(_) => {
                Err(Error::argument("world", self.describe(), "only emulated memory is written like this"))
            }
        }
    }

    /// The stream on which `rank`'s own calls run; `None` on the emulator.
    pub fn stream(&self, rank: usize) -> Option<RawStream> {
        match &*self.machine {
            Machine::Emulated(_) => None,
            Machine::Gpu(world) => Some(world.stream(rank)),
        }
    }

    /// Memory of `rank`, unwritten.
    ///
    /// # Errors
    /// [`Error::Driver`] if there is not enough.
    pub fn allocate(&self, rank: usize, bytes: u64) -> Result<Buffer> {
        self.check_rank(rank)?;
        let memory = match &*self.machine {
            Machine::Emulated(world) => Memory::Emulated(world.allocate(rank, bytes)?),
            Machine::Gpu(world) => Memory::Gpu(world.allocate(rank, bytes)?),
        };
        Ok(Buffer { memory, bytes })
    }

    /// Memory of the same size on every rank, which every rank can address.
    ///
    /// # Errors
    /// [`Error::Driver`] if there is not enough.
    pub fn symmetric(&self, bytes: u64) -> Result<SymmetricBuffer> {
        let buffers = (0..self.size()).map(|rank| self.allocate(rank, bytes)).collect::<Result<_>>()?;
        Ok(SymmetricBuffer { buffers })
    }

    /// Writes host bytes to `rank`'s memory and waits for it.
    ///
    /// # Errors
    /// [`Error::Driver`] if the copy fails.
    pub(crate) fn write(&self, rank: usize, addr: GlobalAddr, bytes: &[u8]) -> Result<()> {
        match &*self.machine {
            Machine::Emulated(world) => world.write(addr, bytes),
            Machine::Gpu(world) => world.write(rank, addr, bytes),
        }
    }

    /// Fills `rank`'s memory with `word`, as [`Self::write`] does.
    ///
    /// # Errors
    /// [`Error::Driver`] if a copy fails.
    pub(crate) fn fill(&self, rank: usize, addr: GlobalAddr, bytes: u64, word: u32) -> Result<()> {
        const AT_ONCE: u64 = 1 << 20;
        let words = vec![word; (bytes.min(AT_ONCE) / 4) as usize];
        let mut off = 0;
        while off < bytes {
            let len = (bytes - off).min(AT_ONCE);
            self.write(rank, addr.plus(off), bytemuck::cast_slice(&words[..(len / 4) as usize]))?;
            off += len;
        }
        Ok(())
    }

    /// Reads `rank`'s memory, after everything on the rank's stream.
    ///
    /// # Errors
    /// [`Error::Driver`] if the copy fails.
    pub(crate) fn read(&self, rank: usize, addr: GlobalAddr, bytes: &mut [u8]) -> Result<()> {
        match &*self.machine {
            Machine::Emulated(world) => world.read(addr, bytes),
            Machine::Gpu(world) => world.read(rank, addr, bytes),
        }
    }

    /// Makes `entry` ready on every rank, and checks that a rank's CTAs can all run at once.
    pub(crate) fn load(&self, entry: &'static Entry) -> Result<()> {
        match &*self.machine {
            Machine::Emulated(_) => Ok(()),
            Machine::Gpu(world) => world.load(entry),
        }
    }

    /// Loads `text` as the kernel of the entry `name`, for plans that are built later: for tests of kernels that are wrong
    /// on purpose, which no source that compiles can give.
    ///
    /// # Errors
    /// [`Error::Argument`] if there is no such entry or the world is emulated, [`Error::Driver`] if the text does not
    /// compile.
    ///
    /// # Safety
    /// What the kernel of `text` does wrong must stay within the call.
    #[doc(hidden)]
    pub unsafe fn load_instead(&self, name: &str, text: &str) -> Result<()> {
        let entry = ENTRIES.iter().find(|entry| entry.name == name);
        match (&*self.machine, entry) {
            (Machine::Gpu(world), Some(entry)) => world.load_text(entry, text),
            (Machine::Emulated(_), _) => Err(Error::argument("world", self.describe(), "it runs kernels from source")),
            (_, None) => Err(Error::argument("kernel", name, "there is no such entry")),
        }
    }

    /// Launches one kernel on each of several ranks, on `streams[rank]` or the ranks' own streams.
    ///
    /// # Safety
    /// The arguments and maps describe memory that stays valid until the kernels have ended.
    pub(crate) unsafe fn launch<'a, Args: EmulatedArgs>(
        &self,
        launches: impl IntoIterator<Item = &'a RankLaunch<Args>>,
        streams: Option<&[RawStream]>,
    ) -> Result<()> {
        match &*self.machine {
            Machine::Emulated(world) => launches.into_iter().try_for_each(|launch| world.launch(launch)),
            // SAFETY: the caller's.
            Machine::Gpu(world) => unsafe { world.launch(launches, streams) },
        }
    }

    /// Waits for the ranks' own streams; on the emulator, runs what was launched.
    ///
    /// # Errors
    /// [`Error::Driver`] if a kernel failed, [`Error::Emulator`] if one broke a rule of the machine.
    pub fn synchronize(&self) -> Result<()> {
        match &*self.machine {
            Machine::Emulated(world) => world.run(),
            Machine::Gpu(world) => world.synchronize(),
        }
    }

    /// New fault records, empty.
    pub(crate) fn fault_records(&self) -> Result<FaultRecords> {
        Ok(match &*self.machine {
            Machine::Emulated(world) => FaultRecords::Emulated(world.new_records()?),
            Machine::Gpu(world) => FaultRecords::Gpu(world.new_records()?),
        })
    }

    /// Waits for everything that runs on the ranks' GPUs, on whatever stream; on the emulator, runs what was launched.
    ///
    /// # Errors
    /// As [`Self::synchronize`].
    pub(crate) fn quiesce(&self) -> Result<()> {
        match &*self.machine {
            Machine::Emulated(world) => world.run(),
            Machine::Gpu(world) => world.quiesce(),
        }
    }

    /// The fault that ranks recorded: of those that waited for another CTA or rank, or else of all, the one that waited
    /// longest. Without a record if ranks gave up and none says why.
    pub(crate) fn fault(&self, op: &'static str, records: &FaultRecords) -> Result<Option<Fault>> {
        let records = match (&*self.machine, records) {
            (Machine::Emulated(world), FaultRecords::Emulated(records)) => world.read_records(records)?,
            (_, FaultRecords::Gpu(records)) => records.iter().map(MappedHost::read).collect(),
            (Machine::Gpu(_), FaultRecords::Emulated(_)) => Vec::new(),
        };
        let is_remote = |r: &FaultRecord| WaitKind::from_code(r.kind).is_some_and(WaitKind::is_remote);
        let worst = records.iter().filter(|r| r.state != 0).max_by_key(|r| (is_remote(r), r.elapsed_ns));
        let aborted = records.iter().any(|r| r.aborted != 0);
        Ok((worst.is_some() || aborted).then(|| Fault { op, record: worst.copied() }))
    }

    /// Empties the records.
    pub(crate) fn clear_faults(&self, records: &FaultRecords) -> Result<()> {
        match (&*self.machine, records) {
            (Machine::Emulated(world), FaultRecords::Emulated(records)) => world.clear_records(records)?,
            (_, FaultRecords::Gpu(records)) => records.iter().for_each(|r| r.write(FaultRecord::default())),
            (Machine::Gpu(_), FaultRecords::Emulated(_)) => {}
        }
        Ok(())
    }

    fn check_rank(&self, rank: usize) -> Result<()> {
        if rank >= self.size() {
            return Err(Error::argument("rank", rank, format!("the world has {} ranks", self.size())));
        }
        Ok(())
    }
}
