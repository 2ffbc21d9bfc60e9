//! The webhook of pods: it makes the look-ups that injection needs, and answers with its patch.

use std::collections::BTreeSet;

use async_trait::async_trait;
use futures::future::{join3, try_join_all};
use k8s_openapi::api::core::v1::Pod;
use kube::core::ObjectMeta;
use kube::core::admission::Operation;
use nudge_api::PartKind;
use nudge_core::injection::{Features, InjectionFacts, InjectionRefusal, InjectionSettings, PodRequest, inject, read};
use nudge_protocol::ConfigName;

use crate::audit;
use crate::lookups::{LookupError, PodLookups};
use crate::review::{ReviewError, ReviewRequest};
use crate::verdict::{AdmissionVerdict, Denial};
use crate::webhooks::{Webhook, WebhookError};

/// The error of a replica that can't inject pods yet. The failure policy refuses them, and their controller tries
/// again.
#[derive(Debug, thiserror::Error)]
#[error("Nudge can't inject pods at this moment, because {0}; try again")]
struct NotReady(&'static str);

/// The webhook that injects pods.
#[derive(Clone, Debug)]
pub struct InjectPods<L> {
    lookups: L,
    settings: InjectionSettings,
}

impl<L: PodLookups> InjectPods<L> {
    /// Creates a webhook that injects with these settings.
    pub fn new(lookups: L, settings: InjectionSettings) -> Self {
        Self { lookups, settings }
    }

    /// Makes all look-ups concurrently, and returns their results.
    async fn gather_facts(
        &self,
        request: &ReviewRequest,
        pod: &ObjectMeta,
        pod_request: &PodRequest,
        (features, hub_ca): (Features, impl AsRef<str>),
    ) -> Result<InjectionFacts, WebhookError> {
        let namespace = request.required_namespace()?;
        let mut names: BTreeSet<ConfigName> =
            pod_request.configs().into_iter().chain(pod_request.configs_of_secrets()).collect();
        let references = &pod_request.config_maps;
        names.extend(references.iter().filter_map(|name| ConfigName::new(name).ok()));
        let configs = names.into_iter().filter_map(|name| {
            let config = self.lookups.config(namespace, name.as_str(), pod, &pod_request.service_account)?;
            Some((name, config))
        });
        let mut facts = InjectionFacts {
            features,
            hub_ca: hub_ca.as_ref().to_owned(),
            configs: configs.collect(),
            ..InjectionFacts::default()
        };
        // An object with a config of its name stands for that config.
        let has_config = |name: &String| facts.configs.keys().any(|config| config.as_str() == name);
        let look_up = async |kind, names: &[String]| {
            let lookups = names.iter().filter(|name| !has_config(name)).map(async |name| {
                let verdict = self.lookups.baseline(request, kind, namespace, name).await?;
                Ok::<_, LookupError>((name.clone(), verdict))
            });
            let verdicts = try_join_all(lookups).await?;
            Ok::<_, LookupError>(verdicts.into_iter().filter_map(|(name, verdict)| Some((name, verdict?))).collect())
        };
        let maps = look_up(PartKind::ConfigMap, references);
        let secrets = look_up(PartKind::Secret, &pod_request.secrets);
        let (maps, secrets, limits) = join3(maps, secrets, self.lookups.limits(namespace)).await;
        (facts.config_maps, facts.secrets, facts.limits) = (maps?, secrets?, limits);
        Ok(facts)
    }
}

#[async_trait]
impl<L: PodLookups> Webhook for InjectPods<L> {
    fn path(&self) -> &'static str {
        "/mutate/pods"
    }

    async fn review(&self, request: &ReviewRequest) -> Result<AdmissionVerdict, WebhookError> {
        request.check_kind::<Pod>()?;
        if request.operation != Operation::Create || request.sub_resource.is_some() {
            return Ok(AdmissionVerdict::allow());
        }
        let object = request.required_object()?;
        let pod = serde_json::to_value(object).map_err(|_| ReviewError::Request("its object can't be used"))?;
        let name = pod_name(&object.metadata, &request.name);
        let deny =
            |refusal: &InjectionRefusal| AdmissionVerdict::Deny(Denial::invalid(format!("Pod {name}: {refusal}")));
        let pod_request = match read(&pod) {
            Ok(Some(pod_request)) => pod_request,
            Ok(None) => return Ok(AdmissionVerdict::allow()),
            Err(refusal) => return Ok(deny(&refusal)),
        };
        let basis = self.lookups.basis().map_err(|missing| WebhookError::Internal(NotReady(missing).into()))?;
        let facts = self.gather_facts(request, &object.metadata, &pod_request, basis).await?;
        match inject(&pod, &pod_request, &facts, &self.settings) {
            Ok(injection) => {
                audit::versions_mounted(request, &name, &pod_request.service_account, &injection.mounted);
                Ok(AdmissionVerdict::patch(injection.patch.0).with_warnings(injection.warnings))
            }
            Err(refusal) => Ok(deny(&refusal)),
        }
    }
}

/// Returns the pod's name, or the beginning of the one that it gets.
fn pod_name(pod: &ObjectMeta, requested: &str) -> String {
    let name = pod.name.as_deref().filter(|name| !name.is_empty()).unwrap_or(requested);
    match pod.generate_name.as_deref() {
        Some(prefix) if name.is_empty() => format!("{prefix}*"),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::LimitRangeItem;
    use nudge_core::baseline::BaselineVerdict;
    use nudge_core::injection::{AgentDefaults, ResolvedConfig, UnknownKeys};
    use serde_json::json;

    use super::*;
    use crate::fixtures;

    /// A namespace without configs.
    struct Empty;

    impl PodLookups for Empty {
        fn basis(&self) -> Result<(Features, Arc<str>), &'static str> {
            Ok((Features { native_sidecars: true, ..Features::default() }, Arc::from("")))
        }

        fn config(&self, _: &str, _: &str, _: &ObjectMeta, _: &str) -> Option<ResolvedConfig> {
            None
        }

        async fn baseline(
            &self,
            _: &ReviewRequest,
            _: PartKind,
            _: &str,
            _: &str,
        ) -> Result<Option<BaselineVerdict>, LookupError> {
            Ok(None)
        }

        async fn limits(&self, _: &str) -> Vec<LimitRangeItem> {
            Vec::new()
        }
    }

    /// The verdict about a pod with this annotation.
    async fn reviewed(unknown_keys: UnknownKeys, annotation: &str) -> AdmissionVerdict {
        let settings = InjectionSettings {
            agent_image: "agent".to_owned(),
            agent_kill_image: "agent-kill".to_owned(),
            image_pull_policy: None,
            image_pull_secrets: Vec::new(),
            hub: "https://hub".to_owned(),
            foreign_containers: Vec::new(),
            foreign_containers_allowed: false,
            agent_defaults: AgentDefaults::default(),
            unknown_keys,
        };
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "web", "annotations": {
                "nudge.dev/inject": "true", "nudge.dev/configs": "shop", format!("nudge.dev/{annotation}"): "5m"}},
            "spec": {"containers": [{"name": "app", "image": "app", "resources": {"requests": {"cpu": "1"}}}]},
        });
        let creation = fixtures::request("Pod", "CREATE", None, Some(&pod));
        InjectPods::new(Empty, settings).review(&creation).await.unwrap()
    }

    #[tokio::test]
    async fn an_annotation_that_is_not_known_is_refused_or_a_warning() {
        let version = env!("CARGO_PKG_VERSION");
        let key = "nudge.dev/cpu"; // words: allow
        let message = format!("annotation {key} is not known to Nudge {version}; did you mean nudge.dev/agent-cpu?");
        let refused = reviewed(UnknownKeys::Refuse, "cpu").await;
        assert_eq!(refused, AdmissionVerdict::Deny(Denial::invalid(format!("Pod web: {message}"))));
        for (unknown_keys, annotation, warned) in
            [(UnknownKeys::Warn, "cpu", true), (UnknownKeys::Refuse, "agent-cpu", false)]
        {
            let verdict = reviewed(unknown_keys, annotation).await;
            let AdmissionVerdict::Allow { warnings, patch: Some(_) } = verdict else { panic!("{verdict:?}") };
            assert_eq!(warnings.contains(&message), warned, "{warnings:?}");
        }
    }
}
