//! Objects that users write by hand, without the injector: an agent's container of their own, and an ephemeral
//! container in a pod with an agent.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use nudge_protocol::pod::{AGENT_CONTAINER, env};
use serde_json::{Value, json};

use crate::pods::injecting_cluster::{InjectingCluster, create, opted_in, refusal};

/// Returns the agent's container in the list that this server uses for it.
fn agent(pod: &Pod) -> Result<Value> {
    let spec = serde_json::to_value(&pod.spec)?;
    let containers =
        ["initContainers", "containers"].map(|list| spec[list].as_array().cloned().unwrap_or_default()).concat();
    let mut agents = containers.into_iter().filter(|container| container["name"] == AGENT_CONTAINER);
    let agent = agents.next().context("no agent")?;
    ensure!(agents.next().is_none(), "there are two agents");
    Ok(agent)
}

/// A container that claims to be the injector's work keeps its image, which the user may choose, but none of its other
/// settings.
#[tokio::test]
async fn an_agent_that_claims_to_be_injected_becomes_as_the_injector_makes_it() -> Result<()> {
    let Some(injecting) = InjectingCluster::shared().await? else { return Ok(()) };
    let space = injecting.space("claimed").await?;
    let injected = create(&space, &opted_in("injected")).await?;
    let version = injected.labels().get("nudge.dev/agent").context("no label")?;
    let agent_container = json!({
        "name": AGENT_CONTAINER, "image": "mine", "command": ["/nudge-agent"], "args": ["run"],
        "env": [{"name": env::CONFIGS, "value": "shop,other"}, {"name": env::HUB, "value": "https://mine"},
                {"name": env::HUB_CA, "value": "mine"}],
        "securityContext": {"runAsUser": 0, "capabilities": {"add": ["SYS_PTRACE"]}, "allowPrivilegeEscalation": true},
    });
    let mut claimed = opted_in("claimed");
    claimed["spec"]["containers"].as_array_mut().context("no containers")?.push(agent_container);
    // Without the label it has the name of a copy, with it that of an injected pod.
    for label in [None, Some(version)] {
        let mut claimed = claimed.clone();
        claimed["metadata"]["name"] = json!(if label.is_some() { "labelled" } else { "copied" });
        if let Some(version) = label {
            claimed["metadata"]["labels"]["nudge.dev/agent"] = json!(version);
        }
        let stored = create(&space, &claimed).await?;
        let (mut agent, expected) = (agent(&stored)?, agent(&injected)?);
        for kept in ["image", "imagePullPolicy", "resources"] {
            agent[kept] = expected[kept].clone();
        }
        ensure!(agent == expected, "{agent:#} instead of {expected:#}");
    }
    // Any other container of that name is refused.
    claimed["spec"]["containers"][1]["command"] = json!(["/mine"]);
    let refused = refusal(create(&space, &claimed).await);
    ensure!(refused.contains("container name nudge-agent is reserved for Nudge's agent"), "{refused}");
    Ok(())
}

/// The API server does not ask Nudge about it, and it gets nothing of Nudge's. It may mount what the pod has: that is
/// Kubernetes' own rule.
#[tokio::test]
async fn an_ephemeral_container_is_not_injected_and_may_mount_the_pods_volumes() -> Result<()> {
    let Some(injecting) = InjectingCluster::shared().await? else { return Ok(()) };
    if !injecting.cluster.has(25, "ephemeral containers") {
        return Ok(());
    }
    let space = injecting.space("debugged").await?;
    let before = create(&space, &opted_in("web")).await?;
    let mounts = ["nudge-hub", "nudge-state"].map(|name| json!({"name": name, "mountPath": format!("/{name}")}));
    let debugger = json!({
        "name": "debugger", "image": "mine", "targetContainerName": AGENT_CONTAINER, "volumeMounts": mounts,
        "env": [{"name": env::CONFIGS, "value": "other"}],
    });
    let added = Patch::Strategic(json!({"spec": {"ephemeralContainers": [debugger]}}));
    let pods = space.api::<Pod>();
    let stored: Pod = pods.patch_subresource("ephemeralcontainers", "web", &PatchParams::default(), &added).await?;
    // The audit log names the webhooks that were asked.
    for (sub_resource, expected) in [(Value::Null, true), (json!("ephemeralcontainers"), false)] {
        let event = injecting.cluster.audited("the request is in the audit log", &space.name, |event| {
            let object_ref = &event["objectRef"];
            object_ref["namespace"] == *space.name
                && object_ref["name"] == "web"
                && object_ref["subresource"] == sub_resource
        });
        let event = event.await?;
        ensure!(event["annotations"].to_string().contains("pods.nudge.dev") == expected, "{event:#}");
    }
    ensure!((stored.labels(), stored.annotations()) == (before.labels(), before.annotations()), "{stored:#?}");
    let (mut spec, mut others) = (stored.spec.context("no spec")?, before.spec.context("no spec")?);
    let ephemeral = spec.ephemeral_containers.take().context("no ephemeral container")?;
    others.ephemeral_containers = None;
    ensure!(spec == others, "the pod has changed");
    ensure!(ephemeral.len() == 1, "{ephemeral:#?}");
    let debugger = serde_json::to_value(&ephemeral[0])?;
    let names = |list: &str| {
        let items = debugger[list].as_array().into_iter().flatten();
        items.filter_map(|item| item["name"].as_str()).collect::<Vec<_>>()
    };
    ensure!(names("env") == [env::CONFIGS] && names("volumeMounts") == ["nudge-hub", "nudge-state"], "{debugger:#}");
    Ok(())
}
