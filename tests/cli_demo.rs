//! The program end to end, as a user runs it: exit status, table, verdict, and what it says about bad input.

use std::path::Path;
use std::process::{Command, Output};

use half::bf16;
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use tempfile::TempDir;

const N: usize = 48;
const K: usize = 100;
const COLUMNS: [&str; 11] = [
    "job",
    "M×N×K per rank",
    "world",
    "transport",
    "reduction",
    "sm_margin",
    "time",
    "TFLOP/s",
    "largest error",
    "bits equal",
    "verdict",
];

fn tilewire(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tilewire")).args(arguments).output().unwrap()
}

/// What a run that must succeed prints.
#[track_caller]
fn passes(arguments: &[&str]) -> String {
    let Output { status, stdout, stderr } = tilewire(arguments);
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{arguments:?} ended with {status}\n{stdout}\n{stderr}");
    assert!(stdout.trim_end().ends_with("verdict: pass"), "{arguments:?}: the last line is the verdict\n{stdout}");
    for column in COLUMNS {
        assert!(stdout.contains(column), "{arguments:?}: no column {column}\n{stdout}");
    }
    stdout.into_owned()
}

/// Runs what must fail; its message must have all of `parts`.
#[track_caller]
fn fails(arguments: &[&str], parts: &[&str]) {
    let Output { status, stdout, stderr } = tilewire(arguments);
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(!status.success(), "{arguments:?} succeeded\n{stdout}");
    assert!(status.code().is_some(), "{arguments:?} was killed: {status}\n{stderr}");
    assert!(!stderr.contains("panicked"), "{arguments:?} panicked\n{stderr}");
    assert!(!stdout.contains("verdict: pass"), "{arguments:?} passed and failed\n{stdout}");
    for part in parts {
        assert!(stderr.contains(part), "{arguments:?}: {part:?} is not in\n{stderr}");
    }
}

/// The rows of the table whose job contains `job`, cell by cell.
fn rows<'a>(stdout: &'a str, job: &str) -> Vec<Vec<&'a str>> {
    let lines = stdout.lines().skip_while(|line| !line.starts_with("---")).skip(1);
    lines.filter(|line| line.contains(job)).map(|line| line.split_whitespace().collect()).collect()
}

/// A model of two layers, as exporters write one.
fn model(folder: &TempDir, dtype: Dtype, names: &[&str]) -> String {
    let value = |i: usize| ((i * 37 + 11) % 101) as f32 / 101.0 - 0.5;
    let bytes: Vec<u8> = match dtype {
        Dtype::BF16 => (0..N * K).flat_map(|i| bf16::from_f32(value(i)).to_le_bytes()).collect(),
        _ => (0..N * K).flat_map(|i| value(i).to_le_bytes()).collect(),
    };
    let view = || TensorView::new(dtype, vec![N, K], &bytes).unwrap();
    let file = folder.path().join("model.safetensors");
    let text = safetensors::serialize(names.iter().map(|name| (*name, view())), None).unwrap();
    std::fs::write(&file, text).unwrap();
    path(&file)
}

fn path(file: &Path) -> String {
    file.to_str().unwrap().to_string()
}

const LAYERS: [&str; 4] = [
    "encoder.layer.0.output.dense.weight",
    "encoder.layer.0.attention.output.dense.weight",
    "encoder.layer.1.output.dense.weight",
    "encoder.layer.1.attention.output.dense.weight",
];

#[test]
fn the_demo_runs_every_down_projection_of_a_model_and_none_of_attention() {
    let folder = TempDir::new().unwrap();
    for dtype in [Dtype::F32, Dtype::BF16] {
        let file = model(&folder, dtype, &LAYERS);
        let stdout = passes(&["demo", "--machine", "emulator", "--model", &file, "--tokens", "37"]);
        assert!(stdout.contains("machine: CPU emulator, 4 rank(s)"), "{stdout}");
        assert!(!stdout.contains("attention"), "{stdout}");
        for layer in [LAYERS[0], LAYERS[2]] {
            let row = rows(&stdout, layer);
            // K = 100 over 4 ranks is 25 each, rounded up to 32.
            assert!(row.len() == 1 && row[0].contains(&"37×48×32") && row[0].ends_with(&["yes", "pass"]), "{stdout}");
        }
    }
}

#[test]
fn the_demo_without_a_model_shows_every_transport_and_reduction() {
    let stdout = passes(&["demo", "--machine", "emulator"]);
    let rows = rows(&stdout, "random");
    assert_eq!(rows.len(), 4, "{stdout}");
    for pair in [["push", "epilogue"], ["push", "partition"], ["staged", "partition"], ["staged", "epilogue"]] {
        assert!(rows.iter().any(|row| row.windows(2).any(|two| two == pair)), "{pair:?}: {stdout}");
    }
    assert!(rows.iter().all(|row| row.ends_with(&["yes", "pass"])), "{stdout}");
}

#[test]
fn validate_takes_every_option() {
    for (options, cells) in [
        (&["--m", "130", "--n", "72", "--k", "40", "--world", "3"][..], ["130×72×40", "3", "push", "epilogue", "0"]),
        (
            &["--m", "9", "--n", "105", "--k", "64", "--world", "8", "--placement", "partition", "--seed", "7"],
            ["9×105×64", "8", "push", "partition", "0"],
        ),
        (
            &["--m", "70", "--n", "64", "--k", "8", "--world", "2", "--transport", "staged", "--sm-margin", "3"],
            ["70×64×8", "2", "staged", "epilogue", "3"],
        ),
        (&["--m", "20", "--n", "16", "--k", "24", "--world", "1"], ["20×16×24", "1", "push", "epilogue", "0"]),
    ] {
        let stdout = passes(&[&["validate", "--machine", "emulator"], options].concat());
        let rows = rows(&stdout, "random");
        assert!(rows.len() == 1 && rows[0][1..6] == cells && rows[0].ends_with(&["yes", "pass"]), "{stdout}");
    }
}

#[test]
fn validate_takes_every_option_of_an_epilogue() {
    for options in [
        &["--alpha", "-0.5"][..],
        &["--beta", "1.5"],
        &["--bias"],
        &["--residual"],
        &["--activation", "relu", "--alpha", "2"],
        &["--activation", "gelu-tanh", "--bias", "--residual"],
        &["--activation", "gelu-erf", "--beta", "-1"],
        &["--activation", "silu", "--placement", "partition", "--world", "1"],
    ] {
        let shape = ["validate", "--machine", "emulator", "--m", "70", "--n", "105", "--k", "40", "--world", "3"];
        let shape = if options.contains(&"--world") { &shape[..9] } else { &shape[..] };
        let stdout = passes(&[shape, options].concat());
        let rows = rows(&stdout, "random");
        assert!(rows.len() == 1 && rows[0].ends_with(&["yes", "pass"]), "{options:?}: {stdout}");
    }
}

#[test]
fn empty_problems_are_right() {
    for empty in ["--m", "--n", "--k"] {
        let mut arguments = vec!["validate", "--machine", "emulator", "--world", "2"];
        for extent in ["--m", "--n", "--k"] {
            arguments.extend([extent, if extent == empty { "0" } else { "16" }]);
        }
        passes(&arguments);
    }
}

#[test]
fn a_model_that_cannot_be_used_is_refused_by_name() {
    let folder = TempDir::new().unwrap();
    let demo = |file: &str, parts: &[&str]| {
        fails(&["demo", "--machine", "emulator", "--model", file], &[&[file][..], parts].concat());
    };
    let file = model(&folder, Dtype::F32, &LAYERS);
    let whole = std::fs::read(&file).unwrap();
    for len in [0, 7, 100, whole.len() - 1] {
        std::fs::write(&file, &whole[..len]).unwrap();
        demo(&file, &["truncated"]);
    }
    std::fs::write(&file, b"not a model, though long enough to have a length").unwrap();
    demo(&file, &["not a safetensors file"]);
    let file = model(&folder, Dtype::I32, &LAYERS);
    demo(&file, &[LAYERS[0], "is of type I32", "F32, F16 or BF16"]);
    let file = model(&folder, Dtype::F32, &[LAYERS[1], LAYERS[3], "embeddings.weight"]);
    demo(&file, &["none of 3 tensors", "output.dense.weight or down_proj.weight", "nearest", LAYERS[1]]);
    demo(&path(&folder.path().join("absent.safetensors")), &[]);
}

#[test]
fn bad_arguments_are_refused_with_argument_value_and_rule() {
    let validate = |options: &[&str], parts: &[&str]| {
        let small = ["validate", "--machine", "emulator", "--m", "16", "--n", "16", "--k", "16"];
        fails(&[&small, options].concat(), parts);
    };
    validate(&["--world", "0"], &["number of ranks is 0", "1 to 8"]);
    validate(&["--world", "9"], &["number of ranks is 9", "1 to 8"]);
    for margin in ["4", "5", "4294967295"] {
        let value = format!("sm_margin is {margin}");
        validate(&["--sm-margin", margin], &[&value, "at least one of the 4 SMs"]);
    }
    validate(&["--transport", "staged"], &["sm_margin is 0", "staged transport", "at least 1 SM"]);
    validate(&["--transport", "pigeon"], &["pigeon", "--transport", "push", "staged"]);
    validate(&["--sm-margin", "-1"], &["-1"]);
    validate(&["--alpha", "NaN"], &["alpha is NaN", "finite number"]);
    validate(&["--beta=-inf"], &["beta is -inf", "finite number"]);
    validate(&["--alpha", "much"], &["much", "--alpha"]);
    validate(&["--beta", "1", "--residual"], &["beta is 1", "one matrix can be added"]);
    validate(&["--activation", "tanh"], &["tanh", "--activation", "gelu-tanh", "silu"]);
    validate(&["--bias", "3"], &["3"]);
    // Longer than the copy engine takes, and refused before operands of that size are made.
    for extent in ["--m", "--n", "--k"] {
        let arguments = ["validate", "--machine", "emulator", extent, "2147483648"];
        fails(&arguments, &[&format!("{} is 2147483648", &extent[2..]), "extents up to 2147483647"]);
    }
    fails(&["demo", "--machine", "emulator", "--tokens", "-3"], &["-3"]);
    fails(&["validate", "--m", "many"], &["many", "--m"]);
    fails(&["launch"], &["launch"]);
}
