//! The comparison of two versions by their content.

use nudge_api::VersionedConfigStatus;

/// Returns whether a process gets the same content from both of these versions. Versions with a Secret part never seem
/// equal, because their seals differ.
pub fn is_same_content(status: &VersionedConfigStatus, one: &str, other: &str) -> bool {
    let digests = |version: &str| {
        let parts = &status.version(version)?.parts;
        Some(parts.iter().map(|part| (part.kind, part.digest.as_str())).collect::<Vec<_>>())
    };
    one == other || digests(one).is_some_and(|one| Some(one) == digests(other))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_same_parts_are_the_same() {
        let version = |name: &str, kind: &str, digest: &str| {
            json!({"version": name, "state": "Available", "keys": 1, "bytes": 1,
                "parts": [{"kind": kind, "name": format!("shop-{name}"), "uid": name, "digest": digest}]})
        };
        let versions = [
            version("1", "ConfigMap", "a"),
            version("2", "ConfigMap", "a"),
            version("3", "ConfigMap", "b"),
            version("4", "Secret", "seal:a"),
        ];
        let status: VersionedConfigStatus = serde_json::from_value(json!({"versions": versions})).unwrap();
        let same = ["1", "2", "3", "4", "gone"].map(|other| is_same_content(&status, "1", other));
        assert_eq!(same, [true, true, false, false, false]);
        assert!(is_same_content(&status, "gone", "gone") && !is_same_content(&status, "gone", "away"));
    }
}
