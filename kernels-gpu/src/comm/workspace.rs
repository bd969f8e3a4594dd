//! One rank's workspace in the symmetric heap: the words of the protocol, then slots, then staging or flagged words. Host and
//! device compute every address here.
//!
//! | part | bytes | written by | value at rest |
//! | --- | --- | --- | --- |
//! | epoch | 4 | the last CTA to leave | epoch of the next call |
//! | exit count | 4 | every CTA that leaves | 0 |
//! | abort | 4 | whoever hits a deadline, on any rank | 0 |
//! | claim | 4 | the first of this rank to report | 0 |
//! | credits | 4 · 8 | owners: the epoch whose partials they have consumed | epoch − 1 |
//! | signals | 4 · W · tiles | senders: the epoch of the partial in the slot | any finished epoch |
//! | staged | 4 · W · tiles | this rank's storers: the epoch of the staged tile | any finished epoch |
//! | slots | 2 · W · tiles · tile bytes | senders | no meaning |
//! | staging | W · tiles · tile bytes | this rank's storers (transport *staged* only) | no meaning |
//! | flagged words | 2 · W · tiles · bytes of a tile's | senders (tiles of few rows, transport *push* only) | flags are not the next epoch: those of finished ones, or the one before the first |

use crate::abi::Transport;
use crate::shape::{GlobalAddr, MAX_WORLD, Rank};

/// Alignment of the workspace and of its parts, in bytes.
pub const WORKSPACE_ALIGN: u64 = 1024;

/// Addresses in one rank's workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workspace {
    /// First byte.
    pub base: GlobalAddr,
    /// Ranks.
    pub world: u32,
    /// Tiles one slot holds.
    pub slot_tiles: u32,
    /// Bytes of one tile in a slot.
    pub tile_bytes: u32,
    /// Bytes between the slots of even and of odd epochs: at least those of all slots. The same for every tile
    /// configuration of a plan, or a call would write over slots that a call of another configuration still reads.
    pub parity_stride: u64,
    /// Bytes of the flagged words of one parity (see [`crate::layout::flagged`]), or 0. They have memory of their own: what a slot
    /// holds may look like an epoch.
    pub flagged_stride: u64,
}

impl Workspace {
    /// The epoch of the call that runs next.
    #[inline(always)]
    pub const fn epoch(&self) -> GlobalAddr {
        self.base
    }

    /// CTAs that have left the running call.
    #[inline(always)]
    pub const fn exit_count(&self) -> GlobalAddr {
        self.base.plus(4)
    }

    /// The abort word.
    #[inline(always)]
    pub const fn abort(&self) -> GlobalAddr {
        self.base.plus(8)
    }

    /// The claim word.
    #[inline(always)]
    pub const fn claim(&self) -> GlobalAddr {
        self.base.plus(12)
    }

    /// The credit that `owner` returns to this rank.
    #[inline(always)]
    pub const fn credit(&self, owner: Rank) -> GlobalAddr {
        self.base.plus(64 + 4 * owner.0 as u64)
    }

    /// The signal of the partial of `sender` for tile `tile` of this rank's chunk.
    #[inline(always)]
    pub const fn signal(&self, sender: Rank, tile: u32) -> GlobalAddr {
        self.base.plus(HEADER_BYTES + 4 * self.tile_index(sender, tile))
    }

    /// The word that says that tile `tile` of `owner`'s chunk lies in this rank's staging.
    #[inline(always)]
    pub const fn staged(&self, owner: Rank, tile: u32) -> GlobalAddr {
        self.base.plus(HEADER_BYTES + self.words_bytes() + 4 * self.tile_index(owner, tile))
    }

    /// Tile `tile` in the slot of `sender`, for calls whose epoch has the parity of `epoch`.
    #[inline(always)]
    pub const fn slot(&self, epoch: u32, sender: Rank, tile: u32) -> GlobalAddr {
        self.base.plus(self.slots_off() + (epoch & 1) as u64 * self.parity_stride + self.slot_offset(sender, tile))
    }

    /// Bytes from one slot to the next.
    #[inline(always)]
    pub const fn slot_stride(&self) -> u64 {
        self.slot_tiles as u64 * self.tile_bytes as u64
    }

    /// Tile `tile` of `owner`'s chunk in this rank's staging.
    #[inline(always)]
    pub const fn staging(&self, owner: Rank, tile: u32) -> GlobalAddr {
        self.base.plus(self.slots_off() + 2 * self.parity_stride + self.slot_offset(owner, tile))
    }

    /// First byte of all flagged words.
    #[inline(always)]
    pub const fn flagged_words(&self) -> GlobalAddr {
        self.base.plus(self.slots_off() + 2 * self.parity_stride)
    }

    /// The flagged words of `sender` for tile `tile` of `tiles`, each of `tile_bytes`, in calls whose epoch has the parity of
    /// `epoch`.
    #[inline(always)]
    pub const fn flagged(&self, epoch: u32, sender: Rank, [tile, tiles]: [u32; 2], tile_bytes: u64) -> GlobalAddr {
        let place = sender.0 as u64 * tiles as u64 + tile as u64;
        self.flagged_words().plus((epoch & 1) as u64 * self.flagged_stride + place * tile_bytes)
    }

    /// Bytes of protocol words at the start of the workspace: what must be initialised.
    pub const fn control_bytes(&self) -> u64 {
        HEADER_BYTES + 2 * self.words_bytes()
    }

    /// Bytes of the whole workspace.
    pub const fn bytes(&self, transport: Transport) -> u64 {
        let further = match transport {
            Transport::Push | Transport::PushStores => 2 * self.flagged_stride,
            Transport::Staged => self.parity_stride,
        };
        self.slots_off() + 2 * self.parity_stride + further
    }

    #[inline(always)]
    const fn tile_index(&self, rank: Rank, tile: u32) -> u64 {
        rank.0 as u64 * self.slot_tiles as u64 + tile as u64
    }

    #[inline(always)]
    const fn slot_offset(&self, rank: Rank, tile: u32) -> u64 {
        self.tile_index(rank, tile) * self.tile_bytes as u64
    }

    #[inline(always)]
    const fn words_bytes(&self) -> u64 {
        4 * self.world as u64 * self.slot_tiles as u64
    }

    #[inline(always)]
    const fn slots_off(&self) -> u64 {
        (self.control_bytes() + WORKSPACE_ALIGN - 1) & !(WORKSPACE_ALIGN - 1)
    }

    /// Bytes of all slots of one parity.
    pub const fn slots_bytes(&self) -> u64 {
        self.world as u64 * self.slot_stride()
    }
}

const HEADER_BYTES: u64 = 128;
const _: () = assert!(64 + 4 * MAX_WORLD as u64 <= HEADER_BYTES, "credits fit in the header");
