//! The bundle for GPU hosts without Rust: its scripts are sound, and everything that belongs on a GPU is in it.
//!
//! What the programs in it do can be seen on such a host only.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(file(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Names of the targets of a kind in Cargo.toml.
fn targets(kind: &str) -> Vec<String> {
    let (manifest, header) = (read("Cargo.toml"), format!("[[{kind}]]"));
    let quoted = |line: &str| Some(line.strip_prefix("name = \"")?.strip_suffix('"')?.to_string());
    let sections = manifest.split(&header).skip(1);
    sections.filter_map(|section| section.lines().find_map(quoted)).collect()
}

/// The words of a bash array.
fn array(script: &str, name: &str) -> Vec<String> {
    let text = read(script);
    let start = text.find(&format!("\n{name}=(")).unwrap_or_else(|| panic!("{script} has no array {name}"));
    let words = &text[start + name.len() + 3..];
    words[..words.find(')').expect("the array ends")].split_whitespace().map(str::to_string).collect()
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}

#[test]
fn the_scripts_are_valid_bash_and_may_be_executed() {
    for script in ["scripts/gpu-bundle", "scripts/gpu-bundle-run", "scripts/sanitize-host"] {
        let status = Command::new("bash").arg("-n").arg(file(script)).status().expect("bash runs");
        assert!(status.success(), "{script}");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(file(script)).expect("the script").permissions().mode();
            assert_eq!(mode & 0o111, 0o111, "{script}");
        }
    }
}

#[test]
fn every_gpu_test_of_the_manifest_is_in_the_bundle() {
    let declared: Vec<String> = targets("test").into_iter().filter(|name| name.starts_with("gpu_")).collect();
    assert!(declared.len() >= 2, "{declared:?}");
    assert_eq!(sorted(array("scripts/gpu-bundle", "gpu_tests")), sorted(declared.clone()));
    // And every test program on a GPU is declared, since libtest would count a missing GPU as a failure.
    let entries = fs::read_dir(file("tests")).expect("tests").flatten();
    let names = entries.map(|entry| entry.path().file_stem().unwrap_or_default().to_string_lossy().into_owned());
    let programs = names.filter(|name| name.starts_with("gpu_") && name != "gpu_support");
    assert_eq!(sorted(programs.collect()), sorted(declared));
}

#[test]
fn every_bench_of_the_manifest_is_in_the_bundle_and_is_run() {
    let declared = targets("bench");
    assert_eq!(sorted(array("scripts/gpu-bundle", "benches")), sorted(declared.clone()));
    let run = read("scripts/gpu-bundle-run");
    for bench in declared {
        assert!(run.contains(&format!("/benches/{bench} ")), "{bench} is never run");
    }
}

#[test]
fn every_test_for_the_sanitizers_exists() {
    // A name that no test has would run nothing, and pass.
    let source = read("tests/gpu_ops.rs");
    let names = array("scripts/gpu-bundle-run", "small_tests");
    assert!(names.len() >= 5, "{names:?}");
    for name in names {
        assert!(source.contains(&format!("Case::one(\"{name}\"")), "{name} is no test of gpu_ops");
    }
}

#[test]
fn help_is_the_head_of_the_script_and_unknown_arguments_are_refused() {
    for script in ["scripts/gpu-bundle", "scripts/gpu-bundle-run", "scripts/sanitize-host"] {
        let help = Command::new(file(script)).arg("--help").output().expect("bash runs");
        let text = String::from_utf8_lossy(&help.stdout).into_owned();
        assert!(help.status.success() && text.contains("usage: "), "{script}: {text}");
        let unknown = Command::new(file(script)).arg("--nonsense").output().expect("bash runs");
        let text = String::from_utf8_lossy(&unknown.stderr).into_owned();
        assert_eq!(unknown.status.code(), Some(2), "{script}: {text}");
        assert!(text.contains("unknown argument --nonsense"), "{script}: {text}");
    }
}
