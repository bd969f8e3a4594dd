//! What Rust cannot say about a kernel, written into its PTX header: launch bounds and the parameter's alignment.
//!
//! `.maxntid` has no Rust attribute, and without it ptxas ignores `setmaxnreg`. A parameter over 16-byte alignment
//! crashes the compiler, while a TMA descriptor needs 64.

use tilewire_kernels::entries::Entry;

use crate::ptx::{Function, Kind, Ptx, has_name, words_after};

/// Counts up with every change of what is written into the text, so that a PTX that was stamped otherwise is not taken as current.
pub const STAMP_VERSION: u32 = 2;

const BOUNDS: [&str; 4] = [".maxntid", ".minnctapersm", ".reqnctapercluster", ".maxnreg"];

/// The text with the header of every kernel in `entries` stamped. A kernel that is missing is left to the contract.
/// Stamping twice is stamping once.
pub fn stamp(text: &str, entries: &[Entry]) -> String {
    let ptx = Ptx::new(text);
    let mut out = String::with_capacity(text.len() + 128 * entries.len());
    for (idx, line) in text.lines().enumerate() {
        let function = ptx.functions().iter().find(|f| f.header.contains(&idx) || f.body.start == idx);
        let entry = function.and_then(|f| entry_of(f, entries));
        let (Some(function), Some(entry)) = (function, entry) else {
            push_line(&mut out, line);
            continue;
        };
        if idx == function.body.start && !function.body.is_empty() {
            out.push_str(&bounds(entry));
            push_line(&mut out, line);
        } else if !BOUNDS.iter().any(|bound| words_after(line, bound).is_some()) {
            push_line(&mut out, &with_align(line, entry.param_align));
        }
    }
    out
}

/// The text without `.func`s that nobody calls: the panic handler, which no kernel may reach but which every crate
/// that defines one exports, under a name that holds a hash.
pub fn drop_unused_functions(text: &str) -> String {
    let ptx = Ptx::new(text);
    let named_elsewhere = |function: &Function| {
        let own = function.header.start..function.body.end;
        ptx.lines().iter().enumerate().any(|(idx, line)| !own.contains(&idx) && has_name(line, &function.name))
    };
    let unused: Vec<_> =
        ptx.functions().iter().filter(|f| f.kind == Kind::Func && !f.body.is_empty() && !named_elsewhere(f)).collect();
    let mut out = String::with_capacity(text.len());
    for (idx, line) in text.lines().enumerate() {
        let dropped = unused.iter().any(|f| {
            let globl = words_after(line.trim_start().trim_start_matches('/'), ".globl") == Some(f.name.as_str());
            globl || (f.header.start..f.body.end).contains(&idx)
        });
        if !dropped {
            push_line(&mut out, line);
        }
    }
    out
}

/// The directives that stamping writes for `entry`, a line each.
pub(crate) fn bounds(entry: &Entry) -> String {
    let mut text = format!(".maxntid {}, 1, 1\n.minnctapersm 1\n", entry.threads);
    if entry.cluster > 1 {
        text.push_str(&format!(".reqnctapercluster {}, 1, 1\n", entry.cluster));
    }
    text
}

fn entry_of<'a>(function: &Function, entries: &'a [Entry]) -> Option<&'a Entry> {
    entries.iter().find(|entry| function.kind == Kind::Entry && entry.name == function.name)
}

fn with_align(line: &str, align: usize) -> String {
    const ALIGN: &str = ".align ";
    match line.split_once(ALIGN) {
        Some((before, after)) if before.contains(".param") => {
            let rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
            format!("{before}{ALIGN}{align}{rest}")
        }
        _ => line.to_string(),
    }
}

fn push_line(out: &mut String, line: &str) {
    out.push_str(line);
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use tilewire_kernels::entries::ENTRIES;

    const RAW: &str = ".version 8.0\n\t// .globl\tpanic_7\n.visible .func panic_7(\n\t.param .b64 panic_7_param_0\n)\n.noreturn\n{\n\ttrap; exit;\n}\n\
        .visible .entry k(\n\t.param .align 16 .b8 k_param_0[448]\n)\n{\n\tret;\n}\n";

    fn entry(cluster: u32) -> Entry {
        Entry { name: "k", threads: 384, cluster, ..ENTRIES[0] }
    }

    #[test]
    fn bounds_and_alignment_go_into_the_header() {
        let text = stamp(RAW, &[entry(1)]);
        let expected =
            "k(\n\t.param .align 64 .b8 k_param_0[448]\n)\n.maxntid 384, 1, 1\n.minnctapersm 1\n{\n\tret;\n}\n";
        assert!(text.ends_with(expected), "{text}");
        assert!(stamp(RAW, &[entry(2)]).contains(".minnctapersm 1\n.reqnctapercluster 2, 1, 1\n{"));
    }

    #[test]
    fn stamping_twice_is_stamping_once() {
        let once = stamp(RAW, &[entry(2)]);
        assert_eq!(stamp(&once, &[entry(2)]), once);
        assert_eq!(stamp(&once, &[entry(1)]), stamp(RAW, &[entry(1)]));
    }

    #[test]
    fn functions_and_other_kernels_are_left_alone() {
        let other = Entry { name: "panic_7", ..entry(1) };
        assert_eq!(stamp(RAW, &[other]), RAW);
        assert_eq!(stamp(RAW, &[]), RAW);
    }

    #[test]
    fn only_functions_that_nobody_names_are_dropped() {
        let text = drop_unused_functions(RAW);
        assert!(!text.contains("panic_7") && text.contains("trap").eq(&false), "{text}");
        assert!(text.contains(".visible .entry k("));
        let called = RAW.replace("\tret;", "\tcall panic_7, (x);\n\tret;");
        assert_eq!(drop_unused_functions(&called), called);
    }
}
