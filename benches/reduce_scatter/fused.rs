//! The fused op, in every way that its tiles can take.

use std::time::Duration;

use half::bf16;
use tilewire::compare::{GemmNumerics, Tolerance, compare_bits, compare_placed};
use tilewire::kernels::abi::{Placement, Transport};
use tilewire::kernels::config::Element;
use tilewire::kernels::shape::MAX_WORLD;
use tilewire::matrix::Matrix;
use tilewire::measure::Candidate;
use tilewire::ops::{GemmReduceScatter, RankMatrices, RawEpilogue};
use tilewire::reference::sampled::{Sample, sampled_truth};
use tilewire::{Layout, Result};

use crate::ranks::{Ranks, matrices};
use crate::support::operands::Operands;

/// How tiles get to their owner and where they are added, with how many SMs, and how long a wait may take.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    pub transport: Transport,
    pub placement: Placement,
    pub sm_margin: u32,
    pub deadline: Duration,
    /// The tile, where it is not the plan that chooses.
    pub tile: Option<[u32; 2]>,
    /// The storer's pause after each panel, where it is not the plan that chooses.
    pub pause_ns: Option<u64>,
    /// Tiles of each CTA before own ones come between, where it is not the plan that chooses.
    pub head_start: Option<u32>,
    /// By the kernel with an epilogue, which changes nothing.
    pub finishes: bool,
}

/// The tile of which each consumer has a half.
pub const MAIN_TILE: [u32; 2] = [128, 256];

/// The tile whose consumers take turns.
pub const TURNS_TILE: [u32; 2] = [128, 192];

const DEADLINE: Duration = Duration::from_secs(10);

/// What a plan chooses, none, and more.
const PAUSES_NS: [Option<u64>; 7] = [None, Some(0), Some(400), Some(800), Some(1400), Some(2200), Some(3500)];

impl Way {
    fn new(transport: Transport, placement: Placement, sm_margin: u32) -> Self {
        let (deadline, finishes) = (DEADLINE, false);
        Self { transport, placement, sm_margin, deadline, tile: None, pause_ns: None, head_start: None, finishes }
    }

    fn by(self, tile: [u32; 2]) -> Self {
        Self { tile: Some(tile), ..self }
    }

    fn fits(&self, ranks: &Ranks) -> bool {
        (0..ranks.size()).all(|rank| self.sm_margin < ranks.world.ctas(rank) / 2)
    }

    /// The ways that every shape is measured in.
    pub fn table(ranks: &Ranks) -> Vec<Self> {
        use Placement::{Epilogue, Partition};
        use Transport::{Push, Staged};
        let mut ways = vec![Self::new(Push, Epilogue, 0), Self::new(Push, Partition, 0)];
        ways.extend([4, 8, 16].map(|margin| Self::new(Push, Partition, margin)));
        ways.extend([0, 8, 16].map(|margin| Self::new(Staged, Partition, margin)));
        ways.extend([8, 16].map(|margin| Self::new(Staged, Epilogue, margin)));
        ways.extend([MAIN_TILE, TURNS_TILE].map(|tile| Self::new(Push, Epilogue, 0).by(tile)));
        ways.push(Self { finishes: true, ..Self::new(Push, Epilogue, 0) });
        ways.retain(|way| way.fits(ranks));
        ways
    }

    /// Margins of each way that has a partition, and no deadline against the usual one.
    pub fn sweep(ranks: &Ranks) -> Vec<Self> {
        use Placement::{Epilogue, Partition};
        use Transport::{Push, Staged};
        let first = Self::new(Push, Epilogue, 0);
        let mut ways = vec![first, Self { deadline: Duration::ZERO, ..first }];
        for margin in [0, 2, 4, 8, 12, 16, 24, 32] {
            ways.extend([Self::new(Push, Partition, margin), Self::new(Staged, Partition, margin)]);
        }
        ways.extend([4, 8, 16, 32].map(|margin| Self::new(Staged, Epilogue, margin)));
        ways.retain(|way| way.fits(ranks));
        ways
    }

    /// Pauses between pushed panels, for either tile.
    pub fn pauses() -> Vec<Self> {
        let pushed = Self::new(Transport::Push, Placement::Epilogue, 0);
        let tiles = [MAIN_TILE, TURNS_TILE].into_iter();
        let with = |tile| PAUSES_NS.map(move |pause_ns| Self { pause_ns, ..pushed.by(tile) });
        tiles.flat_map(with).collect()
    }

    /// Own tiles between others after so many of them, and last; with the pauses that the plan chooses, and with none.
    pub fn head_starts() -> Vec<Self> {
        let pushed = Self::new(Transport::Push, Placement::Epilogue, 0);
        let with = |pause_ns| {
            [1, 2, 3, 4, 6, u32::MAX].map(|tiles| Self { pause_ns, head_start: Some(tiles), ..pushed.by(TURNS_TILE) })
        };
        [pushed.by(MAIN_TILE)].into_iter().chain(with(None)).chain(with(Some(0))).collect()
    }

    fn name(&self) -> String {
        let transport = format!("{:?}", self.transport).to_lowercase();
        let placement = format!("{:?}", self.placement).to_lowercase();
        let tile = match self.tile {
            None => String::new(),
            Some(TURNS_TILE) => " in turns".to_string(),
            Some([rows, cols]) => format!(" by {rows}×{cols}"),
        };
        let pause = self.pause_ns.map_or(String::new(), |ns| format!(", pauses of {ns} ns"));
        let own = match self.head_start {
            None => String::new(),
            Some(u32::MAX) => ", own tiles last".to_string(),
            Some(tiles) => format!(", own tiles after {tiles}"),
        };
        let deadline = if self.deadline.is_zero() { ", no deadline" } else { "" };
        let finished = if self.finishes { ", finished" } else { "" };
        format!("tilewire {transport} {placement} {}{tile}{pause}{own}{deadline}{finished}", self.sm_margin)
    }
}

/// A plan, and how its tiles go.
pub struct Fused {
    way: Way,
    plan: GemmReduceScatter,
    m: usize,
}

impl Fused {
    /// A plan for every way. K is over all ranks.
    pub fn all(ranks: &Ranks, extents: [usize; 3], ways: &[Way]) -> Result<Vec<Self>> {
        let [m, n, k] = ranks.on_one_rank(extents);
        let build = |way: &Way| {
            let mut builder = GemmReduceScatter::builder(&ranks.world);
            if let Some(tile) = way.tile {
                builder = builder.tile(tile);
            }
            if let Some(ns) = way.pause_ns {
                builder = builder.push_pause(Duration::from_nanos(ns));
            }
            if let Some(tiles) = way.head_start {
                builder = builder.head_start(tiles);
            }
            if way.finishes {
                builder = builder.with_epilogue();
            }
            let plan = builder
                .shape(m, n, k)
                .transport(way.transport)
                .placement(way.placement)
                .sm_margin(way.sm_margin)
                .deadline(way.deadline)
                .build()?;
            Ok(Self { way: *way, plan, m })
        };
        ways.iter().map(build).collect()
    }

    /// The plan as something to time.
    pub fn candidate<'a>(&'a self, calls: usize, operands: &'a [Operands]) -> Candidate<'a> {
        let sets = operands[0].num_sets();
        // Made once: a call should cost the host what it costs a user.
        let given: Vec<Vec<RankMatrices>> = (0..sets).map(|set| matrices(operands, set)).collect();
        Candidate::direct(self.way.name(), calls, move |call| self.launch(&given[call % sets]))
    }

    /// Enqueues one call.
    pub fn launch(&self, given: &[RankMatrices]) -> Result<()> {
        // SAFETY: the operands have the plan's shapes, and the bench keeps them until it has waited for the streams; all
        // ranks make this call together, on their own streams.
        unsafe {
            if self.way.finishes {
                let nothing = [RawEpilogue::default(); MAX_WORLD];
                self.plan.launch_with(self.m, given, &nothing[..given.len()], None)
            } else {
                self.plan.launch(self.m, given, None)
            }
        }
    }

    /// Waits, and reports a wait that was given up.
    pub fn finish(&self) -> Result<()> {
        self.plan.finish()
    }
}

/// Runs every plan on poisoned results: each must be right, and all must be the same bits.
pub fn check(ranks: &Ranks, plans: &[Fused], operands: &mut [Operands]) -> Result<()> {
    let mut first: Option<Vec<Matrix<bf16>>> = None;
    for fused in plans {
        ranks.world.synchronize()?;
        operands.iter_mut().try_for_each(Operands::poison)?;
        fused.launch(&matrices(operands, 0))?;
        fused.finish()?;
        let results = operands.iter().enumerate();
        let results =
            results.map(|(rank, o)| o.result(fused.plan.rows_of(fused.m, rank))).collect::<Result<Vec<_>>>()?;
        match &first {
            None => {
                against_truth(operands, &results, 1.0)?;
                first = Some(results);
            }
            Some(first) => {
                let mut first_row = 0;
                for (rank, (found, expected)) in results.iter().zip(first).enumerate() {
                    compare_bits(found.view(), expected.view(), rank, first_row)?;
                    first_row += expected.rows();
                }
            }
        }
    }
    Ok(())
}

/// Compares chunks with Σ_r A_r·B_rᵀ in f64, at the edges of tiles and in random places. `roundings` allows for a sum that
/// rounds more than once.
pub fn against_truth(operands: &[Operands], chunks: &[Matrix<bf16>], roundings: f64) -> Result<()> {
    let [m, n, k] = operands[0].extents;
    let world = chunks.len();
    let sample = Sample::edges(m, n, world, 128, 256)?.with_random(32, 7);
    let pairs: Vec<_> = operands.iter().map(|o| (o.a.view(), o.b.view())).collect();
    let truth = sampled_truth(Layout::Nt, &pairs, &sample)?;
    let views: Vec<_> = chunks.iter().map(Matrix::view).collect();
    let picked = sample.pick_chunks(&views)?;
    let (out, partials) = (Element::Bf16, Element::Bf16);
    let once = GemmNumerics { k_per_rank: k, world, out, partials, scale: 1.0 / 3.0 }.tolerance();
    let tolerance = Tolerance { absolute: roundings * once.absolute, relative: roundings * once.relative };
    compare_placed(picked.view(), truth.view(), tolerance, |i, j| sample.place(i, j))?.check().map(drop)
}
