//! The properties of `prop_schedule`, each as a function that says what is wrong.

/// Rasters.
pub mod raster {
    /// `tile` maps 0..tiles_m·tiles_n onto the grid, each tile once.
    pub fn is_bijection(tiles_m: u32, tiles_n: u32, tile: impl Fn(u32) -> (u32, u32)) -> Result<(), String> {
        let mut seen = vec![false; (tiles_m * tiles_n) as usize];
        for linear in 0..tiles_m * tiles_n {
            let (row, col) = tile(linear);
            if row >= tiles_m || col >= tiles_n {
                return Err(format!("tile {linear} is ({row}, {col}), outside of {tiles_m} × {tiles_n}"));
            }
            if std::mem::replace(&mut seen[(row * tiles_n + col) as usize], true) {
                return Err(format!("tile {linear} is ({row}, {col}), which came before"));
            }
        }
        Ok(())
    }
}

/// Tiles that hold every owner's rows.
pub mod shared {
    use tilewire::kernels::comm::route::chunk_of;
    use tilewire::kernels::config::PANEL_ROWS;
    use tilewire::kernels::schedule::shared::{Segment, SharedTile, SharedTiles};
    use tilewire::kernels::shape::Rank;

    /// Segments of all owners give each row, at its own place in the tile, to the rank that owns it, as the row of its chunk
    /// that it is.
    pub fn rows_go_to_their_owners(
        t: &SharedTiles,
        consumers: u32,
        segment: impl Fn(Rank, u32) -> Segment,
    ) -> Result<(), String> {
        let mut given = vec![None; t.m as usize];
        for owner in (0..t.world).map(Rank) {
            for consumer in 0..consumers {
                let Segment { first, rows, chunk_row } = segment(owner, consumer);
                if first + rows > PANEL_ROWS {
                    return Err(format!("{owner:?} has rows {first}..{} of half {consumer}", first + rows));
                }
                for i in 0..rows {
                    let row = consumer * PANEL_ROWS + first + i;
                    let place = given.get_mut(row as usize).ok_or(format!("{owner:?} has row {row} of {}", t.m))?;
                    if let Some((before, _)) = place.replace((owner, chunk_row + i)) {
                        return Err(format!("row {row} goes to {before:?} and {owner:?}"));
                    }
                }
            }
        }
        for (row, place) in (0..).zip(given) {
            let (owner, chunk_row) = place.ok_or(format!("row {row} goes to nobody"))?;
            let chunk = chunk_of(t.m, t.world, owner);
            if chunk_row >= chunk.rows || chunk.first_row + chunk_row != row {
                return Err(format!("row {row} is row {chunk_row} of {owner:?}, who has {chunk:?}"));
            }
        }
        Ok(())
    }

    /// CTAs that take every `num_ctas`-th tile have every column once.
    pub fn columns_are_covered(
        t: &SharedTiles,
        num_ctas: u32,
        tile: impl Fn(u32) -> Option<SharedTile>,
    ) -> Result<(), String> {
        let mut times = vec![0; if t.m == 0 { 0 } else { t.n as usize }];
        for cta in 0..num_ctas {
            for tile in (0..).map_while(|i| tile(cta + i * num_ctas)) {
                for col in tile.col..tile.col + tile.cols {
                    *times.get_mut(col as usize).ok_or(format!("{tile:?} has column {col} of {}", t.n))? += 1;
                }
            }
        }
        match times.iter().position(|times| *times != 1) {
            Some(col) => Err(format!("column {col} is computed {} times", times[col])),
            None => Ok(()),
        }
    }
}

/// Rank order and tiles together.
pub mod coverage {
    use tilewire::kernels::comm::route::chunk_of;
    use tilewire::kernels::schedule::chunked::{ChunkTile, ChunkedTiles, max_chunk_tiles};

    /// CTAs that take every `num_ctas`-th tile of `nth` compute each element once, each tile in its owner's chunk and
    /// slot; chunks come one after another, the own one last.
    pub fn is_complete(t: &ChunkedTiles, num_ctas: u32, nth: impl Fn(u32) -> Option<ChunkTile>) -> Result<(), String> {
        let mut computed = vec![0u8; (t.m * t.n) as usize];
        let mut owners = vec![];
        let per_cta = |cta| {
            (0..).map_while({
                let nth = &nth;
                move |i: u32| nth(cta + i * num_ctas)
            })
        };
        for cta in 0..num_ctas {
            for (i, tile) in (0u32..).zip(per_cta(cta)) {
                in_its_place(t, &tile)?;
                owners.push((cta + i * num_ctas, tile.owner));
                for row in tile.row + tile.lead..tile.row + tile.extent.rows {
                    for col in tile.col..tile.col + tile.extent.cols {
                        computed[(row * t.n + col) as usize] += 1;
                    }
                }
            }
        }
        if let Some(i) = computed.iter().position(|&times| times != 1) {
            let (row, col) = (i as u32 / t.n, i as u32 % t.n);
            return Err(format!("element ({row}, {col}) is computed {} times", computed[i]));
        }
        owners.sort_unstable();
        owners.dedup_by_key(|(_, owner)| *owner);
        match owners.iter().rposition(|(_, owner)| *owner == t.rank) {
            Some(i) if i + 1 < owners.len() => Err("the own chunk comes before the last chunk".to_string()),
            _ if owners.len() > t.world as usize => Err("the tiles of a chunk do not follow each other".into()),
            _ => Ok(()),
        }
    }

    fn in_its_place(t: &ChunkedTiles, tile: &ChunkTile) -> Result<(), String> {
        let chunk = chunk_of(t.m, t.world, tile.owner);
        let extent = tile.extent;
        let first = tile.chunk_row as i32;
        let rows = (tile.lead + 1..=t.tile_m).contains(&extent.rows)
            && first + tile.lead as i32 >= 0
            && first + extent.rows as i32 <= chunk.rows as i32
            && tile.row.is_multiple_of(t.row_align);
        let cols = (1..=t.tile_n).contains(&extent.cols) && tile.col + extent.cols <= t.n;
        let slot = tile.index < max_chunk_tiles(t.m, t.n, t.world, [t.tile_m, t.tile_n], t.row_align);
        let row = tile.row as i32 == chunk.first_row as i32 + first;
        if rows && cols && slot && row { Ok(()) } else { Err(format!("{tile:?} leaves its chunk {chunk:?}")) }
    }
}

/// Own tiles between those of others.
pub mod mixed {
    use tilewire::kernels::schedule::chunked::ChunkTile;
    use tilewire::kernels::shape::Rank;

    /// The tiles of each CTA of a rank, in order.
    pub type Ctas = Vec<Vec<ChunkTile>>;

    /// Every CTA of every rank gets through its tiles, where an own tile waits for the peers' of its index and each CTA
    /// takes its tiles in order.
    pub fn nothing_waits_in_a_circle(ranks: &[Ctas]) -> Result<(), String> {
        let mut next: Vec<Vec<usize>> = ranks.iter().map(|ctas| vec![0; ctas.len()]).collect();
        let mut sent = std::collections::HashSet::new();
        loop {
            let mut moved = false;
            for (rank, ctas) in ranks.iter().enumerate() {
                for (cta, tiles) in ctas.iter().enumerate() {
                    while let Some(tile) = tiles.get(next[rank][cta]) {
                        let is_own = tile.owner == Rank(rank as u32);
                        let mut peers = (0..ranks.len()).filter(|peer| *peer != rank);
                        if is_own && !peers.all(|peer| sent.contains(&(peer, tile.owner, tile.index))) {
                            break;
                        }
                        if !is_own {
                            sent.insert((rank, tile.owner, tile.index));
                        }
                        next[rank][cta] += 1;
                        moved = true;
                    }
                }
            }
            if !moved {
                break;
            }
        }
        for (rank, ctas) in ranks.iter().enumerate() {
            for (cta, tiles) in ctas.iter().enumerate() {
                if let Some(tile) = tiles.get(next[rank][cta]) {
                    return Err(format!("CTA {cta} of rank {rank} waits for ever for peers' tile {}", tile.index));
                }
            }
        }
        Ok(())
    }

    /// Each CTA has `head_start` tiles of the last chunk for others before its first own one, if there are enough, and then
    /// own tiles and others in alternation for as long as every CTA has both.
    pub fn own_tiles_come_between(ctas: &Ctas, rank: Rank, last: Rank, head_start: u32) -> Result<(), String> {
        let count = |owner| ctas.iter().flatten().filter(|tile| tile.owner == owner).count();
        let (own, others, per_turn) = (count(rank), count(last), ctas.len());
        for (cta, tiles) in ctas.iter().enumerate() {
            let Some(first) = tiles.iter().position(|tile| tile.owner == rank) else { continue };
            let before = tiles[..first].iter().filter(|tile| tile.owner == last).count();
            if before < head_start as usize && others >= (head_start as usize + 1) * per_turn {
                return Err(format!("CTA {cta} has {before} tiles of {last:?} before its first own one"));
            }
            // Up to one turn more was for the last chunk where the one before it ended within a turn.
            let pairs = others.saturating_sub((head_start as usize + 1) * per_turn).min(own) / per_turn;
            for pair in 0..pairs {
                let owners = [first + 2 * pair, first + 2 * pair + 1].map(|turn| tiles.get(turn).map(|t| t.owner));
                if owners != [Some(rank), Some(last)] {
                    return Err(format!("CTA {cta} has {owners:?} in pair {pair} of {pairs}"));
                }
            }
        }
        Ok(())
    }
}

/// Chunks of rows.
pub mod partition {
    use tilewire::kernels::comm::route::Chunk;

    /// The chunks are 0..m, cut in order.
    pub fn is_partition(m: u32, chunks: impl Iterator<Item = Chunk>) -> Result<(), String> {
        let mut next = 0u64;
        for chunk in chunks {
            if u64::from(chunk.first_row) != next {
                return Err(format!("{chunk:?} does not start at row {next}"));
            }
            next += u64::from(chunk.rows);
        }
        if next == u64::from(m) { Ok(()) } else { Err(format!("chunks end at row {next} of {m}")) }
    }
}

/// Rings.
pub mod ring {
    use tilewire::kernels::pipeline::state::PipelineState;
    use tilewire::kernels::shape::Parity;

    /// `jump(state, n)` is `n` times `advance`, from use `start`; and use u is in buffer u mod STAGES, its turn's parity
    /// that of u div STAGES.
    pub fn jump_is_steps<const STAGES: u32>(
        start: u32,
        n: u32,
        jump: impl Fn(PipelineState<STAGES>, u32) -> PipelineState<STAGES>,
    ) -> Result<(), String> {
        let steps = |from: PipelineState<STAGES>, n: u32| {
            (0..n).fold(from, |mut state, _| {
                state.advance();
                state
            })
        };
        let from = steps(PipelineState::start(), start);
        let (stepped, jumped, usage) = (steps(from, n), jump(from, n), start + n);
        if stepped != jumped {
            return Err(format!("{n} steps from use {start} of {STAGES}: {stepped:?}, in one jump: {jumped:?}"));
        }
        let turn = usage / STAGES;
        let parities = (Parity::of_phase(turn), Parity::of_phase(turn + 1));
        if jumped.index() == usage % STAGES && (jumped.full_parity(), jumped.empty_parity()) == parities {
            Ok(())
        } else {
            Err(format!("use {usage} of {STAGES} is {jumped:?}"))
        }
    }
}

/// Workspaces.
pub mod addresses {
    use tilewire::kernels::abi::Transport;
    use tilewire::kernels::comm::workspace::{WORKSPACE_ALIGN, Workspace};
    use tilewire::kernels::shape::Rank;

    /// Something in a workspace: its name, address and bytes.
    pub type Part = (String, u64, u64);

    /// Everything that has an address in `ws`.
    pub fn of(ws: &Workspace, transport: Transport) -> impl Iterator<Item = Part> {
        let ws = *ws;
        let word = |name: &str, addr: u64| (name.to_string(), addr, 4);
        let header = [
            word("epoch", ws.epoch().0),
            word("exit count", ws.exit_count().0),
            word("abort", ws.abort().0),
            word("claim", ws.claim().0),
        ];
        let credits = (0..ws.world).map(move |r| (format!("credit {r}"), ws.credit(Rank(r)).0, 4));
        let tiles = (0..ws.world).flat_map(move |r| (0..ws.slot_tiles).map(move |tile| (Rank(r), tile)));
        let of_tile = tiles.flat_map(move |(rank, tile)| {
            let (name, bytes) = (|what: &str| format!("{what} ({}, {tile})", rank.0), u64::from(ws.tile_bytes));
            let staging = (transport == Transport::Staged).then(|| (name("staging"), ws.staging(rank, tile).0, bytes));
            [
                (name("signal"), ws.signal(rank, tile).0, 4),
                (name("staged"), ws.staged(rank, tile).0, 4),
                (name("even slot"), ws.slot(0, rank, tile).0, bytes),
                (name("odd slot"), ws.slot(1, rank, tile).0, bytes),
            ]
            .into_iter()
            .chain(staging)
        });
        // As many tiles as a sender's words have room for, in one tile if they are few.
        let tile_bytes = WORKSPACE_ALIGN;
        let tiles = (ws.flagged_stride / (u64::from(ws.world) * tile_bytes)) as u32;
        let flagged = (0..ws.world).flat_map(move |r| {
            (0..tiles).flat_map(move |tile| {
                (0..2).map(move |parity| {
                    let at = ws.flagged(parity, Rank(r), [tile, tiles], tile_bytes).0;
                    (format!("flagged words ({r}, {tile}), parity {parity}"), at, tile_bytes)
                })
            })
        });
        let flagged = flagged.filter(move |_| transport != Transport::Staged);
        header.into_iter().chain(credits).chain(of_tile).chain(flagged)
    }

    /// The parts lie in the `bytes` of `ws` without overlap; words in the part that is initialised, 4-byte aligned, tiles
    /// behind it, on the alignment of a swizzled tile.
    pub fn are_disjoint(ws: &Workspace, bytes: u64, parts: impl Iterator<Item = Part>) -> Result<(), String> {
        let mut parts: Vec<Part> = parts.collect();
        parts.sort_by_key(|part| part.1);
        for pair in parts.windows(2) {
            if pair[0].1 + pair[0].2 > pair[1].1 {
                return Err(format!("{} overlaps {}", pair[0].0, pair[1].0));
            }
        }
        let control_end = ws.base.0 + ws.control_bytes();
        for (name, addr, len) in &parts {
            if *addr < ws.base.0 || addr + len > ws.base.0 + bytes {
                return Err(format!("{name} goes past the end or starts before the workspace"));
            }
            let right = if *len == 4 {
                addr.is_multiple_of(4) && addr + len <= control_end
            } else {
                addr.is_multiple_of(WORKSPACE_ALIGN) && *addr >= control_end
            };
            if !right {
                return Err(format!("{name} at {addr:#x} is misaligned or in the wrong part"));
            }
        }
        Ok(())
    }
}
