//! Owned row-major matrices in a rank's memory.

use super::{Buffer, World};
use crate::error::{Error, Result};
use crate::kernels::config::Element;
use crate::plan::MatrixArg;
use crate::scalar::Scalar;

/// A row-major matrix that owns its memory on one rank. Rows start at multiples of 16 bytes, whatever the columns are.
#[derive(Debug)]
pub struct Tensor {
    world: World,
    buffer: Buffer,
    rank: usize,
    rows: usize,
    cols: usize,
    element: Element,
}

impl Tensor {
    /// A rows × cols matrix on `rank`, every byte 0xFF (NaN in every element type), so that nothing can depend on memory
    /// that no one wrote.
    ///
    /// # Errors
    /// [`Error::Argument`] if there is no such rank, [`Error::Driver`] if there is not enough memory.
    pub fn poisoned<T: Scalar>(world: &World, rank: usize, rows: usize, cols: usize) -> Result<Self> {
        let row_bytes = row_bytes(cols, T::ELEMENT);
        let bytes = rows * row_bytes;
        let buffer = world.allocate(rank, (bytes as u64).max(16))?;
        world.write(rank, buffer.addr(), &vec![0xFF; bytes])?;
        Ok(Self { world: world.clone(), buffer, rank, rows, cols, element: T::ELEMENT })
    }

    /// A rows × cols matrix on `rank` with the given elements, row by row.
    ///
    /// # Errors
    /// [`Error::Argument`] if their number is not rows · cols or there is no such rank, [`Error::Driver`] if there is not
    /// enough memory.
    pub fn from_slice<T: Scalar>(world: &World, rank: usize, rows: usize, cols: usize, elements: &[T]) -> Result<Self> {
        if elements.len() != rows * cols {
            let rule = format!("a {rows} × {cols} matrix has {}", rows * cols);
            return Err(Error::argument("number of elements", elements.len(), rule));
        }
        let row_bytes = row_bytes(cols, T::ELEMENT);
        let buffer = world.allocate(rank, ((rows * row_bytes) as u64).max(16))?;
        let packed: &[u8] = bytemuck::cast_slice(elements);
        let used = cols * T::ELEMENT.bytes() as usize;
        if used == row_bytes {
            world.write(rank, buffer.addr(), packed)?;
        } else {
            let mut padded = vec![0xFF; rows * row_bytes];
            for (to, from) in padded.chunks_exact_mut(row_bytes).zip(packed.chunks_exact(used.max(1))) {
                to[..used].copy_from_slice(from);
            }
            world.write(rank, buffer.addr(), &padded)?;
        }
        Ok(Self { world: world.clone(), buffer, rank, rows, cols, element: T::ELEMENT })
    }

    /// The elements, row by row, after everything on the rank's stream.
    ///
    /// # Errors
    /// [`Error::Argument`] if the tensor holds another type, [`Error::Driver`] if the copy fails.
    pub fn to_vec<T: Scalar>(&self) -> Result<Vec<T>> {
        if T::ELEMENT != self.element {
            let rule = format!("the tensor holds {}", self.element.name());
            return Err(Error::argument("element type", T::ELEMENT.name(), rule));
        }
        let row_bytes = row_bytes(self.cols, self.element);
        let mut bytes = vec![0u8; self.rows * row_bytes];
        self.world.read(self.rank, self.buffer.addr(), &mut bytes)?;
        let used = self.cols * self.element.bytes() as usize;
        let mut elements = vec![T::zeroed(); self.rows * self.cols];
        let packed: &mut [u8] = bytemuck::cast_slice_mut(&mut elements);
        for (to, from) in packed.chunks_exact_mut(used.max(1)).zip(bytes.chunks_exact(row_bytes.max(1))) {
            to.copy_from_slice(&from[..used]);
        }
        Ok(elements)
    }

    /// Fills every byte with 0xFF: NaN in every element type.
    ///
    /// # Errors
    /// [`Error::Driver`] if the copy fails.
    pub fn poison(&mut self) -> Result<()> {
        let bytes = vec![0xFF; self.rows * row_bytes(self.cols, self.element)];
        self.world.write(self.rank, self.buffer.addr(), &bytes)
    }

    /// Rank whose memory holds the tensor.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Element type.
    pub fn element(&self) -> Element {
        self.element
    }

    /// Address and stride, as raw calls take them.
    pub fn arg(&self) -> MatrixArg {
        let row_stride = row_bytes(self.cols, self.element) / self.element.bytes() as usize;
        MatrixArg { addr: self.buffer.addr().0, row_stride: row_stride as u64 }
    }

    /// Checks that the tensor is what a call expects.
    pub(crate) fn expect(&self, name: &str, rank: usize, shape: (usize, usize), element: Element) -> Result<()> {
        if self.rank != rank {
            return Err(Error::argument(format!("rank of {name}"), self.rank, format!("it belongs on rank {rank}")));
        }
        if self.element != element {
            let rule = format!("the plan works on {}", element.name());
            return Err(Error::argument(format!("element type of {name}"), self.element.name(), rule));
        }
        if (self.rows, self.cols) != shape {
            let value = format!("{} × {}", self.rows, self.cols);
            return Err(Error::argument(
                format!("shape of {name}"),
                value,
                format!("the call takes {} × {}", shape.0, shape.1),
            ));
        }
        Ok(())
    }
}

/// Bytes from one row to the next: the row, rounded up to 16 bytes.
fn row_bytes(cols: usize, element: Element) -> usize {
    (cols * element.bytes() as usize).next_multiple_of(16)
}
