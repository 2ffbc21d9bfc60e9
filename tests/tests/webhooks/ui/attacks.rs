//! Who else can reach the port: other sites in the same browser, names that point here, other users of the machine.
//! None gets anything.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use nudge_tests::{Finished, tools};
use serde_json::{Value, json};

use crate::ui::bounds::WAIT_TIMEOUT;
use crate::ui::page::Page;
use crate::ui::scene::{open_page, shop, stage};

/// `nobody`, on Debian and elsewhere.
const NOBODY: &str = "65534";

const POLICY: &str = "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// Returns a server that nobody has opened yet.
async fn start_page() -> Result<Option<Page>> {
    let Some((installation, _, _)) = stage().await? else { return Ok(None) };
    Page::start(&installation.cluster.kubeconfig(), &[]).await.map(Some)
}

#[tokio::test]
async fn requests_for_other_hosts_and_from_other_sites_are_refused() -> Result<()> {
    let Some(page) = start_page().await? else { return Ok(()) };
    let (own, json) = (format!("127.0.0.1:{}", page.port), ("content-type", "application/json"));
    let origin = format!("http://{own}");
    let body = json!({"token": page.token()}).to_string();
    let near = format!("localhost:{}", page.port);
    for host in [&*near, "evil.example", "127.0.0.1"] {
        let answer = page.raw(&format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n")).await?;
        ensure!(answer.status == 403 && !answer.body.contains("Nudge"), "{host}: {answer:?}");
        let answer = page.post_with("/api/session", &[("host", host), ("origin", &origin), json], &body).await?;
        ensure!(answer.status == 403, "{host}: {answer:?}");
    }
    for other in [None, Some("null"), Some("http://evil.example"), Some("http://localhost"), Some("https://127.0.0.1")]
    {
        let from: Vec<(&str, &str)> = other.map(|other| ("origin", other)).into_iter().collect();
        let headers = [&[("host", &*own), json][..], &from].concat();
        let answer = page.post_with("/api/session", &headers, &body).await?;
        ensure!(answer.status == 403 && !answer.body.contains("session\""), "{other:?}: {answer:?}");
        ensure!(!answer.head.contains("access-control-allow"), "{answer:?}");
    }
    let form = ("content-type", "text/plain");
    let answer = page.post_with("/api/session", &[("host", &own), ("origin", &origin), form], &body).await?;
    ensure!(answer.status == 403, "{answer:?}");
    let reply = page
        .raw(&format!("OPTIONS /api/session HTTP/1.1\r\nhost: {own}\r\norigin: http://evil.example\r\n\r\n"))
        .await?;
    ensure!(reply.status == 403 && !reply.head.contains("access-control-allow"), "{reply:?}");
    // None of that has used the token up.
    page.session().await.map(drop)
}

#[tokio::test]
async fn a_token_works_once_and_nothing_is_answered_without_one() -> Result<()> {
    let Some(page) = start_page().await? else { return Ok(()) };
    let session = page.session().await?;
    let again = page.post("/api/session", "", &json!({"token": page.token()}).to_string()).await?;
    ensure!(again.status == 403 && again.body.contains("works once"), "{again:?}");
    ensure!(page.printed_text()?.contains("somebody else knows the address"), "{}", page.printed_text()?);
    let endpoints = ["overview", "config", "creations", "diff", "acts", "preview", "act", "nothing"];
    for path in endpoints.map(|name| format!("/api/{name}")) {
        for token in ["", "x", page.token(), &session[1..]] {
            let answer = page.post(&path, token, "{}").await?;
            ensure!(answer.status == 401 && !answer.body.contains("there is nothing"), "{path}: {answer:?}");
        }
    }
    // The API server is not behind it.
    for path in [
        "/api/v1/namespaces/default/secrets",
        "/apis/nudge.dev/v1alpha1/versionedconfigs",
        "/api/../api/overview",
        "//api/overview",
    ] {
        let answer = page.post(path, &session, "{}").await?;
        ensure!(answer.status == 404, "{path}: {answer:?}");
    }
    let unknown = json!({"namespace": "kube-system", "config": "x"}).to_string();
    ensure!(page.post("/api/acts", &session, &unknown).await?.status == 404);
    let wrong = page.post("/api/acts", &session, r#"{"namespace": "a", "config": "b", "more": 1}"#).await?;
    ensure!(wrong.status == 400 && !wrong.body.contains("more"), "{wrong:?}");
    let long = format!("{{\"token\": \"{}\"}}", "x".repeat(20_000));
    ensure!(page.post("/api/session", "", &long).await?.status == 400);
    Ok(())
}

#[tokio::test]
async fn what_was_not_shown_is_not_run() -> Result<()> {
    let Some((installation, _, _)) = stage().await? else { return Ok(()) };
    let space = shop(installation).await?;
    let page = Page::start(&installation.cluster.kubeconfig(), &[]).await?;
    let session = page.session().await?;
    let target = json!({"namespace": space.name, "config": "shop"});
    // The watch has seen the config.
    let read =
        async || page.post("/api/acts", &session, &target.to_string()).await.ok().filter(|answer| answer.status == 200);
    nudge_tests::eventually(std::time::Duration::from_secs(30), "the config is seen", read).await?;
    let ask = |more: &Value| {
        let mut doing = target.clone();
        if let (Some(doing), Some(more)) = (doing.as_object_mut(), more.as_object()) {
            doing.extend(more.clone());
        }
        doing.to_string()
    };
    for (more, status) in [
        (json!({"act": "hold", "reason": "audit"}), 409),
        (json!({"act": "hold", "reason": "audit", "command": "kubectl nudge unhold shop"}), 409),
        (json!({"act": "delete", "command": ""}), 400),
        (json!({"act": "use", "version": "--now", "command": ""}), 400),
        (json!({"act": "use", "command": ""}), 422),
        (json!({"act": "use-now", "version": "1.0.1", "reason": " ", "command": ""}), 422),
        (json!({"act": "approve", "version": "1.0.1", "reason": "x", "command": ""}), 422),
        (json!({"act": "approve", "version": "1.0.1", "digest": "--undo", "reason": "x", "command": ""}), 400),
    ] {
        let answer = page.post("/api/act", &session, &ask(&more)).await?;
        ensure!(answer.status == status, "{more}: {answer:?}");
    }
    ensure!(space.api::<nudge_api::VersionedConfig>().get("shop").await?.spec.rollout.hold.is_none());
    Ok(())
}

#[tokio::test]
async fn an_address_that_nobody_opens_ends_with_the_command() -> Result<()> {
    let Some(mut page) = start_page().await? else { return Ok(()) };
    let status = page.process.wait_for_exit(std::time::Duration::from_mins(2)).await?;
    ensure!(
        status.code() == Some(1) && page.printed_text()?.contains("nobody opened the page within a minute"),
        "{}",
        page.printed_text()?
    );
    ensure!(tokio::net::TcpStream::connect(("127.0.0.1", page.port)).await.is_err());
    Ok(())
}

#[tokio::test]
async fn another_user_of_the_machine_gets_nothing() -> Result<()> {
    let Some(page) = start_page().await? else { return Ok(()) };
    let Some(setpriv) = tools::find("setpriv")? else { return Ok(()) };
    if !nix::unistd::geteuid().is_root() {
        tools::skipped("only root can become another user");
        return Ok(());
    }
    let by_nobody = async |script: String| {
        let mut command = Command::new(&setpriv);
        command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "bash", "-c", &script]);
        tokio::task::spawn_blocking(move || Finished::of(&mut command)).await?
    };
    let host = format!("127.0.0.1:{}", page.port);
    let ask = |path: &str, token: &str| {
        let body = json!({"token": token}).to_string();
        format!(
            "exec 3<>/dev/tcp/127.0.0.1/{}; printf 'POST {path} HTTP/1.1\\r\\nhost: {host}\\r\\norigin: http://{host}\\r\\n\
             content-type: application/json\\r\\nauthorization: Bearer {token}\\r\\ncontent-length: {}\\r\\n\\r\\n%s' '{body}' >&3; cat <&3",
            page.port,
            body.len()
        )
    };
    for (path, status) in [("/api/session", " 403 "), ("/api/overview", " 401 "), ("/api/act", " 401 ")] {
        let answer = by_nobody(ask(path, "guessed")).await?;
        let line = answer.stdout.lines().next().context("no answer")?;
        ensure!(line.contains(status), "{path}: {answer:?}");
    }
    // Where the token could be seen: in the arguments of a process, or in what only its owner may read.
    let pid = page.process.pid();
    let observed =
        by_nobody(format!("cat /proc/{pid}/cmdline; cat /proc/{pid}/environ /proc/{pid}/fd/1 /proc/{pid}/mem 2>&1"))
            .await?;
    ensure!(observed.stdout.contains("kubectl-nudge") && !observed.stdout.contains(page.token()), "{observed:?}");
    page.session().await.map(drop)
}

#[tokio::test]
async fn the_browser_keeps_the_session_to_the_tab() -> Result<()> {
    let Some((installation, _, browser)) = stage().await? else { return Ok(()) };
    let (page, tab) = open_page(installation, browser).await?;
    // The token is neither in the address bar nor in what Back leads to.
    let addresses: Vec<String> = tab.call("Page.getNavigationHistory", json!({})).await?["entries"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|entry| entry["url"].as_str().map(str::to_owned))
        .collect();
    ensure!(addresses.iter().all(|address| !address.contains(page.token())), "{addresses:?}");
    ensure!(tab.value::<String>("document.cookie").await?.is_empty());
    ensure!(tab.value::<usize>("localStorage.length").await? == 0);
    let answer = page.raw(&format!("GET / HTTP/1.1\r\nhost: 127.0.0.1:{}\r\n\r\n", page.port)).await?;
    for header in [POLICY, "referrer-policy: no-referrer", "x-content-type-options: nosniff", "cache-control: no-store"]
    {
        ensure!(answer.head.contains(&header.to_lowercase()), "{}", answer.head);
    }
    ensure!(!answer.head.contains("set-cookie"), "{}", answer.head);
    // A reload continues; another tab, of the same profile, has to be given an address.
    tab.call("Page.reload", json!({})).await?;
    tab.wait_for_text("#link", "live").await?;
    let beside = browser.tab_in(&tab.context).await?;
    beside.open(&format!("http://127.0.0.1:{}/", page.port)).await?;
    beside.wait_for_text("main", "run kubectl nudge ui").await?;
    beside.open("about:blank").await?;
    beside.open(&page.address).await?;
    beside.wait_for_text("main", "works once").await?;
    ensure!(beside.value::<String>("location.hash").await?.is_empty());
    // No other site gets it into a frame, or reads it.
    beside.open(&format!("data:text/html,<iframe src={}></iframe>", page.top())).await?;
    let framed = async || {
        let targets = browser.call(None, "Target.getTargets", json!({})).await.ok()?;
        let mut frames = targets["targetInfos"].as_array()?.iter();
        Some(frames.find(|frame| frame["type"] == "iframe" && frame["url"] == page.top())?["targetId"].clone())
    };
    let frame = nudge_tests::eventually(WAIT_TIMEOUT, "the frame is there", framed).await?;
    let frame = browser.call(None, "Target.attachToTarget", json!({"targetId": frame, "flatten": true})).await?;
    let request = json!({"expression": "location.href"});
    let within = browser.call(frame["sessionId"].as_str(), "Runtime.evaluate", request).await?;
    ensure!(within["result"]["value"] == "chrome-error://chromewebdata/", "{within}");
    let read =
        format!("fetch('http://127.0.0.1:{}/api.js').then((answer) => answer.text(), () => 'refused')", page.port);
    ensure!(beside.value::<String>(&read).await? == "refused");
    // The end of the command ends the page.
    drop(page);
    tab.wait_for_text("#link", "no connection").await
}
