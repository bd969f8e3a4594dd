//! The link kernel on the emulator: it copies everything, whatever the sizes, and its signals speak for its payload.

use tilewire::emulator::{Emulation, EmulatorError, EmulatorOptions, KernelLaunch};
use tilewire::kernels::abi::{LinkArgs, LinkRound, LinkTimes, Watchdog};
use tilewire::kernels::kernels::link;
use tilewire::kernels::shape::{GlobalAddr, MAX_WORLD, Rank, Role};
use tilewire::measure::link::{LinkCopy, Means};

const UNWATCHED: Watchdog = Watchdog {
    deadline_ns: 0,
    abort: GlobalAddr(0),
    claim: GlobalAddr(0),
    record: GlobalAddr(0),
    rank: 0,
    world: 0,
    peer_aborts: [GlobalAddr(0); MAX_WORLD],
    local_ns: 0,
};

fn pattern(bytes: usize, seed: usize) -> Vec<u8> {
    (0..bytes).map(|i| ((i * 31 + i / 256 * 7 + seed) % 251) as u8).collect()
}

/// One side of a pair: which rank, on how many CTAs.
fn launch(emulation: &mut Emulation, rank: u32, ctas: u32, args: LinkArgs, pings: bool) {
    let kernel = KernelLaunch::new(Rank(rank), ctas, link::PLAN, &[Role::Producer], move |agent, at, _| {
        if pings { link::ping_pong_bulk(agent, &args) } else { link::copy_bulk(agent, &args, at) }
    });
    emulation.launch(kernel.with_setup(|agent| link::setup(agent))).expect("the launch is sound");
}

fn copy(seed: u64, copy: LinkCopy) -> Result<(), EmulatorError> {
    let mut emulation = Emulation::new(EmulatorOptions::with_seed(seed));
    let (src_rank, dst_rank) = if copy.means.pulls() { (1, 0) } else { (0, 1) };
    let src = emulation.alloc(Rank(src_rank), copy.bytes.max(16), "source");
    let dst = emulation.alloc(Rank(dst_rank), copy.bytes + 16, "target");
    let sent = pattern(copy.bytes.max(16), 3);
    emulation.write(src, &sent)?;
    emulation.fill(dst, copy.bytes + 16, 0xFF)?;
    launch(&mut emulation, 0, copy.ctas, copy.args(dst, src, UNWATCHED), false);
    emulation.run()?;
    let found = emulation.read(dst, copy.bytes + 16)?;
    assert!(found[..copy.bytes] == sent[..copy.bytes], "{copy:?} copies everything");
    assert_eq!(found[copy.bytes..], [0xFF; 16], "{copy:?} copies no more");
    Ok(())
}

#[test]
fn copies_are_whole_for_every_size_and_number_of_ctas() {
    for means in [Means::BulkPush, Means::BulkPull] {
        for (seed, (message, ctas, bytes, repeats)) in [
            (256, 1, 256, 1),
            (256, 3, 100_000, 2),
            (2048, 2, 300_016, 1),
            (4112, 4, 123_456, 3),
            (16 << 10, 2, (1 << 20) + 48, 1),
            (64 << 10, 3, 500_000, 2),
            (100_000, 1, 500_000, 1),
            (32 << 10, 4, 16, 2),
            (512, 4, 0, 2),
        ]
        .into_iter()
        .enumerate()
        {
            let case = LinkCopy { means, message, ctas, bytes, repeats };
            case.check(4).expect("the case is sound");
            copy(seed as u64, case).unwrap_or_else(|e| panic!("{case:?}: {e}"));
        }
    }
}

/// Both sides of a ping-pong; what they recorded, and whether each got the other's payload.
fn ping_pong(waits: bool, rounds: u32, payload: u32) -> Result<Vec<Vec<u32>>, EmulatorError> {
    let mut emulation = Emulation::new(EmulatorOptions::with_seed(5));
    let message = 512;
    let ranks = [0u32, 1];
    let words = ranks.map(|rank| emulation.alloc(Rank(rank), 4, "signal"));
    let bytes = size_of::<LinkTimes>() + rounds as usize * size_of::<LinkRound>();
    let times = ranks.map(|rank| emulation.alloc(Rank(rank), bytes, "times"));
    let sources = ranks.map(|rank| emulation.alloc(Rank(rank), message, "source"));
    let targets = ranks.map(|rank| emulation.alloc(Rank(rank), message * payload.max(1) as usize, "target"));
    for rank in 0..2 {
        // The epochs wrap on the way.
        emulation.write(words[rank], &(u32::MAX - 2).to_le_bytes())?;
        emulation.fill(times[rank], bytes, 0)?;
        emulation.write(sources[rank], &pattern(message, rank))?;
    }
    for rank in 0..2 {
        let copy = LinkCopy { means: Means::BulkPush, message, ctas: 1, bytes: 0, repeats: rounds };
        let args = LinkArgs {
            begins: (rank == 0).into(),
            epoch: u32::MAX - 1,
            payload,
            waits: waits.into(),
            own_word: words[rank],
            peer_word: words[1 - rank],
            times: times[rank],
            ..copy.args(targets[1 - rank], sources[rank], UNWATCHED)
        };
        launch(&mut emulation, rank as u32, 1, args, true);
    }
    emulation.run()?;
    let mut found = Vec::new();
    for rank in 0..2 {
        let sent = pattern(message, 1 - rank).repeat(payload as usize);
        assert!(emulation.read(targets[rank], sent.len())? == sent, "side {rank} has its payload");
        let raw = emulation.read(times[rank], bytes)?;
        found.push(raw.chunks_exact(4).map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]])).collect());
    }
    Ok(found)
}

#[test]
fn a_ping_pong_records_every_round_across_the_wrap_of_its_epochs() {
    for payload in [0, 3] {
        let found = ping_pong(true, 6, payload).unwrap_or_else(|e| panic!("{e}"));
        let round_trips = |side: usize| found[side][2..].chunks_exact(4).map(|round| round[2]).collect::<Vec<_>>();
        assert!(round_trips(0).iter().all(|ticks| *ticks > 0), "{:?}", round_trips(0));
        assert_eq!(round_trips(1), [0; 6], "only the side that begins sees an answer");
        assert!(found.iter().all(|side| side[0] > 0 && side[1] > 0), "both clocks ran");
    }
}

#[test]
fn a_signal_that_does_not_wait_for_its_payload_is_no_protocol() {
    let error = ping_pong(false, 2, 3).expect_err("the signal overtakes its payload").to_string();
    assert!(error.contains("bulk stores are known complete"), "{error}");
}
