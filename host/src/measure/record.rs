//! Stored ratios, and whether new ones fall behind them.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// What a ratio may fall by beyond its recorded spread before it counts as a regression.
pub const SLACK: f64 = 0.03;

/// One ratio of one run on one card. Times are not recorded: they belong to their minute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The GPU's product name.
    pub card: String,
    /// Day of the run, as year-month-day (UTC).
    pub date: String,
    /// Bench that made it.
    pub bench: String,
    /// Shape, as the bench prints it.
    pub shape: String,
    /// What was measured, and against what.
    pub candidate: String,
    /// Time of the baseline over time of the candidate.
    pub ratio: f64,
    /// Relative spread of that ratio over the rounds.
    pub spread: f64,
}

impl Record {
    fn is_of(&self, other: &Self) -> bool {
        (&self.bench, &self.shape, &self.candidate) == (&other.bench, &other.shape, &other.candidate)
    }

    /// The least ratio that is no regression.
    pub fn least(&self) -> f64 {
        self.ratio * (1.0 - self.spread.max(0.0) - SLACK)
    }
}

/// A ratio that fell.
#[derive(Clone, Debug, PartialEq)]
pub struct Regression {
    /// What was recorded.
    pub recorded: Record,
    /// What this run found.
    pub found: f64,
}

impl fmt::Display for Regression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Record { bench, shape, candidate, ratio, spread, date, .. } = &self.recorded;
        write!(f, "{bench} {shape} {candidate}: ratio {:.3} is below {:.3}", self.found, self.recorded.least())?;
        write!(f, " (recorded {ratio:.3} ± {:.1} % on {date})", spread * 100.0)
    }
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckOutcome {
    /// Ratios that were recorded and measured again.
    pub compared: usize,
    /// Those that fell by more than their recorded spread and [`SLACK`].
    pub regressions: Vec<Regression>,
}

impl CheckOutcome {
    /// Whether something was compared and nothing fell. A check that compares nothing is no pass.
    pub fn passed(&self) -> bool {
        self.compared > 0 && self.regressions.is_empty()
    }
}

/// Compares the ratios of a run with recorded ones. A ratio that is not a number has fallen.
pub fn check(recorded: &[Record], found: &[Record]) -> CheckOutcome {
    let mut outcome = CheckOutcome::default();
    for old in recorded {
        let Some(new) = found.iter().find(|new| new.is_of(old)) else { continue };
        outcome.compared += 1;
        if new.ratio.is_nan() || new.ratio < old.least() {
            outcome.regressions.push(Regression { recorded: old.clone(), found: new.ratio });
        }
    }
    outcome
}

/// `recorded` with what a run `found` in place of what it measured again; sorted, so that a change is a small one.
pub fn merge(recorded: Vec<Record>, found: &[Record]) -> Vec<Record> {
    let mut all: Vec<Record> = recorded.into_iter().filter(|old| !found.iter().any(|new| new.is_of(old))).collect();
    all.extend_from_slice(found);
    all.sort_by(|a, b| (&a.bench, &a.shape, &a.candidate).cmp(&(&b.bench, &b.shape, &b.candidate)));
    all
}

/// A card's name as a file name: `NVIDIA H200` is `nvidia-h200`.
pub fn card_slug(card: &str) -> String {
    let words = card.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-")
}

/// The file of `card`'s records in folder `folder`.
pub fn file_of(folder: &Path, card: &str) -> PathBuf {
    folder.join(card_slug(card)).with_extension("json")
}

/// Reads records; none if there is no such file.
///
/// # Errors
/// [`Error::Io`] when the file cannot be read, or does not hold records.
pub fn load(path: &Path) -> Result<Vec<Record>> {
    match fs::read(path) {
        Err(source) if source.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(source) => Err(io(path, source)),
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|e| io(path, e.into())),
    }
}

/// Writes records, and the folder if there is none.
///
/// # Errors
/// [`Error::Argument`] for a ratio or a spread that is no number, which JSON cannot hold; [`Error::Io`].
pub fn store(path: &Path, records: &[Record]) -> Result<()> {
    if let Some(bad) = records.iter().find(|r| !r.ratio.is_finite() || !r.spread.is_finite()) {
        let value = format!("{} with spread {}", bad.ratio, bad.spread);
        return Err(Error::argument(
            format!("ratio of {} {}", bad.shape, bad.candidate),
            value,
            "a record is a number",
        ));
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|e| io(folder, e))?;
    }
    let mut text = serde_json::to_string_pretty(records).map_err(|e| io(path, e.into()))?;
    text.push('\n');
    fs::write(path, text).map_err(|e| io(path, e))
}

fn io(path: &Path, source: std::io::Error) -> Error {
    Error::Io { path: path.display().to_string(), source }
}

/// Today, as year-month-day (UTC).
pub fn today() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    date_of(seconds / 86_400)
}

/// The date so many days after 1970-01-01, by the Gregorian calendar: whole eras of 400 years, years from March on, so that
/// the leap day is a year's last.
fn date_of(days: u64) -> String {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(shape: &str, ratio: f64, spread: f64) -> Record {
        let [card, date] = ["NVIDIA H200", "2026-01-02"].map(str::to_string);
        let (bench, candidate) = ("gemm".to_string(), "tilewire / cublaslt".to_string());
        Record { card, date, bench, shape: shape.to_string(), candidate, ratio, spread }
    }

    #[test]
    fn a_ratio_may_fall_by_its_spread_and_three_percent_and_no_further() {
        let old = [record("a", 1.0, 0.02), record("b", 2.0, 0.0)];
        let outcome = check(&old, &[record("a", 0.951, 0.5), record("b", 1.95, 0.5)]);
        assert_eq!((outcome.compared, outcome.regressions.len()), (2, 0));
        assert!(outcome.passed());
        let outcome = check(&old, &[record("a", 0.949, 0.0), record("b", 1.93, 0.0)]);
        assert_eq!(outcome.regressions.len(), 2);
        let text = outcome.regressions[0].to_string();
        assert!(text.contains("0.949 is below 0.950") && text.contains("± 2.0 %"), "{text}");
        assert!(!check(&old, &[record("a", f64::NAN, 0.0)]).passed());
    }

    #[test]
    fn a_check_of_nothing_is_no_pass() {
        assert!(!check(&[], &[record("a", 1.0, 0.0)]).passed());
        assert!(!check(&[record("a", 1.0, 0.0)], &[record("b", 1.0, 0.0)]).passed());
    }

    #[test]
    fn merging_replaces_what_was_measured_again_and_keeps_the_rest() {
        let merged = merge(vec![record("b", 1.0, 0.0), record("a", 1.0, 0.0)], &[record("b", 1.5, 0.1)]);
        assert_eq!(merged, [record("a", 1.0, 0.0), record("b", 1.5, 0.1)]);
    }

    #[test]
    fn records_survive_a_file_and_broken_files_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = file_of(&folder.path().join("new"), "NVIDIA H200");
        assert_eq!(load(&path).unwrap(), []);
        let records = [record("a", 1.25, 0.01)];
        store(&path, &records).unwrap();
        assert_eq!(load(&path).unwrap(), records);
        assert!(path.ends_with("new/nvidia-h200.json"));
        fs::write(&path, "[{]").unwrap();
        assert!(load(&path).unwrap_err().to_string().contains("nvidia-h200.json"));
        assert!(store(&path, &[record("a", f64::NAN, 0.0)]).is_err());
    }

    /// What was not measured again would otherwise change by a last digit whenever something else was.
    #[test]
    fn every_digit_survives_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = file_of(folder.path(), "a card");
        let digits = [0.47477596870978067, 1.1039697993856095, 1.0957327675441297, 0.10326738849259745];
        let records = digits.map(|digits| record("a", digits, digits));
        store(&path, &records).unwrap();
        assert_eq!(load(&path).unwrap(), records);
    }

    #[test]
    fn days_become_dates() {
        for (days, date) in [(0, "1970-01-01"), (59, "1970-03-01"), (11_016, "2000-02-29"), (20_819, "2027-01-01")] {
            assert_eq!(date_of(days), date);
        }
    }
}
