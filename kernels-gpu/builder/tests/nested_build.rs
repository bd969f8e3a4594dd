//! The builder against a small device crate, with a real compiler.

use std::fs;
use std::path::PathBuf;

use tilewire_builder::contract::Rule;
use tilewire_builder::{CudaBuilder, CudaBuilderError, shared_target_dir};
use tilewire_kernels::entries::{ENTRIES, Entry};

fn fixture() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/counter")
}

fn entry() -> Entry {
    let some = Entry { name: "count_arrivals", overlaps_previous: false, ..ENTRIES[0] };
    Entry { threads: 32, cluster: 2, param_bytes: 80, param_align: 64, ..some }
}

/// A copy of the fixture with `from` replaced by `to` in file `file`, and room for intermediate files.
fn changed(name: &str, file: &str, from: &str, to: &str) -> CudaBuilder {
    let dir = work_dir().join(name);
    fs::create_dir_all(dir.join("src")).unwrap();
    for file in ["Cargo.toml", "src/lib.rs", "src/machine.rs"] {
        fs::copy(fixture().join(file), dir.join(file)).unwrap();
    }
    let text = fs::read_to_string(dir.join(file)).unwrap();
    assert!(text.contains(from), "{file} does not hold {from}");
    fs::write(dir.join(file), text.replace(from, to)).unwrap();
    CudaBuilder::new(dir).entries(&[entry()]).target_dir(work_dir())
}

fn work_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
}

fn violated(builder: &CudaBuilder) -> Vec<Rule> {
    match builder.build_text() {
        Err(CudaBuilderError::Contract(violations)) => violations.iter().map(|violation| violation.rule).collect(),
        other => panic!("expected violations, got {other:?}"),
    }
}

#[test]
#[ignore = "needs a device toolchain, and compiles core in a quarter of a minute; .ci/run runs it"]
fn the_fixture_builds_and_what_breaks_it_is_refused() {
    let built = CudaBuilder::new(fixture()).entries(&[entry()]).target_dir(work_dir()).deny_warnings(true).build_text();
    let built = built.unwrap();
    let header = "count_arrivals(\n\t.param .align 64 .b8 count_arrivals_param_0[80]\n)\n.maxntid 32, 1, 1\n.minnctapersm 1\n.reqnctapercluster 2, 1, 1\n{";
    assert!(built.ptx.contains(header), "{}", built.ptx);
    assert!(!built.ptx.contains("rust_begin_unwind"), "the panic handler is still there:\n{}", built.ptx);
    assert_eq!(built.warnings, "");

    // The same sources elsewhere give the same text.
    let moved = changed("moved", "src/lib.rs", "num_peers", "num_ranks").build_text().unwrap();
    assert_eq!(moved.ptx, built.ptx);

    // What a kernel's author gets wrong most often.
    let panics = changed(
        "panics",
        "src/lib.rs",
        "(&raw const (*args).peers).cast::<u64>().add(idx as usize).read()",
        "(&(*args).peers)[idx as usize]",
    );
    let rules = violated(&panics);
    assert!(rules.contains(&Rule::ExternFunc) || rules.contains(&Rule::Call), "{rules:?}");
    let unscoped = changed("unscoped", "src/machine.rs", "red.release.sys.global", "red.global");
    assert_eq!(violated(&unscoped), [Rule::Scope]);
    let renamed = changed("renamed", "src/lib.rs", "fn count_arrivals", "fn count_departures");
    assert_eq!(violated(&renamed), [Rule::EntryMissing, Rule::EntryExtra]);

    let broken = changed("broken", "src/lib.rs", "add_release(peer)", "add_release(pier)").build_text().unwrap_err();
    assert!(broken.to_string().contains("compiling counter_fixture for nvptx64-nvidia-cuda failed"), "{broken}");
    assert!(broken.to_string().contains("pier"), "{broken}");
}

#[test]
fn the_hash_follows_sources_table_and_flags_and_nothing_else() {
    let here = CudaBuilder::new(fixture()).entries(&[entry()]);
    let hash = here.source_hash().unwrap();
    let moved = changed("hash_moved", "src/lib.rs", "num_peers", "num_peers");
    assert_eq!(moved.source_hash().unwrap(), hash, "where the sources lie must not matter");
    let unix_ends = changed("hash_ends", "src/lib.rs", "\n", "\r\n");
    assert_eq!(unix_ends.source_hash().unwrap(), hash, "line ends must not matter");
    let comment = changed("hash_comment", "src/machine.rs", "`trap`", "`exit`");
    assert_ne!(comment.source_hash().unwrap(), hash);
    assert_ne!(here.clone().entries(&[Entry { threads: 64, ..entry() }]).source_hash().unwrap(), hash);
    assert_ne!(here.clone().cfg("every_lane_arrives").source_hash().unwrap(), hash);
    assert_ne!(here.llvm_args(&["-unroll-threshold=1000"]).source_hash().unwrap(), hash);
}

#[test]
fn a_folder_that_is_no_crate_is_an_error_that_names_it() {
    let error = CudaBuilder::new("no/such/crate").source_hash().unwrap_err().to_string();
    assert!(error.starts_with("no/such/crate/Cargo.toml: "), "{error}");
}

#[test]
fn build_products_of_all_profiles_share_one_folder() {
    let target = work_dir().join("target_like");
    let out_dir = target.join("release/build/tilewire-0123/out");
    fs::create_dir_all(&out_dir).unwrap();
    fs::write(target.join(".rustc_info.json"), "{}").unwrap();
    assert_eq!(shared_target_dir(&out_dir), target.join("device"));
    assert_eq!(shared_target_dir(&target.join("debug/build-ptx")), target.join("device"));
}
