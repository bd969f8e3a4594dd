//! Tensor cores: wgmma groups that run behind their issuer's back, and panels.

use std::cell::{RefCell, RefMut};
use std::rc::Rc;

use super::access::Proxy;
use super::agent::Agent;
use super::clock::Mark;
use super::tensor::{
    decode, decode_boxes, decode_tile, decode_tile_transposed, encode_tile, multiply, round, transpose,
};
use super::trace::EventKind;
use super::violation::{Failure, Violation};
use super::world::{AgentLane, World};
use crate::kernels::config::{Element, Major, PANEL_BYTES, PANEL_ROWS, ROW_BYTES, SMEM_ALIGN, TileConfig};
use crate::kernels::finish::{Arithmetic, Finish};
use crate::kernels::machine::{Epilogue, WarpgroupMma};
use crate::kernels::shape::{GlobalAddr, SmemAddr};

/// A 64 × `TILE_N` accumulator in f32, with the latest stage's product beside it where such are promoted.
pub struct Accumulator(Rc<RefCell<Values>>);

struct Values {
    values: Vec<f32>,
    /// Where products are promoted: the latest, not yet added to `values`.
    product: Option<Vec<f32>>,
    cols: usize,
    /// Groups issued into it and not yet waited for.
    pending: u32,
}

impl Accumulator {
    fn of<C: TileConfig>(value: f32) -> Self {
        let cols = C::TILE_N as usize;
        let values = vec![value; PANEL_ROWS as usize * cols];
        Self(Rc::new(RefCell::new(Values { values, product: None, cols, pending: 0 })))
    }

    /// The values, if no wgmma group is still running on them; `what` wants them.
    pub(super) fn settled(&self, what: &str) -> Result<RefMut<'_, Vec<f32>>, Failure> {
        let acc = self.0.borrow_mut();
        if acc.pending > 0 {
            let detail = format!("{what} with {} wgmma groups running on the accumulator", acc.pending);
            return Err(Failure::new(Violation::AccumulatorInFlight, detail));
        }
        Ok(RefMut::map(acc, |acc| &mut acc.values))
    }
}

/// The values of an accumulator, rounded.
pub struct Rounded {
    values: Vec<f32>,
    cols: usize,
}

/// One panel's values in f32, row by row.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel(pub Vec<f32>);

/// A wgmma group that was issued and not yet waited for.
pub(super) struct MmaGroup {
    number: u32,
    acc: Rc<RefCell<Values>>,
    a: SmemAddr,
    b: SmemAddr,
    /// Rows of A and of B that exist.
    rows: [u32; 2],
    b_bytes: u32,
    /// Boxes of B side by side along N, where N is contiguous.
    b_boxes: u32,
    majors: [Major; 2],
    elements: [Element; 2],
    accumulate: bool,
    /// Whether the product is to be promoted.
    promotes: bool,
}

impl<C: TileConfig> WarpgroupMma<C> for Agent<'_> {
    type Acc = Accumulator;
    type Operands = [SmemAddr; 2];
    type Panel = Panel;
    type Rounded = Rounded;

    fn zero_acc(&self) -> Accumulator {
        Accumulator::of::<C>(0.0)
    }

    fn issue_mma(&self, acc: &mut Accumulator, a: SmemAddr, b: SmemAddr, accumulate: bool) {
        WarpgroupMma::<C>::issue_mma_of_rows(self, acc, [a, b], [PANEL_ROWS, C::TILE_N], accumulate);
    }

    fn issue_mma_of_rows(&self, acc: &mut Accumulator, [a, b]: [SmemAddr; 2], rows: [u32; 2], accumulate: bool) {
        self.op(|w, me| {
            let group = MmaGroup {
                number: 0,
                acc: acc.0.clone(),
                a,
                rows,
                b,
                b_bytes: C::B_BOX.total_bytes(),
                b_boxes: C::B_BOX.count,
                majors: [C::A_MAJOR, C::B_MAJOR],
                elements: [C::IN, C::IN_B],
                accumulate,
                promotes: C::PROMOTES,
            };
            w.issue_mma(me, group)
        });
    }

    fn operands(&self, a: SmemAddr, b: SmemAddr) -> [SmemAddr; 2] {
        [a, b]
    }

    fn issue_mma_at(&self, acc: &mut Accumulator, operands: [SmemAddr; 2], rows: [u32; 2], accumulate: bool) {
        WarpgroupMma::<C>::issue_mma_of_rows(self, acc, operands, rows, accumulate);
    }

    fn wait_mma<const PENDING: u32>(&self, _acc: &mut Accumulator) {
        self.op(|w, me| {
            w.must_be_warpgroup(me, "wait_mma")?;
            w.finish_mma(me, PENDING as usize);
            Ok(())
        });
    }

    fn promote(&self, acc: &mut Accumulator, accumulate: bool) {
        let mut acc = acc.0.borrow_mut();
        let Values { values, product, pending, .. } = &mut *acc;
        match product.take() {
            Some(product) if *pending == 0 => values.iter_mut().zip(&product).for_each(|(v, p)| {
                *v = if accumulate { *v } else { 0.0 } + p;
            }),
            _ => {
                let detail = format!("promotes a product of an accumulator with {pending} wgmma groups running");
                self.op_in_turn(|_, _| Err(Failure::new(Violation::AccumulatorInFlight, detail)))
            }
        }
    }

    fn scale(&self, acc: &mut Accumulator, factor: f32) {
        let mut acc = acc.0.borrow_mut();
        if acc.pending > 0 {
            let detail = format!("scales an accumulator with {} wgmma groups running", acc.pending);
            return self.op_in_turn(|_, _| Err(Failure::new(Violation::AccumulatorInFlight, detail)));
        }
        acc.values.iter_mut().for_each(|v| *v *= factor);
    }

    fn zero_panel(&self) -> Panel {
        Panel(vec![0.0; (PANEL_ROWS * C::PANEL_COLS) as usize])
    }

    fn panel<const P: u32>(&self, acc: &Accumulator) -> Panel {
        let acc = acc.0.borrow();
        if acc.pending > 0 {
            let detail = format!("reads panel {P} of an accumulator with {} wgmma groups running", acc.pending);
            return self.op_in_turn(|_, _| Err(Failure::new(Violation::AccumulatorInFlight, detail)));
        }
        panel_of::<C>(&acc.values, acc.cols, P)
    }

    fn round(&self, panel: Panel) -> Panel {
        Panel(panel.0.into_iter().map(|v| round(v, C::OUT)).collect())
    }

    fn round_acc(&self, acc: &Accumulator) -> Rounded {
        let acc = acc.0.borrow();
        if acc.pending > 0 {
            let detail = format!("rounds an accumulator with {} wgmma groups running", acc.pending);
            return self.op_in_turn(|_, _| Err(Failure::new(Violation::AccumulatorInFlight, detail)));
        }
        Rounded { values: acc.values.iter().map(|v| round(*v, C::OUT)).collect(), cols: acc.cols }
    }

    fn rounded_panel<const P: u32>(&self, acc: &Rounded) -> Panel {
        panel_of::<C>(&acc.values, acc.cols, P)
    }

    fn add_to(&self, sum: &mut Panel, other: &Panel) {
        sum.0.iter_mut().zip(&other.0).for_each(|(sum, other)| *sum += other);
    }

    fn load_panel(&self, src: SmemAddr, rows: u32) -> Panel {
        self.op(|w, me| w.load_panel(me, src, rows, C::OUT))
    }

    fn store_panel(&self, dst: SmemAddr, panel: &Panel) {
        self.op(|w, me| w.store_panel(me, dst, panel, C::OUT));
    }
}

fn panel_of<C: TileConfig>(values: &[f32], row_cols: usize, panel: u32) -> Panel {
    let (first, cols) = (C::panel_col(panel) as usize, C::PANEL_COLS as usize);
    Panel(values.chunks_exact(row_cols).flat_map(|row| row[first..first + cols].iter().copied()).collect())
}

impl<C: TileConfig> Epilogue<C> for Agent<'_> {
    fn load_f32(&self, addr: GlobalAddr) -> f32 {
        self.op(|w, me| {
            w.must_be_warpgroup(me, "load_f32")?;
            w.read_elements(me, addr, 1, Element::F32).map(|values| values[0])
        })
    }

    fn finish(&self, panel: Panel, buffer: SmemAddr, rows: u32, how: &Finish) {
        let other = if how.has_other() { Some(WarpgroupMma::<C>::load_panel(self, buffer, rows)) } else { None };
        let panel = self.finished::<C>(panel, other, how);
        WarpgroupMma::<C>::store_panel(self, buffer, &panel);
    }
}

impl Agent<'_> {
    /// The panel with its epilogue; `other` is what is added.
    pub(super) fn finished<C: TileConfig>(&self, mut panel: Panel, other: Option<Panel>, how: &Finish) -> Panel {
        let cols = how.cols.min(C::PANEL_COLS);
        let bias = self.op(|w, me| w.read_bias(me, how, cols, C::OUT));
        for (i, value) in panel.0.iter_mut().enumerate() {
            let added = other.as_ref().map_or(0.0, |other| other.0[i]);
            let bias = bias.get(i % C::PANEL_COLS as usize).copied().unwrap_or(0.0);
            *value = how.value::<HostArithmetic>(*value, added, bias);
        }
        panel
    }
}

/// The CPU's arithmetic: exact functions, rounded.
pub struct HostArithmetic;

impl Arithmetic for HostArithmetic {
    fn fma(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }

    fn exp2(x: f32) -> f32 {
        x.exp2()
    }

    fn recip(x: f32) -> f32 {
        x.recip()
    }
}

impl World {
    /// Plain loads of `count` elements of global memory.
    fn read_elements(
        &mut self,
        me: usize,
        addr: GlobalAddr,
        count: u32,
        element: Element,
    ) -> Result<Vec<f32>, Failure> {
        let bytes = u64::from(count * element.bytes());
        if !addr.0.is_multiple_of(u64::from(element.bytes())) {
            return Err(Failure::new(Violation::Misaligned, format!("loads elements at {:#x}", addr.0)));
        }
        let mark = self.own_mark(me);
        self.global_read(addr, bytes, mark, Proxy::Generic)?;
        let mut values = vec![0.0; count as usize];
        decode(self.memory.bytes(addr, bytes)?, element, &mut values);
        Ok(values)
    }

    /// The bias of the first `cols` columns; none where the epilogue has none.
    pub(super) fn read_bias(
        &mut self,
        me: usize,
        how: &Finish,
        cols: u32,
        element: Element,
    ) -> Result<Vec<f32>, Failure> {
        if how.has_bias() { self.read_elements(me, how.bias, cols, element) } else { Ok(Vec::new()) }
    }

    /// One row of what an epilogue adds: `cols` elements at `addr`.
    pub(super) fn read_other(
        &mut self,
        me: usize,
        how: &Finish,
        addr: GlobalAddr,
        cols: u32,
        element: Element,
    ) -> Result<Vec<f32>, Failure> {
        if how.has_other() { self.read_elements(me, addr, cols, element) } else { Ok(vec![0.0; cols as usize]) }
    }

    fn issue_mma(&mut self, me: usize, mut group: MmaGroup) -> Result<(), Failure> {
        self.must_be_warpgroup(me, "issue_mma")?;
        if self.agents[me].gave_up {
            // Worthless, whatever its operands hold.
            return Ok(());
        }
        let cta = self.agents[me].cta;
        let a_range = self.smem_range(cta, group.a, PANEL_BYTES, SMEM_ALIGN)?;
        if group.promotes {
            let acc = group.acc.borrow();
            if acc.pending > 0 || acc.product.is_some() {
                let detail = "issues wgmmas over a product that was not yet promoted".to_string();
                return Err(Failure::new(Violation::AccumulatorInFlight, detail));
            }
        }
        let b_range = self.smem_range(cta, group.b, group.b_bytes, SMEM_ALIGN)?;
        let state = &mut self.agents[me];
        state.mma_issued += 1;
        group.number = state.mma_issued;
        // The group reads its operands at any time until it is waited for.
        let lane = state.lane(AgentLane::Mma);
        let mark = Mark { lane, clock: group.number, agent: me as u32, issued: state.now };
        // A box with fewer rows has brought no others: their sums are unspecified.
        for ((range, major), rows) in [a_range, b_range].into_iter().zip(group.majors).zip(group.rows) {
            let end = match major {
                Major::K => range.end.min(range.start + u64::from(rows * ROW_BYTES)),
                Major::Mn => range.end,
            };
            self.smem_read(cta, range.start..end, mark, false)?;
        }
        self.record(me, EventKind::MmaIssued { number: group.number, a: group.a.0, b: group.b.0 });
        group.acc.borrow_mut().pending += 1;
        self.agents[me].mma.push_back(group);
        Ok(())
    }

    /// Runs groups, oldest first, until `pending` are left: as late as the issuer allows.
    fn finish_mma(&mut self, me: usize, pending: usize) {
        while self.agents[me].mma.len() > pending {
            let Some(group) = self.agents[me].mma.pop_front() else { return };
            self.run_mma(me, &group);
            self.agents[me].learn(AgentLane::Mma, group.number);
            self.record(me, EventKind::MmaDone { number: group.number });
        }
    }

    fn run_mma(&mut self, me: usize, group: &MmaGroup) {
        let smem = &self.ctas[self.agents[me].cta].smem;
        let tile = |at: SmemAddr, bytes: u32| &smem[at.0 as usize..(at.0 + bytes) as usize];
        let [a, b] = &mut self.scratch;
        let [a_element, b_element] = group.elements;
        decode_tile(tile(group.a, PANEL_BYTES), a_element, a);
        if group.majors[0] == Major::Mn {
            transpose(a, PANEL_ROWS as usize);
        }
        let mut acc = group.acc.borrow_mut();
        let cols = acc.cols;
        let b_tile = tile(group.b, group.b_bytes);
        match group.majors[1] {
            Major::K => decode_tile_transposed(b_tile, b_element, b),
            Major::Mn => decode_boxes(b_tile, group.b_boxes as usize, cols, b_element, b),
        }
        acc.pending -= 1;
        if group.promotes {
            let mut product = vec![0.0; acc.values.len()];
            multiply(&mut product, a, b, cols);
            acc.product = Some(product);
        } else {
            if !group.accumulate {
                acc.values.fill(0.0);
            }
            multiply(&mut acc.values, a, b, cols);
        }
        self.stats.wgmma_groups += 1;
    }

    fn load_panel(&mut self, me: usize, src: SmemAddr, rows: u32, element: Element) -> Result<Panel, Failure> {
        self.must_be_warpgroup(me, "load_panel")?;
        let cta = self.agents[me].cta;
        let range = self.smem_range(cta, src, PANEL_BYTES, SMEM_ALIGN)?;
        let mark = self.own_mark(me);
        // Rows past `rows` are unspecified: no copy may have brought them.
        self.smem_read(cta, range.start..range.start + u64::from(rows * ROW_BYTES), mark, false)?;
        let mut values = Vec::new();
        decode_tile(&self.ctas[cta].smem[range.start as usize..range.end as usize], element, &mut values);
        Ok(Panel(values))
    }

    fn store_panel(&mut self, me: usize, dst: SmemAddr, panel: &Panel, element: Element) -> Result<(), Failure> {
        self.must_be_warpgroup(me, "store_panel")?;
        let cta = self.agents[me].cta;
        let range = self.smem_range(cta, dst, PANEL_BYTES, SMEM_ALIGN)?;
        let mark = self.own_mark(me);
        self.smem_write(cta, range.clone(), mark)?;
        encode_tile(&panel.0, element, &mut self.ctas[cta].smem[range.start as usize..range.end as usize]);
        Ok(())
    }
}
