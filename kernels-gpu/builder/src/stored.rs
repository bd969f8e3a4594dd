//! The PTX file in the repository: the text, preceded by the hash of what it was made from and by what made it.

/// A stored PTX.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored<'a> {
    /// Hash of the sources that it was made from.
    pub hash: &'a str,
    /// The compiler that made it, in words.
    pub compiler: &'a str,
    /// The PTX itself, without the two lines before it.
    pub ptx: &'a str,
}

const HASH: &str = "// sources ";
const COMPILER: &str = "// compiler ";

impl<'a> Stored<'a> {
    /// Reads what [`write`](Self::write) wrote; `None` if `text` starts otherwise.
    pub fn read(text: &'a str) -> Option<Self> {
        let (hash, rest) = text.strip_prefix(HASH)?.split_once('\n')?;
        let (compiler, ptx) = rest.strip_prefix(COMPILER)?.split_once('\n')?;
        Some(Self { hash: hash.trim_end(), compiler: compiler.trim_end(), ptx })
    }

    /// The file's text.
    pub fn write(&self) -> String {
        format!("{HASH}{}\n{COMPILER}{}\n{}", self.hash, self.compiler, self.ptx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let stored = Stored { hash: "0123456789abcdef", compiler: "rustc 1.96.0, LLVM 22.1.8", ptx: ".version 8.0\n" };
        assert_eq!(Stored::read(&stored.write()), Some(stored));
    }

    #[test]
    fn a_file_that_starts_otherwise_is_refused() {
        for text in ["", ".version 8.0\n", "// sources 01", "// sources 01\n.version 8.0\n"] {
            assert_eq!(Stored::read(text), None, "{text:?}");
        }
    }
}
