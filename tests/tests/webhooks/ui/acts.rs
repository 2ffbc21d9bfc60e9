//! The acts do what the commands do that the confirmation shows.

use std::process::Command;

use anyhow::{Result, ensure};
use kube::api::{Patch, PatchParams};
use nudge_api::{ConfigState, VersionedConfig};
use nudge_tests::{Finished, binary};
use serde_json::json;

use crate::ui::scene::{open_page, shop, show_config, stage, until};
use crate::ui::tab::Tab;

/// Presses the button of an act, and returns the command that the confirmation shows.
pub(crate) async fn press_act(tab: &Tab, button: &str, reason: Option<&str>) -> Result<String> {
    tab.click(button).await?;
    if let Some(reason) = reason {
        tab.wait_for_text("#command", "Give a reason first.").await?;
        ensure!(tab.value::<bool>("document.querySelector('#go').disabled").await?);
        tab.write(reason).await?;
    }
    tab.until("document.querySelector('#go')?.disabled === false").await?;
    tab.text("#command").await
}

#[tokio::test]
async fn every_act_is_the_command_that_is_shown() -> Result<()> {
    let Some((installation, _, browser)) = stage().await? else { return Ok(()) };
    let space = shop(installation).await?;
    let (_page, tab) = open_page(installation, browser).await?;
    let flags = format!("-n {} --kubeconfig={}", space.name, installation.cluster.kubeconfig().display());
    let spec = async || Ok::<_, anyhow::Error>(space.api::<VersionedConfig>().get("shop").await?.spec);
    show_config(&tab, &space, "shop").await?;

    // Nothing happens until somebody confirms.
    let before = spec().await?;
    let command = press_act(&tab, "[data-act=use]", None).await?;
    ensure!(command == format!("kubectl nudge use shop 1.0.1 {flags}"), "{command}");
    tab.click("#cancel").await?;
    tab.until("!document.querySelector('dialog')").await?;
    ensure!(spec().await? == before);

    press_act(&tab, "[data-act=use]", None).await?;
    tab.click("#go").await?;
    tab.wait_for_text("#said", "config shop: spec.version is 1.0.1").await?;
    until(&space, "1.0.1 is current", |status| {
        status.current_version.as_deref() == Some("1.0.1") && status.state() == ConfigState::Current
    })
    .await?;

    tab.until("document.querySelector('[data-act=rollback]')").await?;
    let command = press_act(&tab, "[data-act=rollback]", None).await?;
    ensure!(command == format!("kubectl nudge rollback shop {flags}"), "{command}");
    tab.click("#go").await?;
    tab.wait_for_text("#said", "config shop: spec.version is 1.0.0").await?;
    until(&space, "1.0.0 is current", |status| {
        status.current_version.as_deref() == Some("1.0.0") && status.state() == ConfigState::Current
    })
    .await?;

    let reason = "it's \"urgent\" $(id); --wait, می\u{200c}شود";
    let young = "li[data-version=\"1.0.1\"] [data-act=use-now]";
    tab.until(&format!("document.querySelector('{young}')")).await?;
    let command = press_act(&tab, young, Some(reason)).await?;
    ensure!(
        command
            == format!(
                r#"kubectl nudge use shop 1.0.1 --now '--reason=it'\''s "urgent" $(id); --wait, می\u{{200c}}شود' {flags}"#
            ),
        "{command}"
    );
    tab.click("#go").await?;
    tab.wait_for_text("#said", "for all pods at once").await?;
    let now = spec().await?.rollout.overridden;
    ensure!(now.as_ref().is_some_and(|now| now.reason == reason && now.version == "1.0.1"), "{now:?}");
    until(&space, "1.0.1 is current", |status| status.current_version.as_deref() == Some("1.0.1")).await?;

    let command = press_act(&tab, "[data-act=hold]", Some("audit")).await?;
    ensure!(command == format!("kubectl nudge hold shop --reason=audit {flags}"), "{command}");
    tab.click("#go").await?;
    tab.wait_for_text("#said", "config shop on hold until kubectl nudge unhold").await?;
    let hold = spec().await?.rollout.hold;
    ensure!(hold.is_some_and(|hold| hold.reason == "audit" && hold.until_time.is_none() && !hold.protected));
    tab.until("document.querySelector('[data-act=unhold]') && !document.querySelector('[data-act=hold]')").await?;

    // The command, typed into a shell, is the act.
    let command = press_act(&tab, "[data-act=unhold]", None).await?;
    let program = binary::kubectl_nudge()?.display().to_string();
    let finished = tokio::task::spawn_blocking(move || {
        let script = format!("kubectl() {{ shift; '{program}' \"$@\"; }}\n{command}");
        Finished::of(Command::new("sh").args(["-c", &script]))
    })
    .await??;
    ensure!(finished.stdout == "config shop not on hold any more\n", "{finished:?}");
    ensure!(spec().await?.rollout.hold.is_none());
    tab.click("#go").await?;
    tab.wait_for_text("#said", "config shop is not on hold by its spec").await?;
    tab.until("document.querySelector('[data-act=hold]') && !document.querySelector('[data-act=unhold]')").await?;

    let protected = json!({"spec": {"rollout": {"hold": {"reason": "audit", "protected": true}}}});
    space.api::<VersionedConfig>().patch("shop", &PatchParams::default(), &Patch::Merge(protected)).await?;
    tab.until("document.querySelector('[data-act=unhold-protected]') && !document.querySelector('[data-act=hold]')")
        .await?;
    let command = press_act(&tab, "[data-act=unhold-protected]", None).await?;
    ensure!(command == format!("kubectl nudge unhold shop {flags}"), "{command}");
    tab.click("#go").await?;
    tab.wait_for_text("#said", "config shop not on hold any more").await?;
    ensure!(spec().await?.rollout.hold.is_none());
    // Who had all pods get it at once, and why, stands in the past as history says it.
    let history = crate::ui::scene::nudge(installation, &space, &["history", "shop"]).await?;
    ensure!(history.contains("at once for admin: it's \"urgent\""), "{history}");
    tab.wait_for_text("#releases", "at once for admin: it's \"urgent\" $(id); --wait, می\\u{200c}شود").await?;
    ensure!(tab.complaints().is_empty(), "{:?}", tab.complaints());
    Ok(())
}

#[tokio::test]
async fn a_refusal_stands_in_the_confirmation() -> Result<()> {
    let Some((installation, _, browser)) = stage().await? else { return Ok(()) };
    let space = shop(installation).await?;
    let (_page, tab) = open_page(installation, browser).await?;
    show_config(&tab, &space, "shop").await?;
    press_act(&tab, "[data-act=hold]", Some("audit")).await?;
    // The config goes while the user thinks about it.
    space.api::<VersionedConfig>().delete("shop", &kube::api::DeleteParams::default()).await?;
    tab.wait_for_text(".head", "There is no such config, or it was deleted.").await?;
    tab.click("#go").await?;
    tab.wait_for_text("dialog [role=alert]", "the page shows no such config").await?;
    Ok(())
}
