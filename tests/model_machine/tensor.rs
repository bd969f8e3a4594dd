//! Tensor cores and the addition of slots, on one number a panel.

use super::engine::operand_value;
use super::{Agent, Mutant};
use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::Range;
use tilewire_kernels::abi::Operand;
use tilewire_kernels::config::{PANEL_BYTES, ROW_BYTES, TileConfig};
use tilewire_kernels::finish::Finish;
use tilewire_kernels::machine::{Epilogue, PutSignals, Reduce, ReduceJob, ShareAcc, WarpgroupMma};
use tilewire_kernels::shape::{GlobalAddr, SmemAddr};

/// An accumulator: which of its role's it is that anything is done with, and what was multiplied into it.
pub struct Acc {
    number: Cell<Option<u32>>,
    pub sum: u32,
}

/// Multiplications of a role that still read: places of A and B, and what was there at issue.
pub type Reading = VecDeque<(SmemAddr, SmemAddr, u32)>;

fn step(sum: u32, product: u32) -> u32 {
    sum.wrapping_mul(31).wrapping_add(product)
}

/// An accumulator that holds `sum`, once another's sums are added. Shows the order in which they are.
pub fn shared(sum: u32, other: u32) -> u32 {
    step(sum, other)
}

/// What an accumulator of consumer `consumer` holds after stages `k_tiles` of the tile at (`row`, `col`).
pub fn multiplied<C: TileConfig>(row: u32, col: u32, consumer: u32, k_tiles: Range<u32>) -> u32 {
    k_tiles.fold(0, |sum, k_tile| {
        let k = k_tile * C::TILE_K;
        let b = (0..C::TILE_N / 64).fold(0, |b, panel| step(b, operand_value(Operand::B, col, k, panel)));
        step(sum, step(operand_value(Operand::A, row, k, consumer), b))
    })
}

impl<C: TileConfig> Agent<C> {
    /// The accumulator's number, which it has from its first use on.
    fn number(&self, acc: &Acc) -> u32 {
        let number = acc.number.get().unwrap_or_else(|| {
            self.tiles.set(self.tiles.get() + 1);
            self.tiles.get()
        });
        acc.number.set(Some(number));
        number
    }

    fn product(&self, a: SmemAddr, b: SmemAddr) -> u32 {
        let b_panels = self.cta.panels(b, C::TILE_N * ROW_BYTES);
        step(self.cta.panels(a, PANEL_BYTES)[0].read(), b_panels.iter().fold(0, |b, panel| step(b, panel.read())))
    }
}

impl<C: TileConfig> WarpgroupMma<C> for Agent<C> {
    type Acc = Acc;
    type Operands = [SmemAddr; 2];
    type Panel = u32;
    /// What panel 0 of the accumulator shows.
    type Rounded = u32;

    fn zero_acc(&self) -> Acc {
        Acc { number: Cell::new(None), sum: 0 }
    }

    fn issue_mma(&self, acc: &mut Acc, a: SmemAddr, b: SmemAddr, accumulate: bool) {
        self.number(acc);
        let product = self.product(a, b);
        acc.sum = step(if accumulate { acc.sum } else { 0 }, product);
        self.reading.borrow_mut().push_back((a, b, product));
    }

    fn operands(&self, a: SmemAddr, b: SmemAddr) -> [SmemAddr; 2] {
        [a, b]
    }

    fn issue_mma_at(&self, acc: &mut Acc, [a, b]: [SmemAddr; 2], _rows: [u32; 2], accumulate: bool) {
        self.issue_mma(acc, a, b, accumulate);
    }

    fn wait_mma<const PENDING: u32>(&self, _acc: &mut Acc) {
        if PENDING > 0 && self.is(Mutant::NoMmaWait) {
            return;
        }
        let mut reading = self.reading.borrow_mut();
        while reading.len() > PENDING as usize {
            if let Some((a, b, at_issue)) = reading.pop_front() {
                assert_eq!(self.product(a, b), at_issue, "a stage changed while the tensor cores read it");
            }
        }
    }

    fn promote(&self, _acc: &mut Acc, _accumulate: bool) {
        assert!(self.reading.borrow().is_empty(), "sums are promoted while the tensor cores still add to them");
    }

    fn scale(&self, acc: &mut Acc, factor: f32) {
        assert!(self.reading.borrow().is_empty(), "an accumulator is scaled while the tensor cores still add to it");
        acc.sum = step(acc.sum, factor.to_bits());
    }

    fn zero_panel(&self) -> u32 {
        0
    }

    /// Shows tile, panel and product, so that a panel of another tile is noticed even where nothing is multiplied.
    fn panel<const P: u32>(&self, acc: &Acc) -> u32 {
        acc.sum.wrapping_add(self.number(acc) * 100 + P)
    }

    fn round_acc(&self, acc: &Acc) -> u32 {
        assert!(self.reading.borrow().is_empty(), "an accumulator is rounded while the tensor cores still add to it");
        WarpgroupMma::<C>::panel::<0>(self, acc)
    }

    fn rounded_panel<const P: u32>(&self, acc: &u32) -> u32 {
        acc.wrapping_add(P)
    }

    fn round(&self, panel: u32) -> u32 {
        panel
    }

    fn add_to(&self, sum: &mut u32, other: &u32) {
        *sum = sum.wrapping_add(*other);
    }

    fn load_panel(&self, src: SmemAddr, _rows: u32) -> u32 {
        self.cta.panels(src, PANEL_BYTES)[0].read()
    }

    fn store_panel(&self, dst: SmemAddr, panel: &u32) {
        self.cta.panels(dst, PANEL_BYTES)[0].write(*panel);
    }
}

impl<C: TileConfig> ShareAcc<C> for Agent<C> {
    fn store_acc(&self, dst: GlobalAddr, acc: &Acc) {
        if self.is(Mutant::LateSums) {
            self.late_sums.set(Some((self.sums_at(dst), acc.sum)));
            return;
        }
        self.cta.memory.payload(self.sums_at(dst)).write(acc.sum);
    }

    fn add_acc(&self, src: GlobalAddr, acc: &mut Acc) {
        if self.is(Mutant::EarlyClear) {
            self.store_release_gpu(self.last_word.get(), 0);
        }
        acc.sum = shared(acc.sum, self.cta.memory.payload(self.sums_at(src)).read());
    }

    fn publish(&self, addr: GlobalAddr, value: u32) {
        self.store_release_gpu(addr, value);
        if let Some((dst, sum)) = self.late_sums.take() {
            self.cta.memory.payload(dst).write(sum);
        }
    }
}

impl<C: TileConfig> Agent<C> {
    /// Where the sums for `addr` lie. The shares of a model begin at a multiple of 2³².
    fn sums_at(&self, addr: GlobalAddr) -> GlobalAddr {
        if self.is(Mutant::OnePlace) { GlobalAddr(addr.0 >> 32 << 32) } else { addr }
    }
}

impl<C: TileConfig> Epilogue<C> for Agent<C> {
    fn load_f32(&self, _addr: GlobalAddr) -> f32 {
        1.0
    }

    fn finish(&self, panel: u32, buffer: SmemAddr, rows: u32, how: &Finish) {
        let other = if how.has_other() { WarpgroupMma::<C>::load_panel(self, buffer, rows) } else { 0 };
        WarpgroupMma::<C>::store_panel(self, buffer, &panel.wrapping_add(other));
    }
}

impl<C: TileConfig> Reduce<C> for Agent<C> {
    fn reduce(&self, job: &ReduceJob) {
        let mut panel = 0;
        while panel * C::PANEL_COLS < job.cols {
            let src = job.slot.plus((panel * PANEL_BYTES) as u64);
            let addr = |slot: u32| src.plus(slot as u64 * job.slot_stride);
            let sum =
                (0..job.slots).fold(0u32, |sum, slot| sum.wrapping_add(self.cta.memory.payload(addr(slot)).read()));
            self.cta.memory.payload(job.dst.plus((panel * ROW_BYTES) as u64)).write(sum);
            panel += 1;
        }
    }
}
