//! The kernels as PTX, embedded when this crate is built.

use crate::error::{Error, Result};
use crate::kernels::entries::Entry;

/// PTX of every kernel in [`ENTRIES`](crate::kernels::entries::ENTRIES), for sm_90a.
pub static PTX: &str = include_str!(concat!(env!("OUT_DIR"), "/kernels.ptx"));

/// The PTX of one kernel alone, which the driver compiles faster than all of them.
///
/// # Errors
/// [`Error::Argument`] if it is not there, which the PTX contract excludes.
pub fn only(entry: &Entry) -> Result<String> {
    let missing = || Error::argument("kernel", entry.name, "the embedded PTX has no such entry");
    let header_end = PTX.find(".visible .entry").ok_or_else(missing)?;
    let start = PTX.find(&format!(".visible .entry {}(", entry.name)).ok_or_else(missing)?;
    // Inline assembly has braces of its own: an entry ends where the next one begins.
    let end = PTX[start + 1..].find(".visible .entry").map_or(PTX.len(), |next| start + 1 + next);
    Ok(format!("{}{}", &PTX[..header_end], &PTX[start..end]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::entries::ENTRIES;

    #[test]
    fn each_kernel_stands_alone() {
        for entry in ENTRIES {
            let text = only(entry).unwrap();
            assert_eq!(text.matches(".entry").count(), 1);
            assert!(text.contains(entry.name) && text.contains(".target sm_90a") && text.contains("dyn_smem[]"));
            assert_eq!(text.matches('{').count(), text.matches('}').count(), "{}", entry.name);
        }
    }
}
