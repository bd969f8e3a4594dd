//! The CUDA driver, opened at run time: contexts, memory, streams, modules, launches.
//!
//! Everything here builds and starts on a machine without CUDA; [`library::available`] says what is missing. The
//! context is always the device's primary one, so that pointers and streams of the CUDA runtime and of frameworks built
//! on it can be used as they are.
//!
//! What is safe and what is not: memory, streams, events and copies are safe, because an allocation waits for its
//! recorded uses before it is freed. Whatever hands an address to the GPU (a launch, a graph launch, a stream memory
//! operation) is `unsafe`, because the driver cannot check it.

mod allocation;
pub mod capability;
pub mod cublaslt;
#[cfg(feature = "cust")]
pub mod cust;
mod device_buffer;
mod device_slice;
mod dynamic;
mod event;
mod gpu;
mod graph;
mod host_memory;
mod launch;
pub mod library;
mod module;
pub mod nccl;
mod peer;
pub mod raw_memory;
mod status;
mod stream;
mod stream_memory;
pub mod tensor_map;
mod uses;

pub use capability::{DeviceFacts, Uuid};
pub use cudarc::driver::sys::{CUcontext, CUdeviceptr, CUstream};
pub use device_buffer::DeviceBuffer;
pub use device_slice::{DeviceSlice, DeviceSliceMut};
pub use event::Event;
pub use gpu::{Entered, Gpu};
pub use graph::{Capture, CaptureMode, Graph};
pub use host_memory::{HostVisible, MappedHost, PinnedBuffer};
pub use launch::{LaunchShape, launch, launch_raw};
pub use module::{Function, FunctionFacts, Module};
pub use peer::PeerFacts;
pub use stream::{BorrowedStream, Stream};
