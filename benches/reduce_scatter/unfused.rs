//! What the fused op is compared with: the product alone, and the product followed by NCCL's reduce-scatter.

use std::rc::Rc;

use half::bf16;
use tilewire::driver::cublaslt::{CublasLt, GemmPlan, GemmShape, Layout};
use tilewire::driver::nccl::Communicators;
use tilewire::driver::{DeviceBuffer, Event, Gpu, Stream};
use tilewire::kernels::config::Element;
use tilewire::matrix::Matrix;
use tilewire::measure::Candidate;
use tilewire::ops::{Gemm, RankMatrices};
use tilewire::{MatrixArg, Result, data};

use crate::fused::against_truth;
use crate::ranks::Ranks;
use crate::support::operands::Operands;

/// The path that the fused op replaces.
pub const PATH: &str = "cublaslt, then nccl";

/// Pieces in which the path may be cut, so that a piece travels while the next is multiplied.
const PIECES: [usize; 2] = [2, 4];

/// Products and collectives of one shape.
pub struct Unfused {
    m: usize,
    /// By rank; on one GPU, the one product over all of K.
    products: Vec<Product>,
    /// Our product on each rank of a GPU of its own.
    ours: Vec<Gemm>,
    nccl: Option<Nccl>,
}

/// cuBLASLt on one GPU, the whole width or a piece of it.
struct Product {
    plan: GemmPlan,
    pieces: Vec<GemmPlan>,
    partial: DeviceBuffer,
    /// Operands over all of K, where ranks share the GPU.
    whole: Option<[DeviceBuffer; 2]>,
}

struct Nccl {
    communicators: Rc<Communicators>,
    /// By rank: where pieces travel, and what it waits for.
    sides: Vec<(Stream, Event, Event)>,
}

impl Unfused {
    pub fn new(ranks: &Ranks, extents: [usize; 3], operands: &[Operands]) -> Result<Self> {
        let [m, n, k] = ranks.on_one_gpu(extents);
        let mut products = Vec::new();
        for (at, gpu) in ranks.gpus.iter().enumerate() {
            let whole = if ranks.is_real() { None } else { Some(side_by_side(gpu, operands)?) };
            products.push(Product::new(gpu, &ranks.streams[at], [m, n, k], whole, &operands[at])?);
        }
        let (mut ours, mut nccl) = (Vec::new(), None);
        if ranks.is_real() {
            for rank in 0..ranks.size() {
                ours.push(Gemm::builder(&ranks.world, rank).shape(m, n, k).build()?);
            }
        }
        if let Some(communicators) = &ranks.nccl {
            let side = |gpu| Ok((Stream::high_priority(gpu)?, Event::new(gpu)?, Event::new(gpu)?));
            let sides = ranks.gpus.iter().map(side).collect::<Result<Vec<_>>>()?;
            nccl = Some(Nccl { communicators: Rc::clone(communicators), sides });
        }
        Ok(Self { m, products, ours, nccl })
    }

    /// Everything as something to time. Names that begin with `gemm` move nothing.
    pub fn candidates<'a>(&'a self, ranks: &'a Ranks, calls: usize, operands: &'a [Operands]) -> Vec<Candidate<'a>> {
        let mut all = Vec::new();
        let name = if ranks.is_real() { "gemm cublaslt" } else { "gemm cublaslt, whole K on the whole GPU" };
        all.push(Candidate::direct(name, calls, move |call| {
            (0..self.products.len()).try_for_each(|at| self.products[at].whole(ranks, at, &operands[at], call))
        }));
        if ranks.is_real() {
            all.push(Candidate::direct("gemm tilewire", calls, move |call| self.ours(operands, call)));
        }
        if let Some(nccl) = &self.nccl {
            all.push(Candidate::direct(PATH, calls, move |call| self.path(nccl, ranks, operands, call)));
            for (at, pieces) in PIECES.into_iter().enumerate() {
                let name = format!("{PATH}, {pieces} pieces on two streams");
                all.push(Candidate::direct(name, calls, move |call| self.cut(nccl, at, ranks, operands, call)));
            }
        }
        all
    }

    fn ours(&self, operands: &[Operands], call: usize) -> Result<()> {
        for (at, gemm) in self.ours.iter().enumerate() {
            let [a, b, _] = operands[at].args(call);
            let d = MatrixArg::packed(self.products[at].partial.addr().0, operands[at].extents[1]);
            // SAFETY: the operands have the plan's shape and the partial is m × n; the bench waits before it drops them.
            unsafe { gemm.launch(self.m, &RankMatrices { a, b, d }, None)? };
        }
        Ok(())
    }

    fn path(&self, nccl: &Nccl, ranks: &Ranks, operands: &[Operands], call: usize) -> Result<()> {
        for (at, product) in self.products.iter().enumerate() {
            product.whole(ranks, at, &operands[at], call)?;
        }
        let n = operands[0].extents[1];
        self.reduce_scatter(nccl, operands, call, 0, n, &|rank| &ranks.streams[rank])
    }

    /// The product in pieces of columns: a piece travels on the side stream while the next is multiplied. The result stays
    /// in pieces; that it would have to be put together is not charged.
    fn cut(&self, nccl: &Nccl, at: usize, ranks: &Ranks, operands: &[Operands], call: usize) -> Result<()> {
        let [m, n, k] = operands[0].extents;
        let (pieces, cols) = (PIECES[at], n / PIECES[at]);
        for piece in 0..pieces {
            for (rank, product) in self.products.iter().enumerate() {
                let (main, (side, done, _)) = (&ranks.streams[rank], &nccl.sides[rank]);
                let [a, b, _] = operands[rank].set(call);
                let b = b.addr_at(piece * cols * k * 2)?;
                let partial = product.partial.addr_at(piece * cols * m * 2)?;
                // SAFETY: a piece of B's rows, and of the partial, is inside; the bench waits before it drops them.
                unsafe { product.pieces[at].run(main, a.addr(), b, partial)? };
                done.record(main)?;
                side.wait(done)?;
            }
            self.reduce_scatter(nccl, operands, call, piece * cols, cols, &|rank| &nccl.sides[rank].0)?;
        }
        for (rank, (side, _, joined)) in nccl.sides.iter().enumerate() {
            joined.record(side)?;
            ranks.streams[rank].wait(joined)?;
        }
        Ok(())
    }

    /// Scatters `cols` columns of the partials, which lie packed behind `first_col` columns, to the ranks' results.
    fn reduce_scatter<'s>(
        &self,
        nccl: &Nccl,
        operands: &[Operands],
        call: usize,
        first_col: usize,
        cols: usize,
        stream: &dyn Fn(usize) -> &'s Stream,
    ) -> Result<()> {
        let rows = self.m / self.products.len();
        nccl.communicators.group(|| {
            for (rank, product) in self.products.iter().enumerate() {
                let send = product.partial.addr_at(first_col * self.m * 2)?;
                let receive = operands[rank].set(call)[2].addr_at(first_col * rows * 2)?;
                // SAFETY: m × cols elements are sent and a chunk of them received, inside both buffers, which the bench
                // keeps until it has waited; all ranks are in this group.
                unsafe {
                    nccl.communicators.reduce_scatter(rank, send, receive, rows * cols, Element::Bf16, stream(rank))?;
                }
            }
            Ok(())
        })
    }

    /// Runs the product, and the path where there is one, and compares with the truth.
    pub fn check(&self, ranks: &Ranks, operands: &mut [Operands]) -> Result<()> {
        ranks.world.synchronize()?;
        operands.iter_mut().try_for_each(Operands::poison)?;
        let world = ranks.size();
        match &self.nccl {
            Some(nccl) => {
                self.path(nccl, ranks, operands, 0)?;
                ranks.world.synchronize()?;
                let rows = self.m / world;
                let chunks = operands.iter().map(|o| o.result(rows)).collect::<Result<Vec<_>>>()?;
                // NCCL rounds after every addition.
                against_truth(operands, &chunks, world as f64)
            }
            // A shard's product is checked as part of the path only.
            None if ranks.is_real() => Ok(()),
            None => {
                self.products[0].whole(ranks, 0, &operands[0], 0)?;
                ranks.world.synchronize()?;
                let n = operands[0].extents[1];
                let values: Vec<bf16> = self.products[0].partial.to_vec()?;
                let mut chunks = Vec::new();
                for chunk in tilewire::reference::chunks_of(self.m, world)? {
                    let first = chunk.first_row as usize * n;
                    let part = values[first..][..chunk.rows as usize * n].to_vec();
                    chunks.push(Matrix::from_vec(chunk.rows as usize, n, part)?);
                }
                against_truth(operands, &chunks, 1.0)
            }
        }
    }
}

impl Product {
    fn new(
        gpu: &Gpu,
        stream: &Stream,
        [m, n, k]: [usize; 3],
        whole: Option<[DeviceBuffer; 2]>,
        operands: &Operands,
    ) -> Result<Self> {
        let lt = CublasLt::new(gpu)?;
        let shape = |n: usize| {
            let (m, n, k) = (m as u64, n as u64, k as u64);
            GemmShape { layout: Layout::Nt, m, n, k, input: Element::Bf16, output: Element::Bf16 }
        };
        let partial = DeviceBuffer::filled(gpu, m * n * 2, 0xFF)?;
        let (mut plan, mut pieces) = (lt.plan(&shape(n))?, Vec::new());
        let [a, b] = match &whole {
            Some([a, b]) => [a, b],
            None => [&operands.set(0)[0], &operands.set(0)[1]],
        };
        // SAFETY: the operands have the plan's shape, and the stream is waited for below.
        unsafe { plan.select_fastest(stream, a.addr(), b.addr(), partial.addr(), 5)? };
        if whole.is_none() {
            for count in PIECES {
                let mut piece = lt.plan(&shape(n / count))?;
                // SAFETY: as above; a piece needs less.
                unsafe { piece.select_fastest(stream, a.addr(), b.addr(), partial.addr(), 5)? };
                pieces.push(piece);
            }
        }
        stream.synchronize()?;
        Ok(Self { plan, pieces, partial, whole })
    }

    /// The whole product, into the partial.
    fn whole(&self, ranks: &Ranks, at: usize, operands: &Operands, call: usize) -> Result<()> {
        let [a, b] = match &self.whole {
            Some([a, b]) => [a, b],
            None => {
                let [a, b, _] = operands.set(call);
                [a, b]
            }
        };
        // SAFETY: the operands have the plan's shape; the bench waits before it drops them. The plan is used in this stream
        // only.
        unsafe { self.plan.run(&ranks.streams[at], a.addr(), b.addr(), self.partial.addr()) }
    }
}

/// The ranks' shards as the operands over all of K.
fn side_by_side(gpu: &Gpu, operands: &[Operands]) -> Result<[DeviceBuffer; 2]> {
    let a = data::side_by_side(&operands.iter().map(|o| o.a.view()).collect::<Vec<_>>())?;
    let b = data::side_by_side(&operands.iter().map(|o| o.b.view()).collect::<Vec<_>>())?;
    Ok([DeviceBuffer::from_slice(gpu, a.data())?, DeviceBuffer::from_slice(gpu, b.data())?])
}
