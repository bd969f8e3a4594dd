//! Operands in device memory: random, in several sets, so that none comes again while it is in the cache.

use half::bf16;
use tilewire::driver::{DeviceBuffer, Gpu, Stream};
use tilewire::matrix::Matrix;
use tilewire::{Layout, MatrixArg, Result, data};

/// Bytes by which sets are shifted against each other: no multiple of a row or a tile of any shape here.
const SHIFT_BYTES: usize = 16 * 10_007;

/// A and B of one product, on the host and in `sets` places of one GPU, with as many results of `d_rows` × n.
pub struct Operands {
    pub layout: Layout,
    pub extents: [usize; 3],
    pub a: Matrix<bf16>,
    pub b: Matrix<bf16>,
    sets: Vec<[DeviceBuffer; 3]>,
}

impl Operands {
    /// Random operands. Set 0 holds `a` and `b`; the others hold the same elements, moved round.
    pub fn new(
        gpu: &Gpu,
        stream: &Stream,
        layout: Layout,
        extents: [usize; 3],
        d_rows: usize,
        sets: usize,
        seed: u64,
    ) -> Result<Self> {
        let [m, n, k] = extents;
        let ((a_rows, a_cols), (b_rows, b_cols)) = (layout.a_shape(m, k), layout.b_shape(n, k));
        let a = data::uniform(a_rows, a_cols, 2 * seed);
        let b = data::uniform(b_rows, b_cols, 2 * seed + 1);
        let mut made: Vec<[DeviceBuffer; 3]> = Vec::with_capacity(sets);
        for set in 0..sets {
            // Zero bytes have no address.
            let d = DeviceBuffer::filled(gpu, (d_rows * n * 2).max(256), 0xFF)?;
            let [a, b] = match made.first() {
                None => [DeviceBuffer::from_slice(gpu, a.data())?, DeviceBuffer::from_slice(gpu, b.data())?],
                Some([a, b, _]) => [moved_round(a, set, stream)?, moved_round(b, set, stream)?],
            };
            made.push([a, b, d]);
        }
        stream.synchronize()?;
        Ok(Self { layout, extents, a, b, sets: made })
    }

    /// Bytes of one set.
    pub fn set_bytes([m, n, k]: [usize; 3], d_rows: usize) -> u64 {
        2 * (m * k + n * k + d_rows * n) as u64
    }

    /// Number of sets.
    pub fn num_sets(&self) -> usize {
        self.sets.len()
    }

    /// A, B and D of the set whose turn is call `call`.
    pub fn set(&self, call: usize) -> &[DeviceBuffer; 3] {
        &self.sets[call % self.sets.len()]
    }

    /// The same as the ops take them.
    pub fn args(&self, call: usize) -> [MatrixArg; 3] {
        let [m, n, k] = self.extents;
        let [a, b, d] = self.set(call);
        let cols = [self.layout.a_shape(m, k).1, self.layout.b_shape(n, k).1, n];
        [(a, cols[0]), (b, cols[1]), (d, cols[2])].map(|(buffer, cols)| MatrixArg::packed(buffer.addr().0, cols))
    }

    /// Fills the result of set 0 with NaN.
    pub fn poison(&mut self) -> Result<()> {
        self.sets[0][2].fill(0xFF)
    }

    /// The first `rows` rows of the result of set 0. Call it when the stream has been waited for.
    pub fn result(&self, rows: usize) -> Result<Matrix<bf16>> {
        let n = self.extents[1];
        let mut values = vec![bf16::ZERO; rows * n];
        self.sets[0][2].read(0, &mut values)?;
        Matrix::from_vec(rows, n, values)
    }
}

/// The bytes of `from`, moved round by a distance of set `set`.
pub fn moved_round(from: &DeviceBuffer, set: usize, stream: &Stream) -> Result<DeviceBuffer> {
    let bytes = from.bytes();
    let shift = if bytes == 0 { 0 } else { set * SHIFT_BYTES % bytes };
    let mut to = DeviceBuffer::new(from.gpu(), bytes)?;
    to.copy_from_async(0, from, shift, bytes - shift, stream)?;
    to.copy_from_async(bytes - shift, from, 0, shift, stream)?;
    Ok(to)
}
