//! A safetensors file, of which only the header and the tensors asked for are ever read.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use rayon::prelude::*;
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};

use super::nearest::nearest;
use crate::matrix::Matrix;
use crate::{Error, Result};

/// Ends of the names of down projections.
const SUFFIXES: [&str; 2] = ["output.dense.weight", "down_proj.weight"];
/// What those of attention's output projections contain besides.
const EXCLUDED: &str = "attention";
/// Longest header that is read, in bytes: the limit of the format's own library.
const MAX_HEADER_BYTES: u64 = 100_000_000;
/// Bytes of the length before the header.
const LENGTH_BYTES: u64 = 8;
/// Names that an error lists.
const LISTED: usize = 5;

/// An open safetensors file whose header has been checked: every tensor lies inside the file.
#[derive(Debug)]
pub struct ModelFile {
    path: PathBuf,
    metadata: Metadata,
    data_start: u64,
}

/// A feed-forward down projection: B, N × K.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DownProjection {
    /// The tensor's name.
    pub name: String,
    /// Rows: the layer's hidden size.
    pub n: usize,
    /// Columns: the layer's intermediate size.
    pub k: usize,
}

impl ModelFile {
    /// Opens `path` and reads its header.
    ///
    /// # Errors
    /// The file cannot be read; it is truncated, longer than its header says, or not a safetensors file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let io = |source| Error::Io { path: path.display().to_string(), source };
        let bad = |reason: String| model_error(path, reason);
        let mut file = File::open(path).map_err(io)?;
        let file_bytes = file.metadata().map_err(io)?.len();
        if file_bytes < LENGTH_BYTES {
            return Err(bad(format!(
                "truncated: {file_bytes} bytes, but a safetensors file starts with a length of 8 bytes"
            )));
        }
        let mut length = [0; LENGTH_BYTES as usize];
        file.read_exact(&mut length).map_err(io)?;
        let header_bytes = u64::from_le_bytes(length);
        if header_bytes > MAX_HEADER_BYTES {
            return Err(bad(format!(
                "not a safetensors file: its header would be {header_bytes} bytes, but at most {MAX_HEADER_BYTES} are allowed"
            )));
        }
        let data_start = LENGTH_BYTES + header_bytes;
        if data_start > file_bytes {
            return Err(bad(format!("truncated: the header ends at byte {data_start}, but the file at {file_bytes}")));
        }
        let mut header = vec![0; header_bytes as usize];
        file.read_exact(&mut header).map_err(io)?;
        let metadata: Metadata = serde_json::from_slice(&header)
            .map_err(|e| bad(format!("the header is not that of a safetensors file: {e}")))?;
        let this = Self { path: path.to_path_buf(), metadata, data_start };
        this.check_extent(file_bytes)?;
        Ok(this)
    }

    /// The tensors of the header fill the rest of the file, no more and no less.
    fn check_extent(&self, file_bytes: u64) -> Result<()> {
        let end_of = |info: &TensorInfo| self.data_start.saturating_add(info.data_offsets.1 as u64);
        for name in self.metadata.offset_keys() {
            if let Some(info) = self.metadata.info(&name).filter(|info| end_of(info) > file_bytes) {
                let end = end_of(info);
                return Err(
                    self.error(format!("truncated: tensor {name} ends at byte {end}, but the file at {file_bytes}"))
                );
            }
        }
        let end = self.data_start.saturating_add(self.metadata.data_len() as u64);
        if end != file_bytes {
            return Err(self.error(format!("the last tensor ends at byte {end}, but the file at {file_bytes}")));
        }
        Ok(())
    }

    /// All down projections, layers in order of their numbers.
    ///
    /// # Errors
    /// No tensor's name matches (the nearest names are listed); one that does is not 2-D, or of a type other than F32,
    /// F16 and BF16.
    pub fn down_projections(&self) -> Result<Vec<DownProjection>> {
        let names = self.metadata.offset_keys();
        let matches = |name: &&String| SUFFIXES.iter().any(|s| name.ends_with(s)) && !name.contains(EXCLUDED);
        let mut found: Vec<&String> = names.iter().filter(matches).collect();
        if found.is_empty() {
            let nearest = nearest(names.iter().map(String::as_str), &SUFFIXES, LISTED).join(", ");
            return Err(self.error(format!(
                "none of {} tensors is a down projection, whose name ends in {} and does not contain {EXCLUDED}; nearest: {}",
                names.len(),
                SUFFIXES.join(" or "),
                if nearest.is_empty() { "none" } else { &nearest }
            )));
        }
        found.sort_by_cached_key(|name| natural_key(name));
        found.into_iter().map(|name| self.down_projection(name)).collect()
    }

    /// The tensor `name`, whatever it is called, as a down projection.
    ///
    /// # Errors
    /// There is no such tensor (the nearest names are listed); it is not 2-D, or of a type other than F32, F16 and BF16.
    pub fn down_projection(&self, name: &str) -> Result<DownProjection> {
        let (info, _) = self.weight(name)?;
        match info.shape[..] {
            [n, k] => Ok(DownProjection { name: name.into(), n, k }),
            ref shape => {
                Err(self.error(format!("tensor {name} has shape {shape:?}, but a weight has 2 dimensions, N × K")))
            }
        }
    }

    /// The weight in bf16, N × K; F32 and F16 are rounded once, to nearest even.
    ///
    /// # Errors
    /// As [`down_projection`](Self::down_projection); the file cannot be read any more, or its tensor has another shape.
    pub fn read(&self, projection: &DownProjection) -> Result<Matrix<bf16>> {
        let DownProjection { name, n, k } = self.down_projection(&projection.name)?;
        if (n, k) != (projection.n, projection.k) {
            let rule = format!("tensor {name} is {n} × {k}");
            return Err(self.error(format!("{rule}, but {} × {} was asked for", projection.n, projection.k)));
        }
        let (info, weight) = self.weight(&name)?;
        let bytes =
            self.read_bytes(info).map_err(|source| Error::Io { path: self.path.display().to_string(), source })?;
        let data = bytes.par_chunks_exact(weight.bytes).map(weight.to_bf16).collect();
        Matrix::from_vec(n, k, data)
    }

    fn read_bytes(&self, info: &TensorInfo) -> std::io::Result<Vec<u8>> {
        let (start, end) = info.data_offsets;
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.data_start + start as u64))?;
        // Not allocated at once: the file may have shrunk since its header was checked.
        let mut bytes = Vec::new();
        file.take((end - start) as u64).read_to_end(&mut bytes)?;
        if bytes.len() < end - start {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok(bytes)
    }

    fn weight(&self, name: &str) -> Result<(&TensorInfo, WeightType)> {
        let info = self.metadata.info(name).ok_or_else(|| {
            let names = self.metadata.offset_keys();
            let nearest = nearest(names.iter().map(String::as_str), &[name], LISTED).join(", ");
            self.error(format!("there is no tensor {name}; nearest: {nearest}"))
        })?;
        let to_bf16: fn(&[u8]) -> bf16 = match info.dtype {
            Dtype::F32 => |b| bf16::from_f32(f32::from_le_bytes(first_bytes(b))),
            Dtype::F16 => |b| bf16::from_f32(f16::from_le_bytes(first_bytes(b)).to_f32()),
            Dtype::BF16 => |b| bf16::from_le_bytes(first_bytes(b)),
            other => {
                return Err(self.error(format!("tensor {name} is of type {other}, but a weight is F32, F16 or BF16")));
            }
        };
        Ok((info, WeightType { bytes: info.dtype.bitsize() / 8, to_bf16 }))
    }

    fn error(&self, reason: String) -> Error {
        model_error(&self.path, reason)
    }
}

/// How a weight is stored: bytes an element, and what those bytes are in bf16.
struct WeightType {
    bytes: usize,
    to_bf16: fn(&[u8]) -> bf16,
}

fn first_bytes<const N: usize>(bytes: &[u8]) -> [u8; N] {
    std::array::from_fn(|i| bytes.get(i).copied().unwrap_or(0))
}

fn model_error(path: &Path, reason: String) -> Error {
    Error::Model { path: path.display().to_string(), reason }
}

/// Sorts `layer.10` after `layer.9`: parts between dots, numbers by value and before words.
fn natural_key(name: &str) -> Vec<(u64, String)> {
    name.split('.').map(|part| part.parse().map_or((u64::MAX, part.into()), |n| (n, String::new()))).collect()
}

#[cfg(test)]
mod tests;
