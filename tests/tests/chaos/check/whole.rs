//! No application sees a mix of two versions: in one reading all keys of a config belong to one version.

use std::collections::BTreeSet;

use super::belongs::version_in;
use super::story::Story;
use super::{Property, Report};
use crate::history::Values;

pub(super) fn check(story: &Story<'_>, report: &mut Report) {
    for pod in story.pods.iter().filter(|pod| !pod.reads.is_empty()) {
        let mixed = pod.reads.iter().find_map(|read| {
            let wrong = pod.pod.configs.iter().find_map(|config| {
                let is_bad = |version| story.bad.get(&(config, version)).copied();
                mixed(read.values, config, is_bad)
            })?;
            Some((read.at, format!("{} read, {:?}: {wrong}", pod.pod.name, read.how)))
        });
        report.outcome(Property::Whole, mixed);
    }
}

/// Returns what is wrong with the keys of one config.
fn mixed<'a>(values: &'a Values, config: &str, is_bad: impl Fn(&'a str) -> Option<bool>) -> Option<String> {
    let prefix = format!("{config}.");
    let keys: BTreeSet<&str> = values.keys().filter_map(|key| key.strip_prefix(&prefix)).collect();
    let Some(version) = version_in(values, config) else {
        return (!keys.is_empty()).then(|| format!("{config} has {keys:?} and no version"));
    };
    let Some(bad) = is_bad(version) else { return Some(format!("{config} has version {version}, which nobody made")) };
    let description = format!("only-{version}");
    let mut expected = BTreeSet::from(["text", "secret", &description]);
    if bad {
        expected.insert("bad");
    }
    if keys != expected {
        return Some(format!("{config} at version {version} has {keys:?} and not {expected:?}"));
    }
    let end = format!("@{version}");
    let other =
        keys.iter().find(|key| values.get(&format!("{prefix}{key}")).is_none_or(|value| !value.ends_with(&end)));
    other.map(|key| format!("{config}.{key} is not of version {version}"))
}
