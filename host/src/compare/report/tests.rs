use half::{bf16, f16};

use super::*;
use crate::matrix::Matrix;

const ONE_PERCENT: Tolerance = Tolerance { absolute: 0.0, relative: 0.01 };

fn report(actual: &[f32], expected: &[f64], tolerance: Tolerance) -> Report {
    let actual = MatrixRef::new(actual, 1, actual.len(), actual.len()).unwrap();
    let expected = MatrixRef::new(expected, 1, expected.len(), expected.len()).unwrap();
    compare(actual, expected, tolerance).unwrap()
}

#[test]
fn it_names_the_worst_elements_and_their_values() {
    let r = report(&[1.0, 103.0, 2.5], &[1.0, 100.0, 2.0], ONE_PERCENT);
    assert_eq!((r.elements, r.failures), (3, 2));
    let absolute = r.largest_absolute.unwrap();
    assert_eq!((absolute.error, absolute.place.col, absolute.actual, absolute.expected), (3.0, 1, 103.0, 100.0));
    assert_eq!(r.largest_relative.unwrap().place.col, 2);
    assert_eq!(r.worst.unwrap().error, 25.0);
    assert_eq!(r.relative_frobenius(), (9.25f64 / 10005.0).sqrt());
    let message = r.check().unwrap_err().to_string();
    assert!(message.contains("2 of 3 elements beyond 0.000e0 + 1.000e-2·|expected|"), "{message}");
    assert!(message.contains("largest absolute error 3.000e0 at row 0, column 1, rank 0: 103 for 100"), "{message}");
}

#[test]
fn nans_and_infinities_that_do_not_match_are_counted_and_fail_whatever_the_tolerance() {
    let wide = Tolerance { absolute: 1e300, relative: 1e300 };
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let r = report(
        &[nan, 1.0, inf, 1.0, -inf, nan],
        &[1.0, f64::NAN, 1.0, f64::INFINITY, f64::INFINITY, f64::INFINITY],
        wide,
    );
    assert_eq!((r.failures, r.nan_mismatches, r.inf_mismatches), (6, 3, 3));
    assert_eq!(r.worst.unwrap().place.col, 0, "the first of several");
    let r = report(&[nan, inf, -inf], &[f64::NAN, f64::INFINITY, f64::NEG_INFINITY], Tolerance::EXACT);
    assert!(r.passed() && r.relative_frobenius() == 0.0);
}

#[test]
fn a_reference_beyond_the_type_must_have_become_an_infinity() {
    let actual = Matrix::from_vec(1, 2, vec![f16::INFINITY, f16::MAX]).unwrap();
    let expected = Matrix::from_vec(1, 2, vec![7e4, 7e4]).unwrap();
    let r = compare(actual.view(), expected.view(), Tolerance { absolute: 1e5, relative: 1.0 }).unwrap();
    assert_eq!((r.failures, r.inf_mismatches), (1, 1));
}

#[test]
fn zeros_are_compared_without_dividing_by_them() {
    let r = report(&[0.0, -0.0, 1e-9], &[0.0, 0.0, 0.0], Tolerance { absolute: 1e-8, relative: 0.0 });
    assert!(r.passed() && r.largest_relative.is_none());
    let r = report(&[0.0, 1e-9], &[0.0, 0.0], Tolerance::EXACT);
    assert_eq!((r.failures, r.worst.unwrap().error), (1, f64::INFINITY));
    assert!(report(&[], &[], Tolerance::EXACT).passed());
}

#[test]
fn chunks_are_placed_in_the_whole() {
    let expected: Vec<Matrix<f64>> = (0..3).map(|d| Matrix::from_fn(2, 4, |r, c| (8 * d + 4 * r + c) as f64)).collect();
    let mut actual: Vec<Matrix<bf16>> = expected.iter().map(|m| m.map(|&x| bf16::from_f64(x))).collect();
    let run = |actual: &[Matrix<bf16>]| {
        let (a, e): (Vec<_>, Vec<_>) =
            (actual.iter().map(Matrix::view).collect(), expected.iter().map(Matrix::view).collect());
        compare_chunks(&a, &e, ONE_PERCENT)
    };
    assert_eq!(run(&actual).unwrap().elements, 24);
    actual[2].data_mut()[6] = bf16::ZERO;
    assert_eq!(run(&actual).unwrap().worst.unwrap().place, Place { rank: 2, row: 5, col: 2 });
    assert!(run(&actual[..2]).is_err());
}

#[test]
fn shapes_that_differ_are_an_error() {
    let (a, e) = (Matrix::from_fn(2, 3, |_, _| 0f32), Matrix::from_fn(3, 2, |_, _| 0f64));
    let message = compare(a.view(), e.view(), Tolerance::EXACT).unwrap_err().to_string();
    assert_eq!(message, "actual is 2 × 3, but the reference is 3 × 2");
}

#[test]
fn reports_do_not_depend_on_the_number_of_threads() {
    let e = crate::data::normal::<f32>(200, 100, 1).map(|&x| f64::from(x));
    let a = e.map(|&x| bf16::from_f64(x));
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| compare(a.view(), e.view(), ONE_PERCENT).unwrap())
    };
    assert_eq!(run(1), run(6));
}
