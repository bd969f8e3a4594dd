//! The link between two GPUs: copies by copy engines, by TMA and by plain loads and stores, over message size and number of SMs;
//! the way of a signal, alone and behind a payload.

mod support;

use std::cell::RefCell;
use std::process::ExitCode;

use half::bf16;
use serde_json::json;
use tilewire::cli::table::Table;
use tilewire::driver::{DeviceBuffer, Gpu, Stream};
use tilewire::measure::link::{LinkCopy, LinkKernel, Means, PingPong, RoundTimes, ping_pong};
use tilewire::measure::{Candidate, calls_per_sample, interleave, median, quantile};
use tilewire::{Error, Result, data};

use support::Options;
use support::report::Report;

const MEBIBYTE: usize = 1 << 20;
/// Messages of the copy engine, in bytes: where the cost of starting one ends to matter.
const SIZES: [usize; 8] =
    [64 << 10, 256 << 10, MEBIBYTE, 4 * MEBIBYTE, 8 * MEBIBYTE, 32 * MEBIBYTE, 128 * MEBIBYTE, 512 * MEBIBYTE];
/// Messages of kernels, in bytes.
const MESSAGES: [usize; 6] = [256, 1 << 10, 4 << 10, 8 << 10, 16 << 10, 64 << 10];
/// CTAs, one an SM, up to all of them.
const CTAS: [u32; 10] = [1, 2, 4, 8, 12, 16, 24, 32, 64, 132];
/// Bytes that kernels copy at a time: more than a cache holds.
const COPY_BYTES: usize = 128 * MEBIBYTE;
/// What a link gives when it is busy, in GB/s: the smallest number of SMs that reaches it is asked for.
const BUSY: f64 = 370.0;

/// Both GPUs, with a stream, a source and a target each. Sources hold the same bytes.
struct Pair<'a> {
    gpus: [&'a Gpu; 2],
    streams: Vec<Stream>,
    sources: Vec<DeviceBuffer>,
    targets: Vec<RefCell<DeviceBuffer>>,
    kernels: [LinkKernel; 2],
}

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
    let gpus = [first, second];
    let largest = SIZES[SIZES.len() - 1];
    let values = data::uniform::<bf16>(1, largest / 2, 1);
    let mut pair = Pair {
        gpus,
        streams: gpus.map(Stream::new).into_iter().collect::<Result<_>>()?,
        sources: Vec::new(),
        targets: Vec::new(),
        kernels: [LinkKernel::new(first)?, LinkKernel::new(second)?],
    };
    for gpu in gpus {
        pair.sources.push(DeviceBuffer::from_slice(gpu, values.data())?);
        pair.targets.push(DeviceBuffer::filled(gpu, largest, 0xFF)?.into());
    }
    let quick = options.quick;
    by_copy_engine(&pair, options, report)?;
    let mut best_push = 0f64;
    for means in Means::ALL {
        let best = by_kernel(&pair, means, quick, report)?;
        if means == Means::BulkPush {
            best_push = best;
        }
    }
    let signal = signals(&pair, quick, report)?;
    report.goal("TMA push, nothing else running, GB/s", Some(best_push), BUSY, true);
    report.goal("one-way signal, µs", Some(signal * 1e6), 1.3, false);
    Ok(())
}

fn by_copy_engine(pair: &Pair, options: &Options, report: &mut Report) -> Result<()> {
    let largest = pair.sources[0].bytes();
    let mut table = Table::new(["message", "one way", "GB/s", "both ways at once", "GB/s each way"]);
    for bytes in SIZES {
        // Targets are rotated through one large buffer, so that small messages do not stay in a cache.
        let places = largest / bytes;
        for from in [0, 1] {
            let copy = |to: &mut DeviceBuffer, src: &DeviceBuffer, stream: &Stream| {
                to.copy_from_async(0, src, 0, bytes, stream)
            };
            check(pair, from, bytes, &format!("{bytes} bytes by the copy engine of GPU {from}"), copy)?;
        }
        let push = |from: usize, call: usize| {
            let offset = call % places * bytes;
            let mut target = pair.targets[1 - from].borrow_mut();
            target.copy_from_async(offset, &pair.sources[from], offset, bytes, &pair.streams[from])
        };
        let calls = calls_per_sample(bytes as f64 / 400e9);
        let mut candidates = [
            Candidate::direct("one way", calls, |call| push(0, call)),
            Candidate::direct("both ways", calls, |call| push(0, call).and_then(|()| push(1, call))),
        ];
        let samples = interleave(&pair.streams, &mut candidates, options.rounds().min(15))?;
        let (alone, both) = (samples[0].seconds(), samples[1].seconds());
        let rate = |seconds: f64| bytes as f64 / seconds * 1e-9;
        let cells = [micro(alone), rate_cell(rate(alone)), micro(both), rate_cell(rate(both))];
        table.row(std::iter::once(size(bytes)).chain(cells));
        report.row(json!({
            "copy_engine_bytes": bytes, "one_way_gb_s": rate(alone), "both_ways_gb_s": rate(both),
            "one_way_seconds": alone, "both_ways_seconds": both,
        }));
    }
    report.table("copy engine to the peer", table);
    Ok(())
}

/// GB/s of a kernel on the first GPU, by message size and number of SMs; the best of them.
fn by_kernel(pair: &Pair, means: Means, quick: bool, report: &mut Report) -> Result<f64> {
    let sms = pair.gpus[0].sm_count();
    let counts: Vec<u32> = CTAS.into_iter().filter(|ctas| *ctas < sms).chain([sms]).collect();
    let header = ["message".to_string()].into_iter().chain(counts.iter().map(|ctas| format!("{ctas} SMs")));
    let mut table = Table::new(header.chain([format!("SMs for {BUSY} GB/s")]));
    let (mut best, rounds) = (0f64, if quick { 3 } else { 5 });
    // Pulled: from the second GPU's source to the first one's target.
    let (src, dst) = if means.pulls() { (1, 0) } else { (0, 1) };
    let kernel = &pair.kernels[0];
    for message in MESSAGES {
        for (ctas, bytes) in [(3, 1_000_016), (sms, 40 * MEBIBYTE + 4112)] {
            let copy = LinkCopy { means, message, ctas, bytes, repeats: 1 };
            let what = format!("{bytes} bytes by {} of {message} bytes on {ctas} SMs", means.name());
            check(pair, src, bytes, &what, |to, from, _| kernel.copy(&copy, to, from, &pair.streams[0]))?;
        }
        let (mut cells, mut enough) = (vec![size(message)], None);
        for ctas in &counts {
            // Few SMs copy less, so that none takes long.
            let bytes = (COPY_BYTES / 16 * *ctas as usize).min(COPY_BYTES);
            let copy = LinkCopy { means, message, ctas: *ctas, bytes, repeats: 2 };
            let target = &pair.targets[dst];
            let candidate = Candidate::direct(means.name(), 1, |_| {
                kernel.copy(&copy, &target.borrow(), &pair.sources[src], &pair.streams[0])
            });
            let samples = interleave(&pair.streams[..1], &mut [candidate], rounds)?;
            let rate = (copy.repeats as usize * bytes) as f64 / samples[0].seconds() * 1e-9;
            if rate >= BUSY && enough.is_none() {
                enough = Some(*ctas);
            }
            best = best.max(rate);
            cells.push(rate_cell(rate));
            report.row(json!({ "means": means.name(), "message_bytes": message, "sms": ctas, "gb_s": rate }));
        }
        kernel.check()?;
        cells.push(enough.map_or("-".to_string(), |ctas| ctas.to_string()));
        table.row(cells);
    }
    report.table(format!("{} by message and SMs, GB/s", means.name()), table);
    Ok(best)
}

/// Signals alone and behind payloads; the median time of a signal one way, in seconds.
fn signals(pair: &Pair, quick: bool, report: &mut Report) -> Result<f64> {
    let mut table =
        Table::new(["payload a signal", "by", "waits", "issue µs", "release µs", "p99", "one way µs", "p99"]);
    let mut alone = f64::NAN;
    let rounds = if quick { 1000 } else { 4000 };
    let payloads = [(0, 16), (1, 1 << 10), (1, 8 << 10), (4, 8 << 10), (16, 8 << 10), (16, 64 << 10)];
    let specs = payloads.into_iter().flat_map(|(payload, message)| {
        // Plain stores are always waited for by the release, which they are ordered before.
        [(false, true), (false, false), (true, true)].map(|(plain, waits)| PingPong {
            rounds,
            payload,
            message,
            plain,
            waits,
        })
    });
    for spec in specs.filter(|spec| spec.payload > 0 || (!spec.plain && spec.waits)) {
        let [begun, answered] = ping(pair, &spec)?;
        let both = |of: fn(&RoundTimes) -> &Vec<f64>| [of(&begun).as_slice(), of(&answered)].concat();
        let one_way: Vec<f64> = begun.round_trip.iter().map(|seconds| seconds / 2.0).collect();
        let (issue, release) = (both(|t| &t.payload), both(|t| &t.release));
        let numbers =
            [median(&issue), median(&release), quantile(&release, 0.99), median(&one_way), quantile(&one_way, 0.99)]
                .map(|found| found.unwrap_or(f64::NAN));
        if spec.payload == 0 {
            alone = numbers[3];
        }
        let payload =
            if spec.payload == 0 { "none".to_string() } else { format!("{} × {}", spec.payload, size(spec.message)) };
        let by = if spec.plain { "stores" } else { "TMA" };
        let cells = [payload, by.to_string(), if spec.waits { "yes" } else { "no" }.to_string()];
        table.row(cells.into_iter().chain(numbers.map(|seconds| format!("{:.2}", seconds * 1e6))));
        report.row(json!({
            "signal_payload": spec.payload, "message_bytes": spec.message, "plain": spec.plain, "waits": spec.waits,
            "issue_seconds": numbers[0], "release_seconds": numbers[1], "release_p99_seconds": numbers[2],
            "one_way_seconds": numbers[3], "one_way_p99_seconds": numbers[4],
        }));
    }
    report.table("signals: release, and half of a round trip with payload both ways", table);
    Ok(alone)
}

fn ping(pair: &Pair, spec: &PingPong) -> Result<[RoundTimes; 2]> {
    let targets = [pair.targets[0].borrow(), pair.targets[1].borrow()];
    ping_pong(
        [&pair.kernels[0], &pair.kernels[1]],
        spec,
        [&targets[0], &targets[1]],
        [&pair.sources[0], &pair.sources[1]],
        [&pair.streams[0], &pair.streams[1]],
    )
}

/// Whether `bytes` bytes arrive whole from GPU `from` at the other one, and no byte more.
fn check(
    pair: &Pair,
    from: usize,
    bytes: usize,
    what: &str,
    copy: impl FnOnce(&mut DeviceBuffer, &DeviceBuffer, &Stream) -> Result<()>,
) -> Result<()> {
    let mut target = DeviceBuffer::filled(pair.gpus[1 - from], bytes + 256, 0xFF)?;
    copy(&mut target, &pair.sources[from], &pair.streams[from])?;
    let found: Vec<u16> = target.to_vec()?;
    let mut expected = vec![u16::MAX; found.len()];
    pair.sources[from].read(0, &mut expected[..bytes / 2])?;
    if found != expected {
        return Err(Error::argument(
            "message",
            what,
            "a copy arrives as it was sent, and nothing behind it is written",
        ));
    }
    Ok(())
}

fn size(bytes: usize) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..MEBIBYTE => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

fn micro(seconds: f64) -> String {
    format!("{:.2} µs", seconds * 1e6)
}

fn rate_cell(rate: f64) -> String {
    format!("{rate:.1}")
}
