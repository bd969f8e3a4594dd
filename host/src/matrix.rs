//! Row-major matrices in host memory.

use rayon::prelude::*;

use crate::{Error, Result};

/// A matrix that owns its elements: `rows` × `cols`, row-major, without gaps.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix<T> {
    rows: usize,
    cols: usize,
    data: Vec<T>,
}

/// A view of `rows` × `cols` elements, row-major; rows are `stride` elements apart, and the gaps are never read.
#[derive(Debug)]
pub struct MatrixRef<'a, T> {
    rows: usize,
    cols: usize,
    stride: usize,
    data: &'a [T],
}

// Derived, these would ask for `T: Copy`.
impl<T> Clone for MatrixRef<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for MatrixRef<'_, T> {}

impl<T> Matrix<T> {
    /// The matrix whose row-major elements are `data`.
    ///
    /// # Errors
    /// `data` does not hold exactly `rows` · `cols` elements.
    pub fn from_vec(rows: usize, cols: usize, data: Vec<T>) -> Result<Self> {
        if rows.checked_mul(cols) != Some(data.len()) {
            return Err(Error::argument(
                "data",
                format!("{} elements", data.len()),
                format!("{rows} × {cols} are needed"),
            ));
        }
        Ok(Self { rows, cols, data })
    }

    /// The matrix of `f(row, col)`, computed in parallel: `f` must not depend on the order of its calls.
    pub fn from_fn(rows: usize, cols: usize, f: impl Fn(usize, usize) -> T + Sync) -> Self
    where
        T: Send,
    {
        // One index for both: rayon then writes each element where it stays, instead of joining pieces.
        let data = (0..rows * cols).into_par_iter().map(|i| f(i / cols, i % cols)).collect();
        Self { rows, cols, data }
    }

    /// Every element through `f`, in parallel.
    pub fn map<U: Send>(&self, f: impl Fn(&T) -> U + Sync + Send) -> Matrix<U>
    where
        T: Sync,
    {
        Matrix { rows: self.rows, cols: self.cols, data: self.data.par_iter().map(f).collect() }
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// All elements, row by row.
    pub fn data(&self) -> &[T] {
        &self.data
    }

    /// All elements, row by row.
    pub fn data_mut(&mut self) -> &mut [T] {
        &mut self.data
    }

    /// All elements, row by row.
    pub fn into_data(self) -> Vec<T> {
        self.data
    }

    /// A view of the whole.
    pub fn view(&self) -> MatrixRef<'_, T> {
        MatrixRef { rows: self.rows, cols: self.cols, stride: self.cols, data: &self.data }
    }
}

impl<'a, T> MatrixRef<'a, T> {
    /// A view of the first elements of `data`; `stride` is the distance between rows, in elements.
    ///
    /// # Errors
    /// `stride` is less than `cols`, or `data` ends before the last element.
    pub fn new(data: &'a [T], rows: usize, cols: usize, stride: usize) -> Result<Self> {
        if stride < cols {
            return Err(Error::argument("stride", stride, format!("rows have {cols} elements")));
        }
        let needed = match rows {
            0 => Some(0),
            _ => (rows - 1).checked_mul(stride).and_then(|n| n.checked_add(cols)),
        };
        if needed.is_none_or(|needed| needed > data.len()) {
            let rule = format!("{rows} rows of {cols}, {stride} apart, need {}", needed.unwrap_or(usize::MAX));
            return Err(Error::argument("data", format!("{} elements", data.len()), rule));
        }
        Ok(Self { rows, cols, stride, data })
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Row `row`, below `rows()`.
    ///
    /// # Panics
    /// There is no such row.
    pub fn row(&self, row: usize) -> &'a [T] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        &self.data[row * self.stride..][..self.cols]
    }

    /// The element at (`row`, `col`).
    ///
    /// # Panics
    /// There is no such element.
    pub fn at(&self, row: usize, col: usize) -> &'a T {
        &self.row(row)[col]
    }

    /// The part of `rows` × `cols` elements that starts at (`first_row`, `first_col`).
    ///
    /// # Errors
    /// The part does not lie inside.
    pub fn part(&self, first_row: usize, first_col: usize, rows: usize, cols: usize) -> Result<Self> {
        let inside = |first: usize, len: usize, all: usize| first.checked_add(len).is_some_and(|end| end <= all);
        if !inside(first_row, rows, self.rows) || !inside(first_col, cols, self.cols) {
            let value = format!("{rows} × {cols} from ({first_row}, {first_col})");
            return Err(Error::argument("part", value, format!("the matrix is {} × {}", self.rows, self.cols)));
        }
        // An empty part at the very end starts past the last element.
        let start = (first_row * self.stride + first_col).min(self.data.len());
        Ok(Self { rows, cols, stride: self.stride, data: &self.data[start..] })
    }

    /// The elements at the crossings of `rows` and `cols`.
    ///
    /// # Panics
    /// An index is out of range.
    pub fn pick(&self, rows: &[usize], cols: &[usize]) -> Matrix<T>
    where
        T: Copy + Send + Sync,
    {
        Matrix::from_fn(rows.len(), cols.len(), |i, j| self.row(rows[i])[cols[j]])
    }

    /// Every element through `f`, in parallel, without the gaps.
    pub fn map<U: Send>(&self, f: impl Fn(&T) -> U + Sync) -> Matrix<U>
    where
        T: Sync,
    {
        Matrix::from_fn(self.rows, self.cols, |row, col| f(self.at(row, col)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_that_do_not_fit_are_errors_that_say_what_is_needed() {
        let data = [0u8; 11];
        assert!(MatrixRef::new(&data, 3, 3, 4).is_ok(), "the last row needs no gap");
        let e = MatrixRef::new(&data, 3, 4, 4).unwrap_err().to_string();
        assert_eq!(e, "data is 11 elements, but 3 rows of 4, 4 apart, need 12");
        let e = MatrixRef::new(&data, 3, 4, 3).unwrap_err().to_string();
        assert_eq!(e, "stride is 3, but rows have 4 elements");
        assert!(MatrixRef::new(&data, usize::MAX, 4, usize::MAX).is_err());
        assert!(MatrixRef::new(&data[..0], 0, 4, 4).is_ok());
        assert!(Matrix::from_vec(2, 2, vec![1]).is_err());
    }

    #[test]
    fn parts_keep_the_stride_and_may_be_empty() {
        let m = Matrix::from_fn(4, 5, |r, c| 10 * r + c);
        let part = m.view().part(1, 2, 2, 3).unwrap();
        assert_eq!(part.map(|&x| x).data(), [12, 13, 14, 22, 23, 24]);
        assert_eq!(part.pick(&[1, 0], &[2]).data(), [24, 14]);
        assert_eq!(m.view().part(4, 0, 0, 5).unwrap().rows(), 0);
        assert!(m.view().part(1, 1, 4, 1).is_err());
        assert!(m.view().part(usize::MAX, 0, 2, 1).is_err());
    }
}
