//! Arithmetic of the tensor cores and of panels: decoding, multiplication, rounding.

use std::sync::LazyLock;

use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};

use super::tensor_map::{swizzle_row_in, swizzled_row};
use crate::kernels::config::{Element, ROW_BYTES};

/// The values of all e4m3 codes, and of all e5m2 codes.
static E4M3: LazyLock<[f32; 256]> =
    LazyLock::new(|| std::array::from_fn(|code| F8E4M3::from_bits(code as u8).to_f32()));
static E5M2: LazyLock<[f32; 256]> =
    LazyLock::new(|| std::array::from_fn(|code| F8E5M2::from_bits(code as u8).to_f32()));

/// Decodes the elements of `bytes` into `out`.
pub(super) fn decode(bytes: &[u8], element: Element, out: &mut [f32]) {
    match element {
        Element::Bf16 => {
            for (v, b) in out.iter_mut().zip(bytes.chunks_exact(2)) {
                *v = f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16);
            }
        }
        Element::F16 => {
            for (v, b) in out.iter_mut().zip(bytes.chunks_exact(2)) {
                *v = f16::from_le_bytes([b[0], b[1]]).to_f32();
            }
        }
        Element::E4m3 => out.iter_mut().zip(bytes).for_each(|(v, b)| *v = E4M3[*b as usize]),
        Element::E5m2 => out.iter_mut().zip(bytes).for_each(|(v, b)| *v = E5M2[*b as usize]),
        Element::F32 => {
            for (v, b) in out.iter_mut().zip(bytes.chunks_exact(4)) {
                *v = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
            }
        }
    }
}

/// Rounds `values` to `element` (to nearest, ties to even) and appends their bytes to `out`.
pub(super) fn encode(values: &[f32], element: Element, out: &mut Vec<u8>) {
    match element {
        Element::Bf16 => values.iter().for_each(|v| out.extend(bf16::from_f32(*v).to_le_bytes())),
        Element::F16 => values.iter().for_each(|v| out.extend(f16::from_f32(*v).to_le_bytes())),
        Element::F32 => values.iter().for_each(|v| out.extend(v.to_le_bytes())),
        Element::E4m3 => out.extend(values.iter().map(|v| F8E4M3::from_f32(*v).to_bits())),
        Element::E5m2 => out.extend(values.iter().map(|v| F8E5M2::from_f32(*v).to_bits())),
    }
}

/// The value rounded to `element` and back.
pub(super) fn round(value: f32, element: Element) -> f32 {
    match element {
        Element::Bf16 => bf16::from_f32(value).to_f32(),
        Element::F16 => f16::from_f32(value).to_f32(),
        Element::F32 => value,
        Element::E4m3 => F8E4M3::from_f32(value).to_f32(),
        Element::E5m2 => F8E5M2::from_f32(value).to_f32(),
    }
}

/// Decodes a swizzled tile into rows of `ROW_BYTES / element` values.
pub(super) fn decode_tile(tile: &[u8], element: Element, out: &mut Vec<f32>) {
    let cols = (ROW_BYTES / element.bytes()) as usize;
    let rows = tile.len() / ROW_BYTES as usize;
    out.resize(rows * cols, 0.0);
    for (row, values) in (0..).zip(out.chunks_exact_mut(cols)) {
        decode(&swizzled_row(tile, row), element, values);
    }
}

/// Decodes a swizzled tile into columns: value `k` of row `n` goes to `out[k · rows + n]`.
pub(super) fn decode_tile_transposed(tile: &[u8], element: Element, out: &mut Vec<f32>) {
    let cols = (ROW_BYTES / element.bytes()) as usize;
    let rows = tile.len() / ROW_BYTES as usize;
    out.resize(rows * cols, 0.0);
    let mut values = [0.0; ROW_BYTES as usize];
    for n in 0..rows {
        decode(&swizzled_row(tile, n as u32), element, &mut values[..cols]);
        for (k, v) in values[..cols].iter().enumerate() {
            out[k * rows + n] = *v;
        }
    }
}

/// Decodes an operand of `boxes` swizzled boxes whose rows are steps along K, side by side along M or N: the value of step
/// `k` and column `n`, of the first `cols`, goes to `out[k · cols + n]`.
pub(super) fn decode_boxes(bytes: &[u8], boxes: usize, cols: usize, element: Element, out: &mut Vec<f32>) {
    let box_cols = (ROW_BYTES / element.bytes()) as usize;
    let depth = bytes.len() / boxes / ROW_BYTES as usize;
    let mut values = vec![0.0; box_cols];
    out.resize(depth * cols, 0.0);
    for (idx, tile) in bytes.chunks_exact(bytes.len() / boxes).enumerate() {
        for k in 0..depth {
            decode(&swizzled_row(tile, k as u32), element, &mut values);
            let row = &mut out[k * cols..(k + 1) * cols];
            row.iter_mut().skip(idx * box_cols).zip(&values).for_each(|(out, value)| *out = *value);
        }
    }
}

/// Turns a rows × cols matrix into its transpose.
pub(super) fn transpose(values: &mut Vec<f32>, cols: usize) {
    let rows = values.len() / cols;
    *values = (0..cols * rows).map(|i| values[i % rows * cols + i / rows]).collect();
}

/// Rounds the values of a panel and writes it, swizzled.
pub(super) fn encode_tile(values: &[f32], element: Element, tile: &mut [u8]) {
    let cols = (ROW_BYTES / element.bytes()) as usize;
    let mut bytes = Vec::with_capacity(ROW_BYTES as usize);
    for (row, values) in (0..).zip(values.chunks_exact(cols)) {
        bytes.clear();
        encode(values, element, &mut bytes);
        swizzle_row_in(tile, row, &bytes);
    }
}

/// `acc += a · b` in f32: `a` is rows × k, `b` is k × n, `acc` is rows × n. Each element adds its products in the order of k.
pub(super) fn multiply(acc: &mut [f32], a: &[f32], b: &[f32], n: usize) {
    if n == 0 {
        return;
    }
    let k = b.len() / n;
    // Tiles are padded with zeros, which change nothing: no accumulator is ever −0, and only 0 · ∞ and 0 · NaN are not 0.
    let zeros_change_nothing = b.iter().all(|x| x.is_finite());
    for (acc_row, a_row) in acc.chunks_exact_mut(n).zip(a.chunks_exact(k)) {
        // Four steps at once, so that the accumulator row is loaded and stored once for four products.
        for (a4, b4) in a_row.chunks_exact(4).zip(b.chunks_exact(4 * n)) {
            if zeros_change_nothing && a4 == [0.0; 4] {
                continue;
            }
            let (b0, rest) = b4.split_at(n);
            let (b1, rest) = rest.split_at(n);
            let (b2, b3) = rest.split_at(n);
            for ((((v, b0), b1), b2), b3) in acc_row.iter_mut().zip(b0).zip(b1).zip(b2).zip(b3) {
                *v = *v + a4[0] * b0 + a4[1] * b1 + a4[2] * b2 + a4[3] * b3;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_to_nearest_even_in_every_type() {
        assert_eq!(round(257.0, Element::Bf16), 256.0);
        assert_eq!(round(259.0, Element::Bf16), 260.0);
        assert_eq!(round(2049.0, Element::F16), 2048.0);
        assert_eq!(round(1.000_000_1, Element::F32), 1.000_000_1);
    }

    #[test]
    fn a_panel_comes_back_rounded() {
        for element in [Element::Bf16, Element::F16, Element::F32, Element::E4m3, Element::E5m2] {
            let cols = ROW_BYTES / element.bytes();
            let values: Vec<f32> = (0..64 * cols).map(|i| i as f32 * 0.37 - 300.0).collect();
            let mut tile = vec![0; 64 * ROW_BYTES as usize];
            encode_tile(&values, element, &mut tile);
            let mut back = Vec::new();
            decode_tile(&tile, element, &mut back);
            assert!(values.iter().zip(&back).all(|(v, b)| round(*v, element) == *b), "{element:?}");
        }
    }

    #[test]
    fn boxes_side_by_side_are_one_row_of_so_many_columns() {
        let (boxes, depth, element) = (3, 8, Element::Bf16);
        let value = |k: usize, n: usize| (k * 16 + n % 16 + n / 64) as f32;
        let mut bytes = vec![0; boxes * depth * ROW_BYTES as usize];
        for (idx, tile) in bytes.chunks_exact_mut(depth * ROW_BYTES as usize).enumerate() {
            let values: Vec<f32> = (0..depth * 64).map(|i| value(i / 64, idx * 64 + i % 64)).collect();
            encode_tile(&values, element, tile);
        }
        // Whole boxes, a part of the last, and none of it.
        for cols in [192, 176, 136, 128] {
            let mut out = vec![9.0; 7];
            decode_boxes(&bytes, boxes, cols, element, &mut out);
            assert_eq!(out.len(), depth * cols);
            assert!((0..depth).all(|k| (0..cols).all(|n| out[k * cols + n] == value(k, n))), "{cols} columns");
        }
    }

    #[test]
    fn the_product_is_that_of_the_definition() {
        let (rows, k, n) = (3, 8, 5);
        let a: Vec<f32> = (0..rows * k).map(|i| (i % 7) as f32 - 3.0).collect();
        let b: Vec<f32> = (0..k * n).map(|i| (i % 5) as f32 - 2.0).collect();
        let mut acc = vec![1.0; rows * n];
        multiply(&mut acc, &a, &b, n);
        for r in 0..rows {
            for c in 0..n {
                let sum: f32 = (0..k).map(|i| a[r * k + i] * b[i * n + c]).sum();
                assert_eq!(acc[r * n + c], 1.0 + sum);
            }
        }
    }

    #[test]
    fn zeros_hide_no_nan_and_no_infinity() {
        for wild in [f32::NAN, f32::INFINITY] {
            let mut acc = [1.0; 2];
            multiply(&mut acc, &[0.0; 4], &[1.0, 2.0, 3.0, wild, 5.0, 6.0, 7.0, 8.0], 2);
            assert!(acc[0] == 1.0 && acc[1].is_nan());
            let mut acc = [1.0; 1];
            multiply(&mut acc, &[0.0, 0.0, wild, 0.0], &[0.0; 4], 1);
            assert!(acc[0].is_nan());
        }
    }

    #[test]
    fn the_transposed_tile_has_rows_as_columns() {
        let mut tile = vec![0; 16 * ROW_BYTES as usize];
        let values: Vec<f32> = (0..16 * 64).map(|i| (i % 200) as f32).collect();
        encode_tile(&values, Element::Bf16, &mut tile);
        let mut out = Vec::new();
        decode_tile_transposed(&tile, Element::Bf16, &mut out);
        assert!((0..16).all(|n| (0..64).all(|k| out[k * 16 + n] == values[n * 64 + k])));
    }
}
