//! The quantities of Kubernetes (`500m`, `32Mi`, `1e3`), exact to a billionth.

use std::fmt;
use std::str::FromStr;

/// The number of nanos in a unit: a billionth is the finest precision of Kubernetes.
const NANOS: i128 = 1_000_000_000;
/// The maximum length of a text that is parsed: no amount has more digits.
const MAX_BYTES: usize = 40;

/// The error for a text that is not a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it must be a quantity such as 250m, 0.5, 64Mi or 1Gi")]
pub(super) struct QuantityError;

/// An amount, in billionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Quantity(i128);

impl Quantity {
    pub(super) const ZERO: Self = Self(0);

    /// Returns a number of thousandths, as for CPU.
    pub(super) const fn millis(millis: i128) -> Self {
        Self(millis * (NANOS / 1000))
    }

    /// Returns a number of units, such as bytes.
    pub(super) const fn units(units: i128) -> Self {
        Self(units * NANOS)
    }

    /// Returns a number of mebibytes.
    pub(super) const fn mebi(mebi: i128) -> Self {
        Self::units(mebi << 20)
    }

    /// Returns the sum, saturating.
    #[must_use]
    pub(super) fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Returns the quantity divided by `ratio`, rounded up to a thousandth. `ratio` is at least 1.
    #[must_use]
    pub(super) fn divided_up(self, ratio: Self) -> Self {
        let milli = NANOS / 1000;
        let ratio = ratio.0.max(NANOS);
        let millis = self.0.saturating_mul(NANOS).div_euclid(milli);
        Self((millis.saturating_add(ratio - 1) / ratio).saturating_mul(milli))
    }

    /// Returns whether the quantity is a multiple of `part`.
    pub(super) fn is_whole(self, part: Self) -> bool {
        part.0 != 0 && self.0 % part.0 == 0
    }

    /// Returns the quantity as Kubernetes writes amounts of memory, if it is a whole number of bytes.
    pub(super) fn memory(self) -> String {
        let bytes = self.0.div_euclid(NANOS);
        let binary = [("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];
        match binary.iter().find(|(_, size)| bytes % size == 0 && bytes != 0) {
            Some((suffix, size)) => format!("{}{suffix}", bytes / size),
            None => self.to_string(),
        }
    }
}

/// Writes the quantity as Kubernetes writes decimal amounts: no fraction, the largest suffix.
impl fmt::Display for Quantity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suffixes = [("G", 1_000_000_000), ("M", 1_000_000), ("k", 1000), ("", 1)];
        if self.0 == 0 {
            return out.write_str("0");
        }
        if let Some((suffix, size)) = suffixes.iter().find(|(_, size)| self.0 % (size * NANOS) == 0) {
            return write!(out, "{}{suffix}", self.0 / (size * NANOS));
        }
        let parts = [("m", 1_000_000), ("u", 1000), ("n", 1)];
        match parts.iter().find(|(_, size)| self.0 % size == 0) {
            Some((suffix, size)) => write!(out, "{}{suffix}", self.0 / size),
            None => Ok(()),
        }
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        if text.len() > MAX_BYTES {
            return Err(QuantityError);
        }
        let (negative, rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(QuantityError);
        }
        let digits = format!("{whole}{fraction}");
        let digits: i128 = digits.parse().map_err(|_| QuantityError)?;
        let down =
            10_i128.checked_pow(u32::try_from(fraction.len()).map_err(|_| QuantityError)?).ok_or(QuantityError)?;
        let (factor, divisor) = scale(suffix).ok_or(QuantityError)?;
        let nanos = digits.checked_mul(NANOS).and_then(|nanos| nanos.checked_mul(factor)).ok_or(QuantityError)?;
        let down = down.checked_mul(divisor).ok_or(QuantityError)?;
        // Kubernetes rounds finer amounts away from zero.
        let nanos = nanos / down + i128::from(nanos % down != 0);
        Ok(Self(if negative { -nanos } else { nanos }))
    }
}

/// Returns the factor and the divisor that a suffix stands for.
fn scale(suffix: &str) -> Option<(i128, i128)> {
    Some(match suffix {
        "" => (1, 1),
        "n" => (1, 1_000_000_000),
        "u" => (1, 1_000_000),
        "m" => (1, 1000),
        "k" => (1000, 1),
        "M" => (10_i128.pow(6), 1),
        "G" => (10_i128.pow(9), 1),
        "T" => (10_i128.pow(12), 1),
        "P" => (10_i128.pow(15), 1),
        "E" => (10_i128.pow(18), 1),
        "Ki" => (1 << 10, 1),
        "Mi" => (1 << 20, 1),
        "Gi" => (1 << 30, 1),
        "Ti" => (1 << 40, 1),
        "Pi" => (1 << 50, 1),
        "Ei" => (1 << 60, 1),
        exponent => {
            let digits = exponent.strip_prefix(['e', 'E'])?;
            let number: i32 = digits.parse().ok()?;
            let power = 10_i128.checked_pow(number.unsigned_abs())?;
            if number < 0 { (1, power) } else { (power, 1) }
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn quantity(text: &str) -> Quantity {
        text.parse().unwrap()
    }

    #[test]
    fn every_suffix_is_read_exactly() {
        for (text, nanos) in [
            ("0", 0),
            ("1", NANOS),
            ("+1", NANOS),
            ("-1", -NANOS),
            (".5", NANOS / 2),
            ("1.", NANOS),
            ("0.1", 100_000_000),
            ("1n", 1),
            ("1u", 1000),
            ("1m", 1_000_000),
            ("1k", 1000 * NANOS),
            ("1M", 1_000_000 * NANOS),
            ("1G", 1_000_000_000 * NANOS),
            ("1T", 10_i128.pow(12) * NANOS),
            ("1P", 10_i128.pow(15) * NANOS),
            ("1E", 10_i128.pow(18) * NANOS),
            ("1Ki", 1024 * NANOS),
            ("1Mi", (1 << 20) * NANOS),
            ("1.5Gi", 3 * (1 << 29) * NANOS),
            ("1Ti", (1 << 40) * NANOS),
            ("1Pi", (1 << 50) * NANOS),
            ("1Ei", (1 << 60) * NANOS),
            ("1e3", 1000 * NANOS),
            ("1E3", 1000 * NANOS),
            ("1e-3", NANOS / 1000),
            ("1.5e+1", 15 * NANOS),
            ("0.0000000001", 1),
        ] {
            assert_eq!(quantity(text).0, nanos, "{text}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for bad in [
            "",
            " 1",
            "1 ",
            "m",
            ".",
            "1.1.1",
            "1K",
            "1mi",
            "1kb",
            "1e",
            "1e1.5",
            "--1",
            "1e99",
            "Inf",
            "1,5",
            &"9".repeat(41),
        ] {
            assert_eq!(bad.parse::<Quantity>(), Err(QuantityError), "{bad}");
        }
    }

    #[test]
    fn amounts_are_written_as_kubernetes_does() {
        for (text, written) in
            [("0.1", "100m"), ("1000m", "1"), ("4", "4"), ("2000", "2k"), ("0", "0"), ("1500u", "1500u"), ("5n", "5n")]
        {
            assert_eq!(quantity(text).to_string(), written, "{text}");
        }
        for (text, written) in [
            ("1024Ki", "1Mi"),
            ("1.5Gi", "1536Mi"),
            ("128M", "125000Ki"),
            ("128000001", "128000001"),
            ("100M", "100M"),
            ("0", "0"),
        ] {
            assert_eq!(quantity(text).memory(), written, "{text}");
        }
    }

    #[test]
    fn a_ratio_divides_up() {
        assert_eq!(quantity("100m").divided_up(quantity("3")), quantity("34m"));
        assert_eq!(quantity("100m").divided_up(quantity("4")), quantity("25m"));
        assert_eq!(quantity("100m").divided_up(quantity("0.5")), quantity("100m"));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(nanos in 0..10_i128.pow(24)) {
            prop_assert_eq!(quantity(&Quantity(nanos).to_string()).0, nanos);
            let whole = Quantity(nanos - nanos % NANOS);
            prop_assert_eq!(quantity(&whole.memory()), whole);
        }

        #[test]
        fn nothing_makes_the_reader_panic(text in "\\PC{0,45}|[-+0-9.eEKMGiknum]{0,45}") {
            let _ = text.parse::<Quantity>();
        }
    }
}
