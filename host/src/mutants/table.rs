//! The table of mutants.

use super::{Mutant, Scenario};
use crate::emulator::{Delay, Fault, Plant, Violation as V};
use crate::kernels::abi::{Placement, Transport};

/// One tile, one step along K.
const ONE: Scenario = Scenario::gemm(128, 256, 64);
/// One tile, whose steps along K use every stage at least twice.
const DEEP: Scenario = Scenario::gemm(128, 72, 9 * 64);
/// Three tiles of four panels on one CTA: every panel buffer is used six times.
const WIDE: Scenario = Scenario::gemm(384, 256, 64);
/// One tile of four steps along K, of which CTA 0 has the last two.
const SPLIT: Scenario = Scenario::gemm(128, 256, 4 * 64).over(Transport::Push, Placement::Epilogue, 2, 0);
/// Five tiles on one CTA, multiplied in turns: three and two, of which each begins in the middle of the ring's laps.
const TURNS: Scenario = Scenario::gemm(5 * 128, 192, 6 * 64).in_turns();
/// Two ranks; each consumer of a CTA has a tile for the peer, then an own one.
const TURNS_PAIR: Scenario = Scenario::reduce_scatter(2, 512, 192, 64).in_turns();
/// Two ranks whose CTA 1 computes only its own tile, in buffers that nobody has used.
const TURNS_OWN: Scenario =
    Scenario::reduce_scatter(2, 256, 192, 64).in_turns().over(Transport::Push, Placement::Epilogue, 2, 0);
/// Two peers, so that a consumer frees the first one's panels.
const TURNS_TRIPLE: Scenario = Scenario::reduce_scatter(3, 384, 192, 64).in_turns();
/// A peer that always comes last.
const TURNS_LATE: Scenario = TURNS_PAIR.delayed(1, Delay::UntilOthersBlock);
/// Each consumer has two tiles for the peer, of more stages than the ring has.
const TURNS_DEEP: Scenario = Scenario::reduce_scatter(2, 1024, 192, 6 * 64).in_turns();
/// Only rank 0 owns rows, so that rank 1 can run ahead of it.
const TURNS_AHEAD: Scenario =
    Scenario::reduce_scatter(2, 1, 576, 64).in_turns().calls(3).delayed(0, Delay::Seldom(768));
/// Three calls: the third waits for the credits of the first.
const TURNS_THREE: Scenario = Scenario::reduce_scatter(2, 300, 192, 64).in_turns().calls(3);
/// Two tiles for peers and one own tile a rank, two peers: every buffer is used again in each of its turns.
const PUSH: Scenario = Scenario::reduce_scatter(3, 384, 256, 64);
/// The same with two ranks.
const PAIR: Scenario = Scenario::reduce_scatter(2, 256, 256, 64);
/// Two ranks whose CTA 1 computes only its own tile, in buffers that nobody has used.
const OWN: Scenario = PAIR.over(Transport::Push, Placement::Epilogue, 2, 0);
/// A peer that always comes last.
const LATE: Scenario = PAIR.delayed(1, Delay::UntilOthersBlock);
/// The same, pushed with plain stores.
const STORES: Scenario = PAIR.over(Transport::PushStores, Placement::Epilogue, 1, 0);
/// Partials are added by a partition, CTA 1.
const PARTITION: Scenario = Scenario::reduce_scatter(2, 160, 136, 64).over(Transport::Push, Placement::Partition, 2, 1);
/// The same, few columns, in chunks of few rows.
const CLIPPED: Scenario = Scenario::reduce_scatter(3, 190, 72, 64).over(Transport::Push, Placement::Partition, 2, 1);
/// Tiles are carried by a partition, CTA 1: four loads into three stages.
const STAGED: Scenario = Scenario::reduce_scatter(3, 384, 256, 64).over(Transport::Staged, Placement::Epilogue, 2, 1);
/// Three calls: the third waits for the credits of the first.
const THREE: Scenario = Scenario::reduce_scatter(2, 160, 72, 64).calls(3);
/// Only rank 0 owns a row, so that rank 1 can run ahead of it: so little that rank 0 reads some slots before they are written
/// again.
const AHEAD: Scenario = Scenario::reduce_scatter(2, 1, 320, 64)
    .over(Transport::Push, Placement::Partition, 1, 0)
    .calls(3)
    .delayed(0, Delay::Seldom(768));
/// Tiles that hold the rows of both ranks; rank 1's begin at row 3. Over slots.
const FEW: Scenario = FLAGGED.over(Transport::Push, Placement::Partition, 1, 0);
/// The same, from registers to registers.
const FLAGGED: Scenario = Scenario::reduce_scatter(2, 6, 72, 64);
/// A peer that always comes last.
const FLAGGED_LATE: Scenario = FLAGGED.delayed(1, Delay::UntilOthersBlock);
/// Three calls: the third waits for the credits of the first.
const FLAGGED_THREE: Scenario = FLAGGED.calls(3);
/// Only rank 0 owns a row, and rank 1 is always first.
const FLAGGED_AHEAD: Scenario = Scenario::reduce_scatter(2, 1, 72, 64).calls(3).delayed(0, Delay::UntilOthersBlock);

/// The same, and rank 1 is always first.
const FAR_AHEAD: Scenario = FLAGGED_AHEAD.over(Transport::Push, Placement::Partition, 1, 0);

const fn mutant(plant: Plant, scenario: Scenario, expected: &'static [V], why: &'static str) -> Mutant {
    Mutant { plant, scenario, expected, why }
}

const fn at(fault: Fault, after: u32) -> Plant {
    Plant::new(fault).on_rank(0).on_cta(0).after(after)
}

const fn first(fault: Fault) -> Plant {
    at(fault, 0)
}

const ONCE: &str = "";
const EARLY_RESULT: &str = "the storer reads before or after the result is written";
/// What a consumer that takes a turn too early is reported as.
const EARLY_TURN_IS: &[V] = &[V::ParityTwoPhasesBehind, V::ReadOfUnfilledShared, V::WriteIntoStageInUse];
const EARLY_TURN: &str = "the other's stages have come, of this lap or of a later one, or are still to come";
const EARLY_LOADER: &str =
    "the loader looks at the ring's barriers before it is used or later, and copies before or after the storer's read";
const EARLY_LOAD: &str = "the peer has issued its copy or not";

/// Every mutant.
pub const MUTANTS: &[Mutant] = &[
    mutant(first(Fault::DoubleInit), ONE, &[V::DoubleInit], ONCE),
    mutant(first(Fault::MissingInit), ONE, &[V::UninitialisedBarrier], ONCE),
    mutant(first(Fault::InitForNone), ONE, &[V::InvalidArrivalCount], ONCE),
    mutant(first(Fault::InitForTooMany), ONE, &[V::Deadlock], ONCE),
    mutant(
        first(Fault::InitForTooFew),
        DEEP,
        &[V::WriteIntoStageInUse, V::ReadOfUnfilledShared, V::ParityTwoPhasesBehind],
        "the slower consumer's read, or its wait, or the producer's wait comes first",
    ),
    mutant(first(Fault::ExpectTxShort), ONE, &[V::ExpectTxTooSmall], ONCE),
    mutant(first(Fault::ExpectTxLong), ONE, &[V::Deadlock], ONCE),
    mutant(first(Fault::DoubleArrive), ONE, &[V::ArrivalOverflow], ONCE),
    mutant(
        at(Fault::SkippedEmptyWait, 4),
        DEEP,
        &[V::ArrivalOverflow, V::WriteIntoStageInUse],
        "the stage's first copies may not have landed yet, so that its phase takes no second arrival",
    ),
    mutant(first(Fault::WrongEmptyParity), ONE, &[V::Deadlock], ONCE),
    mutant(first(Fault::WrongStage), ONE, &[V::ReadOfUnfilledShared], ONCE),
    mutant(first(Fault::WrongBarrier), ONE, &[V::ExpectTxTooSmall], ONCE),
    mutant(first(Fault::DroppedCopy), ONE, &[V::Deadlock], ONCE),
    mutant(first(Fault::MisalignedCopy), ONE, &[V::Misaligned], ONCE),
    mutant(first(Fault::SkippedFullWait), DEEP, &[V::ReadOfUnfilledShared], ONCE),
    mutant(
        first(Fault::WrongParity),
        ONE,
        &[V::ReadOfUnfilledShared, V::ParityTwoPhasesBehind],
        "the phase before the first counts as completed until the first has completed too",
    ),
    mutant(first(Fault::LostArrive), DEEP, &[V::Deadlock], ONCE),
    mutant(
        first(Fault::DoubleRelease),
        DEEP,
        &[V::WriteIntoStageInUse, V::ReadOfUnfilledShared, V::ArrivalOverflow],
        "the extra arrival stands for the other consumer's, which may have come, be reading or still be to read",
    ),
    mutant(
        first(Fault::EarlyRelease),
        DEEP,
        &[V::WriteIntoStageInUse, V::ReadOfUnfilledShared],
        "the next copy comes before or after the read",
    ),
    mutant(at(Fault::UnwaitedMma, 1), DEEP, &[V::WriteIntoStageInUse], ONCE),
    mutant(first(Fault::UnwaitedAccumulator), ONE, &[V::AccumulatorInFlight], ONCE),
    mutant(first(Fault::LostPanelCommit), ONE, &[V::Deadlock], ONCE),
    mutant(
        first(Fault::DoublePanelCommit),
        WIDE,
        &[V::ParityTwoPhasesBehind, V::WriteIntoStageInUse, V::ReadOfUnfilledShared],
        "the storer has waited for the first commit or not, and reads the buffer again before or after it is written",
    ),
    mutant(first(Fault::EarlyPanelCommit), ONE, &[V::ReadOfUnfilledShared], ONCE),
    mutant(
        at(Fault::SkippedPanelEmptyWait, 4),
        WIDE,
        &[V::WriteIntoStageInUse, V::ReadOfUnfilledShared, V::ParityTwoPhasesBehind],
        "the storer has read the panel, is about to, or has not even waited for it",
    ),
    mutant(first(Fault::SkippedPanelWait), ONE, &[V::ReadOfUnfilledShared], ONCE),
    mutant(first(Fault::LostPanelRelease), WIDE, &[V::Deadlock], ONCE),
    mutant(
        first(Fault::DoublePanelRelease),
        WIDE,
        &[V::WriteIntoStageInUse, V::ReadOfUnfilledShared, V::ParityTwoPhasesBehind],
        "the consumer has waited for the first release or not, and the storer reads before or after its second write",
    ),
    mutant(first(Fault::OverwrittenPanel), WIDE, &[V::WriteIntoStageInUse], ONCE),
    mutant(first(Fault::WrongPanel), ONE, &[V::ReadOfUnfilledShared], ONCE),
    mutant(first(Fault::ShiftedStore), ONE, &[V::Race], ONCE),
    mutant(
        first(Fault::UnwaitedStores),
        ONE,
        &[V::ExitWithCopyInFlight, V::WriteIntoStageInUse],
        "where a tile has more panels than there are buffers, a buffer is written while it is still read",
    ),
    // Reduction in the epilogue.
    mutant(first(Fault::MissingHandover), PUSH, &[V::Deadlock], ONCE),
    mutant(
        first(Fault::SkippedHandoverWait),
        PUSH,
        &[V::WriteIntoStageInUse, V::ReadOfUnfilledShared, V::ParityTwoPhasesBehind],
        EARLY_LOADER,
    ),
    mutant(first(Fault::ExpectTxShortPartial), PAIR, &[V::ExpectTxTooSmall], ONCE),
    mutant(first(Fault::ExpectTxLongPartial), PAIR, &[V::Deadlock], ONCE),
    mutant(first(Fault::CopyOverBarriers), PAIR, &[V::BarrierOverwritten], ONCE),
    mutant(first(Fault::CopyOutOfBounds), PAIR, &[V::OutOfBounds], ONCE),
    mutant(first(Fault::DroppedPartial), PAIR, &[V::Deadlock], ONCE),
    mutant(first(Fault::SkippedPartialWait).on_cta(1), OWN, &[V::ReadOfUnfilledShared], ONCE),
    mutant(first(Fault::LostPartialRelease), PUSH, &[V::Deadlock], ONCE),
    mutant(
        first(Fault::EarlyPartialRelease),
        PUSH,
        &[V::WriteIntoStageInUse, V::ReadOfUnfilledShared],
        "the next peer's panel comes before or after the read",
    ),
    mutant(first(Fault::LostResult), PAIR, &[V::Deadlock], ONCE),
    mutant(first(Fault::EarlyResult), PAIR, &[V::WriteIntoStageInUse, V::ReadOfUnfilledShared], EARLY_RESULT),
    mutant(first(Fault::SkippedResultWait).on_cta(1), OWN, &[V::ReadOfUnfilledShared], ONCE),
    mutant(first(Fault::OverwrittenResult), PUSH, &[V::WriteIntoStageInUse], ONCE),
    mutant(first(Fault::LostResultRelease), PUSH, &[V::Deadlock], ONCE),
    mutant(first(Fault::ReleaseTooMany), PAIR, &[V::ArrivalOverflow], ONCE),
    // Push.
    mutant(first(Fault::EarlySignal), PAIR, &[V::SignalBeforeData], ONCE),
    // The storer's first fence is the one after its credit.
    mutant(at(Fault::MissingProxyFence, 1), PAIR, &[V::MissingProxyFence], ONCE),
    mutant(first(Fault::LostSignal), PAIR, &[V::Deadlock], ONCE),
    mutant(first(Fault::SignalAtGpuScope), PAIR, &[V::ScopeTooNarrow], ONCE),
    mutant(first(Fault::WrongSlot), PAIR, &[V::ReadOfUnwrittenGlobal], ONCE),
    mutant(first(Fault::DroppedStore), PAIR, &[V::ReadOfUnwrittenGlobal], ONCE),
    mutant(first(Fault::SkippedSignalWait), PAIR, &[V::ReadOfUnwrittenGlobal, V::Race], EARLY_LOAD),
    mutant(first(Fault::StaleEpoch), LATE, &[V::ReadOfUnwrittenGlobal], ONCE),
    mutant(first(Fault::WaitAtGpuScope), PAIR, &[V::ScopeTooNarrow], ONCE),
    mutant(first(Fault::MissingLoadFence), PAIR, &[V::MissingProxyFence], ONCE),
    // Push with plain stores.
    mutant(first(Fault::LostSignal), STORES, &[V::Deadlock], ONCE),
    mutant(first(Fault::SignalAtGpuScope), STORES, &[V::ScopeTooNarrow], ONCE),
    mutant(first(Fault::WrongSlot), STORES, &[V::ReadOfUnwrittenGlobal], ONCE),
    mutant(first(Fault::DroppedStore), STORES, &[V::ReadOfUnwrittenGlobal], ONCE),
    mutant(first(Fault::MissingLoadFence), STORES, &[V::MissingProxyFence], ONCE),
    mutant(first(Fault::SkippedPanelWait), STORES, &[V::ReadOfUnfilledShared], ONCE),
    mutant(
        first(Fault::SkippedSignalWait),
        STORES,
        &[V::ReadOfUnwrittenGlobal, V::Race],
        "the peer has stored the panel or not",
    ),
    // The partition adds.
    mutant(
        first(Fault::SkippedReduceWait).on_cta(1),
        PARTITION,
        &[V::ReadOfUnwrittenGlobal, V::Race],
        "the slot's copy has been issued or not",
    ),
    mutant(first(Fault::UnclippedStore).on_cta(1), CLIPPED, &[V::OutOfBounds], ONCE),
    mutant(first(Fault::EarlySignal), PARTITION, &[V::SignalBeforeData], ONCE),
    mutant(at(Fault::MissingProxyFence, 1), PARTITION, &[V::MissingProxyFence], ONCE),
    // Few rows: tiles that hold the rows of both ranks.
    mutant(first(Fault::ExpectTxLong), FEW, &[V::Deadlock], ONCE),
    mutant(first(Fault::EarlySignal), FEW, &[V::SignalBeforeData], ONCE),
    mutant(at(Fault::MissingProxyFence, 1), FEW, &[V::MissingProxyFence], ONCE),
    mutant(first(Fault::UnfencedSignals), FEW, &[V::Race], ONCE),
    mutant(first(Fault::LostSignal), FEW, &[V::Deadlock], ONCE),
    mutant(first(Fault::WrongSlot), FEW, &[V::OutOfBounds], ONCE),
    mutant(first(Fault::DroppedStore), FEW, &[V::ReadOfUnwrittenGlobal], ONCE),
    mutant(at(Fault::UnclippedStore, 1), FEW, &[V::OutOfBounds], ONCE),
    mutant(
        first(Fault::SkippedReduceWait),
        FEW,
        &[V::ReadOfUnwrittenGlobal, V::Race],
        "the slot's copy has been issued or not",
    ),
    // From registers to registers.
    mutant(first(Fault::UnsentRows), FLAGGED, &[V::Deadlock], ONCE),
    mutant(first(Fault::StaleFlags), FLAGGED, &[V::Deadlock], ONCE),
    mutant(first(Fault::MissingRow), FLAGGED, &[V::Deadlock], ONCE),
    mutant(first(Fault::MisplacedRows), FLAGGED, &[V::Deadlock], ONCE),
    mutant(first(Fault::UncheckedFlags), FLAGGED_LATE, &[V::SlotOverwrittenBeforeCredit], ONCE),
    mutant(first(Fault::RowTooMany), FLAGGED, &[V::OutOfBounds], ONCE),
    mutant(first(Fault::ExpectTxLong), FLAGGED, &[V::Deadlock], ONCE),
    mutant(Plant::new(Fault::SkippedCredit).on_rank(0), FLAGGED_THREE, &[V::Deadlock], ONCE),
    mutant(Plant::new(Fault::CreditAtGpuScope).on_rank(0), FLAGGED_THREE, &[V::ScopeTooNarrow], ONCE),
    mutant(Plant::new(Fault::UnfencedCredit).on_rank(0), FLAGGED_AHEAD, &[V::SlotOverwrittenBeforeCredit], ONCE),
    mutant(
        Plant::new(Fault::SkippedReduceWait).on_rank(1),
        FLAGGED_AHEAD,
        &[V::Deadlock, V::SlotOverwrittenBeforeCredit],
        "the peer has not taken the words yet, and never finds its epoch again, or is about to leave with them",
    ),
    // Credits and epochs.
    mutant(Plant::new(Fault::SkippedCreditWait).on_rank(1), AHEAD, &[V::SlotOverwrittenBeforeCredit], ONCE),
    // The fence between the credit and the stores that it allows.
    mutant(Plant::new(Fault::MissingProxyFence).on_rank(1).in_call(2), FAR_AHEAD, &[V::MissingProxyFence], ONCE),
    mutant(Plant::new(Fault::SkippedCredit).on_rank(0), THREE, &[V::Deadlock], ONCE),
    mutant(Plant::new(Fault::WrongRankCredit).on_rank(1), THREE, &[V::Deadlock], ONCE),
    mutant(Plant::new(Fault::CreditAtGpuScope).on_rank(0), THREE, &[V::ScopeTooNarrow], ONCE),
    mutant(Plant::new(Fault::UnfencedCredit).on_rank(0), FAR_AHEAD, &[V::SlotOverwrittenBeforeCredit], ONCE),
    mutant(
        Plant::new(Fault::LostExit).on_rank(0),
        THREE.over(Transport::Push, Placement::Epilogue, 2, 0),
        &[V::Deadlock, V::SlotOverwrittenBeforeCredit],
        "the rank repeats its epoch: over slots that its peer still reads, or for a peer that waits for the next one",
    ),
    mutant(Plant::new(Fault::AbsentRank).on_rank(1), PAIR, &[V::Deadlock], ONCE),
    // Staged: CTA 0 computes, CTA 1 carries.
    mutant(first(Fault::EarlySignal), STAGED, &[V::SignalBeforeData], ONCE),
    mutant(first(Fault::EarlySignal).on_cta(1), STAGED, &[V::SignalBeforeData], ONCE),
    mutant(first(Fault::MissingProxyFence), STAGED, &[V::MissingProxyFence], ONCE),
    mutant(at(Fault::MissingProxyFence, 2).on_cta(1), STAGED, &[V::MissingProxyFence], ONCE),
    mutant(first(Fault::LostStagedSignal), STAGED, &[V::Deadlock], ONCE),
    mutant(
        first(Fault::SkippedStagedWait).on_cta(1),
        STAGED,
        &[V::ReadOfUnwrittenGlobal, V::Race],
        "the staging copy has been issued or not",
    ),
    mutant(first(Fault::MissingCarryFence).on_cta(1), STAGED, &[V::MissingProxyFence], ONCE),
    mutant(first(Fault::ExpectTxShort).on_cta(1), STAGED, &[V::ExpectTxTooSmall], ONCE),
    mutant(first(Fault::DroppedCarry).on_cta(1), STAGED, &[V::Deadlock], ONCE),
    mutant(first(Fault::SkippedCarryWait).on_cta(1), STAGED, &[V::ReadOfUnfilledShared], ONCE),
    mutant(first(Fault::OverwrittenPanel).on_cta(1), STAGED, &[V::WriteIntoStageInUse], ONCE),
    mutant(first(Fault::LostCarryRelease).on_cta(1), STAGED, &[V::Deadlock], ONCE),
    mutant(first(Fault::CarryReleaseTooMany).on_cta(1), STAGED, &[V::ArrivalOverflow], ONCE),
    mutant(first(Fault::LostSignal).on_cta(1), STAGED, &[V::Deadlock], ONCE),
    // Consumers in turns.
    mutant(first(Fault::MissingTurn), TURNS, &[V::Deadlock], ONCE),
    mutant(first(Fault::SkippedTurn), TURNS, EARLY_TURN_IS, EARLY_TURN),
    mutant(
        first(Fault::UnwaitedAccumulator),
        TURNS,
        &[V::AccumulatorInFlight, V::WriteIntoStageInUse],
        "the last stage is freed before its multiplication has read it, and the producer may be faster than the sums",
    ),
    // Consumers in turns, over ranks.
    mutant(first(Fault::MissingTurn), TURNS_PAIR, &[V::Deadlock], ONCE),
    mutant(first(Fault::SkippedTurn), TURNS_DEEP, EARLY_TURN_IS, EARLY_TURN),
    mutant(first(Fault::LostBuffer), TURNS_PAIR, &[V::Deadlock], ONCE),
    mutant(
        at(Fault::SkippedBufferWait, 4),
        TURNS_PAIR,
        &[V::WriteIntoStageInUse, V::ReadOfUnfilledShared, V::ArrivalOverflow, V::ParityTwoPhasesBehind],
        EARLY_LOADER,
    ),
    mutant(first(Fault::ExpectTxShortPartial), TURNS_PAIR, &[V::ExpectTxTooSmall], ONCE),
    mutant(first(Fault::ExpectTxLongPartial), TURNS_PAIR, &[V::Deadlock], ONCE),
    mutant(first(Fault::DroppedPartial), TURNS_PAIR, &[V::Deadlock], ONCE),
    mutant(first(Fault::SkippedPartialWait).on_cta(1), TURNS_OWN, &[V::ReadOfUnfilledShared], ONCE),
    mutant(first(Fault::LostPartialRelease), TURNS_TRIPLE, &[V::Deadlock], ONCE),
    mutant(first(Fault::LostResult), TURNS_PAIR, &[V::Deadlock], ONCE),
    mutant(first(Fault::LostSignal), TURNS_PAIR, &[V::Deadlock], ONCE),
    mutant(first(Fault::EarlyResult), TURNS_PAIR, &[V::WriteIntoStageInUse, V::ReadOfUnfilledShared], EARLY_RESULT),
    mutant(first(Fault::OverwrittenResult), TURNS_DEEP, &[V::WriteIntoStageInUse], ONCE),
    mutant(first(Fault::LostResultRelease), TURNS_PAIR, &[V::Deadlock], ONCE),
    mutant(first(Fault::ReleaseTooMany), TURNS_PAIR, &[V::ArrivalOverflow], ONCE),
    mutant(first(Fault::EarlySignal), TURNS_PAIR, &[V::SignalBeforeData], ONCE),
    mutant(at(Fault::MissingProxyFence, 1), TURNS_PAIR, &[V::MissingProxyFence], ONCE),
    mutant(first(Fault::SignalAtGpuScope), TURNS_PAIR, &[V::ScopeTooNarrow], ONCE),
    mutant(first(Fault::WrongSlot), TURNS_PAIR, &[V::ReadOfUnwrittenGlobal], ONCE),
    mutant(first(Fault::DroppedStore), TURNS_PAIR, &[V::ReadOfUnwrittenGlobal], ONCE),
    mutant(first(Fault::SkippedSignalWait), TURNS_PAIR, &[V::ReadOfUnwrittenGlobal, V::Race], EARLY_LOAD),
    mutant(first(Fault::StaleEpoch), TURNS_LATE, &[V::ReadOfUnwrittenGlobal], ONCE),
    mutant(first(Fault::WaitAtGpuScope), TURNS_PAIR, &[V::ScopeTooNarrow], ONCE),
    mutant(first(Fault::MissingLoadFence), TURNS_PAIR, &[V::MissingProxyFence], ONCE),
    mutant(Plant::new(Fault::SkippedCreditWait).on_rank(1), TURNS_AHEAD, &[V::SlotOverwrittenBeforeCredit], ONCE),
    mutant(Plant::new(Fault::SkippedCredit).on_rank(0), TURNS_THREE, &[V::Deadlock], ONCE),
    // Cut tiles: CTA 0 gives its sums to CTA 1.
    mutant(first(Fault::LostShare), SPLIT, &[V::Deadlock], ONCE),
    mutant(first(Fault::MissingShare), SPLIT, &[V::ReadOfUnwrittenGlobal], ONCE),
];
