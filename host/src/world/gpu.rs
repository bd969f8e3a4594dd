//! Ranks on GPUs: several on one, one on each of several, or both.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

use super::RawStream;
use crate::driver::{
    DeviceBuffer, Function, Gpu, LaunchShape, MappedHost, Module, Stream, launch, launch_raw, raw_memory, tensor_map,
};
use crate::error::{Error, Result};
use crate::kernels::abi::{FaultRecord, Launch, TensorMap};
use crate::kernels::entries::Entry;
use crate::kernels::shape::GlobalAddr;
use crate::plan::RankLaunch;
use crate::plan::operand::MapSpec;
use crate::ptx;

/// Ranks on GPUs of this process.
pub struct GpuWorld {
    ranks: Vec<GpuRank>,
    gpus: Vec<Gpu>,
    streams: Rc<Vec<Stream>>,
    /// Loaded kernels by entry name, one for each of `gpus`.
    loaded: RefCell<HashMap<&'static str, Vec<Function>>>,
}

struct GpuRank {
    /// Index into `gpus`.
    gpu: usize,
    /// SMs of the rank.
    ctas: u32,
}

/// Whether a kernel may start before the one ahead of it has ended: it must know that it may; it must leave no SM to others, since
/// it would take those while it waits; and a driver before CUDA 12.3 cannot capture such a launch.
fn may_overlap(entry: &Entry, num_ctas: u32, gpu: &Gpu) -> bool {
    entry.overlaps_previous && num_ctas >= gpu.sm_count() && gpu.facts().driver_version >= 12_030
}

/// Device memory of one rank.
pub struct GpuMemory {
    buffer: DeviceBuffer,
    streams: Rc<Vec<Stream>>,
}

impl GpuMemory {
    pub fn addr(&self) -> GlobalAddr {
        self.buffer.addr()
    }
}

impl Drop for GpuMemory {
    fn drop(&mut self) {
        // Kernels of any rank may still use it. A stream that failed has stopped, and says so to whoever waits for it.
        for stream in self.streams.iter() {
            let _ = stream.synchronize();
        }
    }
}

impl fmt::Debug for GpuMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GpuMemory({:#x})", self.addr().0)
    }
}

impl fmt::Debug for GpuWorld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GpuWorld({})", self.describe())
    }
}

impl GpuWorld {
    /// One rank for each element of `ordinals`.
    pub fn new(ordinals: &[usize]) -> Result<Self> {
        let mut gpus: Vec<Gpu> = Vec::new();
        let mut places = Vec::with_capacity(ordinals.len());
        for ordinal in ordinals {
            let at = match gpus.iter().position(|gpu| gpu.ordinal() == *ordinal) {
                Some(at) => at,
                None => {
                    gpus.push(Gpu::open(*ordinal)?);
                    gpus.len() - 1
                }
            };
            places.push(at);
        }
        for from in &gpus {
            for to in gpus.iter().filter(|to| to.ordinal() != from.ordinal()) {
                from.enable_peer_access(to)?;
            }
        }
        let (mut ranks, mut streams) = (Vec::new(), Vec::new());
        for at in &places {
            let sharers = places.iter().filter(|p| *p == at).count() as u32;
            let ctas = gpus[*at].sm_count() / sharers;
            ranks.push(GpuRank { gpu: *at, ctas });
            streams.push(Stream::new(&gpus[*at])?);
        }
        Ok(Self { ranks, gpus, streams: Rc::new(streams), loaded: RefCell::default() })
    }

    pub fn size(&self) -> usize {
        self.ranks.len()
    }

    pub fn ctas(&self, rank: usize) -> u32 {
        self.ranks[rank].ctas
    }

    pub fn describe(&self) -> String {
        let names: Vec<String> = self
            .gpus
            .iter()
            .enumerate()
            .map(|(at, gpu)| {
                let ranks = self.ranks.iter().filter(|r| r.gpu == at).count();
                format!("{ranks} rank(s) on GPU {} ({}, {} SMs)", gpu.ordinal(), gpu.facts().name, gpu.sm_count())
            })
            .collect();
        names.join(", ")
    }

    pub fn stream(&self, rank: usize) -> RawStream {
        RawStream(self.streams[rank].raw().cast())
    }

    fn gpu(&self, rank: usize) -> &Gpu {
        &self.gpus[self.ranks[rank].gpu]
    }

    pub fn allocate(&self, rank: usize, bytes: u64) -> Result<GpuMemory> {
        let bytes =
            usize::try_from(bytes).map_err(|_| Error::argument("bytes", bytes, "it must fit the address space"))?;
        Ok(GpuMemory { buffer: DeviceBuffer::new(self.gpu(rank), bytes)?, streams: Rc::clone(&self.streams) })
    }

    pub fn write(&self, rank: usize, addr: GlobalAddr, bytes: &[u8]) -> Result<()> {
        // SAFETY: callers pass addresses of live allocations of at least this many bytes.
        unsafe { raw_memory::write(&self.streams[rank], addr, bytes) }
    }

    pub fn read(&self, rank: usize, addr: GlobalAddr, bytes: &mut [u8]) -> Result<()> {
        // SAFETY: callers pass addresses of live allocations of at least this many bytes.
        unsafe { raw_memory::read(&self.streams[rank], addr, bytes) }
    }

    /// Loads `entry` on every GPU, and checks that one of its CTAs fits an SM: then a rank's CTAs, no more than its SMs,
    /// all run at once.
    pub fn load(&self, entry: &'static Entry) -> Result<()> {
        if self.loaded.borrow().contains_key(entry.name) {
            return Ok(());
        }
        let text = ptx::only(entry)?;
        self.load_text(entry, &text)
    }

    /// Loads `text` as the kernel of `entry`.
    pub fn load_text(&self, entry: &'static Entry, text: &str) -> Result<()> {
        let functions = self
            .gpus
            .iter()
            .map(|gpu| {
                let function = Module::load(gpu, text)?.entry(entry)?;
                let fit = function.max_ctas_per_sm(entry.threads, entry.smem_bytes)?;
                if fit == 0 {
                    return Err(Error::NoGpu {
                        found: format!("{} fits no CTA of {}", gpu.facts().name, entry.name),
                        needed: "one CTA of the kernel on every SM, since CTAs wait for each other".to_string(),
                    });
                }
                Ok(function)
            })
            .collect::<Result<Vec<_>>>()?;
        self.loaded.borrow_mut().insert(entry.name, functions);
        Ok(())
    }

    /// # Safety
    /// As `World::launch`.
    pub unsafe fn launch<'a, Args: Copy + 'static>(
        &self,
        launches: impl IntoIterator<Item = &'a RankLaunch<Args>>,
        streams: Option<&[RawStream]>,
    ) -> Result<()> {
        let loaded = self.loaded.borrow();
        for (at, given) in launches.into_iter().enumerate() {
            let functions = loaded
                .get(given.entry.name)
                .ok_or_else(|| Error::argument("kernel", given.entry.name, "the plan loads it when it is built"))?;
            let gpu = self.gpu(given.rank);
            let maps = [
                encode(gpu, "A", &given.maps[0])?,
                encode(gpu, "B", &given.maps[1])?,
                encode(gpu, "D", &given.maps[2])?,
                encode(gpu, "C", &given.maps[3])?,
            ];
            let param = Launch { maps, args: given.args };
            let function = &functions[self.ranks[given.rank].gpu];
            let mut shape = LaunchShape::of_entry(given.entry, given.num_ctas);
            shape.overlaps_previous = given.overlaps_previous && may_overlap(given.entry, given.num_ctas, gpu);
            // SAFETY: the parameter has the layout that the entry declares; the caller vouches for its addresses and
            // streams.
            unsafe {
                match streams {
                    None => launch(function, &shape, &param, &self.streams[given.rank])?,
                    Some(streams) => {
                        let raw = streams.get(at).ok_or_else(|| {
                            Error::argument("number of streams", streams.len(), "there is one for each rank")
                        })?;
                        launch_raw(function, &shape, &param, raw.0.cast())?;
                    }
                }
            }
        }
        Ok(())
    }

    pub fn synchronize(&self) -> Result<()> {
        self.streams.iter().try_for_each(Stream::synchronize)
    }

    /// Waits for all streams of the ranks' GPUs, those of others among them.
    pub fn quiesce(&self) -> Result<()> {
        self.gpus.iter().try_for_each(Gpu::synchronize)
    }

    pub fn new_records(&self) -> Result<Vec<MappedHost<FaultRecord>>> {
        self.ranks.iter().map(|rank| MappedHost::new(&self.gpus[rank.gpu], FaultRecord::default())).collect()
    }
}

fn encode(gpu: &Gpu, name: &str, spec: &Option<MapSpec>) -> Result<TensorMap> {
    let Some(spec) = spec else { return Ok(TensorMap::UNUSED) };
    tensor_map::encode(
        gpu,
        &tensor_map::Matrix {
            name,
            base: GlobalAddr(spec.addr),
            rows: spec.rows.into(),
            cols: spec.cols.into(),
            row_stride_bytes: spec.row_stride_bytes,
            element: spec.element,
            box_rows: spec.tile_box.rows,
            box_row_bytes: spec.box_row_bytes,
            fetch_bytes: spec.fetch as u32,
        },
    )
}
