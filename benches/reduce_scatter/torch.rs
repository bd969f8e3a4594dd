//! PyTorch's fused op in the table: what `benches/torch_fused.py` wrote, in processes of its own, into the folder of this run's
//! results. Its times are not of the same turns as ours, so its ratio is to torch's own unfused path, timed in turns with it.

use std::fs;
use std::path::Path;

use serde_json::Value;

/// File of the script's results in the folder of a run.
const FILE: &str = "torch_fused.json";

/// What torch took for one shape.
pub struct Torch {
    pub name: &'static str,
    pub seconds: f64,
    /// Its unfused path's time over the fused op's, and the spread.
    pub ratio: Option<(f64, f64)>,
}

/// Both of torch's paths for a shape over `world` ranks, or none if the script did not run, or failed at it.
pub fn of(out: Option<&Path>, extents: [usize; 3], world: usize) -> Vec<Torch> {
    let text = out.and_then(|out| fs::read_to_string(out.join(FILE)).ok());
    let all: Value = text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    let rows = all["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
    let Some(row) = rows.iter().find(|row| row["world"] == world && row["extents"] == serde_json::json!(extents))
    else {
        return Vec::new();
    };
    let ratio = row["ratio"].as_f64().zip(row["spread"].as_f64());
    let one = |name, key: &str, ratio| row[key].as_f64().map(|seconds| Torch { name, seconds, ratio });
    [one("torch fused", "fused_seconds", ratio), one("torch gemm, then nccl", "unfused_seconds", Some((1.0, 0.0)))]
        .into_iter()
        .flatten()
        .collect()
}
