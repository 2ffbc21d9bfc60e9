//! The version that a text is: one that exists, or one that Nudge is about to make.

use std::collections::BTreeMap;
use std::time::Duration;

use nudge_api::{ConditionType, PartKind, VersionStatus, VersionedConfig, find_condition};
use nudge_authoring::{Content, divide};
use nudge_core::derived_keys::{ContentKey, KEY_BYTES};
use nudge_core::followed_objects::{TEXT_DEBOUNCE, read_object};
use nudge_core::identity::Identity;
use nudge_core::keys::ConfigKey;
use nudge_core::publish::PublishedObject;
use nudge_core::versions::{ContentDigests, Contents, Seals, object_name};
use tokio::time::{Instant, sleep};

use super::ConfigText;
use crate::failure::{Exit, Failure};
use crate::rollout::switch::READ_INTERVAL;
use crate::session::Session;
use crate::version::stored::contents;

/// The time in which a text that stands becomes a version: the debounce, the reads of a Secret, and the control plane.
const TEXT_TIMEOUT: Duration = Duration::from_secs(40);

/// Describes the version that the text of the config is. `None` if the user may not read the text, or if only Nudge can
/// say it.
pub(crate) async fn describe(session: &Session, config: &VersionedConfig) -> Result<Option<String>, Failure> {
    let name = config.metadata.name.as_deref().unwrap_or_default();
    let text = match ConfigText::read(session, config).await {
        Ok(text) if !text.lacks_secret => text,
        Err(failure) if failure.status != 403 => return Err(failure),
        _ => return Ok(None),
    };
    Ok(description(name, config, text.objects))
}

/// Describes the version of this text.
fn description(
    name: &str,
    config: &VersionedConfig,
    mut objects: BTreeMap<PartKind, PublishedObject>,
) -> Option<String> {
    let mut content = Content::default();
    for kind in PartKind::ALL.into_iter().filter(|kind| config.spec.owns(*kind)) {
        match read_object(kind, name, objects.remove(&kind)) {
            Ok(text) if kind == PartKind::ConfigMap => content.open = text.contents,
            Ok(text) => content.secret = text.contents,
            Err(why) => return Some(format!("there is no text yet: {}", why.message)),
        }
    }
    if let Err(error) = content.check() {
        return Some(format!("the text can't become a version: {error}"));
    }
    let has_secret = !content.secret.is_empty();
    match known_version(name, config, content) {
        Some(version) => {
            let current = config.status.as_ref().and_then(|status| status.current_version.as_deref());
            let state = if current == Some(version.as_str()) { ", which is current" } else { "" };
            Some(format!("the text is version {version}{state}"))
        }
        // Only Nudge knows the digests of Secrets.
        None if has_secret => None,
        None => Some(format!(
            "the text is a new version, which Nudge makes when the text has not changed for {} s",
            TEXT_DEBOUNCE.as_secs()
        )),
    }
}

/// Returns the sealed version with this content. A version with a Secret is not known, because its digests are keyed.
fn known_version(name: &str, config: &VersionedConfig, content: Content) -> Option<String> {
    let status = config.status.as_ref()?;
    let key = ConfigKey::parse(config.metadata.namespace.clone().unwrap_or_default(), name).ok()?;
    let seals = Seals::new(&ContentKey::new(&[0; KEY_BYTES]), &key, Identity::of(config));
    let parts = divide(content).ok()?;
    let digests = ContentDigests::of(parts.iter().map(|part| (part.kind, &part.content)), &seals);
    digests.find_version(status, &seals).map(str::to_owned)
}

/// Returns the sealed version with exactly these contents, by kind. `None` if there is none, or if it has a Secret and
/// is neither current, nor previous, nor requested.
pub(crate) async fn find_version(
    session: &Session,
    config: &VersionedConfig,
    text: &BTreeMap<PartKind, Contents>,
) -> Result<Option<String>, Failure> {
    let name = config.metadata.name.as_deref().unwrap_or_default();
    if !text.contains_key(&PartKind::Secret) {
        let open = text.get(&PartKind::ConfigMap).cloned().unwrap_or_default();
        return Ok(known_version(name, config, Content { open, ..Content::default() }));
    }
    let Some(status) = &config.status else { return Ok(None) };
    let known = [status.current_version.as_deref(), status.previous_version.as_deref(), config.requested_version()];
    for version in known.into_iter().flatten().filter_map(|version| status.version(version)) {
        if is_version_of(session, version, text).await? {
            return Ok(Some(version.version.clone()));
        }
    }
    Ok(None)
}

/// Waits until Nudge has made a version of exactly this text. Returns the version, and the generation of the spec.
/// `limit` is the user's limit, or zero.
pub(crate) async fn wait_for_text(
    session: &Session,
    name: &str,
    text: &BTreeMap<PartKind, Contents>,
    limit: Duration,
) -> Result<(String, i64), Failure> {
    let deadline = Instant::now() + if limit.is_zero() { TEXT_TIMEOUT } else { limit.min(TEXT_TIMEOUT) };
    let mut other_version: Option<String> = None;
    loop {
        let config = session.config(name).await?;
        if let Some(version) = &config.spec.version {
            return Err(Failure::new(format!("config {name}: spec.version was set to {version} meanwhile")));
        }
        let version = config.requested_version().filter(|version| other_version.as_deref() != Some(*version));
        let sealed = version.and_then(|version| config.status.as_ref()?.version(version));
        if let Some(sealed) = sealed {
            let version = sealed.version.clone();
            if is_version_of(session, sealed, text).await? {
                return Ok((version, config.metadata.generation.unwrap_or_default()));
            }
            other_version = Some(version);
        }
        if let Some(kind) = changed_kind(&ConfigText::read(session, &config).await?.contents(), text) {
            return Err(Failure::with(
                Exit::RolloutFailed,
                format!(
                    "{} was changed by others meanwhile, so the text that was set becomes no version; see kubectl nudge status {name}",
                    object_name(kind, name)
                ),
            ));
        }
        if Instant::now() >= deadline {
            return Err(Failure::with(Exit::TimedOut, missing_version(name, &config)));
        }
        sleep(READ_INTERVAL).await;
    }
}

/// Returns the kind of an object whose text is not the one that was set any more.
fn changed_kind(now: &BTreeMap<PartKind, Contents>, set: &BTreeMap<PartKind, Contents>) -> Option<PartKind> {
    set.iter().find(|(kind, contents)| now.get(kind) != Some(contents)).map(|(kind, _)| *kind)
}

/// Returns the message about a text that has become no version in time.
fn missing_version(name: &str, config: &VersionedConfig) -> String {
    let status = config.status.as_ref();
    let version = config.requested_version();
    let refused = status.and_then(|status| status.invalid.iter().find(|invalid| Some(&*invalid.version) == version));
    if let Some(refused) = refused {
        return format!("config {name}: the text can't become a version ({}): {}", refused.reason, refused.message);
    }
    let fetched = config.status.as_ref().and_then(|status| find_condition(&status.conditions, ConditionType::Fetched));
    match fetched {
        Some(fetched) if fetched.status != "True" => {
            format!("config {name}: the text has become no version: {}", fetched.message)
        }
        Some(fetched) => format!(
            "config {name}: the text has become no version, and was perhaps changed meanwhile: {}; see kubectl nudge status {name}",
            fetched.message
        ),
        None => format!(
            "config {name}: Nudge has not read the text; check that namespace {} is enabled and that Nudge runs",
            config.metadata.namespace.as_deref().unwrap_or_default()
        ),
    }
}

/// Returns whether the version has exactly these contents, of the kinds that the text has.
async fn is_version_of(
    session: &Session,
    version: &VersionStatus,
    text: &BTreeMap<PartKind, Contents>,
) -> Result<bool, Failure> {
    let mut readable = version.clone();
    readable.parts.retain(|part| text.contains_key(&part.kind));
    Ok(contents(session, &readable).await? == *text)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use nudge_core::publish::PublishedObject;
    use nudge_core::versions::part_digest;
    use serde_json::{Value, json};
    use zeroize::Zeroizing;

    use super::*;

    fn contents(value: &str) -> Contents {
        [("lives".to_owned(), Zeroizing::new(value.as_bytes().to_vec()))].into()
    }

    fn config(status: &Value) -> VersionedConfig {
        serde_json::from_value(json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop", "namespace": "team"},
            "spec": {"objects": ["ConfigMap"]}, "status": status,
        }))
        .unwrap()
    }

    fn describe_text(lives: Option<&str>, current: &str) -> Option<String> {
        let part =
            json!({"kind": "ConfigMap", "name": "shop-1", "uid": "u", "digest": part_digest(&contents("3"), None)});
        let version = json!({"version": "1.0.0", "state": "Available", "keys": 1, "bytes": 1, "parts": [part]});
        let status = json!({"currentVersion": current, "versions": [version]});
        let map = lives.map(|lives| json!({"metadata": {"name": "shop"}, "data": {"lives": lives}}));
        let map = map.map(|map| PublishedObject::from(serde_json::from_value::<ConfigMap>(map).unwrap()));
        description("shop", &config(&status), map.into_iter().map(|map| (PartKind::ConfigMap, map)).collect())
    }

    #[test]
    fn a_text_is_a_version_that_exists_or_a_new_one() {
        assert_eq!(describe_text(Some("3"), "1.0.0").as_deref(), Some("the text is version 1.0.0, which is current"));
        assert_eq!(describe_text(Some("3"), "2").as_deref(), Some("the text is version 1.0.0"));
        let new = "the text is a new version, which Nudge makes when the text has not changed for 2 s";
        assert_eq!(describe_text(Some("5"), "1.0.0").as_deref(), Some(new));
        let none = describe_text(None, "1.0.0").unwrap();
        assert!(none.starts_with("there is no text yet: ConfigMap shop does not exist"), "{none}");
    }

    #[test]
    fn a_text_that_becomes_no_version_says_why() {
        let fetched = |status: &str| {
            let condition = json!({"type": "Fetched", "status": status, "reason": "NoText", "message": "it has no keys",
                "lastTransitionTime": "2026-01-01T00:00:00Z"});
            missing_version("shop", &config(&json!({"conditions": [condition]})))
        };
        assert_eq!(fetched("False"), "config shop: the text has become no version: it has no keys");
        assert!(fetched("True").contains("perhaps changed meanwhile"));
        assert!(missing_version("shop", &config(&json!({}))).contains("namespace team is enabled"));
        let refused = json!({"invalid": [{"version": "2", "reason": "Invalid", "message": "lives must be 1 at least", "rules": "r", "content": "c"}],
            "internal": {"text": {"version": "2", "settleTime": "2026-01-01T00:00:00Z"}}});
        let message = missing_version("shop", &config(&refused));
        assert_eq!(message, "config shop: the text can't become a version (Invalid): lives must be 1 at least");
    }

    #[test]
    fn a_text_that_others_have_changed_is_not_waited_for() {
        let text = |value: &str| [(PartKind::ConfigMap, contents(value))].into();
        assert_eq!(changed_kind(&text("3"), &text("3")), None);
        assert_eq!(changed_kind(&text("5"), &text("3")), Some(PartKind::ConfigMap));
        assert_eq!(changed_kind(&BTreeMap::new(), &text("3")), Some(PartKind::ConfigMap));
    }
}
