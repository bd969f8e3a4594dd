//! Stream-K: the first tiles of a grid are cut along K so that every CTA multiplies as much of them as any other.
//!
//! A grid whose tiles are no whole number of waves leaves CTAs idle in its last wave. Here the first `split_tiles` tiles,
//! laid end to end along K, are dealt out in runs of equal length, one a CTA; the tiles after them, whole waves, go round as
//! ever. A tile that a run cuts is finished by the CTA that has its first k-tiles, which adds the others' sums in the order
//! of K: for a given shape and number of CTAs the result is the same bits in every call.
//!
//! A CTA adds to another's tile only with the first part of its run, for which it waits for nobody; so whoever collects
//! waits only for work that goes on.

use crate::shape::{CtaPosition, div_rem, min};

/// A grid of tiles and how its work is dealt out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamK {
    /// Tiles of the grid.
    pub tiles: u32,
    /// Tiles at the front that are cut, at most `tiles`; 0 where none is. `split_tiles · k_tiles` fits 32 bits.
    pub split_tiles: u32,
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
}

impl Part {
    /// Whether the CTA gives the sum to the one that finishes the tile.
    #[inline(always)]
    pub const fn is_given_away(&self) -> bool {
        self.k_begin > 0
    }
}

/// How far a CTA has got.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    unit: u32,
    end: u32,
    whole: u32,
}

impl StreamK {
    /// First unit (stage of a cut tile, counted over all of them) of CTA `cta`, and the unit after the last of `cta - 1`.
    #[inline(always)]
    pub const fn first_unit(&self, cta: u32) -> u32 {
        let (each, more) = div_rem(self.split_tiles * self.k_tiles, self.ctas);
        cta * each + min(cta, more)
    }

    /// The start of a CTA's work.
    #[inline(always)]
    pub const fn start(&self, at: CtaPosition) -> Progress {
        Progress { unit: self.first_unit(at.cta), end: self.first_unit(at.cta + 1), whole: self.split_tiles + at.cta }
    }

    /// The next part of a CTA's work.
    #[inline(always)]
    pub const fn next(&self, progress: &mut Progress) -> Option<Part> {
        if progress.unit < progress.end {
            let (tile, k_begin) = div_rem(progress.unit, self.k_tiles);
            let k_end = min(self.k_tiles, k_begin + (progress.end - progress.unit));
            progress.unit += k_end - k_begin;
            return Some(Part { tile, k_begin, k_end });
        }
        if progress.whole < self.tiles {
            let tile = progress.whole;
            progress.whole += self.ctas;
            return Some(Part { tile, k_begin: 0, k_end: self.k_tiles });
        }
        None
    }

    /// Whether CTA `cta` has a part of the cut tile `tile`, which an earlier CTA finishes.
    #[inline(always)]
    pub const fn adds_to(&self, cta: u32, tile: u32) -> bool {
        cta < self.ctas && self.first_unit(cta) < (tile + 1) * self.k_tiles
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec;
    use std::vec::Vec;

    use super::*;

    fn parts(work: &StreamK, cta: u32) -> Vec<Part> {
        let mut progress = work.start(CtaPosition { cta, num_ctas: work.ctas });
        core::iter::from_fn(|| work.next(&mut progress)).collect()
    }

    fn grids() -> impl Iterator<Item = StreamK> {
        let sizes = [(1, 1), (1, 7), (3, 5), (5, 1), (7, 16), (20, 3), (33, 2)];
        sizes.into_iter().flat_map(|(tiles, k_tiles)| {
            (1..=9)
                .flat_map(move |ctas| (0..=tiles).map(move |split_tiles| StreamK { tiles, split_tiles, k_tiles, ctas }))
        })
    }

    #[test]
    fn every_stage_of_every_tile_is_multiplied_once() {
        for work in grids() {
            let mut seen = vec![0; (work.tiles * work.k_tiles) as usize];
            for part in (0..work.ctas).flat_map(|cta| parts(&work, cta)) {
                assert!(part.k_begin < part.k_end && part.k_end <= work.k_tiles, "{work:?}: {part:?}");
                (part.k_begin..part.k_end).for_each(|k| seen[(part.tile * work.k_tiles + k) as usize] += 1);
            }
            assert!(seen.iter().all(|&times| times == 1), "{work:?}");
        }
    }

    #[test]
    fn cut_tiles_are_dealt_out_evenly() {
        for work in grids() {
            let units = |cta| work.first_unit(cta + 1) - work.first_unit(cta);
            let all: Vec<_> = (0..work.ctas).map(units).collect();
            assert!(all.iter().max().unwrap() - all.iter().min().unwrap() <= 1, "{work:?}: {all:?}");
        }
    }

    #[test]
    fn the_finisher_collects_from_exactly_those_that_give_and_in_the_order_of_k() {
        for work in grids() {
            for cta in 0..work.ctas {
                for part in parts(&work, cta).into_iter().filter(|p| p.k_begin == 0 && p.k_end < work.k_tiles) {
                    let mut k = part.k_end;
                    let mut giver = cta + 1;
                    while work.adds_to(giver, part.tile) {
                        let given: Vec<_> = parts(&work, giver).into_iter().filter(|p| p.tile == part.tile).collect();
                        assert_eq!((given.len(), given[0].k_begin), (1, k), "{work:?}: CTA {giver} to {part:?}");
                        k = given[0].k_end;
                        giver += 1;
                    }
                    assert_eq!(k, work.k_tiles, "{work:?}: {part:?} is not finished");
                }
            }
        }
    }

    #[test]
    fn a_cta_gives_away_at_most_its_first_part() {
        for work in grids() {
            for cta in 0..work.ctas {
                assert!(parts(&work, cta).iter().skip(1).all(|part| !part.is_given_away()), "{work:?}, CTA {cta}");
            }
        }
    }
}
