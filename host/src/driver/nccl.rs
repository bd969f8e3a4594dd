//! NCCL, for comparison in benchmarks: several GPUs in one process.
//!
//! The library is opened here and not through cudarc, which looks for other names than `libnccl.so.2`, the only one
//! that NVIDIA's Python packages hold, and panics when it finds none.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

use cudarc::driver::sys::CUstream;
use cudarc::nccl::sys::{ncclComm_t, ncclDataType_t, ncclRedOp_t};
use libloading::Library;

use super::dynamic;
use super::gpu::Gpu;
use super::stream::Stream;
use crate::error::{Error, Result};
use crate::kernels::config::Element;
use crate::kernels::shape::GlobalAddr;

type Source = *const c_void;
type Target = *mut c_void;

/// NCCL's functions. Statuses are numbers here: newer libraries know more of them than the bindings.
struct Api {
    get_version: unsafe extern "C" fn(*mut c_int) -> c_int,
    get_error_string: unsafe extern "C" fn(c_int) -> *const c_char,
    comm_init_all: unsafe extern "C" fn(*mut ncclComm_t, c_int, *const c_int) -> c_int,
    comm_destroy: unsafe extern "C" fn(ncclComm_t) -> c_int,
    group_start: unsafe extern "C" fn() -> c_int,
    group_end: unsafe extern "C" fn() -> c_int,
    reduce_scatter: unsafe extern "C" fn(Source, Target, usize, c_int, c_int, ncclComm_t, CUstream) -> c_int,
    all_reduce: unsafe extern "C" fn(Source, Target, usize, c_int, c_int, ncclComm_t, CUstream) -> c_int,
    all_gather: unsafe extern "C" fn(Source, Target, usize, c_int, ncclComm_t, CUstream) -> c_int,
    /// Keeps the functions above.
    _library: Library,
}

impl Api {
    /// Opens the library, once a process.
    fn get() -> Result<&'static Self> {
        static API: OnceLock<Api> = OnceLock::new();
        if let Some(api) = API.get() {
            return Ok(api);
        }
        let names = ["libnccl.so.2", "libnccl.so"].map(str::to_string);
        let api = Self::load(dynamic::open("opening NCCL", "libnccl.so.2", &names)?)?;
        // Another thread may have been faster; its library is the same one.
        Ok(API.get_or_init(|| api))
    }

    fn load(library: Library) -> Result<Self> {
        // SAFETY: the types are those of NCCL's header, whose enums are ints. They have not changed since 2.10.
        unsafe {
            Ok(Self {
                get_version: symbol(&library, "ncclGetVersion")?,
                get_error_string: symbol(&library, "ncclGetErrorString")?,
                comm_init_all: symbol(&library, "ncclCommInitAll")?,
                comm_destroy: symbol(&library, "ncclCommDestroy")?,
                group_start: symbol(&library, "ncclGroupStart")?,
                group_end: symbol(&library, "ncclGroupEnd")?,
                reduce_scatter: symbol(&library, "ncclReduceScatter")?,
                all_reduce: symbol(&library, "ncclAllReduce")?,
                all_gather: symbol(&library, "ncclAllGather")?,
                _library: library,
            })
        }
    }

    fn check(&self, call: &'static str, status: c_int) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the function takes any number.
        let text = unsafe { (self.get_error_string)(status) };
        let text = if text.is_null() {
            String::new()
        } else {
            // SAFETY: the library returned a static NUL-terminated string.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        };
        Err(Error::Driver { call, code: format!("status {status}"), text })
    }
}

/// # Safety
/// `F` is the function's type, and is not called after `library` is closed.
unsafe fn symbol<F: Copy>(library: &Library, name: &'static str) -> Result<F> {
    // SAFETY: the caller vouches for the type.
    unsafe { library.get::<F>(name.as_bytes()) }.map(|found| *found).map_err(|e| Error::Driver {
        call: "opening NCCL",
        code: format!("no {name}"),
        text: e.to_string(),
    })
}

/// NCCL's version, 10000 · major + 100 · minor + patch.
///
/// # Errors
/// [`Error::Driver`] when the library cannot be opened.
pub fn version() -> Result<u32> {
    let api = Api::get()?;
    let mut version = 0;
    // SAFETY: `version` is a live integer.
    api.check("ncclGetVersion", unsafe { (api.get_version)(&mut version) })?;
    Ok(u32::try_from(version).unwrap_or(0))
}

/// One communicator for each of several GPUs of this process.
///
/// Calls for the ranks of one collective belong into one [`group`](Self::group), because a single thread makes them.
pub struct Communicators {
    api: &'static Api,
    gpus: Vec<Gpu>,
    raw: Vec<ncclComm_t>,
}

// SAFETY: NCCL lets any thread call, one at a time a communicator; this type is not `Sync`.
unsafe impl Send for Communicators {}

impl Communicators {
    /// Connects the GPUs; rank i is `gpus[i]`.
    ///
    /// # Errors
    /// [`Error::Argument`] when there is no GPU; [`Error::Driver`] when the library cannot be opened or they cannot be
    /// connected.
    pub fn new(gpus: &[Gpu]) -> Result<Self> {
        let api = Api::get()?;
        let Some(first) = gpus.first() else {
            return Err(Error::argument("number of GPUs", 0, "a communicator needs at least one"));
        };
        let ordinals: Vec<c_int> = gpus.iter().map(|gpu| gpu.ordinal() as c_int).collect();
        let mut raw = vec![ptr::null_mut(); gpus.len()];
        // NCCL changes the thread's current context; the guard brings back the one before.
        let _entered = first.enter()?;
        // SAFETY: both arrays have as many entries as is said.
        let status = unsafe { (api.comm_init_all)(raw.as_mut_ptr(), ordinals.len() as c_int, ordinals.as_ptr()) };
        api.check("ncclCommInitAll", status)?;
        Ok(Self { api, gpus: gpus.to_vec(), raw })
    }

    /// Ranks.
    pub fn world_size(&self) -> usize {
        self.raw.len()
    }

    /// Starts the calls made in `calls` together. Ends the group whatever comes of them.
    ///
    /// # Errors
    /// Those of `calls`; [`Error::Driver`].
    pub fn group<R>(&self, calls: impl FnOnce() -> Result<R>) -> Result<R> {
        let _entered = self.gpus[0].enter()?;
        // SAFETY: the library is open; the end follows below.
        self.api.check("ncclGroupStart", unsafe { (self.api.group_start)() })?;
        let result = calls();
        // SAFETY: ends the group started above.
        let ended = self.api.check("ncclGroupEnd", unsafe { (self.api.group_end)() });
        result.and_then(|value| ended.map(|()| value))
    }

    /// Sums `world_size · count` elements over the ranks; rank i receives the i-th `count` of them.
    ///
    /// # Safety
    /// `send` is as many elements of device memory of the rank's GPU, `receive` is `count`, and both are there, and
    /// free of conflicting accesses, until the work in `stream` has ended. Every rank makes the same call.
    ///
    /// # Errors
    /// [`Error::Argument`] when there is no such rank, or `stream` is of another GPU; [`Error::Driver`].
    pub unsafe fn reduce_scatter(
        &self,
        rank: usize,
        send: GlobalAddr,
        receive: GlobalAddr,
        count: usize,
        element: Element,
        stream: &Stream,
    ) -> Result<()> {
        let comm = self.comm(rank, stream)?;
        let (send, receive, sum) = (pointer(send), pointer(receive), ncclRedOp_t::ncclSum as c_int);
        // SAFETY: the communicator and the stream are alive; the caller vouches for the addresses.
        let status =
            unsafe { (self.api.reduce_scatter)(send, receive, count, data_type(element), sum, comm, stream.raw()) };
        self.api.check("ncclReduceScatter", status)
    }

    /// Sums `count` elements over the ranks; every rank receives all of them.
    ///
    /// # Safety
    /// As for [`reduce_scatter`](Self::reduce_scatter), with `count` elements in both.
    ///
    /// # Errors
    /// As there.
    pub unsafe fn all_reduce(
        &self,
        rank: usize,
        send: GlobalAddr,
        receive: GlobalAddr,
        count: usize,
        element: Element,
        stream: &Stream,
    ) -> Result<()> {
        let comm = self.comm(rank, stream)?;
        let (send, receive, sum) = (pointer(send), pointer(receive), ncclRedOp_t::ncclSum as c_int);
        // SAFETY: as in `reduce_scatter`.
        let status =
            unsafe { (self.api.all_reduce)(send, receive, count, data_type(element), sum, comm, stream.raw()) };
        self.api.check("ncclAllReduce", status)
    }

    /// Every rank receives the `count` elements of every rank, in the order of the ranks.
    ///
    /// # Safety
    /// As for [`reduce_scatter`](Self::reduce_scatter), with `count` elements in `send` and `world_size · count` in
    /// `receive`.
    ///
    /// # Errors
    /// As there.
    pub unsafe fn all_gather(
        &self,
        rank: usize,
        send: GlobalAddr,
        receive: GlobalAddr,
        count: usize,
        element: Element,
        stream: &Stream,
    ) -> Result<()> {
        let comm = self.comm(rank, stream)?;
        let (send, receive) = (pointer(send), pointer(receive));
        // SAFETY: as in `reduce_scatter`.
        let status = unsafe { (self.api.all_gather)(send, receive, count, data_type(element), comm, stream.raw()) };
        self.api.check("ncclAllGather", status)
    }

    fn comm(&self, rank: usize, stream: &Stream) -> Result<ncclComm_t> {
        let (Some(comm), Some(gpu)) = (self.raw.get(rank), self.gpus.get(rank)) else {
            return Err(Error::argument("rank", rank, format!("there are {} ranks, from 0", self.raw.len())));
        };
        if stream.gpu() != gpu {
            let rule = format!("rank {rank} is GPU {}", gpu.ordinal());
            return Err(Error::argument("stream", format!("on GPU {}", stream.gpu().ordinal()), rule));
        }
        Ok(*comm)
    }
}

impl Drop for Communicators {
    fn drop(&mut self) {
        let Ok(_entered) = self.gpus[0].enter() else { return };
        for comm in &self.raw {
            // SAFETY: made by `new`, destroyed once. Failures at exit or after a fault cannot be helped.
            let _ = unsafe { (self.api.comm_destroy)(*comm) };
        }
    }
}

fn pointer(addr: GlobalAddr) -> *mut c_void {
    ptr::without_provenance_mut(addr.0 as usize)
}

fn data_type(element: Element) -> c_int {
    let data_type = match element {
        Element::Bf16 => ncclDataType_t::ncclBfloat16,
        Element::F16 => ncclDataType_t::ncclFloat16,
        Element::F32 => ncclDataType_t::ncclFloat32,
        Element::E4m3 => ncclDataType_t::ncclFloat8e4m3,
        Element::E5m2 => ncclDataType_t::ncclFloat8e5m2,
    };
    data_type as c_int
}
