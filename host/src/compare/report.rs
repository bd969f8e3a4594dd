//! What differs between a result and its reference, by how much and where.

use std::fmt;

use rayon::prelude::*;

use super::Tolerance;
use crate::matrix::MatrixRef;
use crate::scalar::Scalar;
use crate::{Error, Result};

/// Where an element is: its rank, and its row and column in the whole matrix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Rank that holds it; 0 where there are no ranks.
    pub rank: usize,
    /// Row in the whole, not in the rank's chunk.
    pub row: usize,
    /// Column.
    pub col: usize,
}

/// The largest of some error, and the element that has it (the first, if several have).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Extreme {
    /// The error.
    pub error: f64,
    /// Where.
    pub place: Place,
    /// The result's value.
    pub actual: f64,
    /// The reference's value.
    pub expected: f64,
}

/// The outcome of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Elements compared.
    pub elements: u64,
    /// Elements beyond tolerance, those that are finite on one side only among them.
    pub failures: u64,
    /// Elements that are NaN on one side only.
    pub nan_mismatches: u64,
    /// Elements without a NaN that are infinite on one side only, or with different signs. A finite reference that
    /// exceeds the result's type counts as infinite.
    pub inf_mismatches: u64,
    /// Largest |actual − expected|, over elements finite on both sides.
    pub largest_absolute: Option<Extreme>,
    /// Largest |actual − expected| / |expected|, over those whose |expected| exceeds the absolute tolerance: below it,
    /// the ratio says nothing.
    pub largest_relative: Option<Extreme>,
    /// The element that uses most of its tolerance, finite or not; `error` is the used share, so above 1 is a failure.
    pub worst: Option<Extreme>,
    /// What was allowed.
    pub tolerance: Tolerance,
    error_squares: f64,
    expected_squares: f64,
}

impl Report {
    /// The report of no elements.
    pub fn empty(tolerance: Tolerance) -> Self {
        Self {
            elements: 0,
            failures: 0,
            nan_mismatches: 0,
            inf_mismatches: 0,
            largest_absolute: None,
            largest_relative: None,
            worst: None,
            tolerance,
            error_squares: 0.0,
            expected_squares: 0.0,
        }
    }

    /// ‖actual − expected‖ / ‖expected‖ (Frobenius), over elements finite on both sides; 0 if there is no error at all.
    pub fn relative_frobenius(&self) -> f64 {
        if self.error_squares == 0.0 { 0.0 } else { (self.error_squares / self.expected_squares).sqrt() }
    }

    /// Whether every element is within tolerance. True for no elements: look at `elements` where some are due.
    pub fn passed(&self) -> bool {
        self.failures == 0
    }

    /// This report, if it passed.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if an element is beyond tolerance.
    pub fn check(self) -> Result<Self> {
        if self.passed() { Ok(self) } else { Err(Error::Mismatch(Box::new(self))) }
    }

    /// The report of both, `other` being of later elements.
    pub fn merge(self, other: Self) -> Self {
        Self {
            elements: self.elements + other.elements,
            failures: self.failures + other.failures,
            nan_mismatches: self.nan_mismatches + other.nan_mismatches,
            inf_mismatches: self.inf_mismatches + other.inf_mismatches,
            largest_absolute: larger(self.largest_absolute, other.largest_absolute),
            largest_relative: larger(self.largest_relative, other.largest_relative),
            worst: larger(self.worst, other.worst),
            tolerance: self.tolerance,
            error_squares: self.error_squares + other.error_squares,
            expected_squares: self.expected_squares + other.expected_squares,
        }
    }

    fn add(&mut self, place: Place, actual: f64, expected: f64) {
        let extreme = |error| Some(Extreme { error, place, actual, expected });
        self.elements += 1;
        let (mut share, admitted) = (0.0, self.tolerance.admits(actual, expected));
        if actual.is_finite() && expected.is_finite() {
            let error = (actual - expected).abs();
            self.error_squares += error * error;
            self.expected_squares += expected * expected;
            self.largest_absolute = larger(self.largest_absolute, extreme(error));
            if expected.abs() > self.tolerance.absolute {
                self.largest_relative = larger(self.largest_relative, extreme(error / expected.abs()));
            }
            if error > 0.0 {
                share = error / self.tolerance.allowed(expected);
            }
        } else if !admitted {
            share = f64::INFINITY;
            if actual.is_nan() || expected.is_nan() {
                self.nan_mismatches += 1;
            } else {
                self.inf_mismatches += 1;
            }
        }
        self.failures += u64::from(!admitted);
        self.worst = larger(self.worst, extreme(share));
    }
}

fn larger(first: Option<Extreme>, second: Option<Extreme>) -> Option<Extreme> {
    match (first, second) {
        (Some(a), Some(b)) => Some(if b.error > a.error { b } else { a }),
        (a, b) => a.or(b),
    }
}

/// Compares a whole matrix with its reference, rank 0's.
///
/// # Errors
/// The two differ in shape.
pub fn compare<T: Scalar>(actual: MatrixRef<T>, expected: MatrixRef<f64>, tolerance: Tolerance) -> Result<Report> {
    compare_placed(actual, expected, tolerance, |row, col| Place { rank: 0, row, col })
}

/// Compares every rank's chunk with its reference: `actual[d]` and `expected[d]` are what rank d owns.
///
/// # Errors
/// The two differ in their number of ranks, or in a chunk's shape.
pub fn compare_chunks<T: Scalar>(
    actual: &[MatrixRef<T>],
    expected: &[MatrixRef<f64>],
    tolerance: Tolerance,
) -> Result<Report> {
    if actual.len() != expected.len() {
        return Err(Error::argument(
            "actual",
            format!("{} chunks", actual.len()),
            format!("{} are expected", expected.len()),
        ));
    }
    let (mut report, mut first_row) = (Report::empty(tolerance), 0);
    for (rank, (a, e)) in actual.iter().zip(expected).enumerate() {
        let place = |row, col| Place { rank, row: first_row + row, col };
        report = report.merge(compare_placed(*a, *e, tolerance, place)?);
        first_row += e.rows();
    }
    Ok(report)
}

/// Compares two matrices whose element (i, j) is at `place(i, j)` of something bigger.
///
/// # Errors
/// The two differ in shape.
pub fn compare_placed<T: Scalar>(
    actual: MatrixRef<T>,
    expected: MatrixRef<f64>,
    tolerance: Tolerance,
    place: impl Fn(usize, usize) -> Place + Sync,
) -> Result<Report> {
    if (actual.rows(), actual.cols()) != (expected.rows(), expected.cols()) {
        let show = |m, n| format!("{m} × {n}");
        let rule = format!("the reference is {}", show(expected.rows(), expected.cols()));
        return Err(Error::argument("actual", show(actual.rows(), actual.cols()), rule));
    }
    let of_row = |row| {
        let mut report = Report::empty(tolerance);
        for (col, (a, e)) in actual.row(row).iter().zip(expected.row(row)).enumerate() {
            // A finite reference that the type cannot hold must have become an infinity.
            let rounded = T::from_f64(*e).to_f64();
            report.add(place(row, col), a.to_f64(), if rounded.is_infinite() { rounded } else { *e });
        }
        report
    };
    // Rows are merged in order, so that sums and ties do not depend on threads.
    let rows: Vec<Report> = (0..actual.rows()).into_par_iter().map(of_row).collect();
    Ok(rows.into_iter().fold(Report::empty(tolerance), Report::merge))
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "row {}, column {}, rank {}", self.row, self.col, self.rank)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tolerance { absolute, relative } = self.tolerance;
        write!(f, "{} of {} elements beyond {absolute:.3e} + {relative:.3e}·|expected|", self.failures, self.elements)?;
        write!(f, ", {} NaN and {} Inf mismatches", self.nan_mismatches, self.inf_mismatches)?;
        let errors = [
            ("largest share of the tolerance", self.worst),
            ("largest absolute error", self.largest_absolute),
            ("largest relative error", self.largest_relative),
        ];
        for (name, extreme) in errors {
            if let Some(Extreme { error, place, actual, expected }) = extreme {
                write!(f, "; {name} {error:.3e} at {place}: {actual} for {expected}")?;
            }
        }
        write!(f, "; relative Frobenius error {:.3e}", self.relative_frobenius())
    }
}

#[cfg(test)]
mod tests;
