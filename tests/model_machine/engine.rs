//! The copy engine, and the rules of its proxy.
//!
//! A copy touches source and destination when it is issued and again when it ends. Stores end as late as they may: they
//! read at `wait_group_read`, they write at `wait_group_complete`. Loads end as [`super::Timing`] says.

use super::memory::{POISON, d_panel};
use super::{Agent, Mutant, Timing};
use std::collections::VecDeque;
use tilewire_kernels::abi::Operand;
use tilewire_kernels::config::{PANEL_BYTES, TileConfig};
use tilewire_kernels::machine::{BulkCopy, RowEnds};
use tilewire_kernels::shape::{GlobalAddr, Mbarrier, SmemAddr};

/// Copies in flight of one thread.
#[derive(Default)]
pub struct Engine {
    loads: Vec<Load>,
    open: Vec<Store>,
    groups: VecDeque<Vec<Store>>,
    /// A word was acquired and no proxy fence has followed: the engine may not see what the acquire made visible.
    acquired_unfenced: bool,
    /// A credit was acquired and no proxy fence has followed: the engine may write before the owner's reads.
    credit_unfenced: bool,
    /// Stores have been written and no proxy fence has followed: a release would not order them.
    written_unfenced: bool,
}

struct Load {
    dst: SmemAddr,
    /// What each panel of the destination gets.
    values: Vec<u32>,
    src: Option<GlobalAddr>,
    bytes: u32,
    full: Mbarrier,
}

struct Store {
    src: SmemAddr,
    dst: GlobalAddr,
    at_issue: u32,
    read: bool,
}

impl Engine {
    pub fn note_acquire(&mut self, word: &str) {
        self.acquired_unfenced = true;
        self.credit_unfenced |= word == "credit";
    }

    pub fn check_release(&self) {
        assert!(!self.written_unfenced, "a signal is released after bulk stores without a proxy fence");
    }
}

/// What the box of `operand` at (`row`, `col`) holds in its `panel`-th 64 rows.
pub fn operand_value(operand: Operand, row: u32, col: u32, panel: u32) -> u32 {
    (operand as u32 + 1) * 1_000_000 + (row + panel * 64) * 1000 + col
}

impl<C: TileConfig> Agent<C> {
    fn issue_load(&self, load: Load) {
        for panel in self.cta.panels(load.dst, load.bytes) {
            panel.write(POISON);
        }
        self.engine.borrow_mut().loads.push(load);
        if self.cta.timing == Timing::Early {
            self.finish_loads();
        }
    }

    /// Ends the loads in flight; whether there were any.
    pub fn finish_loads(&self) -> bool {
        let loads = std::mem::take(&mut self.engine.borrow_mut().loads);
        let any = !loads.is_empty();
        for load in loads {
            if let Some(src) = load.src {
                let now = self.cta.memory.payload(src).read();
                assert_eq!(now, load.values[0], "a source changed while the copy engine read it");
            }
            for (panel, value) in self.cta.panels(load.dst, load.bytes).iter().zip(&load.values) {
                panel.write(*value);
            }
            self.complete_bytes(load.full, load.bytes);
        }
        any
    }

    fn issue_store(&self, src: SmemAddr, dst: GlobalAddr) {
        let at_issue = self.cta.panels(src, PANEL_BYTES)[0].read();
        self.cta.memory.payload(dst).write(POISON);
        self.engine.borrow_mut().open.push(Store { src, dst, at_issue, read: false });
    }

    fn read_source(&self, store: &mut Store) {
        if !store.read {
            let now = self.cta.panels(store.src, PANEL_BYTES)[0].read();
            assert_eq!(now, store.at_issue, "a source changed while the copy engine read it");
            store.read = true;
        }
    }

    /// Ends every copy that is still in flight, as the end of the kernel does.
    pub fn finish(self) {
        self.finish_loads();
        self.end_groups(0);
    }

    fn end_groups(&self, pending: usize) {
        let mut engine = self.engine.borrow_mut();
        while engine.groups.len() > pending {
            for mut store in engine.groups.pop_front().into_iter().flatten() {
                self.read_source(&mut store);
                self.cta.memory.payload(store.dst).write(store.at_issue);
                engine.written_unfenced = true;
            }
        }
    }
}

impl<C: TileConfig> BulkCopy for Agent<C> {
    fn load_box(&self, dst: SmemAddr, operand: Operand, row: u32, col: u32, full: Mbarrier) {
        let tile_box = match operand {
            Operand::A => C::A_BOX,
            Operand::B => C::B_BOX,
            Operand::D | Operand::C => C::D_BOX,
        };
        let values = (0..tile_box.rows / 64).map(|panel| operand_value(operand, row, col, panel)).collect();
        self.issue_load(Load { dst, values, src: None, bytes: tile_box.bytes(), full });
    }

    fn store_box(&self, operand: Operand, row: u32, col: u32, src: SmemAddr) {
        assert_eq!(operand, Operand::D, "only D is stored to");
        self.issue_store(src, d_panel(self.cta.d, row, col));
    }

    fn load_bytes(&self, dst: SmemAddr, src: GlobalAddr, bytes: u32, full: Mbarrier) {
        assert!(!self.engine.borrow().acquired_unfenced, "a bulk load follows an acquire without a proxy fence");
        let values = vec![self.cta.memory.payload(src).read()];
        self.issue_load(Load { dst, values, src: Some(src), bytes, full });
    }

    fn store_bytes(&self, dst: GlobalAddr, src: SmemAddr, _bytes: u32) {
        assert!(!self.engine.borrow().credit_unfenced, "a bulk store follows a credit without a proxy fence");
        self.issue_store(src, dst);
    }

    fn push_bytes(&self, dst: GlobalAddr, src: SmemAddr, _bytes: u32) {
        // Plain stores: read and written at once, by the agent itself.
        let value = self.cta.panels(src, PANEL_BYTES)[0].read();
        self.cta.memory.payload(dst).write(value);
    }

    fn store_row_ends(&self, _ends: &RowEnds) {
        unreachable!("rows of the models' results are whole steps")
    }

    fn commit_group(&self) {
        let mut engine = self.engine.borrow_mut();
        let group = std::mem::take(&mut engine.open);
        engine.groups.push_back(group);
    }

    fn wait_group_read<const PENDING: u32>(&self) {
        if self.is(Mutant::NoGroupRead) {
            return;
        }
        let mut engine = self.engine.borrow_mut();
        let over = engine.groups.len().saturating_sub(PENDING as usize);
        for store in engine.groups.iter_mut().take(over).flatten() {
            self.read_source(store);
        }
    }

    fn wait_group_complete<const PENDING: u32>(&self) {
        if !self.is(Mutant::NoGroupComplete) {
            self.end_groups(PENDING as usize);
        }
    }

    fn fence_proxy_async_global(&self) {
        if !self.is(Mutant::NoProxyFence(self.role)) {
            let mut engine = self.engine.borrow_mut();
            engine.acquired_unfenced = false;
            engine.credit_unfenced = false;
            engine.written_unfenced = false;
        }
    }
}
