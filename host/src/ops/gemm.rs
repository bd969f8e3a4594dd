//! Plain GEMM on one rank: `D = A · B`, row-major; [`Layout`](crate::Layout) says how A and B lie.

use std::time::Duration;

use super::epilogue::{RawEpilogue, Result2d, TensorEpilogue, not_planned};
use super::gemm_reduce_scatter::RankMatrices;
use super::gemm_shares::Shares;
use super::maps::{cut_to_columns, maps};
use super::reduce_scatter_builder::{DEFAULT_DEADLINE, DEFAULT_RASTER_GROUP};
use crate::error::{Error, Result};
use crate::fault::Fault;
use crate::kernels::abi::{GemmArgs, GemmEpilogueArgs, MAPS, Operand, Watchdog};
use crate::kernels::collective::result::whole_steps;
use crate::kernels::config::PANEL_ROWS;
use crate::kernels::entries::Op;
use crate::kernels::shape::{GlobalAddr, MAX_WORLD};
use crate::plan::operand::MapSpec;
use crate::plan::select::{Choice, Cut, MayCut, Selection, Work, can_store, eligible, taken};
use crate::plan::{RankLaunch, Scales, SplitK, TensorScales, Variant, check};
use crate::world::{FaultRecords, RawStream, SymmetricBuffer, Tensor, World};

/// Builds a [`Gemm`].
#[derive(Clone, Debug)]
pub struct GemmBuilder<'w> {
    world: &'w World,
    rank: usize,
    variant: Variant,
    has_epilogue: bool,
    max_m: usize,
    n: usize,
    k: usize,
    sm_margin: u32,
    raster_group: u32,
    split_k: SplitK,
    tile: Option<[u32; 2]>,
    tile_cols: Option<u32>,
    dependent_launch: bool,
    deadline: Duration,
}

/// A plan for a GEMM on one rank of a world. A call allocates nothing and is ordered on a stream.
#[derive(Debug)]
pub struct Gemm {
    world: World,
    rank: usize,
    variant: Variant,
    /// The kernels with an epilogue, where the plan has such.
    epilogue: Option<Selection>,
    max_m: u32,
    n: u32,
    k: u32,
    sm_margin: u32,
    dependent_launch: bool,
    raster_group: u32,
    plain: Selection,
    deadline_ns: u64,
    words: SymmetricBuffer,
    /// Where CTAs leave sums for each other; none where no tile may be cut.
    shares: Option<Shares>,
    // Dropped after the words, whose drop waits for the kernels that may still write here.
    records: FaultRecords,
}

/// Bytes of protocol words of a plain GEMM: abort at 0, claim at 4.
const WORDS_BYTES: u64 = 64;

impl GemmBuilder<'_> {
    /// Shape: most rows of A in any call, rows of B, columns of both.
    pub fn shape(mut self, max_m: usize, n: usize, k: usize) -> Self {
        (self.max_m, self.n, self.k) = (max_m, n, k);
        self
    }

    /// Operand layout and types; nt, bf16 in and out unless told otherwise.
    pub fn variant(mut self, variant: Variant) -> Self {
        self.variant = variant;
        self
    }

    /// Makes [`Gemm::run_with`] and [`Gemm::launch_with`] possible: loads kernels with an epilogue beside the plain ones. Where
    /// there is none for the variant, [`Self::build`] says for which there are.
    pub fn with_epilogue(mut self) -> Self {
        self.has_epilogue = true;
        self
    }

    /// Rows and columns of the tile, where several were compiled for the variant; the one that should be fastest for a call unless
    /// told otherwise.
    pub fn tile(mut self, tile: [u32; 2]) -> Self {
        self.tile = Some(tile);
        self
    }

    /// Columns of a tile in calls without an epilogue that take 64×64 or 128×64, which can also have fewer: as many as should be
    /// fastest unless told otherwise. A multiple of 8 up to 64, in layout nt, for 16-bit operands and results. Such tiles are
    /// not cut along K, so results have the bits of [`SplitK::Never`].
    pub fn tile_cols(mut self, cols: u32) -> Self {
        self.tile_cols = Some(cols);
        self
    }

    /// SMs left free for other work.
    pub fn sm_margin(mut self, sm_margin: u32) -> Self {
        self.sm_margin = sm_margin;
        self
    }

    /// Rows of tiles that CTAs walk together: which data meet in L2, and, where some tiles are cut along K
    /// ([`SplitK`]), which these are.
    pub fn raster_group(mut self, tiles: u32) -> Self {
        self.raster_group = tiles;
        self
    }

    /// Whether tiles may be cut along K.
    pub fn split_k(mut self, split_k: SplitK) -> Self {
        self.split_k = split_k;
        self
    }

    /// Whether a call may start while the last CTAs of the call ahead of it in its stream still end (programmatic
    /// dependent launch); it may unless told otherwise. It touches no memory before that one has ended, so results are
    /// the same. What it takes early is SMs that other streams could use, so a call with an [`Self::sm_margin`], and
    /// one in a world whose ranks share a GPU, never does; nor does any with a driver older than CUDA 12.3, which could
    /// not capture it in a graph. Nor do calls that would lose by it, of several rows of tiles that are cut along K or
    /// hold 64 rows.
    pub fn dependent_launch(mut self, is_wanted: bool) -> Self {
        self.dependent_launch = is_wanted;
        self
    }

    /// How long any wait inside the kernel may take; zero waits for ever.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Checks everything and loads the kernel.
    ///
    /// # Errors
    /// [`Error::Argument`] for a shape the copy engine cannot take, an `sm_margin` that leaves no SM, or `tile_cols` that no
    /// kernel of the plan can have; [`Error::NoGpu`] or
    /// [`Error::Driver`] from the machine.
    pub fn build(self) -> Result<Gemm> {
        let world = self.world.clone();
        if self.rank >= world.size() {
            return Err(Error::argument("rank", self.rank, format!("the world has {} ranks", world.size())));
        }
        check::sm_margin(self.sm_margin, world.ctas(self.rank), self.rank)?;
        let (max_m, n, k) =
            (check::extent("max_m", self.max_m)?, check::extent("n", self.n)?, check::extent("k", self.k)?);
        let work = Work { m: max_m, n, k, ctas: world.ctas(self.rank) - self.sm_margin };
        let may = MayCut::checked(self.split_k, self.tile_cols, self.variant, self.tile)?;
        let select = |op| -> Result<Selection> {
            self.variant.entry_with(op, self.tile)?;
            let entries: Vec<_> = eligible(op, self.variant, self.tile).filter(|entry| can_store(entry, n)).collect();
            if entries.is_empty() {
                let [rows, cols] = self.tile.unwrap_or_default();
                let rule = format!("it is for rows of D that are whole steps of 16 bytes, and n is {n}");
                return Err(Error::argument("tile", format!("{rows} × {cols}"), rule));
            }
            let entries = taken(entries, work, may);
            for &entry in &entries {
                // What a plan narrows by itself fills two waves at most.
                check::tile_count(max_m, n, may.fixed(entry).unwrap_or(Cut::NONE).tile_of(entry))?;
                world.load(entry)?;
            }
            Ok(Selection::new(entries, may))
        };
        let plain = select(Op::Gemm)?;
        let epilogue = if self.has_epilogue { Some(select(Op::GemmEpilogue)?) } else { None };
        let all: Vec<_> = plain.entries.iter().chain(epilogue.iter().flat_map(|of| &of.entries)).copied().collect();
        let shares = Shares::new(&world, self.rank, &all, work, may)?;
        let words = world.symmetric(WORDS_BYTES)?;
        world.write(self.rank, words.base(self.rank), &[0; WORDS_BYTES as usize])?;
        Ok(Gemm {
            rank: self.rank,
            variant: self.variant,
            epilogue,
            max_m,
            n,
            k,
            sm_margin: self.sm_margin,
            dependent_launch: self.dependent_launch,
            raster_group: check::raster_group(self.raster_group, max_m)?,
            plain,
            deadline_ns: check::deadline_ns(self.deadline),
            records: world.fault_records()?,
            world,
            words,
            shares,
        })
    }
}

impl Gemm {
    /// Starts a plan on rank `rank` of `world`.
    pub fn builder(world: &World, rank: usize) -> GemmBuilder<'_> {
        GemmBuilder {
            world,
            rank,
            variant: Variant::default(),
            has_epilogue: false,
            max_m: 0,
            n: 0,
            k: 0,
            sm_margin: 0,
            dependent_launch: true,
            raster_group: DEFAULT_RASTER_GROUP,
            split_k: SplitK::default(),
            tile: None,
            tile_cols: None,
            deadline: DEFAULT_DEADLINE,
        }
    }

    /// Runs one call on owned tensors, on the rank's own stream, and waits for it. Shapes are as
    /// [`RankMatrices`] says, D m × n.
    ///
    /// # Errors
    /// [`Error::Argument`] before anything is launched; [`Error::Fault`] if a wait passed its deadline.
    pub fn run(&self, m: usize, a: &Tensor, b: &Tensor, d: &mut Tensor) -> Result<()> {
        self.run_scaled(m, a, b, d, TensorScales::default())
    }

    /// The same with scales of 8-bit operands, by which D is multiplied before it is rounded: each a 1 × 1 tensor of f32 on
    /// this rank, or none, which stands for 1.
    ///
    /// # Errors
    /// As [`Self::run`]; [`Error::Argument`] for scales of 16-bit operands, and for tensors of another shape, type or rank.
    pub fn run_scaled(&self, m: usize, a: &Tensor, b: &Tensor, d: &mut Tensor, scales: TensorScales<'_>) -> Result<()> {
        let (matrices, scales) = (self.matrices(m, a, b, d)?, scales.on(self.rank)?);
        // SAFETY: the tensors are alive and of the right shape, and the call ends before their borrow does.
        unsafe { self.launch_scaled(m, &matrices, scales, None)? };
        self.finish()
    }

    /// The same with an epilogue. C and residual are m × n, the bias 1 × n, all of D's type; scales are 1 × 1 of f32.
    ///
    /// # Errors
    /// As [`Self::run`]; [`Error::Argument`] if the plan was built without, or the epilogue adds both C and a residual.
    pub fn run_with(
        &self,
        m: usize,
        a: &Tensor,
        b: &Tensor,
        d: &mut Tensor,
        epilogue: &TensorEpilogue<'_>,
    ) -> Result<()> {
        let matrices = self.matrices(m, a, b, d)?;
        let epilogue = epilogue.raw(self.rank, (m, self.n as usize), self.variant.output)?;
        // SAFETY: the tensors are alive and of the right shape, and the call ends before their borrow does.
        unsafe { self.launch_with(m, &matrices, &epilogue, None)? };
        self.finish()
    }

    /// Checks owned tensors.
    fn matrices(&self, m: usize, a: &Tensor, b: &Tensor, d: &Tensor) -> Result<RankMatrices> {
        let (n, k, Variant { layout, input, input_b, output }) = (self.n as usize, self.k as usize, self.variant);
        a.expect("a", self.rank, layout.a_shape(m, k), input)?;
        b.expect("b", self.rank, layout.b_shape(n, k), input_b)?;
        d.expect("d", self.rank, (m, n), output)?;
        Ok(RankMatrices { a: a.arg(), b: b.arg(), d: d.arg() })
    }

    /// Rows and columns of the tiles of a call of `m` rows without an epilogue.
    ///
    /// # Errors
    /// [`Error::Argument`] if `m` exceeds the plan's rows.
    pub fn tile_of(&self, m: usize) -> Result<[u32; 2]> {
        let choice = self.choose(&self.plain, m)?;
        Ok(choice.map_or([0; 2], |choice| choice.tile_extent()))
    }

    /// Waits for the calls on the world's own streams, and reports a fault.
    ///
    /// # Errors
    /// As [`Self::check`], and [`Error::Driver`] if a kernel failed otherwise.
    pub fn finish(&self) -> Result<()> {
        self.world.synchronize()?;
        self.check()
    }

    /// Whether a call gave up a wait. To be called when the calls' streams have been waited for; afterwards the plan can be
    /// used again.
    ///
    /// # Errors
    /// [`Error::Fault`] with who waited for what, or without a record if the abort word is raised and nobody says why.
    pub fn check(&self) -> Result<()> {
        let recorded = self.world.fault("gemm", &self.records)?;
        let fault = match recorded {
            None if self.is_abort_raised()? => Some(Fault { op: "gemm", record: None }),
            recorded => recorded,
        };
        match fault {
            None => Ok(()),
            Some(fault) => {
                // The kernel may still run on a stream that nobody has waited for.
                self.world.quiesce()?;
                self.world.clear_faults(&self.records)?;
                self.world.write(self.rank, self.words.base(self.rank), &[0; WORDS_BYTES as usize])?;
                self.shares.as_ref().map_or(Ok(()), |shares| shares.clear(&self.world, self.rank))?;
                Err(Error::Fault(Box::new(fault)))
            }
        }
    }

    /// Whether the abort word is raised, whoever did it.
    fn is_abort_raised(&self) -> Result<bool> {
        let mut word = [0; 4];
        self.world.read(self.rank, self.words.base(self.rank), &mut word)?;
        Ok(word != [0; 4])
    }

    /// Enqueues one call on raw memory. Nothing but the m × n elements of D is written, whatever its stride.
    ///
    /// The call goes on `stream` (the rank's own when `None`). Allocates nothing, waits for nothing.
    ///
    /// # Errors
    /// [`Error::Argument`] before anything is launched; [`Error::Driver`] if the launch fails.
    ///
    /// # Safety
    /// The matrices lie in memory of this rank with the shapes of the plan, A and B readable and D writable until the call
    /// has ended on the stream. Calls of one plan do not run at the same time, unless it was built with
    /// [`SplitK::Never`]: they share the memory through which CTAs pass sums.
    pub unsafe fn launch(&self, m: usize, given: &RankMatrices, stream: Option<RawStream>) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { self.launch_scaled(m, given, Scales::NONE, stream) }
    }

    /// The same with scales of 8-bit operands, by which D is multiplied before it is rounded. They are read by the call, on its
    /// stream.
    ///
    /// # Errors
    /// As [`Self::launch`]; [`Error::Argument`] for scales of 16-bit operands, or an address that is null or not a multiple
    /// of 4 bytes.
    ///
    /// # Safety
    /// As [`Self::launch`]; the scales, four bytes each, can be read until the call has ended.
    pub unsafe fn launch_scaled(
        &self,
        m: usize,
        given: &RankMatrices,
        scales: Scales,
        stream: Option<RawStream>,
    ) -> Result<()> {
        let Some(choice) = self.choose(&self.plain, m)? else { return Ok(()) };
        let launch = self.prepare(m, given, scales, choice)?;
        let launch = RankLaunch { maps: stored_by_boxes(launch.maps), ..launch };
        // SAFETY: the caller's.
        unsafe { self.world.launch([&launch], stream.as_ref().map(std::slice::from_ref)) }
    }

    /// Enqueues one call with an epilogue on raw memory, as [`Self::launch`] does. C may lie where D does; otherwise nothing
    /// that is read may overlap D.
    ///
    /// # Errors
    /// As [`Self::launch`]; [`Error::Argument`] if the plan was built without, the epilogue adds both C and a residual, or
    /// one of its addresses or strides breaks a rule.
    ///
    /// # Safety
    /// As [`Self::launch`]; C and the residual are m × n, the bias has n elements, all of D's type, and they and the scales
    /// are readable until the call has ended on the stream.
    pub unsafe fn launch_with(
        &self,
        m: usize,
        given: &RankMatrices,
        epilogue: &RawEpilogue,
        stream: Option<RawStream>,
    ) -> Result<()> {
        let Some(choice) = self.choose(self.epilogue.as_ref().ok_or_else(not_planned)?, m)? else { return Ok(()) };
        let plain = self.prepare(m, given, Scales::NONE, choice)?;
        let RankLaunch { rank, entry, mut maps, args, num_ctas, overlaps_previous } = plain;
        let (epilogue, map) = epilogue.resolve(Result2d { rank, d: given.d, map: maps[Operand::D as usize] })?;
        maps[Operand::C as usize] = map;
        let (maps, args) = (stored_by_boxes(maps), GemmEpilogueArgs { gemm: args, epilogue });
        let launch = RankLaunch { rank, entry, maps, args, num_ctas, overlaps_previous };
        // SAFETY: the caller's.
        unsafe { self.world.launch([&launch], stream.as_ref().map(std::slice::from_ref)) }
    }

    fn ctas(&self) -> u32 {
        self.world.ctas(self.rank) - self.sm_margin
    }

    fn rows(&self, m: usize) -> Result<u32> {
        if m > self.max_m as usize {
            return Err(Error::argument("m", m, format!("the plan was built for at most {} rows", self.max_m)));
        }
        Ok(m as u32)
    }

    /// The kernel of `selection` for a call; there is one.
    fn choose(&self, selection: &Selection, m: usize) -> Result<Option<Choice>> {
        let choice = selection.choose(Work { m: self.rows(m)?, n: self.n, k: self.k, ctas: self.ctas() });
        let can_be = |choice: &Choice| self.shares.is_some() || !choice.cut.is_along_k();
        Ok(choice.map(|choice| if can_be(&choice) { choice } else { Choice { cut: Cut::NONE, ..choice } }))
    }

    fn prepare(&self, m: usize, given: &RankMatrices, scales: Scales, choice: Choice) -> Result<RankLaunch<GemmArgs>> {
        let (m, n, k, rank) = (self.rows(m)?, self.n, self.k, self.rank);
        let mut maps = maps(self.variant, choice.entry, [m, m, n, k], [given.a, given.b, given.d], rank)?;
        if choice.cut.cols > 0 {
            maps = cut_to_columns(maps, choice.entry, choice.cut.cols);
        }
        let base = self.words.base(rank);
        let mut peer_aborts = [GlobalAddr(0); MAX_WORLD];
        peer_aborts[0] = base;
        let watchdog = Watchdog {
            deadline_ns: self.deadline_ns,
            abort: base,
            claim: base.plus(4),
            record: self.records.addr(rank),
            rank: rank as u32,
            world: 1,
            peer_aborts,
            local_ns: Watchdog::local_deadline_ns(self.deadline_ns, 1),
        };
        let args = GemmArgs {
            m,
            n,
            k,
            raster_group: self.raster_group,
            split_tiles: choice.cut.tiles,
            parts: choice.cut.parts,
            shares: self.shares.as_ref().map_or(GlobalAddr(0), Shares::addr),
            share_room: Work::room(self.ctas(), choice.entry),
            abreast: choice.cut.abreast,
            tile_cols: choice.tile_extent()[1],
            d: GlobalAddr(given.d.addr),
            // Not checked where there are no rows, nor used.
            d_stride: given.d.row_stride.saturating_mul(u64::from(self.variant.output.bytes())),
            scales: scales.check(self.variant, rank)?,
            watchdog,
        };
        // CTAs that start early land wherever an SM becomes free, and those that share columns of B end up far apart: where memory
        // or a cut along K is the bound, over more than one row of tiles, that costs more than the start.
        let tile_rows = choice.entry.tile_extent()[0];
        let is_bound_by_arithmetic = tile_rows > PANEL_ROWS && choice.cut.tiles == 0;
        let overlaps_previous = self.dependent_launch && (m <= tile_rows || is_bound_by_arithmetic);
        Ok(RankLaunch { rank, entry: choice.entry, maps, args, num_ctas: self.ctas(), overlaps_previous })
    }
}

/// Maps of a call whose results are stored by boxes as far as their rows are whole steps of 16 bytes: D's ends there.
fn stored_by_boxes(mut maps: [Option<MapSpec>; MAPS]) -> [Option<MapSpec>; MAPS] {
    let map = &mut maps[Operand::D as usize];
    *map = map.and_then(|map| {
        let cols = whole_steps(map.cols, map.element.bytes());
        (cols > 0).then_some(MapSpec { cols, ..map })
    });
    maps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data;
    use half::bf16;

    #[test]
    fn an_abort_word_without_a_record_is_a_fault_and_the_next_call_is_right() {
        let world = World::emulated(1).unwrap();
        let (a, b) = (data::integers::<bf16>(70, 64, 1, 5), data::integers::<bf16>(40, 64, 2, 5));
        let tensor = |x: &crate::matrix::Matrix<bf16>| Tensor::from_slice(&world, 0, x.rows(), x.cols(), x.data());
        let (a, b) = (tensor(&a).unwrap(), tensor(&b).unwrap());
        let mut d = Tensor::poisoned::<bf16>(&world, 0, 70, 40).unwrap();
        let plan = Gemm::builder(&world, 0).shape(70, 40, 64).build().unwrap();
        plan.run(70, &a, &b, &mut d).unwrap();
        let right = d.to_vec::<bf16>().unwrap();
        world.write(0, plan.words.base(0), &1u32.to_le_bytes()).unwrap();
        match plan.run(70, &a, &b, &mut d) {
            Err(Error::Fault(fault)) => assert_eq!((fault.op, fault.record), ("gemm", None)),
            other => panic!("{other:?}"),
        }
        d.poison().unwrap();
        plan.run(70, &a, &b, &mut d).unwrap();
        assert_eq!(d.to_vec::<bf16>().unwrap(), right);
    }
}
