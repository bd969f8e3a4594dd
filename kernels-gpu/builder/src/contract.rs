//! The PTX contract: what the text must and must not hold, so that ptxas and the driver make of it what the source
//! means. Nothing here needs CUDA.

use std::fmt;

use tilewire_kernels::entries::Entry;

use crate::ptx::{Function, Kind, Ptx, has_word, instruction, statements, words_after};
use crate::stamp;

/// The target that the text must name.
pub const TARGET: &str = "sm_90a";
/// The lowest PTX version that has sm_90a.
pub const MIN_PTX: (u32, u32) = (8, 0);
/// The highest PTX version that the drivers of CUDA 12.x read (12.9).
pub const MAX_PTX: (u32, u32) = (8, 8);

/// A rule of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// `.target` is [`TARGET`].
    Target,
    /// `.version` lies in [`MIN_PTX`]`..=`[`MAX_PTX`].
    Version,
    /// `.address_size` is 64.
    AddressSize,
    /// Every entry of the table is there.
    EntryMissing,
    /// No other entry is there, and none twice.
    EntryExtra,
    /// An entry has one parameter, of the table's size and alignment.
    Parameter,
    /// An entry's launch bounds are the table's.
    LaunchBounds,
    /// No local memory.
    Local,
    /// Nothing is left to be linked in.
    ExternFunc,
    /// Everything is inlined.
    Func,
    /// No calls.
    Call,
    /// Every atomic names its scope.
    Scope,
    /// A kernel that may start early waits before it touches global memory; no other waits.
    EarlyStart,
    /// No debugging aids.
    Debug,
}

impl Rule {
    /// Every rule.
    pub const ALL: [Self; 14] = [
        Self::Target,
        Self::Version,
        Self::AddressSize,
        Self::EntryMissing,
        Self::EntryExtra,
        Self::Parameter,
        Self::LaunchBounds,
        Self::Local,
        Self::ExternFunc,
        Self::Func,
        Self::Call,
        Self::Scope,
        Self::EarlyStart,
        Self::Debug,
    ];

    /// The rule as a sentence.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Target => ".target must be sm_90a: wgmma and setmaxnreg exist nowhere else",
            Self::Version => {
                ".version must lie between 8.0 (the first with sm_90a) and 8.8 (the last that a 12.x driver reads)"
            }
            Self::AddressSize => ".address_size must be 64",
            Self::EntryMissing => "every kernel of the entry table must be there",
            Self::EntryExtra => "only kernels of the entry table may be there, each once",
            Self::Parameter => "a kernel takes one parameter, with the size and alignment that the entry table gives",
            Self::LaunchBounds => {
                "a kernel's launch bounds must be those of the entry table, or ptxas ignores setmaxnreg"
            }
            Self::Local => "local memory is forbidden: an array was indexed at run time, or registers ran out",
            Self::ExternFunc => {
                "nothing may be left to link: some path reaches a panic or a function that is not in the crate"
            }
            Self::Func => "every function must be inlined into its kernel",
            Self::Call => "calls are forbidden: every function on a kernel's path is #[inline(always)]",
            Self::EarlyStart => {
                "a kernel that may start before the one ahead has ended must wait for that (griddepcontrol.wait) before it \
                 touches global memory, and no other kernel waits"
            }
            Self::Scope => "an atomic must name its scope (.cta, .cluster, .gpu or .sys): core::sync::atomic loses it",
            Self::Debug => {
                "printing, breakpoints and debug sections are forbidden: kernels report through the fault record"
            }
        }
    }
}

/// One place where the text breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// The kernel or function that it happened in, or is about.
    pub entry: Option<String>,
    /// Line of the text, from 1.
    pub line: Option<usize>,
    /// What stands there.
    pub found: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}, ")?;
        }
        if let Some(entry) = &self.entry {
            write!(f, "{entry}: ")?;
        }
        write!(f, "`{}`, but {}", self.found, self.rule.text())
    }
}

/// Every place where `text` breaks the contract for `entries`, by line; what is missing comes first.
pub fn check(text: &str, entries: &[Entry]) -> Vec<Violation> {
    let ptx = Ptx::new(text);
    let mut found = Vec::new();
    check_module(&ptx, &mut found);
    check_table(&ptx, entries, &mut found);
    for (line, code) in ptx.lines().iter().enumerate() {
        check_line(&ptx, line, code, &mut found);
    }
    found.sort_by_key(|violation| violation.line);
    found
}

fn violation(rule: Rule, entry: Option<&str>, line: Option<usize>, found: &str) -> Violation {
    let found = found.split_whitespace().collect::<Vec<_>>().join(" ");
    Violation { rule, entry: entry.map(str::to_string), line: line.map(|line| line + 1), found }
}

fn check_module(ptx: &Ptx, found: &mut Vec<Violation>) {
    let mut expect = |rule, directive, holds: &dyn Fn(&str) -> bool| match ptx.directive(directive) {
        Some((_, value)) if holds(value) => {}
        Some((line, value)) => found.push(violation(rule, None, Some(line), &format!("{directive} {value}"))),
        None => found.push(violation(rule, None, None, &format!("no {directive}"))),
    };
    expect(Rule::Target, ".target", &|value| value == TARGET);
    expect(Rule::AddressSize, ".address_size", &|value| value == "64");
    expect(Rule::Version, ".version", &|value| {
        let number = value.split_once('.').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        number.is_some_and(|number: (u32, u32)| (MIN_PTX..=MAX_PTX).contains(&number))
    });
}

fn check_table(ptx: &Ptx, entries: &[Entry], found: &mut Vec<Violation>) {
    let kernels = || ptx.functions().iter().filter(|f| f.kind == Kind::Entry);
    for entry in entries {
        match kernels().find(|f| f.name == entry.name) {
            Some(function) => {
                check_header(ptx, function, entry, found);
                check_early_start(ptx, function, entry, found);
            }
            None => {
                let text = format!("no .entry {}", entry.name);
                found.push(violation(Rule::EntryMissing, Some(entry.name), None, &text));
            }
        }
    }
    for (idx, function) in kernels().enumerate() {
        let in_table = entries.iter().any(|entry| entry.name == function.name);
        if !in_table || kernels().take(idx).any(|other| other.name == function.name) {
            let line = function.header.start;
            found.push(violation(Rule::EntryExtra, Some(&function.name), Some(line), &ptx.lines()[line]));
        }
    }
}

fn check_header(ptx: &Ptx, function: &Function, entry: &Entry, found: &mut Vec<Violation>) {
    let header = || function.header.clone().map(|line| (line, ptx.lines()[line].as_str()));
    let start = Some(function.header.start);
    let params: Vec<_> = header().filter(|(_, text)| has_word(text, ".param")).collect();
    match params[..] {
        [(line, text)] => {
            let expected = (entry.param_align, entry.param_bytes);
            if parse_param(text) != Some(expected) {
                found.push(violation(Rule::Parameter, Some(entry.name), Some(line), text));
            }
        }
        _ => {
            let text = format!("{} parameters", params.len());
            found.push(violation(Rule::Parameter, Some(entry.name), start, &text));
        }
    }
    let expected = stamp::bounds(entry);
    let is_bound =
        |text: &str| [".maxn", ".minn", ".reqn", ".explicitcluster"].iter().any(|b| text.trim().starts_with(b));
    let bounds: Vec<_> = header().filter(|(_, text)| is_bound(text)).map(|(_, text)| text.trim()).collect();
    if bounds != expected.lines().collect::<Vec<_>>() {
        let text = if bounds.is_empty() { "no launch bounds".to_string() } else { bounds.join(" ") };
        found.push(violation(Rule::LaunchBounds, Some(entry.name), start, &text));
    }
}

fn check_early_start(ptx: &Ptx, function: &Function, entry: &Entry, found: &mut Vec<Violation>) {
    let first = |holds: &dyn Fn(&str) -> bool| function.body.clone().find(|&line| holds(&ptx.lines()[line]));
    let wait = first(&|text| text.contains("griddepcontrol.wait"));
    let touched = first(&|text| text.contains(".global") && !text.trim_start().starts_with('.'));
    let is_late = wait.is_some_and(|wait| touched.is_some_and(|touched| touched < wait));
    if wait.is_some() != entry.overlaps_previous || is_late {
        let text = if wait.is_some() { "griddepcontrol.wait" } else { "no griddepcontrol.wait" };
        found.push(violation(Rule::EarlyStart, Some(entry.name), wait.or(Some(function.header.start)), text));
    }
}

/// Alignment and size of a parameter that is declared as bytes: `.param .align 64 .b8 k_param_0[448]`.
pub fn parse_param(text: &str) -> Option<(usize, usize)> {
    let rest = words_after(text, ".param")?;
    let (align, rest) = words_after(rest, ".align")?.split_once(char::is_whitespace)?;
    let (_, size) = words_after(rest, ".b8")?.split_once('[')?;
    Some((align.parse().ok()?, size.trim_end_matches(',').strip_suffix(']')?.parse().ok()?))
}

fn check_line(ptx: &Ptx, line: usize, code: &str, found: &mut Vec<Violation>) {
    let function = ptx.function_of(line).map(|f| f.name.as_str());
    let mut report = |rule, text: &str| found.push(violation(rule, function, Some(line), text));
    let first = code.split_whitespace().next().unwrap_or_default();
    if has_word(code, ".func") {
        report(if has_word(code, ".extern") { Rule::ExternFunc } else { Rule::Func }, code);
    }
    if [".loc", ".file", ".section"].contains(&first) {
        report(Rule::Debug, code);
    }
    for statement in statements(code) {
        let parts: Vec<_> = instruction(statement).collect();
        let name = parts[0];
        if has_word(statement, ".local") {
            report(Rule::Local, statement);
        }
        match name {
            "call" => report(Rule::Call, statement),
            "brkpt" => report(Rule::Debug, statement),
            _ => {}
        }
        let atomic = matches!(name, "atom" | "red") || parts.starts_with(&["multimem", "red"]);
        if atomic && !parts.iter().any(|part| matches!(*part, "cta" | "cluster" | "gpu" | "sys")) {
            report(Rule::Scope, statement);
        }
    }
}
