//! `tilewire emulate` as a user runs it: every fault is reported with CTA, role and what it is about.

use std::process::{Command, Output};

use rayon::prelude::*;
use tilewire::emulator::Fault;
use tilewire::mutants::Mutant;

fn emulate(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tilewire")).arg("emulate").args(args).output().expect("the program starts")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn every_fault_ends_in_a_report_that_says_who_and_where() {
    Fault::ALL.par_iter().for_each(|fault| {
        let output = emulate(&["--fault", fault.name()]);
        let text = text(&output);
        assert_eq!(output.status.code(), Some(1), "{fault}: {text}");
        let report = text.split("verdict: FAIL").nth(1).unwrap_or_else(|| panic!("{fault}: no report in {text}"));
        let expected = Mutant::of(*fault).unwrap().expected;
        assert!(expected.iter().any(|v| report.contains(&format!("{v}: "))), "{fault}: {report}");
        let roles = ["setup", "producer", "storer", "loader", "consumer", "leave"];
        assert!(report.contains(" CTA ") && roles.iter().any(|role| report.contains(role)), "{fault}: {report}");
        assert!(text.contains("phases of every barrier") && text.contains("full[0]"), "{fault}: {text}");
        if report.contains("deadlock") {
            let on_what = report.contains("pending") || report.contains(", seen ");
            assert!(report.contains("waits for") && on_what, "{fault}: {report}");
        }
    });
}

#[test]
fn without_a_fault_both_kernels_pass_and_show_their_phases() {
    for kernel in ["gemm", "gemm-reduce-scatter"] {
        let output = emulate(&["--kernel", kernel, "--seed", "7"]);
        let text = text(&output);
        assert_eq!(output.status.code(), Some(0), "{kernel}: {text}");
        for part in ["verdict: pass", "wgmma groups", "full[0]", "panel_empty[0]"] {
            assert!(text.contains(part), "{part:?} is not in {text}");
        }
    }
}

#[test]
fn the_options_choose_the_call() {
    let way = ["--transport", "staged", "--placement", "partition", "--sm-margin", "1", "--ctas", "3"];
    let shape = ["--m", "150", "--n", "72", "--k", "40", "--world", "3", "--cta", "2"];
    let output = emulate(&[&["--kernel", "gemm-reduce-scatter"], &way[..], &shape[..]].concat());
    let text = text(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    for part in ["150×72×40", "3 ranks", "Staged", "Partition", "margin 1", "CTA 2"] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

#[test]
fn the_trace_follows_bytes_and_phases() {
    let output = emulate(&["--kernel", "gemm", "--trace"]);
    let text = text(&output);
    for part in [
        "init full[0] for 1 arrivals",
        "expect 49152 bytes  [phase 0: 1 of 1 arrived, 49152 bytes expected]",
        "complete_tx on full[0]",
        "full[0] completes phase 0  [phase 1: 0 of 1 arrived, 0 bytes expected]",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

#[test]
fn faults_are_listed_and_an_unknown_one_is_an_error() {
    let listed = text(&emulate(&["--list-faults"]));
    assert!(Fault::ALL.iter().all(|fault| listed.contains(fault.name())), "{listed}");
    let output = emulate(&["--fault", "no-such-fault"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("fault is no-such-fault") && text(&output).contains("early-signal"));
}
