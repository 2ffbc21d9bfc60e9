//! One measure, its comparison, and its limit.

use serde::Serialize;
use serde_json::{Value, json};

/// What the cells of a row say.
pub(crate) const HEAD: [&str; 6] = ["measure", "value", "floor or peer", "ratio", "target", "met"];

/// What a number counts.
#[derive(Clone, Copy, Serialize)]
pub(crate) enum Unit {
    #[serde(rename = "µs")]
    Micros,
    #[serde(rename = "ms")]
    Millis,
    #[serde(rename = "s")]
    Seconds,
    #[serde(rename = "KiB")]
    Kib,
    #[serde(rename = "MiB")]
    Mib,
    #[serde(rename = "1/s")]
    PerSecond,
    #[serde(rename = "count")]
    Count,
    /// An average of counts.
    #[serde(rename = "each")]
    Each,
}

impl Unit {
    fn show(self, value: f64) -> String {
        match self {
            _ if !value.is_finite() => "never".to_owned(),
            Self::Micros => format!("{value:.1} µs"),
            Self::Millis => format!("{value:.2} ms"),
            Self::Seconds => format!("{value:.2} s"),
            Self::Kib => format!("{value:.0} KiB"),
            Self::Mib => format!("{value:.1} MiB"),
            Self::PerSecond => format!("{value:.0} /s"),
            Self::Count => format!("{value:.0}"),
            Self::Each => format!("{value:.2}"),
        }
    }
}

/// What the same measure gave for something to compare with.
#[derive(Clone, Copy, Serialize)]
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    pub(crate) value: f64,
}

/// What the agent must keep to.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Target {
    /// A fixed number.
    AtMost(f64),
    /// What the peer needs, and this much more.
    PeerPlus(f64),
    /// At most what the peer needs multiplied by the first, and the second added.
    PeerTimes(f64, f64),
}

/// A measure with its value.
pub(crate) struct Row {
    measure: String,
    unit: Unit,
    value: f64,
    peer: Option<Peer>,
    target: Option<Target>,
}

impl Row {
    pub(crate) fn new(measure: impl Into<String>, unit: Unit, value: f64) -> Self {
        Self { measure: measure.into(), unit, value, peer: None, target: None }
    }

    pub(crate) fn beside(mut self, name: &'static str, value: f64) -> Self {
        self.peer = Some(Peer { name, value });
        self
    }

    pub(crate) fn target(mut self, target: Target) -> Self {
        self.target = Some(target);
        self
    }

    fn ratio(&self) -> Option<f64> {
        self.peer.filter(|peer| peer.value > 0.0).map(|peer| self.value / peer.value)
    }

    /// Returns the most that the target allows; none if there is no target or no peer to take it from.
    fn limit(&self) -> Option<f64> {
        match self.target? {
            Target::AtMost(limit) => Some(limit),
            Target::PeerPlus(more) => self.peer.map(|peer| peer.value + more),
            Target::PeerTimes(times, more) => self.peer.map(|peer| peer.value * times + more),
        }
    }

    fn is_met(&self) -> Option<bool> {
        self.limit().map(|limit| self.value <= limit)
    }

    /// Returns the row for programs.
    pub(crate) fn json(&self) -> Value {
        json!({
            "measure": self.measure,
            "unit": self.unit,
            "value": self.value,
            "peer": self.peer,
            "ratio": self.ratio(),
            "target": self.target,
            "limit": self.limit(),
            "met": self.is_met(),
        })
    }

    /// Returns the row for people, under [`HEAD`].
    pub(crate) fn cells(&self) -> [String; 6] {
        let none = || "-".to_owned();
        [
            self.measure.clone(),
            self.unit.show(self.value),
            self.peer.map_or_else(none, |peer| format!("{} {}", peer.name, self.unit.show(peer.value))),
            self.ratio().map_or_else(none, |ratio| format!("{ratio:.2}")),
            self.limit().map_or_else(none, |limit| format!("≤ {}", self.unit.show(limit))),
            self.is_met().map_or_else(none, |met| if met { "yes" } else { "no" }.to_owned()),
        ]
    }
}

/// Returns a count as the rows take it.
pub(crate) fn float(count: u64) -> f64 {
    // What is counted here stays far below 2^52, up to which a float holds every whole number.
    #[allow(clippy::cast_precision_loss)]
    let float = count as f64;
    float
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_beside_a_peer_follows_the_peer() {
        let row = Row::new("x", Unit::Millis, 2.5).beside("floor", 0.5).target(Target::PeerPlus(2.0));
        assert_eq!(row.is_met(), Some(true));
        assert_eq!(row.ratio(), Some(5.0));
        let row = Row::new("x", Unit::Millis, 2.6).beside("floor", 0.5).target(Target::PeerPlus(2.0));
        assert_eq!(row.is_met(), Some(false));
        let times = Row::new("x", Unit::Seconds, 3.3).beside("floor", 1.0).target(Target::PeerTimes(1.3, 2.0));
        assert_eq!((times.is_met(), Row { value: 3.4, ..times }.is_met()), (Some(true), Some(false)));
        // What never came to an end is no success.
        assert_eq!(Row::new("x", Unit::Seconds, f64::INFINITY).target(Target::AtMost(9.0)).is_met(), Some(false));
        // Without the peer there is no answer, which is not a failure.
        assert_eq!(Row::new("x", Unit::Millis, 9.0).target(Target::PeerPlus(2.0)).is_met(), None);
    }
}
