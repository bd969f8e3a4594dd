//! The copy engine as a thread drives it.

use super::access::Proxy;
use super::agent::Agent;
use super::clock::Mark;
use super::engine::{Copy, GlobalEnd, StoreGroup};
use super::trace::EventKind;
use super::violation::{Failure, Violation};
use super::world::{AgentLane, World};
use crate::kernels::abi::Operand;
use crate::kernels::config::{PANEL_ROWS, ROW_BYTES, SMEM_ALIGN};
use crate::kernels::layout::swizzle::swizzle_128;
use crate::kernels::machine::{BulkCopy, RowEnds};
use crate::kernels::shape::{GlobalAddr, Mbarrier, SmemAddr};

/// Alignment of addresses and sizes of plain bulk copies.
const BULK_ALIGN: u32 = 16;

impl BulkCopy for Agent<'_> {
    fn load_box(&self, dst: SmemAddr, operand: Operand, row: u32, col: u32, full: Mbarrier) {
        self.op(|w, me| {
            let end = w.box_end(me, operand, row, col)?;
            w.load(me, dst, SMEM_ALIGN, end, full.0.0)
        });
    }

    fn store_box(&self, operand: Operand, row: u32, col: u32, src: SmemAddr) {
        self.op(|w, me| {
            if (row as i32) < 0 {
                let detail = format!("a store of a box of {operand:?} at row {}: rows are not negative", row as i32);
                return Err(Failure::new(Violation::OutOfBounds, detail));
            }
            let end = w.box_end(me, operand, row, col)?;
            w.store(me, end, src, SMEM_ALIGN)
        });
    }

    fn load_bytes(&self, dst: SmemAddr, src: GlobalAddr, bytes: u32, full: Mbarrier) {
        self.op(|w, me| w.load(me, dst, BULK_ALIGN, bytes_end(src, bytes)?, full.0.0));
    }

    fn store_bytes(&self, dst: GlobalAddr, src: SmemAddr, bytes: u32) {
        self.op(|w, me| w.store(me, bytes_end(dst, bytes)?, src, BULK_ALIGN));
    }

    fn push_bytes(&self, dst: GlobalAddr, src: SmemAddr, bytes: u32) {
        self.op(|w, me| w.push(me, dst, src, bytes));
    }

    fn store_row_ends(&self, ends: &RowEnds) {
        self.op(|w, me| w.store_row_ends(me, ends));
    }

    fn commit_group(&self) {
        self.op(|w, me| {
            w.must_be_thread(me, "commit_group")?;
            let last = w.agents[me].stores;
            let group = w.open_group(me);
            w.agents[me].groups[group].committed = true;
            w.agents[me].groups[group].last = last;
            Ok(())
        });
    }

    fn wait_group_read<const PENDING: u32>(&self) {
        self.wait_groups("wait_group_read", PENDING as usize, AgentLane::StoreRead);
    }

    fn wait_group_complete<const PENDING: u32>(&self) {
        self.wait_groups("wait_group_complete", PENDING as usize, AgentLane::StoreWrite);
    }

    fn fence_proxy_async_global(&self) {
        self.op(|w, me| {
            let a = &mut w.agents[me];
            a.fenced_stores = a.view.generic.get(a.lane(AgentLane::StoreWrite));
            a.view.bulk.join(&a.view.generic);
            Ok(())
        });
    }
}

impl Agent<'_> {
    /// Waits until all but the last `pending` committed groups have come as far as `lane` says.
    fn wait_groups(&self, operation: &str, pending: usize, lane: AgentLane) {
        self.op(|w, me| w.must_be_thread(me, operation));
        loop {
            let done = self.op_in_turn(|w, me| Ok(w.groups_done(me, pending, lane)));
            if done {
                return;
            }
            self.world.borrow_mut().block_on_groups(self.idx);
            self.yielder.suspend(());
            self.world.borrow_mut().agents[self.idx].on_groups = false;
        }
    }
}

fn bytes_end(addr: GlobalAddr, bytes: u32) -> Result<GlobalEnd, Failure> {
    if bytes == 0 || !bytes.is_multiple_of(BULK_ALIGN) || !addr.0.is_multiple_of(u64::from(BULK_ALIGN)) {
        let detail = format!("a bulk copy of {bytes} bytes at {:#x}: both must be multiples of 16, above 0", addr.0);
        return Err(Failure::new(Violation::Misaligned, detail));
    }
    Ok(GlobalEnd::Bytes(addr, bytes))
}

impl World {
    fn box_end(&self, me: usize, operand: Operand, row: u32, col: u32) -> Result<GlobalEnd, Failure> {
        let maps = &self.launches[self.cta_of(me).launch].launch.maps;
        match maps[operand as usize] {
            Some(map) if !(col * map.element_bytes).is_multiple_of(BULK_ALIGN) => {
                let detail =
                    format!("a copy of a box of {operand:?} at ({row}, {col}): columns come in steps of 16 bytes");
                Err(Failure::new(Violation::Misaligned, detail))
            }
            Some(map) => Ok(GlobalEnd::Box { map, row, col }),
            None => {
                let detail =
                    format!("a copy of a box of {operand:?} at ({row}, {col}), for which there is no tensor map");
                Err(Failure::new(Violation::InvalidTensorMap, detail))
            }
        }
    }

    fn load(&mut self, me: usize, dst: SmemAddr, align: u32, end: GlobalEnd, bar: u32) -> Result<(), Failure> {
        self.must_be_thread(me, "a bulk load")?;
        let cta = self.agents[me].cta;
        let bytes = end.smem_bytes();
        let range = self.smem_range(cta, dst, bytes, align)?;
        let barrier = self.barrier_mut(cta, bar)?;
        let (lane, phase) = (barrier.lane, barrier.phase as u32);
        // The bytes become known to whoever has seen this phase of the barrier complete.
        let mark = Mark { lane, clock: phase + 1, agent: me as u32, issued: self.agents[me].now };
        self.mark_global(&end, mark, false)?;
        self.smem_write(cta, range, mark)
            .map_err(|failure| Failure { barrier: failure.barrier.or(Some((cta, bar))), ..failure })?;
        self.ctas[cta].loads_in_flight += 1;
        let bar_id = self.barrier_id(cta, bar);
        self.record(me, EventKind::LoadIssued { dst: dst.0, bytes, bar: bar_id });
        let view = self.agents[me].view.clone();
        self.start_copy(Copy::Load { agent: me, cta, dst, bar, end, view });
        Ok(())
    }

    fn store(&mut self, me: usize, end: GlobalEnd, src: SmemAddr, align: u32) -> Result<(), Failure> {
        self.must_be_thread(me, "a bulk store")?;
        let cta = self.agents[me].cta;
        let bytes = end.smem_bytes();
        let range = self.smem_range(cta, src, bytes, align)?;
        let reads = self.store_mark(me, AgentLane::StoreRead);
        let writes = self.store_mark(me, AgentLane::StoreWrite);
        self.smem_read(cta, range, reads, false)?;
        self.mark_global(&end, writes, true)?;
        let group = self.open_group(me);
        let a = &mut self.agents[me];
        a.stores += 1;
        a.groups[group].unread += 1;
        a.groups[group].unwritten += 1;
        let number = a.stores;
        self.record(me, EventKind::StoreIssued { src: src.0, bytes, number });
        self.start_copy(Copy::Store { agent: me, cta, src, end, group, number, read: None });
        Ok(())
    }

    /// Plain stores: read and written at once, by the agent itself.
    fn push(&mut self, me: usize, dst: GlobalAddr, src: SmemAddr, bytes: u32) -> Result<(), Failure> {
        self.must_be_thread(me, "push_bytes")?;
        bytes_end(dst, bytes)?;
        let cta = self.agents[me].cta;
        let range = self.smem_range(cta, src, bytes, BULK_ALIGN)?;
        let mark = self.own_mark(me);
        self.smem_read(cta, range.clone(), mark, false)?;
        self.global_write(dst, u64::from(bytes), mark, Proxy::Generic)?;
        let data = self.ctas[cta].smem[range.start as usize..range.end as usize].to_vec();
        self.memory.bytes_mut(dst, u64::from(bytes))?.copy_from_slice(&data);
        Ok(())
    }

    /// Plain stores of less than a step of 16 bytes of each row.
    fn store_row_ends(&mut self, me: usize, ends: &RowEnds) -> Result<(), Failure> {
        self.must_be_thread(me, "store_row_ends")?;
        let RowEnds { src, off, bytes, rows, dst, stride } = *ends;
        let is_end = bytes > 0 && bytes < BULK_ALIGN && bytes.is_multiple_of(2) && rows <= PANEL_ROWS;
        let is_aligned = off < ROW_BYTES && [u64::from(off), dst.0, stride].iter().all(|x| x.is_multiple_of(16));
        if !is_end || !is_aligned {
            return Err(Failure::new(Violation::Misaligned, format!("a store of ends of rows, {ends:?}")));
        }
        let (cta, mark) = (self.agents[me].cta, self.own_mark(me));
        for row in 0..rows {
            let range = self.smem_range(cta, src.plus(swizzle_128(row, off)), bytes, BULK_ALIGN)?;
            self.smem_read(cta, range.clone(), mark, false)?;
            let data = self.ctas[cta].smem[range.start as usize..range.end as usize].to_vec();
            let to = dst.plus(u64::from(row) * stride);
            self.global_write(to, u64::from(bytes), mark, Proxy::Generic)?;
            self.memory.bytes_mut(to, u64::from(bytes))?.copy_from_slice(&data);
        }
        Ok(())
    }

    /// The group that is not yet committed.
    fn open_group(&mut self, me: usize) -> usize {
        let groups = &mut self.agents[me].groups;
        if groups.last().is_none_or(|g| g.committed) {
            groups.push(StoreGroup::default());
        }
        groups.len() - 1
    }

    fn groups_done(&mut self, me: usize, pending: usize, lane: AgentLane) -> bool {
        let a = &mut self.agents[me];
        let committed = a.groups.len() - usize::from(a.groups.last().is_some_and(|g| !g.committed));
        let Some(last) = committed.checked_sub(pending + 1) else { return true };
        let left = |g: &StoreGroup| if lane == AgentLane::StoreRead { g.unread } else { g.unwritten };
        // Groups before the last one that was waited for are done.
        let known = a.view.generic.get(a.lane(lane));
        let open = |g: &StoreGroup| g.last > known && left(g) > 0;
        if a.groups[..=last].iter().rev().take_while(|g| g.last > known).any(open) {
            return false;
        }
        let number = a.groups[last].last;
        a.learn(lane, number);
        if lane == AgentLane::StoreWrite {
            a.learn(AgentLane::StoreRead, number);
        }
        true
    }

    fn block_on_groups(&mut self, me: usize) {
        self.agents[me].on_groups = true;
        self.block(me);
    }
}
