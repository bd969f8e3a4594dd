//! Properties of the pure code that host and device share: which tile, in which order, in which buffer, at which address.
//!
//! Each property is a function that returns what is wrong, and each has a mutant that it must catch.

mod properties;

use properties::{addresses, coverage, mixed, partition, raster, ring, shared};
use proptest::prelude::*;
use tilewire::kernels::abi::Transport;
use tilewire::kernels::comm::route::{chunk_of, owner_at_step, shard_of};
use tilewire::kernels::comm::workspace::Workspace;
use tilewire::kernels::config::{Few128x64, Tile64x64, TileBox, TileConfig};
use tilewire::kernels::pipeline::state::PipelineState;
use tilewire::kernels::schedule::chunked::{ChunkedTiles, TileWalk};
use tilewire::kernels::schedule::mixed::{Mix, MixedTiles};
use tilewire::kernels::schedule::raster::Raster;
use tilewire::kernels::schedule::shared::{Segment, SharedTile, SharedTiles};
use tilewire::kernels::shape::{CtaPosition, GlobalAddr, Rank};

#[test]
fn the_raster_is_a_bijection_onto_every_grid_up_to_40_by_40() {
    let mut grids = 0;
    for tiles_m in 0..=40 {
        for tiles_n in 0..=40 {
            // A group of more rows than the grid has is the same as one of all its rows.
            for group in 1..=tiles_m + 1 {
                let r = Raster { tiles_m, tiles_n, group };
                raster::is_bijection(tiles_m, tiles_n, |linear| r.tile(linear))
                    .unwrap_or_else(|e| panic!("{r:?}: {e}"));
                grids += 1;
            }
        }
    }
    assert_eq!(grids, 41 * (1..=41).sum::<u32>());
}

#[test]
fn a_raster_that_forgets_its_short_last_group_is_caught() {
    let r = Raster { tiles_m: 5, tiles_n: 3, group: 2 };
    let mutant = |linear: u32| {
        let (group_idx, rest) = (linear / (r.group * r.tiles_n), linear % (r.group * r.tiles_n));
        (group_idx * r.group + rest % r.group, rest / r.group)
    };
    let e = raster::is_bijection(r.tiles_m, r.tiles_n, mutant).unwrap_err();
    assert_eq!(e, "tile 13 is (5, 0), outside of 5 × 3");
}

#[test]
fn every_row_of_a_shared_tile_goes_to_its_owner_and_is_in_the_box() {
    for world in 1..=8 {
        for m in 0..=128 {
            let t = SharedTiles { m, n: 64, world, tile_n: 64 };
            let consumers = if m <= 64 { 1 } else { 2 };
            shared::rows_go_to_their_owners(&t, consumers, |owner, half| t.segment(owner, half))
                .unwrap_or_else(|e| panic!("{t:?}: {e}"));
            let whole = if m <= 64 { <Tile64x64>::A_BOX } else { <Few128x64>::A_BOX };
            let TileBox { rows, count } = whole.cut_to(m);
            assert!(rows >= m && rows < m + 8 && rows.is_multiple_of(8) && rows <= whole.rows && count == 1, "{t:?}");
        }
    }
}

#[test]
fn segments_in_the_wrong_place_are_caught() {
    let t = SharedTiles { m: 100, n: 64, world: 3, tile_n: 64 };
    let wrong = |mutate: fn(Segment) -> Segment| {
        shared::rows_go_to_their_owners(&t, 2, |owner, half| mutate(t.segment(owner, half))).unwrap_err()
    };
    assert!(wrong(|s| Segment { rows: s.rows.saturating_sub(1), ..s }).contains("goes to nobody"));
    assert!(wrong(|s| Segment { chunk_row: s.chunk_row + 1, ..s }).contains("who has"));
    assert!(wrong(|s| Segment { first: s.first.saturating_sub(1), ..s }).contains("goes to"));
    let one_half = shared::rows_go_to_their_owners(&t, 1, |owner, half| t.segment(owner, half)).unwrap_err();
    assert_eq!(one_half, "row 64 goes to nobody");
}

#[test]
fn shared_tiles_that_overlap_or_leave_gaps_are_caught() {
    let t = SharedTiles { m: 5, n: 200, world: 2, tile_n: 64 };
    let wide = |index| t.tile(index).map(|tile| SharedTile { cols: tile.cols + 1, ..tile });
    assert!(shared::columns_are_covered(&t, 3, wide).unwrap_err().contains("column"));
    let gap = |index| if index == 2 { None } else { t.tile(index) };
    assert_eq!(shared::columns_are_covered(&t, 2, gap).unwrap_err(), "column 128 is computed 0 times");
}

/// A workspace whose parities lie `more` KiB further apart than they must.
fn workspace(base: u64, world: u32, slot_tiles: u32, tile_bytes: u32, more: u64) -> Workspace {
    let parity_stride = u64::from(world) * u64::from(slot_tiles) * u64::from(tile_bytes) + more * 1024;
    Workspace {
        base: GlobalAddr(base),
        world,
        slot_tiles,
        tile_bytes,
        parity_stride,
        flagged_stride: u64::from(world) * more * 1024,
    }
}

fn chunked() -> impl Strategy<Value = ChunkedTiles> {
    let tile = prop::sample::select(vec![1u32, 3, 16, 64, 128, 256]);
    (0u32..500, 0u32..500, 1u32..=8, any::<u32>(), tile.clone(), tile, 1u32..12, any::<bool>()).prop_filter_map(
        "fewer than 20000 tiles",
        |(m, n, world, rank, tile_m, tile_n, group, aligned)| {
            let few = m.div_ceil(tile_m) * n.div_ceil(tile_n) < 20_000;
            // Tiles are at least as tall as their alignment.
            let row_align = if aligned && tile_m >= 8 { 8 } else { 1 };
            let shard = shard_of(m, world);
            few.then_some(ChunkedTiles {
                m,
                n,
                rank: Rank(rank % world),
                world,
                shard,
                tile_m,
                tile_n,
                group,
                row_align,
            })
        },
    )
}

/// The tiles of every CTA of `t`'s rank, in order, and how the CTAs' own come between.
fn mixed_tiles(t: ChunkedTiles, num_ctas: u32, head_start: u32) -> mixed::Ctas {
    let mix = Mix::new(&t, num_ctas, head_start);
    let of = |cta| MixedTiles { tiles: t, at: CtaPosition { cta, num_ctas }, mix };
    (0..num_ctas).map(|cta| (0..).map_while(|turn| of(cta).nth(turn)).collect()).collect()
}

proptest! {
    #[test]
    fn own_tiles_between_others_are_all_tiles_once_and_come_in_order(
        t in chunked(), num_ctas in 1u32..60, head_start in prop::sample::select(vec![0, 1, 2, 3, 7, u32::MAX]),
    ) {
        let ctas = mixed_tiles(t, num_ctas, head_start);
        let mut found: Vec<_> = ctas.iter().flatten().map(|tile| (tile.owner.0, tile.index, tile.row, tile.col)).collect();
        let all = (0..).map_while(|linear| t.nth(linear, t.world));
        let mut all: Vec<_> = all.map(|tile| (tile.owner.0, tile.index, tile.row, tile.col)).collect();
        prop_assert_eq!(Mix::new(&t, num_ctas, head_start).num_tiles() as usize, all.len());
        found.sort_unstable();
        all.sort_unstable();
        prop_assert_eq!(found, all);
        for tiles in &ctas {
            let own: Vec<_> = tiles.iter().filter(|tile| tile.owner == t.rank).map(|tile| tile.index).collect();
            prop_assert!(own.is_sorted(), "{own:?}");
        }
        if t.world > 1 {
            let last = owner_at_step(t.rank, t.world, t.world - 2);
            let head_start = head_start.clamp(1, 20_000);
            mixed::own_tiles_come_between(&ctas, t.rank, last, head_start).map_err(TestCaseError::fail)?;
        }
    }

    #[test]
    fn own_tiles_between_others_wait_in_no_circle_whatever_each_rank_is_given(
        t in chunked(), ctas in prop::collection::vec((1u32..20, 0u32..4), 8),
    ) {
        let ranks: Vec<_> = (0..t.world)
            .zip(ctas)
            .map(|(rank, (num_ctas, head_start))| mixed_tiles(ChunkedTiles { rank: Rank(rank), ..t }, num_ctas, head_start))
            .collect();
        mixed::nothing_waits_in_a_circle(&ranks).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn all_ctas_of_any_grid_compute_every_element_once_and_the_own_chunk_last(t in chunked(), num_ctas in 1u32..200) {
        coverage::is_complete(&t, num_ctas, |linear| t.nth(linear, t.world)).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn a_walk_finds_every_tile_of_a_cta(t in chunked(), num_ctas in 1u32..200, cta in 0u32..200) {
        let cta = cta % num_ctas;
        let mut walk = TileWalk::new(t, cta, num_ctas);
        let walked: Vec<_> = std::iter::from_fn(|| walk.next()).collect();
        let found = (0..).map_while(|turn| t.nth(cta + turn * num_ctas, t.world));
        prop_assert_eq!(walked, found.map(|tile| (tile.row, tile.col)).collect::<Vec<_>>());
        prop_assert_eq!(walk.next(), None);
    }

    #[test]
    fn the_first_steps_are_a_prefix_without_the_own_chunk(t in chunked()) {
        let all = t.world * (t.m.div_ceil(t.tile_m) + 1) * t.n.div_ceil(t.tile_n);
        let others: Vec<_> = (0..all).map_while(|linear| t.nth(linear, t.world - 1)).collect();
        prop_assert!(others.iter().all(|tile| tile.owner != t.rank));
        let whole: Vec<_> = (0..all).map_while(|linear| t.nth(linear, t.world)).collect();
        prop_assert_eq!(&whole[..others.len()], &others[..]);
        prop_assert_eq!(whole.len() - others.len(), t.own_tiles() as usize);
    }

    #[test]
    fn shared_tiles_have_every_column_once(
        m in 0u32..=128, n in 0u32..2000, world in 1u32..=8, tile_n in 1u32..300, num_ctas in 1u32..200,
    ) {
        let t = SharedTiles { m, n, world, tile_n };
        shared::columns_are_covered(&t, num_ctas, |index| t.tile(index)).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn chunks_partition_any_number_of_rows(m in any::<u32>(), world in 1u32..=8) {
        partition::is_partition(m, (0..world).map(|d| chunk_of(m, world, Rank(d)))).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn owners_at_one_step_are_a_permutation(world in 1u32..=8, step in 0u32..8) {
        let step = step % world;
        let mut owners: Vec<_> = (0..world).map(|r| owner_at_step(Rank(r), world, step)).collect();
        owners.sort_unstable();
        prop_assert!(owners.into_iter().eq((0..world).map(Rank)));
    }

    #[test]
    fn a_jump_in_a_ring_is_as_many_steps(start in 0u32..40, n in 0u32..200) {
        fn check<const STAGES: u32>(start: u32, n: u32) -> Result<(), String> {
            ring::jump_is_steps::<STAGES>(start, n, PipelineState::advanced_by)
        }
        let checks = [check::<1>, check::<2>, check::<3>, check::<4>, check::<5>, check::<6>, check::<7>, check::<8>];
        for check in checks {
            check(start, n).map_err(TestCaseError::fail)?;
        }
    }

    #[test]
    fn parts_of_a_workspace_are_disjoint_and_aligned(
        world in 1u32..=8, slot_tiles in 0u32..60, kib in 1u32..130, base in 0u64..(1 << 36), staged in any::<bool>(),
        more in 0u64..3,
    ) {
        let ws = workspace(base * 1024, world, slot_tiles, kib * 1024, more);
        let transport = if staged { Transport::Staged } else { Transport::Push };
        addresses::are_disjoint(&ws, ws.bytes(transport), addresses::of(&ws, transport)).map_err(TestCaseError::fail)?;
    }
}

#[test]
fn a_big_workspace_needs_64_bits_and_gets_them() {
    // 65664 × 32768 in tiles of 128 × 256 of bf16, over 2 ranks.
    let slot_tiles = 65_664u32.div_ceil(2).div_ceil(128) * 128;
    let ws = workspace(1 << 40, 2, slot_tiles, 65_536, 0);
    assert!(ws.bytes(Transport::Push) > u64::from(u32::MAX));
    addresses::are_disjoint(&ws, ws.bytes(Transport::Staged), addresses::of(&ws, Transport::Staged)).unwrap();
}

const EXAMPLE: ChunkedTiles = ChunkedTiles {
    m: 300,
    n: 200,
    rank: Rank(1),
    world: 3,
    shard: 100,
    tile_m: 64,
    tile_n: 64,
    group: 2,
    row_align: 1,
};

#[test]
fn a_schedule_that_drops_repeats_or_reorders_tiles_is_caught() {
    let t = EXAMPLE;
    let error = |nth: &dyn Fn(u32) -> _| coverage::is_complete(&t, 7, nth).unwrap_err();
    let total = (0..).map_while(|linear| t.nth(linear, t.world)).count() as u32;
    let dropped = error(&|linear| (linear + 1 < total).then(|| t.nth(linear, t.world)).flatten());
    assert!(dropped.contains("is computed 0 times"), "{dropped}");
    let repeated = error(&|linear| t.nth(linear - u32::from(linear + 1 == total), t.world));
    assert!(repeated.contains("is computed 2 times"), "{repeated}");
    let own_first = ChunkedTiles { rank: Rank(0), ..t };
    let reordered = error(&|linear| own_first.nth(linear, t.world));
    assert!(reordered.contains("before the last chunk"), "{reordered}");
}

#[test]
fn own_tiles_in_the_wrong_place_are_caught() {
    let t = ChunkedTiles {
        m: 1024,
        n: 256,
        rank: Rank(0),
        world: 2,
        shard: 512,
        tile_m: 64,
        tile_n: 64,
        group: 4,
        row_align: 1,
    };
    let ranks = || [0, 1].map(|rank| mixed_tiles(ChunkedTiles { rank: Rank(rank), ..t }, 3, 1));
    let own = |rank: u32| move |tile: &tilewire::kernels::schedule::chunked::ChunkTile| tile.owner == Rank(rank);
    mixed::nothing_waits_in_a_circle(&ranks()).unwrap();
    mixed::own_tiles_come_between(&ranks()[0], Rank(0), Rank(1), 1).unwrap();
    // Own tiles first, on every rank: each waits for the other.
    let mut early = ranks();
    for (rank, ctas) in (0..).zip(&mut early) {
        ctas.iter_mut().for_each(|tiles| tiles.sort_by_key(|tile| !own(rank)(tile)));
    }
    let error = mixed::nothing_waits_in_a_circle(&early).unwrap_err();
    assert!(error.contains("of rank 0 waits for ever for peers' tile"), "{error}");
    let error = mixed::own_tiles_come_between(&early[0], Rank(0), Rank(1), 1).unwrap_err();
    assert_eq!(error, "CTA 0 has 0 tiles of Rank(1) before its first own one");
    // Own tiles last: nothing waits in a circle, and nothing comes between.
    let mut late = ranks();
    late[0].iter_mut().for_each(|tiles| tiles.sort_by_key(own(0)));
    mixed::nothing_waits_in_a_circle(&late).unwrap();
    let error = mixed::own_tiles_come_between(&late[0], Rank(0), Rank(1), 1).unwrap_err();
    assert!(error.starts_with("CTA 0 has [Some(Rank(0)), Some(Rank(0))] in pair 0"), "{error}");
}

#[test]
fn a_ring_whose_phase_does_not_turn_is_caught() {
    let mutant = |state: PipelineState<4>, n: u32| state.advanced_by(n % 4);
    assert!(ring::jump_is_steps::<4>(0, 3, mutant).is_ok());
    assert!(ring::jump_is_steps::<4>(0, 4, mutant).unwrap_err().starts_with("4 steps from use 0"));
}

#[test]
fn overlapping_or_overflowing_workspace_parts_are_caught() {
    let ws = workspace(4096, 2, 3, 1024, 0);
    let parts = || addresses::of(&ws, Transport::Push);
    let bytes = ws.bytes(Transport::Push);
    let overlap = parts().chain([("mutant".into(), ws.slot(0, Rank(1), 0).0 + 1020, 4)]);
    assert!(addresses::are_disjoint(&ws, bytes, overlap).unwrap_err().contains("overlaps mutant"));
    assert!(addresses::are_disjoint(&ws, bytes - 1, parts()).unwrap_err().contains("past the end"));
}

#[test]
fn chunks_that_overlap_or_leave_gaps_are_caught() {
    let chunks = |m| (0..3).map(move |d| chunk_of(m, 3, Rank(d)));
    assert!(partition::is_partition(10, chunks(10)).is_ok());
    assert!(partition::is_partition(10, chunks(11)).is_err() && partition::is_partition(10, chunks(9)).is_err());
    assert!(partition::is_partition(10, chunks(10).skip(1)).is_err());
}
