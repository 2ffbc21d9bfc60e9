//! A text that fails where a Deployment reads the object itself.

use std::sync::{Arc, Mutex};

use nudge_api::ReleaseOutcome;

use super::*;

/// The time of a move and its return, which begins a minute after another one.
const MOVE_TIMEOUT: Duration = Duration::from_mins(2);

async fn write(space: &TestNamespace, value: &str) -> Result<()> {
    let patch = Patch::Merge(json!({"data": {"key": value}}));
    space.api::<ConfigMap>().patch("shop", &PatchParams::default(), &patch).await?;
    Ok(())
}

async fn read(space: &TestNamespace) -> Option<String> {
    space.api::<ConfigMap>().get("shop").await.ok()?.data?.remove("key")
}

fn message(status: &VersionedConfigStatus, kind: &str) -> String {
    let condition = status.conditions.iter().find(|condition| condition.type_ == kind);
    condition.map(|condition| format!("{}: {}", condition.reason, condition.message)).unwrap_or_default()
}

#[tokio::test]
async fn a_text_that_fails_gives_way_once_where_a_deployment_reads_it() -> Result<()> {
    let Some((installation, _)) = installation().await? else { return Ok(()) };
    let space = installation.enabled("write-back").await?;
    bind(&space, "nudge-restart").await?;
    space.create_object::<ConfigMap>(json!({"metadata": {"name": "shop"}, "data": {"key": "good"}})).await?;
    // The kubelet starts containers with the variables of that moment.
    let value = Arc::new(Mutex::new(Some("good".to_owned())));
    let (variable, watched) = (Arc::clone(&value), space.clone());
    let watch = tokio::spawn(async move {
        loop {
            let read = read(&watched).await;
            *value.lock().unwrap() = read;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let kubelet = Kubelet::start(&space, move |_| variable.lock().unwrap().as_deref() == Some("good"));
    deployment(&space, "web", json!({"progressDeadlineSeconds": 8})).await?;
    wait_until_available(&space, &["web"]).await?;
    let mut spec = json!({"objects": ["ConfigMap"]});
    spec["rollout"] = at_once();
    space.create_object::<VersionedConfig>(json!({"metadata": {"name": "shop"}, "spec": spec})).await?;
    let first = space
        .config_status_within(MOVE_TIMEOUT, "shop", "its readers are named", |status| {
            !status.internal.readers.is_empty()
        })
        .await?;
    let named = message(&first, "UnstagedReaders");
    ensure!(named.starts_with("UnstagedReaders: ConfigMap shop is read directly by Deployment/web,"), "{named}");

    write(&space, "bad").await?;
    let failed = space
        .config_status_within(MOVE_TIMEOUT, "shop", "the text gave way", |status| {
            !status.internal.written_back.is_empty()
        })
        .await?;
    ensure!(read(&space).await.as_deref() == Some("good"));
    let version = failed.internal.written_back[0].clone();
    ensure!(failed.rollout.failure.as_ref().is_some_and(|failure| failure.version == version), "{failed:#?}");
    let returned = space
        .config_status_within(MOVE_TIMEOUT, "shop", "the current text is current", |status| {
            status.state() == ConfigState::Current && status.desired_version == status.current_version
        })
        .await?;
    ensure!(returned.current_version.as_deref() == Some("1.0.0"), "{returned:#?}");
    ensure!(returned.releases.last().and_then(|release| release.outcome) == Some(ReleaseOutcome::RolledBack));
    wait_until_available(&space, &["web"]).await?;
    let events = space.api::<Event>().list(&ListParams::default()).await?.items;
    let said = events.iter().filter(|event| event.reason.as_deref() == Some("WrittenBack")).count();
    ensure!(said == 1, "{said} Events");

    // The user who writes it again has the last word.
    write(&space, "bad").await?;
    let stays = space
        .config_status_within(MOVE_TIMEOUT, "shop", "it failed again", |status| status.state() == ConfigState::Failed)
        .await?;
    ensure!(message(&stays, "Published").starts_with("OtherText: "), "{stays:#?}");
    ensure!(read(&space).await.as_deref() == Some("bad") && stays.internal.written_back == [version]);
    watch.abort();
    drop(kubelet);
    Ok(())
}
