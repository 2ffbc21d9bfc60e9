//! Two sources for one config: the older one makes its versions.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::ConfigSource;

/// The source that comes before this one, where both are for the same config. A suspended one comes before none.
pub fn rival<'a>(source: &ConfigSource, all: impl IntoIterator<Item = &'a ConfigSource>) -> Option<&'a str> {
    let before =
        |other: &&ConfigSource| other.config() == source.config() && !other.spec.suspend && age(other) < age(source);
    all.into_iter().filter(before).min_by_key(|other| age(other)).and_then(|first| first.metadata.name.as_deref())
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
        let spec = json!({"configName": config, "from": {"configMap": {"name": "live"}}, "suspend": suspend});
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
        let rivals: Vec<Option<&str>> = all.iter().map(|one| rival(one, &all)).collect();
        assert_eq!(rivals, [None, Some("a"), None, None, Some("a")]);
    }
}
