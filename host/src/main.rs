//! The `tilewire` program.
fn main() {}
