//! Workloads that read the published Secret without an agent: restarted as those that read the published ConfigMap.

use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::DeleteParams;

use super::*;

/// Returns a namespace where Nudge may publish Secrets and restart workloads.
async fn home(installation: &Installation<'_>, purpose: &str) -> Result<TestNamespace> {
    let space = installation.enabled(purpose).await?;
    for role in ["nudge-secrets", "nudge-publish-secrets", "nudge-restart"] {
        bind(&space, role).await?;
    }
    Ok(space)
}

/// A config that publishes both kinds, at version 1.
async fn both(space: &TestNamespace) -> Result<()> {
    secret(space, "1").await?;
    let rollout =
        json!({"steps": [{"pods": "100%"}], "minReadySeconds": 0, "bakeSeconds": 0, "progressDeadlineSeconds": 8});
    let spec = json!({"version": "1", "rollout": rollout, "objects": ["ConfigMap", "Secret"]});
    space.create_object::<VersionedConfig>(json!({"metadata": {"name": "shop"}, "spec": spec})).await?;
    wait_until_published(space, "1").await.map(drop)
}

async fn secret(space: &TestNamespace, version: &str) -> Result<()> {
    secret_of(space, version, json!({"key": version})).await
}

async fn secret_of(space: &TestNamespace, version: &str, data: Value) -> Result<()> {
    let object = json!({
        "metadata": {"name": format!("shop-{version}"), "labels": {"nudge.dev/config": "shop", "nudge.dev/version": version}},
        "immutable": true, "stringData": data,
    });
    create_part::<Secret>(space, object).await.map(drop)
}

async fn request_version(space: &TestNamespace, version: &str) -> Result<()> {
    let patch = json!({"spec": {"version": version}});
    space.api::<VersionedConfig>().patch("shop", &PatchParams::default(), &Patch::Merge(&patch)).await?;
    Ok(())
}

/// Waits until the version is published and current, and nothing moves.
async fn wait_until_published(space: &TestNamespace, version: &str) -> Result<VersionedConfigStatus> {
    wait_for_status(space, &format!("version {version} is published and current"), |status| {
        status.published_secret_version.as_deref() == Some(version)
            && status.current_version.as_deref() == Some(version)
            && status.rollout.stage.is_none()
    })
    .await
}

async fn value(space: &TestNamespace) -> Result<String> {
    let mut data = space.api::<Secret>().get("shop").await?.data.context("no data")?;
    Ok(String::from_utf8(data.remove("key").context("no key")?.0)?)
}

/// Returns a template whose pods read a Secret from the environment.
fn secret_reader(app: &str, name: &str) -> Value {
    let mut template = template(app);
    template["spec"]["containers"][0]["env"] =
        json!([{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": name, "key": "key"}}}]);
    template
}

#[tokio::test]
async fn who_started_with_an_older_value_is_restarted_though_the_last_version_has_the_new_one() -> Result<()> {
    let Some((installation, _)) = installation().await? else { return Ok(()) };
    let space = home(installation, "behind").await?;
    both(&space).await?;
    deployment(&space, "api", json!({"template": secret_reader("api", "shop")})).await?;
    let _kubelet = Kubelet::start(&space, |_| true);
    wait_until_available(&space, &["api"]).await?;
    space.api::<RoleBinding>().delete("nudge-publish-secrets", &DeleteParams::default()).await?;
    secret(&space, "2").await?;
    request_version(&space, "2").await?;
    let status = wait_until_current(&space, "2").await?;
    ensure!(status.published_secret_version.as_deref() == Some("1"), "{status:#?}");

    bind(&space, "nudge-publish-secrets").await?;
    secret_of(&space, "2-more", json!({"key": "2", "other": "a"})).await?;
    request_version(&space, "2-more").await?;
    let status = wait_until_published(&space, "2-more").await?;
    ensure!(digest(&space, "api").await?.is_some(), "api has key 1, which it started with: {status:#?}");
    Ok(())
}

#[tokio::test]
async fn readers_of_the_secret_are_restarted_and_restarted_back_when_they_fail() -> Result<()> {
    let Some((installation, _)) = installation().await? else { return Ok(()) };
    let space = home(installation, "secret").await?;
    both(&space).await?;
    // Pulls read the credentials again each time.
    let mut pulls = template("pulls");
    pulls["spec"]["imagePullSecrets"] = json!([{"name": "shop"}]);
    for (name, template) in
        [("api", secret_reader("api", "shop")), ("pulls", pulls), ("other", secret_reader("other", "of-others"))]
    {
        deployment(&space, name, json!({"progressDeadlineSeconds": 8, "template": template})).await?;
    }
    let good = std::sync::Arc::new(std::sync::Mutex::new(None::<String>));
    let known = std::sync::Arc::clone(&good);
    // Pods of the later version never become Ready.
    let _kubelet = Kubelet::start(&space, move |pod| match &*known.lock().unwrap() {
        Some(good) => pod.annotations().get(DIGEST).is_none_or(|digest| digest == good),
        None => true,
    });
    wait_until_available(&space, &["api", "pulls", "other"]).await?;

    secret(&space, "2").await?;
    request_version(&space, "2").await?;
    let status = wait_until_published(&space, "2").await?;
    ensure!(
        restarted_condition(&status).is_some_and(|(on, reason, _)| (on, reason) == ("True", "Restarted")),
        "{status:#?}"
    );
    let second = digest(&space, "api").await?.context("api was not restarted")?;
    for name in ["pulls", "other"] {
        ensure!(digest(&space, name).await?.is_none(), "{name} was restarted");
    }
    wait_until_available(&space, &["api"]).await?;
    ensure!(value(&space).await? == "2");
    secret_of(&space, "2-more", json!({"key": "2", "other": "a"})).await?;
    request_version(&space, "2-more").await?;
    wait_until_published(&space, "2-more").await?;
    ensure!(digest(&space, "api").await?.as_ref() == Some(&second), "api was restarted, and reads no key that changed");

    *good.lock().unwrap() = Some(second.clone());
    secret(&space, "3").await?;
    request_version(&space, "3").await?;
    let status = wait_for_status(&space, "version 3 failed", |status| status.state() == ConfigState::Failed).await?;
    let failure = status.rollout.failure.clone().context("no failure")?;
    ensure!((failure.version.as_str(), failure.reason.as_str()) == ("3", "RestartFailed"), "{failure:?}");
    ensure!(status.published_secret_version.as_deref() == Some("2-more"), "{status:#?}");
    ensure!(value(&space).await? == "2", "the old value is back");
    ensure!(digest(&space, "api").await?.as_ref() == Some(&second), "api was not restarted back");
    Ok(())
}
