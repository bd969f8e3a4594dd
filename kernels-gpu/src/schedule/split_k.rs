//! Split-K of the tiles that are left over: a grid whose tiles are no whole number of waves leaves CTAs idle in its last wave,
//! so its last `split_tiles` tiles are cut into `parts` parts along K.
//!
//! Units are a part of one tile each. All tiles' last parts come first, then all parts before these, and so on: CTAs that run
//! together are at the same k, and share rows of A and columns of B in L2. (Runs of equal length, one a CTA, are dealt out
//! more evenly, but then no two CTAs are at the same k; measured, that costs more than it gains.) A tile is finished by
//! whoever has its first part, which adds the others' sums in the order of K: for a given shape and number of CTAs the
//! result is the same bits in every call.
//!
//! Every CTA does its units in order, and first parts come after all others; so whoever collects waits only for work that
//! waits for nobody.

use crate::shape::{CtaPosition, div_rem, min};

/// A grid of tiles and how its work is dealt out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitTiles {
    /// Tiles of the grid.
    pub tiles: u32,
    /// Tiles at the end that are cut, at most `tiles`.
    pub split_tiles: u32,
    /// Parts of each of these, at least 1 and at most `k_tiles`.
    pub parts: u32,
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

/// How far a CTA has got.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    whole: u32,
    unit: u32,
}

impl SplitTiles {
    /// The start of a CTA's work.
    #[inline(always)]
    pub const fn start(&self, at: CtaPosition) -> Progress {
        Progress { whole: at.cta, unit: at.cta }
    }

    /// The next part of a CTA's work.
    #[inline(always)]
    pub const fn next(&self, progress: &mut Progress) -> Option<Part> {
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
    const fn first_stage(&self, number: u32) -> u32 {
        let (each, more) = div_rem(self.k_tiles, self.parts);
        number * each + min(number, more)
    }

    /// Place of what part `number` of tile `tile` gives away, among all that is given away in a call.
    #[inline(always)]
    pub const fn given(&self, tile: u32, number: u32) -> u32 {
        (number - 1) * self.split_tiles + tile - (self.tiles - self.split_tiles)
    }
}

/// How many accumulators a call with so many cut tiles gives away.
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

    fn grids() -> impl Iterator<Item = SplitTiles> {
        let sizes = [(1, 1), (1, 7), (3, 5), (5, 1), (7, 16), (20, 3), (33, 2)];
        sizes.into_iter().flat_map(|(tiles, k_tiles)| {
            (1..=9).flat_map(move |ctas| {
                (0..=tiles).flat_map(move |split_tiles| {
                    (1..=k_tiles.min(5)).map(move |parts| SplitTiles { tiles, split_tiles, parts, k_tiles, ctas })
                })
            })
        })
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
            let given = (0..work.ctas).flat_map(|cta| parts(&work, cta)).filter(Part::is_given_away);
            let mut places: Vec<_> = given.map(|part| work.given(part.tile, part.number)).collect();
            places.sort_unstable();
            let all = all_given(work.split_tiles, work.parts);
            assert!(places.into_iter().eq(0..all), "{work:?}");
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
