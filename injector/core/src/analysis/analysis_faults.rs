//! The faults of `spec.rollout.analysis` beyond its schema.

use nudge_api::{Analysis, Explanation};
use nudge_protocol::error_chain::chain;

use super::reach::{ReachError, reach};
use crate::faults::invalid;
use crate::outbound::{Address, AddressError};

/// The reason why an analysis can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnalysisFault {
    /// The analysis has nothing to compare results with.
    #[error("set max, or maxRatio, or both")]
    NoLimit,
    /// The ratio is so low that a version that is as good as the previous version would be bad.
    #[error("maxRatio must be a number such as 1.5, and at least 1")]
    Ratio,
    /// The query is the same for all pods.
    #[error(
        "the query must have {{{{pods}}}} where it selects pods, as in pod=~\"{{{{pods}}}}\": it is asked once for the pods with the version, and \
         once for the others"
    )]
    NoPods,
    /// The reach of the query is unknown or too long.
    #[error("the query can't be used")]
    Query(#[source] ReachError),
    /// The address of the server can't be used.
    #[error("prometheus.address can't be used")]
    Address(#[source] AddressError),
}

/// Returns the faults of the analyses of this field.
pub fn analysis_faults(field: &str, analyses: &[Analysis]) -> Vec<Explanation> {
    let fault = |analysis: &Analysis| {
        let fault = parse_server(analysis).err()?;
        Some(invalid(field, format!("{}: {}", analysis.name, chain(&fault))))
    };
    analyses.iter().filter_map(fault).collect()
}

/// Reads the address of the server that an analysis asks, if the analysis can be used.
pub fn parse_server(analysis: &Analysis) -> Result<Address, AnalysisFault> {
    let Analysis { prometheus, max, max_ratio, .. } = analysis;
    if max.is_none() && max_ratio.is_none() {
        return Err(AnalysisFault::NoLimit);
    }
    let is_ratio = |text: &String| text.parse::<f64>().is_ok_and(|ratio| ratio >= 1.0);
    if max_ratio.as_ref().is_some_and(|ratio| !is_ratio(ratio)) {
        return Err(AnalysisFault::Ratio);
    }
    if !prometheus.query.contains("{{pods}}") {
        return Err(AnalysisFault::NoPods);
    }
    reach(&prometheus.query).map_err(AnalysisFault::Query)?;
    Address::parse(&prometheus.address).map_err(AnalysisFault::Address)
}

#[cfg(test)]
mod tests {
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

    fn said(change: &Value) -> Vec<String> {
        analysis_faults("field", &[analysis(change)]).into_iter().map(|fault| fault.message).collect()
    }

    #[test]
    fn what_has_a_meaning_passes() {
        for change in [json!({}), json!({"max": null, "maxRatio": "1.5"}), json!({"maxRatio": "1"})] {
            assert_eq!(said(&change), [""; 0], "{change}");
        }
    }

    #[test]
    fn what_has_none_is_a_fault() {
        let query = |query: &str| json!({"prometheus": {"address": "http://a", "query": query}});
        for (change, text) in [
            (json!({"max": null}), "set max, or maxRatio"),
            (json!({"maxRatio": "0.5"}), "maxRatio must be a number such as 1.5, and at least 1"),
            (query("up"), "the query must have {{pods}} where"),
            (query("rate(up{pod=~\"{{pods}}\"}[1d])"), "the query can't be used: it looks back for 86400 s"),
            (json!({"prometheus": {"address": "http://a@b", "query": "{{pods}}"}}), "must not have a user"),
        ] {
            let [said] = &said(&change)[..] else { panic!("{change}") };
            assert!(said.starts_with("field: errors: ") && said.contains(text), "{change}: {said}");
        }
    }
}
