//! What tests of the ops on one GPU share: a call that can be launched and waited for apart, and ranks held back.
#![allow(dead_code, reason = "each test program uses a part")]

use std::time::{Duration, Instant};

use half::bf16;
use tilewire::driver::{Gpu, HostVisible, MappedHost, Stream, raw_memory};
use tilewire::kernels::shape::GlobalAddr;
use tilewire::matrix::Matrix;
use tilewire::ops::{GemmReduceScatter, RankMatrices};
use tilewire::world::{RawStream, Tensor, World};
use tilewire::{Error, Variant};

use crate::common::{TestResult, text};
use suite::{Case, Operands, bits, check, uniform};

/// Every element of every rank's D, as bytes.
pub type Bits = Vec<Vec<u8>>;

/// Ranks on the first GPU.
pub fn virtual_ranks(ranks: usize) -> Result<World, String> {
    World::virtual_ranks(0, ranks).map_err(text)
}

/// The stream on which a world runs `rank`.
pub fn stream_of(world: &World, gpu: &Gpu, rank: usize) -> Result<Stream, String> {
    let RawStream(raw) = world.stream(rank).ok_or("a GPU world has streams")?;
    // SAFETY: tests keep the world as long as its streams.
    unsafe { Stream::from_raw(gpu, raw.cast()) }.map_err(text)
}

/// A plan with its operands and results.
pub struct Job {
    pub world: World,
    pub case: Case,
    pub plan: GemmReduceScatter,
    pub operands: Operands<bf16>,
    pub d: Vec<Tensor>,
}

impl Job {
    pub fn new(world: &World, case: Case, deadline: Duration) -> Result<Self, String> {
        let go = || -> Result<Self, Error> {
            let builder = GemmReduceScatter::builder(world)
                .shape(case.m, case.n, case.k)
                .variant(Variant { layout: case.layout, ..Variant::default() })
                .transport(case.transport)
                .placement(case.placement)
                .sm_margin(case.sm_margin)
                .first_epoch(case.first_epoch)
                .deadline(deadline);
            let plan = case.tile.into_iter().fold(builder, |builder, tile| builder.tile(tile)).build()?;
            let operands = Operands::new(world, &case, uniform)?;
            let d = (0..world.size())
                .map(|rank| Tensor::poisoned::<bf16>(world, rank, plan.rows_of(case.m, rank), case.n))
                .collect::<Result<_, _>>()?;
            Ok(Self { world: world.clone(), case, plan, operands, d })
        };
        go().map_err(|e| format!("{case:?}: {e}"))
    }

    /// Enqueues the call on every rank, on the world's streams or on `streams`. Waits for nothing.
    pub fn launch(&self, streams: Option<&[RawStream]>) -> Result<(), Error> {
        let Operands { a_tensors, b_tensors, .. } = &self.operands;
        let matrices: Vec<_> = (0..self.world.size())
            .map(|r| RankMatrices { a: a_tensors[r].arg(), b: b_tensors[r].arg(), d: self.d[r].arg() })
            .collect();
        // SAFETY: the tensors live as long as `self`, and every test waits for its calls.
        unsafe { self.plan.launch(self.case.m, &matrices, streams) }
    }

    /// One whole call on poisoned results.
    pub fn call(&mut self) -> Result<Bits, String> {
        self.poison()?;
        self.launch(None).and_then(|()| self.plan.finish()).map_err(text)?;
        self.bits()
    }

    pub fn poison(&mut self) -> TestResult {
        self.d.iter_mut().try_for_each(Tensor::poison).map_err(text)
    }

    pub fn results(&self) -> Result<Vec<Matrix<bf16>>, String> {
        let matrix = |d: &Tensor| Matrix::from_vec(d.rows(), d.cols(), d.to_vec::<bf16>()?);
        self.d.iter().map(matrix).collect::<Result<_, _>>().map_err(text)
    }

    pub fn bits(&self) -> Result<Bits, String> {
        Ok(bits(&self.results()?))
    }

    /// Compares the results that are there now with the truth.
    pub fn check(&self) -> TestResult {
        check(&self.case, &self.operands, &self.results()?)
    }

    /// Other operands in the same memory.
    pub fn refill(&mut self, gpu: &Gpu, seed: usize) -> TestResult {
        let stream = Stream::new(gpu).map_err(text)?;
        let Operands { a, b, a_tensors, b_tensors } = &mut self.operands;
        for (rank, (matrix, tensor)) in (a.iter_mut().zip(a_tensors)).chain(b.iter_mut().zip(b_tensors)).enumerate() {
            *matrix = uniform(matrix.rows(), matrix.cols(), 1000 * seed + rank);
            if tensor.arg().row_stride != matrix.cols() as u64 {
                return Err(format!("{} columns are not packed", matrix.cols()));
            }
            let bytes = bytemuck::cast_slice(matrix.data());
            // SAFETY: the tensor has as many bytes, and no call runs.
            unsafe { raw_memory::write(&stream, GlobalAddr(tensor.arg().addr), bytes) }.map_err(text)?;
        }
        Ok(())
    }
}

/// Holds one rank's stream back. Opens for good when dropped: nothing that is waited for later can hang on it.
pub struct Gate {
    word: MappedHost<u32>,
    stream: Stream,
}

impl Gate {
    pub fn new(world: &World, gpu: &Gpu, rank: usize) -> Result<Self, String> {
        Ok(Self { word: MappedHost::new(gpu, 0).map_err(text)?, stream: stream_of(world, gpu, rank)? })
    }

    /// What is enqueued next on the rank's stream waits for turn `turn`.
    pub fn close(&self, turn: u32) -> TestResult {
        // SAFETY: the word outlives the wait, which `drop` waits for.
        unsafe { self.stream.wait_value(self.word.addr(), turn) }.map_err(text)
    }

    /// Lets everything up to turn `turn` pass.
    pub fn open(&self, turn: u32) {
        self.word.write(turn);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.word.write(i32::MAX as u32);
        // A stream that failed has stopped: it holds nothing any more.
        let _ = self.stream.synchronize();
    }
}

/// Waits until `streams` are idle, `limit` at most; how long it took.
pub fn idle_within(streams: &[Stream], since: Instant, limit: Duration) -> Result<Duration, String> {
    loop {
        let idle = streams.iter().map(Stream::is_idle).collect::<Result<Vec<_>, _>>().map_err(text)?;
        let elapsed = since.elapsed();
        if idle.iter().all(|idle| *idle) {
            return Ok(elapsed);
        }
        if elapsed > limit {
            return Err(format!("after {elapsed:?} streams are idle as {idle:?}; all should be within {limit:?}"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Writes one word of `rank`'s memory, after everything on its stream.
pub fn write_word<T: HostVisible + bytemuck::NoUninit>(
    world: &World,
    gpu: &Gpu,
    rank: usize,
    addr: GlobalAddr,
    value: T,
) -> TestResult {
    let stream = stream_of(world, gpu, rank)?;
    // SAFETY: tests pass addresses of words in live workspaces.
    unsafe { raw_memory::write(&stream, addr, bytemuck::bytes_of(&value)) }.map_err(text)
}

/// Reads one word of `rank`'s memory, after everything on its stream.
pub fn read_word(world: &World, gpu: &Gpu, rank: usize, addr: GlobalAddr) -> Result<u32, String> {
    let (stream, mut bytes) = (stream_of(world, gpu, rank)?, [0; 4]);
    // SAFETY: tests pass addresses of words in live workspaces.
    unsafe { raw_memory::read(&stream, addr, &mut bytes) }.map_err(text)?;
    Ok(u32::from_ne_bytes(bytes))
}
