//! The probability that at least a given number of pods are harmed by chance alone.

/// The maximum number of harms whose distribution is computed exactly. For more harms, a bound that is never too small
/// is used.
const MAX_EXACT_HARMS: usize = 256;

/// Returns P(X ≥ `count`) for X with a Poisson distribution of this mean.
pub(in crate::rollout) fn poisson_tail(mean: f64, count: u32) -> f64 {
    if count == 0 {
        return 1.0;
    }
    if mean <= 0.0 {
        return 0.0;
    }
    let probability = |count: u32| {
        let factorial: f64 = (2..=count).map(|factor| f64::from(factor).ln()).sum();
        (f64::from(count) * mean.ln() - mean - factorial).exp()
    };
    if f64::from(count) <= mean {
        let mut term = (-mean).exp();
        let mut probability_below = term;
        for number in 1..count {
            term *= mean / f64::from(number);
            probability_below += term;
        }
        return (1.0 - probability_below).clamp(0.0, 1.0);
    }
    // Each term is the previous term times mean / number: the sum ends soon, and loses nothing to rounding.
    let mut term = probability(count);
    let mut sum = term;
    let mut number = count;
    while term > sum * 1e-12 {
        number += 1;
        term *= mean / f64::from(number);
        sum += term;
    }
    sum.min(1.0)
}

/// Returns P(X ≥ `count`). X is the number of independent events that happen, each with its own probability (Poisson
/// binomial distribution). For many events the result is the bound of Chernoff: exp(count − mean − count × ln(count /
/// mean)).
pub(in crate::rollout) fn poisson_binomial_tail(probabilities: &[f64], count: u32) -> f64 {
    let at_least = usize::try_from(count).unwrap_or(usize::MAX);
    if at_least == 0 {
        return 1.0;
    }
    if at_least > probabilities.len() {
        return 0.0;
    }
    if probabilities.len() > MAX_EXACT_HARMS {
        let mean: f64 = probabilities.iter().sum();
        let count = f64::from(count);
        return if count <= mean { 1.0 } else { (count - mean - count * (count / mean).ln()).exp() };
    }
    // tail[n] is the probability that n of the events so far happen; the last entry is for at_least or more events.
    let mut tail = vec![0.0; at_least + 1];
    tail[0] = 1.0;
    for &probability in probabilities {
        tail[at_least] += tail[at_least - 1] * probability;
        for number in (1..at_least).rev() {
            tail[number] = tail[number] * (1.0 - probability) + tail[number - 1] * probability;
        }
        tail[0] *= 1.0 - probability;
    }
    tail[at_least]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_close(one: f64, other: f64) -> bool {
        (one - other).abs() <= 1e-9 + 1e-6 * one.abs().max(other.abs())
    }

    #[test]
    fn the_poisson_tail_is_that_of_tables() {
        // R: ppois(k - 1, mean, lower.tail = FALSE)
        for (mean, count, tail) in [
            (1.0, 1, 0.632_120_558_8),
            (1.0, 3, 0.080_301_397_1),
            (0.1, 2, 0.004_678_840_16),
            (4.0, 10, 0.008_132_242_8),
            (50.0, 40, 0.935_429_613),
        ] {
            assert!(is_close(poisson_tail(mean, count), tail), "{mean} {count}: {}", poisson_tail(mean, count));
        }
        assert!(is_close(poisson_tail(1e-6, 2) / 1e-12, 0.5), "no rounding for small means");
        assert_eq!((poisson_tail(0.0, 1), poisson_tail(0.0, 0)), (0.0, 1.0));
    }

    #[test]
    fn of_many_events_the_bound_is_never_too_small() {
        let exact = poisson_binomial_tail(&[0.25; MAX_EXACT_HARMS], 100);
        let bound = poisson_binomial_tail(&[0.25; MAX_EXACT_HARMS + 1], 100);
        assert!(exact < bound && bound < exact * 1e4, "{exact} {bound}");
    }

    proptest! {
        #[test]
        fn of_equal_events_it_is_the_binomial_distribution(events in 1_u32..12, chance in 0.0..1.0_f64, count in 0_u32..14) {
            let choose = |from: u32, of: u32| (0..of).fold(1.0, |all, at| all * f64::from(from - at) / f64::from(at + 1));
            let exact: f64 = (count..=events)
                .map(|number| choose(events, number) * chance.powi(number.cast_signed()) * (1.0 - chance).powi((events - number).cast_signed()))
                .sum();
            let all = vec![chance; usize::try_from(events).unwrap()];
            prop_assert!(is_close(poisson_binomial_tail(&all, count), exact));
        }

        #[test]
        fn both_fall_with_the_count(mean in 0.0..30.0_f64, count in 0_u32..60) {
            prop_assert!(poisson_tail(mean, count + 1) <= poisson_tail(mean, count) + 1e-12);
            prop_assert!((0.0..=1.0).contains(&poisson_tail(mean, count)));
        }
    }
}
