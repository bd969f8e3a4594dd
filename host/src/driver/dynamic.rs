//! Libraries that only benchmarks need, opened when they are asked for.

use std::error::Error as _;

use libloading::Library;

use crate::error::{Error, Result};

/// Opens the first of `names` that the loader finds; `usual` is the one to look for.
pub(crate) fn open(call: &'static str, usual: &str, names: &[String]) -> Result<Library> {
    let mut why = String::new();
    for name in names {
        // SAFETY: these libraries run only their own initialisers when they are opened.
        match unsafe { Library::new(name) } {
            Ok(library) => return Ok(library),
            // The loader's own words, which also tell when a library that is there lacks another one.
            Err(e) if name == usual => why = e.source().map_or_else(|| e.to_string(), ToString::to_string),
            Err(_) => {}
        }
    }
    let text = format!("put the folder that has {usual} into LD_LIBRARY_PATH; {why}");
    Err(Error::Driver { call, code: "no library".to_string(), text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_named() {
        let names = ["libno-such-thing.so.1".to_string(), "libno-such-thing.so".to_string()];
        let message = open("opening nothing", "libno-such-thing.so.1", &names).err().unwrap().to_string();
        assert!(message.starts_with("opening nothing failed: no library ("), "{message}");
        assert!(message.contains("put the folder that has libno-such-thing.so.1 into LD_LIBRARY_PATH"), "{message}");
    }
}
