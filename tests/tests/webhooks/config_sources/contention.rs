//! Sources that compete with each other, and with people.

use anyhow::{Context, Result, ensure};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use nudge_api::{ConfigSource, VersionedConfig};
use nudge_tests::servers::git_content::git_content;
use serde_json::json;

use crate::config_sources::refused::sources_of;
use crate::config_sources::scene::{
    condition, config_until, create_quick_source, enabled, is, until, versions, wait_until_current,
};

#[tokio::test]
async fn of_two_sources_for_one_config_the_older_one_makes_its_versions() -> Result<()> {
    let Some(space) = enabled("two", false).await? else { return Ok(()) };
    let (Some(one), Some(two)) = (git_content(&space, "one", "1").await?, git_content(&space, "two", "2").await?)
    else {
        return Ok(());
    };
    let quickly = json!({"configName": "shop", "debounceSeconds": 0, "minPeriodSeconds": 0});
    super::scene::source(&space, "a", &one.from, &quickly).await?;
    let first = wait_until_current(&space, "a", None).await?;
    // Creation times are whole seconds, and then the name decides.
    super::scene::source(&space, "b", &two.from, &quickly).await?;
    let taken = until(&space, "b", "its config is taken", is("ConfigTaken")).await?;
    ensure!(condition(&taken, "Stalled").0 == "True", "{taken:?}");
    ensure!(condition(&taken, "Ready").2.starts_with("source a is older"), "{taken:?}");
    ensure!(versions(&space, "shop").await?.len() == 1);
    space.api::<ConfigSource>().delete("a", &DeleteParams::default()).await?;
    ensure!(wait_until_current(&space, "b", None).await? != first);
    Ok(())
}

#[tokio::test]
async fn a_person_pauses_the_source_until_the_field_is_given_back() -> Result<()> {
    let Some(space) = enabled("person", false).await? else { return Ok(()) };
    let Some(content) = git_content(&space, "live", "1").await? else { return Ok(()) };
    create_quick_source(&space, "shop", &content.from).await?;
    let first = wait_until_current(&space, "shop", None).await?;
    content.change("2").await?;
    let second = wait_until_current(&space, "shop", Some(&first)).await?;
    let configs = space.api::<VersionedConfig>();
    let person = PatchParams { field_manager: Some("nudge-cli".to_owned()), ..PatchParams::default() };
    configs.patch("shop", &person, &Patch::Merge(json!({"spec": {"version": first}}))).await?;
    content.change("3").await?;
    let held = until(&space, "shop", "it is held", is("FieldConflict")).await?;
    ensure!(condition(&held, "Ready").2.contains("is set by nudge-cli"), "{held:?}");
    let config =
        config_until(&space, "shop", "it is back", |_, status| status.current_version.as_ref() == Some(&first)).await?;
    ensure!(config.spec.version.as_ref() == Some(&first), "{config:?}");
    // As `kubectl nudge source resume` does it.
    let mut fields = config.metadata.managed_fields.clone().context("no managers")?;
    for entry in fields.iter_mut().filter(|entry| entry.manager.as_deref() == Some("nudge-cli")) {
        if let Some(spec) = entry.fields_v1.as_mut().and_then(|fields| fields.0.pointer_mut("/f:spec")) {
            spec.as_object_mut().context("no fields")?.remove("f:version");
        }
    }
    let patch = json!({"metadata": {"managedFields": fields}});
    configs.patch("shop", &person, &Patch::Merge(patch)).await?;
    let third = wait_until_current(&space, "shop", Some(&second)).await?;
    ensure!(third != first, "{third}");
    Ok(())
}

#[tokio::test]
async fn a_config_that_somebody_else_manages_is_left_alone() -> Result<()> {
    let Some(space) = enabled("managed", false).await? else { return Ok(()) };
    let Some(content) = git_content(&space, "live", "1").await? else { return Ok(()) };
    let config = json!({
        "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop"}, "spec": {"version": "1.0.0"}
    });
    let flux = PatchParams::apply("flux").force();
    space.api::<VersionedConfig>().patch("shop", &flux, &Patch::Apply(&config)).await?;
    create_quick_source(&space, "shop", &content.from).await?;
    let held = until(&space, "shop", "it is held", is("FieldConflict")).await?;
    ensure!(condition(&held, "Ready").2.contains("is set by flux"), "{held:?}");
    ensure!(versions(&space, "shop").await?.is_empty());
    // Nobody hands the field over who may not set it.
    let rules = json!([{"apiGroups": ["nudge.dev"], "resources": ["versionedconfigs"], "verbs": ["patch"]}]);
    let client = sources_of(&space, "labels", rules).await?.into_client();
    let configs = Api::<VersionedConfig>::namespaced(client, &space.name);
    let labelled = Patch::Merge(json!({"metadata": {"labels": {"team": "a"}}}));
    configs.patch("shop", &PatchParams::default(), &labelled).await?;
    let reset = Patch::Merge(json!({"metadata": {"managedFields": [{}]}}));
    let refused = configs.patch("shop", &PatchParams::default(), &reset).await.err().context("it is not refused")?;
    ensure!(refused.to_string().contains("may not change who sets its spec.version"), "{refused}");
    Ok(())
}
