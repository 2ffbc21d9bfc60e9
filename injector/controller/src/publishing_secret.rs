//! Keeps the published Secret at the version that is proven. Nothing watches it: it is looked at again every five minutes, and sooner where
//! it can't be written. No value of it leaves this file, and neither does what the API server says about one.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use nudge_api::{
    ConditionType, Explanation, PartKind, Reason, VersionStatus, VersionedConfig, condition, find_condition,
    set_condition,
};
use nudge_cluster::call::{CallError, call};
use nudge_core::event_record::EventRecord;
use nudge_core::keys::ConfigKey;
use nudge_core::rollout::to_publish;
use nudge_core::versions::{
    Holder, Seals, SecretData, SecretPublication, SecretWanted, contents_of, publish_time, published_secret,
    secret_publication,
};
use zeroize::Zeroize as _;

use super::controller::{Controller, FIELD_MANAGER, Looked, written_by_us};
use super::locked::locked;
use super::publishing::Outcome;
use super::secret_look::SecretLook;

impl Controller {
    /// Publishes the proven version into the Secret, where the spec asks for that. Returns the config with its new status, if that changed.
    pub(super) async fn publish_secret(
        &self,
        key: &ConfigKey,
        config: &VersionedConfig,
    ) -> Result<Option<Outcome>, CallError> {
        let Some(status) = &config.status else { return Ok(None) };
        if !config.spec.publishes(PartKind::Secret) {
            locked(&self.secrets).remove(key);
            return Ok(unpublished(config));
        }
        let Some(version) = to_publish(status).and_then(|version| status.version(version)) else {
            locked(&self.secrets).remove(key);
            return Ok(None);
        };
        let (name, generation, now) = (version.version.as_str(), config.metadata.generation, Instant::now());
        let before = locked(&self.secrets).get(key).cloned();
        if before.as_ref().is_some_and(|look| !look.is_due(name, generation, now)) {
            return Ok(None);
        }
        let (step, held, at) = self.secret_step(key, config, version).await?;
        let refused = matches!(&step, SecretPublication::Refused(why) if why.reason != Reason::NoSecretPart);
        let look = SecretLook::after(before.as_ref(), name, generation, refused, now);
        locked(&self.secrets).insert(key.clone(), look);
        Ok(with_outcome(config, name, &step, held, at, &Time(Timestamp::now())))
    }

    /// When to look at the published Secret again.
    pub(super) fn secret_again(&self, key: &ConfigKey) -> Option<Duration> {
        let next = locked(&self.secrets).get(key).map(|look| look.next)?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    /// What was not recorded is looked at again.
    pub(super) fn forget_published(&self, key: &ConfigKey) {
        locked(&self.looked).remove(key);
        locked(&self.secrets).remove(key);
    }

    /// The version that was last brought to all that is published, or that could not be written there.
    pub(super) fn tried(&self, key: &ConfigKey, config: &VersionedConfig) -> Option<String> {
        let (_, Looked { version, .. }) = self.looked(key)?;
        let all = locked(&self.secrets);
        let secret = || all.get(key).is_some_and(|look| look.version == version);
        (!config.spec.publishes(PartKind::Secret) || secret()).then_some(version)
    }

    /// What became of the Secret, whether one of ours is there that holds what the status says, and when it was written.
    async fn secret_step(
        &self,
        key: &ConfigKey,
        config: &VersionedConfig,
        version: &VersionStatus,
    ) -> Result<(SecretPublication, bool, Timestamp), CallError> {
        let now = Timestamp::now();
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &key.namespace);
        let name = key.name.as_str();
        let mut found = match call(|| format!("reading Secret {key}"), api.get_opt(name)).await {
            Ok(found) => Wiped(found),
            Err(error) => return refusal(error, name, Doing::Read).map(|refused| (refused, true, now)),
        };
        let at = publish_time(found.0.as_ref().map(|secret| Holder::Found(&secret.metadata)), FIELD_MANAGER, now);
        let seals = self.seals(key, config);
        let data = match secret_data(&api, version, &seals).await? {
            Ok(data) => data,
            Err(why) => return Ok((SecretPublication::Refused(why), found.0.is_some(), at)),
        };
        let published = config.status.as_ref().and_then(|status| status.published_secret_version.as_deref());
        let wanted = SecretWanted {
            name,
            version: &version.version,
            published,
            data: data.as_ref(),
            seals: &seals,
            writer: FIELD_MANAGER,
        };
        let step = secret_publication(found.0.as_ref(), &wanted);
        let others = |why: &Explanation| matches!(why.reason, Reason::NotOurs | Reason::IsVersion);
        let held = found.0.is_some() && !matches!(&step, SecretPublication::Refused(why) if others(why));
        let Some(data) = data.as_ref().filter(|_| step == SecretPublication::Write) else {
            return Ok((step, held, at));
        };
        let doing = if held { Doing::Replace } else { Doing::Create };
        let next = published_secret(found.0.take(), name, &version.version, data, &seals);
        let next = Wiped(Some(next));
        let Some(object) = &next.0 else { return Ok((step, held, at)) };
        let written = match doing {
            Doing::Create => call(|| format!("creating Secret {key}"), api.create(&written_by_us(), object)).await,
            _ => call(|| format!("replacing Secret {key}"), api.replace(name, &written_by_us(), object)).await,
        };
        let written = match written {
            Ok(written) => Wiped(Some(written)),
            Err(error) => return refusal(error, name, doing).map(|refused| (refused, held, at)),
        };
        // What a webhook of others made of it is what pods read.
        if secret_publication(written.0.as_ref(), &wanted) != SecretPublication::Published {
            let message = format!(
                "Secret {name} was changed while it was written and does not hold version {}; look for an admission webhook that changes \
                 Secrets",
                version.version
            );
            return Ok((SecretPublication::Refused(Reason::ChangedByOthers.explained(message)), false, at));
        }
        tracing::info!(version = version.version, "version published in the Secret");
        let at = publish_time(
            written.0.as_ref().map(|secret| Holder::Written(&secret.metadata)),
            FIELD_MANAGER,
            Timestamp::now(),
        );
        Ok((SecretPublication::Published, true, at))
    }
}

/// The version's Secrets as they were sealed, `None` without any; an explanation where one has changed.
async fn secret_data(
    api: &Api<Secret>,
    version: &VersionStatus,
    seals: &Seals,
) -> Result<Result<Option<SecretData>, Explanation>, CallError> {
    let mut data = None;
    for (part, number) in version.parts.iter().zip(1..).filter(|(part, _)| part.kind == PartKind::Secret) {
        let name = &part.name;
        let mut found = Wiped(call(|| format!("reading Secret {name}"), api.get_opt(name)).await?);
        let same = |object: &Secret| {
            let content = contents_of(None, object.data.clone());
            object.metadata.uid.as_ref() == Some(&part.uid)
                && seals.is_sealed(&part.digest, &version.version, number, &content)
        };
        let same = found.0.as_ref().is_some_and(same);
        let Some(object) = found.0.take_if(|_| same) else {
            let message = format!(
                "Secret {name} is gone or is not what was sealed as version {}; put it back as it was",
                version.version
            );
            return Ok(Err(Reason::Changed.explained(message)));
        };
        match SecretData::with(data, object, &version.version) {
            Ok(all) => data = Some(all),
            Err(why) => return Ok(Err(why)),
        }
    }
    Ok(Ok(data))
}

/// A Secret whose values are overwritten in memory when it is dropped.
struct Wiped(Option<Secret>);

impl Drop for Wiped {
    fn drop(&mut self) {
        let values = self.0.iter_mut().filter_map(|secret| secret.data.as_mut()).flat_map(BTreeMap::values_mut);
        values.for_each(|value| value.0.zeroize());
    }
}

/// What is done with the Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Read,
    Create,
    Replace,
}

impl Doing {
    /// As a message has it, with the role that allows it and the flag that binds that.
    fn texts(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Read => ("read", "nudge-secrets", "--secrets"),
            Self::Create => ("created", "nudge-publish-secrets", "--secrets --publish-secrets"),
            Self::Replace => ("replaced", "nudge-publish-secrets", "--secrets --publish-secrets"),
        }
    }
}

/// The refusal that the next attempt would get too; else the error, after which it is tried again at once.
fn refusal(error: CallError, name: &str, doing: Doing) -> Result<SecretPublication, CallError> {
    let (doing, role, flags) = doing.texts();
    let CallError::Api { source, .. } = &error else { return Err(error) };
    let (reason, message) = match &**source {
        kube::Error::Api(status) if status.code == 403 && status.message.contains(" cannot ") => (
            Reason::NotAllowed,
            format!(
                "Secret {name} can't be {doing}; bind ClusterRole {role} in this namespace (RoleBinding for ServiceAccount \
                 nudge-system/nudge-injector; kubectl nudge enable NAMESPACE {flags}), or remove Secret from spec.objects"
            ),
        ),
        // Its message may quote a value.
        kube::Error::Api(status) if matches!(status.code, 400 | 403 | 413 | 422) => (
            Reason::Refused,
            format!(
                "Secret {name} can't be {doing}, because the API server refuses it with code {}: look for a quota, an admission \
                 webhook, or a key that its type needs",
                status.code
            ),
        ),
        kube::Error::SerdeError(_) => (
            Reason::NotOurs,
            format!("Secret {name} can't be {doing}, because it is not a Secret as Nudge knows them; delete it"),
        ),
        _ => return Err(error),
    };
    Ok(SecretPublication::Refused(reason.explained(message)))
}

/// The config with the condition and `publishedSecret` as the step left them, where that is a change. `held`: what the status says may
/// still be true. `at`: when the Secret was written, if it holds the version.
fn with_outcome(
    config: &VersionedConfig,
    version: &str,
    step: &SecretPublication,
    held: bool,
    at: Timestamp,
    now: &Time,
) -> Option<Outcome> {
    let mut next = config.clone();
    let status = next.status.get_or_insert_default();
    let mut events = Vec::new();
    let known = find_condition(&status.conditions, ConditionType::SecretPublished).map(|known| known.message.clone());
    let (on, reason, message) = match step {
        // One that was to be written has been by now.
        SecretPublication::Published | SecretPublication::Write => {
            let message = format!("the published Secret holds version {version}");
            if status.published_secret_version.as_deref() != Some(version) {
                events.push(EventRecord::new(Reason::Published, message.as_str()));
                status.secret_publish_time = Some(Time(at));
            }
            status.published_secret_version = Some(version.to_owned());
            (true, Reason::Published, message)
        }
        SecretPublication::Drifted(message) => {
            if known.as_ref() != Some(message) {
                events.push(EventRecord::new(Reason::Drifted, message.as_str()));
            }
            (false, Reason::ChangedByOthers, message.clone())
        }
        SecretPublication::Refused(Explanation { reason, message }) => {
            if known.as_ref() != Some(message) {
                events.push(EventRecord::new(Reason::NotPublished, message.as_str()));
            }
            if !held {
                (status.published_secret_version, status.secret_publish_time) = (None, None);
            }
            (false, *reason, message.clone())
        }
    };
    let condition = condition(ConditionType::SecretPublished, on, reason, message, config.metadata.generation, now);
    set_condition(&mut status.conditions, condition);
    (next.status != config.status).then_some((next, events))
}

/// The config after `Secret` has left `spec.objects`: the object stays as it is, and nothing is said of it.
fn unpublished(config: &VersionedConfig) -> Option<Outcome> {
    let mut next = config.clone();
    let status = next.status.as_mut()?;
    (status.published_secret_version, status.secret_publish_time) = (None, None);
    status.conditions.retain(|condition| condition.type_ != ConditionType::SecretPublished.as_str());
    (next.status != config.status).then_some((next, Vec::new()))
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn config() -> VersionedConfig {
        let mut config = VersionedConfig::new("shop", nudge_api::VersionedConfigSpec::default());
        config.status = Some(nudge_api::VersionedConfigStatus::default());
        config
    }

    #[test]
    fn the_status_claims_no_more_than_was_written() {
        let now = Time(Timestamp::UNIX_EPOCH);
        let (published, events) =
            with_outcome(&config(), "1", &SecretPublication::Published, true, now.0, &now).unwrap();
        let held = |config: &VersionedConfig| config.status.as_ref().unwrap().published_secret_version.clone();
        assert_eq!((held(&published).as_deref(), events.len()), (Some("1"), 1));
        assert_eq!(with_outcome(&published, "1", &SecretPublication::Published, true, now.0, &now), None);
        let refused = |held| {
            let why = Reason::NotAllowed.explained("m");
            with_outcome(&published, "2", &SecretPublication::Refused(why), held, now.0, &now).unwrap()
        };
        assert_eq!((held(&refused(true).0).as_deref(), held(&refused(false).0)), (Some("1"), None));
        let (after, events) = refused(true);
        assert_eq!(events.len(), 1);
        let again = SecretPublication::Refused(Reason::NotAllowed.explained("m"));
        assert_eq!(with_outcome(&after, "2", &again, true, now.0, &now), None, "one Event");
        let (gone, _) = unpublished(&after).unwrap();
        let status = gone.status.as_ref().unwrap();
        assert!(held(&gone).is_none() && status.secret_publish_time.is_none() && status.conditions.is_empty());
        assert_eq!(unpublished(&gone), None);
    }

    #[test]
    fn what_the_api_server_says_of_a_secret_is_not_repeated() {
        let answer = |code: u16, message: &str| {
            let status = Status { code, message: message.to_owned(), ..Status::default() };
            let error = CallError::Api {
                what: "replacing Secret ns/shop".to_owned(),
                source: std::sync::Arc::new(kube::Error::Api(Box::new(status))),
            };
            refusal(error, "shop", Doing::Replace).map(|step| match step {
                SecretPublication::Refused(why) => why,
                other => panic!("{other:?}"),
            })
        };
        let denied = answer(403, "secrets \"shop\" is forbidden: User \"x\" cannot update resource").unwrap();
        assert_eq!(denied.reason, Reason::NotAllowed);
        for code in [400, 403, 413, 422] {
            let why = answer(code, "data is wrong: hunter2").unwrap();
            assert!(why.reason == Reason::Refused && !why.message.contains("hunter2"), "{why}");
        }
        for code in [404, 409, 500, 503] {
            assert!(answer(code, "again").is_err());
        }
    }
}
