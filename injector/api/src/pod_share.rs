//! Numbers and shares of pods, in steps and in the harm that is allowed, and how they are rounded.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A number of pods or a share of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Pods {
    /// A number of pods.
    Count(u32),
    /// A share of the pods, such as `25%`.
    Share(String),
}

impl Pods {
    /// Returns the number of pods out of `all`: at least one, if there is any.
    pub fn count_of(&self, all: usize) -> usize {
        let count = match self {
            Self::Count(count) => usize::try_from(*count).unwrap_or(usize::MAX),
            Self::Share(share) => (all * usize::from(percent(share))).div_ceil(100),
        };
        count.clamp(1, all.max(1)).min(all)
    }

    /// Returns the number of pods out of `assigned` that may be harmed: rounded down, and possibly none.
    pub fn limit_of(&self, assigned: u64) -> u64 {
        match self {
            Self::Count(count) => u64::from(*count),
            Self::Share(share) => assigned * u64::from(percent(share)) / 100,
        }
    }
}

/// Returns the number of a share. The API server accepts shares from 0% to 100% only; any other text counts as 0%.
fn percent(share: &str) -> u8 {
    share.strip_suffix('%').and_then(|number| number.parse().ok()).unwrap_or(0).min(100)
}

impl JsonSchema for Pods {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Pods".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        int_or_percent(1, "^([1-9][0-9]?|100)%$")
    }
}

/// Returns the schema of pods of which there may be none.
pub(crate) fn none_or_more(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    int_or_percent(0, "^([0-9]|[1-9][0-9]|100)%$")
}

/// Returns a schema such as that of every `IntOrString` of Kubernetes. The pattern is checked for strings only.
fn int_or_percent(minimum: u32, pattern: &str) -> schemars::Schema {
    schemars::json_schema!({
        "x-kubernetes-int-or-string": true,
        "minimum": minimum,
        "maximum": 2_147_483_647,
        "pattern": pattern
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_pods_is_rounded_up_and_one_of_harmed_pods_down() {
        let pods = |text: &str, all| serde_json::from_str::<Pods>(text).unwrap().count_of(all);
        assert_eq!([pods("\"25%\"", 8), pods("\"25%\"", 9), pods("\"1%\"", 8), pods("\"100%\"", 8)], [2, 3, 1, 8]);
        assert_eq!([pods("3", 8), pods("3", 2), pods("3", 0), pods("\"25%\"", 0)], [3, 2, 0, 0]);
        let harmed = |text: &str, all| serde_json::from_str::<Pods>(text).unwrap().limit_of(all);
        assert_eq!([harmed("0", 8), harmed("2", 8), harmed("\"5%\"", 39), harmed("\"5%\"", 40)], [0, 2, 1, 2]);
    }
}
