//! How numbers are made: statistics over samples, records of ratios, and interleaved timing with events.
//!
//! Only ratios of one run are ever stored or compared. A time belongs to the clocks, the temperature and the neighbours of
//! its minute; two candidates that take turns share all of that. `docs/measuring.md` tells the whole method.

pub mod link;
mod record;
mod rotation;
mod statistics;
mod timing;

pub use record::{CheckOutcome, Record, Regression, SLACK, card_slug, check, file_of, load, merge, store, today};
pub use rotation::{L2_BYTES, calls_per_sample, num_sets};
pub use statistics::{Ratio, Summary, geometric_mean, median, quantile};
pub use timing::{Candidate, Samples, interleave};
