//! The page without a mouse, and as a screen reader hears it.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::ui::scene::{open_page, shop, show_config, stage};
use crate::ui::tab::Tab;

/// Presses Tab until the focus is on such an element.
async fn reach(tab: &Tab, selector: &str) -> Result<()> {
    for _ in 0..60 {
        tab.press("Tab").await?;
        if tab.value::<bool>(&format!("document.activeElement.matches({})", json!(selector))).await? {
            return Ok(());
        }
    }
    anyhow::bail!("Tab does not reach {selector}")
}

#[tokio::test]
async fn all_can_be_reached_by_the_keyboard() -> Result<()> {
    let Some((installation, _, browser)) = stage().await? else { return Ok(()) };
    let space = shop(installation).await?;
    let (_page, tab) = open_page(installation, browser).await?;
    reach(&tab, "#skip").await?;
    tab.press("Enter").await?;
    ensure!(tab.value::<bool>("document.activeElement.id === 'main'").await?);
    reach(&tab, "#filter").await?;
    tab.write(&space.name).await?;
    tab.wait_for_text("#summary", "1 of").await?;
    reach(&tab, "tbody a").await?;
    tab.press("Enter").await?;
    tab.until("document.querySelector('[data-act=hold]')").await?;
    ensure!(tab.value::<bool>("document.activeElement.id === 'main'").await?);
    reach(&tab, "[data-act=hold]").await?;
    tab.press("Enter").await?;
    tab.until("document.querySelector('dialog[open]')?.contains(document.activeElement)").await?;
    // The focus stays in the dialog, or goes to the browser's own bar.
    for _ in 0..6 {
        tab.press("Tab").await?;
        ensure!(tab.value::<bool>("document.activeElement === document.body || document.querySelector('dialog').contains(document.activeElement)").await?);
    }
    tab.press("Escape").await?;
    tab.until("!document.querySelector('dialog') && document.activeElement.matches('[data-act=hold]')").await?;
    reach(&tab, "#old").await?;
    reach(&tab, "#versions a").await?;
    tab.press("Enter").await?;
    tab.wait_for_text("#changes", "keys differ").await?;
    reach(&tab, "pre").await
}

/// Returns what can be operated or stands for something, without a name.
async fn unnamed_elements(tab: &Tab) -> Result<Vec<Value>> {
    let tree = tab.call("Accessibility.getFullAXTree", json!({})).await?;
    let nodes = tree["nodes"].as_array().context("no tree")?;
    let roles = [
        "button",
        "link",
        "textbox",
        "searchbox",
        "combobox",
        "image",
        "img",
        "canvas",
        "progressbar",
        "progressIndicator",
        "dialog",
        "region",
        "list",
    ];
    let named = |node: &Value| node["name"]["value"].as_str().is_some_and(|name| !name.trim().is_empty());
    let wanted = |node: &Value| roles[..roles.len() - 1].contains(&node["role"]["value"].as_str().unwrap_or_default());
    let matching = nodes.iter().filter(|node| node["ignored"] != true && wanted(node));
    ensure!(matching.clone().count() > 3, "{nodes:?}");
    Ok(matching.filter(|node| !named(node)).cloned().collect())
}

#[tokio::test]
async fn everything_has_a_name() -> Result<()> {
    let Some((installation, _, browser)) = stage().await? else { return Ok(()) };
    let space = shop(installation).await?;
    let (_page, tab) = open_page(installation, browser).await?;
    tab.wait_for_text("tbody", &space.name).await?;
    ensure!(unnamed_elements(&tab).await?.is_empty(), "{:?}", unnamed_elements(&tab).await?);
    show_config(&tab, &space, "shop").await?;
    tab.until("document.querySelector('[data-act=use-now]')").await?;
    ensure!(unnamed_elements(&tab).await?.is_empty(), "{:?}", unnamed_elements(&tab).await?);
    tab.click("[data-act=use-now]").await?;
    tab.until("document.querySelector('dialog[open]')").await?;
    ensure!(unnamed_elements(&tab).await?.is_empty(), "{:?}", unnamed_elements(&tab).await?);
    ensure!(tab.value::<String>("document.documentElement.lang").await? == "en");
    // Every heading stands below the one before.
    let levels: Vec<u8> =
        tab.value("[...document.querySelectorAll('main :is(h1,h2,h3)')].map((one) => Number(one.tagName[1]))").await?;
    ensure!(levels.first() == Some(&1) && levels.windows(2).all(|pair| pair[1] <= pair[0] + 1), "{levels:?}");
    Ok(())
}
