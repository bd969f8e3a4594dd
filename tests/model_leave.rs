//! Model of leaving: the last CTA returns the credits and advances the epoch, after every CTA's reads.

mod model_machine;

use loom::thread;
use model_machine::{Agent, Cta, Mutant, Problem, check};
use std::sync::Arc;
use tilewire_kernels::abi::{Placement, Transport, WaitKind};
use tilewire_kernels::comm::signal::wait_signal;
use tilewire_kernels::config::{PANEL_BUFS, Tile};
use tilewire_kernels::kernels::{Kernel, gemm_reduce_scatter::GemmReduceScatter};
use tilewire_kernels::shape::{CtaPosition, Rank, Role};

type Config = Tile<64, 64, 2>;
type GemmRs = GemmReduceScatter<Config, 2, PANEL_BUFS>;

const EPOCH: u32 = 0xFFFF_FFFF;
const OWNER: Rank = Rank(0);
const SENDER: Rank = Rank(1);
const PROBLEM: Problem =
    Problem { m: 64, n: 192, k: 0, world: 2, transport: Transport::Push, placement: Placement::Partition };

/// CTA `cta` of the owner: reads its tile of the sender's slot, then leaves.
fn read_and_leave(m: Agent<Config>, cta: u32, num_ctas: u32) {
    let own = PROBLEM.workspace::<Config>(OWNER);
    assert_eq!(
        m.cta.memory.payload(own.slot(EPOCH, SENDER, cta)).read(),
        0,
        "a slot was overwritten before it was read"
    );
    GemmRs::leave(&m, &PROBLEM.args::<Config>(OWNER), CtaPosition { cta, num_ctas });
}

/// The sender: once it has the credit it writes all of its slot.
fn overwrite(m: Agent<Config>, num_ctas: u32) {
    let credit = PROBLEM.workspace::<Config>(SENDER).credit(OWNER);
    wait_signal(&m, Role::Storer, WaitKind::Credit, OWNER.0, credit, EPOCH).expect("nothing aborts");
    for tile in 0..num_ctas {
        m.cta.memory.payload(PROBLEM.workspace::<Config>(OWNER).slot(EPOCH, SENDER, tile)).write(1);
    }
}

fn model(name: &str, num_ctas: u32, preemptions: usize, mutant: Option<Mutant>) {
    check(name, preemptions, move || {
        let memory = Arc::new(PROBLEM.memory::<Config>(EPOCH));
        let sender = Cta::new(memory.clone(), mutant).start().agent(Role::Storer);
        let agents: Vec<_> =
            (0..num_ctas).map(|_| Cta::new(memory.clone(), mutant).start().agent(Role::Producer)).collect();
        let ctas: Vec<_> =
            (0..).zip(agents).map(|(cta, m)| thread::spawn(move || read_and_leave(m, cta, num_ctas))).collect();
        overwrite(sender, num_ctas);
        for cta in ctas {
            cta.join().expect("the CTA ends");
        }
        let (own, credit) = (PROBLEM.workspace::<Config>(OWNER), PROBLEM.workspace::<Config>(SENDER).credit(OWNER));
        assert_eq!(memory.value(own.epoch()), EPOCH.wrapping_add(1), "the epoch was not advanced by one");
        assert_eq!(memory.value(own.exit_count()), 0, "the exit count is not at rest");
        assert_eq!(memory.value(credit), EPOCH);
        assert_eq!((memory.stores(own.epoch()), memory.stores(credit)), (1, 1), "more than one CTA was the last");
    });
}

fn mutant(mutant: Mutant) {
    model("leave, mutant", 2, 2, Some(mutant));
}

#[test]
fn the_last_of_two_ctas_advances_the_epoch_once() {
    model("leave, 2 CTAs", 2, 3, None);
}

#[test]
fn the_last_of_three_ctas_advances_the_epoch_once() {
    model("leave, 3 CTAs", 3, 3, None);
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn an_exit_count_that_orders_nothing_races() {
    mutant(Mutant::RelaxedAdd);
}

#[test]
#[should_panic(expected = "deadlock: Storer waits for Credit 0")]
fn an_exit_count_that_is_not_one_operation_loses_a_cta() {
    mutant(Mutant::SplitAdd);
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn a_credit_that_does_not_release_the_reads_races() {
    mutant(Mutant::RelaxedStore("credit"));
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn a_credit_wait_that_does_not_acquire_races() {
    mutant(Mutant::RelaxedLoad("credit"));
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn a_credit_that_is_off_by_one_races() {
    mutant(Mutant::Ahead("credit", 1));
}
