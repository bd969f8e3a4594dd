//! What a bench says: tables and goals on the screen, JSON and CSV in a folder, ratios in the records.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tilewire::cli::table::Table;
use tilewire::driver::Gpu;
use tilewire::measure::{Ratio, Record, check, file_of, load, merge, store, today};
use tilewire::{Error, Result};

use super::Options;

/// Collects what a bench found.
pub struct Report {
    bench: &'static str,
    card: String,
    driver: u32,
    tables: Vec<(String, Table)>,
    rows: Vec<Value>,
    records: Vec<Record>,
    goals: Vec<String>,
}

impl Report {
    pub fn new(bench: &'static str, gpu: &Gpu) -> Self {
        let facts = gpu.facts();
        let (card, driver) = (facts.name.clone(), facts.driver_version);
        Self { bench, card, driver, tables: Vec::new(), rows: Vec::new(), records: Vec::new(), goals: Vec::new() }
    }

    /// Adds a table under this heading.
    pub fn table(&mut self, name: impl Into<String>, table: Table) {
        self.tables.push((name.into(), table));
    }

    /// Adds what JSON readers get.
    pub fn row(&mut self, row: Value) {
        self.rows.push(row);
    }

    /// Adds a ratio to be recorded and checked.
    pub fn ratio(&mut self, shape: impl Into<String>, candidate: impl Into<String>, ratio: Ratio) {
        self.records.push(Record {
            card: self.card.clone(),
            date: today(),
            bench: self.bench.to_string(),
            shape: shape.into(),
            candidate: candidate.into(),
            ratio: ratio.ratio,
            spread: ratio.spread,
        });
    }

    /// States whether a figure reaches its goal; says so too when it was not measured.
    pub fn goal(&mut self, figure: &str, found: Option<f64>, goal: f64, at_least: bool) {
        let sign = if at_least { "≥" } else { "≤" };
        let line = match found {
            None => format!("goal: {figure} {sign} {goal}: not measured"),
            Some(found) => {
                let reached = if at_least { found >= goal } else { found <= goal };
                format!("goal: {figure} {sign} {goal}: {found:.3}, {}", if reached { "reached" } else { "MISSED" })
            }
        };
        self.goals.push(line);
    }

    /// Prints everything, writes what the options ask for; whether a check, if there was one, passed.
    pub fn finish(self, options: &Options) -> Result<bool> {
        let date = today();
        println!("\n{} on {}, driver for CUDA {}, {date}", self.bench, self.card, self.driver);
        for (name, table) in &self.tables {
            println!("\n{name}\n{table}");
        }
        self.goals.iter().for_each(|goal| println!("{goal}"));
        if let Some(out) = &options.out {
            fs::create_dir_all(out).map_err(|e| io(out, e))?;
            let tables: Vec<_> =
                self.tables.iter().map(|(name, table)| format!("# {name}\n{}", table.to_csv())).collect();
            write(&out.join(format!("{}.csv", self.bench)), &tables.join("\n"))?;
            let all = json!({
                "bench": self.bench, "card": self.card, "date": date, "rows": self.rows,
                "records": self.records, "goals": self.goals,
            });
            write(&out.join(format!("{}.json", self.bench)), &format!("{all:#}\n"))?;
            println!("written to {}", out.display());
        }
        let file = file_of(&options.records, &self.card);
        let mut passed = true;
        if options.check {
            passed = self.check_against(&file)?;
        }
        if options.record {
            store(&file, &merge(load(&file)?, &self.records))?;
            println!("{} ratios recorded in {}", self.records.len(), file.display());
        }
        Ok(passed)
    }

    fn check_against(&self, file: &Path) -> Result<bool> {
        let of_this_bench = load(file)?.into_iter().filter(|r| r.bench == self.bench).collect::<Vec<_>>();
        let outcome = check(&of_this_bench, &self.records);
        outcome.regressions.iter().for_each(|regression| println!("regression: {regression}"));
        let verdict = if outcome.passed() { "pass" } else { "FAIL" };
        let (compared, fell) = (outcome.compared, outcome.regressions.len());
        println!("check against {}: {compared} ratios compared, {fell} fell: {verdict}", file.display());
        Ok(outcome.passed())
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|e| io(path, e))
}

fn io(path: &Path, source: std::io::Error) -> Error {
    Error::Io { path: path.display().to_string(), source }
}
