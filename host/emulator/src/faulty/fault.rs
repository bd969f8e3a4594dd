//! The faults that can be planted: who commits each, in which operation, and what goes wrong in it.

use std::fmt;

use super::super::violation::AgentRole;
use crate::kernels::shape::{Rank, Role};

/// One operation of a kernel, as far as a fault tells operations apart. Barriers go by their names in the shared-memory
/// plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Init(&'static str),
    Wait(&'static str),
    Arrive(&'static str),
    Expect(&'static str),
    LoadSys,
    LoadGpu,
    StoreSys,
    StoreGpu,
    FetchAdd,
    /// `fence_sys`.
    FenceSys,
    LoadBox,
    StoreBox,
    LoadBytes,
    StoreBytes,
    GroupRead,
    /// The same, of a storer that has begun to store results.
    ResultRead,
    GroupComplete,
    Fence,
    IssueMma,
    /// `wait_mma` that leaves so many groups running.
    WaitMma(u32),
    LoadPanel,
    StorePanel,
    /// The same, of a consumer that has handed its buffers over.
    StoreResult,
    Reduce,
    /// Sums of a cut tile.
    StoreShare,
    /// The word that says that sums are there.
    PublishShare,
    /// Flagged words to another rank.
    SendRows,
    TakeRows,
    /// Final rows from registers.
    StoreRows,
    /// The launch of the kernel itself.
    Launch,
}

/// What goes wrong in the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// It does not happen.
    Omit,
    /// Neither does any later one of its kind, nor any wait for bulk groups.
    OmitAll,
    /// It happens twice.
    Repeat,
    /// A wait ends at once, without a look.
    Pretend,
    /// Neither this wait nor any later one of its kind looks.
    PretendAll,
    /// A wait looks, and takes the epoch before for the awaited one.
    Stale,
    /// A wait names the other parity.
    Flip,
    /// Bytes or counts are smaller.
    Less,
    /// Bytes or counts are larger.
    More,
    /// A count is 0.
    Zero,
    /// The arrival on this barrier that should follow the operation goes before it.
    Early(&'static str),
    /// The address is that of the neighbour: the next stage, panel buffer, tile or word.
    Neighbour,
    /// The row is the next one.
    NextRow,
    /// A copy completes on the next barrier.
    NextBarrier,
    /// Gpu scope instead of system scope.
    Narrow,
    /// One column further than copies may start.
    Misalign,
    /// Global memory far outside every allocation.
    Far,
    /// Shared memory that reaches into the barriers.
    OverBarriers,
}

/// Whose operation it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Culprit {
    Setup,
    Producer,
    Storer,
    Loader,
    /// Consumer 0.
    Consumer,
    Leave,
    Host,
}

impl Culprit {
    pub(super) fn is(self, role: AgentRole) -> bool {
        match self {
            Culprit::Setup => role == AgentRole::Setup,
            Culprit::Producer => role == AgentRole::Role(Role::Producer),
            Culprit::Storer => role == AgentRole::Role(Role::Storer),
            Culprit::Loader => role == AgentRole::Role(Role::Loader),
            Culprit::Consumer => role == AgentRole::Role(Role::Consumer(0)),
            Culprit::Leave => role == AgentRole::Leave,
            Culprit::Host => false,
        }
    }
}

macro_rules! faults {
    ($($(#[doc = $doc:literal])+ $variant:ident => $name:literal, $culprit:ident, $op:expr, $effect:expr;)+) => {
        /// A break of the protocol that can be planted in a kernel without touching its source.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Fault {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Fault {
            /// Every fault.
            pub const ALL: &[Fault] = &[$(Fault::$variant,)+];

            /// Its stable name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Fault::$variant => $name,)+
                }
            }

            /// What it models, in one line.
            pub fn about(self) -> String {
                match self {
                    $(Fault::$variant => concat!($($doc, " "),+).trim().replace("  ", " "),)+
                }
            }

            pub(super) const fn planted_in(self) -> (Culprit, Op, Effect) {
                match self {
                    $(Fault::$variant => (Culprit::$culprit, $op, $effect),)+
                }
            }
        }
    };
}

faults! {
    /// A barrier of the operand ring is initialised twice.
    DoubleInit => "double-init", Setup, Op::Init("full"), Effect::Repeat;
    /// A barrier of the operand ring is never initialised.
    MissingInit => "missing-init", Setup, Op::Init("full"), Effect::Omit;
    /// A barrier of the panel ring is initialised for no arrivals.
    InitForNone => "init-for-none", Setup, Op::Init("panel_empty"), Effect::Zero;
    /// A full barrier expects one arrival too many.
    InitForTooMany => "init-for-too-many", Setup, Op::Init("full"), Effect::More;
    /// An empty barrier expects the arrivals of only half the consumers.
    InitForTooFew => "init-for-too-few", Setup, Op::Init("empty"), Effect::Less;

    /// The producer announces fewer bytes than its copies of a stage bring.
    ExpectTxShort => "expect-tx-short", Producer, Op::Expect("full"), Effect::Less;
    /// The producer announces more bytes than its copies of a stage bring.
    ExpectTxLong => "expect-tx-long", Producer, Op::Expect("full"), Effect::More;
    /// The producer arrives a second time on a full barrier.
    DoubleArrive => "double-arrive", Producer, Op::Expect("full"), Effect::Repeat;
    /// The producer fills a stage without waiting for its release.
    SkippedEmptyWait => "skipped-empty-wait", Producer, Op::Wait("empty"), Effect::Pretend;
    /// The producer waits for an empty barrier with the other parity.
    WrongEmptyParity => "wrong-empty-parity", Producer, Op::Wait("empty"), Effect::Flip;
    /// A copy of an operand goes into the next stage.
    WrongStage => "wrong-stage", Producer, Op::LoadBox, Effect::Neighbour;
    /// A copy of an operand completes on the next stage's barrier.
    WrongBarrier => "wrong-barrier", Producer, Op::LoadBox, Effect::NextBarrier;
    /// A copy of an operand is never issued.
    DroppedCopy => "dropped-copy", Producer, Op::LoadBox, Effect::Omit;
    /// A copy of an operand starts at a column that the copy engine cannot take.
    MisalignedCopy => "misaligned-copy", Producer, Op::LoadBox, Effect::Misalign;
    /// A consumer multiplies a stage without waiting for its copies.
    SkippedFullWait => "skipped-full-wait", Consumer, Op::Wait("full"), Effect::Pretend;
    /// A consumer waits for a full barrier with the other parity.
    WrongParity => "wrong-parity", Consumer, Op::Wait("full"), Effect::Flip;
    /// A consumer never releases a stage.
    LostArrive => "lost-arrive", Consumer, Op::Arrive("empty"), Effect::Omit;
    /// A consumer releases a stage twice.
    DoubleRelease => "double-release", Consumer, Op::Arrive("empty"), Effect::Repeat;
    /// A consumer releases a stage before it reads it.
    EarlyRelease => "early-release", Consumer, Op::IssueMma, Effect::Early("empty");
    /// A consumer releases a stage that its multiplication may still be reading.
    UnwaitedMma => "unwaited-mma", Consumer, Op::WaitMma(1), Effect::Omit;
    /// A consumer takes panels out of an accumulator that is still being written.
    UnwaitedAccumulator => "unwaited-accumulator", Consumer, Op::WaitMma(0), Effect::Omit;

    /// A consumer writes a panel and never says so.
    LostPanelCommit => "lost-panel-commit", Consumer, Op::Arrive("panel_full"), Effect::Omit;
    /// A consumer says twice that it has written a panel.
    DoublePanelCommit => "double-panel-commit", Consumer, Op::Arrive("panel_full"), Effect::Repeat;
    /// A consumer says that it has written a panel before it does.
    EarlyPanelCommit => "early-panel-commit", Consumer, Op::StorePanel, Effect::Early("panel_full");
    /// A consumer writes into a panel buffer without waiting for its release.
    SkippedPanelEmptyWait => "skipped-panel-empty-wait", Consumer, Op::Wait("panel_empty"), Effect::Pretend;
    /// The storer stores a panel without waiting for it.
    SkippedPanelWait => "skipped-panel-wait", Storer, Op::Wait("panel_full"), Effect::Pretend;
    /// The storer never releases a panel buffer.
    LostPanelRelease => "lost-panel-release", Storer, Op::Arrive("panel_empty"), Effect::Omit;
    /// The storer releases a panel buffer twice.
    DoublePanelRelease => "double-panel-release", Storer, Op::Arrive("panel_empty"), Effect::Repeat;
    /// The storer releases a buffer that its copies may still be reading.
    OverwrittenPanel => "overwritten-panel", Storer, Op::GroupRead, Effect::Omit;
    /// The storer stores from the next panel buffer.
    WrongPanel => "wrong-panel", Storer, Op::StoreBox, Effect::Neighbour;
    /// The storer writes a panel of D one row too low, over its neighbour.
    ShiftedStore => "shifted-store", Storer, Op::StoreBox, Effect::NextRow;
    /// The storer ends without waiting for any of its copies.
    UnwaitedStores => "unwaited-stores", Storer, Op::GroupRead, Effect::OmitAll;

    /// A consumer never hands its panel buffers to the loader.
    MissingHandover => "missing-handover", Consumer, Op::Arrive("handover"), Effect::Omit;
    /// The loader takes the panel buffers without waiting for the handover.
    SkippedHandoverWait => "skipped-handover-wait", Loader, Op::Wait("handover"), Effect::PretendAll;
    /// A consumer that multiplies tiles in turns never gives the other its turn.
    MissingTurn => "missing-turn", Consumer, Op::Arrive("turn"), Effect::Omit;
    /// A consumer that multiplies tiles in turns takes its turn without waiting for it.
    SkippedTurn => "skipped-turn", Consumer, Op::Wait("turn"), Effect::PretendAll;
    /// The loader never hands an empty panel buffer on.
    LostBuffer => "lost-buffer", Loader, Op::Arrive("partial_full"), Effect::Omit;
    /// The loader takes a panel buffer without waiting for its release.
    SkippedBufferWait => "skipped-buffer-wait", Loader, Op::Wait("partial_empty"), Effect::PretendAll;
    /// The loader announces fewer bytes than the copy of a peer's panel brings.
    ExpectTxShortPartial => "expect-tx-short-partial", Loader, Op::Expect("partial_full"), Effect::Less;
    /// The loader announces more bytes than the copy of a peer's panel brings.
    ExpectTxLongPartial => "expect-tx-long-partial", Loader, Op::Expect("partial_full"), Effect::More;
    /// The loader copies a peer's panel over the barriers.
    CopyOverBarriers => "copy-over-barriers", Loader, Op::LoadBytes, Effect::OverBarriers;
    /// The loader copies from outside the workspace.
    CopyOutOfBounds => "copy-out-of-bounds", Loader, Op::LoadBytes, Effect::Far;
    /// The loader never issues the copy of a peer's panel.
    DroppedPartial => "dropped-partial", Loader, Op::LoadBytes, Effect::Omit;
    /// A consumer adds a peer's panel without waiting for it.
    SkippedPartialWait => "skipped-partial-wait", Consumer, Op::Wait("partial_full"), Effect::Pretend;
    /// A consumer never releases a peer's panel.
    LostPartialRelease => "lost-partial-release", Consumer, Op::Arrive("partial_empty"), Effect::Omit;
    /// A consumer releases a peer's panel before it reads it.
    EarlyPartialRelease => "early-partial-release", Consumer, Op::LoadPanel, Effect::Early("partial_empty");
    /// A consumer writes a reduced panel and never says so.
    LostResult => "lost-result", Consumer, Op::Arrive("result_full"), Effect::Omit;
    /// A consumer says that it has written a reduced panel before it does.
    EarlyResult => "early-result", Consumer, Op::StoreResult, Effect::Early("result_full");
    /// The storer stores a reduced panel without waiting for it.
    SkippedResultWait => "skipped-result-wait", Storer, Op::Wait("result_full"), Effect::Pretend;
    /// The storer releases a reduced panel that its copy may still be reading.
    OverwrittenResult => "overwritten-result", Storer, Op::ResultRead, Effect::Omit;
    /// The storer never releases a reduced panel.
    LostResultRelease => "lost-result-release", Storer, Op::Arrive("partial_empty"), Effect::Omit;
    /// The storer releases a reduced panel more often than there are readers.
    ReleaseTooMany => "release-too-many", Storer, Op::Arrive("partial_empty"), Effect::More;

    /// The storer signals a tile before its copies are complete.
    EarlySignal => "early-signal", Storer, Op::GroupComplete, Effect::Omit;
    /// The storer signals a tile without a proxy fence.
    MissingProxyFence => "missing-proxy-fence", Storer, Op::Fence, Effect::Omit;
    /// The storer never signals a tile.
    LostSignal => "lost-signal", Storer, Op::StoreSys, Effect::Omit;
    /// The storer signals a tile to a peer at gpu scope.
    SignalAtGpuScope => "signal-at-gpu-scope", Storer, Op::StoreSys, Effect::Narrow;
    /// The storer writes a panel into the neighbouring slot.
    WrongSlot => "wrong-slot", Storer, Op::StoreBytes, Effect::Neighbour;
    /// The storer never issues the copy of a panel.
    DroppedStore => "dropped-store", Storer, Op::StoreBytes, Effect::Omit;
    /// The storer does not wait for the owner's credit.
    SkippedCreditWait => "skipped-credit-wait", Storer, Op::LoadSys, Effect::Pretend;
    /// The loader does not wait for a peer's signal.
    SkippedSignalWait => "skipped-signal-wait", Loader, Op::LoadSys, Effect::Pretend;
    /// The loader takes a signal of the epoch before for the awaited one.
    StaleEpoch => "stale-epoch", Loader, Op::LoadSys, Effect::Stale;
    /// The loader looks at a peer's signal at gpu scope.
    WaitAtGpuScope => "wait-at-gpu-scope", Loader, Op::LoadSys, Effect::Narrow;
    /// The loader copies a peer's panel without a proxy fence after its signal.
    MissingLoadFence => "missing-load-fence", Loader, Op::Fence, Effect::Omit;
    /// A consumer does not wait for a signal: of slots that it adds, or the credit before it sends rows.
    SkippedReduceWait => "skipped-reduce-wait", Consumer, Op::LoadSys, Effect::Pretend;
    /// A consumer of the partition stores columns that D does not have.
    UnclippedStore => "unclipped-store", Consumer, Op::Reduce, Effect::More;
    /// The last CTA to leave returns no credit.
    SkippedCredit => "skipped-credit", Leave, Op::StoreSys, Effect::Omit;
    /// The last CTA to leave returns its credit in the name of another rank.
    WrongRankCredit => "wrong-rank-credit", Leave, Op::StoreSys, Effect::Neighbour;
    /// The last CTA to leave returns a credit at gpu scope.
    CreditAtGpuScope => "credit-at-gpu-scope", Leave, Op::StoreSys, Effect::Narrow;
    /// The last CTA to leave returns a credit that releases nothing.
    UnfencedCredit => "unfenced-credit", Leave, Op::FenceSys, Effect::Omit;
    /// The storer of few rows sends signals that release nothing.
    UnfencedSignals => "unfenced-signals", Storer, Op::FenceSys, Effect::Omit;
    /// A CTA leaves without being counted, so the epoch does not advance.
    LostExit => "lost-exit", Leave, Op::FetchAdd, Effect::Omit;

    /// The storer never says that a tile is staged.
    LostStagedSignal => "lost-staged-signal", Storer, Op::StoreGpu, Effect::Omit;
    /// The producer picks up a staged tile without waiting for it.
    SkippedStagedWait => "skipped-staged-wait", Producer, Op::LoadGpu, Effect::Pretend;
    /// The producer picks up a staged tile without a proxy fence after its signal.
    MissingCarryFence => "missing-carry-fence", Producer, Op::Fence, Effect::Omit;
    /// The producer never issues the copy of a staged panel.
    DroppedCarry => "dropped-carry", Producer, Op::LoadBytes, Effect::Omit;
    /// The storer carries a stage without waiting for it.
    SkippedCarryWait => "skipped-carry-wait", Storer, Op::Wait("full"), Effect::Pretend;
    /// The storer never releases a stage that it carried.
    LostCarryRelease => "lost-carry-release", Storer, Op::Arrive("empty"), Effect::Omit;
    /// The storer releases a stage that it carried more often than there are readers.
    CarryReleaseTooMany => "carry-release-too-many", Storer, Op::Arrive("empty"), Effect::More;

    /// A consumer never sends a peer its rows.
    UnsentRows => "unsent-rows", Consumer, Op::SendRows, Effect::Omit;
    /// A consumer flags a peer's rows with an earlier epoch.
    StaleFlags => "stale-flags", Consumer, Op::SendRows, Effect::Stale;
    /// A consumer sends a peer all its rows but one.
    MissingRow => "missing-row", Consumer, Op::SendRows, Effect::Less;
    /// A consumer sends a peer's rows to the next panel's place.
    MisplacedRows => "misplaced-rows", Consumer, Op::SendRows, Effect::Neighbour;
    /// A consumer takes a peer's rows whatever their flags are.
    UncheckedFlags => "unchecked-flags", Consumer, Op::TakeRows, Effect::Pretend;
    /// A consumer stores a row too many from its registers.
    RowTooMany => "row-too-many", Consumer, Op::StoreRows, Effect::More;

    /// A consumer never says that its sums of a cut tile are there.
    LostShare => "lost-share", Consumer, Op::PublishShare, Effect::Omit;
    /// A consumer says that its sums of a cut tile are there, and has not written them.
    MissingShare => "missing-share", Consumer, Op::StoreShare, Effect::Omit;

    /// A rank never launches its kernel.
    AbsentRank => "absent-rank", Host, Op::Launch, Effect::Omit;
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A fault, and where it strikes: in which agents, and at which of their operations of that kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plant {
    /// The fault.
    pub fault: Fault,
    /// Rank whose agents it strikes; every rank's when `None`.
    pub rank: Option<Rank>,
    /// CTA whose agents it strikes; every CTA's when `None`.
    pub cta: Option<u32>,
    /// Call it strikes in, counted from 0 over the rank's launches; every call when `None`.
    pub call: Option<usize>,
    /// Operations of its kind, by one agent, that go well before it strikes. Waits count once, however often they look.
    pub after: u32,
}

impl Plant {
    /// `fault` at the first occurrence in every agent that can commit it.
    pub const fn new(fault: Fault) -> Self {
        Self { fault, rank: None, cta: None, call: None, after: 0 }
    }

    /// On this rank only.
    pub const fn on_rank(self, rank: u32) -> Self {
        Self { rank: Some(Rank(rank)), ..self }
    }

    /// In this CTA only.
    pub const fn on_cta(self, cta: u32) -> Self {
        Self { cta: Some(cta), ..self }
    }

    /// In this call only.
    pub const fn in_call(self, call: usize) -> Self {
        Self { call: Some(call), ..self }
    }

    /// After so many operations of its kind that go well.
    pub const fn after(self, operations: u32) -> Self {
        Self { after: operations, ..self }
    }

    /// Whether it keeps `rank` from launching its kernel in this call.
    pub fn keeps_away(&self, rank: Rank, call: usize) -> bool {
        self.fault == Fault::AbsentRank && self.concerns(rank, call)
    }

    pub(super) fn concerns(&self, rank: Rank, call: usize) -> bool {
        self.rank.is_none_or(|r| r == rank) && self.call.is_none_or(|c| c == call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_kebab_case() {
        let mut names: Vec<_> = Fault::ALL.iter().map(|f| f.name()).collect();
        assert!(names.iter().all(|n| n.chars().all(|c| c.is_ascii_lowercase() || c == '-')));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Fault::ALL.len());
    }

    #[test]
    fn no_two_faults_are_the_same_break() {
        let breaks: Vec<_> = Fault::ALL.iter().map(|f| f.planted_in()).collect();
        for (i, one) in breaks.iter().enumerate() {
            assert!(!breaks[..i].contains(one), "{one:?}");
        }
    }
}
