//! Dictionaries of a given size.

use anyhow::Result;
use nudge_tests::ConfigDir;

/// The one config of the benchmarks.
pub(crate) const CONFIG: &str = "shop";
/// The versions it is switched between.
pub(crate) const VERSIONS: [&str; 2] = ["1.0.0", "1.0.1"];

/// Length of a value, about that of a URL, a list of hosts, or a short secret.
const VALUE_BYTES: usize = 48;

/// Returns a folder with both versions, each of about `bytes` as JSON, the first one current.
pub(crate) fn config_dir(bytes: usize) -> Result<ConfigDir> {
    let dir = ConfigDir::new()?;
    for version in VERSIONS {
        dir.write_version(CONFIG, version, entries(version, bytes))?;
    }
    dir.switch(CONFIG, VERSIONS[0])?;
    Ok(dir)
}

/// Returns keys and values that differ between versions and make up `bytes` as JSON, but for the few keys the agent
/// adds.
pub(crate) fn entries(version: &str, bytes: usize) -> Vec<(String, String)> {
    let mut entries = Vec::new();
    let mut length = "{}".len();
    while length < bytes {
        let key = format!("service-{:04}.setting", entries.len());
        // `"key":"value",`
        let frame = key.len() + 6;
        let value = VALUE_BYTES.min(bytes.saturating_sub(length + frame));
        entries.push((key, format!("{version}-").repeat(VALUE_BYTES).chars().take(value).collect()));
        length += frame + value;
    }
    entries
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn entries_have_the_given_size_as_json() {
        for size in [4096, 65536] {
            let entries: BTreeMap<_, _> = entries("1.0.0", size).into_iter().collect();
            let length = serde_json::to_vec(&entries).unwrap().len();
            assert!(length.abs_diff(size) < 64, "{length} for {size}");
        }
    }
}
