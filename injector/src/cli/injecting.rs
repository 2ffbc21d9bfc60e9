//! What injection and the repair loop are made of: from settings to the parts that `serve` runs.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use nudge_admission::pods::Known;
use nudge_cluster::features::{FeatureMetrics, keep_features};
use nudge_cluster::index::Index;
use nudge_cluster::lease::Leadership;
use nudge_controller::{RepairMetrics, RepairSettings, repair};
use nudge_core::features::Overrides;
use nudge_core::injection::InjectionSettings;
use nudge_protocol::error_chain::chain;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::settings::{InjectionArguments, Repair, ServeSettings};

/// What the webhook of pods works with.
pub(super) struct Injecting {
    pub(super) settings: InjectionSettings,
    pub(super) known: Known,
    /// The task without which the features would grow old.
    pub(super) task: AbortHandle,
}

/// Begins to read the features; the webhook waits for them.
pub(super) fn begin(
    settings: &ServeSettings,
    client: Client,
    index: &Arc<Index>,
    hub_ca: watch::Receiver<Arc<str>>,
    registry: &mut Registry,
) -> Injecting {
    let metrics = FeatureMetrics::default();
    metrics.register(registry);
    let (known, features) = watch::channel(None);
    let arguments = &settings.injection;
    let task = tokio::spawn(keep_features(client, overrides(arguments), metrics, known)).abort_handle();
    let known = Known { index: Arc::clone(index), features, hub_ca };
    Injecting { settings: injection_settings(arguments, &settings.namespace), known, task }
}

/// Looks for pods without an agent while this replica leads.
pub(super) fn begin_repair(
    settings: &ServeSettings,
    client: Client,
    index: &Arc<Index>,
    leadership: Leadership,
    replica: &str,
    registry: &mut Registry,
) {
    let metrics = RepairMetrics::default();
    metrics.register(registry);
    let arguments = &settings.repair;
    let settings = RepairSettings {
        account: format!("{}:{}", settings.namespace, settings.service_account),
        evictions_per_minute: match arguments.repair {
            Repair::Off => 0,
            Repair::Evict => arguments.repair_per_minute,
        },
        every: Duration::from_secs(arguments.repair_seconds.into()),
        age: Duration::from_secs(arguments.repair_age_seconds.into()),
    };
    let repairing = tokio::spawn(repair(client, Arc::clone(index), leadership, settings, metrics, replica.to_owned()));
    // Nothing else depends on it, so its end is a fault to be told but no reason to end.
    tokio::spawn(async move {
        if let Err(error) = repairing.await {
            tracing::error!(cause = chain(&error), "the repair loop has ended, which is a bug");
        }
    });
}

fn overrides(arguments: &InjectionArguments) -> Overrides {
    Overrides { kubelet: arguments.kubelet_version, family: arguments.pod_ip_family, own_address: arguments.pod_ip }
}

fn injection_settings(arguments: &InjectionArguments, namespace: &str) -> InjectionSettings {
    let names = |names: &[String]| {
        let names = names.iter().map(|name| name.trim()).filter(|name| !name.is_empty());
        names.map(str::to_owned).collect()
    };
    InjectionSettings {
        agent_image: arguments.agent_image.clone(),
        agent_kill_image: arguments.agent_kill_image.clone(),
        image_pull_policy: arguments.image_pull_policy.clone(),
        image_pull_secrets: names(&arguments.image_pull_secrets),
        hub: arguments.hub_url.clone().unwrap_or_else(|| format!("https://nudge-hub.{namespace}.svc")),
        foreign_containers: names(&arguments.foreign_containers),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        settings: ServeSettings,
    }

    #[test]
    fn every_default_is_usable() {
        let settings = Line::parse_from(["serve"]).settings;
        let injection = injection_settings(&settings.injection, "nudge-system");
        assert_eq!(injection.hub, "https://nudge-hub.nudge-system.svc");
        assert_eq!(injection.agent_image, format!("nudge-agent:{}", env!("CARGO_PKG_VERSION")));
        assert_eq!(injection.image_pull_policy, None);
        assert!(injection.foreign_containers.contains(&"istio-proxy".to_owned()));
        assert!(injection.foreign_containers.iter().all(|name| !name.contains(char::is_whitespace)));
        assert_eq!(settings.repair.repair, Repair::Off);
    }

    #[test]
    fn what_is_said_is_taken() {
        let line = ["serve", "--kubelet-version", "1.33", "--pod-ip-family=ipv6", "--image-pull-secrets", "a, b,"];
        let settings = Line::parse_from(line).settings;
        assert_eq!(overrides(&settings.injection).kubelet.map(|told| told.to_string()).as_deref(), Some("1.33"));
        assert_eq!(injection_settings(&settings.injection, "n").image_pull_secrets, ["a", "b"]);
        assert!(Line::try_parse_from(["serve", "--kubelet-version", "new"]).is_err());
        assert!(Line::try_parse_from(["serve", "--image-pull-policy", "Sometimes"]).is_err());
    }
}
