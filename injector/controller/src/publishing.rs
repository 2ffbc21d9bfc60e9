//! Rule 7: keeps the published ConfigMap at the version that is proven.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use nudge_api::{
    ConditionType, Explanation, PartKind, Reason, VersionStatus, VersionedConfig, VersionedConfigStatus, condition,
    find_condition, set_condition,
};
use nudge_cluster::call::{CallError, call};
use nudge_core::event_record::EventRecord;
use nudge_core::keys::{ConfigKey, PublishedMeta};
use nudge_core::rollout::to_publish;
use nudge_core::versions::{Data, Holder, Publication, Seals, contents_of, publication, publish_time};

use super::controller::{Controller, FIELD_MANAGER, Looked, written_by_us};

/// When a ConfigMap is read again that no watch shows, because it does not have our label.
const AGAIN: Duration = Duration::from_mins(5);

/// The config with its new status, and the Events about that.
pub(super) type Outcome = (VersionedConfig, Vec<EventRecord>);

impl Controller {
    /// Publishes the proven version into the ConfigMap. Returns the config with its new status, if that changed.
    pub(super) async fn publish(
        &self,
        key: &ConfigKey,
        config: &VersionedConfig,
    ) -> Result<Option<Outcome>, CallError> {
        let Some(status) = &config.status else { return Ok(None) };
        let Some(version) = to_publish(status).and_then(|version| status.version(version)) else {
            return Ok(None);
        };
        let publishes = config.spec.publishes(PartKind::ConfigMap);
        let looked = Looked { version: version.version.clone(), publishes, meta: self.index.published(key) };
        if !publishes {
            self.set_looked(key, looked);
            return Ok(unpublished(config));
        }
        if self.looked(key).is_some_and(|(at, before)| before == looked && at.elapsed() < AGAIN) {
            return Ok(None);
        }
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &key.namespace);
        let map = call(|| format!("reading ConfigMap {key}"), maps.get_opt(key.name.as_str())).await?;
        let data = match &map {
            Some(_) => Self::data(&maps, version, &self.seals(key, config)).await?,
            None => Ok(None),
        };
        let published = status.published_version.as_deref();
        let step = match &data {
            Ok(data) => publication(map.as_ref(), &version.version, published, data.as_ref(), FIELD_MANAGER),
            Err(message) => Publication::Refused(Reason::Changed.explained(message)),
        };
        // What the watch shows of it now, or after this write.
        let mut meta = looked.meta.clone();
        let found = map.as_ref().map(|map| Holder::Found(&map.metadata));
        let mut at = publish_time(found, FIELD_MANAGER, Timestamp::now());
        let step = match step {
            Publication::Replace(next) => {
                let replacing = || format!("replacing ConfigMap {key}");
                match call(replacing, maps.replace(key.name.as_str(), &written_by_us(), &next)).await {
                    Ok(written) => {
                        meta = Some(meta_of(&written));
                        at = publish_time(Some(Holder::Written(&written.metadata)), FIELD_MANAGER, Timestamp::now());
                        tracing::info!(version = version.version, "version published in the ConfigMap");
                        Publication::Published
                    }
                    Err(error) if error.code() == 403 => Publication::Refused(Reason::NotAllowed.explained(format!(
                        "ConfigMap {} can't be written; bind ClusterRole nudge-namespace in this namespace",
                        key.name
                    ))),
                    Err(error) => return Err(error),
                }
            }
            step => step,
        };
        self.set_looked(key, Looked { meta, ..looked });
        Ok(with_outcome(config, &version.version, &step, at, &Time(Timestamp::now())))
    }

    /// Text and bytes of the version's ConfigMaps as they were sealed, `None` without any; a message where one has changed.
    async fn data(
        maps: &Api<ConfigMap>,
        version: &VersionStatus,
        seals: &Seals,
    ) -> Result<Result<Option<Data>, String>, CallError> {
        let mut data: Option<Data> = None;
        let parts = version.parts.iter().zip(1..);
        for (part, number) in parts.filter(|(part, _)| part.kind == PartKind::ConfigMap) {
            let name = &part.name;
            let found = call(|| format!("reading ConfigMap {name}"), maps.get_opt(name)).await?;
            let (text, bytes) = data.get_or_insert_default();
            let same = |object: &ConfigMap| {
                let content = contents_of(object.data.clone(), object.binary_data.clone());
                object.metadata.uid.as_ref() == Some(&part.uid)
                    && seals.is_sealed(&part.digest, &version.version, number, &content)
            };
            let Some(object) = found.filter(same) else {
                return Ok(Err(format!(
                    "ConfigMap {name} is gone or is not what was sealed as version {}; put it back as it was",
                    version.version
                )));
            };
            text.extend(object.data.into_iter().flatten());
            bytes.extend(object.binary_data.into_iter().flatten());
        }
        Ok(Ok(data))
    }
}

fn meta_of(map: &ConfigMap) -> PublishedMeta {
    PublishedMeta {
        uid: map.metadata.uid.clone().unwrap_or_default(),
        resource_version: map.metadata.resource_version.clone().unwrap_or_default(),
    }
}

/// The config with conditions and `publishedVersion` as the step left them, where that is a change. `at` is when the object was written that
/// holds the version, if one does.
fn with_outcome(
    config: &VersionedConfig,
    version: &str,
    step: &Publication,
    at: Timestamp,
    now: &Time,
) -> Option<Outcome> {
    let mut next = config.clone();
    let generation = config.metadata.generation;
    let status = next.status.get_or_insert_default();
    let mut events = Vec::new();
    let (published, drifted) = (ConditionType::Published, ConditionType::Drifted);
    let set = |status: &mut VersionedConfigStatus, kind, on, reason: Reason, message: String| {
        set_condition(&mut status.conditions, condition(kind, on, reason, message, generation, now));
    };
    if !matches!(step, Publication::Drifted(_)) {
        status.conditions.retain(|condition| condition.type_ != drifted.as_str());
    }
    match step {
        Publication::NotThere => match &status.published_version {
            // `publishedVersion` stays: what somebody creates under its name belongs to them until the next activation.
            Some(held) => {
                let name = config.metadata.name.as_deref().unwrap_or_default();
                let message = format!(
                    "ConfigMap {name}, which held version {held}, was deleted; create it again if it is needed"
                );
                set(status, published, false, Reason::NotFound, message);
            }
            None => status.conditions.retain(|condition| condition.type_ != published.as_str()),
        },
        // A Replace has been written by now.
        Publication::Published | Publication::Replace(_) => {
            if status.published_version.as_deref() != Some(version) {
                let message = format!("the published ConfigMap holds version {version}");
                events.push(EventRecord::new(Reason::Published, message));
                status.publish_time = Some(Time(at));
            }
            status.published_version = Some(version.to_owned());
            set(status, published, true, Reason::Published, format!("the published ConfigMap holds version {version}"));
        }
        Publication::Drifted(message) => {
            let is_new = find_condition(&status.conditions, drifted).is_none();
            if is_new {
                events.push(EventRecord::new(Reason::Drifted, message.clone()));
            }
            set(status, drifted, true, Reason::ChangedByOthers, message.clone());
        }
        Publication::Refused(Explanation { reason, message }) => {
            let known = status.conditions.iter().any(|condition| condition.message == *message);
            if !known {
                events.push(EventRecord::new(Reason::NotPublished, message.clone()));
            }
            set(status, published, false, *reason, message.clone());
        }
    }
    (next.status != config.status).then_some((next, events))
}

/// The config after `ConfigMap` has left `spec.objects`: the object stays as it is, and nothing is said of it.
fn unpublished(config: &VersionedConfig) -> Option<Outcome> {
    let mut next = config.clone();
    let status = next.status.as_mut()?;
    (status.published_version, status.publish_time) = (None, None);
    let gone = [ConditionType::Published, ConditionType::Drifted].map(ConditionType::as_str);
    status.conditions.retain(|condition| !gone.contains(&condition.type_.as_str()));
    (next.status != config.status).then_some((next, Vec::new()))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use hyper::http;
    use kube::Client;
    use kube::client::Body;
    use nudge_cluster::index::Index;
    use ring::hmac;
    use serde_json::{Value, json};
    use tower::service_fn;

    use super::*;
    use crate::RolloutMetrics;
    use crate::locked::locked;

    /// What is asked of the API server, which has no objects of the config's name, and what is said to be published.
    async fn asked(objects: Value) -> (Vec<String>, Option<String>) {
        let paths = Arc::new(Mutex::new(Vec::new()));
        let requests = Arc::clone(&paths);
        let service = service_fn(move |request: http::Request<Body>| {
            locked(&requests).push(format!("{} {}", request.method(), request.uri().path()));
            let missing = json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404});
            let answer = http::Response::builder().status(404).body(Body::from(missing.to_string().into_bytes()));
            async { answer }
        });
        let config: VersionedConfig = serde_json::from_value(json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "spec": {"version": "1", "objects": objects},
            "metadata": {"name": "shop", "namespace": "ns", "uid": "u", "resourceVersion": "1"},
            "status": {"currentVersion": "1", "versions": [{"version": "1", "state": "Current", "keys": 1, "bytes": 1,
                "parts": [{"kind": "ConfigMap", "name": "shop-1", "uid": "u", "digest": "sha256:0"}]}]},
        }))
        .unwrap();
        let content_key = Arc::new(hmac::Key::new(hmac::HMAC_SHA256, b"key"));
        let (client, silence) = (Client::new(service, "ns"), Duration::from_mins(1));
        let index = Arc::new(Index::default());
        let controller = Controller::new(client, index, content_key, "a", silence, RolloutMetrics::default());
        let key = ConfigKey::parse("ns", "shop").unwrap();
        let outcome = controller.publish(&key, &config).await.unwrap();
        assert_eq!(outcome, None, "{objects}");
        if !config.spec.publishes(PartKind::Secret) {
            assert_eq!(controller.publish_secret(&key, &config).await.unwrap(), None, "{objects}");
        }
        let tried = controller.tried(&key, &config);
        (std::mem::take(&mut *locked(&paths)), tried)
    }

    #[tokio::test]
    async fn what_nobody_asked_for_is_neither_read_nor_written() {
        let one = Some("1".to_owned());
        assert_eq!(asked(json!([])).await, (vec![], one.clone()), "a rollout waits for nothing");
        let map = "GET /api/v1/namespaces/ns/configmaps/shop".to_owned();
        assert_eq!(asked(json!(["ConfigMap"])).await, (vec![map], one));
        assert_eq!(asked(json!(["Secret"])).await, (vec![], None), "the Secret was not tried yet");
    }
}
