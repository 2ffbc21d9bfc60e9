//! The webhook of `ConfigSource`s. A source reads, creates and activates with rights of its own, so a user needs the
//! same rights to create one, to change its spec, or to start a sync: otherwise the source would lend them.

use std::sync::Arc;

use async_trait::async_trait;
use futures::future::{join, try_join_all};
use kube::ResourceExt as _;
use kube::core::admission::Operation;
use kube::core::dynamic::DynamicObject;
use nudge_api::{ConfigSource, PartKind, SourcePlace};
use nudge_core::sources::source_faults;
use nudge_protocol::labels;

use super::unattended;
use super::webhook::{Webhook, WebhookError};
use crate::audit;
use crate::faults::check_faults;
use crate::lookups::{AttendedKind, Lookups, Right};
use crate::needed_right::NeededRight;
use crate::review::{ReviewError, ReviewRequest, parse_object};
use crate::verdict::{AdmissionVerdict, Denial};

/// The webhook that checks requests about sources.
#[derive(Clone, Debug)]
pub(crate) struct ValidateSources<L> {
    pub(crate) lookups: Arc<L>,
}

/// Returns the rights that the role uses for the source. A user who wants that done needs them, too.
fn lent_rights<'a>(from: SourcePlace<'a>, config: &'a str, publishes_secret: bool) -> Vec<Right<'a>> {
    let kind = from.part_kind();
    let mut rights: Vec<Right<'a>> = reading_rights(from).collect();
    rights.extend([Right::Create(kind), Right::Update(PartKind::ConfigMap, config)]);
    rights.extend(publishes_secret.then_some(Right::Update(PartKind::Secret, config)));
    // Older versions are deleted because of the source's history limit.
    rights.extend([Right::CreateConfigs, Right::PatchConfig(config), Right::Delete(kind)]);
    rights
}

/// Returns the rights to the objects that the source reads in the cluster for its user.
fn reading_rights(from: SourcePlace<'_>) -> impl Iterator<Item = Right<'_>> {
    let object = match from {
        SourcePlace::Vault(vault) => Some(Right::CreateToken(&vault.auth.kubernetes.service_account)),
        SourcePlace::Git(_) | SourcePlace::Oci(_) => None,
    };
    object.into_iter().chain(from.credentials().map(|secret| Right::Get(PartKind::Secret, secret)))
}

fn describe_origin(from: SourcePlace<'_>) -> String {
    match from {
        SourcePlace::Git(git) => git.url.clone(),
        SourcePlace::Oci(oci) => oci.url.clone(),
        SourcePlace::Vault(vault) => format!("a secret of {}", vault.address),
    }
}

#[async_trait]
impl<L: Lookups> Webhook for ValidateSources<L> {
    fn path(&self) -> &'static str {
        "/validate/sources"
    }

    async fn review(&self, request: &ReviewRequest) -> Result<AdmissionVerdict, WebhookError> {
        request.check_kind::<ConfigSource>()?;
        let action = match request.operation {
            Operation::Create => "create it",
            Operation::Update => match lending_change(request.old_object.as_ref(), request.object.as_ref()) {
                Some(change) => change,
                None => return Ok(AdmissionVerdict::allow()),
            },
            _ => return Ok(AdmissionVerdict::allow()),
        };
        let namespace = request.required_namespace()?;
        let source: ConfigSource = parse_object(request.required_object()?)?;
        let name = request.object_name();
        // The config has the name of the source if the spec names none, and that may still have to be generated.
        let config = source.spec.config_name.as_deref().unwrap_or(name);
        // The API server asks about every namespace: a source in one that is enabled later must have been authorized,
        // too.
        if !self.lookups.is_enabled(request, namespace).await? {
            return Ok(AdmissionVerdict::Deny(Denial::forbidden(format!(
                "ConfigSource {name}: namespace {namespace} is not enabled; enable it first: kubectl nudge enable {namespace}"
            ))));
        }
        // The user needs the rights on all that the spec names, so no part of it may be unreadable.
        let title = format!("ConfigSource {name}");
        if let Err(denial) = check_faults(&title, &[], &source_faults(name, &source.spec)) {
            return Ok(AdmissionVerdict::Deny(denial));
        }
        let place = source.spec.from.place().ok_or(ReviewError::Request("its object is not a ConfigSource"))?;
        let config_object = self.lookups.config(namespace, config).await?;
        let publishes_secret = config_object.is_some_and(|config| config.spec.owns(PartKind::Secret));
        let reviews = lent_rights(place, config, publishes_secret)
            .into_iter()
            .map(async |right| Ok::<_, WebhookError>((right, self.lookups.may(request, namespace, right).await?)));
        let unattended = unattended::warning(&*self.lookups, request, namespace, AttendedKind::Sources);
        let (rights, unattended) = join(try_join_all(reviews), unattended).await;
        let Some((right, _)) = rights?.into_iter().find(|(_, is_allowed)| !is_allowed) else {
            return Ok(AdmissionVerdict::warn(unattended.map(|cause| format!("{title}: {cause}"))));
        };
        audit::right_refused(request, config, action, right);
        let origin = describe_origin(place);
        let because = format!("the source makes versions of {origin} and decides what Nudge publishes as {config}");
        Ok(AdmissionVerdict::Deny(NeededRight::new(right, action, because).denial(&title, request.user(), namespace)))
    }
}

/// Returns the change that needs the rights of the source. The specs are compared as JSON, so unknown fields count too.
pub(crate) fn lending_change(old: Option<&DynamicObject>, new: Option<&DynamicObject>) -> Option<&'static str> {
    if old.and_then(|old| old.data.get("spec")) != new.and_then(|new| new.data.get("spec")) {
        return Some("change its spec");
    }
    let sync = new?.annotations().get(labels::SYNC);
    let is_new = sync.is_some() && old.and_then(|old| old.annotations().get(labels::SYNC)) != sync;
    is_new.then_some("set its annotation nudge.dev/sync")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use nudge_api::{VersionedConfig, VersionedConfigSpec};
    use serde_json::{Value, json};
    use tokio::time::Instant;

    use super::*;
    use crate::fixtures::{FakeLookups, request};

    fn source(from: &Value) -> Value {
        json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "ConfigSource", "metadata": {"name": "shop", "namespace": "team"},
            "spec": {"from": from}
        })
    }

    fn vault_source() -> Value {
        let auth = json!({"kubernetes": {"role": "shop", "serviceAccount": "shop"}});
        source(&json!({"vault": {"address": "https://vault:8200", "auth": auth, "kv": {"path": "shop"}}}))
    }

    fn git_source() -> Value {
        source(&json!({"git": {"url": "https://git.example.com/shop", "secretRef": {"name": "deploy"}}}))
    }

    fn all() -> FakeLookups {
        FakeLookups {
            enabled: true,
            may_update: true,
            may_create: vec![PartKind::ConfigMap, PartKind::Secret],
            may_create_configs: true,
            may_patch_config: true,
            may_delete: vec![PartKind::ConfigMap, PartKind::Secret],
            may_create_token: true,
            may_read: vec!["deploy"],
            ..FakeLookups::default()
        }
    }

    async fn reviewed(lookups: FakeLookups, request: &ReviewRequest) -> (Option<String>, Vec<String>) {
        let lookups = Arc::new(lookups);
        let verdict = ValidateSources { lookups: Arc::clone(&lookups) }.review(request).await.unwrap();
        let asked = std::mem::take(&mut *lookups.asked.lock().unwrap());
        let denied = if let AdmissionVerdict::Deny(denial) = verdict { Some(denial.message) } else { None };
        (denied, asked)
    }

    #[tokio::test]
    async fn a_source_needs_every_right_that_it_would_lend() {
        let made = request("ConfigSource", "CREATE", None, Some(&vault_source()));
        let (denied, asked) = reviewed(all(), &made).await;
        assert_eq!(denied, None);
        let rights = [
            "create tokens of ServiceAccount shop",
            "create Secrets",
            "update ConfigMap shop",
            "create VersionedConfigs",
            "patch VersionedConfig shop",
            "delete Secrets",
        ];
        let questions = rights.map(|right| format!("may eve {right} in team"));
        let asked: Vec<_> = asked.into_iter().filter(|question| question.starts_with("may ")).collect();
        assert_eq!(asked, questions);
        for (lookups, right) in [
            (FakeLookups { may_create_token: false, ..all() }, rights[0]),
            (FakeLookups { may_create: vec![PartKind::ConfigMap], ..all() }, rights[1]),
            (FakeLookups { may_update: false, ..all() }, rights[2]),
            (FakeLookups { may_create_configs: false, ..all() }, rights[3]),
            (FakeLookups { may_patch_config: false, ..all() }, rights[4]),
            (FakeLookups { may_delete: vec![PartKind::ConfigMap], ..all() }, rights[5]),
        ] {
            let denied = reviewed(lookups, &made).await.0.unwrap();
            assert!(denied.contains("user \"eve\" may not create it") && denied.contains(right), "{denied}");
        }
        let made = request("ConfigSource", "CREATE", None, Some(&git_source()));
        let denied = reviewed(FakeLookups { may_read: vec![], ..all() }, &made).await.0.unwrap();
        assert!(denied.contains("get Secret deploy"), "{denied}");
    }

    /// The role uses all that it may do, and does nothing else (`tests/tests/servers/rights.rs`). So a call that is new
    /// in it is found here.
    #[test]
    fn what_the_role_may_do_is_asked_of_who_has_it_done() {
        let sources =
            [vault_source(), git_source()].map(|source| serde_json::from_value::<ConfigSource>(source).unwrap());
        let asked: BTreeSet<_> = sources
            .iter()
            .flat_map(|source| lent_rights(source.spec.from.place().unwrap(), "shop", true))
            .map(|right| {
                let ((verb, group, resource), _) = right.rbac();
                [verb, group, resource].map(str::to_owned)
            })
            .collect();
        let roles = include_str!("../../../../deploy/components/sources/rbac-namespace.yaml");
        let roles: Vec<Value> = serde_saphyr::from_multiple(roles).unwrap();
        let texts = |value: &Value| serde_json::from_value::<Vec<String>>(value.clone()).unwrap();
        let mut unasked = Vec::new();
        for rule in roles.iter().flat_map(|role| role["rules"].as_array().unwrap()) {
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    let rights = texts(&rule["verbs"]).into_iter().map(|verb| [verb, group.clone(), resource.clone()]);
                    unasked.extend(rights.filter(|right| !asked.contains(right)).map(|right| right.join(" ")));
                }
            }
        }
        // The account reads sources and their configs, and writes the status of sources.
        let own = [
            "list nudge.dev configsources",
            "watch nudge.dev configsources",
            "patch nudge.dev configsources/status",
            "list nudge.dev versionedconfigs",
            "watch nudge.dev versionedconfigs",
        ];
        assert_eq!(unasked, own);
    }

    #[tokio::test]
    async fn a_source_of_a_config_that_publishes_a_secret_needs_the_right_to_update_that_too() {
        let mut config = VersionedConfig::new("shop", VersionedConfigSpec::default());
        config.spec.objects.push(PartKind::Secret);
        let made = request("ConfigSource", "CREATE", None, Some(&git_source()));
        let lookups = FakeLookups { config: Some(config), may_update_secret: true, ..all() };
        let (denied, asked) = reviewed(lookups, &made).await;
        assert_eq!(denied, None);
        assert!(asked.iter().any(|question| question == "may eve update Secret shop in team"), "{asked:?}");
    }

    #[tokio::test]
    async fn a_source_that_nobody_looks_at_says_so_with_the_command() {
        let made = request("ConfigSource", "CREATE", None, Some(&vault_source()));
        let warned =
            async |lookups: FakeLookups| match (ValidateSources { lookups: Arc::new(lookups) }).review(&made).await {
                Ok(AdmissionVerdict::Allow { warnings, patch: None }) => warnings,
                other => panic!("{other:?}"),
            };
        assert_eq!(warned(all()).await, Vec::<String>::new());
        let warnings = warned(FakeLookups { unattended: vec![AttendedKind::Sources], ..all() }).await;
        assert_eq!(
            warnings,
            [
                "ConfigSource shop: Nudge does not look at the ConfigSources of namespace team, because ClusterRole nudge-sources is not bound \
                 there; run kubectl create rolebinding nudge-sources -n team --clusterrole=nudge-sources --serviceaccount=nudge-system:nudge-sources"
            ]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn all_rights_are_asked_about_at_the_same_time() {
        let made = request("ConfigSource", "CREATE", None, Some(&vault_source()));
        let lookups =
            FakeLookups { slow: Duration::from_millis(1500), unattended: vec![AttendedKind::Sources], ..all() };
        let began = Instant::now();
        let verdict = ValidateSources { lookups: Arc::new(lookups) }.review(&made).await.unwrap();
        assert!(matches!(&verdict, AdmissionVerdict::Allow { warnings, .. } if warnings.len() == 1), "{verdict:?}");
        assert!(began.elapsed() < Duration::from_secs(2), "the webhook has 3 s: {:?}", began.elapsed());
    }

    #[tokio::test]
    async fn a_change_of_the_spec_and_a_sync_are_asked_about_and_nothing_else() {
        let mut other = vault_source();
        other["spec"]["suspend"] = json!(true);
        let changed = request("ConfigSource", "UPDATE", Some(&vault_source()), Some(&other));
        assert!(
            reviewed(FakeLookups { may_create_token: false, ..all() }, &changed)
                .await
                .0
                .unwrap()
                .contains("change its spec")
        );
        let synced = |value: &str| {
            let mut synced = vault_source();
            synced["metadata"]["annotations"] = json!({"nudge.dev/sync": value});
            synced
        };
        for before in [vault_source(), synced("1")] {
            let asked = request("ConfigSource", "UPDATE", Some(&before), Some(&synced("2")));
            let denied = reviewed(FakeLookups { may_create_token: false, ..all() }, &asked).await.0.unwrap();
            assert!(denied.contains("may not set its annotation nudge.dev/sync"), "{denied}");
        }
        for after in [vault_source(), synced("1")] {
            let as_before = request("ConfigSource", "UPDATE", Some(&synced("1")), Some(&after));
            assert_eq!(reviewed(FakeLookups::default(), &as_before).await, (None, Vec::new()));
        }
        let mut labelled = vault_source();
        labelled["metadata"]["labels"] = json!({"team": "a"});
        let same = request("ConfigSource", "UPDATE", Some(&vault_source()), Some(&labelled));
        assert_eq!(reviewed(FakeLookups::default(), &same).await, (None, Vec::new()));
        let deleted = request("ConfigSource", "DELETE", Some(&vault_source()), None);
        assert_eq!(reviewed(FakeLookups::default(), &deleted).await, (None, Vec::new()));
    }

    #[tokio::test]
    async fn a_source_of_a_namespace_that_is_not_enabled_is_refused() {
        let made = request("ConfigSource", "CREATE", None, Some(&vault_source()));
        let denied = reviewed(FakeLookups { enabled: false, ..all() }, &made).await.0.unwrap();
        assert!(denied.contains("is not enabled"), "{denied}");
    }

    #[tokio::test]
    async fn a_source_without_a_place_is_refused() {
        let neither = request("ConfigSource", "CREATE", None, Some(&source(&json!({}))));
        assert!(reviewed(all(), &neither).await.0.unwrap().contains("exactly one"));
    }
}
