//! Maps of tiles, chunks and shards; files of weights.

use std::io::Write;

use half::bf16;
use tilewire::kernels::comm::route::{chunk_of, shard_of};
use tilewire::kernels::schedule::chunked::ChunkedTiles;
use tilewire::kernels::schedule::raster::Raster;
use tilewire::kernels::shape::Rank;
use tilewire::matrix::Matrix;
use tilewire::model::{KShards, ModelFile};

use super::input::Input;
use super::properties::{coverage, partition, raster};

/// Every element is computed once, in its owner's chunk; K is cut once; rasters are bijections.
pub fn maps(data: &[u8]) {
    let mut input = Input(data);
    let world = u32::from(input.byte() % 8) + 1;
    let (m, n) = (u32::from(input.u16() % 700), u32::from(input.u16() % 700));
    let tile = input.pick([[128, 256], [64, 128], [16, 24], [8, 8]]);
    let tiles = ChunkedTiles {
        m,
        n,
        rank: Rank(u32::from(input.byte()) % world),
        world,
        shard: shard_of(m, world),
        tile_m: tile[0],
        tile_n: tile[1],
        group: u32::from(input.byte()) + 1,
        row_align: input.pick([1, 8, 4]),
    };
    let num_ctas = u32::from(input.byte()) + 1;
    partition::is_partition(m, (0..world).map(|owner| chunk_of(m, world, Rank(owner))))
        .unwrap_or_else(|e| panic!("{m} rows: {e}"));
    coverage::is_complete(&tiles, num_ctas, |linear| tiles.nth(linear, world))
        .unwrap_or_else(|e| panic!("{tiles:?}, {num_ctas} CTAs: {e}"));
    let grid = Raster {
        tiles_m: u32::from(input.byte()),
        tiles_n: u32::from(input.byte()),
        group: u32::from(input.byte()) + 1,
    };
    raster::is_bijection(grid.tiles_m, grid.tiles_n, |linear| grid.tile(linear))
        .unwrap_or_else(|e| panic!("{grid:?}: {e}"));
    shards(input.extent(), input.extent());
}

fn shards(k: usize, world: usize) {
    let Ok(shards) = KShards::new(k, world) else { return };
    let mut next = 0;
    for rank in 0..world {
        let columns = shards.columns(rank);
        assert!(columns.start == next && columns.len() <= shards.width(), "{shards:?}: rank {rank} has {columns:?}");
        next = columns.end;
    }
    assert_eq!(next, k, "{shards:?}");
}

/// Largest weight that is read, in elements.
const MOST: usize = 1 << 16;

/// Any bytes as a file: an error, or weights of the shape that the file says.
pub fn safetensors(data: &[u8]) {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(data).expect("a temporary file can be written");
    let Ok(model) = ModelFile::open(file.path()) else { return };
    let Ok(projections) = model.down_projections() else { return };
    for projection in projections.iter().filter(|p| p.n.saturating_mul(p.k) <= MOST).take(4) {
        let Ok(weight) = model.read(projection) else { continue };
        assert_eq!((weight.rows(), weight.cols()), (projection.n, projection.k));
        let shards = KShards::new(projection.k, 3).expect("three ranks");
        let cut: Vec<Matrix<bf16>> = shards.cut(weight.view()).expect("K columns");
        assert!(cut.len() == 3 && cut.iter().all(|shard| shard.cols() == shards.width()));
    }
}
