//! Misuse that must not compile: tokens of the ring, configurations that do not fit, swapped words.
//!
//! The program that compiles is there as a control: it uses the same calls in the right order. It also makes trybuild
//! build the others, not only check them, so that constants of generic functions are evaluated. These tests stand with
//! this crate, and not with the host's, because trybuild builds every dependency of its crate anew.
//!
//! Expected messages are those of a toolchain without the `rust-src` component; with it the compiler quotes the standard
//! library, and the four cases about constants differ.

#[test]
fn misuse_of_rings_configurations_and_words_does_not_compile() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/compile_pass/*.rs");
    cases.compile_fail("tests/compile_fail/*.rs");
}
