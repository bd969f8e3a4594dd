//! K cut into ranks.

use half::bf16;

use crate::kernels::shape::MAX_WORLD;
use crate::matrix::{Matrix, MatrixRef};
use crate::{Error, Result};

/// Elements of which a shard's K is a multiple: 16 bytes of bf16, the alignment of a row in a tensor map.
const ALIGN: usize = 8;

/// The rule by which K is cut into ranks.
///
/// Rank r takes columns [r·s, min(K, (r+1)·s)), with s = ceil(K / W) rounded up to a multiple of 8. Every rank's shard is
/// *s* columns wide: a tail that has fewer, or none, is filled with zeros, which add nothing to a product. So ranks agree
/// on K, and every row is 16-byte aligned. A and B are cut by the same rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KShards {
    k: usize,
    world: usize,
}

impl KShards {
    /// K columns over `world` ranks.
    ///
    /// # Errors
    /// `world` is 0 or above [`MAX_WORLD`]; K is too large to round up.
    pub fn new(k: usize, world: usize) -> Result<Self> {
        if !(1..=MAX_WORLD).contains(&world) {
            return Err(Error::argument("world", world, format!("a world has 1 to {MAX_WORLD} ranks")));
        }
        if k > usize::MAX / 2 {
            return Err(Error::argument("K", k, "columns are counted in half of usize"));
        }
        Ok(Self { k, world })
    }

    /// Columns of every rank's shard, filled ones included.
    pub fn width(&self) -> usize {
        self.k.div_ceil(self.world).next_multiple_of(ALIGN)
    }

    /// The columns of the whole that `rank` takes; none for a rank past the last.
    pub fn columns(&self, rank: usize) -> std::ops::Range<usize> {
        let bound = |rank: usize| rank.saturating_mul(self.width()).min(self.k);
        bound(rank)..bound(rank.saturating_add(1))
    }

    /// Every rank's shard of `whole` (any rows × K): rows × [`width`](Self::width).
    ///
    /// # Errors
    /// `whole` does not have K columns.
    pub fn cut(&self, whole: MatrixRef<bf16>) -> Result<Vec<Matrix<bf16>>> {
        if whole.cols() != self.k {
            return Err(Error::argument("columns", whole.cols(), format!("K is {}", self.k)));
        }
        let shard = |rank| {
            let columns = self.columns(rank);
            Matrix::from_fn(whole.rows(), self.width(), |row, col| {
                whole.row(row)[columns.clone()].get(col).copied().unwrap_or(bf16::ZERO)
            })
        };
        Ok((0..self.world).map(shard).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data;
    use crate::reference::{Layout, fused, gemm};

    #[test]
    fn shards_are_equally_wide_aligned_and_cover_k_once() {
        let widths = |k, world| {
            let s = KShards::new(k, world).unwrap();
            (s.width(), (0..world).map(|r| s.columns(r).len()).collect::<Vec<_>>())
        };
        assert_eq!(widths(1536, 4), (384, vec![384; 4]));
        assert_eq!(widths(100, 3), (40, vec![40, 40, 20]));
        assert_eq!(widths(9, 4), (8, vec![8, 1, 0, 0]));
        assert_eq!(widths(0, 2), (0, vec![0, 0]));
        for k in 0..200 {
            for world in 1..=8 {
                let s = KShards::new(k, world).unwrap();
                assert_eq!(s.width() % 8, 0);
                assert!((0..world).flat_map(|r| s.columns(r)).eq(0..k));
                assert!(s.columns(world).is_empty() && s.columns(usize::MAX).is_empty());
            }
        }
    }

    #[test]
    fn the_sharded_product_is_the_whole_product() {
        for (k, world) in [(100, 3), (9, 4), (64, 8), (7, 1)] {
            let (a, b) = (data::integers::<bf16>(6, k, 1, 5), data::integers::<bf16>(5, k, 2, 5));
            let shards = KShards::new(k, world).unwrap();
            let (sa, sb) = (shards.cut(a.view()).unwrap(), shards.cut(b.view()).unwrap());
            let ranks: Vec<_> = sa.iter().zip(&sb).map(|(a, b)| (a.view(), b.view())).collect();
            assert_eq!(fused::unsharded(Layout::Nt, &ranks).unwrap(), gemm(Layout::Nt, a.view(), b.view()).unwrap());
        }
    }

    #[test]
    fn impossible_cuts_are_errors() {
        assert!(KShards::new(8, 0).is_err() && KShards::new(8, 9).is_err() && KShards::new(usize::MAX, 1).is_err());
        let b = data::integers::<bf16>(2, 8, 0, 1);
        assert_eq!(KShards::new(9, 1).unwrap().cut(b.view()).unwrap_err().to_string(), "columns is 8, but K is 9");
    }
}
