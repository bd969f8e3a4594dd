//! Checks that several ops share.

use std::fmt::Display;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::kernels::shape::MAX_WORLD;

/// Largest extent the kernels take: tile coordinates are 32-bit and signed in the copy engine.
pub const MAX_EXTENT: usize = i32::MAX as usize;

/// A world size, `1..=8`.
///
/// # Errors
/// Names the value and the rule.
pub fn world_size(ranks: usize) -> Result<u32> {
    if ranks == 0 || ranks > MAX_WORLD {
        return Err(Error::argument("number of ranks", ranks, format!("a world has 1 to {MAX_WORLD} ranks")));
    }
    Ok(ranks as u32)
}

/// An extent in elements.
///
/// # Errors
/// Names the argument, the value and the rule.
pub fn extent(argument: &str, value: usize) -> Result<u32> {
    if value > MAX_EXTENT {
        return Err(Error::argument(argument, value, format!("the copy engine takes extents up to {MAX_EXTENT}")));
    }
    Ok(value as u32)
}

/// Most tiles a product may have: fault records name a tile with 24 bits.
pub const MAX_TILES: u64 = 1 << 24;

/// Checks that an m × n result has no more tiles than the kernels can count.
///
/// # Errors
/// Names the shape and the rule.
pub fn tile_count(m: u32, n: u32, [tile_m, tile_n]: [u32; 2]) -> Result<()> {
    let tiles = u64::from(m.div_ceil(tile_m)) * u64::from(n.div_ceil(tile_n));
    if tiles > MAX_TILES {
        let rule = format!("its {tiles} tiles of {tile_m} × {tile_n} must be at most {MAX_TILES}");
        return Err(Error::argument("shape of D", format!("{m} × {n}"), rule));
    }
    Ok(())
}

/// Checks that an `sm_margin` leaves one of a rank's SMs to compute.
///
/// # Errors
/// Names the value and the rule.
pub fn sm_margin(sm_margin: u32, ctas: u32, rank: usize) -> Result<()> {
    if sm_margin >= ctas {
        let rule = format!("it must leave at least one of the {ctas} SMs of rank {rank} to compute");
        return Err(Error::argument("sm_margin", sm_margin, rule));
    }
    Ok(())
}

/// Checks that a call is given one of `what`, or one set of them, for each rank.
///
/// # Errors
/// Names what was given, and how many.
pub fn one_for_each_rank(what: &str, given: usize, world: usize) -> Result<()> {
    if given != world {
        let rule = format!("there is one for each of {world} ranks");
        return Err(Error::argument(format!("number of {what}"), given, rule));
    }
    Ok(())
}

/// Checks the rows of tiles that are walked together.
///
/// # Errors
/// Names the value and the rule.
pub fn raster_group(tiles: u32) -> Result<()> {
    if tiles == 0 {
        return Err(Error::argument("raster_group", 0, "tiles are walked in groups of at least 1 row"));
    }
    Ok(())
}

/// A deadline as kernels take it, in nanoseconds; one too long to count never comes.
pub fn deadline_ns(deadline: Duration) -> u64 {
    u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX)
}

/// The value that all ranks pass.
///
/// # Errors
/// Names the argument, the first rank that differs, and both values.
pub fn agreed<T: PartialEq + Copy + Display>(argument: &str, values: impl IntoIterator<Item = T>) -> Result<Option<T>> {
    let mut values = values.into_iter();
    let Some(expected) = values.next() else { return Ok(None) };
    for (i, value) in values.enumerate() {
        if value != expected {
            return Err(Error::RanksDisagree {
                argument: argument.to_string(),
                rank: i + 1,
                value: value.to_string(),
                expected: expected.to_string(),
            });
        }
    }
    Ok(Some(expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worlds_have_one_to_eight_ranks() {
        assert!((1..=8).all(|w| world_size(w).is_ok()));
        for w in [0, 9, usize::MAX] {
            let text = world_size(w).unwrap_err().to_string();
            assert!(text.contains(&w.to_string()) && text.contains("1 to 8"), "{text}");
        }
    }

    #[test]
    fn more_tiles_than_can_be_counted_are_refused() {
        assert!(tile_count(65_664, 32_768, [128, 256]).is_ok());
        let text = tile_count(1 << 30, 1 << 30, [128, 256]).unwrap_err().to_string();
        assert!(text.contains("shape of D") && text.contains("16777216"), "{text}");
    }

    #[test]
    fn disagreement_names_the_argument_the_rank_and_both_values() {
        let text = agreed("m", [256, 256, 384]).unwrap_err().to_string();
        assert!(text.contains("on m") && text.contains("rank 2 has 384") && text.contains("rank 0 has 256"), "{text}");
        assert_eq!(agreed("m", [7, 7]).unwrap(), Some(7));
    }
}
