//! `tilewire emulate`: one small call on the emulator, step by step, with a planted fault or without.

mod follow;

use clap::{Args, ValueEnum};

use super::options::{PlacementArg, TransportArg};
use super::table::Table;
use crate::emulator::{EmulatorOptions, Fault, Plant};
use crate::error::{Error, Result};
use crate::kernels::shape::Rank;
use crate::mutants::{MUTANTS, Mutant, Outcome, Scenario, ScenarioKernel};

/// Characters of a timeline.
const COLUMNS: usize = 100;

/// Which kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum KernelArg {
    /// Plain GEMM on one rank.
    Gemm,
    /// The same by consumers that multiply tiles in turns.
    GemmInTurns,
    /// GEMM + ReduceScatter.
    GemmReduceScatter,
    /// The same by consumers that multiply tiles in turns.
    GemmReduceScatterInTurns,
}

impl KernelArg {
    fn kernel(self) -> ScenarioKernel {
        match self {
            KernelArg::Gemm => ScenarioKernel::Gemm,
            KernelArg::GemmInTurns => ScenarioKernel::GemmInTurns,
            KernelArg::GemmReduceScatter => ScenarioKernel::GemmReduceScatter,
            KernelArg::GemmReduceScatterInTurns => ScenarioKernel::GemmReduceScatterInTurns,
        }
    }
}

/// Options of `emulate`. What is not given comes from the smallest call in which the fault breaks something.
#[derive(Args, Debug)]
pub struct EmulateArgs {
    /// The kernel.
    #[arg(long, value_enum)]
    kernel: Option<KernelArg>,
    /// Rows of A on every rank.
    #[arg(long)]
    m: Option<usize>,
    /// Columns of the result.
    #[arg(long)]
    n: Option<usize>,
    /// Columns of A on each rank.
    #[arg(long)]
    k: Option<usize>,
    /// Number of ranks.
    #[arg(long)]
    world: Option<usize>,
    /// How tiles get to their owners.
    #[arg(long, value_enum)]
    transport: Option<TransportArg>,
    /// Where partials are added.
    #[arg(long, value_enum)]
    placement: Option<PlacementArg>,
    /// CTAs of each rank that compute nothing.
    #[arg(long)]
    sm_margin: Option<u32>,
    /// CTAs of each rank.
    #[arg(long)]
    ctas: Option<u32>,
    /// Seed of the schedule.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// A fault to plant, by name.
    #[arg(long)]
    fault: Option<String>,
    /// Prints every event of the chosen CTA, with the state of its barriers.
    #[arg(long)]
    trace: bool,
    /// Rank of the chosen CTA.
    #[arg(long)]
    rank: Option<u32>,
    /// The CTA whose timeline is drawn; by default the one that the fault strikes.
    #[arg(long)]
    cta: Option<u32>,
    /// Lists the faults and what each is reported as.
    #[arg(long)]
    list_faults: bool,
}

impl EmulateArgs {
    fn scenario(&self, mutant: Option<&Mutant>) -> Scenario {
        let of_kernel = |kernel| match kernel {
            KernelArg::Gemm => Scenario::gemm(128, 256, 192),
            KernelArg::GemmInTurns => Scenario::gemm(384, 192, 192).in_turns(),
            KernelArg::GemmReduceScatter => Scenario { ctas: 2, ..Scenario::reduce_scatter(2, 256, 256, 128) },
            KernelArg::GemmReduceScatterInTurns => Scenario::reduce_scatter(2, 512, 192, 128).in_turns(),
        };
        let mut s = match (self.kernel, mutant) {
            // The smallest call in which the fault breaks something.
            (kernel, Some(mutant)) if kernel.is_none_or(|k| k.kernel() == mutant.scenario.kernel) => mutant.scenario,
            (kernel, _) => of_kernel(kernel.unwrap_or(KernelArg::GemmReduceScatter)),
        };
        let set = |to: &mut usize, given: Option<usize>| *to = given.unwrap_or(*to);
        set(&mut s.m, self.m);
        set(&mut s.n, self.n);
        set(&mut s.k, self.k);
        if s.kernel.has_ranks() {
            set(&mut s.world, self.world);
        }
        s.transport = self.transport.map_or(s.transport, Into::into);
        s.placement = self.placement.map_or(s.placement, Into::into);
        s.sm_margin = self.sm_margin.unwrap_or(s.sm_margin);
        s.ctas = self.ctas.unwrap_or(s.ctas);
        s
    }
}

fn fault_named(name: &str) -> Result<Fault> {
    Fault::ALL.iter().copied().find(|f| f.name() == name).ok_or_else(|| {
        let all: Vec<_> = Fault::ALL.iter().map(|f| f.name()).collect();
        Error::argument("fault", name, format!("the faults are {}", all.join(", ")))
    })
}

fn list_faults() {
    let mut table = Table::new(["fault", "kernel", "reported as", "what it models"]);
    for fault in Fault::ALL {
        let Some(mutant) = Mutant::of(*fault) else { continue };
        let kernel = match mutant.scenario.kernel {
            ScenarioKernel::Gemm => "gemm",
            ScenarioKernel::GemmInTurns => "gemm-in-turns",
            ScenarioKernel::GemmReduceScatter => "gemm-reduce-scatter",
            ScenarioKernel::GemmReduceScatterInTurns => "gemm-reduce-scatter-in-turns",
        };
        let expected: Vec<_> = mutant.expected.iter().map(|v| v.name()).collect();
        table.row([fault.name().to_string(), kernel.to_string(), expected.join(" or "), fault.about()]);
    }
    println!("{table}");
}

/// The mutant to run: of those with this fault, one of the kernel that was asked for.
fn mutant_of(fault: Fault, kernel: Option<KernelArg>) -> Option<&'static Mutant> {
    let fits = |m: &&Mutant| m.plant.fault == fault && kernel.is_none_or(|k| m.scenario.kernel == k.kernel());
    MUTANTS.iter().find(fits).or_else(|| Mutant::of(fault))
}

/// Runs the command; whether the emulator found nothing wrong.
pub fn run(args: &EmulateArgs) -> Result<bool> {
    if args.list_faults {
        list_faults();
        return Ok(true);
    }
    let fault = args.fault.as_deref().map(fault_named).transpose()?;
    let mutant = fault.and_then(|f| mutant_of(f, args.kernel));
    let scenario = args.scenario(mutant);
    let plant = mutant.map(|m| m.plant);
    println!("{}", describe(&scenario));
    if let Some(plant) = &plant {
        println!("planted: {}: {}", plant.fault, plant.fault.about());
    }
    let options = EmulatorOptions { trace: true, ..EmulatorOptions::with_seed(args.seed) };
    let outcome = scenario.run(options, plant)?;
    show(args, &outcome, plant);
    Ok(verdict(&outcome))
}

fn describe(s: &Scenario) -> String {
    let shape = format!("{:?}, {}×{}×{}, {} CTAs", s.kernel, s.m, s.n, s.k, s.ctas);
    if !s.kernel.has_ranks() {
        return shape;
    }
    format!(
        "{shape} a rank, {} ranks, transport {:?}, placement {:?}, margin {}, {} call(s)",
        s.world, s.transport, s.placement, s.sm_margin, s.calls
    )
}

/// Timeline and events of the chosen CTA.
fn show(args: &EmulateArgs, outcome: &Outcome, plant: Option<Plant>) {
    let Some(trace) = &outcome.trace else { return };
    let struck = outcome.violation.as_ref().and_then(|v| v.place);
    let rank = args.rank.map(Rank).or(struck.map(|p| p.rank)).or(plant.and_then(|p| p.rank)).unwrap_or(Rank(0));
    let cta = args.cta.or(struck.map(|p| p.cta)).or(plant.and_then(|p| p.cta)).unwrap_or(0);
    let mut launches: Vec<usize> =
        trace.events().iter().filter(|e| e.place.rank == rank && e.place.cta == cta).map(|e| e.place.launch).collect();
    launches.dedup();
    // The last launch is the one in which it went wrong.
    let launch = launches.last().copied().unwrap_or(0);
    if args.trace {
        println!("\n{}", follow::follow(trace, rank, launch, cta));
    }
    println!("\nphases of every barrier (> arrival, | phase complete, digit: running phase):");
    println!("{}", trace.timeline(rank, launch, cta, COLUMNS));
}

fn verdict(outcome: &Outcome) -> bool {
    let s = &outcome.stats;
    println!(
        "{} steps, {} ns; {} bytes loaded, {} stored, {} wgmma groups",
        s.steps, s.now_ns, s.loaded_bytes, s.stored_bytes, s.wgmma_groups
    );
    match &outcome.violation {
        None => println!("verdict: pass"),
        Some(error) => println!("verdict: FAIL\n{error}"),
    }
    outcome.violation.is_none()
}
