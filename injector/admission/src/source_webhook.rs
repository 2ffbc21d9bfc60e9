//! The webhook of `ConfigSource`s. A source reads, creates and activates with rights of its own, so a user who creates one, or changes
//! its spec, needs the same rights: otherwise it would lend them.

use std::sync::Arc;

use futures::future::{BoxFuture, try_join_all};
use kube::core::admission::Operation;
use kube::core::dynamic::DynamicObject;
use nudge_api::{ConfigSource, FromOne, PartKind, VersionedConfig};
use nudge_core::sources::{published, source_faults};

use super::faults::refuse_new;
use super::lookups::{Attended, Lookups, Right};
use super::review::{Request, ReviewError};
use super::verdict::{Denial, Verdict};
use super::version_webhooks::namespace;
use super::webhook::{Webhook, WebhookError};
use super::{attention, audit};

/// Checks requests about sources.
#[derive(Clone, Debug)]
pub(super) struct ValidateSources<L> {
    lookups: Arc<L>,
}

impl<L: Lookups> ValidateSources<L> {
    /// A webhook that uses `lookups`.
    pub(super) fn new(lookups: Arc<L>) -> Self {
        Self { lookups }
    }

    async fn verdict(&self, request: &Request) -> Result<Verdict, WebhookError> {
        if request.kind.group != "nudge.dev" || request.kind.kind != "ConfigSource" {
            return Err(ReviewError::Request("it is not about a ConfigSource").into());
        }
        let what = match request.operation {
            Operation::Create => "create it",
            Operation::Update if spec(request.old_object.as_ref()) != spec(request.object.as_ref()) => {
                "change its spec"
            }
            _ => return Ok(Verdict::allow()),
        };
        let namespace = namespace(request)?;
        let source = source(request)?;
        let name = source.metadata.name.as_deref().filter(|name| !name.is_empty()).unwrap_or(&request.name);
        // The config has the name of the source where the spec names none, and that may still have to be generated.
        let config = source.spec.config_name.as_deref().unwrap_or(name);
        // It is asked about every namespace: a source of one that is enabled later must have been authorised, too.
        if !self.lookups.is_enabled(request, namespace).await? {
            return Ok(Verdict::Deny(Denial::forbidden(format!(
                "ConfigSource {name}: namespace {namespace} is not enabled; enable it first: kubectl nudge enable {namespace}"
            ))));
        }
        // Rights are asked for all that it names, so nothing may stay that can't be read.
        let title = format!("ConfigSource {name}");
        if let Err(denial) = refuse_new(&title, &[], &source_faults(name, &source.spec)) {
            return Ok(Verdict::Deny(denial));
        }
        let from = source.spec.from.only().ok_or(ReviewError::Request("its object is not a ConfigSource"))?;
        let mut known = None;
        if let FromOne::Object(kind, object) = from {
            let namesake = self.lookups.config(namespace, object).await?;
            let publishes = |found: &VersionedConfig| kind == PartKind::ConfigMap || found.spec.publishes(kind);
            if namesake.as_ref().is_some_and(publishes) {
                return Ok(refuse_new(&title, &[], &[published(kind, object)]).into());
            }
            known = namesake.filter(|_| object == config);
        }
        if known.is_none() {
            known = self.lookups.config(namespace, config).await?;
        }
        let mut rights: Vec<Right<'_>> = reading(from).collect();
        rights.extend([Right::Create(from.part_kind()), Right::UpdateConfigMap(config)]);
        if known.is_some_and(|known| known.spec.publishes(PartKind::Secret)) {
            rights.push(Right::UpdateSecret(config));
        }
        let asked = rights
            .into_iter()
            .map(async |right| Ok::<_, WebhookError>((right, self.lookups.may(request, namespace, right).await?)));
        let missing = try_join_all(asked).await?.into_iter().find(|(_, allowed)| !allowed);
        let Some((right, _)) = missing else {
            let unattended = attention::warning(&*self.lookups, request, namespace, Attended::Sources).await;
            return Ok(Verdict::warn(
                unattended.map(|why| format!("ConfigSource {name}: {why}")).into_iter().collect(),
            ));
        };
        audit::refused(request, config, what, right);
        let what_of = described(from);
        Ok(Verdict::Deny(Denial::forbidden(format!(
            "ConfigSource {name}: user {:?} may not {what}, because it makes versions of {what_of} and decides what Nudge publishes \
             as {config}; this needs the right to {right} in namespace {namespace}",
            request.user()
        ))))
    }
}

/// What the source reads for its user, beside what a server gives.
fn reading(from: FromOne<'_>) -> impl Iterator<Item = Right<'_>> {
    let object = match from {
        FromOne::Object(kind, object) => Some(Right::Get(kind, object)),
        FromOne::Vault(vault) => Some(Right::CreateToken(&vault.auth.kubernetes.service_account)),
        FromOne::Git(_) | FromOne::Oci(_) => None,
    };
    object.into_iter().chain(from.credentials().map(|secret| Right::Get(PartKind::Secret, secret)))
}

fn described(from: FromOne<'_>) -> String {
    match from {
        FromOne::Object(kind, object) => format!("{kind} {object}"),
        FromOne::Git(git) => git.url.clone(),
        FromOne::Oci(oci) => oci.url.clone(),
        FromOne::Vault(vault) => format!("a secret of {}", vault.address),
    }
}

impl<L: Lookups> Webhook for ValidateSources<L> {
    fn path(&self) -> &'static str {
        "/validate/sources"
    }

    fn review<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Verdict, WebhookError>> {
        Box::pin(self.verdict(request))
    }
}

/// As JSON, so unknown fields count too.
fn spec(object: Option<&DynamicObject>) -> Option<&serde_json::Value> {
    object?.data.get("spec")
}

fn source(request: &Request) -> Result<ConfigSource, ReviewError> {
    let object = request.object.as_ref().ok_or(ReviewError::Request("it lacks the object that its operation needs"))?;
    object.clone().try_parse().map_err(|_| ReviewError::Request("its object is not a ConfigSource"))
}

#[cfg(test)]
mod tests {
    use nudge_api::VersionedConfigSpec;
    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures::{FakeLookups, request};

    fn source(from: &Value) -> Value {
        json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "ConfigSource", "metadata": {"name": "shop", "namespace": "team"},
            "spec": {"from": from}
        })
    }

    fn secret() -> Value {
        source(&json!({"secret": {"name": "tls"}}))
    }

    fn all() -> FakeLookups {
        FakeLookups {
            enabled: true,
            may_update: true,
            may_create: vec![PartKind::ConfigMap, PartKind::Secret],
            may_read: vec!["tls", "live"],
            ..FakeLookups::default()
        }
    }

    async fn reviewed(lookups: FakeLookups, request: &Request) -> (Option<String>, Vec<String>) {
        let lookups = Arc::new(lookups);
        let verdict = ValidateSources::new(Arc::clone(&lookups)).review(request).await.unwrap();
        let asked = std::mem::take(&mut *lookups.asked.lock().unwrap());
        let denied = if let Verdict::Deny(denial) = verdict { Some(denial.message) } else { None };
        (denied, asked)
    }

    #[tokio::test]
    async fn a_source_needs_every_right_that_it_would_lend() {
        let made = request("ConfigSource", "CREATE", None, Some(&secret()));
        let (denied, asked) = reviewed(all(), &made).await;
        assert_eq!(denied, None);
        let rights = [
            "get Secret tls",
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
            (FakeLookups { may_read: vec![], ..all() }, rights[0]),
            (FakeLookups { may_create: vec![PartKind::ConfigMap], ..all() }, rights[1]),
            (FakeLookups { may_update: false, ..all() }, rights[2]),
        ] {
            let denied = reviewed(lookups, &made).await.0.unwrap();
            assert!(denied.contains("user \"eve\" may not create it") && denied.contains(right), "{denied}");
        }
    }

    #[tokio::test]
    async fn a_source_of_a_config_that_publishes_a_secret_needs_the_right_to_update_that_too() {
        let mut config = VersionedConfig::new("shop", VersionedConfigSpec::default());
        config.spec.objects.push(PartKind::Secret);
        let made = request("ConfigSource", "CREATE", None, Some(&source(&json!({"configMap": {"name": "live"}}))));
        let lookups = FakeLookups { config: Some(config), may_update_secret: true, ..all() };
        let (denied, asked) = reviewed(lookups, &made).await;
        assert_eq!((denied, asked.last().map(String::as_str)), (None, Some("may eve update Secret shop in team")));
    }

    #[tokio::test]
    async fn a_source_that_nobody_looks_at_says_so_with_the_command() {
        let made = request("ConfigSource", "CREATE", None, Some(&secret()));
        let warned = async |lookups: FakeLookups| match ValidateSources::new(Arc::new(lookups)).review(&made).await {
            Ok(Verdict::Allow { warnings, patch: None }) => warnings,
            other => panic!("{other:?}"),
        };
        assert_eq!(warned(all()).await, Vec::<String>::new());
        let warnings = warned(FakeLookups { unattended: vec![Attended::Sources], ..all() }).await;
        assert_eq!(
            warnings,
            [
                "ConfigSource shop: nobody looks at the ConfigSources of namespace team, because ClusterRole nudge-sources is not bound \
                 there; kubectl create rolebinding nudge-sources -n team --clusterrole=nudge-sources --serviceaccount=nudge-system:nudge-sources"
            ]
        );
    }

    #[tokio::test]
    async fn a_change_of_the_spec_and_a_sync_are_asked_about_and_nothing_else() {
        let mut other = secret();
        other["spec"]["suspend"] = json!(true);
        let changed = request("ConfigSource", "UPDATE", Some(&secret()), Some(&other));
        assert!(
            reviewed(FakeLookups { may_read: vec![], ..all() }, &changed).await.0.unwrap().contains("change its spec")
        );
        let synced = |value: &str| {
            let mut synced = secret();
            synced["metadata"]["annotations"] = json!({"nudge.dev/sync": value});
            synced
        };
        for before in [secret(), synced("1")] {
            let asked = request("ConfigSource", "UPDATE", Some(&before), Some(&synced("2")));
            let denied = reviewed(FakeLookups { may_read: vec![], ..all() }, &asked).await.0.unwrap();
            assert!(denied.contains("may not set its annotation nudge.dev/sync"), "{denied}");
        }
        for after in [secret(), synced("1")] {
            let as_before = request("ConfigSource", "UPDATE", Some(&synced("1")), Some(&after));
            assert_eq!(reviewed(FakeLookups::default(), &as_before).await, (None, Vec::new()));
        }
        let mut labelled = secret();
        labelled["metadata"]["labels"] = json!({"team": "a"});
        let same = request("ConfigSource", "UPDATE", Some(&secret()), Some(&labelled));
        assert_eq!(reviewed(FakeLookups::default(), &same).await, (None, Vec::new()));
        let deleted = request("ConfigSource", "DELETE", Some(&secret()), None);
        assert_eq!(reviewed(FakeLookups::default(), &deleted).await, (None, Vec::new()));
    }

    #[tokio::test]
    async fn a_source_of_a_namespace_that_is_not_enabled_is_refused() {
        let made = request("ConfigSource", "CREATE", None, Some(&secret()));
        let denied = reviewed(FakeLookups { enabled: false, ..all() }, &made).await.0.unwrap();
        assert!(denied.contains("is not enabled"), "{denied}");
    }

    #[tokio::test]
    async fn what_nudge_publishes_is_no_source() {
        let of =
            |map: &str| request("ConfigSource", "CREATE", None, Some(&source(&json!({"configMap": {"name": map}}))));
        let config = || Some(VersionedConfig::new("live", VersionedConfigSpec::default()));
        // The Secret of a config's name is another one, unless the config publishes it.
        let own = request("ConfigSource", "CREATE", None, Some(&source(&json!({"secret": {"name": "live"}}))));
        let lookups = || FakeLookups { config: config(), ..all() };
        assert_eq!(reviewed(lookups(), &own).await.0, None);
        let mut publishing = lookups();
        publishing.config.as_mut().unwrap().spec.objects.push(PartKind::Secret);
        let denied = reviewed(publishing, &own).await.0.unwrap();
        assert!(denied.contains("Secret live is what Nudge may publish"), "{denied}");
        assert_eq!(reviewed(all(), &of("live")).await.0, None);
        assert!(reviewed(all(), &of("shop")).await.0.unwrap().contains("is what Nudge may publish"));
        let denied = reviewed(FakeLookups { config: config(), ..all() }, &of("live")).await.0.unwrap();
        assert!(denied.contains("ConfigMap live is what Nudge may publish"), "{denied}");
        let neither = request("ConfigSource", "CREATE", None, Some(&source(&json!({}))));
        assert!(reviewed(all(), &neither).await.0.unwrap().contains("exactly one"));
    }
}
