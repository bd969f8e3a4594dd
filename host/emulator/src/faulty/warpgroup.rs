//! What consumers do, with a fault or without.

use super::super::mma::{Accumulator, Panel, Rounded};
use super::{Effect, Faulty, Op};
use crate::kernels::config::{PANEL_ROWS, TileConfig};
use crate::kernels::finish::Finish;
use crate::kernels::layout::flagged::{FlaggedRows, flagged_panel_bytes};
use crate::kernels::machine::{Epilogue, ExchangeRows, Reduce, ReduceJob, RowsOut, ShareAcc, WarpgroupMma};
use crate::kernels::shape::{GlobalAddr, SmemAddr};

impl<C: TileConfig> WarpgroupMma<C> for Faulty<'_> {
    type Acc = Accumulator;
    type Operands = [SmemAddr; 2];
    type Panel = Panel;
    type Rounded = Rounded;

    fn zero_acc(&self) -> Accumulator {
        WarpgroupMma::<C>::zero_acc(self.agent)
    }

    fn issue_mma(&self, acc: &mut Accumulator, a: SmemAddr, b: SmemAddr, accumulate: bool) {
        WarpgroupMma::<C>::issue_mma_of_rows(self, acc, [a, b], [PANEL_ROWS, C::TILE_N], accumulate);
    }

    fn issue_mma_of_rows(&self, acc: &mut Accumulator, [a, b]: [SmemAddr; 2], rows: [u32; 2], accumulate: bool) {
        if let Some(Effect::Early(barrier)) = self.strike(Op::IssueMma) {
            self.arrive_early(barrier, a);
        }
        WarpgroupMma::<C>::issue_mma_of_rows(self.agent, acc, [a, b], rows, accumulate);
    }

    fn operands(&self, a: SmemAddr, b: SmemAddr) -> [SmemAddr; 2] {
        WarpgroupMma::<C>::operands(self.agent, a, b)
    }

    fn issue_mma_at(&self, acc: &mut Accumulator, operands: [SmemAddr; 2], rows: [u32; 2], accumulate: bool) {
        WarpgroupMma::<C>::issue_mma_of_rows(self, acc, operands, rows, accumulate);
    }

    fn wait_mma<const PENDING: u32>(&self, acc: &mut Accumulator) {
        if self.strike(Op::WaitMma(PENDING)).is_none() {
            WarpgroupMma::<C>::wait_mma::<PENDING>(self.agent, acc);
        }
    }

    fn promote(&self, acc: &mut Accumulator, accumulate: bool) {
        WarpgroupMma::<C>::promote(self.agent, acc, accumulate);
    }

    fn scale(&self, acc: &mut Accumulator, factor: f32) {
        WarpgroupMma::<C>::scale(self.agent, acc, factor);
    }

    fn zero_panel(&self) -> Panel {
        WarpgroupMma::<C>::zero_panel(self.agent)
    }

    fn panel<const P: u32>(&self, acc: &Accumulator) -> Panel {
        WarpgroupMma::<C>::panel::<P>(self.agent, acc)
    }

    fn round(&self, panel: Panel) -> Panel {
        WarpgroupMma::<C>::round(self.agent, panel)
    }

    fn round_acc(&self, acc: &Accumulator) -> Rounded {
        WarpgroupMma::<C>::round_acc(self.agent, acc)
    }

    fn rounded_panel<const P: u32>(&self, acc: &Rounded) -> Panel {
        WarpgroupMma::<C>::rounded_panel::<P>(self.agent, acc)
    }

    fn add_to(&self, sum: &mut Panel, other: &Panel) {
        WarpgroupMma::<C>::add_to(self.agent, sum, other);
    }

    fn load_panel(&self, src: SmemAddr, rows: u32) -> Panel {
        if let Some(Effect::Early(barrier)) = self.strike(Op::LoadPanel) {
            self.arrive_early(barrier, src);
        }
        WarpgroupMma::<C>::load_panel(self.agent, src, rows)
    }

    fn store_panel(&self, dst: SmemAddr, panel: &Panel) {
        let op = if self.reduces.get() { Op::StoreResult } else { Op::StorePanel };
        if let Some(Effect::Early(barrier)) = self.strike(op) {
            self.arrive_early(barrier, dst);
        }
        WarpgroupMma::<C>::store_panel(self.agent, dst, panel);
    }
}

impl<C: TileConfig> ShareAcc<C> for Faulty<'_> {
    fn store_acc(&self, dst: GlobalAddr, acc: &Accumulator) {
        if self.strike(Op::StoreShare).is_none() {
            ShareAcc::<C>::store_acc(self.agent, dst, acc);
        }
    }

    fn add_acc(&self, src: GlobalAddr, acc: &mut Accumulator) {
        ShareAcc::<C>::add_acc(self.agent, src, acc);
    }

    fn publish(&self, addr: GlobalAddr, value: u32) {
        if value == 0 || self.strike(Op::PublishShare).is_none() {
            ShareAcc::<C>::publish(self.agent, addr, value);
        }
    }
}

impl<C: TileConfig> ExchangeRows<C> for Faulty<'_> {
    fn send_rows(&self, rows: &FlaggedRows, panel: &Panel, epoch: u32) {
        match self.strike(Op::SendRows) {
            Some(Effect::Omit) => {}
            Some(Effect::Stale) => ExchangeRows::<C>::send_rows(self.agent, rows, panel, epoch.wrapping_sub(2)),
            Some(Effect::Less) => {
                let rows = FlaggedRows { rows: rows.rows - 1, ..*rows };
                ExchangeRows::<C>::send_rows(self.agent, &rows, panel, epoch);
            }
            Some(Effect::Neighbour) => {
                let base = rows.base.plus(flagged_panel_bytes(rows.plane_rows));
                ExchangeRows::<C>::send_rows(self.agent, &FlaggedRows { base, ..*rows }, panel, epoch);
            }
            _ => ExchangeRows::<C>::send_rows(self.agent, rows, panel, epoch),
        }
    }

    fn take_rows(&self, rows: &FlaggedRows, epoch: u32) -> Result<Panel, u32> {
        let take = |epoch| ExchangeRows::<C>::take_rows(self.agent, rows, epoch);
        match self.strike(Op::TakeRows) {
            // Takes what it finds for words of this call.
            Some(Effect::Pretend) => take(epoch).or_else(take),
            _ => take(epoch),
        }
    }

    fn store_rows(&self, out: &RowsOut, panel: &Panel) {
        let out = match self.strike(Op::StoreRows) {
            Some(Effect::More) => RowsOut { rows: out.rows + 1, ..*out },
            _ => *out,
        };
        ExchangeRows::<C>::store_rows(self.agent, &out, panel);
    }
}

impl<C: TileConfig> Epilogue<C> for Faulty<'_> {
    fn load_f32(&self, addr: GlobalAddr) -> f32 {
        Epilogue::<C>::load_f32(self.agent, addr)
    }

    fn finish(&self, panel: Panel, buffer: SmemAddr, rows: u32, how: &Finish) {
        let other = if how.has_other() { Some(WarpgroupMma::<C>::load_panel(self, buffer, rows)) } else { None };
        let panel = self.agent.finished::<C>(panel, other, how);
        WarpgroupMma::<C>::store_panel(self, buffer, &panel);
    }
}

impl<C: TileConfig> Reduce<C> for Faulty<'_> {
    fn reduce(&self, job: &ReduceJob) {
        match self.strike(Op::Reduce) {
            Some(Effect::More) => {
                let columns_of_16_bytes = 16 / C::OUT.bytes();
                Reduce::<C>::reduce(self.agent, &ReduceJob { cols: job.cols + columns_of_16_bytes, ..*job });
            }
            _ => Reduce::<C>::reduce(self.agent, job),
        }
    }
}
