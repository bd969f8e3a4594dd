//! Split-K: a grid whose tiles are no whole number of waves leaves CTAs idle in its last wave, so tiles are cut along K. Two ways:
//!
//! **Parts.** The last `split_tiles` tiles are cut into `parts` parts each. Units are a part of one tile. All tiles' last parts
//! come first, then all parts before these, and so on: CTAs that run together are at the same k, and share rows of A and columns
//! of B in L2.
//!
//! **Runs.** All stages of all tiles, tile after tile, are dealt out to the CTAs in runs of equal length, so that none is idle.
//! `abreast` tiles, those of one column of tiles where there are few rows of them, are walked side by side by as many
//! neighbouring CTAs, which so are at the same k; no others are, which costs more than it gains where they could share
//! columns of B.
//!
//! A tile is finished by whoever has its first stage, which adds the others' sums in the order of K: for a given shape and
//! number of CTAs the result is the same bits in every call. Every CTA does its units in order, and gives sums away before it
//! collects any; so whoever collects waits only for work that waits for nobody.

use crate::shape::{CtaPosition, div_rem, min};

/// A grid of tiles and how its work is dealt out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitTiles {
    /// Tiles of the grid.
    pub tiles: u32,
    /// Tiles at the end that are cut into parts, at most `tiles`.
    pub split_tiles: u32,
    /// Parts of each of these, at least 1 and at most `k_tiles`.
    pub parts: u32,
    /// Tiles that are walked side by side in runs: a divisor of `tiles`, at most `ctas`, and no more than leave a stage to every
    /// run. 0 where tiles are cut into parts, or not at all.
    pub abreast: u32,
    /// Stages along K of one tile.
    pub k_tiles: u32,
    /// CTAs that share the work.
    pub ctas: u32,
}

/// A tile, or the part of one, that one CTA multiplies in one go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Linear index of the tile.
    pub tile: u32,
    /// First stage along K. Only the CTA that has stage 0 finishes the tile.
    pub k_begin: u32,
    /// Stage after the last.
    pub k_end: u32,
    /// Which part of its tile.
    pub number: u32,
}

impl Part {
    /// Whether the CTA gives the sum to the one that finishes the tile.
    #[inline(always)]
    pub const fn is_given_away(&self) -> bool {
        self.number > 0
    }
}

/// How far a CTA has got: in its whole tiles and in its units, or in its run and which CTA it is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    whole: u32,
    unit: u32,
}

impl SplitTiles {
    /// The start of a CTA's work.
    #[inline(always)]
    pub const fn start(&self, at: CtaPosition) -> Progress {
        let whole = if self.abreast > 0 { self.run_start(div_rem(at.cta, self.abreast).0) } else { at.cta };
        Progress { whole, unit: at.cta }
    }

    /// The next part of a CTA's work.
    #[inline(always)]
    pub const fn next(&self, progress: &mut Progress) -> Option<Part> {
        if self.abreast > 0 {
            return self.next_of_run(progress);
        }
        let whole_tiles = self.tiles - self.split_tiles;
        if progress.whole < whole_tiles {
            let tile = progress.whole;
            progress.whole += self.ctas;
            return Some(Part { tile, k_begin: 0, k_end: self.k_tiles, number: 0 });
        }
        if progress.unit < self.split_tiles * self.parts {
            let (from_last, tile) = div_rem(progress.unit, self.split_tiles);
            let number = self.parts - 1 - from_last;
            progress.unit += self.ctas;
            let (k_begin, k_end) = (self.first_stage(number), self.first_stage(number + 1));
            return Some(Part { tile: whole_tiles + tile, k_begin, k_end, number });
        }
        None
    }

    #[inline(always)]
    const fn next_of_run(&self, progress: &mut Progress) -> Option<Part> {
        let (run, member) = div_rem(progress.unit, self.abreast);
        let left = self.run_start(run + 1).saturating_sub(progress.whole);
        if run >= self.runs() || left == 0 {
            return None;
        }
        let (column, k_begin) = div_rem(progress.whole, self.k_tiles);
        let k_end = min(self.k_tiles, k_begin + left);
        progress.whole += k_end - k_begin;
        // Only the first of a run can be a later part: those after it begin with their tile.
        let number = if k_begin == 0 { 0 } else { run - self.run_of(column * self.k_tiles) };
        Some(Part { tile: column * self.abreast + member, k_begin, k_end, number })
    }

    #[inline(always)]
    const fn runs(&self) -> u32 {
        div_rem(self.ctas, self.abreast).0
    }

    /// Stages of every run, and how many runs at the start have one more.
    #[inline(always)]
    const fn run_length(&self) -> (u32, u32) {
        div_rem(div_rem(self.tiles, self.abreast).0 * self.k_tiles, self.runs())
    }

    /// First stage of a run, where all columns' stages are counted.
    #[inline(always)]
    const fn run_start(&self, run: u32) -> u32 {
        let (each, more) = self.run_length();
        run * each + min(run, more)
    }

    /// The run that has a stage.
    #[inline(always)]
    const fn run_of(&self, stage: u32) -> u32 {
        let (each, more) = self.run_length();
        let longer = more * (each + 1);
        if stage < longer { div_rem(stage, each + 1).0 } else { more + div_rem(stage - longer, each).0 }
    }

    #[inline(always)]
    const fn first_stage(&self, number: u32) -> u32 {
        let (each, more) = div_rem(self.k_tiles, self.parts);
        number * each + min(number, more)
    }

    /// Parts of a tile that is cut.
    #[inline(always)]
    pub const fn parts_of(&self, tile: u32) -> u32 {
        if self.abreast == 0 {
            return self.parts;
        }
        let first = div_rem(tile, self.abreast).0 * self.k_tiles;
        self.run_of(first + self.k_tiles - 1) - self.run_of(first) + 1
    }

    /// Place of what part `number` of tile `tile` gives away, among all that is given away in a call. In runs it is the giver's
    /// index, since a CTA gives at most once.
    #[inline(always)]
    pub const fn given(&self, tile: u32, number: u32) -> u32 {
        if self.abreast == 0 {
            return (number - 1) * self.split_tiles + tile - (self.tiles - self.split_tiles);
        }
        let (column, member) = div_rem(tile, self.abreast);
        (self.run_of(column * self.k_tiles) + number) * self.abreast + member
    }
}

/// How many accumulators a call with so many tiles cut into parts gives away.
pub const fn all_given(split_tiles: u32, parts: u32) -> u32 {
    split_tiles * parts.saturating_sub(1)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec;
    use std::vec::Vec;

    use super::*;

    fn parts(work: &SplitTiles, cta: u32) -> Vec<Part> {
        let mut progress = work.start(CtaPosition { cta, num_ctas: work.ctas });
        core::iter::from_fn(|| work.next(&mut progress)).collect()
    }

    fn grids_in_parts() -> impl Iterator<Item = SplitTiles> {
        let sizes = [(1, 1), (1, 7), (3, 5), (5, 1), (7, 16), (20, 3), (33, 2)];
        sizes.into_iter().flat_map(|(tiles, k_tiles)| {
            (1..=9).flat_map(move |ctas| {
                (0..=tiles).flat_map(move |split_tiles| {
                    (1..=k_tiles.min(5)).map(move |parts| SplitTiles {
                        tiles,
                        split_tiles,
                        parts,
                        abreast: 0,
                        k_tiles,
                        ctas,
                    })
                })
            })
        })
    }

    fn grids_in_runs() -> impl Iterator<Item = SplitTiles> {
        let sizes = [(1, 1), (1, 7), (3, 5), (2, 9), (7, 16), (20, 3), (48, 192)];
        sizes.into_iter().flat_map(|(columns, k_tiles)| {
            (1..=4).flat_map(move |abreast| {
                let ctas = (abreast..=17).chain([132]).filter(move |ctas| ctas / abreast <= columns * k_tiles);
                let tiles = columns * abreast;
                ctas.map(move |ctas| SplitTiles { tiles, split_tiles: tiles, parts: 1, abreast, k_tiles, ctas })
            })
        })
    }

    fn grids() -> impl Iterator<Item = SplitTiles> {
        grids_in_parts().chain(grids_in_runs())
    }

    #[test]
    fn every_stage_of_every_tile_is_multiplied_once() {
        for work in grids() {
            let mut seen = vec![0; (work.tiles * work.k_tiles) as usize];
            for part in (0..work.ctas).flat_map(|cta| parts(&work, cta)) {
                assert!(part.k_begin < part.k_end && part.k_end <= work.k_tiles, "{work:?}: {part:?}");
                assert_eq!(part.k_begin == 0, part.number == 0, "{work:?}: {part:?}");
                (part.k_begin..part.k_end).for_each(|k| seen[(part.tile * work.k_tiles + k) as usize] += 1);
            }
            assert!(seen.iter().all(|&times| times == 1), "{work:?}");
        }
    }

    #[test]
    fn what_is_given_away_has_a_place_of_its_own() {
        for work in grids() {
            let mut places = Vec::new();
            for cta in 0..work.ctas {
                for part in parts(&work, cta).into_iter().filter(Part::is_given_away) {
                    places.push(work.given(part.tile, part.number));
                    assert!(work.abreast == 0 || places.last() == Some(&cta), "{work:?}: {part:?} of {cta}");
                }
            }
            places.sort_unstable();
            let number = places.len();
            places.dedup();
            assert_eq!(places.len(), number, "{work:?}");
            if work.abreast == 0 {
                assert!(places.into_iter().eq(0..all_given(work.split_tiles, work.parts)), "{work:?}");
            }
        }
    }

    #[test]
    fn parts_are_numbered_in_the_order_of_k() {
        for work in grids() {
            let mut all: Vec<_> = (0..work.ctas).flat_map(|cta| parts(&work, cta)).collect();
            all.retain(|part| part.k_end - part.k_begin < work.k_tiles);
            all.sort_unstable_by_key(|part| (part.tile, part.k_begin));
            for of_tile in all.chunk_by(|a, b| a.tile == b.tile) {
                assert!(
                    of_tile.iter().map(|part| part.number).eq(0..work.parts_of(of_tile[0].tile)),
                    "{work:?}: {of_tile:?}"
                );
            }
        }
    }

    #[test]
    fn runs_are_equally_long() {
        for work in grids_in_runs() {
            let stages = |cta| parts(&work, cta).iter().map(|part| part.k_end - part.k_begin).sum::<u32>();
            let busy = work.ctas / work.abreast * work.abreast;
            let lengths: Vec<_> = (0..busy).map(stages).collect();
            let (least, most) = (lengths.iter().min().unwrap(), lengths.iter().max().unwrap());
            assert!(most - least <= 1, "{work:?}: {lengths:?}");
            assert!((busy..work.ctas).all(|cta| parts(&work, cta).is_empty()), "{work:?}");
        }
    }

    #[test]
    fn neighbours_walk_a_column_side_by_side() {
        for work in grids_in_runs() {
            for cta in 0..work.ctas / work.abreast * work.abreast {
                let first = cta / work.abreast * work.abreast;
                let shifted =
                    parts(&work, first).into_iter().map(|part| Part { tile: part.tile + cta - first, ..part });
                assert!(parts(&work, cta).into_iter().eq(shifted), "{work:?}, CTA {cta}");
            }
        }
    }

    #[test]
    fn a_cta_gives_before_it_takes() {
        for work in grids() {
            for cta in 0..work.ctas {
                let cut = parts(&work, cta).into_iter().filter(|part| part.k_end - part.k_begin < work.k_tiles);
                let takes: Vec<_> = cut.map(|part| !part.is_given_away()).collect();
                assert!(takes.is_sorted(), "{work:?}, CTA {cta}: {takes:?}");
            }
        }
    }
}
