//! The copy engine: copies that were issued, and proceed late and in any order.

use super::access::Proxy;
use super::clock::View;
use super::tensor_map::{EmulatedMap, swizzle_row_in, swizzled_row};
use super::trace::EventKind;
use super::violation::Failure;
use super::world::World;
use crate::kernels::shape::{GlobalAddr, SmemAddr};

/// The end of a copy that lies in global memory.
#[derive(Clone, Copy, Debug)]
pub(super) enum GlobalEnd {
    Bytes(GlobalAddr, u32),
    Box { map: EmulatedMap, row: u32, col: u32 },
}

impl GlobalEnd {
    /// Bytes from the first to the last at the other end, in shared memory.
    pub(super) fn smem_bytes(&self) -> u32 {
        match self {
            GlobalEnd::Bytes(_, bytes) => *bytes,
            GlobalEnd::Box { map, .. } => map.smem_bytes(),
        }
    }

    /// Bytes that are copied, outside the tensor or not.
    fn copied_bytes(&self) -> u32 {
        match self {
            GlobalEnd::Bytes(_, bytes) => *bytes,
            GlobalEnd::Box { map, .. } => map.box_bytes(),
        }
    }

    /// Address and length of each run of bytes in global memory that a load reads, or that a store writes.
    pub(super) fn parts(&self, writes: bool) -> Vec<(GlobalAddr, u32)> {
        match *self {
            GlobalEnd::Bytes(addr, bytes) => vec![(addr, bytes)],
            GlobalEnd::Box { map, row, col } if writes => {
                map.stored_parts(row, col).map(|(_, addr, len)| (addr, len)).collect()
            }
            GlobalEnd::Box { map, row, col } => map.box_parts(row, col).map(|(_, addr, len)| (addr, len)).collect(),
        }
    }
}

/// Bulk stores that are waited for together.
#[derive(Clone, Debug, Default)]
pub(super) struct StoreGroup {
    pub(super) committed: bool,
    /// Number of its last store, or of the last one before it.
    pub(super) last: u32,
    pub(super) unread: u32,
    pub(super) unwritten: u32,
}

/// One copy in flight.
pub(super) enum Copy {
    Load { agent: usize, cta: usize, dst: SmemAddr, bar: u32, end: GlobalEnd, view: View },
    Store { agent: usize, cta: usize, src: SmemAddr, end: GlobalEnd, group: usize, number: u32, read: Option<Vec<u8>> },
}

impl Copy {
    pub(super) fn completes_on(&self, in_cta: usize, addr: u32) -> bool {
        matches!(self, Copy::Load { cta, bar, .. } if *cta == in_cta && *bar == addr)
    }
}

impl World {
    pub(super) fn start_copy(&mut self, copy: Copy) {
        let (Copy::Load { cta, .. } | Copy::Store { cta, .. }) = &copy;
        let launch = self.ctas[*cta].launch;
        self.launches[launch].copies_in_flight += 1;
        self.copies.push(copy);
    }

    /// Lets one copy proceed: a load lands; a store first reads its source, later writes its destination.
    pub(super) fn advance_copy(&mut self, idx: usize) {
        self.step += 1;
        self.now_ns += self.options.step_ns;
        let copy = self.copies.swap_remove(idx);
        let (Copy::Load { agent, .. } | Copy::Store { agent, .. }) = copy;
        if let Err(failure) = self.proceed(copy) {
            self.fail(Some(agent), failure);
        }
    }

    fn proceed(&mut self, copy: Copy) -> Result<(), Failure> {
        match copy {
            Copy::Load { agent, cta, dst, bar, end, view } => {
                let at = dst.0 as usize;
                let tile = &mut self.ctas[cta].smem[at..at + end.smem_bytes() as usize];
                match end {
                    GlobalEnd::Bytes(addr, bytes) => {
                        tile.copy_from_slice(self.memory.bytes(addr, u64::from(bytes))?);
                    }
                    GlobalEnd::Box { map, row, col } => {
                        tile.fill(0);
                        for (r, addr, len) in map.box_parts(row, col) {
                            swizzle_row_in(tile, r, self.memory.bytes(addr, u64::from(len))?);
                        }
                    }
                }
                self.ctas[cta].loads_in_flight -= 1;
                self.copy_ended(cta);
                self.stats.loaded_bytes += u64::from(end.copied_bytes());
                let bar_id = self.barrier_id(cta, bar);
                self.record(agent, EventKind::LoadLanded { dst: dst.0, bytes: end.copied_bytes(), bar: bar_id });
                self.complete_tx(agent, cta, bar, end.copied_bytes(), &view)
            }
            Copy::Store { agent, cta, src, end, group, number, read: None } => {
                let at = src.0 as usize;
                let data = self.ctas[cta].smem[at..at + end.smem_bytes() as usize].to_vec();
                self.agents[agent].groups[group].unread -= 1;
                self.record(agent, EventKind::StoreRead { src: src.0, number });
                self.wake_from_groups(agent);
                self.copies.push(Copy::Store { agent, cta, src, end, group, number, read: Some(data) });
                Ok(())
            }
            Copy::Store { agent, cta, end, group, number, read: Some(data), .. } => {
                match end {
                    GlobalEnd::Bytes(addr, bytes) => {
                        self.memory.bytes_mut(addr, u64::from(bytes))?.copy_from_slice(&data);
                        self.settle_repeats(agent, addr, u64::from(bytes))?;
                    }
                    GlobalEnd::Box { map, row, col } => {
                        for (r, addr, len) in map.stored_parts(row, col) {
                            let bytes = &swizzled_row(&data, r)[..len as usize];
                            self.memory.bytes_mut(addr, u64::from(len))?.copy_from_slice(bytes);
                            self.settle_repeats(agent, addr, u64::from(len))?;
                        }
                    }
                }
                self.agents[agent].groups[group].unwritten -= 1;
                self.copy_ended(cta);
                self.stats.stored_bytes += u64::from(end.copied_bytes());
                self.record(agent, EventKind::StoreWritten { number });
                self.wake_from_groups(agent);
                Ok(())
            }
        }
    }

    fn copy_ended(&mut self, cta: usize) {
        let launch = self.ctas[cta].launch;
        self.launches[launch].copies_in_flight -= 1;
        self.launches_changed |= self.launches[launch].copies_in_flight == 0;
    }

    fn wake_from_groups(&mut self, agent: usize) {
        if self.agents[agent].on_groups {
            self.wake(agent, self.agents[agent].generation);
        }
    }

    /// Records a copy's accesses to global memory.
    pub(super) fn mark_global(
        &mut self,
        end: &GlobalEnd,
        mark: super::clock::Mark,
        writes: bool,
    ) -> Result<(), Failure> {
        for (addr, len) in end.parts(writes) {
            if writes {
                self.global_write(addr, u64::from(len), mark, Proxy::Bulk)?;
            } else {
                self.global_read(addr, u64::from(len), mark, Proxy::Bulk)?;
            }
        }
        Ok(())
    }
}
