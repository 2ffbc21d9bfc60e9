//! The patterns that select keys of a source's content.

use nudge_api::ConfigSourceSpec;
use nudge_protocol::matches_pattern;

/// Returns whether the source takes this key.
pub fn selects_key(spec: &ConfigSourceSpec, key: &str) -> bool {
    let matches_any = |patterns: &[String]| patterns.iter().any(|pattern| matches_pattern(pattern, key));
    matches_any(&spec.include) && !matches_any(&spec.exclude)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_excluded_is_left_out_though_it_is_included() {
        let from = json!({"git": {"url": "https://git.example.com/shop"}});
        let spec = serde_json::from_value(json!({"from": from, "include": ["app.*"], "exclude": ["*.bak"]})).unwrap();
        assert_eq!(["app.yaml", "app.bak", "other"].map(|key| selects_key(&spec, key)), [true, false, false]);
    }
}
