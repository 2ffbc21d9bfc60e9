//! A tab of the browser: the content of its page, and the acts of a person there.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use nudge_tests::eventually;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::ui::browser::Browser;

/// How long the page may take. Longer than the 65 seconds after which it notices that the connection of a watch died
/// silently.
const PAGE_TIMEOUT: Duration = Duration::from_mins(2);

/// A tab of the browser.
pub(crate) struct Tab {
    pub(crate) browser: &'static Browser,
    pub(crate) session: String,
    /// The profile that it belongs to.
    pub(crate) context: String,
}

impl Tab {
    pub(crate) async fn call(&self, method: &str, params: Value) -> Result<Value> {
        self.browser.call(Some(&self.session), method, params).await
    }

    /// Opens an address.
    pub(crate) async fn open(&self, address: &str) -> Result<()> {
        self.call("Page.navigate", json!({"url": address})).await.map(drop)
    }

    /// Returns the value of an expression, which may be a promise.
    pub(crate) async fn value<T: DeserializeOwned>(&self, expression: &str) -> Result<T> {
        let parameters = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let answer = self.call("Runtime.evaluate", parameters).await?;
        if let Some(thrown) = answer.get("exceptionDetails") {
            bail!("{expression}: {thrown}");
        }
        Ok(serde_json::from_value(answer["result"]["value"].clone())?)
    }

    /// Runs statements in the tab.
    pub(crate) async fn run(&self, statements: &str) -> Result<()> {
        self.value::<Value>(&format!("(async () => {{ {statements} }})()")).await.map(drop)
    }

    /// Waits until the expression holds; what is on the page then is in the error.
    pub(crate) async fn until(&self, expression: &str) -> Result<()> {
        let holds = async || self.value::<bool>(&format!("Boolean({expression})")).await.ok().filter(|&holds| holds);
        match eventually(PAGE_TIMEOUT, expression, holds).await {
            Ok(_) => Ok(()),
            Err(error) => Err(error.context(format!("{}\n{:?}", self.text("body").await?, self.complaints()))),
        }
    }

    /// Waits until the text of an element contains this.
    pub(crate) async fn wait_for_text(&self, selector: &str, text: &str) -> Result<()> {
        let (selector, text) = (json!(selector), json!(text));
        self.until(&format!("document.querySelector({selector})?.innerText.includes({text})")).await
    }

    /// Returns the text of an element as a person sees it.
    pub(crate) async fn text(&self, selector: &str) -> Result<String> {
        self.value(&format!("document.querySelector({})?.innerText ?? ''", json!(selector))).await
    }

    /// Returns the texts of all such elements.
    pub(crate) async fn texts(&self, selector: &str) -> Result<Vec<String>> {
        self.value(&format!("[...document.querySelectorAll({})].map((one) => one.innerText.trim())", json!(selector)))
            .await
    }

    pub(crate) async fn count(&self, selector: &str) -> Result<usize> {
        self.value(&format!("document.querySelectorAll({}).length", json!(selector))).await
    }

    /// Presses an element with the mouse.
    pub(crate) async fn click(&self, selector: &str) -> Result<()> {
        self.until(&format!(
            "document.querySelector({})?.disabled === false || document.querySelector({0})?.href",
            json!(selector)
        ))
        .await?;
        self.run(&format!("document.querySelector({}).click()", json!(selector))).await
    }

    /// Presses a key.
    pub(crate) async fn press(&self, key: &str) -> Result<()> {
        let (code, text) = match key {
            "Enter" => (13, "\r"),
            "Tab" => (9, ""),
            "Escape" => (27, ""),
            _ => bail!("the key {key} is not known here"),
        };
        let event = |kind: &str| json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code});
        let mut down = event("keyDown");
        if !text.is_empty() {
            down["text"] = text.into();
        }
        self.call("Input.dispatchKeyEvent", down).await?;
        self.call("Input.dispatchKeyEvent", event("keyUp")).await.map(drop)
    }

    /// Types a text where the focus is.
    pub(crate) async fn write(&self, text: &str) -> Result<()> {
        self.call("Input.insertText", json!({"text": text})).await.map(drop)
    }

    /// Sets the size of the window, in pixels.
    pub(crate) async fn size(&self, width: u32, height: u32) -> Result<()> {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size).await.map(drop)
    }

    /// `light` or `dark`.
    pub(crate) async fn scheme(&self, scheme: &str) -> Result<()> {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features})).await.map(drop)
    }

    /// Takes a picture of the whole page.
    pub(crate) async fn picture(&self, file: &Path, whole: bool) -> Result<()> {
        // Two frames, so that what was drawn is seen.
        self.run("await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))").await?;
        let shot =
            self.call("Page.captureScreenshot", json!({"format": "png", "captureBeyondViewport": whole})).await?;
        let data = BASE64_STANDARD.decode(shot["data"].as_str().context("no picture")?)?;
        Ok(std::fs::write(file, data)?)
    }

    /// Errors of scripts, and what the content security policy forbade.
    pub(crate) fn complaints(&self) -> Vec<String> {
        // Refusals of the server are answers that the page shows.
        let is_own = |text: &String| !text.contains("Failed to load resource");
        self.browser.complaints(&self.session).into_iter().filter(is_own).collect()
    }
}
