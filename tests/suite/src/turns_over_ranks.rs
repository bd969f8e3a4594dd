//! GEMM + ReduceScatter by consumers that multiply whole tiles in turns.

use half::{bf16, f16};
use tilewire::kernels::abi::{Placement, Transport};
use tilewire::ops::{GemmReduceScatter, GemmReduceScatterBuilder};
use tilewire::scalar::Scalar;
use tilewire::world::World;
use tilewire::{Error, Layout, Variant};

use super::{Case, MAIN_TILE, Operands, TestResult, bits, check, run, uniform};

/// The tile whose kernel this is; it is compared with the main one.
const TILE: [u32; 2] = [128, 192];

fn builder<'w, T: Scalar>(world: &'w World, case: &Case, tile: [u32; 2]) -> GemmReduceScatterBuilder<'w> {
    GemmReduceScatter::builder(world)
        .shape(case.m, case.n, case.k)
        .variant(Variant::new(case.layout, T::ELEMENT, T::ELEMENT))
        .transport(case.transport)
        .placement(case.placement)
        .sm_margin(case.sm_margin)
        .first_epoch(case.first_epoch)
        .raster_group(2)
        .tile(tile)
}

/// Against the truth, and bit by bit against consumers that multiply together, with own tiles between others and last.
fn is_right<T: Scalar>(world: &World, case: &Case, head_start: u32) -> TestResult {
    let go = || -> Result<_, Error> {
        let operands = Operands::<T>::new(world, case, uniform)?;
        let by = |tile, tiles| {
            let plan = builder::<T>(world, case, tile).head_start(tiles).build()?;
            run::<T, T>(world, &plan, case, &operands)
        };
        Ok(([by(TILE, head_start)?, by(TILE, u32::MAX)?], by(MAIN_TILE, head_start)?, operands))
    };
    let (found, other, operands) = go().map_err(|e| format!("{case:?}, {head_start}: {e}"))?;
    for d in &found {
        check(case, &operands, d)?;
        if bits(d) != bits(&other) {
            return Err(format!("{case:?}, own tiles after {head_start} or last: other bits than by {MAIN_TILE:?}"));
        }
    }
    Ok(())
}

/// Every layout and type, with and without a margin: no tile of some ranks, one, and many, ragged in every extent.
pub fn every_variant(world: &World, shapes: &[[usize; 3]]) -> TestResult {
    for (nth, &[m, n, k]) in shapes.iter().enumerate() {
        for layout in [Layout::Nt, Layout::Nn] {
            let margin = (nth % 2) as u32;
            let case = Case::new(m, n, k).layout(layout).over(Transport::Push, Placement::Epilogue, margin);
            is_right::<bf16>(world, &case, nth as u32 % 3)?;
            is_right::<f16>(world, &case, nth as u32 % 3 + 1)?;
        }
    }
    Ok(())
}

/// One plan takes call after call, of more and of fewer rows, over epochs that wrap: equal calls give equal bits.
pub fn calls_share_a_plan(world: &World, [m, n, k]: [usize; 3]) -> TestResult {
    for first_epoch in [0x7FFF_FFFD, 0xFFFF_FFFD] {
        let most = Case { first_epoch, ..Case::new(m, n, k) };
        let go = || -> Result<_, Error> {
            let plan = builder::<bf16>(world, &most, TILE).build()?;
            let mut found = Vec::new();
            for rows in [m, m / 2 + 1, m, 1, 0, m, m / 3, m] {
                let case = Case { m: rows, ..most };
                let operands = Operands::<bf16>::new(world, &case, uniform)?;
                let d = run::<bf16, bf16>(world, &plan, &case, &operands)?;
                found.push((case, operands, d));
            }
            Ok(found)
        };
        let found = go().map_err(|e| format!("{most:?}: {e}"))?;
        for (case, operands, d) in &found {
            check(case, operands, d)?;
            let again = found.iter().find(|(other, ..)| other.m == case.m).map(|(.., d)| bits(d));
            if again != Some(bits(d)) {
                return Err(format!("{case:?}: equal calls give other bits"));
            }
        }
    }
    Ok(())
}

/// What the kernel does not do is an error that says what it does.
pub fn what_it_cannot_do_is_refused(world: &World) -> TestResult {
    let case = Case::new(64, 64, 64);
    let text = |case: &Case| match builder::<bf16>(world, case, TILE).build() {
        Ok(_) => String::new(),
        Err(e) => e.to_string(),
    };
    for (case, words) in [
        (case.over(Transport::Staged, Placement::Epilogue, 1), "need transport push and reduction in the epilogue"),
        (case.over(Transport::Push, Placement::Partition, 0), "need transport push and reduction in the epilogue"),
        (case.layout(Layout::Tn), "tn bf16 → bf16 has 128 × 256"),
        (Case { n: 60, ..case }, "whole steps of 16 bytes, and n is 60"),
        (Case { k: 0, ..case }, "k of at least 1"),
    ] {
        let text = text(&case);
        if !text.contains("tile is 128 × 192") || !text.contains(words) {
            return Err(format!("{words:?} is not in {text:?}"));
        }
    }
    Ok(())
}
