//! The numbers of `docs/numerics.md`.

use half::{bf16, f16};
use tilewire::compare::{GemmNumerics, Report, Tolerance, compare_bits, compare_chunks, operand_scale};
use tilewire::data;
use tilewire::kernels::config::Element;
use tilewire::matrix::{Matrix, MatrixRef};
use tilewire::reference::fused::{self, Operands};
use tilewire::reference::{Layout, reduce_scatter};
use tilewire::scalar::{Scalar, unit_roundoff};

const DOC: &str = include_str!("../docs/numerics.md");

/// The doc says `line`, so a change of the code that changes the number fails here.
fn documented(line: &str) {
    assert!(DOC.lines().any(|l| l.trim() == line.trim()), "docs/numerics.md does not say:\n{line}");
}

/// An accumulator: how a sum in f64 (exact: 24 bits and a product of 16 or 22) becomes the next f32.
type Accumulate = fn(f64) -> f32;

fn to_nearest(x: f64) -> f32 {
    x as f32
}

fn truncating(x: f64) -> f32 {
    let nearest = x as f32;
    if f64::from(nearest).abs() > x.abs() { f32::from_bits(nearest.to_bits() - 1) } else { nearest }
}

/// A·Bᵀ in an f32 accumulator, product after product.
fn accumulate<T: Scalar>(a: MatrixRef<T>, b: MatrixRef<T>, next: Accumulate) -> Matrix<f32> {
    Matrix::from_fn(a.rows(), b.rows(), |i, j| {
        let products = a.row(i).iter().zip(b.row(j)).map(|(a, b)| a.to_f64() * b.to_f64());
        products.fold(0.0, |sum, product| next(f64::from(sum) + product))
    })
}

struct Problem<T> {
    ranks: Vec<(Matrix<T>, Matrix<T>)>,
    truth: Vec<Matrix<f64>>,
}

impl<T: Scalar> Problem<T> {
    /// Nearly normal operands.
    fn new(m: usize, n: usize, k: usize, world: u64) -> Self {
        let rank = |r| (data::normal(m, k, 2 * r), data::normal(n, k, 2 * r + 1));
        let ranks: Vec<_> = (0..world).map(rank).collect();
        let truth = fused::truth(Layout::Nt, &Self::views(&ranks)).unwrap();
        Self { ranks, truth }
    }

    fn views(ranks: &[(Matrix<T>, Matrix<T>)]) -> Vec<Operands<'_, T>> {
        ranks.iter().map(|(a, b)| (a.view(), b.view())).collect()
    }

    fn tolerance(&self, partials: Element, out: Element) -> Tolerance {
        let scale = self.ranks.iter().map(|(a, b)| operand_scale(a.view(), b.view())).fold(0.0, f64::max);
        let (k_per_rank, world) = (self.ranks[0].0.cols(), self.ranks.len());
        GemmNumerics { k_per_rank, world, out, partials, scale }.tolerance()
    }

    /// What a kernel with such accumulators gives, compared with the truth.
    fn run<P: Scalar, D: Scalar>(&self, next: Accumulate) -> Report {
        let partials: Vec<Matrix<P>> =
            self.ranks.iter().map(|(a, b)| accumulate(a.view(), b.view(), next).map(|&x| P::from_f32(x))).collect();
        self.judge::<P, D>(&partials.iter().map(Matrix::view).collect::<Vec<_>>())
    }

    fn judge<P: Scalar, D: Scalar>(&self, partials: &[MatrixRef<P>]) -> Report {
        let result: Vec<Matrix<D>> = reduce_scatter(partials).unwrap();
        let (result, truth): (Vec<_>, Vec<_>) =
            (result.iter().map(Matrix::view).collect(), self.truth.iter().map(Matrix::view).collect());
        compare_chunks(&result, &truth, self.tolerance(P::ELEMENT, D::ELEMENT)).unwrap()
    }
}

#[test]
fn accumulators_that_round_or_truncate_stay_within_tolerance() {
    let mut compared = 0;
    for world in [1, 2, 4, 8] {
        for k in [1, 8, 64, 512, 2048] {
            let (p, h) = (Problem::<bf16>::new(48, 64, k, world), Problem::<f16>::new(48, 64, k, world));
            for next in [to_nearest as Accumulate, truncating] {
                let reports = [
                    p.run::<bf16, bf16>(next),
                    p.run::<f32, bf16>(next),
                    p.run::<f32, f32>(next),
                    h.run::<f16, f16>(next),
                    h.run::<f32, f16>(next),
                ];
                // Results in f32 show the accumulators alone.
                let used = reports[2].worst.map_or(0.0, |worst| worst.error);
                assert!(used < 0.05, "{used} of the tolerance at K = {k}, W = {world}");
                for report in reports {
                    compared += report.elements;
                    report.check().unwrap_or_else(|e| panic!("K = {k}, W = {world}: {e}"));
                }
            }
        }
    }
    assert_eq!(compared, 4 * 5 * 2 * 5 * 48 * 64);
}

#[test]
fn the_worst_case_bound_holds_and_the_statistical_one_is_far_below_it() {
    let k = 2048;
    let p = Problem::<bf16>::new(48, 64, k, 1);
    let (a, b) = (p.ranks[0].0.view(), p.ranks[0].1.view());
    let (sum, exact) = (accumulate(a, b, truncating), &p.truth[0]);
    let size = |m: MatrixRef<bf16>| m.map(|x| bf16::from_f32(x.to_f32().abs()));
    let sizes = fused::unsharded(Layout::Nt, &[(size(a).view(), size(b).view())]).unwrap();
    let (mut largest, mut smallest_bound) = (0f64, f64::INFINITY);
    for ((sum, exact), size) in sum.data().iter().zip(exact.data()).zip(sizes.data()) {
        let n = k as f64 / 8_388_608.0;
        let bound = n / (1.0 - n) * size;
        let error = (f64::from(*sum) - exact).abs();
        assert!(error <= bound);
        (largest, smallest_bound) = (largest.max(error), smallest_bound.min(bound));
    }
    let statistical = p.tolerance(Element::F32, Element::F32).absolute;
    assert!(largest < statistical && statistical < smallest_bound / 2.0, "{largest} {statistical} {smallest_bound}");
}

#[test]
fn a_doubled_partial_a_lost_k_tile_and_shifted_rows_are_beyond_tolerance() {
    let p = Problem::<bf16>::new(48, 64, 512, 4);
    let partials: Vec<Matrix<bf16>> =
        p.ranks.iter().map(|(a, b)| accumulate(a.view(), b.view(), to_nearest).map(|&x| bf16::from_f32(x))).collect();
    let views: Vec<_> = partials.iter().map(Matrix::view).collect();
    assert!(p.judge::<bf16, bf16>(&views).passed());
    let caught = |views: &[MatrixRef<bf16>]| {
        let report = p.judge::<bf16, bf16>(views);
        report.failures as f64 / report.elements as f64
    };
    // A rank's partial is used twice, in place of another's.
    assert!(caught(&[views[0], views[1], views[1], views[3]]) > 0.9);
    // One rank misses its last k_tile of 64.
    let (a, b) = (&p.ranks[2].0, &p.ranks[2].1);
    let (short_a, short_b) = (a.view().part(0, 0, 48, 448).unwrap(), b.view().part(0, 0, 64, 448).unwrap());
    let short = accumulate(short_a, short_b, to_nearest).map(|&x| bf16::from_f32(x));
    assert!(caught(&[views[0], views[1], short.view(), views[3]]) > 0.8);
    // One rank's rows, or columns, are one place off.
    let off = partials[1].view().map(|x| *x);
    let rows = Matrix::from_fn(48, 64, |r, c| off.data()[(r + 1) % 48 * 64 + c]);
    let cols = Matrix::from_fn(48, 64, |r, c| off.data()[r * 64 + (c + 1) % 64]);
    assert!(caught(&[views[0], rows.view(), views[2], views[3]]) > 0.9);
    assert!(caught(&[views[0], cols.view(), views[2], views[3]]) > 0.9);
}

#[test]
fn small_integers_are_exact_through_every_type_and_order() {
    let (k, world) = (512, 4);
    // K · W · max² = 2048 · 81 ≤ 2²⁴.
    let ranks: Vec<(Matrix<bf16>, Matrix<bf16>)> =
        (0..world).map(|r| (data::integers(20, k, 2 * r, 9), data::integers(30, k, 2 * r + 1, 9))).collect();
    let exact = fused::truth(Layout::Nt, &Problem::views(&ranks)).unwrap();
    let protocol: Vec<Matrix<f32>> = fused::protocol::<_, f32, _>(Layout::Nt, &Problem::views(&ranks)).unwrap();
    for next in [to_nearest as Accumulate, truncating] {
        let mut partials: Vec<_> = ranks.iter().map(|(a, b)| accumulate(a.view(), b.view(), next)).collect();
        for _ in 0..world {
            partials.rotate_left(1);
            let result: Vec<Matrix<f32>> =
                reduce_scatter(&partials.iter().map(Matrix::view).collect::<Vec<_>>()).unwrap();
            for d in 0..world as usize {
                compare_bits(result[d].view(), protocol[d].view(), d, 5 * d).unwrap();
                assert_eq!(result[d], exact[d]);
            }
        }
    }
    // One more product of that size, and f32 sums would no longer all be exact.
    assert_eq!(16_777_216f32 + 1.0, 16_777_216.0);
    for (limit, rounded) in [(256.0, bf16::from_f32(257.0).to_f32()), (2048.0, f16::from_f32(2049.0).to_f32())] {
        assert_eq!(rounded, limit);
    }
}

#[test]
fn three_partials_of_257_are_768_in_bf16_and_772_in_f32_and_eight_small_ones_are_not_lost() {
    fn sum<P: Scalar>(values: &[f32]) -> f32 {
        let partials: Vec<Matrix<P>> = values.iter().map(|&v| Matrix::from_fn(1, 1, |_, _| P::from_f32(v))).collect();
        let d: Vec<Matrix<bf16>> = reduce_scatter(&partials.iter().map(Matrix::view).collect::<Vec<_>>()).unwrap();
        d[0].data()[0].to_f32()
    }
    assert_eq!((sum::<bf16>(&[257.0; 3]), sum::<f32>(&[257.0; 3])), (768.0, 772.0));
    documented(
        "| 257 + 257 + 257 | 768 | 772 | bf16 holds no 257: it becomes 256 on the wire; 771 is rounded to 772 |",
    );
    let values = [256.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
    let in_bf16 = values.iter().skip(1).fold(bf16::from_f32(256.0), |sum, &x| bf16::from_f32(sum.to_f32() + x));
    assert_eq!((sum::<bf16>(&values), sum::<f32>(&values), in_bf16.to_f32()), (264.0, 264.0, 256.0));
    documented("| 256 + 7 · 1 | 264 | 264 | the sum is 263; added in bf16, every 1 would be lost and leave 256 |");
    // The order counts: in f32, 2³⁰ swallows what comes before.
    let big = 2f32.powi(30);
    assert_eq!((sum::<f32>(&[1.0, big, -big]), sum::<f32>(&[big, -big, 1.0])), (0.0, 1.0));
    documented("| 1 + 2³⁰ − 2³⁰ | 0 | 0 | in the order of ranks; with the 1 on the last rank it is 1 |");
}

#[test]
fn the_tables_say_what_the_code_computes() {
    for (name, element, bits) in [("bf16", Element::Bf16, 8), ("f16", Element::F16, 11), ("f32", Element::F32, 24)] {
        assert_eq!(unit_roundoff(element), 2f64.powi(-bits));
        let u = format!("{:.2e}", unit_roundoff(element));
        documented(&format!("| {name} | {bits} | 2^-{bits} = {u} | {} |", 1u32 << bits));
    }
    for (k, world) in [(64, 1), (1024, 8), (7168, 4), (14_336, 2), (28_672, 1)] {
        let of = |partials| GemmNumerics { k_per_rank: k, world, out: Element::Bf16, partials, scale: 1.0 }.tolerance();
        assert_eq!(of(Element::Bf16), Tolerance::for_gemm(k, world, Element::Bf16));
        let deviation = ((k * world) as f64).sqrt();
        let (bf16, f32) = (of(Element::Bf16).absolute, of(Element::F32).absolute);
        assert_eq!(of(Element::Bf16).relative, (1.0 + 2f64.powi(-6)) * 2f64.powi(-8));
        documented(&format!("| {k} | {world} | {deviation:.1} | {bf16:.4} | {f32:.4} |"));
    }
    let beyond = 2.0 * (-32f64).exp();
    let all = beyond * 8192.0 * 8192.0;
    assert!(DOC.contains(&format!("2·exp(−32) = {beyond:.2e}: for the 2²⁶ elements of 8192 × 8192, {all:.1e}")));
}
