//! Signals and copies, with a fault or without.

use super::{Effect, Faulty, Op};
use crate::kernels::abi::Operand;
use crate::kernels::config::PANEL_BYTES;
use crate::kernels::machine::{BulkCopy, PutSignals, RowEnds, Signals};
use crate::kernels::shape::{GlobalAddr, Mbarrier, SmemAddr};

/// Far outside every allocation of an emulated world.
const FAR: u64 = 1 << 31;
/// What one tile of the main configuration with 16-bit results takes in a slot.
const TILE_BYTES: u64 = 8 * PANEL_BYTES as u64;
/// Bytes of a copy that lie over the barriers.
const OVERLAP: u32 = 128;

impl Faulty<'_> {
    /// What goes wrong in a look at `addr`. All looks at one word in a row are one wait.
    fn strike_wait(&self, op: Op, addr: GlobalAddr) -> Option<Effect> {
        let (planted, effect) = self.planted?;
        if planted != op {
            return None;
        }
        if self.word.replace(addr) != addr {
            self.seen.set(self.seen.get() + 1);
        }
        (self.seen.get() == self.after + 1).then_some(effect)
    }

    fn epoch_or(&self, seen: u32) -> u32 {
        self.epoch.get().unwrap_or(seen)
    }

    fn omits_groups(&self) -> bool {
        matches!(self.planted, Some((_, Effect::OmitAll)))
    }
}

impl Signals for Faulty<'_> {
    fn load_acquire_sys(&self, addr: GlobalAddr) -> u32 {
        match self.strike_wait(Op::LoadSys, addr) {
            Some(Effect::Pretend) => self.epoch_or(0),
            Some(Effect::Stale) => {
                let seen = self.agent.load_acquire_sys(addr);
                seen.max(self.epoch_or(seen))
            }
            Some(Effect::Narrow) => self.agent.load_acquire_gpu(addr),
            _ => self.agent.load_acquire_sys(addr),
        }
    }

    fn load_acquire_gpu(&self, addr: GlobalAddr) -> u32 {
        // The first word that a role reads at gpu scope is the epoch: no wait.
        if self.epoch.get().is_none() {
            let epoch = self.agent.load_acquire_gpu(addr);
            self.epoch.set(Some(epoch));
            return epoch;
        }
        match self.strike_wait(Op::LoadGpu, addr) {
            Some(Effect::Pretend) => self.epoch_or(0),
            _ => self.agent.load_acquire_gpu(addr),
        }
    }
}

impl PutSignals for Faulty<'_> {
    fn store_release_sys(&self, addr: GlobalAddr, value: u32) {
        match self.strike(Op::StoreSys) {
            Some(Effect::Omit) => {}
            Some(Effect::Narrow) => self.agent.store_release_gpu(addr, value),
            Some(Effect::Neighbour) => self.agent.store_release_sys(addr.plus(4), value),
            _ => self.agent.store_release_sys(addr, value),
        }
    }

    fn store_release_gpu(&self, addr: GlobalAddr, value: u32) {
        match self.strike(Op::StoreGpu) {
            Some(Effect::Omit) => {}
            _ => self.agent.store_release_gpu(addr, value),
        }
    }

    fn fence_sys(&self) {
        if self.strike(Op::FenceSys).is_none() {
            self.agent.fence_sys();
        }
    }

    fn store_fenced_sys(&self, addr: GlobalAddr, value: u32) {
        match self.strike(Op::StoreSys) {
            Some(Effect::Omit) => {}
            Some(Effect::Narrow) => self.agent.store_release_gpu(addr, value),
            Some(Effect::Neighbour) => self.agent.store_fenced_sys(addr.plus(4), value),
            _ => self.agent.store_fenced_sys(addr, value),
        }
    }

    fn fetch_add_acq_rel_gpu(&self, addr: GlobalAddr, value: u32) -> u32 {
        match self.strike(Op::FetchAdd) {
            Some(Effect::Omit) => self.agent.load_acquire_gpu(addr),
            _ => self.agent.fetch_add_acq_rel_gpu(addr, value),
        }
    }
}

impl BulkCopy for Faulty<'_> {
    fn load_box(&self, dst: SmemAddr, operand: Operand, row: u32, col: u32, full: Mbarrier) {
        match self.strike(Op::LoadBox) {
            Some(Effect::Omit) => {}
            Some(Effect::Neighbour) => {
                let all_stages = self.plan.panel(0, 0).0;
                let next = SmemAddr((dst.0 + self.stage_bytes()) % all_stages);
                self.agent.load_box(next, operand, row, col, full);
            }
            Some(Effect::NextBarrier) => self.agent.load_box(dst, operand, row, col, full.at(1)),
            Some(Effect::Misalign) => self.agent.load_box(dst, operand, row, col + 1, full),
            _ => self.agent.load_box(dst, operand, row, col, full),
        }
    }

    fn store_box(&self, operand: Operand, row: u32, col: u32, src: SmemAddr) {
        match self.strike(Op::StoreBox) {
            Some(Effect::Neighbour) => self.agent.store_box(operand, row, col, src.plus(PANEL_BYTES)),
            Some(Effect::NextRow) => self.agent.store_box(operand, row + 1, col, src),
            _ => self.agent.store_box(operand, row, col, src),
        }
    }

    fn load_bytes(&self, dst: SmemAddr, src: GlobalAddr, bytes: u32, full: Mbarrier) {
        match self.strike(Op::LoadBytes) {
            Some(Effect::Omit) => {}
            Some(Effect::Far) => self.agent.load_bytes(dst, src.plus(FAR), bytes, full),
            Some(Effect::OverBarriers) => {
                let over = SmemAddr(self.plan.full().0.0 + OVERLAP - bytes);
                self.agent.load_bytes(over, src, bytes, full);
            }
            _ => self.agent.load_bytes(dst, src, bytes, full),
        }
    }

    fn store_bytes(&self, dst: GlobalAddr, src: SmemAddr, bytes: u32) {
        match self.strike(Op::StoreBytes) {
            Some(Effect::Omit) => {}
            Some(Effect::Neighbour) => self.agent.store_bytes(dst.plus(TILE_BYTES), src, bytes),
            _ => self.agent.store_bytes(dst, src, bytes),
        }
    }

    fn push_bytes(&self, dst: GlobalAddr, src: SmemAddr, bytes: u32) {
        match self.strike(Op::StoreBytes) {
            Some(Effect::Omit) => {}
            Some(Effect::Neighbour) => self.agent.push_bytes(dst.plus(TILE_BYTES), src, bytes),
            _ => self.agent.push_bytes(dst, src, bytes),
        }
    }

    fn store_row_ends(&self, ends: &RowEnds) {
        self.agent.store_row_ends(ends);
    }

    fn commit_group(&self) {
        self.agent.commit_group();
    }

    fn wait_group_read<const PENDING: u32>(&self) {
        let op = if self.reduces.get() { Op::ResultRead } else { Op::GroupRead };
        if self.strike(op).is_none() {
            self.agent.wait_group_read::<PENDING>();
        }
    }

    fn wait_group_complete<const PENDING: u32>(&self) {
        if self.strike(Op::GroupComplete).is_none() && !self.omits_groups() {
            self.agent.wait_group_complete::<PENDING>();
        }
    }

    fn fence_proxy_async_global(&self) {
        if self.strike(Op::Fence).is_none() {
            self.agent.fence_proxy_async_global();
        }
    }
}
