//! What must be true of `spec.rollout.analysis`, beyond its schema.

use std::collections::BTreeSet;
use std::time::Duration;

use nudge_api::Analysis;

use super::pace::{LONGEST, SHORTEST};
use super::reach::{ReachError, reach};
use crate::outbound::{Address, AddressError};

/// What is wrong with an analysis.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Too many of them.
    #[error("spec.rollout.analysis has {0} entries, and may have {most}", most = Analysis::MOST)]
    TooMany(usize),
    /// Two of one name.
    #[error("spec.rollout.analysis has two entries {0}")]
    Twice(String),
    /// Nothing to compare with.
    #[error("analysis {0}: set max, or maxRatio, or both")]
    NoLimit(String),
    /// A limit that is none.
    #[error("analysis {0}: {1} must be a number such as {2}")]
    Limit(String, &'static str, &'static str),
    /// Too short or too long.
    #[error("analysis {0}: periodSeconds must be from 5 to 3600")]
    Period(String),
    /// Too many or none.
    #[error("analysis {0}: failures must be from 1 to {most}", most = Analysis::MOST_FAILURES)]
    Failures(String),
    /// The query is the same for all pods.
    #[error(
        "analysis {0}: the query must have {{{{pods}}}} where it selects pods, as in pod=~\"{{{{pods}}}}\": it is asked once for the pods with \
         the version, and once for the others"
    )]
    NoPods(String),
    /// It is not clear which data it is about.
    #[error("analysis {0}: the query can't be used")]
    Query(String, #[source] ReachError),
    /// The address.
    #[error("analysis {0}: prometheus.address can't be used")]
    Address(String, #[source] AddressError),
}

/// The first fault of these analyses.
pub fn check(analyses: &[Analysis]) -> Result<(), Fault> {
    if analyses.len() > Analysis::MOST {
        return Err(Fault::TooMany(analyses.len()));
    }
    let mut names = BTreeSet::new();
    for analysis in analyses {
        if !names.insert(&analysis.name) {
            return Err(Fault::Twice(analysis.name.clone()));
        }
        check_one(analysis)?;
    }
    Ok(())
}

fn check_one(analysis: &Analysis) -> Result<(), Fault> {
    let Analysis { prometheus, max, max_ratio, period_seconds, failures, .. } = analysis;
    let name = || analysis.name.clone();
    if max.is_none() && max_ratio.is_none() {
        return Err(Fault::NoLimit(name()));
    }
    let number = |text: &Option<String>| text.as_ref().map(|text| text.parse::<f64>().unwrap_or(f64::NAN));
    if number(max).is_some_and(|max| !max.is_finite()) {
        return Err(Fault::Limit(name(), "max", "0.01"));
    }
    if number(max_ratio).is_some_and(|ratio| !(ratio.is_finite() && ratio >= 1.0)) {
        return Err(Fault::Limit(name(), "maxRatio", "1.5, and at least 1"));
    }
    if !(SHORTEST..=LONGEST).contains(&Duration::from_secs((*period_seconds).into())) {
        return Err(Fault::Period(name()));
    }
    if !(1..=Analysis::MOST_FAILURES).contains(failures) {
        return Err(Fault::Failures(name()));
    }
    if !prometheus.query.contains("{{pods}}") {
        return Err(Fault::NoPods(name()));
    }
    reach(&prometheus.query).map_err(|error| Fault::Query(name(), error))?;
    Address::parse(&prometheus.address).map_err(|error| Fault::Address(name(), error))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use nudge_protocol::error_chain::chain;
    use serde_json::{Value, json};

    use super::*;

    fn analysis(change: &Value) -> Analysis {
        let mut value = json!({
            "name": "errors", "max": "0.01",
            "prometheus": {"address": "http://prometheus:9090", "query": "sum(rate(errors{pod=~\"{{pods}}\"}[1m]))"},
        });
        value.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn what_has_a_meaning_passes() {
        check(&[analysis(&json!({})), analysis(&json!({"name": "b", "max": null, "maxRatio": "1.5"}))]).unwrap();
        check(&[analysis(&json!({"maxRatio": "1", "periodSeconds": 3600, "failures": 10}))]).unwrap();
        check(&[]).unwrap();
    }

    #[test]
    fn what_has_none_is_refused() {
        let query = |query: &str| json!({"prometheus": {"address": "http://a", "query": query}});
        for (change, said) in [
            (json!({"max": null}), "set max, or maxRatio"),
            (json!({"max": "9".repeat(400)}), "max must be a number"),
            (json!({"maxRatio": "0.5"}), "maxRatio must be a number such as 1.5, and at least 1"),
            (json!({"periodSeconds": 4}), "periodSeconds must be from 5 to 3600"),
            (json!({"periodSeconds": 3601}), "periodSeconds must be from 5 to 3600"),
            (json!({"failures": 0}), "failures must be from 1 to 10"),
            (json!({"failures": 11}), "failures must be from 1 to 10"),
            (query("up"), "the query must have {{pods}} where"),
            (query("rate(up{pod=~\"{{pods}}\"}[1d])"), "it looks back for 86400 s"),
            (json!({"prometheus": {"address": "http://a@b", "query": "{{pods}}"}}), "must not have a user"),
        ] {
            let error = chain(&check(&[analysis(&change)]).unwrap_err());
            assert!(error.contains(said) && error.contains("errors"), "{change}: {error}");
        }
        let one = analysis(&json!({}));
        assert_eq!(check(&[one.clone(), one.clone()]), Err(Fault::Twice("errors".to_owned())));
        let many: Vec<_> = (0..9).map(|number| Analysis { name: format!("a{number}"), ..one.clone() }).collect();
        assert_eq!(check(&many), Err(Fault::TooMany(9)));
    }
}
