//! Reads of a kernel's parameter as what they are.
//!
//! Kernels read their parameter through its address, so LLVM makes generic loads of them, which go the way of global memory.
//! From parameter space ptxas takes them from the constant bank, with no load at all where an instruction has room for it:
//! measured on an H200, 1 to 2 % of calls of 11 µs.

use std::collections::{HashMap, HashSet};

use crate::ptx::{Kind, Ptx, statements};

/// Kernels that keep their loads: with them changed, ptxas has no uniform registers for the descriptors of wgmmas, says the gate.
const KEPT: [&str; 2] = [
    "sm90_e4m3_gemm_reduce_scatter_epilogue_nt_f32_128x128x128",
    "sm90_e4m3_e5m2_gemm_reduce_scatter_epilogue_nt_f32_128x128x128",
];

/// `text` with the generic loads through a parameter's address as loads from parameter space.
pub fn read_in_place(text: &str) -> String {
    let ptx = Ptx::new(text);
    let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
    let is_changed = |name: &str| !KEPT.contains(&name);
    for kernel in ptx.functions().iter().filter(|f| f.kind == Kind::Entry && is_changed(&f.name)) {
        let parameter = format!("{}_param_0", kernel.name);
        let body = ptx.lines().get(kernel.body.clone()).unwrap_or_default();
        let addresses = addresses(body, &parameter);
        for line in lines.get_mut(kernel.body.clone()).unwrap_or_default() {
            if let Some(read) = as_read(line, &addresses, &parameter) {
                *line = read;
            }
        }
    }
    let mut joined = lines.join("\n");
    if text.ends_with('\n') {
        joined.push('\n');
    }
    joined
}

/// The registers of `body` that hold nothing but the address of `parameter`.
fn addresses<'a>(body: &'a [String], parameter: &str) -> HashSet<&'a str> {
    let (mut found, mut copies, mut others) = (HashSet::new(), HashMap::<&str, Vec<&str>>::new(), HashSet::new());
    for statement in body.iter().flat_map(|line| statements(line)) {
        let Some((name, operands)) = after_word(statement) else { continue };
        // Instructions write nothing but their first operand, which may be several registers.
        let (first, rest) = match operands.strip_prefix('{').and_then(|group| group.split_once('}')) {
            Some((group, rest)) => (group, rest.trim_start().trim_start_matches(',')),
            None => operands.split_once(',').unwrap_or((operands, "")),
        };
        let (to, from) = (first.trim(), rest.trim());
        match name {
            "mov.b64" if from == parameter => _ = found.insert(to),
            "mov.b64" if is_register(to) && is_register(from) => copies.entry(to).or_default().push(from),
            "cvta.param.u64" if to == from => {}
            _ => others.extend(first.split([',', '|']).map(str::trim)),
        }
    }
    found.retain(|root| !others.contains(root) && !copies.contains_key(root));
    loop {
        let is_address = |(to, from): &(&&str, &Vec<&str>)| {
            !found.contains(**to) && !others.contains(**to) && from.iter().all(|from| found.contains(from))
        };
        let more: Vec<_> = copies.iter().filter(is_address).map(|(to, _)| *to).collect();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

fn after_word(text: &str) -> Option<(&str, &str)> {
    text.split_once(char::is_whitespace).map(|(word, rest)| (word, rest.trim()))
}

fn is_register(operand: &str) -> bool {
    operand.starts_with('%') && operand[1..].chars().all(|c| c.is_ascii_alphanumeric())
}

/// `line` as a load from parameter space, if it is a generic load through one of `addresses`.
fn as_read(line: &str, addresses: &HashSet<&str>, parameter: &str) -> Option<String> {
    let mut all = statements(line.split("//").next()?.trim_end().strip_suffix(';')?);
    let (name, operands) = after_word(all.next()?)?;
    if all.next().is_some() {
        return None;
    }
    let mut qualifiers = name.strip_prefix("ld.")?.split('.').peekable();
    let _vector = qualifiers.next_if(|q| matches!(*q, "v2" | "v4"));
    let is_type = |q: &str| q.starts_with(['b', 'u', 's', 'f']) && q[1..].parse::<u32>().is_ok();
    if !qualifiers.next().is_some_and(is_type) || qualifiers.next().is_some() {
        return None;
    }
    let (_, place) = operands.split_once('[')?;
    let base = place.split(['+', '-', ']']).next()?;
    addresses.contains(base.trim()).then(|| {
        let (load, place) = line.split_once('[').unwrap_or((line, ""));
        format!("{}[{parameter}{}", load.replacen("ld.", "ld.param.", 1), place.trim_start().replacen(base, "", 1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel `k` around `body`.
    fn kernel(body: &str) -> String {
        format!(".visible .entry k(\n\t.param .align 64 .b8 k_param_0[816]\n)\n{{\n{body}\n\tret;\n}}\n")
    }

    const ROOT: &str = "\tmov.b64 %rd1, k_param_0; cvta.param.u64 %rd1, %rd1;\n";

    #[test]
    fn loads_through_the_address_and_its_copies_are_from_parameter_space() {
        for (load, read) in [
            ("ld.b32 \t%r1, [%rd1+568];", "ld.param.b32 \t%r1, [k_param_0+568];"),
            ("ld.v2.b32 \t{%r1, %r2}, [%rd1];", "ld.param.v2.b32 \t{%r1, %r2}, [k_param_0];"),
            ("@%p1 ld.b64 %rd2, [%rd1+8];", "@%p1 ld.param.b64 %rd2, [k_param_0+8];"),
            ("ld.f32 %f1, [%rd1+4]; // scale", "ld.param.f32 %f1, [k_param_0+4]; // scale"),
        ] {
            let copied = load.replace("%rd1", "%rd9");
            let copy = "\tmov.b64 \t%rd7, %rd1;\n\t// kept: %rd7\n\tmov.b64 %rd9, %rd7;\n";
            for load in [load.to_string(), format!("{copy}\t{copied}")] {
                let expected = if load.contains("%rd9") { format!("{copy}\t{read}") } else { read.to_string() };
                let text = kernel(&format!("{ROOT}\t{load}"));
                let after = read_in_place(&text);
                assert_eq!(after, kernel(&format!("{ROOT}\t{expected}")));
                assert_eq!(read_in_place(&after), after, "twice is once");
            }
        }
    }

    #[test]
    fn stored_kernels_read_their_parameter_in_place() {
        let text = include_str!("../../ptx/kernels.ptx");
        assert_eq!(read_in_place(text), text);
        let ptx = Ptx::new(text);
        for kernel in ptx.functions().iter().filter(|f| f.kind == Kind::Entry) {
            let reads = ptx.lines()[kernel.body.clone()].iter().filter(|line| line.contains("ld.param.")).count();
            assert_eq!(reads == 0, KEPT.contains(&kernel.name.as_str()), "{}: {reads} reads", kernel.name);
        }
    }

    #[test]
    fn whatever_else_a_register_may_hold_leaves_its_loads_generic() {
        for body in [
            // Not the parameter, or not only.
            "\tld.b32 %r1, [%rd2];".to_string(),
            format!("{ROOT}\tadd.s64 %rd2, %rd1, %rd3;\n\tld.b64 %rd4, [%rd2];"),
            format!("{ROOT}\tmov.b64 %rd2, %rd1;\n\tadd.s64 %rd2, %rd2, 8;\n\tld.b64 %rd4, [%rd2];"),
            format!("{ROOT}\tmov.b64 %rd2, %rd1;\n\tmov.b64 %rd2, %rd3;\n\tld.b64 %rd4, [%rd2];"),
            format!("{ROOT}\tmov.b64 %rd2, %rd1;\n\tld.v2.b64 {{%rd5, %rd2}}, [%rd6];\n\tld.b64 %rd4, [%rd2];"),
            format!("{ROOT}\tadd.s64 %rd1, %rd1, 8;\n\tld.b64 %rd4, [%rd1];"),
            // Loads of another kind, and what is no load.
            format!("{ROOT}\tld.global.b32 %r1, [%rd1];"),
            format!("{ROOT}\tld.relaxed.sys.global.b32 %r1, [%rd1];"),
            format!("{ROOT}\tst.b32 [%rd1], %r1;"),
            format!("{ROOT}\tprefetch.tensormap [%rd1];"),
            // A statement that goes on in the next line, and two in one.
            format!("{ROOT}\tld.b32 %r1, [%rd1+4]\n\t;"),
            format!("{ROOT}\tld.b32 %r1, [%rd1+4]; ld.b32 %r2, [%rd1+8];"),
        ] {
            let text = kernel(&body);
            assert_eq!(read_in_place(&text), text);
        }
        // Another kernel's parameter, and a function that is none.
        let other = kernel("\tld.b32 %r1, [%rd1];");
        let text = format!("{}{}", kernel(ROOT), other.replace('k', "q"));
        assert_eq!(read_in_place(&text), text);
        for text in ["", "\n", "ld.b32 %r1, [%rd1];", ".visible .entry k(", ".visible .entry k()\n{\nld.b32 [;"] {
            assert_eq!(read_in_place(text), text);
        }
    }
}
