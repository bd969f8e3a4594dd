//! Kernel launches.

use std::mem::size_of;
use std::ptr;

use cudarc::driver::sys::{
    self, CUlaunchAttribute, CUlaunchAttributeID, CUlaunchAttributeValue, CUlaunchAttributeValue_union__bindgen_ty_1,
    CUlaunchConfig, CUstream,
};

use super::module::Function;
use super::status::check;
use super::stream::Stream;
use crate::error::{Error, Result};
use crate::kernels::entries::Entry;

/// Shape of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchShape {
    /// CTAs along x, y, z.
    pub grid: [u32; 3],
    /// Threads of a CTA along x, y, z.
    pub threads: [u32; 3],
    /// Dynamic shared memory of a CTA, in bytes.
    pub smem_bytes: u32,
    /// CTAs of a cluster along x; 1 for no cluster. Must divide `grid[0]`.
    pub cluster: u32,
    /// Whether the kernel may start before the one ahead of it in the stream has ended (programmatic dependent launch);
    /// it must then wait for that one itself.
    pub overlaps_previous: bool,
}

impl LaunchShape {
    /// `ctas` CTAs in a row, of this many threads and bytes of dynamic shared memory.
    pub const fn linear(ctas: u32, threads: u32, smem_bytes: u32) -> Self {
        let (grid, threads) = ([ctas, 1, 1], [threads, 1, 1]);
        Self { grid, threads, smem_bytes, cluster: 1, overlaps_previous: false }
    }

    /// `ctas` CTAs of a kernel in the table.
    pub const fn of_entry(entry: &Entry, ctas: u32) -> Self {
        let mut shape = Self::linear(ctas, entry.threads, entry.smem_bytes);
        shape.cluster = entry.cluster;
        shape
    }

    /// Whether the shape makes sense by itself.
    ///
    /// # Errors
    /// [`Error::Argument`] with the number and its rule.
    pub fn check(&self) -> Result<()> {
        if self.grid.contains(&0) {
            return Err(Error::argument("grid", format!("{:?}", self.grid), "a launch has at least one CTA each way"));
        }
        let threads = self.threads.iter().try_fold(1u32, |product, n| product.checked_mul(*n));
        if !threads.is_some_and(|n| (1..=1024).contains(&n)) {
            return Err(Error::argument("CTA", format!("{:?} threads", self.threads), "a CTA has 1 to 1024 threads"));
        }
        if self.cluster == 0 || !self.grid[0].is_multiple_of(self.cluster) {
            let rule = format!("it must divide the grid's {} CTAs", self.grid[0]);
            return Err(Error::argument("cluster", self.cluster, rule));
        }
        Ok(())
    }
}

/// Starts `function` in `stream`, with `params` as its one by-value parameter. Allocates nothing.
///
/// The driver copies `params` before this returns, and places it as the PTX declares it, so that `params` itself need
/// not be aligned for the GPU.
///
/// # Safety
/// `params` is what the kernel expects, and the memory that it points to is there, and free of conflicting accesses,
/// until the kernel has ended: record its uses after this call.
///
/// # Errors
/// [`Error::Argument`] for an impossible shape, a parameter of another size than the kernel's, or a stream of another
/// GPU; [`Error::Driver`], for one when an earlier error is pending.
pub unsafe fn launch<P: Copy>(function: &Function, shape: &LaunchShape, params: &P, stream: &Stream) -> Result<()> {
    if function.gpu() != stream.gpu() {
        let rule = format!("{} is loaded on GPU {}", function.name(), function.gpu().ordinal());
        return Err(Error::argument("stream", format!("on GPU {}", stream.gpu().ordinal()), rule));
    }
    // SAFETY: the caller's; the stream is alive and on the function's GPU.
    unsafe { launch_raw(function, shape, params, stream.raw()) }
}

/// As [`launch()`], on a stream that is known by its handle alone: nothing is asked of it, since a stream that is being
/// captured answers few questions.
///
/// # Safety
/// As [`launch()`], and `stream` is a live stream of the function's GPU.
///
/// # Errors
/// As [`launch()`].
pub unsafe fn launch_raw<P: Copy>(
    function: &Function,
    shape: &LaunchShape,
    params: &P,
    stream: CUstream,
) -> Result<()> {
    shape.check()?;
    if let Some(bytes) = function.param_bytes().filter(|bytes| *bytes != size_of::<P>()) {
        let what = format!("parameter of {}", function.name());
        return Err(Error::argument(
            what,
            format!("{} bytes", size_of::<P>()),
            format!("the kernel takes {bytes} bytes"),
        ));
    }
    let mut attributes = [attribute(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION); 2];
    let mut count = 0;
    if shape.cluster > 1 {
        attributes[count].value.clusterDim =
            CUlaunchAttributeValue_union__bindgen_ty_1 { x: shape.cluster, y: 1, z: 1 };
        count += 1;
    }
    if shape.overlaps_previous {
        attributes[count] = attribute(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
        attributes[count].value.programmaticStreamSerializationAllowed = 1;
        count += 1;
    }
    let config = CUlaunchConfig {
        gridDimX: shape.grid[0],
        gridDimY: shape.grid[1],
        gridDimZ: shape.grid[2],
        blockDimX: shape.threads[0],
        blockDimY: shape.threads[1],
        blockDimZ: shape.threads[2],
        sharedMemBytes: shape.smem_bytes,
        hStream: stream,
        attrs: attributes.as_mut_ptr(),
        numAttrs: count as u32,
    };
    let mut pointers = [ptr::from_ref(params).cast_mut().cast()];
    let _entered = function.gpu().enter()?;
    // SAFETY: the handles are alive and on one GPU; `config` names `count` valid attributes; the kernel has one
    // parameter, of which `pointers` holds the address; the caller vouches for what the kernel does with it.
    let status = unsafe { sys::cuLaunchKernelEx(&config, function.raw(), pointers.as_mut_ptr(), ptr::null_mut()) };
    check("cuLaunchKernelEx", status)
}

fn attribute(id: CUlaunchAttributeID) -> CUlaunchAttribute {
    CUlaunchAttribute { id, pad: [0; 4], value: CUlaunchAttributeValue { pad: [0; 64] } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::entries::ENTRIES;

    #[test]
    fn an_entry_gives_its_threads_and_shared_memory() {
        let shape = LaunchShape::of_entry(&ENTRIES[0], 132);
        assert_eq!(shape.grid, [132, 1, 1]);
        assert_eq!(shape.threads, [ENTRIES[0].threads, 1, 1]);
        assert_eq!(shape.smem_bytes, ENTRIES[0].smem_bytes);
        shape.check().unwrap();
    }

    #[test]
    fn impossible_shapes_are_refused_before_the_driver_sees_them() {
        let shape = LaunchShape::linear(4, 128, 0);
        assert!(LaunchShape { grid: [0, 1, 1], ..shape }.check().is_err());
        assert!(LaunchShape { threads: [1025, 1, 1], ..shape }.check().is_err());
        assert!(LaunchShape { threads: [0, 1, 1], ..shape }.check().is_err());
        assert!(LaunchShape { threads: [1 << 16, 1 << 16, 1], ..shape }.check().is_err());
        assert!(LaunchShape { cluster: 0, ..shape }.check().is_err());
        let message = LaunchShape { cluster: 3, ..shape }.check().unwrap_err().to_string();
        assert_eq!(message, "cluster is 3, but it must divide the grid's 4 CTAs");
        LaunchShape { cluster: 2, ..shape }.check().unwrap();
    }
}
