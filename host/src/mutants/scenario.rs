//! One small call of a kernel on the emulator, with random operands.

use std::time::Duration;

use half::bf16;

use crate::data;
use crate::emulator::{Delay, EmulatorError, EmulatorOptions, Plant, RunStats, Trace};
use crate::error::{Error, Result};
use crate::kernels::abi::{Placement, Transport};
use crate::kernels::shape::Rank;
use crate::ops::{Gemm, GemmReduceScatter, RankMatrices};
use crate::plan::SplitK;
use crate::world::{EmulatedOptions, Tensor, World};

/// Which kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScenarioKernel {
    /// Plain GEMM.
    Gemm,
    /// Plain GEMM by consumers in turns.
    GemmInTurns,
    /// GEMM + ReduceScatter.
    GemmReduceScatter,
    /// GEMM + ReduceScatter by consumers in turns.
    GemmReduceScatterInTurns,
}

impl ScenarioKernel {
    /// Whether several ranks take part.
    pub const fn has_ranks(self) -> bool {
        matches!(self, Self::GemmReduceScatter | Self::GemmReduceScatterInTurns)
    }
}

/// A call, or several in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// The kernel.
    pub kernel: ScenarioKernel,
    /// Rows of A.
    pub m: usize,
    /// Columns of the result.
    pub n: usize,
    /// Columns of A on each rank.
    pub k: usize,
    /// Ranks.
    pub world: usize,
    /// How tiles get to their owners.
    pub transport: Transport,
    /// Where partials are added.
    pub placement: Placement,
    /// CTAs of each rank that compute nothing.
    pub sm_margin: u32,
    /// CTAs of each rank.
    pub ctas: u32,
    /// Calls, enqueued without waiting for each other.
    pub calls: usize,
    /// A rank that is held back, and how.
    pub delay: Option<(u32, Delay)>,
}

/// How a scenario ended.
#[derive(Debug)]
pub struct Outcome {
    /// The broken rule, if there is one.
    pub violation: Option<EmulatorError>,
    /// What was done.
    pub stats: RunStats,
    /// The events, if the options asked for them.
    pub trace: Option<Trace>,
    /// D of every rank, row by row; empty after a violation.
    pub d: Vec<Vec<bf16>>,
}

impl Scenario {
    /// A plain GEMM on one CTA.
    pub const fn gemm(m: usize, n: usize, k: usize) -> Self {
        Self {
            kernel: ScenarioKernel::Gemm,
            m,
            n,
            k,
            world: 1,
            transport: Transport::Push,
            placement: Placement::Epilogue,
            sm_margin: 0,
            ctas: 1,
            calls: 1,
            delay: None,
        }
    }

    /// GEMM + ReduceScatter over `world` ranks of one CTA, push and epilogue.
    pub const fn reduce_scatter(world: usize, m: usize, n: usize, k: usize) -> Self {
        Self { kernel: ScenarioKernel::GemmReduceScatter, world, ..Self::gemm(m, n, k) }
    }

    /// By consumers in turns.
    pub const fn in_turns(self) -> Self {
        let kernel = if self.kernel.has_ranks() {
            ScenarioKernel::GemmReduceScatterInTurns
        } else {
            ScenarioKernel::GemmInTurns
        };
        Self { kernel, ..self }
    }

    /// With so many calls in a row.
    pub const fn calls(self, calls: usize) -> Self {
        Self { calls, ..self }
    }

    /// With a rank held back.
    pub const fn delayed(self, rank: u32, delay: Delay) -> Self {
        Self { delay: Some((rank, delay)), ..self }
    }

    /// Over this transport with this placement, on `ctas` CTAs of which `sm_margin` compute nothing.
    pub const fn over(self, transport: Transport, placement: Placement, ctas: u32, sm_margin: u32) -> Self {
        Self { transport, placement, ctas, sm_margin, ..self }
    }

    /// Runs it, with a fault or none.
    ///
    /// # Errors
    /// [`Error::Argument`] if the shape cannot run. A broken rule of the machine is an [`Outcome`].
    pub fn run(&self, mut emulator: EmulatorOptions, plant: Option<Plant>) -> Result<Outcome> {
        emulator.delays.extend(self.delay.map(|(rank, delay)| (Rank(rank), delay)));
        let world = World::emulated_with(self.world, EmulatedOptions { ctas_per_rank: self.ctas, emulator, plant })?;
        let run = match self.kernel {
            ScenarioKernel::Gemm => self.run_gemm(&world, [128, 256]),
            ScenarioKernel::GemmInTurns => self.run_gemm(&world, [128, 192]),
            ScenarioKernel::GemmReduceScatter => {
                // The tiles of few rows, or the main one; never that of the kernel below, whatever the plan would choose.
                let has_few_rows = self.m <= 128.max(64 * self.world);
                self.run_reduce_scatter(&world, (!has_few_rows).then_some([128, 256]))
            }
            ScenarioKernel::GemmReduceScatterInTurns => self.run_reduce_scatter(&world, Some([128, 192])),
        };
        let (violation, d) = match run {
            Ok(d) => (None, d),
            Err(Error::Emulator(violation)) => (Some(violation), Vec::new()),
            Err(other) => return Err(other),
        };
        let stats = world.emulated_stats().unwrap_or_default();
        Ok(Outcome { violation, stats, trace: world.emulated_trace(), d })
    }

    fn operand(&self, world: &World, rank: usize, rows: usize, seed: u64) -> Result<Tensor> {
        let x = data::uniform::<bf16>(rows, self.k, seed);
        Tensor::from_slice(world, rank, rows, self.k, x.data())
    }

    fn run_gemm(&self, world: &World, tile: [u32; 2]) -> Result<Vec<Vec<bf16>>> {
        let plan = Gemm::builder(world, 0)
            .shape(self.m, self.n, self.k)
            .sm_margin(self.sm_margin)
            .tile(tile)
            .split_k(SplitK::Always)
            .deadline(Duration::ZERO)
            .build()?;
        let (a, b) = (self.operand(world, 0, self.m, 1)?, self.operand(world, 0, self.n, 2)?);
        let mut d = Tensor::poisoned::<bf16>(world, 0, self.m, self.n)?;
        for _ in 0..self.calls {
            plan.run(self.m, &a, &b, &mut d)?;
        }
        Ok(vec![d.to_vec()?])
    }

    fn run_reduce_scatter(&self, world: &World, tile: Option<[u32; 2]>) -> Result<Vec<Vec<bf16>>> {
        let mut builder = GemmReduceScatter::builder(world);
        if let Some(tile) = tile {
            builder = builder.tile(tile);
        }
        let plan = builder
            .shape(self.m, self.n, self.k)
            .transport(self.transport)
            .placement(self.placement)
            .sm_margin(self.sm_margin)
            .deadline(Duration::ZERO)
            .build()?;
        let (mut a, mut b, mut d) = (Vec::new(), Vec::new(), Vec::new());
        for rank in 0..self.world {
            a.push(self.operand(world, rank, self.m, rank as u64)?);
            b.push(self.operand(world, rank, self.n, 100 + rank as u64)?);
            d.push(Tensor::poisoned::<bf16>(world, rank, plan.rows_of(self.m, rank), self.n)?);
        }
        let matrices: Vec<_> =
            (0..self.world).map(|r| RankMatrices { a: a[r].arg(), b: b[r].arg(), d: d[r].arg() }).collect();
        for _ in 0..self.calls {
            // SAFETY: the tensors have the shapes of the call and outlive `finish`.
            unsafe { plan.launch(self.m, &matrices, None)? };
        }
        plan.finish()?;
        d.iter().map(Tensor::to_vec).collect()
    }
}
