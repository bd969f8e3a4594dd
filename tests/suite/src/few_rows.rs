//! Calls of few rows, whose tiles hold the rows of every owner.

use half::bf16;
use tilewire::kernels::abi::{Placement, Transport};
use tilewire::world::World;

use super::{Case, Operands, TestResult, bits, check, plan, run, uniform};

/// The ways that few rows take; in *staged* each owner's rows have tiles of their own.
pub const WAYS: [(Transport, Placement, u32); 6] = [
    (Transport::Push, Placement::Epilogue, 0),
    (Transport::Push, Placement::Epilogue, 2),
    (Transport::Push, Placement::Partition, 0),
    (Transport::Push, Placement::Partition, 1),
    (Transport::PushStores, Placement::Epilogue, 0),
    (Transport::PushStores, Placement::Partition, 2),
];

/// Every way of `case` against its own tiles for each owner, bit by bit, and those against the truth.
pub fn same_bits_as_own_tiles(world: &World, case: &Case) -> TestResult {
    let go = || -> Result<_, tilewire::Error> {
        let operands = Operands::<bf16>::new(world, case, uniform)?;
        let in_way = |(transport, placement, margin)| {
            let case = case.over(transport, placement, margin);
            run::<bf16, bf16>(world, &plan::<bf16, bf16>(world, &case)?, &case, &operands)
        };
        let own = in_way((Transport::Staged, Placement::Partition, 1))?;
        let shared = WAYS.into_iter().map(in_way).collect::<Result<Vec<_>, _>>()?;
        Ok((operands, own, shared))
    };
    let (operands, own, shared) = go().map_err(|e| format!("{case:?}: {e}"))?;
    check(case, &operands, &own)?;
    match shared.iter().position(|d| bits(d) != bits(&own)) {
        Some(way) => Err(format!("{case:?} has other bits by {:?}", WAYS[way])),
        None => Ok(()),
    }
}

/// One plan takes calls of every number of rows, whichever tile the call before had.
pub fn calls_share_a_plan(world: &World, n: usize, k: usize) -> TestResult {
    let case = Case::new(400, n, k);
    let go = || -> Result<_, tilewire::Error> {
        let plan = plan::<bf16, bf16>(world, &Case { first_epoch: u32::MAX - 4, ..case })?;
        let mut found = Vec::new();
        // Each tile after each other one, so that slots and signals of one are met by the next.
        for m in [16, 400, 16, 100, 190, 100, 16, 190, 400, 100, 0, 64, 128, 16] {
            let case = Case { m, ..case };
            let operands = Operands::<bf16>::new(world, &case, uniform)?;
            let d = run::<bf16, bf16>(world, &plan, &case, &operands)?;
            found.push((case, operands, d));
        }
        Ok(found)
    };
    for (case, operands, d) in go().map_err(|e| e.to_string())? {
        check(&case, &operands, &d)?;
    }
    Ok(())
}
