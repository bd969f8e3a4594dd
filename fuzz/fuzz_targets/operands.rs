//! Addresses, strides and rows of calls: an error, or a call that keeps the machine's rules.
#![no_main]

#[path = "../bodies/mod.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::operands(data));
