//! Harness of the tests that need a GPU.
//!
//! libtest decides what is ignored when it is compiled; whether there is a GPU is known only when a test runs. So these
//! tests have a `main` of their own, which marks a test as ignored, with the reason, where there are too few GPUs, and as
//! failed where `TILEWIRE_REQUIRE_GPU` says that there must be so many. They run one after the other, under a watchdog.
#![allow(dead_code, reason = "each test program uses a part")]

use std::env;
use std::io::Read;
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};
use tilewire::Error;
use tilewire::driver::{DeviceFacts, Gpu, capability, library};

/// What goes wrong in a test, in words.
pub type TestResult = Result<(), String>;
/// A test on one GPU.
pub type GpuTest = fn(&Gpu) -> TestResult;
/// A test on several GPUs.
pub type GpusTest = fn(&[Gpu]) -> TestResult;

const REQUIRE: &str = "TILEWIRE_REQUIRE_GPU";
const CHILD: &str = "TILEWIRE_GPU_TEST_CHILD";
const DEADLINE: &str = "TILEWIRE_TEST_DEADLINE_S";

/// A test with what it needs.
#[derive(Clone, Copy)]
pub struct Case {
    /// A sentence, in snake case.
    pub name: &'static str,
    /// What is run, on how many GPUs.
    pub run: Run,
    /// What is needed beside GPUs; `Err` with what is missing. Asked only where the GPUs are there.
    pub needs: fn() -> TestResult,
}

/// The body of a test.
#[derive(Clone, Copy)]
pub enum Run {
    /// On the first GPU.
    One(GpuTest),
    /// On the first so many GPUs.
    Several(usize, GpusTest),
}

impl Case {
    /// A test on one GPU that needs nothing else.
    pub const fn one(name: &'static str, run: GpuTest) -> Self {
        Self { name, run: Run::One(run), needs: || Ok(()) }
    }

    /// A test on several GPUs that needs nothing else.
    pub const fn several(name: &'static str, gpus: usize, run: GpusTest) -> Self {
        Self { name, run: Run::Several(gpus, run), needs: || Ok(()) }
    }

    fn gpus(&self) -> usize {
        match self.run {
            Run::One(_) => 1,
            Run::Several(gpus, _) => gpus,
        }
    }

    fn trial(self) -> Trial {
        let gpus = self.gpus();
        let required = env::var(REQUIRE).ok().and_then(|value| value.parse().ok()).unwrap_or(0) >= gpus;
        let missing = usable(gpus).and_then(|()| (self.needs)()).err();
        let kind = missing.as_ref().filter(|_| !required).map(|missing| format!("ignored: {missing}"));
        let ignored = kind.is_some();
        let test = Trial::test(self.name, move || {
            if let Some(missing) = missing {
                return Err(Failed::from(format!("{REQUIRE} asks for {gpus}: {missing}")));
            }
            let _watched = Watched::start(self.name);
            let opened = open(gpus)?;
            match self.run {
                Run::One(run) => run(&opened[0]).map_err(Failed::from),
                Run::Several(_, run) => run(&opened).map_err(Failed::from),
            }
        });
        test.with_kind(kind.unwrap_or_default()).with_ignored_flag(ignored)
    }
}

/// Runs tests that need one GPU.
pub fn gpu_main(tests: Vec<(&'static str, GpuTest)>) -> ExitCode {
    suite_main(tests.into_iter().map(|(name, run)| Case::one(name, run)).collect())
}

/// Runs tests with various needs.
pub fn suite_main(cases: Vec<Case>) -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Timings and captures of one test must not meet another test's work.
    arguments.test_threads.get_or_insert(1);
    thread::spawn(watch);
    libtest_mimic::run(&arguments, cases.into_iter().map(Case::trial).collect()).exit_code()
}

/// The first GPU, or why there is none.
pub fn require_gpu() -> Result<Gpu, String> {
    usable(1)?;
    open(1).map(|mut gpus| gpus.remove(0))
}

/// `Err` with the reason when this machine has fewer usable GPUs than `count`. Makes no context.
fn usable(count: usize) -> Result<(), String> {
    let missing = |error: Error| match error {
        Error::NoGpu { found, .. } => found,
        other => other.to_string(),
    };
    library::available().map_err(missing)?;
    let seen = Gpu::count().map_err(missing)?;
    if seen < count {
        return Err(format!("{count} GPUs needed, {seen} there"));
    }
    for ordinal in 0..count {
        let facts = DeviceFacts::query(ordinal).map_err(missing)?;
        capability::check(&facts).map_err(missing)?;
    }
    Ok(())
}

fn open(count: usize) -> Result<Vec<Gpu>, String> {
    (0..count).map(|ordinal| Gpu::open(ordinal).map_err(|e| e.to_string())).collect()
}

/// Runs `body` in a process of its own: for tests after which a context cannot be used, or that need other environment
/// variables. `name` is the test's own name.
pub fn in_child(name: &str, gpu: &Gpu, variables: &[(&str, &str)], body: GpuTest) -> TestResult {
    if env::var_os(CHILD).is_some_and(|value| value == name) {
        return body(gpu);
    }
    let program = env::current_exe().map_err(|e| e.to_string())?;
    let mut child = Command::new(program)
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, name)
        // The child gives up first, and says why.
        .env(DEADLINE, (deadline() * 3 / 4).as_secs().to_string())
        .envs(variables.iter().copied())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(|e| e.to_string())?;
    let mut output = String::new();
    if let Some(stdout) = &mut child.stdout {
        stdout.read_to_string(&mut output).map_err(|e| e.to_string())?;
    }
    let status = child.wait().map_err(|e| e.to_string())?;
    match (status.success(), output.contains("1 passed")) {
        (true, true) => Ok(()),
        (true, false) => Err(format!("the child ran no test:\n{output}")),
        (false, _) => Err(format!("the child ended with {status}:\n{output}")),
    }
}

/// `Err` with both values when they differ.
pub fn expect_eq<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> TestResult {
    if found == expected { Ok(()) } else { Err(format!("{what}: found {found:?}, expected {expected:?}")) }
}

/// `Err` with the text when it lacks one of `parts`.
pub fn expect_text(found: &str, parts: &[&str]) -> TestResult {
    match parts.iter().find(|part| !found.contains(**part)) {
        Some(part) => Err(format!("{part:?} is not in {found:?}")),
        None => Ok(()),
    }
}

/// For `map_err`.
pub fn text(error: Error) -> String {
    error.to_string()
}

static RUNNING: Mutex<Vec<(&'static str, Instant)>> = Mutex::new(Vec::new());

struct Watched(&'static str);

impl Watched {
    fn start(name: &'static str) -> Self {
        RUNNING.lock().unwrap_or_else(PoisonError::into_inner).push((name, Instant::now()));
        Self(name)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        RUNNING.lock().unwrap_or_else(PoisonError::into_inner).retain(|(name, _)| *name != self.0);
    }
}

fn deadline() -> Duration {
    let seconds = env::var(DEADLINE).ok().and_then(|value| value.parse().ok());
    Duration::from_secs(seconds.unwrap_or(120))
}

/// Ends the process when a test takes too long. A kernel that never ends cannot be stopped otherwise, and an orderly
/// exit would wait for it.
fn watch() {
    let deadline = deadline();
    loop {
        thread::sleep(Duration::from_millis(200));
        let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((name, _)) = running.iter().find(|(_, since)| since.elapsed() > deadline) {
            eprintln!("watchdog: {name} ran longer than {} s; aborting", deadline.as_secs());
            std::process::abort();
        }
    }
}
