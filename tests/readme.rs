//! The README says what is there: its example, its commands, its options and its paths.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

const README: &str = include_str!("../README.md");
const EXAMPLE: &str = include_str!("../examples/reduce_scatter.rs");
const CI: &str = include_str!("../.ci/run");
const PERFORMANCE: &str = include_str!("../docs/performance.md");
const IGNORED: &str = include_str!("../.gitignore");

/// The fenced blocks of `language`.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let (open, mut found, mut inside) = (format!("```{language}"), Vec::new(), None::<String>);
    for line in text.lines() {
        match &mut inside {
            None if line == open => inside = Some(String::new()),
            None => {}
            Some(_) if line == "```" => found.extend(inside.take()),
            Some(block) => {
                block.push_str(line);
                block.push('\n');
            }
        }
    }
    assert!(inside.is_none(), "a block of {language} has no end");
    found
}

/// A command's words, without flags that change neither what it builds nor what it checks.
fn essence(command: &str) -> Vec<&str> {
    command.split_whitespace().filter(|word| !["--locked", "--quiet", "--no-fail-fast"].contains(word)).collect()
}

/// The commands of CI's steps: the words after `step NAME`.
fn ci_commands() -> Vec<Vec<&'static str>> {
    let steps = CI.lines().filter_map(|line| line.strip_prefix("step "));
    steps.filter_map(|step| step.split_once(' ')).map(|(_, command)| essence(command)).collect()
}

/// What stands between backticks, outside blocks.
fn quoted(text: &str) -> BTreeSet<&str> {
    let prose = text.split("```").step_by(2);
    prose.flat_map(|part| part.split('`').skip(1).step_by(2)).collect()
}

fn is_path(quoted: &str) -> bool {
    let name = quoted.rsplit('/').next().unwrap_or_default();
    let has_suffix = [".md", ".rs", ".toml", ".sh", ".ptx"].iter().any(|suffix| name.ends_with(suffix));
    let plain = quoted.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    plain && (quoted.contains('/') || has_suffix || quoted.starts_with("LICENSE"))
}

#[test]
fn the_example_is_the_one_that_compiles_and_runs() {
    let blocks = blocks(README, "rust");
    assert_eq!(blocks.len(), 1, "the README has one example");
    assert!(blocks[0] == EXAMPLE, "the README's example is not examples/reduce_scatter.rs");
}

#[test]
fn the_first_two_commands_are_those_that_ci_runs() {
    let blocks = blocks(README, "sh");
    let commands: Vec<&str> = blocks[0].lines().collect();
    assert_eq!(commands, ["cargo run --release -- demo", "cargo test --release --workspace"]);
    for command in commands {
        assert!(ci_commands().contains(&essence(command)), ".ci/run has no step for {command}");
    }
}

#[test]
fn paths_that_the_readme_names_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths: BTreeSet<&str> = quoted(README).into_iter().filter(|text| is_path(text)).collect();
    let commands = blocks(README, "sh").join(" ");
    paths.extend(commands.split_whitespace().filter(|word| word.contains('/')));
    let made = |path: &str| IGNORED.lines().any(|line| path.starts_with(line.trim_start_matches('/')));
    let missing: Vec<_> = paths.iter().filter(|path| !made(path) && !root.join(path).exists()).collect();
    assert!(missing.is_empty(), "the README names {missing:?}");
    assert!(
        paths.len() > 8 && paths.contains("docs/testing.md") && paths.contains("scripts/fetch-minilm"),
        "{paths:?}"
    );
}

#[test]
fn options_of_validate_are_all_there_with_their_defaults() {
    let output = Command::new(env!("CARGO_BIN_EXE_tilewire")).args(["validate", "--help"]).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let rows: Vec<Vec<&str>> = README
        .lines()
        .filter(|line| line.starts_with("| `--"))
        .map(|line| line.split('|').map(|cell| cell.trim().trim_matches('`')).collect())
        .collect();
    for row in &rows {
        let (option, default) = (row[1], row[3]);
        let entry = help.split("\n      --").find(|entry| entry.split_whitespace().next() == Some(&option[2..]));
        let entry = entry.unwrap_or_else(|| panic!("validate has no {option}:\n{help}"));
        // A switch takes no value, and has no default that the program could name.
        let is_switch = !entry.lines().next().is_some_and(|line| line.contains('<'));
        let has_default = if is_switch { default == "off" } else { entry.contains(&format!("[default: {default}]")) };
        assert!(has_default, "{option} has another default than {default}: {entry}");
        let values = entry.lines().filter_map(|line| line.trim().strip_prefix("- ")?.split(':').next());
        let mut unsaid = values.filter(|value| !row[2].split(['`', ' ', ',']).any(|word| word == *value));
        assert_eq!(unsaid.next(), None, "the README leaves out a value of {option}");
    }
    let options = help.lines().filter(|line| line.trim_start().starts_with("--")).count();
    assert_eq!(rows.len(), options, "the README leaves an option out:\n{help}");
}

#[test]
fn numbers_of_the_readme_are_those_of_the_page_on_performance() {
    let measured = README.split("<!-- numbers: ").skip(1).flat_map(str::lines);
    let is_row =
        |line: &&str| line.strip_prefix("| ").is_some_and(|cells| cells.starts_with(|c: char| c.is_ascii_digit()));
    let rows: Vec<&str> = measured.take_while(|line| !line.starts_with("## ")).filter(is_row).collect();
    assert!(rows.len() >= 8, "{rows:?}");
    let unknown: Vec<_> = rows.iter().filter(|row| !PERFORMANCE.lines().any(|line| line.starts_with(**row))).collect();
    assert!(unknown.is_empty(), "docs/performance.md has no line that starts with {unknown:?}");
}

#[test]
fn readers_of_markdown_see_what_stands_there() {
    let text = "a `b/c.rs` d\n```sh\nx `y/z`\n```\n`e` `LICENSE-MIT`\n";
    assert_eq!(blocks(text, "sh"), ["x `y/z`\n"]);
    assert_eq!(quoted(text).into_iter().filter(|q| is_path(q)).collect::<Vec<_>>(), ["LICENSE-MIT", "b/c.rs"]);
    assert_eq!(essence("cargo test --locked --release"), ["cargo", "test", "--release"]);
    assert!(!is_path("ptx-kernel") && !is_path("a b/c") && is_path("docs/x.md") && is_path("Cargo.toml"));
}
