//! The older rival of a source: of several sources for one config, the oldest makes its versions.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::ConfigSource;

/// Returns the oldest source for the same config that is older than `source`. Suspended sources do not count.
pub fn older_rival<'a>(source: &ConfigSource, sources: impl IntoIterator<Item = &'a ConfigSource>) -> Option<&'a str> {
    let is_older_rival =
        |other: &&ConfigSource| other.config() == source.config() && !other.spec.suspend && age(other) < age(source);
    sources
        .into_iter()
        .filter(is_older_rival)
        .min_by_key(|other| age(other))
        .and_then(|oldest| oldest.metadata.name.as_deref())
}

fn age(source: &ConfigSource) -> (Option<&Time>, Option<&str>) {
    (source.metadata.creation_timestamp.as_ref(), source.metadata.name.as_deref())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use serde_json::json;

    use super::*;

    fn source(name: &str, config: &str, second: i64, suspend: bool) -> ConfigSource {
        let from = json!({"git": {"url": "https://git.example.com/shop"}});
        let spec = json!({"configName": config, "from": from, "suspend": suspend});
        let mut source = ConfigSource::new(name, serde_json::from_value(spec).unwrap());
        source.metadata.creation_timestamp = Some(Time(Timestamp::from_second(second).unwrap()));
        source
    }

    #[test]
    fn the_oldest_that_is_not_suspended_makes_the_versions() {
        let all = [
            source("old", "shop", 1, true),
            source("b", "shop", 2, false),
            source("a", "shop", 2, false),
            source("web", "web", 0, false),
            source("new", "shop", 3, false),
        ];
        let rivals: Vec<Option<&str>> = all.iter().map(|one| older_rival(one, &all)).collect();
        assert_eq!(rivals, [None, Some("a"), None, None, Some("a")]);
    }
}
