//! Chosen elements of a product that is too big to compute whole: the crossings of some rows and some columns.
//!
//! Faults of a tiled kernel live at the edges of tiles and chunks, so the first, a middle and the last row and column of
//! each are always among them; seeded random ones guard against the rest. The sampled rows of A and of B are gathered
//! and multiplied like any other matrices.

use super::fused::Operands;
use super::{Layout, chunks_of, gemm, product_shape};
use crate::compare::Place;
use crate::data::random_at;
use crate::matrix::{Matrix, MatrixRef};
use crate::scalar::Scalar;
use crate::{Error, Result};

/// Rows and columns of an M×N matrix; its elements are their crossings. Sorted, without repeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    m: usize,
    n: usize,
    rows: Vec<usize>,
    cols: Vec<usize>,
    world: usize,
}

impl Sample {
    /// The first, middle and last row of each chunk and of each tile of `tile_m` rows in it; the same for columns, in
    /// tiles of `tile_n`. With `world` = 1 the whole matrix is one chunk.
    ///
    /// # Errors
    /// A tile has no extent; `world` and `m` as for [`chunks_of`].
    pub fn edges(m: usize, n: usize, world: usize, tile_m: usize, tile_n: usize) -> Result<Self> {
        if tile_m == 0 || tile_n == 0 {
            return Err(Error::argument("tile", format!("{tile_m} × {tile_n}"), "a tile has rows and columns"));
        }
        let mut rows = Vec::new();
        for chunk in chunks_of(m, world)? {
            let (first, len) = (chunk.first_row as usize, chunk.rows as usize);
            rows.extend(span(first, len));
            rows.extend(tiles(first, len, tile_m));
        }
        Ok(Self { m, n, rows: sorted(rows), cols: sorted(tiles(0, n, tile_n).collect()), world })
    }

    /// Adds up to `count` random rows and `count` random columns; the same for the same seed.
    pub fn with_random(mut self, count: usize, seed: u64) -> Self {
        let below = |limit: usize, axis: u64, i: usize| (random_at(seed, axis, i as u64) % limit as u64) as usize;
        if self.m > 0 {
            self.rows.extend((0..count).map(|i| below(self.m, 0, i)));
        }
        if self.n > 0 {
            self.cols.extend((0..count).map(|i| below(self.n, 1, i)));
        }
        Self { rows: sorted(self.rows), cols: sorted(self.cols), ..self }
    }

    /// Sampled rows, ascending.
    pub fn rows(&self) -> &[usize] {
        &self.rows
    }

    /// Sampled columns, ascending.
    pub fn cols(&self) -> &[usize] {
        &self.cols
    }

    /// Where the sample's element (`i`, `j`) lies in the whole matrix, and which rank owns it; for
    /// [`compare_placed`](crate::compare::compare_placed).
    ///
    /// # Panics
    /// There is no such element.
    pub fn place(&self, i: usize, j: usize) -> Place {
        Place { rank: self.owner(self.rows[i]), row: self.rows[i], col: self.cols[j] }
    }

    /// The sample's elements of `whole`, which is M×N.
    ///
    /// # Errors
    /// `whole` has another shape.
    pub fn pick<T: Copy + Send + Sync>(&self, whole: MatrixRef<T>) -> Result<Matrix<T>> {
        self.expect_shape("matrix", whole.rows(), whole.cols())?;
        Ok(whole.pick(&self.rows, &self.cols))
    }

    /// The sample's elements of a sharded result: `chunks[d]` is what rank d owns.
    ///
    /// # Errors
    /// The chunks are not those of this sample's M, N and world.
    pub fn pick_chunks<T: Copy + Send + Sync>(&self, chunks: &[MatrixRef<T>]) -> Result<Matrix<T>> {
        let rule = chunks_of(self.m, self.world)?;
        if chunks.len() != rule.len() {
            return Err(Error::argument("chunks", chunks.len(), format!("the world has {} ranks", rule.len())));
        }
        for (d, (chunk, rule)) in chunks.iter().zip(&rule).enumerate() {
            if chunk.rows() != rule.rows as usize || chunk.cols() != self.n {
                let rule = format!("rank {d} owns {} × {}", rule.rows, self.n);
                return Err(Error::argument(
                    format!("chunk {d}"),
                    format!("{} × {}", chunk.rows(), chunk.cols()),
                    rule,
                ));
            }
        }
        Ok(Matrix::from_fn(self.rows.len(), self.cols.len(), |i, j| {
            let (row, owner) = (self.rows[i], self.owner(self.rows[i]));
            *chunks[owner].at(row - rule[owner].first_row as usize, self.cols[j])
        }))
    }

    fn owner(&self, row: usize) -> usize {
        row / self.m.div_ceil(self.world)
    }

    fn expect_shape(&self, what: &str, m: usize, n: usize) -> Result<()> {
        if (m, n) != (self.m, self.n) {
            return Err(Error::argument(
                what,
                format!("{m} × {n}"),
                format!("the sample is of {} × {}", self.m, self.n),
            ));
        }
        Ok(())
    }
}

/// The sample's elements of the product of A and B, in f64: (sampled rows) × (sampled columns).
///
/// # Errors
/// A and B disagree on K, or with the sample on M or N.
pub fn sampled_gemm<T: Scalar>(
    layout: Layout,
    a: MatrixRef<T>,
    b: MatrixRef<T>,
    sample: &Sample,
) -> Result<Matrix<f64>> {
    let (m, n, k) = product_shape(layout, a, b)?;
    sample.expect_shape("product", m, n)?;
    let along_k: Vec<usize> = (0..k).collect();
    let a = if layout == Layout::Tn { a.pick(&along_k, &sample.rows) } else { a.pick(&sample.rows, &along_k) };
    let b = if layout == Layout::Nt { b.pick(&sample.cols, &along_k) } else { b.pick(&along_k, &sample.cols) };
    gemm(layout, a.view(), b.view())
}

/// The sample's elements of Σ_r A_r·B_r, in f64: (sampled rows) × (sampled columns).
///
/// # Errors
/// As [`sampled_gemm`]; the number of ranks is not that of the sample's world.
pub fn sampled_truth<T: Scalar>(layout: Layout, ranks: &[Operands<T>], sample: &Sample) -> Result<Matrix<f64>> {
    if ranks.len() != sample.world {
        return Err(Error::argument("ranks", ranks.len(), format!("the sample's world is {}", sample.world)));
    }
    let mut sum = Matrix::from_fn(sample.rows.len(), sample.cols.len(), |_, _| 0.0);
    for (a, b) in ranks {
        let partial = sampled_gemm(layout, *a, *b, sample)?;
        sum.data_mut().iter_mut().zip(partial.data()).for_each(|(sum, x)| *sum += x);
    }
    Ok(sum)
}

/// First, middle and last of `len` indices from `first`.
fn span(first: usize, len: usize) -> impl Iterator<Item = usize> {
    let of = [0, len / 2, len.saturating_sub(1)];
    of.into_iter().filter(move |_| len > 0).map(move |i| first + i)
}

/// First, middle and last of every tile of up to `tile` indices.
fn tiles(first: usize, len: usize, tile: usize) -> impl Iterator<Item = usize> {
    (0..len).step_by(tile).flat_map(move |start| span(first + start, tile.min(len - start)))
}

fn sorted(mut indices: Vec<usize>) -> Vec<usize> {
    indices.sort_unstable();
    indices.dedup();
    indices
}

#[cfg(test)]
mod tests;
