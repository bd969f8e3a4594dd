//! Model of the sums that CTAs of a plain GEMM leave for each other where tiles are cut along K: the kernel's roles on
//! two and three CTAs, over two calls.
//!
//! One thread is one CTA, which runs its roles one after the other with its own barriers open. A call ends before the
//! next one begins, as on a stream.

mod model_machine;

use loom::thread;
use model_machine::{Agent, Cta, D_STRIDE, Memory, Mutant, Open, check, d_panel, multiplied, shared};
use std::sync::Arc;
use tilewire_kernels::abi::{GemmArgs, Wait, WaitKind, Watchdog};
use tilewire_kernels::collective::share::{Shares, acc_bytes, word_offset};
use tilewire_kernels::config::{Bf16, FEW_PANEL_BUFS, Few, Nt, TileConfig};
use tilewire_kernels::kernels::{Kernel, gemm::Gemm};
use tilewire_kernels::machine::{Signals, WarpgroupMma, Watch};
use tilewire_kernels::schedule::split_k::{Part, SplitTiles, all_given};
use tilewire_kernels::shape::{CtaPosition, GlobalAddr, MAX_WORLD, Role};

/// One panel a tile, and a stage for every step along K that a CTA takes.
type Config = Few<64, 64, 4, Nt, Bf16, Bf16>;

const CALLS: u32 = 2;
const SHARES: GlobalAddr = GlobalAddr(1 << 32);
const D: GlobalAddr = GlobalAddr(2 << 32);

/// The tiles of one row of D, all of them cut: into parts of one step along K each, or into runs.
#[derive(Clone, Copy)]
struct Work {
    tiles: u32,
    k_tiles: u32,
    in_runs: bool,
    ctas: u32,
}

impl Work {
    fn split(&self) -> SplitTiles {
        let Self { tiles, k_tiles, in_runs, ctas } = *self;
        SplitTiles { tiles, split_tiles: tiles, parts: k_tiles, abreast: u32::from(in_runs), k_tiles, ctas }
    }

    /// Places for what is given away.
    fn given(&self) -> u32 {
        if self.in_runs { self.ctas } else { all_given(self.tiles, self.k_tiles) }
    }

    fn word(&self, place: u32) -> GlobalAddr {
        SHARES.plus(word_offset([64, 64], self.given()) + 4 * place as u64)
    }

    fn memory(&self) -> Memory {
        let mut memory = Memory::default();
        for place in 0..self.given() {
            memory.add_payload(SHARES.plus(place as u64 * acc_bytes::<Config>()), 0);
            memory.add_word("share", self.word(place), 0);
        }
        memory.add_d(D, 1, self.tiles);
        memory
    }

    fn args(&self) -> GemmArgs {
        let nowhere = GlobalAddr(0);
        GemmArgs {
            m: 64,
            n: 64 * self.tiles,
            k: Config::TILE_K * self.k_tiles,
            raster_group: 1,
            split_tiles: self.tiles,
            parts: self.k_tiles,
            shares: SHARES,
            share_room: self.given(),
            abreast: self.split().abreast,
            tile_cols: Config::TILE_N,
            d: D,
            d_stride: D_STRIDE,
            scales: [nowhere; 2],
            watchdog: Watchdog {
                deadline_ns: 0,
                abort: nowhere,
                claim: nowhere,
                record: nowhere,
                rank: 0,
                world: 1,
                peer_aborts: [nowhere; MAX_WORLD],
                local_ns: 0,
            },
        }
    }

    /// What D must hold of the tile that a CTA finishes as its `nth` unit, counted from 1.
    fn finished(&self, tile: u32, nth: u32) -> u32 {
        let mut parts: Vec<_> =
            (0..self.ctas).flat_map(|cta| self.parts(cta)).filter(|part| part.tile == tile).collect();
        parts.sort_unstable_by_key(|part| part.k_begin);
        let sums = parts.into_iter().map(|part| multiplied::<Config>(0, 64 * tile, 0, part.k_begin..part.k_end));
        sums.reduce(shared).expect("a tile has parts").wrapping_add(nth * 100)
    }

    fn parts(&self, cta: u32) -> Vec<Part> {
        let split = self.split();
        let mut progress = split.start(CtaPosition { cta, num_ctas: self.ctas });
        std::iter::from_fn(|| split.next(&mut progress)).collect()
    }

    fn check_result(&self, memory: &Memory) {
        for cta in 0..self.ctas {
            for (part, nth) in self.parts(cta).into_iter().zip(1..) {
                if !part.is_given_away() {
                    let found = memory.payload(d_panel(D, 0, 64 * part.tile)).read();
                    assert_eq!(found, self.finished(part.tile, nth), "a tile is the sum of other parts");
                }
            }
        }
        for place in 0..self.given() {
            assert_eq!(memory.value(self.word(place)), 0, "a word is not 0 between calls");
        }
    }
}

/// All roles of one CTA, one after the other.
fn run_cta(m: Agent<Config>, args: GemmArgs, at: CtaPosition) {
    let producer = m.also(Role::Producer);
    Gemm::<Config, 4, FEW_PANEL_BUFS>::mover(&producer, &args, at, Role::Producer).expect("nothing aborts");
    producer.finish();
    Gemm::<Config, 4, FEW_PANEL_BUFS>::consumer(&m, &args, at, 0).expect("nothing aborts");
    let storer = m.also(Role::Storer);
    Gemm::<Config, 4, FEW_PANEL_BUFS>::mover(&storer, &args, at, Role::Storer).expect("nothing aborts");
    storer.finish();
}

fn model(name: &str, preemptions: usize, work: Work, mutant: Option<Mutant>) {
    check(name, preemptions, move || {
        let (memory, args) = (Arc::new(work.memory()), work.args());
        for _ in 0..CALLS {
            let ctas = (0..work.ctas).map(|cta| {
                let mut of = Cta::<Config>::new(memory.clone(), mutant);
                (of.d, of.open) = (D, Open::All);
                (of.start().agent(Role::Consumer(0)), CtaPosition { cta, num_ctas: work.ctas })
            });
            let mut ctas: Vec<_> = ctas.collect();
            let (last, at) = ctas.pop().expect("there are CTAs");
            let others: Vec<_> = ctas.into_iter().map(|(m, at)| thread::spawn(move || run_cta(m, args, at))).collect();
            run_cta(last, args, at);
            for other in others {
                other.join().expect("the CTA ends");
            }
            work.check_result(&memory);
        }
    });
}

/// CTA 0 gives to CTA 1.
const PAIR: Work = Work { tiles: 1, k_tiles: 2, in_runs: false, ctas: 2 };
/// Each CTA gives to the other, and takes from it.
const CROSSED: Work = Work { tiles: 3, k_tiles: 2, in_runs: false, ctas: 2 };
/// CTAs 0 and 1 give to CTA 2.
const THREE: Work = Work { tiles: 1, k_tiles: 3, in_runs: false, ctas: 3 };
/// CTA 1 gives the end of a tile to CTA 0, then takes the end of its own from CTA 2.
const CHAIN: Work = Work { tiles: 2, k_tiles: 3, in_runs: true, ctas: 3 };

fn mutant(mutant: Mutant) {
    model("share, mutant", 2, PAIR, Some(mutant));
}

#[test]
fn what_a_cta_gives_is_added_once_in_every_call() {
    model("share, 2 CTAs, 1 tile", 3, PAIR, None);
}

#[test]
fn ctas_that_give_to_each_other_do_not_wait_in_a_circle() {
    model("share, 2 CTAs, 3 tiles", 3, CROSSED, None);
}

#[test]
fn runs_that_end_within_tiles_are_passed_down_the_ctas() {
    model("share, 3 CTAs in runs, 2 tiles", 2, CHAIN, None);
}

#[test]
fn the_parts_of_a_tile_are_added_in_the_order_of_k_whoever_is_first() {
    model("share, 3 CTAs, 1 tile", 2, THREE, None);
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn a_word_that_does_not_release_the_sums_races() {
    mutant(Mutant::RelaxedStore("share"));
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn a_wait_that_does_not_acquire_the_sums_races() {
    mutant(Mutant::RelaxedLoad("share"));
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn sums_written_after_their_word_race() {
    mutant(Mutant::LateSums);
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn a_taker_that_does_not_wait_races() {
    mutant(Mutant::Ahead("share", 1));
}

#[test]
#[should_panic(expected = "deadlock: Consumer(0) waits for Share 0")]
fn a_word_that_is_never_set_stops_the_taker() {
    mutant(Mutant::NoStore("share", 1));
}

#[test]
#[should_panic(expected = "a word is not 0 between calls")]
fn a_word_that_is_not_cleared_is_noticed() {
    mutant(Mutant::NoStore("share", 0));
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent write accesses")]
fn parts_that_share_a_place_race() {
    model("share, mutant", 2, THREE, Some(Mutant::OnePlace));
}

/// A place is free once its word is 0 again, which calls do not rely on: the giver here writes its next sums then.
fn reuse(name: &str, preemptions: usize, mutant: Option<Mutant>) {
    check(name, preemptions, move || {
        let memory = Arc::new(PAIR.memory());
        let agent = || Cta::<Config>::new(memory.clone(), mutant).start().agent(Role::Consumer(0));
        let (giver, taker) = (agent(), agent());
        let shares = Shares { base: SHARES, room: 1, consumer: 0 };
        let giver = thread::spawn(move || {
            let part = Part { tile: 0, k_begin: 1, k_end: 2, number: 1 };
            for sum in 1..=CALLS {
                let mut acc = giver.zero_acc();
                acc.sum = sum;
                shares.give::<_, Config>(&giver, &PAIR.split(), &part, &acc);
                let mut patience = giver.patience();
                while giver.load_acquire_gpu(PAIR.word(0)) != 0 {
                    let (role, kind) = (Role::Consumer(0), WaitKind::Share);
                    giver
                        .pause(&mut patience, || Wait { role, kind, index: 0, awaited: 0, seen: 1 })
                        .expect("no abort");
                }
            }
        });
        for sum in 1..=CALLS {
            let mut acc = taker.zero_acc();
            shares.take::<_, Config>(&taker, &PAIR.split(), 0, &mut acc).expect("nothing aborts");
            assert_eq!(acc.sum, shared(0, sum), "the sums of another time");
        }
        drop(taker);
        giver.join().expect("the giver ends");
    });
}

#[test]
fn a_place_is_free_when_its_word_is_0() {
    reuse("share, place used again", 3, None);
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn a_word_cleared_before_the_sums_are_read_races() {
    reuse("share, mutant", 2, Some(Mutant::EarlyClear));
}

#[test]
#[should_panic(expected = "the sums of another time")]
fn sums_taken_twice_are_noticed() {
    reuse("share, mutant", 2, Some(Mutant::NoStore("share", 0)));
}
