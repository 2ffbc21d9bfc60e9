//! Checks of `spec.rollout.steps` beyond their schema: names, and selectors.

use std::collections::BTreeSet;

use nudge_api::{StepSelector, VersionedConfigSpec};

use crate::verdict::Denial;

/// Longest name in the key of a label, and longest value.
const MAX_NAME_BYTES: usize = 63;
/// Longest prefix of the key of a label.
const MAX_PREFIX_BYTES: usize = 253;

/// Checks the steps of a config where the request changes them: what is stored already may stay.
pub fn steps(name: &str, old: Option<&VersionedConfigSpec>, new: &VersionedConfigSpec) -> Result<(), Denial> {
    let steps = &new.rollout.steps;
    if old.is_some_and(|old| old.rollout.steps == *steps) {
        return Ok(());
    }
    let refused = |why: String| Denial::invalid(format!("VersionedConfig {name} can't have these steps: {why}"));
    let mut names = BTreeSet::new();
    if let Some(twice) = steps.iter().filter_map(|step| step.name.as_ref()).find(|name| !names.insert(*name)) {
        return Err(refused(format!("two of them have the name {twice}; rename one")));
    }
    let selectors: BTreeSet<_> = steps.iter().filter_map(|step| Some(&step.selector.as_ref()?.match_labels)).collect();
    if selectors.len() > StepSelector::MOST {
        let (count, most) = (selectors.len(), StepSelector::MOST);
        return Err(refused(format!("they have {count} different selectors, and {most} are allowed; use fewer")));
    }
    for (key, value) in selectors.into_iter().flatten() {
        if !is_key(key) {
            return Err(refused(format!("no pod can have a label with the key {key:?}; correct the selector")));
        }
        if !(value.is_empty() || is_name(value)) {
            return Err(refused(format!(
                "no pod can have a label {key} with the value {value:?}; correct the selector"
            )));
        }
    }
    Ok(())
}

/// Whether labels can have this key: a name, or the name of a domain, a slash and a name.
fn is_key(key: &str) -> bool {
    match key.split_once('/') {
        None => is_name(key),
        Some((prefix, name)) => {
            let lower = |part: &str| part.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'));
            prefix.len() <= MAX_PREFIX_BYTES
                && prefix.split('.').all(|part| lower(part) && ends_well(part))
                && is_name(name)
        }
    }
}

/// Whether it can be the name in a key, or a value that is not empty.
fn is_name(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    text.len() <= MAX_NAME_BYTES && text.bytes().all(inner) && ends_well(text)
}

fn ends_well(text: &str) -> bool {
    let at_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    at_end(text.as_bytes().first()) && at_end(text.as_bytes().last())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures::message;

    fn spec<'a>(labels: impl IntoIterator<Item = (&'a str, String)>) -> VersionedConfigSpec {
        let step = |(key, value): (&str, String)| json!({"pods": 1, "selector": {"matchLabels": {key: value}}});
        let all: Vec<_> = labels.into_iter().map(step).collect();
        serde_json::from_value(json!({"rollout": {"steps": all}})).unwrap()
    }

    fn one(key: &str, value: &str) -> Result<(), Denial> {
        steps("shop", None, &spec([(key, value.to_owned())]))
    }

    #[test]
    fn at_most_eight_selectors_differ() {
        let zones = |count: usize| spec((0..count).map(|zone| ("zone", (zone % 9).to_string())));
        assert_eq!(steps("shop", None, &zones(8)), Ok(()));
        let refusal = message(steps("shop", Some(&zones(8)), &zones(9)));
        assert_eq!(
            refusal,
            "VersionedConfig shop can't have these steps: they have 9 different selectors, and 8 are allowed; use fewer"
        );
        assert_eq!(steps("shop", Some(&zones(9)), &zones(9)), Ok(()), "what is there may stay");
        let mut again = zones(8);
        again.rollout.steps.extend(zones(8).rollout.steps);
        assert_eq!(steps("shop", None, &again), Ok(()), "the same ones count once");
    }

    #[test]
    fn a_name_stands_once() {
        let named = |names: [&str; 2]| {
            let steps = names.map(|name| json!({"name": name, "pods": 1}));
            serde_json::from_value::<VersionedConfigSpec>(json!({"rollout": {"steps": steps}})).unwrap()
        };
        assert_eq!(steps("shop", None, &named(["one", "two"])), Ok(()));
        let refusal = message(steps("shop", None, &named(["one", "one"])));
        assert_eq!(refusal, "VersionedConfig shop can't have these steps: two of them have the name one; rename one");
    }

    #[test]
    fn labels_must_be_such_that_pods_can_have_them() {
        for (key, value) in [("zone", "a"), ("app.kubernetes.io/name", "a_b.c-1"), ("A", ""), ("x/y", &"v".repeat(63))]
        {
            assert_eq!(one(key, value), Ok(()), "{key}={value}");
        }
        let (long, domain) = ("k".repeat(64), format!("{}/a", "d".repeat(254)));
        for key in ["", "a b", "-a", "a-", "/a", "a/", "a/b/c", "A.b/c", "a..b/c", "-a/b", &long, &domain] {
            let refusal = message(one(key, "a"));
            assert!(refusal.ends_with(&format!("with the key {key:?}; correct the selector")), "{refusal}");
        }
        for value in ["a b", "-a", "a.", "ä", &long] {
            let refusal = message(one("zone", value));
            assert!(refusal.contains("no pod can have a label zone with the value"), "{refusal}");
        }
    }
}
