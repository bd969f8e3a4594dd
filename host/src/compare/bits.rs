//! Bit by bit.

use std::fmt;

use rayon::prelude::*;

use super::Place;
use crate::matrix::MatrixRef;
use crate::scalar::Scalar;
use crate::{Error, Result};

/// The first element whose bits differ, and how many do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BitDifference {
    /// Number of the element, row by row.
    pub element: usize,
    /// Where it is.
    pub place: Place,
    /// The result's bits and value.
    pub actual: (u32, f32),
    /// The expected bits and value.
    pub expected: (u32, f32),
    /// Elements that differ.
    pub differing: usize,
    /// Elements compared.
    pub elements: usize,
}

impl fmt::Display for BitDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { element, place, actual, expected, differing, elements } = self;
        write!(f, "element {element} ({place}) is {:#x} ({}), ", actual.0, actual.1)?;
        write!(f, "expected {:#x} ({}); {differing} of {elements} elements differ", expected.0, expected.1)
    }
}

/// Compares the bits of two matrices; the message places `first_row` rows before them and gives `rank` as theirs.
///
/// # Errors
/// [`Error::BitsDiffer`] with the first element that differs; an argument error if the shapes do.
pub fn compare_bits<T: Scalar>(
    actual: MatrixRef<T>,
    expected: MatrixRef<T>,
    rank: usize,
    first_row: usize,
) -> Result<()> {
    let (rows, cols) = (expected.rows(), expected.cols());
    if (actual.rows(), actual.cols()) != (rows, cols) {
        let value = format!("{} × {}", actual.rows(), actual.cols());
        return Err(Error::argument("actual", value, format!("{rows} × {cols} is expected")));
    }
    let differing_in = |row: usize| {
        let pairs = actual.row(row).iter().zip(expected.row(row)).enumerate();
        pairs.filter(|(_, (a, e))| a.bits() != e.bits()).map(move |(col, _)| (row, col))
    };
    let differing: usize = (0..rows).into_par_iter().map(|row| differing_in(row).count()).sum();
    let Some((row, col)) = (0..rows).find_map(|row| differing_in(row).next()) else { return Ok(()) };
    let show = |m: MatrixRef<T>| (m.at(row, col).bits(), m.at(row, col).to_f32());
    Err(Error::BitsDiffer(Box::new(BitDifference {
        element: row * cols + col,
        place: Place { rank, row: first_row + row, col },
        actual: show(actual),
        expected: show(expected),
        differing,
        elements: rows * cols,
    })))
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;
    use crate::matrix::Matrix;

    #[test]
    fn the_message_gives_element_place_and_both_values() {
        let expected = Matrix::from_fn(3, 4, |r, c| bf16::from_f32((4 * r + c) as f32));
        assert!(compare_bits(expected.view(), expected.view(), 0, 0).is_ok());
        let mut actual = expected.clone();
        actual.data_mut()[6] = bf16::from_f32(6.03125);
        actual.data_mut()[9] = bf16::NAN;
        let message = compare_bits(actual.view(), expected.view(), 2, 100).unwrap_err().to_string();
        let rest =
            "element 6 (row 101, column 2, rank 2) is 0x40c1 (6.03125), expected 0x40c0 (6); 2 of 12 elements differ";
        assert_eq!(message, format!("bits differ: {rest}"));
    }

    #[test]
    fn signs_of_zeros_and_bits_of_nans_count() {
        let one = |x: f32| Matrix::from_vec(1, 1, vec![x]).unwrap();
        assert!(compare_bits(one(-0.0).view(), one(0.0).view(), 0, 0).is_err());
        assert!(compare_bits(one(f32::NAN).view(), one(f32::NAN).view(), 0, 0).is_ok());
        assert!(compare_bits(one(f32::NAN).view(), one(f32::from_bits(u32::MAX)).view(), 0, 0).is_err());
    }

    #[test]
    fn gaps_do_not_count_and_shapes_do() {
        let (a, b) = ([1f32, 2.0, 9.0, 3.0, 4.0, 9.0], [1f32, 2.0, 3.0, 4.0]);
        let (a, b) = (MatrixRef::new(&a, 2, 2, 3).unwrap(), MatrixRef::new(&b, 2, 2, 2).unwrap());
        assert!(compare_bits(a, b, 0, 0).is_ok());
        let part = b.part(0, 0, 1, 2).unwrap();
        assert_eq!(compare_bits(a, part, 0, 0).unwrap_err().to_string(), "actual is 2 × 2, but 1 × 2 is expected");
    }
}
