//! Which kernel a call of GEMM + ReduceScatter takes: by its rows, so the same on every rank.

use std::cmp::{max, min};

use crate::error::{Error, Result};
use crate::kernels::abi::{Placement, Transport};
use crate::kernels::collective::result::whole_steps;
use crate::kernels::comm::route::shard_of;
use crate::kernels::entries::{Entry, Op};
use crate::kernels::layout::flagged::flagged_tile_bytes;
use crate::kernels::schedule::chunked::max_chunk_tiles;
use crate::kernels::schedule::shared::shared_tile_count;
use crate::plan::select::{Cut, Work};
use crate::plan::variant::{SHARED_TILES, SMALL_TILE, TURNS_TILE, main_tile};
use crate::plan::{Variant, check};

/// Rows a rank up to which the 64-row tile is used.
const SMALL_ROWS: u32 = 64;

/// What a plan asks of its kernels, beside variant and shape.
#[derive(Clone, Copy, Debug)]
pub struct Wishes {
    pub transport: Transport,
    pub placement: Placement,
    /// The tile of every call without an epilogue.
    pub tile: Option<[u32; 2]>,
    pub has_epilogue: bool,
}

/// A kernel and the calls that take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    pub entry: &'static Entry,
    /// Calls with more rows, over all ranks, take another.
    pub most_rows: u32,
}

/// The kernels of a plan, those for fewer rows first; the last two share what the others do not take.
#[derive(Clone, Copy, Debug)]
pub struct Kernels {
    few: [Option<Choice>; 4],
    main: &'static Entry,
    /// For the calls of which it should be faster than the main one.
    turns: Option<&'static Entry>,
    shared: Shared,
    /// For calls with an epilogue, where the plan has such, and for those of them that have few rows.
    epilogue: Option<&'static Entry>,
    few_epilogue: [Option<Choice>; 2],
    max_m: u32,
}

/// What all calls of a plan share, and how many CTAs compute on each rank: the fewest, so that all ranks choose the same kernel.
#[derive(Clone, Copy, Debug)]
pub struct Shared {
    pub world: u32,
    pub n: u32,
    pub k: u32,
    pub ctas: u32,
}

impl Shared {
    /// Most rows of a call over all ranks in which no CTA has a second tile.
    fn rows_of_one_wave(&self, [tile_m, tile_n]: [u32; 2]) -> u32 {
        let side_by_side = max(u64::from(self.world) * u64::from(self.n.div_ceil(tile_n)), 1);
        let rows_of_each = u64::from(self.ctas) / side_by_side * u64::from(tile_m);
        min(rows_of_each * u64::from(self.world), u64::from(u32::MAX)) as u32
    }

    /// Expected time of a call over `m` rows by a kernel, in nanoseconds: that of the product, whose tiles end with each chunk.
    fn cost(&self, entry: &Entry, m: u32) -> f64 {
        let chunk = u64::from(m.div_ceil(self.world)).next_multiple_of(u64::from(entry.tile[0]));
        let m = (chunk * u64::from(self.world)).min(u64::from(u32::MAX)) as u32;
        Work { m, n: self.n, k: self.k, ctas: self.ctas }.cost(entry, Cut::NONE)
    }
}

impl Kernels {
    /// The kernels for calls of up to `max_m` rows.
    ///
    /// # Errors
    /// [`Error::Argument`] if the variant or the tile was not compiled, or if the tile's kernel does not do what is wished.
    pub fn of(variant: Variant, wishes: Wishes, shared: Shared, max_m: u32) -> Result<Self> {
        let Shared { n, k, .. } = shared;
        let main = variant.entry_with(Op::GemmReduceScatter, wishes.tile)?;
        can_do(main, wishes, [n, k])?;
        let turns = variant.entry_of(Op::GemmReduceScatter, TURNS_TILE);
        let turns = turns.filter(|entry| wishes.tile.is_none() && can_do(entry, wishes, [n, k]).is_ok());
        let epilogue = if wishes.has_epilogue { Some(variant.entry(Op::GemmReduceScatterEpilogue)?) } else { None };
        let few = if wishes.tile.is_some() { [None; 4] } else { Self::few(variant, wishes, shared) };
        // Slots have room for the tiles of either: not for a kernel that not even the largest call takes.
        let takes_more = few.iter().flatten().all(|choice| max_m > choice.most_rows);
        let turns = turns.filter(|entry| takes_more && shared.cost(entry, max_m) < shared.cost(main, max_m));
        let few_epilogue = if wishes.has_epilogue { Self::few_epilogue(variant, wishes) } else { [None; 2] };
        Ok(Self { few, main, turns, shared, epilogue, few_epilogue, max_m })
    }

    fn few(variant: Variant, wishes: Wishes, all: Shared) -> [Option<Choice>; 4] {
        let shared = |tile: [u32; 2]| {
            let slots = variant.entry_of(Op::FewRowsReduceScatter, tile);
            let entry = match (wishes.transport, wishes.placement) {
                // Whoever asks for staging wants no computing SM to touch the link.
                (Transport::Staged, _) => None,
                // Flagged words are twice the bytes of a slot: only for so few rows that latency is what counts.
                (Transport::Push, Placement::Epilogue) => variant.entry_of(Op::LowLatencyReduceScatter, tile).or(slots),
                _ => slots,
            };
            entry.map(|entry| Choice { entry, most_rows: tile[0] })
        };
        let small = variant.entry_of(Op::GemmReduceScatter, SMALL_TILE);
        let small = small.map(|entry| Choice { entry, most_rows: SMALL_ROWS * all.world });
        let few_tiles = variant.entry_of(Op::FewTilesReduceScatter, main_tile(Op::GemmReduceScatter, variant.input));
        let few_tiles = few_tiles.map(|entry| Choice { entry, most_rows: all.rows_of_one_wave(entry.tile_extent()) });
        [shared(SHARED_TILES[0]), shared(SHARED_TILES[1]), small, few_tiles]
    }

    /// As [`Self::few`], with an epilogue: tiles that hold the rows of every owner.
    fn few_epilogue(variant: Variant, wishes: Wishes) -> [Option<Choice>; 2] {
        let of = |op, tile: [u32; 2]| variant.entry_of(op, tile).map(|entry| Choice { entry, most_rows: tile[0] });
        let slots = || of(Op::FewRowsReduceScatterEpilogue, SHARED_TILES[1]);
        match (wishes.transport, wishes.placement) {
            (Transport::Staged, _) => [None; 2],
            (Transport::Push, Placement::Epilogue) => {
                [of(Op::LowLatencyReduceScatterEpilogue, SHARED_TILES[0]), slots()]
            }
            _ => [slots(), None],
        }
    }

    /// The kernel for a call over `m` rows with an epilogue, where the plan has such.
    pub fn with_epilogue(&self, m: u32) -> Option<&'static Entry> {
        let few = self.few_epilogue.iter().flatten().find(|choice| m <= choice.most_rows);
        few.map(|choice| choice.entry).or(self.epilogue)
    }

    /// The kernel for a call over `m` rows.
    pub fn for_rows(&self, m: u32) -> &'static Entry {
        let few = self.few.iter().flatten().find(|choice| m <= choice.most_rows).map(|choice| choice.entry);
        let is_faster = |entry: &&Entry| self.shared.cost(entry, m) < self.shared.cost(self.main, m);
        few.or_else(|| self.turns.filter(is_faster)).unwrap_or(self.main)
    }

    /// The kernels that some call takes, with the most rows that one does.
    pub fn used(&self) -> impl Iterator<Item = Choice> + '_ {
        let any = |entry| Choice { entry, most_rows: u32::MAX };
        let plain = self.few.iter().flatten().copied().chain([any(self.main)]);
        let with_epilogue = self.few_epilogue.iter().flatten().copied().chain(self.epilogue.map(any));
        let turns = self.turns.map(|entry| Choice { entry, most_rows: self.max_m });
        self.reached(plain).chain(turns).chain(self.reached(with_epilogue))
    }

    /// Those of `choices`, for fewer rows first, that a call of at most the plan's rows takes.
    fn reached(&self, choices: impl Iterator<Item = Choice>) -> impl Iterator<Item = Choice> {
        let max_m = self.max_m;
        let mut reached = None;
        choices.filter_map(move |choice| {
            let most_rows = min(choice.most_rows, max_m);
            let is_used = reached.is_none_or(|reached| most_rows > reached);
            reached = max(reached, Some(most_rows));
            is_used.then_some(Choice { most_rows, ..choice })
        })
    }

    /// Bytes of the flagged words of one parity.
    pub fn flagged_stride(&self, n: u32, world: u32) -> u64 {
        self.used().map(|used| flagged_bytes(used, n, world)).max().unwrap_or(0)
    }

    /// Tiles that a slot must hold, and bytes of all slots of one parity: kernels share signals and slots, so room for the
    /// larger number of tiles, and for the larger slots.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) if there are more tiles than can be counted.
    pub fn slots(&self, n: u32, world: u32) -> Result<(u32, u64)> {
        let mut slot_tiles = 0;
        for Choice { entry, most_rows } in self.used() {
            let tile = entry.tile_extent();
            check::tile_count(most_rows + entry.row_align - 1, n, tile)?;
            let tiles = match entry.op {
                _ if is_low_latency(entry) => 0,
                Op::FewRowsReduceScatter | Op::FewRowsReduceScatterEpilogue if most_rows == 0 => 0,
                Op::FewRowsReduceScatter | Op::FewRowsReduceScatterEpilogue => shared_tile_count(n, tile[1]),
                _ => max_chunk_tiles(most_rows, n, world, tile, entry.row_align),
            };
            slot_tiles = max(slot_tiles, tiles);
        }
        let slots_bytes = |entry: &Entry| u64::from(world) * u64::from(slot_tiles) * u64::from(entry.slot_tile_bytes);
        Ok((slot_tiles, self.used().map(|used| slots_bytes(used.entry)).max().unwrap_or(0)))
    }
}

/// Whether sums go from registers to registers.
pub(super) fn is_low_latency(entry: &Entry) -> bool {
    matches!(entry.op, Op::LowLatencyReduceScatter | Op::LowLatencyReduceScatterEpilogue)
}

/// Bytes of the flagged words of one parity.
fn flagged_bytes(Choice { entry, most_rows }: Choice, n: u32, world: u32) -> u64 {
    if !is_low_latency(entry) {
        return 0;
    }
    let [_, tile_n] = entry.tile_extent();
    let tiles = u64::from(world) * u64::from(shared_tile_count(n, tile_n));
    tiles * flagged_tile_bytes(tile_n, entry.output.bytes(), shard_of(most_rows, world))
}

/// Consumers in turns have a kernel for one way only, that stores rows of D in whole steps of 16 bytes and sums of at least one
/// product.
fn can_do(entry: &Entry, wishes: Wishes, [n, k]: [u32; 2]) -> Result<()> {
    if entry.op != Op::GemmReduceScatterPingPong {
        return Ok(());
    }
    let rule = if wishes.transport != Transport::Push || wishes.placement != Placement::Epilogue {
        "transport push and reduction in the epilogue".to_string()
    } else if whole_steps(n, entry.output.bytes()) != n {
        format!("columns in whole steps of 16 bytes, and n is {n}")
    } else if k == 0 {
        "k of at least 1".to_string()
    } else {
        return Ok(());
    };
    let [rows, cols] = entry.tile_extent();
    Err(Error::argument("tile", format!("{rows} × {cols}"), format!("its consumers, which take turns, need {rule}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Layout;
    use crate::kernels::config::Element;
    use crate::plan::variant::TURNS_TILE;

    fn push() -> Wishes {
        Wishes { transport: Transport::Push, placement: Placement::Epilogue, tile: None, has_epilogue: false }
    }

    /// Of ranks with 132 CTAs each.
    fn of(variant: Variant, wishes: Wishes, world: u32, [max_m, n, k]: [u32; 3]) -> Result<Kernels> {
        Kernels::of(variant, wishes, Shared { world, n, k, ctas: 132 }, max_m)
    }

    fn tiles(transport: Transport, world: u32, rows: impl IntoIterator<Item = u32>) -> Vec<[u32; 2]> {
        let kernels = of(Variant::default(), Wishes { transport, ..push() }, world, [8192, 512, 64]).unwrap();
        rows.into_iter().map(|m| kernels.for_rows(m).tile_extent()).collect()
    }

    #[test]
    fn the_rows_of_a_call_choose_its_tile() {
        let rows = [0, 1, 64, 65, 128, 129, 256, 257, 8192];
        let (few, more, small, main) = ([64, 64], [128, 64], SMALL_TILE, [128, 256]);
        assert_eq!(tiles(Transport::Push, 4, rows), [few, few, few, more, more, small, small, main, main]);
        assert_eq!(tiles(Transport::Staged, 4, rows), [small, small, small, small, small, small, small, main, main]);
        assert_eq!(tiles(Transport::Push, 1, [64, 128, 129]), [few, more, main]);
    }

    /// `docs/performance.md`, the table of two GPUs; K is that of a rank.
    #[test]
    fn consumers_take_turns_where_that_was_measured_to_be_faster() {
        for ([m, n, k], in_turns) in [
            ([8192, 8192, 14784], true),
            ([8192, 8192, 14336], true),
            ([8192, 4096, 7168], false),
            ([8192, 8192, 2048], true),
            ([4096, 4096, 4096], false),
            ([2048, 8192, 14336], false),
        ] {
            let kernels = of(Variant::default(), push(), 2, [m, n, k]).unwrap();
            let (main, turns) = (Op::GemmReduceScatter, Op::GemmReduceScatterPingPong);
            assert_eq!(kernels.for_rows(m).op, if in_turns { turns } else { main }, "{m}×{n}×{k}");
            assert_eq!(kernels.used().any(|used| used.entry.op == turns), in_turns, "{m}×{n}×{k}");
            for wishes in [
                Wishes { transport: Transport::Staged, ..push() },
                Wishes { placement: Placement::Partition, ..push() },
                Wishes { tile: Some([128, 256]), ..push() },
            ] {
                assert_eq!(of(Variant::default(), wishes, 2, [m, n, k]).unwrap().for_rows(m).op, main, "{wishes:?}");
            }
        }
        // More rows than any plan has are refused later, not here.
        let kernels = of(Variant::default(), push(), 1, [8192, 8192, 2048]).unwrap();
        assert_eq!(kernels.for_rows(u32::MAX).op, Op::GemmReduceScatterPingPong);
        let plain = of(Variant::default(), push(), 2, [8192, 8190, 2048]).unwrap();
        assert_eq!(plain.for_rows(8192).op, Op::GemmReduceScatter, "rows that end within 16 bytes");
    }

    #[test]
    fn a_call_of_one_wave_has_a_kernel_of_its_own() {
        let (few_tiles, main) = (Op::FewTilesReduceScatter, Op::GemmReduceScatter);
        // 132 CTAs: four rows of 32 tiles, two for each of two ranks; three for one.
        for (variant, world, wishes, m, op) in [
            (Variant::default(), 2, push(), 129, few_tiles),
            (Variant::default(), 2, push(), 512, few_tiles),
            (Variant::default(), 2, push(), 513, main),
            (Variant::default(), 1, push(), 512, few_tiles),
            (Variant::default(), 8, push(), 512, main),
            (Variant::default(), 2, Wishes { transport: Transport::Staged, ..push() }, 512, few_tiles),
            (Variant::default(), 2, Wishes { placement: Placement::Partition, ..push() }, 512, few_tiles),
            (Variant::default(), 2, Wishes { tile: Some([128, 256]), ..push() }, 512, main),
            (Variant { layout: Layout::Tn, ..Variant::default() }, 2, push(), 512, main),
        ] {
            let kernels = of(variant, wishes, world, [8192, 8192, 14336]).unwrap();
            let chosen = kernels.for_rows(m).op;
            let chosen = if chosen == Op::GemmReduceScatterPingPong { main } else { chosen };
            assert_eq!(chosen, op, "{variant}, {world} ranks, {m} rows");
        }
        let kernels = of(Variant::default(), push(), 2, [512, 8192, 14336]).unwrap();
        assert_eq!(kernels.used().last().unwrap(), Choice { entry: kernels.for_rows(512), most_rows: 512 });
        // No columns, and more rows of one wave than can be counted.
        assert_eq!(of(Variant::default(), push(), 2, [512, 0, 64]).unwrap().for_rows(512).op, few_tiles);
        let all = Shared { world: 8, n: 1, k: 1, ctas: u32::MAX };
        assert_eq!(all.rows_of_one_wave([128, 256]), u32::MAX);
    }

    #[test]
    fn only_kernels_that_some_call_takes_are_used() {
        let used = |layout, world, max_m| {
            let variant = Variant { layout, ..Variant::default() };
            let kernels = of(variant, push(), world, [max_m, 512, 64]).unwrap();
            kernels.used().map(|used| (used.entry.tile_extent(), used.most_rows)).collect::<Vec<_>>()
        };
        assert_eq!(used(Layout::Nt, 4, 0), [([64, 64], 0)]);
        assert_eq!(used(Layout::Nt, 4, 64), [([64, 64], 64)]);
        assert_eq!(used(Layout::Nt, 4, 100), [([64, 64], 64), ([128, 64], 100)]);
        let (few, more, main) = (([64, 64], 64), ([128, 64], 128), [128, 256]);
        // One wave of tiles is 8448 rows of one rank, or 8192 of four; more are for consumers in turns as well.
        assert_eq!(used(Layout::Nt, 1, 200), [few, more, (main, 200)]);
        assert_eq!(used(Layout::Nt, 4, 8192), [few, more, ([64, 128], 256), (main, 8192)]);
        let all = [few, more, ([64, 128], 256), (main, 8192), (main, 8193), (TURNS_TILE, 8193)];
        assert_eq!(used(Layout::Nt, 4, 8193), all);
        assert_eq!(used(Layout::Tn, 4, 16), [([128, 256], 16)]);
    }

    #[test]
    fn slots_hold_every_kernels_tiles() {
        let slots = |max_m, n| of(Variant::default(), push(), 2, [max_m, n, 64]).unwrap().slots(n, 2);
        // 128 shared tiles of 8 KiB, two senders; none of them from registers to registers.
        let wishes = Wishes { placement: Placement::Partition, ..push() };
        let shared = of(Variant::default(), wishes, 2, [64, 8192, 64]).unwrap();
        assert_eq!(shared.slots(8192, 2).unwrap(), (128, 2 * 128 * 8192));
        assert_eq!((shared.flagged_stride(8192, 2), slots(64, 8192).unwrap()), (0, (0, 0)));
        // 4096 rows a rank are 32 × 32 main tiles of 64 KiB.
        let wishes = Wishes { tile: Some([128, 256]), ..push() };
        let main = of(Variant::default(), wishes, 2, [8192, 8192, 64]).unwrap();
        assert_eq!(main.slots(8192, 2).unwrap(), (1024, 2 * 1024 * 65_536));
        // Or 32 × 43 of those multiplied in turns, which calls of the same plan may take.
        assert_eq!(slots(8192, 8192).unwrap(), (1376, 2 * 1376 * 65_536));
        assert_eq!(slots(0, 8192).unwrap().0, 0);
        // Calls with an epilogue take the main tile where no other has one, however few their rows are: 1 × 32 of 64 KiB.
        let with_epilogue = Wishes { has_epilogue: true, ..push() };
        let variant = Variant::new(Layout::Tn, Element::F16, Element::F16);
        let kernels = of(variant, with_epilogue, 2, [64, 8192, 64]).unwrap();
        assert_eq!(kernels.slots(8192, 2).unwrap(), (32, 2 * 32 * 65_536));
        assert!(slots(64, i32::MAX as u32).unwrap_err().to_string().contains("tiles"));
    }

    #[test]
    fn flagged_words_are_for_calls_of_few_rows_by_push_and_epilogue() {
        let stride = |wishes, variant, world, max_m| {
            of(variant, wishes, world, [max_m, 8192, 64]).unwrap().flagged_stride(8192, world)
        };
        let bf16 = Variant::default();
        // 128 tiles of 8, then of 32 rows of 256 bytes; two senders.
        assert_eq!(stride(push(), bf16, 2, 16), 2 * 128 * 8 * 256);
        assert_eq!(stride(push(), bf16, 2, 8192), 2 * 128 * 32 * 256);
        // Eight rows from each of eight; of f32, two panels a tile.
        assert_eq!(stride(push(), bf16, 8, 64), 8 * 128 * 8 * 256);
        assert_eq!(stride(push(), Variant { output: Element::F32, ..bf16 }, 8, 64), 8 * 128 * 8 * 512);
        for wishes in [
            Wishes { transport: Transport::Staged, ..push() },
            Wishes { transport: Transport::PushStores, ..push() },
            Wishes { placement: Placement::Partition, ..push() },
            Wishes { tile: Some([128, 256]), ..push() },
        ] {
            assert_eq!(stride(wishes, bf16, 2, 8192), 0, "{wishes:?}");
        }
        assert_eq!(stride(push(), Variant { layout: Layout::Tn, ..bf16 }, 2, 8192), 0);
        let op = |m| of(bf16, push(), 2, [8192, 8192, 64]).unwrap().for_rows(m).op;
        assert_eq!([64, 65].map(op), [Op::LowLatencyReduceScatter, Op::FewRowsReduceScatter]);
    }

    #[test]
    fn calls_of_few_rows_have_kernels_with_an_epilogue_too() {
        let ops = |transport, placement| {
            let wishes = Wishes { transport, placement, has_epilogue: true, ..push() };
            let kernels = of(Variant::default(), wishes, 4, [8192, 512, 64]).unwrap();
            [1, 64, 65, 128, 129].map(|m| kernels.with_epilogue(m).unwrap().op)
        };
        let (main, slots) = (Op::GemmReduceScatterEpilogue, Op::FewRowsReduceScatterEpilogue);
        let registers = Op::LowLatencyReduceScatterEpilogue;
        assert_eq!(ops(Transport::Push, Placement::Epilogue), [registers, registers, slots, slots, main]);
        assert_eq!(ops(Transport::Push, Placement::Partition), [slots, slots, slots, slots, main]);
        assert_eq!(ops(Transport::Staged, Placement::Partition), [main; 5]);
        let none = of(Variant::default(), push(), 4, [8192, 512, 64]).unwrap();
        assert_eq!(none.with_epilogue(1), None);
        // Kernels that no call of this plan takes are not loaded.
        let wishes = Wishes { has_epilogue: true, ..push() };
        let few = of(Variant::default(), wishes, 4, [16, 512, 64]).unwrap();
        assert_eq!(few.used().map(|used| used.entry.op).collect::<Vec<_>>(), [Op::LowLatencyReduceScatter, registers]);
    }

    #[test]
    fn a_tile_that_is_wished_for_is_that_of_every_call() {
        let wishes = Wishes { tile: Some(TURNS_TILE), ..push() };
        let kernels = of(Variant::default(), wishes, 4, [8192, 512, 64]).unwrap();
        assert!([0, 1, 64, 8192].iter().all(|m| kernels.for_rows(*m).op == Op::GemmReduceScatterPingPong));
        assert_eq!(kernels.used().count(), 1);
        // 2048 rows a rank are 16 × 3 tiles of 48 KiB.
        assert_eq!(kernels.slots(512, 4).unwrap(), (48, 4 * 48 * 49_152));
        for (wishes, n, k, rule) in [
            (Wishes { transport: Transport::Staged, ..wishes }, 512, 64, "transport push"),
            (Wishes { placement: Placement::Partition, ..wishes }, 512, 64, "reduction in the epilogue"),
            (wishes, 508, 64, "steps of 16 bytes, and n is 508"),
            (wishes, 512, 0, "k of at least 1"),
            (
                Wishes { tile: Some([64, 64]), ..push() },
                512,
                64,
                "nt bf16 → bf16 has 128 × 256, 64 × 128 and 128 × 192",
            ),
        ] {
            let text = of(Variant::default(), wishes, 4, [8192, n, k]).unwrap_err().to_string();
            assert!(text.contains("tile is ") && text.contains(rule), "{text}");
        }
    }
}
