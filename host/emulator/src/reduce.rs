//! Addition in global memory.

use super::access::Proxy;
use super::agent::Agent;
use super::mma::HostArithmetic;
use super::tensor::{decode, encode};
use super::tensor_map::swizzled_row;
use super::violation::{Failure, Violation};
use super::world::World;
use crate::kernels::config::{Element, PANEL_BYTES, PANEL_ROWS, ROW_BYTES, TileConfig};
use crate::kernels::finish::Finish;
use crate::kernels::layout::slot::panel_offset;
use crate::kernels::machine::{Reduce, ReduceJob, RowsFinish};
use crate::kernels::shape::GlobalAddr;

impl<C: TileConfig> Reduce<C> for Agent<'_> {
    fn reduce(&self, job: &ReduceJob) {
        self.op(|w, me| {
            w.must_be_warpgroup(me, "reduce")?;
            if job.rows > PANEL_ROWS || job.cols > C::TILE_N {
                let detail = format!("reduces {}×{} elements, more than half a tile", job.rows, job.cols);
                return Err(Failure::new(Violation::OutOfBounds, detail));
            }
            for panel in 0..job.cols.div_ceil(C::PANEL_COLS) {
                let off = u64::from(panel_offset::<C>(0, panel));
                let first_col = panel * C::PANEL_COLS;
                let cols = (job.cols - first_col).min(C::PANEL_COLS);
                w.reduce_panel(me, job, off, (first_col, cols), C::OUT)?;
            }
            Ok(())
        });
    }
}

/// The epilogue of the columns from `first` on.
fn columns_of(how: &Finish, first: u32, element: Element) -> Finish {
    let bias = if how.has_bias() { how.bias.plus(u64::from(first * element.bytes())) } else { how.bias };
    Finish { bias, cols: how.cols - first, ..*how }
}

impl World {
    fn reduce_panel(
        &mut self,
        me: usize,
        job: &ReduceJob,
        off: u64,
        (first_col, cols): (u32, u32),
        element: Element,
    ) -> Result<(), Failure> {
        if job.rows == 0 {
            return Ok(());
        }
        let dst = job.dst.plus(u64::from(first_col * element.bytes()));
        if !dst.0.is_multiple_of(u64::from(element.bytes())) || !job.slot.0.is_multiple_of(16) {
            let detail = format!("reduces from {:#x} to {:#x}", job.slot.0, job.dst.0);
            return Err(Failure::new(Violation::Misaligned, detail));
        }
        let mark = self.own_mark(me);
        let row_cols = (ROW_BYTES / element.bytes()) as usize;
        let mut sum = vec![0.0; job.rows as usize * row_cols];
        let mut values = vec![0.0; row_cols];
        for slot in 0..job.slots {
            let src = GlobalAddr(job.slot.0 + u64::from(slot) * job.slot_stride + off);
            let bytes = u64::from(job.rows * ROW_BYTES);
            // Rows that are skipped may never have been sent.
            let skipped = u64::from(job.skip.min(job.rows) * ROW_BYTES);
            self.global_read(src.plus(skipped), bytes - skipped, mark, Proxy::Generic)?;
            // Rows that do not exist are not in the slot, but the swizzle wants a whole panel.
            let mut panel = self.memory.bytes(src, bytes)?.to_vec();
            panel.resize(PANEL_BYTES as usize, 0);
            for (row, sums) in (0..).zip(sum.chunks_exact_mut(row_cols)) {
                decode(&swizzled_row(&panel, row), element, &mut values);
                sums.iter_mut().zip(&values).for_each(|(s, v)| *s += v);
            }
        }
        let first = u64::from(first_col * element.bytes());
        let finish = job.finish.map(|finish| RowsFinish {
            how: columns_of(&finish.how, first_col, element),
            c: finish.c.plus(first),
            ..finish
        });
        let rows = sum.chunks_exact(row_cols).skip(job.skip as usize).map(|row| &row[..cols as usize]);
        self.store_finished(me, rows, finish.as_ref(), (dst, job.dst_stride), element)
    }

    /// Finishes rows, rounds them and stores them one `stride` after the other from `dst` on, with plain stores. All
    /// are equally long.
    pub(super) fn store_finished<'a>(
        &mut self,
        me: usize,
        rows: impl Iterator<Item = &'a [f32]>,
        finish: Option<&RowsFinish>,
        (dst, stride): (GlobalAddr, u64),
        element: Element,
    ) -> Result<(), Failure> {
        let mark = self.own_mark(me);
        let (mut bias, mut bytes) = (None, Vec::new());
        for (row, sums) in (0..).zip(rows) {
            let mut values = sums.to_vec();
            if let Some(RowsFinish { how, c, c_stride }) = finish {
                let cols = sums.len() as u32;
                let bias = match &bias {
                    Some(bias) => bias,
                    None => bias.insert(self.read_bias(me, how, cols, element)?),
                };
                let other = self.read_other(me, how, c.plus(row * c_stride), cols, element)?;
                for (col, (value, other)) in values.iter_mut().zip(other).enumerate() {
                    *value = how.value::<HostArithmetic>(*value, other, bias.get(col).copied().unwrap_or(0.0));
                }
            }
            let at = dst.plus(row * stride);
            bytes.clear();
            encode(&values, element, &mut bytes);
            self.global_write(at, bytes.len() as u64, mark, Proxy::Generic)?;
            self.memory.bytes_mut(at, bytes.len() as u64)?.copy_from_slice(&bytes);
        }
        Ok(())
    }
}
