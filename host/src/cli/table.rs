//! Plain-text tables: a header, a rule, rows; columns as wide as their widest cell.

use std::fmt;

/// A table that prints itself.
#[derive(Clone, Debug)]
pub struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these column names.
    pub fn new<S: Into<String>>(header: impl IntoIterator<Item = S>) -> Self {
        Self { header: header.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// The table as CSV: header and rows, cells quoted where they need it.
    pub fn to_csv(&self) -> String {
        let quoted = |cell: &String| match cell.contains([',', '"', '\n']) {
            true => format!("\"{}\"", cell.replace('"', "\"\"")),
            false => cell.clone(),
        };
        let line = |cells: &Vec<String>| cells.iter().map(quoted).collect::<Vec<_>>().join(",") + "\n";
        std::iter::once(&self.header).chain(&self.rows).map(line).collect()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = || std::iter::once(&self.header).chain(&self.rows);
        let widths: Vec<usize> = (0..self.header.len())
            .map(|col| lines().filter_map(|l| l.get(col)).map(|c| c.chars().count()).max().unwrap_or(0))
            .collect();
        for (i, line) in lines().enumerate() {
            let cells: Vec<String> = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            writeln!(f, "{}", cells.join("  ").trim_end())?;
            if i == 0 {
                writeln!(f, "{}", widths.iter().map(|w| "-".repeat(*w)).collect::<Vec<_>>().join("  "))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(["a", "shape"]);
        table.row(["long cell", "×"]);
        assert_eq!(table.to_string(), "a          shape\n---------  -----\nlong cell  ×\n");
    }

    #[test]
    fn csv_quotes_what_would_split_a_cell() {
        let mut table = Table::new(["a", "b,c"]);
        table.row(["1", "say \"x\""]);
        assert_eq!(table.to_csv(), "a,\"b,c\"\n1,\"say \"\"x\"\"\"\n");
    }
}
