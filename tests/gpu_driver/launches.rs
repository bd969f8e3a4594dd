//! Modules, launches, tensor maps.

use tilewire::driver::tensor_map::{self, Matrix};
use tilewire::driver::{DeviceBuffer, Gpu, LaunchShape, Module, Stream, launch};
use tilewire::kernels::abi::TensorMap;
use tilewire::kernels::config::Element;

use crate::common::{Case, TestResult, expect_eq, expect_text, in_child, text};
use crate::kernels::{self, PTX};

pub const TESTS: &[Case] = &[
    Case::one("the_parameter_arrives_by_value_and_aligned", by_value),
    Case::one("a_cluster_has_the_size_that_was_asked_for", cluster),
    Case::one("a_parameter_of_another_size_is_refused", wrong_size),
    Case::one("a_dependent_launch_runs", dependent),
    Case::one("the_compilers_words_are_in_the_error", bad_ptx),
    Case::one("a_missing_kernel_is_named", missing_kernel),
    Case::one("kernels_load_at_once_when_loading_is_lazy", lazy),
    Case::one("kernels_load_at_once_when_loading_is_eager", eager),
    Case::one("occupancy_and_registers_are_known", occupancy),
    Case::one("what_the_check_takes_can_be_encoded", tensor_maps),
];

fn echo(gpu: &Gpu, shape: &LaunchShape) -> Result<Vec<u32>, String> {
    let stream = Stream::new(gpu).map_err(text)?;
    let function = kernels::function(gpu, "echo")?;
    let out = DeviceBuffer::filled(gpu, 4 * (shape.grid[0] as usize + 3), 0xFF).map_err(text)?;
    let params = kernels::params(out.addr(), 100, 0);
    // SAFETY: the parameter is the kernel's, and `out` is as long as the kernel writes.
    unsafe { launch(&function, shape, &params, &stream) }.map_err(text)?;
    out.record_use(&stream).map_err(text)?;
    out.to_vec().map_err(text)
}

fn by_value(gpu: &Gpu) -> TestResult {
    let out = echo(gpu, &LaunchShape::linear(5, 32, 1024))?;
    // CTAs, then the parameter's address modulo 64, the cluster's size, the first word of the maps.
    expect_eq("echo", out, vec![100, 101, 102, 103, 104, 0, 1, 0x5EED])
}

fn cluster(gpu: &Gpu) -> TestResult {
    let shape = LaunchShape { cluster: 2, ..LaunchShape::linear(4, 32, 0) };
    expect_eq("echo", echo(gpu, &shape)?, vec![100, 101, 102, 103, 0, 2, 0x5EED])
}

fn dependent(gpu: &Gpu) -> TestResult {
    let shape = LaunchShape { cluster: 2, overlaps_previous: true, ..LaunchShape::linear(2, 32, 0) };
    expect_eq("echo", echo(gpu, &shape)?, vec![100, 101, 0, 2, 0x5EED])
}

fn wrong_size(gpu: &Gpu) -> TestResult {
    let stream = Stream::new(gpu).map_err(text)?;
    let function = kernels::function(gpu, "echo")?;
    expect_eq("parameter", function.param_bytes(), Some(528))?;
    // SAFETY: refused before anything is launched.
    let result = unsafe { launch(&function, &kernels::ONE_THREAD, &[0u64; 65], &stream) };
    let error = result.err().ok_or("520 bytes were taken for 528")?;
    expect_text(&error.to_string(), &["parameter of echo is 520 bytes", "the kernel takes 528 bytes"])
}

fn bad_ptx(gpu: &Gpu) -> TestResult {
    let error = Module::load(gpu, &PTX.replace("st.global.u32", "st.nowhere.u32")).err().ok_or("bad PTX was loaded")?;
    expect_text(&error.to_string(), &["cuModuleLoadDataEx failed: CUDA_ERROR_INVALID_PTX", "nowhere"])?;
    let error = Module::load(gpu, "a\0b").err().ok_or("PTX with a NUL was loaded")?;
    expect_text(&error.to_string(), &["it must have no NUL byte"])
}

fn missing_kernel(gpu: &Gpu) -> TestResult {
    let error = kernels::function(gpu, "nothing").err().ok_or("a missing kernel was found")?;
    expect_text(&error, &["cuModuleGetFunction failed: CUDA_ERROR_NOT_FOUND", "no kernel named nothing"])
}

fn lazy(gpu: &Gpu) -> TestResult {
    let name = "kernels_load_at_once_when_loading_is_lazy";
    in_child(name, gpu, &[("CUDA_MODULE_LOADING", "LAZY")], first_launch)
}

fn eager(gpu: &Gpu) -> TestResult {
    let name = "kernels_load_at_once_when_loading_is_eager";
    in_child(name, gpu, &[("CUDA_MODULE_LOADING", "EAGER")], first_launch)
}

/// The first launch ever of a kernel, while another one runs that ends only when it is told to.
fn first_launch(gpu: &Gpu) -> TestResult {
    let module = Module::load(gpu, PTX).map_err(text)?;
    let (late_add, echo) = (module.function("late_add").map_err(text)?, module.function("echo").map_err(text)?);
    let (busy, stream) = (Stream::new(gpu).map_err(text)?, Stream::new(gpu).map_err(text)?);
    let (out, echoed) =
        (DeviceBuffer::filled(gpu, 4, 0).map_err(text)?, DeviceBuffer::filled(gpu, 16, 0).map_err(text)?);
    kernels::late_add(&late_add, out.addr(), 1, 2000, &busy)?;
    let params = kernels::params(echoed.addr(), 9, 0);
    // SAFETY: the parameter is the kernel's, and `echoed` is as long as the kernel writes.
    unsafe { launch(&echo, &kernels::ONE_THREAD, &params, &stream) }.map_err(text)?;
    stream.synchronize().map_err(text)?;
    expect_eq("the busy kernel has ended", busy.is_idle().map_err(text)?, false)?;
    busy.synchronize().map_err(text)?;
    expect_eq("echo", echoed.to_vec::<u32>().map_err(text)?[0], 9)
}

fn occupancy(gpu: &Gpu) -> TestResult {
    let function = kernels::function(gpu, "echo")?;
    let facts = function.facts().map_err(text)?;
    expect_eq("local memory", facts.local_bytes, 0)?;
    if !(4..=255).contains(&facts.registers) {
        return Err(format!("{facts:?}"));
    }
    function.allow_dynamic_smem(200 * 1024).map_err(text)?;
    expect_eq("CTAs of 200 KiB", function.max_ctas_per_sm(128, 200 * 1024).map_err(text)?, 1)?;
    expect_eq("CTAs of 100 KiB", function.max_ctas_per_sm(128, 100 * 1024).map_err(text)?, 2)?;
    let error = function.allow_dynamic_smem(228 * 1024).err().ok_or("a CTA was allowed all of an SM")?;
    expect_text(&error.to_string(), &["cuFuncSetAttribute failed: CUDA_ERROR_INVALID_VALUE"])
}

fn tensor_maps(gpu: &Gpu) -> TestResult {
    let buffer = DeviceBuffer::new(gpu, 1 << 20).map_err(text)?;
    let mut seen = Vec::new();
    for element in [Element::Bf16, Element::F16, Element::F32, Element::E4m3] {
        for (rows, cols) in [(1, 1), (1, 8), (127, 105), (128, 64), (1, 1 << 32), (1 << 32, 1)] {
            for box_rows in [1, 64, 256] {
                let stride = (cols * u64::from(element.bytes())).next_multiple_of(16);
                let base = buffer.addr_at(16).map_err(text)?;
                let matrix = Matrix {
                    name: "A",
                    base,
                    rows,
                    cols,
                    row_stride_bytes: stride,
                    element,
                    box_rows,
                    box_row_bytes: 128,
                    fetch_bytes: 128,
                };
                let map = tensor_map::encode(gpu, &matrix).map_err(|e| format!("{matrix:?}: {e}"))?;
                if map == TensorMap::UNUSED || seen.contains(&map) {
                    return Err(format!("{matrix:?} has no map of its own: {map:?}"));
                }
                seen.push(map);
            }
        }
    }
    expect_eq("maps", seen.len(), 72)
}
