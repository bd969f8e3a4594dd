//! What a plain GEMM should cost: a model of what bounds it, wave by wave, whose constants are data. Pure.

use crate::kernels::entries::Entry;

use super::cut::Cut;

/// What a tile costs, in nanoseconds.
struct TileCost {
    tile: [u32; 2],
    /// Bytes of an element of an operand.
    element_bytes: u32,
    /// Multiplying one stage along K that is there.
    stage: f64,
    /// What is not hidden behind the next tile: the way of the sums to shared memory.
    tail: f64,
    /// Passing the sums of a part to the CTA that finishes its tile.
    share: f64,
    /// The same in runs, whose giver is often in the middle of a tile, and so done as late as the taker.
    share_of_run: f64,
    /// Bytes that one SM takes from device memory in a nanosecond.
    sm_memory: f64,
}

const fn tile(tile: [u32; 2], element_bytes: u32, [stage, tail, share, share_of_run, sm_memory]: [f64; 5]) -> TileCost {
    TileCost { tile, element_bytes, stage, tail, share, share_of_run, sm_memory }
}

/// NVIDIA H200, driver 580.159.04, 2026-11-30, under sustained load: fitted to the table of cuts in
/// `docs/performance.md`, 128×192 to the shapes of `benches/gemm` that it takes, 64×192 and 128×96 on 2026-12-01.
/// Shares are not used where a tile is not cut: 128×192, and 128×128 on 8 bits.
const COSTS: [TileCost; 14] = [
    tile([128, 256], 2, [760.0, 1500.0, 3000.0, 4120.0, 44.8]),
    tile([128, 192], 2, [560.0, 500.0, 0.0, 0.0, 40.0]),
    tile([128, 176], 2, [515.0, 500.0, 0.0, 0.0, 40.0]),
    tile([128, 160], 2, [470.0, 500.0, 0.0, 0.0, 40.0]),
    tile([128, 144], 2, [425.0, 1150.0, 0.0, 0.0, 40.0]),
    tile([128, 96], 2, [315.0, 100.0, 0.0, 0.0, 34.5]),
    tile([64, 192], 2, [310.0, 300.0, 0.0, 0.0, 33.0]),
    tile([64, 96], 2, [180.0, 250.0, 0.0, 0.0, 42.0]),
    tile([128, 128], 2, [384.0, 1100.0, 2900.0, 3930.0, 39.1]),
    tile([64, 128], 2, [170.0, 200.0, 2220.0, 3700.0, 36.7]),
    tile([128, 64], 2, [270.0, 20.0, 2010.0, 3960.0, 30.1]),
    tile([64, 64], 2, [150.0, 300.0, 1570.0, 2610.0, 46.0]),
    tile([128, 256], 1, [900.0, 1200.0, 3000.0, 4000.0, 40.0]),
    tile([128, 128], 1, [500.0, 900.0, 2000.0, 3000.0, 40.0]),
];

/// Bytes that device memory delivers in a nanosecond.
const MEMORY_BYTES_PER_NS: f64 = 4580.0;

/// Bytes that one SM takes from the L2 in a nanosecond.
const SM_L2_BYTES_PER_NS: f64 = 118.0;

/// Bytes that the L2 gives all SMs in a nanosecond.
const L2_BYTES_PER_NS: f64 = 13_700.0;

/// Shape of a call and the CTAs it runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    pub m: u32,
    pub n: u32,
    pub k: u32,
    pub ctas: u32,
}

impl Work {
    pub(super) fn tiles(&self, [rows, cols]: [u32; 2]) -> u64 {
        u64::from(self.m.div_ceil(rows)) * u64::from(self.n.div_ceil(cols))
    }

    pub(super) fn k_tiles(&self, entry: &Entry) -> u64 {
        u64::from(self.k.div_ceil(entry.tile[2]))
    }

    /// Nanoseconds that a stage takes while so many CTAs are busy: whatever is slowest of multiplying it, of bringing
    /// its boxes from the L2, and of bringing the call's bytes, each once, from memory.
    fn stage(&self, entry: &Entry, of: &TileCost, cut: Cut, busy: u64) -> f64 {
        let a_box = entry.boxes[0].of_rows(entry.majors[0], self.m);
        let b_box = if cut.cols > 0 { entry.boxes[1].cut_to(cut.cols) } else { entry.boxes[1] };
        let boxes = f64::from(a_box.total_bytes() + b_box.total_bytes());
        let product = |[rows, cols]: [u32; 2], bytes: u32| f64::from(rows) * f64::from(cols) * f64::from(bytes);
        let once = product([self.n, self.k], entry.input_b.bytes())
            + product([self.m, self.k], entry.input.bytes())
            + product([self.m, self.n], entry.output.bytes());
        let from_memory = once / (self.tiles(cut.tile_of(entry)) as f64 * self.k_tiles(entry) as f64).max(1.0);
        let memory = from_memory / of.sm_memory.min(MEMORY_BYTES_PER_NS / busy as f64);
        // Fewer columns leave the least time of a stage as it is: measured with 40, 48 and 64.
        of.stage.max(boxes / SM_L2_BYTES_PER_NS.min(L2_BYTES_PER_NS / busy as f64)).max(memory)
    }

    /// Expected time in nanoseconds, without what every call takes.
    pub(crate) fn cost(&self, entry: &Entry, cut: Cut) -> f64 {
        let wanted = (entry.tile_extent(), entry.input.bytes());
        let is_of = |cost: &&TileCost| (cost.tile, cost.element_bytes) == wanted;
        let of = COSTS.iter().find(is_of).unwrap_or(&COSTS[0]);
        // Waves of units of so many stages.
        let waves = |units: u64, stages: u64, tail: f64| {
            let (full, rest) = (units / self.ctas(), units % self.ctas());
            let wave = |busy: u64| stages as f64 * self.stage(entry, of, cut, busy) + tail;
            full as f64 * wave(self.ctas()) + if rest > 0 { wave(rest) } else { 0.0 }
        };
        let k_tiles = self.k_tiles(entry);
        if cut.abreast > 0 {
            return self.cost_of_runs(entry, of, cut);
        }
        let whole = waves(self.tiles(cut.tile_of(entry)) - u64::from(cut.tiles), k_tiles, of.tail);
        if cut.tiles == 0 {
            return whole;
        }
        let parts = waves(u64::from(cut.tiles * cut.parts), k_tiles.div_ceil(u64::from(cut.parts)), 0.0);
        whole + parts + of.tail + f64::from(cut.parts) * of.share
    }

    /// Every CTA multiplies one run; the sums of a tile that several have go one after the other to whoever finishes
    /// it.
    fn cost_of_runs(&self, entry: &Entry, of: &TileCost, cut: Cut) -> f64 {
        let abreast = u64::from(cut.abreast);
        let (runs, k_tiles) = ((self.ctas() / abreast).max(1), self.k_tiles(entry));
        let stages = (self.tiles(entry.tile_extent()) / abreast * k_tiles).div_ceil(runs).max(1);
        let parts = 1.0 + k_tiles as f64 / stages as f64;
        stages as f64 * self.stage(entry, of, cut, runs * abreast) + of.tail + parts * of.share_of_run
    }

    fn ctas(&self) -> u64 {
        u64::from(self.ctas.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Variant;
    use crate::kernels::config::Element;
    use crate::kernels::entries::{ENTRIES, Op};
    use crate::plan::Layout;

    /// Microseconds.
    fn us(tile: [u32; 2], [m, n, k]: [u32; 3], cut: Cut) -> f64 {
        let entry = Variant::default().entry_of(Op::Gemm, tile).unwrap();
        Work { m, n, k, ctas: 132 }.cost(entry, cut) * 1e-3
    }

    /// `docs/performance.md`, "Cuts along K".
    #[test]
    fn the_model_is_near_what_was_measured() {
        for (tile, shape, cut, measured) in [
            ([128, 192], [16384, 8192, 2048], Cut::NONE, 777.4),
            ([128, 192], [8192, 8192, 1024], Cut::NONE, 201.6),
            ([128, 256], [8192, 1280, 8192], Cut::NONE, 290.5),
            ([128, 256], [2048, 4608, 12288], Cut::into_parts(24, 5), 333.3),
            ([128, 256], [4096, 4096, 4096], Cut::NONE, 192.3),
            ([128, 128], [8192, 1280, 8192], Cut::NONE, 239.2),
            ([128, 128], [512, 12288, 6144], Cut::NONE, 108.7),
            ([128, 128], [512, 4608, 12288], Cut::into_runs(4), 88.0),
            ([128, 128], [512, 12288, 1536], Cut::NONE, 32.3),
            ([64, 128], [4096, 4096, 4096], Cut::NONE, 241.0),
            ([64, 128], [128, 12288, 6144], Cut::into_parts(60, 2), 45.7),
            ([64, 128], [128, 4608, 12288], Cut::into_runs(2), 40.3),
            ([64, 128], [16, 12288, 1536], Cut::NONE, 14.5),
            ([64, 64], [16, 12288, 6144], Cut::into_parts(60, 2), 40.5),
            ([64, 64], [16, 6144, 12288], Cut::into_runs(1), 43.8),
            ([64, 64], [1, 4608, 12288], Cut::into_runs(1), 35.0),
            ([64, 64], [1, 4608, 12288], Cut::into_columns(40), 30.8),
            ([64, 64], [16, 4608, 12288], Cut::NONE, 34.9),
            ([64, 64], [128, 8192, 14336], Cut::NONE, 74.2),
            ([64, 96], [128, 4608, 12288], Cut::NONE, 38.0),
        ] {
            // Every call takes as much beside.
            let ratio = (us(tile, shape, cut) + 3.3) / measured;
            assert!((0.85..1.15).contains(&ratio), "{tile:?} {shape:?} {cut:?}: {ratio} of what was measured");
        }
    }

    #[test]
    fn every_kernel_of_plain_products_has_a_cost_of_its_own() {
        for entry in ENTRIES.iter().filter(|e| matches!(e.op, Op::Gemm | Op::GemmPingPong | Op::GemmEpilogue)) {
            let found =
                COSTS.iter().filter(|c| (c.tile, c.element_bytes) == (entry.tile_extent(), entry.input.bytes()));
            assert_eq!(found.count(), 1, "{}", entry.name);
        }
    }

    #[test]
    fn fewer_rows_cost_no_more() {
        let mut last = f64::INFINITY;
        for m in [64, 32, 16, 8, 1] {
            let cost = us([64, 64], [m, 4096, 4096], Cut::NONE);
            assert!(cost <= last, "{m} rows: {cost} after {last}");
            last = cost;
        }
    }

    #[test]
    fn narrower_tiles_cost_less_where_they_employ_more_sms() {
        let whole = us([64, 64], [16, 4608, 12288], Cut::NONE);
        let narrow = us([64, 64], [16, 4608, 12288], Cut::into_columns(40));
        assert!((0.75..0.95).contains(&(narrow / whole)), "{narrow} of {whole}");
        // As many columns as the tile has are the tile.
        assert_eq!(us([64, 64], [16, 4608, 12288], Cut::into_columns(64)), whole);
        // Two waves of them are worse than one of whole tiles.
        assert!(us([64, 64], [16, 4608, 12288], Cut::into_columns(24)) > whole);
    }

    #[test]
    fn nothing_to_do_costs_nothing_and_no_number_is_lost() {
        assert_eq!(us([128, 256], [0, 64, 64], Cut::NONE), 0.0);
        let all = Variant::new(Layout::Nt, Element::E4m3, Element::F32).entry_of(Op::Gemm, [128, 128]).unwrap();
        let work = Work { m: u32::MAX, n: u32::MAX, k: u32::MAX, ctas: 1 };
        assert!(work.cost(all, Cut::NONE).is_finite() && Work { k: 0, ..work }.cost(all, Cut::NONE).is_finite());
    }
}
