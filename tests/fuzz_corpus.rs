//! The fuzz targets on their stored corpus, and on a bounded number of changed copies of it: what `cargo fuzz` looks for
//! without end, for a moment and with a stable toolchain.
//!
//! `TILEWIRE_FUZZ_INPUTS=N` sets how many changed inputs each target gets, `TILEWIRE_FUZZ_SEED=S` which.

#[path = "../fuzz/bodies/mod.rs"]
mod bodies;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use bodies::TARGETS;
use tilewire::data::random_at;

/// Changed inputs of each target, unless told otherwise.
const INPUTS: u64 = 1500;

/// Most bytes of a changed input.
const MOST_BYTES: usize = 512;

fn number_from(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|e| panic!("{name}={text}: {e}")))
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

/// A copy of one input with a few bytes set, flipped, inserted, removed, or taken from another input.
fn changed(inputs: &[Vec<u8>], seed: u64, number: u64) -> Vec<u8> {
    let draw = |of: u64, below: usize| (random_at(seed, number, of) % below.max(1) as u64) as usize;
    let mut bytes = inputs[draw(0, inputs.len())].clone();
    for change in 0..1 + draw(1, 8) as u64 {
        let of = |what: u64| 8 + 8 * change + what;
        let (at, value) = (draw(of(0), bytes.len()), draw(of(1), 256) as u8);
        match draw(of(2), 6) {
            0 if !bytes.is_empty() => bytes[at] = value,
            1 if !bytes.is_empty() => bytes[at] ^= 1 << (value % 8),
            2 => bytes.insert(at, value),
            3 if !bytes.is_empty() => drop(bytes.remove(at)),
            4 => bytes.truncate(at),
            5 => {
                let other = &inputs[draw(of(3), inputs.len())];
                bytes.extend_from_slice(&other[draw(of(4), other.len())..]);
            }
            _ => bytes.push(value),
        }
    }
    bytes.truncate(MOST_BYTES);
    bytes
}

fn run(name: &str) {
    let (_, target) = TARGETS.into_iter().find(|(target, _)| *target == name).expect("a target");
    let inputs = corpus(name);
    assert!(inputs.len() >= 4, "the corpus of {name} has {} inputs", inputs.len());
    inputs.iter().for_each(|input| target(input));
    let (seed, count) = (number_from("TILEWIRE_FUZZ_SEED", 1), number_from("TILEWIRE_FUZZ_INPUTS", INPUTS));
    for number in 0..count {
        let input = changed(&inputs, seed, number);
        if catch_unwind(AssertUnwindSafe(|| target(&input))).is_err() {
            panic!("{name} breaks on changed input {number} of seed {seed}: {input:?}");
        }
    }
}

#[test]
fn builder_arguments_end_in_a_plan_or_an_error() {
    run("plan");
}

#[test]
fn calls_on_any_address_and_stride_are_refused_or_keep_the_rules() {
    run("operands");
}

#[test]
fn tiles_chunks_and_shards_cover_everything_once() {
    run("maps");
}

#[test]
fn files_end_in_weights_or_an_error() {
    run("safetensors");
}

/// A change that changes nothing would make the rest prove nothing.
#[test]
fn changed_inputs_differ() {
    let inputs = corpus("plan");
    let mut all: Vec<_> = (0..200).map(|number| changed(&inputs, 1, number)).collect();
    all.sort();
    all.dedup();
    assert!(all.len() > 150 && all.iter().any(|input| !inputs.contains(input)), "{} differ", all.len());
    assert_eq!(changed(&inputs, 1, 7), changed(&inputs, 1, 7));
}
