//! The device crate as files, and the hash that ties a committed PTX to them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{CudaBuilderError, Result};

/// FNV-1a, 64 bits: stable across machines, compilers and releases, which `std`'s hashers do not promise. It guards
/// against forgetting to rebuild, not against an adversary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fnv(u64);

impl Fnv {
    pub(crate) const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Takes in a field. Its length goes first, so that no two lists of fields run together.
    pub(crate) fn field(mut self, bytes: &[u8]) -> Self {
        for byte in (bytes.len() as u64).to_le_bytes().iter().chain(bytes) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        self
    }

    pub(crate) fn hex(self) -> String {
        format!("{:016x}", self.0)
    }
}

/// Every `.rs` file under `src`, relative, with `/` between folders, sorted.
pub(crate) fn list(src: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let full = src.join(&folder);
        for entry in fs::read_dir(&full).map_err(CudaBuilderError::io(&full))? {
            let entry = entry.map_err(CudaBuilderError::io(&full))?;
            let relative = folder.join(entry.file_name());
            if entry.path().is_dir() {
                folders.push(relative);
            } else if relative.extension().is_some_and(|extension| extension == "rs") {
                let parts: Vec<_> = relative.iter().map(|part| part.to_string_lossy().into_owned()).collect();
                files.push(parts.join("/"));
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Takes in every source file: name, then text with line ends as on Unix, whatever a checkout made of them.
pub(crate) fn hash_files(mut hash: Fnv, src: &Path) -> Result<Fnv> {
    for name in list(src)? {
        let path = src.join(&name);
        let text = fs::read_to_string(&path).map_err(CudaBuilderError::io(&path))?;
        hash = hash.field(name.as_bytes()).field(text.replace("\r\n", "\n").as_bytes());
    }
    Ok(hash)
}

/// The package's name in a manifest.
pub(crate) fn package_name(manifest: &str) -> Option<&str> {
    let package = manifest.lines().skip_while(|line| line.trim() != "[package]").skip(1);
    package.take_while(|line| !line.trim_start().starts_with('[')).find_map(|line| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == "name").then(|| value.trim().trim_matches('"'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_fnv_1a_of_length_and_bytes() {
        // Eight zero bytes of length: the offset basis times the prime to the eighth power.
        let empty = (0..8).fold(0xcbf2_9ce4_8422_2325u64, |hash, _| hash.wrapping_mul(0x0100_0000_01b3));
        assert_eq!(Fnv::new().field(b"").hex(), format!("{empty:016x}"));
    }

    #[test]
    fn fields_do_not_run_together() {
        let joined = Fnv::new().field(b"ab").field(b"c");
        assert_ne!(joined, Fnv::new().field(b"a").field(b"bc"));
        assert_ne!(joined, Fnv::new().field(b"abc"));
    }

    #[test]
    fn the_package_name_is_the_one_of_the_package_table() {
        let manifest = "[lib]\nname = \"other\"\n[package]\nversion = \"1\"\nname = \"tilewire-kernels\"\n[[bin]]\n";
        assert_eq!(package_name(manifest), Some("tilewire-kernels"));
        assert_eq!(package_name("[package]\n[lib]\nname = \"x\"\n"), None);
    }
}
