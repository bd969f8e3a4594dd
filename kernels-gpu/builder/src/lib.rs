//! Builds tilewire's device crate to PTX and enforces the PTX contract.
