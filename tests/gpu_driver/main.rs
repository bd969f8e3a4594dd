//! The driver layer on a real GPU.

#[path = "../common/mod.rs"]
mod common;
mod context;
mod graphs;
mod launches;
mod libraries;
mod memory;

use std::process::ExitCode;

fn main() -> ExitCode {
    common::suite_main([context::TESTS, memory::TESTS, launches::TESTS, graphs::TESTS, libraries::TESTS].concat())
}

/// The kernels of `common/kernels.ptx`.
mod kernels {
    use tilewire::driver::{Function, Gpu, LaunchShape, Module, Stream, launch};
    use tilewire::kernels::abi::{Launch, MAPS, TensorMap};
    use tilewire::kernels::shape::GlobalAddr;

    use super::common::text;

    pub const PTX: &str = include_str!("../common/kernels.ptx");

    #[repr(C)]
    #[derive(Clone, Copy)]
    pub struct Args {
        pub out: u64,
        pub value: u32,
        pub nanoseconds: u32,
    }

    pub const ONE_THREAD: LaunchShape = LaunchShape::linear(1, 1, 0);

    pub fn params(out: GlobalAddr, value: u32, nanoseconds: u32) -> Launch<Args> {
        let mut maps = [TensorMap::UNUSED; MAPS];
        maps[0].0[0] = 0x5EED;
        Launch { maps, args: Args { out: out.0, value, nanoseconds } }
    }

    pub fn function(gpu: &Gpu, name: &str) -> Result<Function, String> {
        Module::load(gpu, PTX).map_err(text)?.function(name).map_err(text)
    }

    /// `*out += value`, so many milliseconds later.
    pub fn late_add(
        function: &Function,
        out: GlobalAddr,
        value: u32,
        milliseconds: u32,
        stream: &Stream,
    ) -> Result<(), String> {
        let params = params(out, value, milliseconds * 1_000_000);
        // SAFETY: the parameter is the kernel's, and the tests keep `out` alive by recording its use.
        unsafe { launch(function, &ONE_THREAD, &params, stream) }.map_err(text)
    }
}
