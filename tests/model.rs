//! Weights of a real model through GEMM + ReduceScatter's references.

use half::bf16;
use tilewire::compare::{GemmNumerics, compare_chunks, operand_scale};
use tilewire::data;
use tilewire::kernels::config::Element;
use tilewire::matrix::Matrix;
use tilewire::model::{DownProjection, KShards, ModelFile};
use tilewire::reference::{Layout, fused, gemm};

#[test]
#[ignore = "needs .models/minilm-layer.safetensors: run scripts/fetch-minilm"]
fn a_real_down_projection_is_found_sharded_and_summed_back() {
    let file = ModelFile::open(concat!(env!("CARGO_MANIFEST_DIR"), "/.models/minilm-layer.safetensors")).unwrap();
    let found = file.down_projections().unwrap();
    let expected = DownProjection { name: "encoder.layer.0.output.dense.weight".into(), n: 384, k: 1536 };
    assert_eq!(found, [expected], "attention's own output.dense is in the file too, and is none");
    let b = file.read(&found[0]).unwrap();
    let spread = b.data().iter().map(|x| f64::from(x.to_f32()).powi(2)).sum::<f64>() / b.data().len() as f64;
    assert!((0.01..1.0).contains(&spread.sqrt()), "weights of size {}", spread.sqrt());

    let a = data::normal::<bf16>(100, found[0].k, 1);
    for world in [1, 2, 3, 4, 8] {
        let shards = KShards::new(found[0].k, world).unwrap();
        let (a_r, b_r) = (shards.cut(a.view()).unwrap(), shards.cut(b.view()).unwrap());
        let ranks: Vec<_> = a_r.iter().zip(&b_r).map(|(a, b)| (a.view(), b.view())).collect();
        let truth = fused::truth(Layout::Nt, &ranks).unwrap();
        let whole = gemm(Layout::Nt, a.view(), b.view()).unwrap();
        let joined: Vec<f64> = truth.iter().flat_map(|m| m.data().to_vec()).collect();
        let off = joined.iter().zip(whole.data()).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
        assert!(off < 1e-12, "cutting K changes nothing but f64's last bits: {off}");

        let result: Vec<Matrix<bf16>> = fused::protocol::<_, bf16, _>(Layout::Nt, &ranks).unwrap();
        let (result, truth): (Vec<_>, Vec<_>) =
            (result.iter().map(Matrix::view).collect(), truth.iter().map(Matrix::view).collect());
        let scale = ranks.iter().map(|(a, b)| operand_scale(*a, *b)).fold(0.0, f64::max);
        let (k_per_rank, bf16) = (shards.width(), Element::Bf16);
        let tolerance = GemmNumerics { k_per_rank, world, out: bf16, partials: bf16, scale }.tolerance();
        compare_chunks(&result, &truth, tolerance).unwrap().check().unwrap();
    }
}
