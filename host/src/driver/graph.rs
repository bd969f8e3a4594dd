//! CUDA graphs: work captured from streams once and launched many times.

use std::marker::PhantomData;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys::{self, CUgraph, CUgraphExec, CUstreamCaptureMode};

use super::allocation::Allocation;
use super::gpu::Gpu;
use super::status::check;
use super::stream::Stream;
use super::uses::Uses;
use crate::error::{Error, Result};

/// Which calls, by whom, spoil a capture. This crate's own calls never do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureMode {
    /// Unsafe calls by any thread.
    Global,
    /// Unsafe calls by the capturing thread.
    ThreadLocal,
    /// None.
    Relaxed,
}

/// Allocations used in captures that are still going on, by capture id.
static CAPTURES: Mutex<Vec<(u64, Vec<Arc<Allocation>>)>> = Mutex::new(Vec::new());

/// Lets the graph that capture `id` becomes keep `allocation`.
pub(crate) fn keep(id: u64, allocation: Arc<Allocation>) -> Result<()> {
    let mut captures = CAPTURES.lock().unwrap_or_else(PoisonError::into_inner);
    let Some((_, kept)) = captures.iter_mut().find(|(capture, _)| *capture == id) else {
        return Err(Error::argument(
            "stream",
            "part of a capture that another library began",
            "uses are recorded in captures begun by Stream::begin_capture only: keep the memory as long as that graph",
        ));
    };
    if !kept.iter().any(|other| Arc::ptr_eq(other, &allocation)) {
        kept.push(allocation);
    }
    Ok(())
}

fn forget(id: u64) -> Vec<Arc<Allocation>> {
    let mut captures = CAPTURES.lock().unwrap_or_else(PoisonError::into_inner);
    match captures.iter().position(|(capture, _)| *capture == id) {
        Some(at) => captures.swap_remove(at).1,
        None => Vec::new(),
    }
}

impl Stream {
    /// Records what follows in this stream, and in streams that wait for its events, instead of doing it.
    ///
    /// # Errors
    /// [`Error::Driver`], for one in a stream that captures already, or the legacy default stream.
    pub fn begin_capture(&self, mode: CaptureMode) -> Result<Capture<'_>> {
        let entered = self.gpu().enter()?;
        let mode = match mode {
            CaptureMode::Global => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL,
            CaptureMode::ThreadLocal => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
            CaptureMode::Relaxed => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
        };
        // SAFETY: the handle is alive.
        check("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(self.raw(), mode) })?;
        drop(entered);
        let mut capture = Capture { stream: self, id: None, ended: false, _thread: PhantomData };
        capture.id = self.capture_id()?;
        if let Some(id) = capture.id {
            CAPTURES.lock().unwrap_or_else(PoisonError::into_inner).push((id, Vec::new()));
        }
        Ok(capture)
    }
}

/// A capture that is going on. Dropping it abandons the capture and leaves the stream as before.
///
/// It stays on its thread, because the driver lets only that thread end a capture that is not relaxed.
#[must_use = "dropping a capture abandons it"]
pub struct Capture<'a> {
    stream: &'a Stream,
    id: Option<u64>,
    ended: bool,
    _thread: PhantomData<*const ()>,
}

impl Capture<'_> {
    /// Ends the capture and makes it ready to launch. Side streams must have joined.
    ///
    /// # Errors
    /// [`Error::Driver`], for one when a side stream has not joined or another call spoiled the capture.
    pub fn end(mut self) -> Result<Graph> {
        let gpu = self.stream.gpu().clone();
        let kept = self.id.map(forget).unwrap_or_default();
        let captured = self.end_raw()?;
        let mut graph = Graph { gpu: gpu.clone(), exec: ptr::null_mut(), kept, launches: Uses::default() };
        let _entered = gpu.enter()?;
        // SAFETY: `captured` is a graph, destroyed right below: the executable has its own copy.
        let made = unsafe { sys::cuGraphInstantiateWithFlags(&mut graph.exec, captured, 0) };
        // SAFETY: made by the capture, destroyed once.
        let _ = unsafe { sys::cuGraphDestroy(captured) };
        check("cuGraphInstantiate", made)?;
        Ok(graph)
    }

    fn end_raw(&mut self) -> Result<CUgraph> {
        self.ended = true;
        let _entered = self.stream.gpu().enter()?;
        let mut graph = ptr::null_mut();
        // SAFETY: the handle is alive and `graph` a live place for a handle.
        check("cuStreamEndCapture", unsafe { sys::cuStreamEndCapture(self.stream.raw(), &mut graph) })?;
        Ok(graph)
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let kept = self.id.map(forget);
        if let Ok(graph) = self.end_raw() {
            // SAFETY: made by the capture, destroyed once, never launched.
            let _ = unsafe { sys::cuGraphDestroy(graph) };
        }
        drop(kept);
    }
}

/// Captured work, ready to launch. Keeps the memory whose use was recorded in the capture.
pub struct Graph {
    gpu: Gpu,
    exec: CUgraphExec,
    kept: Vec<Arc<Allocation>>,
    launches: Uses,
}

// SAFETY: the driver's handle may be used from any thread, and `launch` needs `&mut` because one executable must not be
// launched by two threads at once.
unsafe impl Send for Graph {}
// SAFETY: nothing can be done through a shared reference.
unsafe impl Sync for Graph {}

impl Graph {
    /// Does the captured work once more, in `stream`.
    ///
    /// # Safety
    /// Whatever the captured kernels and copies touch is still there, and nobody else touches it meanwhile. That holds
    /// for memory whose use was recorded in the capture, except that a slice of a pinned buffer must not be borrowed.
    ///
    /// # Errors
    /// [`Error::Argument`] in a stream that captures: its events could not tell when this launch is over;
    /// [`Error::Driver`].
    pub unsafe fn launch(&mut self, stream: &Stream) -> Result<()> {
        if stream.capture_id()?.is_some() {
            return Err(Error::argument("stream", "being captured", "a graph is launched in a stream that is not"));
        }
        {
            let _entered = self.gpu.enter()?;
            // SAFETY: both handles are alive; the caller vouches for the rest.
            check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(self.exec, stream.raw()) })?;
        }
        self.launches.record(stream)?;
        self.kept.iter().try_for_each(|allocation| allocation.uses().record(stream))
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if self.exec.is_null() {
            return;
        }
        let _ = self.launches.wait();
        if let Ok(_entered) = self.gpu.enter() {
            // SAFETY: made by `Capture::end`, destroyed once, after its launches. Failures cannot be helped.
            let _ = unsafe { sys::cuGraphExecDestroy(self.exec) };
        }
    }
}
