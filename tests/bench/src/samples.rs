//! Order statistics of a few hundred samples.

/// Samples, sorted.
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    pub(crate) fn new(samples: impl IntoIterator<Item = f64>) -> Self {
        let mut samples: Vec<f64> = samples.into_iter().collect();
        samples.sort_by(f64::total_cmp);
        Self(samples)
    }

    /// Returns the smallest sample that `percent` of all samples don't exceed (nearest rank); not a number without
    /// samples.
    pub(crate) fn percentile(&self, percent: usize) -> f64 {
        let rank = (self.0.len() * percent).div_ceil(100).max(1);
        self.0.get(rank - 1).copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn median(&self) -> f64 {
        self.percentile(50)
    }

    pub(crate) fn max(&self) -> f64 {
        self.percentile(100)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples_by_rank() {
        let show = |samples: &Samples| format!("{} {} {}", samples.median(), samples.percentile(99), samples.max());
        assert_eq!(show(&Samples::new((1..=500).rev().map(f64::from))), "250 495 500");
        assert_eq!(show(&Samples::new([7.0])), "7 7 7");
        assert_eq!(show(&Samples::new([])), "NaN NaN NaN");
    }
}
