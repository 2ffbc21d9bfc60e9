//! Versions of the API server.

use std::fmt;

use anyhow::{Context, Result};

/// Major and minor, such as 1.30.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The first number.
    pub major: u32,
    /// The second number.
    pub minor: u32,
}

impl Version {
    /// Reads what `/version` says; some providers add a plus sign to the minor version.
    pub(super) fn parse(major: &str, minor: &str) -> Result<Self> {
        let number = |text: &str| text.trim_end_matches('+').parse().ok();
        let version = number(major).zip(number(minor)).map(|(major, minor)| Self { major, minor });
        version.with_context(|| format!("can't understand the server's version {major}.{minor}"))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_compared_as_numbers() {
        let new = Version::parse("1", "30+").unwrap();
        assert_eq!(new.to_string(), "1.30");
        assert!(new > Version::parse("1", "9").unwrap());
        assert!(Version::parse("1", "x").is_err());
    }
}
