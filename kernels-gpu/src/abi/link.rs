//! What the link kernel reads and writes.

use super::Watchdog;
use crate::shape::GlobalAddr;

/// What a link kernel does.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkMode {
    /// One thread of a CTA copies by bulk copies, through shared memory.
    Bulk = 0,
    /// All threads of a CTA copy by plain 16-byte loads and stores.
    Plain = 1,
    /// One thread exchanges signals with its peer's; payload goes by bulk stores.
    PingPong = 2,
    /// The same; payload goes by plain stores of all threads.
    PlainPingPong = 3,
}

/// Arguments of the link kernel, which moves bytes between two places and exchanges signals with a peer, so that the link can
/// be timed.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LinkArgs {
    /// [`LinkMode`] as a number.
    pub mode: u32,
    /// Bytes of one message, a multiple of 16: of one bulk copy on the link's side, of what a warp copies at a time with plain
    /// accesses, of one payload store.
    pub message: u32,
    /// Bytes of one buffer in shared memory, a multiple of 16 (*bulk*): messages go out and come in together up to so many.
    pub stage: u32,
    /// Buffers: 1, 2, 4 or 8 (*bulk*).
    pub depth: u32,
    /// Times that everything is copied; rounds of a ping-pong.
    pub repeats: u32,
    /// Whether the source is the link's side, where copies are as large as a message (*bulk*).
    pub pulls: u32,
    /// Whether this side signals first (*ping-pong*).
    pub begins: u32,
    /// Epoch of the first round (*ping-pong*).
    pub epoch: u32,
    /// Messages stored to `dst`, one behind the other, before each signal (*ping-pong*).
    pub payload: u32,
    /// Whether the signal waits until the payload has been written (*ping-pong*).
    pub waits: u32,
    /// Bytes to copy, a multiple of 16.
    pub bytes: u64,
    /// Where they come from.
    pub src: GlobalAddr,
    /// Where they go.
    pub dst: GlobalAddr,
    /// Word that the peer signals (*ping-pong*).
    pub own_word: GlobalAddr,
    /// The peer's word (*ping-pong*).
    pub peer_word: GlobalAddr,
    /// Where times go: [`LinkTimes`], then one [`LinkRound`] a round (*ping-pong*).
    pub times: GlobalAddr,
    /// Bounds of the waits.
    pub watchdog: Watchdog,
}

/// How long all rounds of a ping-pong took on one side, by two clocks: their ratio says what a tick is.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LinkTimes {
    /// Ticks of the SM's clock.
    pub ticks: u32,
    /// Nanoseconds.
    pub nanoseconds: u32,
}

/// What one round of a ping-pong took, in ticks of the SM's clock.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LinkRound {
    /// Issuing the payload, and waiting for it if that was asked.
    pub payload: u32,
    /// The release of the signal, until the thread goes on.
    pub release: u32,
    /// From the payload's start until the peer's signal was seen; 0 on the side that answers.
    pub round_trip: u32,
    /// Unused.
    pub reserved: u32,
}
