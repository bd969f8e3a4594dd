//! The references judge results: they accept right ones, and no permutation of rows, columns or ranks.

use half::bf16;
use tilewire::compare::{Place, Tolerance, compare_bits, compare_chunks, compare_placed};
use tilewire::data;
use tilewire::kernels::config::Element;
use tilewire::matrix::{Matrix, MatrixRef};
use tilewire::reference::fused::{self, Operands};
use tilewire::reference::sampled::{Sample, sampled_truth};
use tilewire::reference::{Layout, reduce_scatter};

fn views<T>(matrices: &[Matrix<T>]) -> Vec<MatrixRef<'_, T>> {
    matrices.iter().map(Matrix::view).collect()
}

fn operands<T>(ranks: &[(Matrix<T>, Matrix<T>)]) -> Vec<Operands<'_, T>> {
    ranks.iter().map(|(a, b)| (a.view(), b.view())).collect()
}

/// Each rank's partial is a pattern of its own (what an identity B makes of A).
fn partials(m: usize, n: usize, world: usize) -> Vec<Matrix<f32>> {
    (0..world).map(|rank| data::pattern(m, n, rank)).collect()
}

fn reduce(partials: &[Matrix<f32>]) -> Vec<Matrix<f32>> {
    reduce_scatter(&views(partials)).unwrap()
}

/// Whether any rank's bits differ.
fn differs(actual: &[Matrix<f32>], expected: &[Matrix<f32>]) -> bool {
    assert_eq!(actual.len(), expected.len());
    actual.iter().zip(expected).any(|(a, e)| compare_bits(a.view(), e.view(), 0, 0).is_err())
}

#[test]
fn an_identity_b_carries_patterns_through_and_ranks_are_summed_not_averaged() {
    for world in [2, 3, 4, 8] {
        let (m, n) = (37, 24);
        let ranks: Vec<(Matrix<bf16>, _)> =
            (0..world).map(|r| (data::pattern(m, n, r), data::identity(n, n))).collect();
        let result: Vec<Matrix<f32>> = fused::protocol::<_, bf16, _>(Layout::Nt, &operands(&ranks)).unwrap();
        assert!(!differs(&result, &reduce(&partials(m, n, world))));
        let sum = |row, col| (0..world).map(|r| data::pattern_value(row, col, r)).sum::<i32>() as f32;
        assert_eq!(*result[1].view().at(0, 5), sum(m.div_ceil(world), 5));
    }
}

#[test]
fn swapping_any_two_rows_or_columns_of_a_partial_is_seen() {
    let (m, n, world) = (20, 9, 3);
    let right = partials(m, n, world);
    let expected = reduce(&right);
    let mut seen = 0;
    for rank in 0..world {
        let mut check = |mutant: Matrix<f32>| {
            let mut partials = right.clone();
            partials[rank] = mutant;
            assert!(differs(&reduce(&partials), &expected));
            seen += 1;
        };
        let swap = |i: usize, x: usize, y: usize| {
            if i == x {
                y
            } else if i == y {
                x
            } else {
                i
            }
        };
        let of = right[rank].view();
        for (x, y) in (0..m).flat_map(|y| (0..y).map(move |x| (x, y))) {
            check(Matrix::from_fn(m, n, |r, c| *of.at(swap(r, x, y), c)));
        }
        for (x, y) in (0..n).flat_map(|y| (0..y).map(move |x| (x, y))) {
            check(Matrix::from_fn(m, n, |r, c| *of.at(r, swap(c, x, y))));
        }
    }
    assert_eq!(seen, 3 * (190 + 36));
}

#[test]
fn ranks_that_change_places_are_seen_where_it_matters() {
    let (m, n, world) = (20, 9, 4);
    let right = partials(m, n, world);
    let expected = reduce(&right);
    // Owners: every rank keeps another's chunk.
    let mut owners = expected.clone();
    owners.rotate_left(1);
    assert!(differs(&owners, &expected));
    // Senders: one partial counted twice, another not at all.
    for (lost, doubled) in [(0, 1), (1, 0), (3, 2)] {
        let mut partials = right.clone();
        partials[lost] = partials[doubled].clone();
        assert!(differs(&reduce(&partials), &expected));
    }
    // Operands: A of one rank with B of another.
    let mut ranks: Vec<(Matrix<bf16>, Matrix<bf16>)> =
        (0..world).map(|r| (data::pattern(m, 16, r), data::pattern(n, 16, 100 + r))).collect();
    let truth = fused::truth(Layout::Nt, &operands(&ranks)).unwrap();
    let swapped = ranks[0].1.clone();
    ranks[0].1 = std::mem::replace(&mut ranks[2].1, swapped);
    let result: Vec<Matrix<bf16>> = fused::protocol::<_, bf16, _>(Layout::Nt, &operands(&ranks)).unwrap();
    let report = compare_chunks(&views(&result), &views(&truth), Tolerance { absolute: 0.0, relative: 0.02 }).unwrap();
    assert!(report.failures * 2 > report.elements && report.clone().check().is_err(), "{report}");
    // The order of addition: sums that f32 must round tell 0, 1, 2, 3 from 3, 2, 1, 0.
    let sized: Vec<Matrix<f32>> = (0..4).map(|r| data::normal(m, n, r)).collect();
    let reversed: Vec<_> = sized.iter().rev().cloned().collect();
    assert!(differs(&reduce(&reversed), &reduce(&sized)));
}

#[test]
fn a_nan_row_stays_in_its_row_and_with_its_owner() {
    let (m, n, world) = (10, 6, 3);
    let mut right = partials(m, n, world);
    let expected = reduce(&right);
    data::poison(&mut right[1].data_mut()[5 * n..6 * n]);
    let result = reduce(&right);
    for (d, row) in [(0, 0..4), (1, 0..4), (2, 0..2)].into_iter().flat_map(|(d, rows)| rows.map(move |r| (d, r))) {
        let (row_of, is_poisoned) = (result[d].view().row(row), (d, row) == (1, 1));
        assert!(if is_poisoned { row_of.iter().all(|x| x.is_nan()) } else { row_of == expected[d].view().row(row) });
    }
}

#[test]
fn a_sample_finds_a_fault_at_any_tile_edge_and_says_where() {
    let (m, n, k, world) = (300, 200, 64, 4);
    let ranks: Vec<(Matrix<bf16>, Matrix<bf16>)> =
        (0..world).map(|r| (data::normal(m, k, r), data::normal(n, k, 10 + r))).collect();
    let sample = Sample::edges(m, n, 4, 32, 64).unwrap().with_random(8, 1);
    let expected = sampled_truth(Layout::Nt, &operands(&ranks), &sample).unwrap();
    let right: Vec<Matrix<bf16>> = fused::protocol::<_, bf16, _>(Layout::Nt, &operands(&ranks)).unwrap();
    let judge = |chunks: &[Matrix<bf16>]| {
        let actual = sample.pick_chunks(&views(chunks)).unwrap();
        let tolerance = Tolerance::for_gemm(k, 4, Element::Bf16);
        compare_placed(actual.view(), expected.view(), tolerance, |i, j| sample.place(i, j)).unwrap()
    };
    assert!(judge(&right).passed());
    // Rank 2 owns rows 150..225; its second tile of 32 rows starts at row 182, the third of 64 columns at 128.
    for (row, col) in [(182, 128), (213, 191), (150, 0), (224, 199)] {
        let mut wrong = right.clone();
        wrong[2].data_mut()[(row - 150) * n + col] = bf16::from_f32(1000.0);
        let report = judge(&wrong);
        assert_eq!((report.failures, report.worst.unwrap().place), (1, Place { rank: 2, row, col }));
    }
}

#[test]
fn elements_past_the_32_bit_range_are_reached() {
    // Row 65663 of 65664 × 32768 starts at byte 4.3e9 of a bf16 result: only its place is computed, nothing is stored.
    let sample = Sample::edges(65_664, 32_768, 2, 128, 256).unwrap();
    let (i, j) = (sample.rows().len() - 1, sample.cols().len() - 1);
    assert_eq!(sample.place(i, j), Place { rank: 1, row: 65_663, col: 32_767 });
    let (a, b) = (data::integers::<bf16>(65_664, 8, 1, 3), data::integers::<bf16>(32_768, 8, 2, 3));
    let expected = sampled_truth(Layout::Nt, &[(a.view(), b.view()); 2], &sample).unwrap();
    let dot: f64 = a.view().row(65_663).iter().zip(b.view().row(32_767)).map(|(a, b)| a.to_f64() * b.to_f64()).sum();
    assert_eq!(*expected.view().at(i, j), 2.0 * dot);
}
