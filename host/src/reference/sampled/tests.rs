use half::bf16;

use super::*;
use crate::data;
use crate::reference::fused::{truth, unsharded};

#[test]
fn edges_are_those_of_every_tile_and_chunk() {
    let s = Sample::edges(10, 5, 3, 3, 4).unwrap();
    // Chunks 0..4, 4..8, 8..10, in tiles of 3, the last of each short.
    assert_eq!(s.rows(), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(s.cols(), [0, 2, 3, 4]);
    let s = Sample::edges(8192, 8192, 4, 128, 256).unwrap();
    assert_eq!((s.rows().len(), s.cols().len()), (64 * 3 + 4 - 4, 32 * 3));
    assert!([0, 64, 127, 128, 2047, 2048, 8191].iter().all(|r| s.rows().contains(r)));
    assert!(Sample::edges(0, 0, 4, 128, 256).unwrap().with_random(5, 1).rows().is_empty());
    assert!(Sample::edges(4, 4, 1, 0, 1).is_err());
}

#[test]
fn random_rows_repeat_with_their_seed() {
    let s = |seed| Sample::edges(1000, 1000, 2, 128, 128).unwrap().with_random(20, seed);
    assert_eq!(s(1), s(1));
    assert_ne!(s(1), s(2));
    assert!(s(1).rows().is_sorted() && s(1).rows().len() > 24 && s(1).rows().iter().all(|&r| r < 1000));
}

#[test]
fn the_sample_of_the_product_is_the_product_of_the_sample() {
    for layout in [Layout::Nt, Layout::Nn, Layout::Tn] {
        let (a, b) = match layout {
            Layout::Nt => (data::integers::<bf16>(70, 24, 1, 9), data::integers(50, 24, 2, 9)),
            Layout::Nn => (data::integers(70, 24, 1, 9), data::integers(24, 50, 2, 9)),
            Layout::Tn => (data::integers(24, 70, 1, 9), data::integers(24, 50, 2, 9)),
        };
        let sample = Sample::edges(70, 50, 1, 16, 16).unwrap().with_random(3, 4);
        let whole = gemm(layout, a.view(), b.view()).unwrap();
        let picked = sample.pick(whole.view()).unwrap();
        assert_eq!(sampled_gemm(layout, a.view(), b.view(), &sample).unwrap(), picked);
    }
}

#[test]
fn sharded_results_are_sampled_where_their_owners_keep_them() {
    for m in [9, 23, 64] {
        let ranks: Vec<_> =
            (0..8).map(|r| (data::integers::<bf16>(m, 8, r, 5), data::integers(21, 8, 50 + r, 5))).collect();
        let views: Vec<_> = ranks.iter().map(|(a, b)| (a.view(), b.view())).collect();
        let sample = Sample::edges(m, 21, 8, 4, 8).unwrap();
        let chunks = truth(Layout::Nt, &views).unwrap();
        let chunks: Vec<_> = chunks.iter().map(Matrix::view).collect();
        let sampled = sampled_truth(Layout::Nt, &views, &sample).unwrap();
        assert_eq!(sample.pick_chunks(&chunks).unwrap(), sampled);
        assert_eq!(sample.pick(unsharded(Layout::Nt, &views).unwrap().view()).unwrap(), sampled);
        for i in 0..sample.rows().len() {
            let place = sample.place(i, 0);
            let chunk = chunks_of(m, 8).unwrap()[place.rank];
            assert!((chunk.first_row..chunk.first_row + chunk.rows).contains(&(place.row as u32)));
        }
        assert!(sample.pick_chunks(&chunks[..7]).is_err());
    }
}

#[test]
fn a_sample_of_another_shape_is_refused() {
    let a = data::integers::<bf16>(8, 8, 1, 5);
    let sample = Sample::edges(9, 8, 1, 4, 4).unwrap();
    let e = sampled_gemm(Layout::Nt, a.view(), a.view(), &sample).unwrap_err().to_string();
    assert_eq!(e, "product is 8 × 8, but the sample is of 9 × 8");
    assert!(sampled_truth(Layout::Nt, &[(a.view(), a.view())], &Sample::edges(8, 8, 2, 4, 4).unwrap()).is_err());
}
