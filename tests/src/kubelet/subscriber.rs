//! A pod with an agent and an application that prints the number which it finds in its files at each signal.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod as PodObject;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::Pod;
use crate::cluster::TestNamespace;
use crate::cluster::installation::{agent_token, hub_ca, injected_pod_with};

/// Starts both for a new pod of the config `shop`, whose key `number` is read; `meta` is merged into the pod's
/// metadata, and `app` is the program `app` of these tests.
pub async fn subscriber(
    space: &TestNamespace,
    hub: SocketAddr,
    name: &str,
    meta: &Value,
    app: &str,
) -> Result<(PodObject, Pod)> {
    let mut meta = meta.clone();
    meta["name"] = name.into();
    let object = injected_pod_with(space, "shop", &meta, &json!({})).await?;
    let pod = serving(space, hub, &object, ("shop", None), app).await?;
    Ok((object, pod))
}

/// Starts both for an existing pod with these configs. The pod's application is asked about versions here.
pub async fn serving(
    space: &TestNamespace,
    hub: SocketAddr,
    object: &PodObject,
    (configs, check): (&'static str, Option<&str>),
    app: &str,
) -> Result<Pod> {
    let mut pod = Pod::of(format!("https://{hub}"), &hub_ca(space).await?, &agent_token(space, object).await?)?;
    pod.configs = configs;
    let files = pod.path("files");
    let mut pod = pod.with(&["--mount-path", files.to_str().context("a path")?, "--notify", "app=SIGUSR1"]);
    if let Some(url) = check {
        pod = pod.with(&["--check", &format!("app={url}")]);
    }
    // As the injector gives them to the agent.
    for pattern in object.annotations().get("nudge.dev/keys.app").into_iter().flat_map(|keys| keys.split(',')) {
        pod = pod.with(&["--keys", &format!("app={pattern}")]);
    }
    let read = files.join("number");
    pod.start_app(app, &["--catch", "SIGUSR1", "--read", read.to_str().context("a path")?]).await?;
    pod.start().await?;
    Ok(pod)
}
