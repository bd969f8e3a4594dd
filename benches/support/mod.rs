//! What the benches share: options, finding GPUs, operands, and the report.
#![allow(dead_code, reason = "each bench uses a part")]

pub mod operands;
pub mod report;
pub mod shapes;

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use tilewire::driver::{Gpu, Stream, library};
use tilewire::{Error, Layout, Result, World};

use report::Report;

/// Options of every bench; `cargo bench` passes the same ones to all of them.
#[derive(Parser, Debug)]
pub struct Options {
    /// Writes tables (CSV) and everything (JSON) into this folder.
    #[arg(long)]
    pub out: Option<PathBuf>,
    /// Stores this run's ratios.
    #[arg(long)]
    pub record: bool,
    /// Fails if a ratio fell by more than its recorded spread and 3 %.
    #[arg(long)]
    pub check: bool,
    /// Where records are.
    #[arg(long, default_value = "benches/record")]
    pub records: PathBuf,
    /// A choice of shapes and fewer rounds: about a minute.
    #[arg(long)]
    pub quick: bool,
    /// Only shapes whose name contains this.
    #[arg(long, default_value = "")]
    pub only: String,
    /// Measures this shape instead of those listed, in layout nt: M, N and K (over all ranks), as in 512x8192x28672. May be
    /// given several times.
    #[arg(long, value_parser = shapes::parse_extents)]
    pub shape: Vec<[usize; 3]>,
    /// Rounds in which every candidate has its turn.
    #[arg(long)]
    pub rounds: Option<usize>,
    /// Ranks that share the GPU where there is only one.
    #[arg(long, default_value_t = 4)]
    pub world: usize,
    /// What cargo passes to every bench.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Options {
    /// Rounds to time.
    pub fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.quick { 9 } else { 31 }).max(1)
    }

    /// Whether to measure this shape.
    pub fn wants(&self, name: &str, quick: bool) -> bool {
        (quick || !self.quick) && name.contains(&self.only)
    }

    /// Whether to measure this table, which is of shapes of its own.
    pub fn wants_table(&self, name: &str) -> bool {
        self.shape.is_empty() && self.wants(name, true)
    }
}

/// Runs a bench on the GPUs that there are. Without one it says so and is content, unless `TILEWIRE_REQUIRE_GPU` is set.
pub fn main(name: &'static str, bench: impl FnOnce(&Options, &[Gpu], &mut Report) -> Result<()>) -> ExitCode {
    let options = Options::parse();
    let run = || -> Result<bool> {
        let gpus = gpus()?;
        let mut report = Report::new(name, &gpus[0]);
        bench(&options, &gpus, &mut report)?;
        report.finish(&options)
    };
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error @ Error::NoGpu { .. }) => {
            println!("{error}, nothing measured");
            let required = env::var("TILEWIRE_REQUIRE_GPU").is_ok_and(|count| count != "0");
            if required { ExitCode::FAILURE } else { ExitCode::SUCCESS }
        }
        Err(error) => {
            eprintln!("{name}: error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Every usable GPU, up to the largest world.
fn gpus() -> Result<Vec<Gpu>> {
    library::available()?;
    let count = Gpu::count()?.clamp(1, tilewire::kernels::shape::MAX_WORLD);
    (0..count).map(Gpu::open).collect()
}

/// The stream on which `rank`'s own calls run, for events and for other libraries.
pub fn stream_of(world: &World, rank: usize, gpu: &Gpu) -> Result<Stream> {
    let Some(raw) = world.stream(rank) else {
        return Err(Error::argument("world", world.describe(), "benches run on GPUs"));
    };
    // SAFETY: the stream is the world's, which the benches keep longer than this.
    unsafe { Stream::from_raw(gpu, raw.0.cast()) }
}

/// The layout in cuBLASLt's words.
pub fn cublaslt_layout(layout: Layout) -> tilewire::driver::cublaslt::Layout {
    use tilewire::driver::cublaslt::Layout as Theirs;
    match layout {
        Layout::Nt => Theirs::Nt,
        Layout::Nn => Theirs::Nn,
        Layout::Tn => Theirs::Tn,
    }
}

/// Floating-point operations of a product.
pub fn flops([m, n, k]: [usize; 3]) -> f64 {
    2.0 * m as f64 * n as f64 * k as f64
}

/// Seconds that a call will take, roughly: by arithmetic at 700 TFLOP/s or by memory at 3.5 TB/s, and a launch.
pub fn rough_seconds([m, n, k]: [usize; 3]) -> f64 {
    let bytes = 2.0 * (m * k + n * k + m * n) as f64;
    (flops([m, n, k]) / 700e12).max(bytes / 3.5e12) + 3e-6
}
