//! Device kernels of tilewire, written once and run by three machines: a Hopper GPU, the host's emulator and model
//! checkers.
//!
//! Layers, bottom to top; a module imports only from those above it in this list:
//!
//! | layer | holds |
//! | --- | --- |
//! | [`shape`], [`config`], [`abi`], [`entries`] | words that everybody shares, tile constants, parameter structs, the entry table |
//! | [`layout`], [`finish`] | where a byte is; what becomes of a finished value (pure) |
//! | [`schedule`] | which tile, in which order (pure) |
//! | [`comm::route`], [`comm::workspace`] | which rank, which row, which address (pure) |
//! | [`machine`] | what a kernel may ask of the machine (traits) |
//! | [`pipeline`], [`comm::signal`] | protocols over the traits |
//! | [`collective`] | one role's loop |
//! | [`kernels`] | roles and their order, one file a kernel |
//! | `entry`, `sm90` | GPU only: PTX instructions and `ptx-kernel` functions |
#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx, asm_experimental_arch, stdarch_nvptx))]

pub mod abi;
pub mod collective;
pub mod comm;
pub mod config;
pub mod entries;
#[cfg(target_arch = "nvptx64")]
mod entry;
pub mod finish;
pub mod kernels;
pub mod layout;
pub mod machine;
pub mod pipeline;
mod registers;
pub mod schedule;
pub mod shape;
#[cfg(target_arch = "nvptx64")]
mod sm90;
mod smem;
