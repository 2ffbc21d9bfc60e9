//! Shares with their bounds, and quantiles.

/// Returns the upper 95% bound (Clopper and Pearson, one-sided) of a probability after `hits` of `runs`.
pub(crate) fn upper_bound(hits: u64, runs: u64) -> f64 {
    if hits >= runs {
        return 1.0;
    }
    // The probability with which so few hits are just not surprising.
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if at_most(hits, runs, middle) > 0.05 { low = middle } else { high = middle }
    }
    high
}

/// P(X ≥ hits) of a binomial distribution.
pub(crate) fn at_least(hits: u64, runs: u64, chance: f64) -> f64 {
    if hits == 0 { 1.0 } else { 1.0 - at_most(hits - 1, runs, chance) }
}

/// P(X ≤ hits) of a binomial distribution.
fn at_most(hits: u64, runs: u64, chance: f64) -> f64 {
    let mut term = count(runs) * (-chance).ln_1p();
    let odds = chance.ln() - (-chance).ln_1p();
    let mut terms = vec![term];
    for hit in 1..=hits {
        term += (count(runs - hit + 1) / count(hit)).ln() + odds;
        terms.push(term);
    }
    let highest = terms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (highest + terms.iter().map(|term| (term - highest).exp()).sum::<f64>().ln()).exp()
}

/// Returns the value that this many thousandths of the sorted values do not exceed.
pub(crate) fn quantile(sorted: &[u64], thousandths: usize) -> u64 {
    let at = (sorted.len() * thousandths).div_ceil(1000).max(1) - 1;
    sorted.get(at).copied().unwrap_or_default()
}

#[allow(clippy::cast_precision_loss)] // far below 2^52
pub(crate) fn count(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_those_of_clopper_and_pearson() {
        // Without a hit: 1 - 0.05^(1/n). The others: quantiles 0.95 of Beta(k + 1, n - k).
        for (hits, runs, bound) in [(0, 10_000, 0.000_299_5), (4, 10_000, 0.000_915), (5, 10, 0.777_6), (10, 10, 1.0)] {
            let found = upper_bound(hits, runs);
            assert!((found / bound - 1.0_f64).abs() < 0.001, "{hits} of {runs}: {found}");
        }
    }

    #[test]
    fn so_many_hits_are_that_improbable() {
        // 1 - (1 - p)^n, and the same less n p (1 - p)^(n - 1).
        for (hits, runs, chance, probability) in
            [(0, 60, 0.001, 1.0), (1, 60, 0.001, 0.058_263), (2, 60, 0.001, 0.001_703_1)]
        {
            let found = at_least(hits, runs, chance);
            assert!((found / probability - 1.0_f64).abs() < 0.001, "{hits} of {runs}: {found}");
        }
    }

    #[test]
    fn quantiles_are_values_that_were_seen() {
        let values: Vec<u64> = (1..=1000).collect();
        assert_eq!([quantile(&values, 500), quantile(&values, 990), quantile(&values, 1000)], [500, 990, 1000]);
        assert_eq!((quantile(&[], 500), quantile(&[7], 500), quantile(&[7], 990)), (0, 7, 7));
    }
}
