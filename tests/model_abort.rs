//! Model of the abort: a wait that outlasts its deadline is recorded once, and everybody leaves, on every rank.

mod model_machine;

use loom::thread;
use model_machine::{Agent, Cta, FOREVER, Mutant, Problem, check};
use std::sync::Arc;
use tilewire_kernels::abi::{Placement, Transport, Wait, WaitKind};
use tilewire_kernels::config::{PANEL_BUFS, Tile};
use tilewire_kernels::kernels::{Kernel, gemm_reduce_scatter::GemmReduceScatter};
use tilewire_kernels::machine::Aborted;
use tilewire_kernels::shape::{CtaPosition, Rank, Role};

type Config = Tile<64, 64, 2>;
type GemmRs = GemmReduceScatter<Config, 2, PANEL_BUFS>;

const EPOCH: u32 = 9;
const AT: CtaPosition = CtaPosition { cta: 0, num_ctas: 1 };
/// One k-tile, and no producer that brings it.
const PROBLEM: Problem =
    Problem { m: 128, n: 64, k: 64, world: 2, transport: Transport::Push, placement: Placement::Epilogue };

fn run(m: Agent<Config>, rank: Rank) -> Result<(), Aborted> {
    let args = PROBLEM.args::<Config>(rank);
    match m.role {
        Role::Consumer(consumer) => GemmRs::consumer(&m, &args, AT, consumer),
        role => GemmRs::mover(&m, &args, AT, role),
    }
}

/// `watched` roles of rank 0 have a deadline; the storer of rank 1 waits without one, for ever.
fn model(name: &str, preemptions: usize, watched: &'static [Role], mutant: Option<Mutant>) {
    check(name, preemptions, move || {
        let mut memory = PROBLEM.memory::<Config>(EPOCH);
        for rank in PROBLEM.ranks() {
            let record = PROBLEM.watchdog::<Config>(rank).record;
            memory.add_payload(record, 0);
            memory.add_word("record", record.plus(4), 0);
            memory.add_word("aborted", PROBLEM.watchdog::<Config>(rank).aborted(), 0);
        }
        let memory = Arc::new(memory);
        let cta = |rank: Rank, deadline: u64| {
            let mut cta = Cta::<Config>::new(memory.clone(), mutant);
            let mut watchdog = PROBLEM.watchdog::<Config>(rank);
            watchdog.deadline_ns = deadline;
            cta.watchdog = Some(watchdog);
            cta.start()
        };
        let (mine, peers) = (cta(Rank(0), 1), cta(Rank(1), FOREVER));
        let mut agents: Vec<_> = watched.iter().map(|role| (mine.agent(*role), Rank(0))).collect();
        agents.push((peers.agent(Role::Storer), Rank(1)));
        let (last, last_rank) = agents.pop().expect("there are agents");
        let others: Vec<_> = agents.into_iter().map(|(m, rank)| thread::spawn(move || run(m, rank))).collect();
        assert_eq!(run(last, last_rank), Err(Aborted));
        for other in others {
            assert_eq!(other.join().expect("the role ends"), Err(Aborted));
        }
        let wait = |role, kind| Wait { role, kind, index: 0, awaited: 0, seen: 0 };
        mine.assert_fault_is_one_of(&[
            wait(Role::Consumer(0), WaitKind::StageFull),
            wait(Role::Storer, WaitKind::PanelFull),
            wait(Role::Loader, WaitKind::Handover),
        ]);
        let record = PROBLEM.watchdog::<Config>(Rank(0)).record;
        assert_eq!(memory.stores(record.plus(4)), 1, "more than one fault was recorded");
        assert_eq!(memory.stores(PROBLEM.watchdog::<Config>(Rank(1)).record.plus(4)), 0);
        // A call that was aborted leaves everything as it is, and says so.
        GemmRs::leave(&mine.agent(Role::Producer), &PROBLEM.args::<Config>(Rank(0)), AT);
        assert_eq!(memory.value(PROBLEM.workspace::<Config>(Rank(0)).epoch()), EPOCH, "an aborted call was counted");
        assert_eq!(memory.value(PROBLEM.watchdog::<Config>(Rank(0)).aborted()), 1, "the host does not hear of it");
        let credit = PROBLEM.workspace::<Config>(Rank(1)).credit(Rank(0));
        assert_eq!(memory.value(credit), EPOCH - 1, "an aborted call returned a credit");
    });
}

const CONSUMER: &[Role] = &[Role::Consumer(0)];
const CONSUMER_AND_STORER: &[Role] = &[Role::Consumer(0), Role::Storer];

#[test]
fn a_deadline_that_passes_on_one_rank_ends_the_waits_of_another() {
    model("abort, 1 watched role, 1 peer", 3, CONSUMER, None);
}

#[test]
fn of_two_deadlines_that_pass_one_is_recorded() {
    model("abort, 2 watched roles, 1 peer", 3, CONSUMER_AND_STORER, None);
}

#[test]
fn of_three_deadlines_that_pass_one_is_recorded() {
    model("abort, 3 watched roles, 1 peer", 2, &[Role::Consumer(0), Role::Storer, Role::Loader], None);
}

#[test]
#[should_panic(expected = "deadlock: Storer waits for PanelFull 0, Consumer(0) waits for StageFull 0")]
fn without_a_deadline_everybody_waits_for_ever() {
    model("abort, mutant", 2, CONSUMER, Some(Mutant::NoDeadline));
}

#[test]
#[should_panic(expected = "deadlock: Storer waits for PanelFull 0")]
fn a_wait_that_does_not_look_at_the_abort_word_never_ends() {
    model("abort, mutant", 2, CONSUMER, Some(Mutant::NoAbortLook));
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent")]
fn a_claim_that_is_not_one_operation_lets_two_write_the_record() {
    model("abort, mutant", 2, CONSUMER_AND_STORER, Some(Mutant::SplitClaim));
}

#[test]
#[should_panic(expected = "an aborted call was counted")]
fn a_leave_that_does_not_see_the_abort_counts_the_call() {
    // 0 and the word's 1 wrap to 0.
    model("abort, mutant", 2, CONSUMER, Some(Mutant::Ahead("abort", u32::MAX)));
}
