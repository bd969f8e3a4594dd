use std::collections::HashMap;

use safetensors::tensor::TensorView;
use tempfile::NamedTempFile;

use super::*;

/// A file of tensors (name, type, shape, little-endian bytes).
fn file(tensors: &[(&str, Dtype, &[usize], Vec<u8>)]) -> NamedTempFile {
    let view = |(name, dtype, shape, bytes): &(&str, Dtype, &[usize], Vec<u8>)| {
        (name.to_string(), TensorView::new(*dtype, shape.to_vec(), bytes).unwrap().data().to_vec())
    };
    let owned: HashMap<String, Vec<u8>> = tensors.iter().map(view).collect();
    let views = tensors
        .iter()
        .map(|(name, dtype, shape, _)| (*name, TensorView::new(*dtype, shape.to_vec(), &owned[*name]).unwrap()));
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), safetensors::serialize(views, None).unwrap()).unwrap();
    file
}

fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

fn ramp(len: usize) -> Vec<u8> {
    f32s(&(0..len).map(|i| i as f32).collect::<Vec<_>>())
}

fn reason(result: Result<impl std::fmt::Debug>, file: &NamedTempFile) -> String {
    let message = result.unwrap_err().to_string();
    let prefix = format!("{}: ", file.path().display());
    message.strip_prefix(&prefix).unwrap_or_else(|| panic!("{message} does not name {prefix}")).to_string()
}

#[test]
fn down_projections_are_found_in_order_of_layers_and_attention_is_left_out() {
    let names =
        ["layer.10.output.dense.weight", "layer.9.output.dense.weight", "layer.9.attention.output.dense.weight"];
    let f = file(&names.map(|name| (name, Dtype::F32, &[2usize, 3][..], ramp(6))));
    let found = ModelFile::open(f.path()).unwrap().down_projections().unwrap();
    assert!(found.iter().map(|p| p.name.as_str()).eq([names[1], names[0]]));
    assert!(found.iter().all(|p| (p.n, p.k) == (2, 3)));
}

#[test]
fn every_type_is_read_as_bf16() {
    let values = [1.0, -2.5, 257.0, 0.125, 259.0, -0.0f32];
    let halves: Vec<u8> = values.iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()).collect();
    let bf16s: Vec<u8> = values.iter().flat_map(|&x| bf16::from_f32(x).to_le_bytes()).collect();
    let f = file(&[
        ("a.down_proj.weight", Dtype::F32, &[2, 3], f32s(&values)),
        ("b.down_proj.weight", Dtype::F16, &[2, 3], halves),
        ("c.down_proj.weight", Dtype::BF16, &[2, 3], bf16s),
    ]);
    let model = ModelFile::open(f.path()).unwrap();
    for projection in model.down_projections().unwrap() {
        let read = model.read(&projection).unwrap();
        assert_eq!((read.rows(), read.cols()), (2, 3));
        assert_eq!(read.map(|x| x.to_f32()).data(), [1.0, -2.5, 256.0, 0.125, 260.0, -0.0], "{}", projection.name);
    }
}

#[test]
fn a_file_cut_anywhere_is_an_error_and_never_a_panic() {
    let f = file(&[("a.down_proj.weight", Dtype::F32, &[2, 3], ramp(6)), ("b", Dtype::F32, &[4], ramp(4))]);
    let whole = std::fs::read(f.path()).unwrap();
    for len in 0..whole.len() {
        std::fs::write(f.path(), &whole[..len]).unwrap();
        let reason = reason(ModelFile::open(f.path()), &f);
        assert!(reason.starts_with("truncated: "), "{reason}");
        if len == whole.len() - 1 {
            assert_eq!(reason, format!("truncated: tensor b ends at byte {}, but the file at {len}", whole.len()));
        }
    }
    std::fs::write(f.path(), [&whole[..], &[0]].concat()).unwrap();
    assert!(reason(ModelFile::open(f.path()), &f).starts_with("the last tensor ends at byte"));
}

#[test]
fn a_file_that_shrinks_after_opening_is_an_error() {
    let f = file(&[("a.down_proj.weight", Dtype::F32, &[2, 3], ramp(6))]);
    let model = ModelFile::open(f.path()).unwrap();
    let projection = &model.down_projections().unwrap()[0];
    let whole = std::fs::read(f.path()).unwrap();
    std::fs::write(f.path(), &whole[..whole.len() - 1]).unwrap();
    assert!(matches!(model.read(projection), Err(Error::Io { .. })));
}

#[test]
fn garbage_is_an_error() {
    let f = NamedTempFile::new().unwrap();
    for (bytes, expected) in [
        (&b"GGUF and a lot more"[..], "not a safetensors file: its header would be"),
        (&b"\x02\0\0\0\0\0\0\0[]"[..], "the header is not that of a safetensors file:"),
        (&b"\x02\0\0\0\0\0\0\0\xFF\xFF"[..], "the header is not that of a safetensors file:"),
    ] {
        std::fs::write(f.path(), bytes).unwrap();
        let reason = reason(ModelFile::open(f.path()), &f);
        assert!(reason.starts_with(expected), "{reason}");
    }
    assert!(matches!(ModelFile::open("no/such/file"), Err(Error::Io { .. })));
}

#[test]
fn offsets_that_lie_are_an_error() {
    let f = NamedTempFile::new().unwrap();
    for header in [
        r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}"#,
        r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}"#,
        r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#,
        r#"{"a":{"dtype":"F32","shape":[18446744073709551615,2],"data_offsets":[0,4]}}"#,
    ] {
        let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 8]].concat();
        std::fs::write(f.path(), bytes).unwrap();
        let reason = reason(ModelFile::open(f.path()), &f);
        assert!(reason.starts_with("the header is not that of a safetensors file:"), "{reason}");
    }
}

#[test]
fn without_a_match_the_nearest_names_are_listed() {
    let f = file(&[
        ("h.0.mlp.down_projection.weight", Dtype::F32, &[1, 1], ramp(1)),
        ("h.0.attention.output.dense.weight", Dtype::F32, &[1, 1], ramp(1)),
        ("embeddings", Dtype::F32, &[1, 1], ramp(1)),
    ]);
    let model = ModelFile::open(f.path()).unwrap();
    assert_eq!(
        reason(model.down_projections(), &f),
        "none of 3 tensors is a down projection, whose name ends in output.dense.weight or down_proj.weight and does not \
         contain attention; nearest: h.0.attention.output.dense.weight, h.0.mlp.down_projection.weight, embeddings"
    );
    let reason = reason(model.down_projection("embedding"), &f);
    assert!(reason.starts_with("there is no tensor embedding; nearest: embeddings, "), "{reason}");
}

#[test]
fn a_wrong_type_or_rank_names_the_tensor_and_the_rule() {
    let f = file(&[
        ("a.down_proj.weight", Dtype::I32, &[2, 3], ramp(6)),
        ("b.down_proj.weight", Dtype::F32, &[6], ramp(6)),
        ("c.down_proj.weight", Dtype::F32, &[1, 2, 3], ramp(6)),
    ]);
    let model = ModelFile::open(f.path()).unwrap();
    let of = |name| reason(model.down_projection(name), &f);
    assert_eq!(of("a.down_proj.weight"), "tensor a.down_proj.weight is of type I32, but a weight is F32, F16 or BF16");
    let rule = "but a weight has 2 dimensions, N × K";
    assert_eq!(of("b.down_proj.weight"), format!("tensor b.down_proj.weight has shape [6], {rule}"));
    assert_eq!(of("c.down_proj.weight"), format!("tensor c.down_proj.weight has shape [1, 2, 3], {rule}"));
    assert!(model.down_projections().is_err());
}

#[test]
fn a_projection_of_another_file_is_refused() {
    let f = file(&[("a.down_proj.weight", Dtype::F32, &[2, 3], ramp(6))]);
    let other = DownProjection { name: "a.down_proj.weight".into(), n: 3, k: 2 };
    let reason = reason(ModelFile::open(f.path()).unwrap().read(&other), &f);
    assert_eq!(reason, "tensor a.down_proj.weight is 2 × 3, but 3 × 2 was asked for");
}
