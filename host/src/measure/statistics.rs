//! Order statistics: they say the same whether one sample in ten was disturbed or none.

/// The value below which a share `q` of `values` lies, interpolated between neighbours; `None` without values.
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let at = q.clamp(0.0, 1.0) * last as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    Some(below + (above - below) * at.fract())
}

/// The middle value; `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// The n-th root of the product; `None` without values, or if one is not positive.
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() || values.iter().any(|x| !x.is_finite() || *x <= 0.0) {
        return None;
    }
    Some((values.iter().map(|x| x.ln()).sum::<f64>() / values.len() as f64).exp())
}

/// Middle and quartiles of samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Middle value.
    pub median: f64,
    /// A quarter of the samples lies below.
    pub first_quartile: f64,
    /// A quarter of the samples lies above.
    pub third_quartile: f64,
    /// Number of samples.
    pub count: usize,
}

impl Summary {
    /// Summarises `values`; `None` without values.
    pub fn of(values: &[f64]) -> Option<Self> {
        Some(Self {
            median: median(values)?,
            first_quartile: quantile(values, 0.25)?,
            third_quartile: quantile(values, 0.75)?,
            count: values.len(),
        })
    }

    /// Half the distance of the quartiles, as a share of the median.
    pub fn spread(&self) -> f64 {
        (self.third_quartile - self.first_quartile) / 2.0 / self.median
    }
}

/// How many times as fast a candidate is as its baseline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// Median time of the baseline over median time of the candidate: above 1, the candidate is faster.
    pub ratio: f64,
    /// Half the distance of the quartiles of the rounds' own ratios, as a share of their median.
    pub spread: f64,
}

impl Ratio {
    /// The ratio of two candidates that took turns: `baseline[i]` and `candidate[i]` are of round i. `None` unless there
    /// are equally many of both, at least one.
    pub fn of(baseline: &[f64], candidate: &[f64]) -> Option<Self> {
        if baseline.len() != candidate.len() {
            return None;
        }
        // Neighbours in time share clocks, so the ratios of rounds scatter less than the times do.
        let rounds: Vec<f64> = baseline.iter().zip(candidate).map(|(b, c)| b / c).collect();
        Some(Self { ratio: median(baseline)? / median(candidate)?, spread: Summary::of(&rounds)?.spread() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_interpolate_and_do_not_need_order() {
        let values = [4.0, 1.0, 3.0, 2.0];
        assert_eq!(median(&values), Some(2.5));
        assert_eq!((quantile(&values, 0.0), quantile(&values, 1.0)), (Some(1.0), Some(4.0)));
        assert_eq!(quantile(&values, 0.25), Some(1.75));
        assert_eq!(median(&[7.0]), Some(7.0));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn one_disturbed_sample_moves_neither_median_nor_spread_far() {
        let calm = Summary::of(&[1.0; 9]).unwrap();
        assert_eq!((calm.median, calm.spread(), calm.count), (1.0, 0.0, 9));
        let mut values = [1.0; 9];
        values[4] = 100.0;
        let disturbed = Summary::of(&values).unwrap();
        assert_eq!((disturbed.median, disturbed.spread()), (1.0, 0.0));
    }

    #[test]
    fn the_geometric_mean_of_a_ratio_and_its_inverse_is_one() {
        assert!((geometric_mean(&[2.0, 0.5]).unwrap() - 1.0).abs() < 1e-12);
        assert_eq!(geometric_mean(&[]), None);
        assert_eq!(geometric_mean(&[1.0, 0.0]), None);
        assert_eq!(geometric_mean(&[1.0, f64::NAN]), None);
    }

    #[test]
    fn a_drift_that_both_share_is_no_spread() {
        let baseline = [1.0, 1.1, 1.2, 1.3, 1.4];
        let candidate = baseline.map(|x| x / 1.25);
        let ratio = Ratio::of(&baseline, &candidate).unwrap();
        assert!((ratio.ratio - 1.25).abs() < 1e-12 && ratio.spread < 1e-12, "{ratio:?}");
        assert_eq!(Ratio::of(&baseline, &candidate[1..]), None);
        assert_eq!(Ratio::of(&[], &[]), None);
    }
}
