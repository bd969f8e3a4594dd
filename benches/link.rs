//! The link between two GPUs: what a copy engine moves over it, by message size, one way and both ways at once.
//!
//! Copies by kernels (TMA and plain stores, by number of SMs) and the latency of a signal need kernels that are not compiled
//! yet; `docs/measuring.md` describes them.

mod support;

use std::process::ExitCode;

use half::bf16;
use serde_json::json;
use tilewire::cli::table::Table;
use tilewire::driver::{DeviceBuffer, Gpu, Stream};
use tilewire::measure::{Candidate, calls_per_sample, interleave};
use tilewire::{Error, Result, data};

use support::Options;
use support::report::Report;

const MEBIBYTE: usize = 1 << 20;
/// Messages, in bytes: where the cost of starting one ends to matter.
const SIZES: [usize; 8] =
    [64 << 10, 256 << 10, MEBIBYTE, 4 * MEBIBYTE, 8 * MEBIBYTE, 32 * MEBIBYTE, 128 * MEBIBYTE, 512 * MEBIBYTE];

fn main() -> ExitCode {
    support::main("link", run)
}

fn run(options: &Options, gpus: &[Gpu], report: &mut Report) -> Result<()> {
    let [first, second, ..] = gpus else {
        println!("one GPU: there is no link to measure, nothing measured");
        return Ok(());
    };
    first.enable_peer_access(second)?;
    second.enable_peer_access(first)?;
    println!("link: {:?}", first.peer_facts(second)?);
    let pair = [first, second];
    let streams = pair.map(Stream::new).into_iter().collect::<Result<Vec<_>>>()?;
    let largest = SIZES[SIZES.len() - 1];
    let values = data::uniform::<bf16>(1, largest / 2, 1);
    let mut sources = Vec::new();
    for gpu in pair {
        sources.push(DeviceBuffer::from_slice(gpu, values.data())?);
    }
    let mut table = Table::new(["message", "one way", "GB/s", "both ways at once", "GB/s each way"]);
    for bytes in SIZES {
        // Targets are rotated through one large buffer, so that small messages do not stay in a cache.
        let places = largest / bytes;
        check(pair, &streams, &sources, bytes)?;
        let calls = calls_per_sample(bytes as f64 / 400e9);
        let mut targets = Vec::new();
        for gpu in pair {
            targets.push(std::cell::RefCell::new(DeviceBuffer::filled(gpu, largest, 0xFF)?));
        }
        let push = |from: usize, call: usize| {
            let offset = call % places * bytes;
            targets[1 - from].borrow_mut().copy_from_async(offset, &sources[from], offset, bytes, &streams[from])
        };
        let mut candidates = [
            Candidate::direct("one way", calls, |call| push(0, call)),
            Candidate::direct("both ways", calls, |call| push(0, call).and_then(|()| push(1, call))),
        ];
        let samples = interleave(&streams, &mut candidates, options.rounds())?;
        drop(candidates);
        let (alone, both) = (samples[0].seconds(), samples[1].seconds());
        let rate = |seconds: f64| bytes as f64 / seconds * 1e-9;
        let size = if bytes < MEBIBYTE { format!("{} KiB", bytes >> 10) } else { format!("{} MiB", bytes >> 20) };
        table.row([
            size,
            format!("{:.2} µs", alone * 1e6),
            format!("{:.1}", rate(alone)),
            format!("{:.2} µs", both * 1e6),
            format!("{:.1}", rate(both)),
        ]);
        report.row(json!({
            "copy_engine_bytes": bytes, "one_way_gb_s": rate(alone), "both_ways_gb_s": rate(both),
            "one_way_seconds": alone, "both_ways_seconds": both,
        }));
    }
    report.table("copy engine to the peer", table);
    Ok(())
}

/// Whether a message arrives whole, in both directions.
fn check(gpus: [&Gpu; 2], streams: &[Stream], sources: &[DeviceBuffer], bytes: usize) -> Result<()> {
    for from in [0, 1] {
        let mut target = DeviceBuffer::filled(gpus[1 - from], bytes, 0xFF)?;
        target.copy_from_async(0, &sources[from], 0, bytes, &streams[from])?;
        let found: Vec<u16> = target.to_vec()?;
        let mut expected = vec![0u16; bytes / 2];
        sources[from].read(0, &mut expected)?;
        if found != expected {
            let (value, rule) = (format!("{bytes} bytes from GPU {from}"), "a copy arrives as it was sent");
            return Err(Error::argument("message", value, rule));
        }
    }
    Ok(())
}
