//! The assembler gate: what ptxas says about the kernels, and which instructions it chose. The contract reads the
//! text; this reads what becomes of it, which is where spills and serialized wgmmas show.

use std::fmt;

/// Instructions that every GEMM kernel must have, by the start of their name; one of each group is enough.
pub const REQUIRED: [&[&str]; 3] = [&["HGMMA", "QGMMA"], &["UTMALDG", "UBLKCP"], &["SYNCS"]];
/// The same of those whose sums leave through shared memory.
pub const STORES: [&[&str]; 1] = [&["UTMASTG", "UBLKCP"]];
/// The same of those whose sums go from registers to registers, two words of data and flag at a time.
pub const EXCHANGES: [&[&str]; 2] = [&["STG.E.128.STRONG.SYS"], &["LDG.E.128.STRONG.SYS"]];

/// What ptxas says about one kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The kernel.
    pub entry: String,
    /// Registers of a thread at entry; `None` if ptxas did not say.
    pub registers: Option<u32>,
    /// Bytes of stack; `None` if ptxas did not say.
    pub stack: Option<u32>,
    /// Bytes that are stored and loaded because registers ran out; `None` if ptxas did not say.
    pub spills: Option<(u32, u32)>,
}

/// What `ptxas -v` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assembly {
    /// By kernel, in ptxas' order.
    pub usage: Vec<Usage>,
    /// Warnings, and remarks about lost performance (C75xx).
    pub remarks: Vec<String>,
}

/// Reads the output of `ptxas -v`.
pub fn read_ptxas(text: &str) -> Assembly {
    let mut assembly = Assembly::default();
    for line in text.lines() {
        if line.contains("warning") || line.contains("error") || has_remark_code(line) {
            assembly.remarks.push(line.trim().to_string());
        }
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            let entry = rest.split('\'').next().unwrap_or_default().to_string();
            assembly.usage.push(Usage { entry, ..Usage::default() });
        }
        let Some(usage) = assembly.usage.last_mut() else { continue };
        if let Some(stack) = number_before(line, " bytes stack frame") {
            usage.stack = Some(stack);
            usage.spills = number_before(line, " bytes spill stores").zip(number_before(line, " bytes spill loads"));
        }
        if line.contains("Used ") {
            usage.registers = number_before(line, " registers").or(usage.registers);
        }
    }
    assembly
}

/// What a disassembly says about one kernel: its instructions' names, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sass {
    /// The kernel.
    pub entry: String,
    /// Names of its instructions, with their modifiers.
    pub instructions: Vec<String>,
}

/// Reads the output of `nvdisasm -c`.
pub fn read_sass(text: &str) -> Vec<Sass> {
    let mut found: Vec<Sass> = Vec::new();
    for line in text.lines() {
        let line = line.trim();
        if let Some(entry) = line.strip_prefix(".text.").and_then(|rest| rest.strip_suffix(':')) {
            found.push(Sass { entry: entry.to_string(), instructions: Vec::new() });
        }
        let (Some(sass), Some((_, code))) = (found.last_mut(), line.split_once("*/")) else { continue };
        if !line.starts_with("/*") {
            continue;
        }
        // A predicate may come first: `@!P0 BRA 0x10`.
        let name = code.split_whitespace().find(|word| !word.starts_with('@') && !word.starts_with('{'));
        sass.instructions.extend(name.map(|name| name.trim_end_matches(';').to_string()));
    }
    found
}

/// A reason not to let the kernels through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The kernel; empty when ptxas did not say which.
    pub entry: String,
    /// What was found, and the rule.
    pub reason: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.entry.is_empty() {
            write!(f, "{}: ", self.entry)?;
        }
        f.write_str(&self.reason)
    }
}

/// Everything that speaks against the kernels `entries`.
pub fn judge(assembly: &Assembly, sass: &[Sass], entries: &[&str]) -> Vec<Refusal> {
    let refuse = |entry: &str, reason: String| Refusal { entry: entry.to_string(), reason };
    let mut refusals: Vec<_> =
        assembly.remarks.iter().map(|remark| refuse("", format!("ptxas remarks `{remark}`, but may not"))).collect();
    for entry in entries {
        match assembly.usage.iter().find(|usage| usage.entry == *entry) {
            Some(Usage { stack: Some(0), spills: Some((0, 0)), registers: Some(_), .. }) => {}
            Some(Usage { stack: Some(stack), spills: Some((stores, loads)), registers: Some(_), .. }) => {
                let found = format!("{stack} bytes of stack, {stores} spilled, {loads} loaded back");
                refusals.push(refuse(entry, format!("{found}, but all three must be 0")));
            }
            Some(_) => refusals.push(refuse(entry, "ptxas did not give registers, stack and spills".to_string())),
            None => refusals.push(refuse(entry, "ptxas did not assemble it, but it is in the entry table".to_string())),
        }
        let Some(sass) = sass.iter().find(|sass| sass.entry == *entry) else {
            refusals.push(refuse(entry, "it is not in the disassembly, but it is in the entry table".to_string()));
            continue;
        };
        let loops = looping_loads(&sass.instructions);
        if loops > 0 {
            let rule = "but one thread issues them: it has to be elected, or ptxas does not know";
            refusals.push(refuse(entry, format!("{loops} of its bulk loads are in a loop over threads, {rule}")));
        }
        let (moves, wgmmas) = moves_among_wgmmas(&sass.instructions);
        if moves > wgmmas {
            let rule =
                "but descriptors live there from the start where all a warp does follows from what it has one of";
            let found = format!("{moves} moves to uniform registers stand among the wgmmas of its stages");
            refusals.push(refuse(entry, format!("{found}, {rule}")));
        }
        if !entry.contains("gemm") {
            continue;
        }
        let leaves = if entry.contains("low_latency") { EXCHANGES.as_slice() } else { STORES.as_slice() };
        for group in REQUIRED.iter().chain(leaves) {
            let has = |name: &String| group.iter().any(|required| name.starts_with(required));
            if !sass.instructions.iter().any(has) {
                let found = sass.instructions.len();
                let names = group.join(" or ");
                refusals
                    .push(refuse(entry, format!("none of its {found} instructions is {names}, but a GEMM needs it")));
            }
        }
    }
    refusals
}

/// Bulk loads around which ptxas made a loop over active threads.
fn looping_loads(instructions: &[String]) -> usize {
    /// What stands between such a load and its branch: who is left.
    const BETWEEN: usize = 3;
    let is_load = |name: &str| name.starts_with("UTMALDG") || name.starts_with("UBLKCP.S.G");
    let loads = instructions.iter().enumerate().filter(|(_, name)| is_load(name));
    let after = |at: usize| instructions.iter().skip(at + 1).take(BETWEEN);
    loads.filter(|(at, _)| after(*at).any(|name| name == "BRA.U.ANY")).count()
}

/// Moves from vector to uniform registers between two wgmmas of a stage, and those pairs of wgmmas.
fn moves_among_wgmmas(instructions: &[String]) -> (usize, usize) {
    /// Two wgmmas further apart are of different stages: a wait stands between them.
    const OF_ONE_STAGE: usize = 32;
    let is_wgmma = |name: &String| name.starts_with("HGMMA") || name.starts_with("QGMMA");
    let at: Vec<usize> = (0..instructions.len()).filter(|at| instructions.get(*at).is_some_and(is_wgmma)).collect();
    let between = at.windows(2).filter_map(|pair| instructions.get(pair[0]..pair[1]));
    between.filter(|between| between.len() <= OF_ONE_STAGE).fold((0, 0), |(moves, pairs), between| {
        (moves + between.iter().filter(|name| *name == "R2UR").count(), pairs + 1)
    })
}

fn has_remark_code(line: &str) -> bool {
    line.match_indices("(C75").any(|(at, found)| {
        let rest = &line.as_bytes()[at + found.len()..];
        matches!(rest, [a, b, b')', ..] if a.is_ascii_digit() && b.is_ascii_digit())
    })
}

fn number_before(line: &str, words: &str) -> Option<u32> {
    let before = &line[..line.find(words)?];
    before.rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = include_str!("../tests/recorded/ptxas-good.txt");
    const SPILLS: &str = include_str!("../tests/recorded/ptxas-spills.txt");
    const REMARK: &str = include_str!("../tests/recorded/ptxas-c7508.txt");
    const SASS: &str = include_str!("../tests/recorded/nvdisasm.txt");

    fn reasons(ptxas: &str, sass: &str) -> Vec<String> {
        judge(&read_ptxas(ptxas), &read_sass(sass), &["gemm"]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_clean_kernel_passes() {
        let usage = Usage { entry: "gemm".into(), registers: Some(168), stack: Some(0), spills: Some((0, 0)) };
        assert_eq!(read_ptxas(GOOD), Assembly { usage: vec![usage], remarks: vec![] });
        assert_eq!(reasons(GOOD, SASS), [""; 0]);
    }

    #[test]
    fn spills_and_stack_are_refused_with_their_sizes() {
        let reason = "gemm: 304 bytes of stack, 300 spilled, 300 loaded back, but all three must be 0";
        assert_eq!(reasons(SPILLS, SASS), [reason]);
    }

    #[test]
    fn a_remark_about_lost_performance_is_refused() {
        let found = reasons(REMARK, SASS);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("(C7508)") && found[0].contains("'setmaxnreg' ignored"), "{found:?}");
    }

    #[test]
    fn a_warning_is_refused() {
        let text = format!("{GOOD}ptxas warning : something\n");
        assert_eq!(reasons(&text, SASS), ["ptxas remarks `ptxas warning : something`, but may not"]);
    }

    #[test]
    fn an_instruction_that_ptxas_did_not_choose_is_missed() {
        for (name, reported) in [
            ("HGMMA", "HGMMA or QGMMA"),
            ("UTMALDG", "UTMALDG or UBLKCP"),
            ("UTMASTG", "UTMASTG or UBLKCP"),
            ("SYNCS", "SYNCS"),
        ] {
            let found = reasons(GOOD, &SASS.replace(name, "NOP"));
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].contains(&format!("is {reported}, but a GEMM needs it")), "{found:?}");
        }
        assert_eq!(reasons(GOOD, &SASS.replace("UTMALDG", "UBLKCP")), [""; 0]);
    }

    #[test]
    fn a_load_in_a_loop_over_threads_is_refused() {
        let behind = |load: &str| {
            let two = "  /*0000*/  @P1 PLOP3.LUT P0, PT, P1, PT, PT, 0x8, 0x0 ;\n".repeat(2);
            format!("{SASS}  /*0000*/  {load} [UR4], [UR8] ;\n{two}  /*0010*/  @P0 BRA.U.ANY `(.L_x_1) ;\n")
        };
        for load in ["UTMALDG.2D", "UBLKCP.S.G"] {
            let found = reasons(GOOD, &behind(load));
            assert!(
                found.len() == 1 && found[0].contains("1 of its bulk loads are in a loop over threads"),
                "{found:?}"
            );
        }
        // A warp's stores are: its lanes all come, and one of them stores.
        assert_eq!(reasons(GOOD, &behind("UTMASTG.2D")), [""; 0]);
        assert_eq!(reasons(GOOD, &behind("UTMALDG.2D").replace("BRA.U.ANY", "BRA")), [""; 0]);
    }

    #[test]
    fn descriptors_that_are_moved_for_each_wgmma_are_refused() {
        let stage = |moves: usize| {
            let wgmma = format!(
                "{}  /*0010*/  HGMMA.64x256x16.F32.BF16 R24, gdesc[UR8] ;\n",
                "  /*0000*/  R2UR UR8, R4 ;\n".repeat(moves)
            );
            format!("{SASS}{}", wgmma.repeat(4))
        };
        assert_eq!(reasons(GOOD, &stage(1)), [""; 0]);
        let found = reasons(GOOD, &stage(2));
        assert!(found.len() == 1 && found[0].contains("moves to uniform registers"), "{found:?}");
        // Where more lies between them, they are of different stages.
        assert_eq!(reasons(GOOD, &stage(40)), [""; 0]);
    }

    #[test]
    fn a_kernel_that_exchanges_registers_stores_and_loads_words_whole() {
        let name = "gemm_low_latency";
        let reasons = |sass: &str| -> Vec<String> {
            let (ptxas, sass) = (GOOD.replace("gemm", name), sass.replace("gemm", name));
            judge(&read_ptxas(&ptxas), &read_sass(&sass), &[name]).iter().map(ToString::to_string).collect()
        };
        let words =
            "  /*0000*/  STG.E.128.STRONG.SYS desc[UR4][R2.64], R4 ;\n  /*0010*/  @P0 LDG.E.128.STRONG.SYS R4 ;\n";
        let sass = SASS.replace("UTMASTG", "NOP") + words;
        assert_eq!(reasons(&sass), [""; 0]);
        for name in ["STG.E.128.STRONG.SYS", "LDG.E.128.STRONG.SYS"] {
            let found = reasons(&sass.replace(name, "NOP"));
            assert!(found.len() == 1 && found[0].contains(&format!("is {name}, but")), "{found:?}");
        }
    }

    #[test]
    fn an_absent_kernel_is_refused_twice() {
        let found = reasons("", "");
        assert!(
            found.len() == 2 && found[0].contains("did not assemble") && found[1].contains("disassembly"),
            "{found:?}"
        );
    }

    #[test]
    fn output_that_says_nothing_about_registers_is_refused() {
        let found = reasons(&GOOD.replace("Used 168 registers", "Used"), SASS);
        assert_eq!(found, ["gemm: ptxas did not give registers, stack and spills"]);
    }

    #[test]
    fn instructions_are_read_behind_predicates_and_labels() {
        let text = ".text.k:\n  /*0000*/  @!P0 BRA 0x10 ;\n.L_1:\n  /*0010*/  EXIT;\n";
        assert_eq!(read_sass(text), [Sass { entry: "k".into(), instructions: vec!["BRA".into(), "EXIT".into()] }]);
    }
}
