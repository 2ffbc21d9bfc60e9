//! Telling the application of a change: by signals and by web hooks, never too early, and never the last change lost.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http_body_util::Full;
use hyper::{Method, StatusCode};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};
use nudge_protocol::hooks::HookList;
use nudge_protocol::status::{Outcome, Told};
use nudge_protocol::{ErrorBody, headers};
use nudge_tests::agent::IDLE;
use nudge_tests::scene::SOON;
use nudge_tests::standard_webhooks::Verifier;
use nudge_tests::{Answer, HookServer, Scene, eventually, procfs, tools};

/// The application of these tests.
const APP: &str = env!("CARGO_BIN_EXE_app");

const USR1: [&str; 2] = ["--notify", "SIGUSR1"];
const CATCHES: [&str; 3] = [APP, "--catch", "SIGUSR1"];
const FETCHES: [&str; 4] = [APP, "--catch", "SIGUSR1", "--fetch"];

/// How long the agent waits for a handler, and some more.
const PAST_GRACE: Duration = Duration::from_secs(40);

fn delivered(told: &Told) -> bool {
    told.outcome == Outcome::Delivered
}

/// The first process id that the child has printed.
fn first_pid(output: &str) -> Result<i32> {
    Ok(output.split_whitespace().next().context("no output")?.parse()?)
}

// ---------------------------------------------------------------------------------------------------------------------
// Signals: who gets them

#[tokio::test]
async fn the_child_gets_the_signal_and_the_status_says_so() -> Result<()> {
    let mut scene = Scene::start(Scene::shop()?, &USR1, &FETCHES).await?;
    let output = scene.says(1, "ready").await?;
    let before = scene.client.status().await?;
    assert_eq!(before.containers[0].told, Told::nothing_yet());

    scene.dir.switch("shop", "1.0.1")?;
    scene.says(1, "SIGUSR1 shop=1.0.1").await?;
    let container = scene.told_when("the signal is delivered", delivered).await?;
    assert_eq!(container.told.processes, [first_pid(&output)?]);
    assert_eq!(container.told.etag, Some(scene.client.status().await?.etag));
    assert!(container.told.at.is_some());
    Ok(())
}

#[tokio::test]
async fn each_of_the_three_signals_can_be_chosen() -> Result<()> {
    for signal in ["SIGUSR1", "SIGUSR2", "SIGHUP"] {
        let mut scene =
            Scene::start(Scene::shop()?, &["--notify", signal], &[APP, "--catch", signal]).await.context(signal)?;
        scene.says(1, "ready").await?;
        scene.dir.switch("shop", "1.0.1")?;
        scene.says(1, signal).await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_application_below_a_shell_gets_the_signal_and_the_shell_survives() -> Result<()> {
    let script = format!("{APP} --catch SIGUSR1; echo the shell goes on");
    let mut scene = Scene::start(Scene::shop()?, &USR1, &["sh", "-c", &script]).await?;
    let output = scene.says(1, "ready").await?;
    scene.dir.switch("shop", "1.0.1")?;
    scene.says(1, "SIGUSR1").await?;
    let container = scene.told_when("the signal is delivered", delivered).await?;
    assert_eq!(container.told.processes, [first_pid(&output)?]);
    assert!(!scene.agent.output().contains("the shell goes on"));
    Ok(())
}

#[tokio::test]
async fn the_application_below_an_init_gets_the_signal() -> Result<()> {
    // The init catches what an init does, and starts the application by a shell.
    let script = format!("trap : TERM INT CHLD; sh -c '{APP} --catch SIGUSR1; exit'; wait");
    let mut scene = Scene::start(Scene::shop()?, &USR1, &["sh", "-c", &script]).await?;
    let output = scene.says(1, "ready").await?;
    scene.dir.switch("shop", "1.0.1")?;
    scene.says(1, "SIGUSR1").await?;
    let container = scene.told_when("the signal is delivered", delivered).await?;
    assert_eq!(container.told.processes, [first_pid(&output)?]);
    // The init would wait for ever.
    kill(Pid::from_raw(first_pid(&output)?), Signal::SIGKILL)?;
    Ok(())
}

#[tokio::test]
async fn the_helpers_of_an_application_that_catches_the_signal_get_none() -> Result<()> {
    let script = format!("trap 'echo parent SIGUSR1' USR1; {APP} --catch SIGUSR1 & while :; do wait; done");
    let mut scene = Scene::start(Scene::shop()?, &USR1, &["sh", "-c", &script]).await?;
    let output = scene.says(1, "ready").await?;
    scene.dir.switch("shop", "1.0.1")?;
    let container = scene.told_when("the signal is delivered", delivered).await?;
    assert_eq!(container.told.processes.len(), 1);
    assert_ne!(container.told.processes, [first_pid(&output)?]);
    scene.says(1, "parent SIGUSR1").await?;
    Ok(())
}

// ---------------------------------------------------------------------------------------------------------------------
// Signals: who must not get them

#[tokio::test]
async fn a_child_without_a_handler_survives_and_that_is_said() -> Result<()> {
    let mut scene = Scene::start(Scene::shop()?, &USR1, &[APP]).await?;
    let output = scene.says(1, "ready").await?;
    scene.dir.switch("shop", "1.0.1")?;
    scene.serves("shop=1.0.1").await?;
    let trying = scene.told_when("the agent waits for a handler", |told| told.attempts > 0).await?;
    assert_eq!(trying.told.outcome, Outcome::Pending);

    let given_up = scene.told_when("there is no handler", |told| told.outcome == Outcome::NoHandler).await?;
    assert!(given_up.told.message.contains("no process has a handler for SIGUSR1"), "{}", given_up.told.message);
    assert!(!given_up.acknowledged);
    scene.logs("NoHandler").await?;
    assert!(procfs::memory(first_pid(&output)?).is_ok(), "the child is gone");
    scene.agent.check()
}

#[tokio::test]
async fn a_child_that_ignores_the_signal_is_named_as_such() -> Result<()> {
    let script = format!("trap '' USR1; exec {APP}");
    let mut scene = Scene::start(Scene::shop()?, &USR1, &["sh", "-c", &script]).await?;
    scene.says(1, "ready").await?;
    scene.dir.switch("shop", "1.0.1")?;
    let given_up = scene.told_when("there is no handler", |told| told.outcome == Outcome::NoHandler).await?;
    assert!(given_up.told.message.contains("a process ignores SIGUSR1"), "{}", given_up.told.message);
    Ok(())
}

#[tokio::test]
async fn a_handler_installed_late_gets_the_signal() -> Result<()> {
    let dir = Scene::shop()?;
    let handlers = dir.beside("handlers");
    let child = [APP, "--catch", "SIGUSR1", "--fetch", "--after"].map(Path::new);
    let child = child.into_iter().chain([handlers.as_path()]).collect::<Vec<_>>();
    let mut scene = Scene::start(dir, &USR1, &child).await?;
    scene.says(1, "without handlers").await?;
    scene.dir.switch("shop", "1.0.1")?;
    // About a quarter of a second.
    scene.told_when("the agent has tried often", |told| told.attempts > 7).await?;
    fs::write(&handlers, "")?;
    scene.says(1, "SIGUSR1 shop=1.0.1").await?;
    scene.told_when("the signal is delivered", delivered).await?;
    Ok(())
}

#[tokio::test]
async fn a_handler_installed_after_the_agent_gave_up_still_gets_the_newest() -> Result<()> {
    let dir = Scene::shop()?;
    let handlers = dir.beside("handlers");
    let child = [APP, "--catch", "SIGUSR1", "--fetch", "--after"].map(Path::new);
    let child = child.into_iter().chain([handlers.as_path()]).collect::<Vec<_>>();
    let mut scene = Scene::start(dir, &USR1, &child).await?;
    scene.says(1, "without handlers").await?;
    scene.dir.switch("shop", "1.0.1")?;
    scene.told_when("there is no handler", |told| told.outcome == Outcome::NoHandler).await?;
    fs::write(&handlers, "")?;
    scene.says(1, "SIGUSR1 shop=1.0.1").await?;
    let container = scene.told_when("the signal is delivered", delivered).await?;
    assert!(container.told.message.is_empty(), "{}", container.told.message);
    Ok(())
}

#[tokio::test]
async fn a_child_that_exits_at_once_ends_the_agent_with_its_status() -> Result<()> {
    let dir = Scene::shop()?;
    let exec = nudge_tests::ExecCommand::new(nudge_tests::binary::debug()?, dir.path()).args(USR1);
    let mut agent = exec.spawn(&["sh", "-c", "exit 7"])?;
    let status = agent.process().exited(SOON).await.map_err(|error| agent.explain(&error))?;
    assert_eq!(status.code(), Some(7));
    Ok(())
}

#[tokio::test]
async fn a_signal_that_may_not_be_sent_is_reported_with_its_cause() -> Result<()> {
    let no_kill = ["setpriv", "--bounding-set=-kill"];
    let other_user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let mut probe = std::process::Command::new(no_kill[0]);
    let works = probe.arg(no_kill[1]).args(other_user).arg("true").status().is_ok_and(|status| status.success());
    if !Uid::effective().is_root() || !works {
        tools::skipped("only root can run an agent without the capability KILL, and its child as another user");
        return Ok(());
    }
    let script = ["sh", "-c", "trap 'echo SIGUSR1' USR1; echo ready; while :; do sleep 1; done"];
    let child = other_user.into_iter().chain(script).collect::<Vec<_>>();
    let mut scene = Scene::start_with(Scene::shop()?, |exec| exec.args(USR1).under(no_kill), &child).await?;
    scene.says(1, "ready").await?;
    scene.dir.switch("shop", "1.0.1")?;
    let denied = scene.told_when("it is denied", |told| told.outcome == Outcome::PermissionDenied).await?;
    for part in ["may not be signalled by user 0", "KILL", "AppArmor", "SELinux"] {
        assert!(denied.told.message.contains(part), "{part}: {}", denied.told.message);
    }
    scene.logs("PermissionDenied").await?;
    assert!(!scene.agent.output().contains("SIGUSR1"));
    // The agent can't end it either.
    for pid in procfs::descendants(scene.agent.pid())? {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
    scene.agent.process().exited(SOON).await?;
    Ok(())
}

#[tokio::test]
async fn a_hang_up_that_is_the_notification_is_not_forwarded() -> Result<()> {
    let child = [APP, "--catch", "SIGHUP", "--catch", "SIGINT"];
    let mut scene = Scene::start(Scene::shop()?, &["--notify", "SIGHUP"], &child).await?;
    scene.says(1, "ready").await?;
    scene.agent.process().signal(Signal::SIGHUP)?;
    scene.logs("not passed on").await?;
    // What comes after it shows that it has not come.
    scene.agent.process().signal(Signal::SIGINT)?;
    let output = scene.says(1, "SIGINT").await?;
    assert!(!output.contains("SIGHUP"), "{output}");
    scene.dir.switch("shop", "1.0.1")?;
    scene.says(1, "SIGHUP").await?;
    Ok(())
}

// ---------------------------------------------------------------------------------------------------------------------
// Order, and changes in quick succession

#[tokio::test]
async fn whoever_fetches_at_once_with_the_signal_finds_the_new_version() -> Result<()> {
    let mut scene = Scene::start(Scene::shop()?, &USR1, &FETCHES).await?;
    scene.says(1, "ready").await?;
    for round in 1..=100 {
        let version = ["1.0.0", "1.0.1"][round % 2];
        scene.dir.switch("shop", version)?;
        let output = scene.output_when("a line for every switch", |output| output.lines().count() > round).await?;
        let line = output.lines().next_back().unwrap_or_default();
        ensure!(line.ends_with(&format!("SIGUSR1 shop={version}")), "round {round}: {line}");
    }
    Ok(())
}

/// Switches 50 times as fast as it goes, and waits until all four subscribers are at the last one: two processes below the
/// child, which take `slow` milliseconds over each signal, and two web hooks.
async fn storm(slow: &str) -> Result<()> {
    let dir = Scene::shop()?;
    let versions: Vec<String> = (0..50).map(|n| format!("2.{n}")).collect();
    for version in &versions {
        dir.write_version("shop", version, [("lives", version)])?;
    }
    let app = format!("{} --slow {slow}", FETCHES.join(" "));
    let script = format!("{app} & {app} & wait");
    let mut scene = Scene::start(dir, &USR1, &["sh", "-c", &script]).await?;
    let output = scene.says(2, "ready").await?;
    let pids: BTreeSet<&str> = output.split_whitespace().filter(|word| *word != "ready").collect();
    ensure!(pids.len() == 2, "{output}");
    let hooks = [HookServer::willing().await?, HookServer::willing().await?];
    for hook in &hooks {
        scene.subscribed(hook.url()).await?;
    }

    for version in &versions {
        scene.dir.switch("shop", version)?;
        // Lets the web hooks and the agent run in between, as they would beside whoever switches.
        tokio::task::yield_now().await;
    }
    scene.serves("shop=2.49").await?;
    let status = scene.client.status().await?;
    for pid in pids {
        let last = format!("{pid} SIGUSR1 shop=2.49");
        let at_last = |output: &str| output.lines().rfind(|line| line.starts_with(pid)) == Some(&last);
        scene.output_when(&format!("{pid} ends on the newest version"), at_last).await?;
    }
    for hook in &hooks {
        let last = hook.told_of("2.49", SOON).await?;
        ensure!(last.event()?.data.etag == status.etag);
    }
    let newest = |told: &Told| delivered(told) && told.etag.as_ref() == Some(&status.etag);
    let settled = scene.status_when("everybody was told of the newest version", |status| {
        status.containers.iter().all(|container| newest(&container.told) && container.acknowledged)
            && status.hooks.iter().all(|hook| newest(&hook.told))
    });
    settled.await?;
    for hook in &hooks {
        // In order, none twice, the newest last.
        let told: Vec<u32> = hook
            .deliveries()
            .iter()
            .map(|delivery| Ok(delivery.version()?.trim_start_matches("2.").parse()?))
            .collect::<Result<_>>()?;
        ensure!(told.is_sorted_by(|one, two| one < two) && told.last() == Some(&49), "{told:?}");
    }
    Ok(())
}

#[tokio::test]
async fn fifty_changes_at_once_end_with_everybody_on_the_newest() -> Result<()> {
    storm("0").await
}

#[tokio::test]
async fn fifty_changes_at_once_end_with_slow_handlers_on_the_newest_too() -> Result<()> {
    storm("100").await
}

// ---------------------------------------------------------------------------------------------------------------------
// Acknowledgement

#[tokio::test]
async fn delivered_is_acknowledged_by_the_signal_alone() -> Result<()> {
    let mut scene = Scene::start(Scene::shop()?, &USR1, &CATCHES).await?;
    scene.says(1, "ready").await?;
    scene.dir.switch("shop", "1.0.1")?;
    let container = scene.told_when("the signal is delivered", delivered).await?;
    assert!(container.acknowledged && container.fetched.is_none(), "{container:?}");
    Ok(())
}

#[tokio::test]
async fn fetched_is_acknowledged_by_a_request_that_names_the_container() -> Result<()> {
    let arguments = ["--notify", "SIGUSR1", "--ack", "fetched"];
    let mut scene = Scene::start(Scene::shop()?, &arguments, &CATCHES).await?;
    scene.says(1, "ready").await?;
    assert_eq!(scene.access.variables["MY_CONFIG_CONTAINER"], "app");
    scene.dir.switch("shop", "1.0.1")?;
    let container = scene.told_when("the signal is delivered", delivered).await?;
    assert!(!container.acknowledged, "{container:?}");

    fetch_as(&mut scene, "stranger").await?;
    let container = scene.client.status().await?.containers.remove(0);
    assert!(!container.acknowledged && container.fetched.is_none(), "another container's request: {container:?}");

    fetch_as(&mut scene, "app").await?;
    let status = scene.client.status().await?;
    assert!(status.containers[0].acknowledged, "{status:?}");
    assert_eq!(status.containers[0].fetched, Some(status.etag));

    // It had the version before; of the next it has nothing yet.
    scene.dir.switch("shop", "1.0.2")?;
    let status = scene.status_when("1.0.2", |status| status.configs[0].version.as_str() == "1.0.2").await?;
    assert!(!status.containers[0].acknowledged, "{status:?}");
    Ok(())
}

#[tokio::test]
async fn a_request_that_names_no_container_counts_for_the_only_one_that_is_told() -> Result<()> {
    for (notify, child, counts) in [("SIGUSR1", &CATCHES[..], true), ("none", &IDLE[..], false)] {
        let mut scene = Scene::start(Scene::shop()?, &["--notify", notify, "--ack", "fetched"], child).await?;
        scene.client.get("/config").await?;
        let container = scene.client.status().await?.containers.remove(0);
        assert_eq!(container.acknowledged, counts, "{notify}: {container:?}");
    }
    Ok(())
}

async fn fetch_as(scene: &mut Scene, container: &str) -> Result<()> {
    let request = scene.client.request(Method::GET, "/config").header(headers::CONTAINER, container);
    let reply = scene.client.send(request.body(Full::default())?).await?;
    ensure!(reply.status == StatusCode::OK);
    Ok(())
}

// ---------------------------------------------------------------------------------------------------------------------
// Web hooks

#[tokio::test]
async fn a_web_hook_is_signed_as_the_specification_wants_and_holds_no_value() -> Result<()> {
    let Some(verifier) = Verifier::in_folder(Path::new(env!("CARGO_TARGET_TMPDIR")))? else { return Ok(()) };
    let dir = Scene::shop()?;
    dir.write_version("shop", "2.0.0", [("lives", "hunter2-new"), ("greeting", "hunter2-added")])?;
    let server = HookServer::willing().await?;
    let mut scene = Scene::start(dir, &["--notify", "webhook"], &IDLE).await?;
    let hook = scene.subscribed(server.url()).await?;
    assert_eq!(hook.etag, scene.client.status().await?.etag);
    scene.dir.switch("shop", "2.0.0")?;
    let delivery = server.told_of("2.0.0", SOON).await?;

    assert_eq!(delivery.method, Method::POST);
    assert_eq!(delivery.target, "/changed?by=nudge");
    assert_eq!(delivery.header("content-type"), "application/json");
    let event = delivery.event()?;
    assert_eq!(event.kind, "config.changed");
    assert_eq!(event.data.changed, ["greeting", "lives"]);
    assert!(!event.data.truncated);
    assert!(!delivery.body.contains("hunter2") && !delivery.body.contains(&scene.access.token), "{}", delivery.body);

    let token = scene.access.token.clone();
    assert!(verifier.verify(&delivery, &token)?);
    let forged = nudge_tests::Delivery { body: delivery.body.replace("2.0.0", "9.9.9"), ..delivery.clone() };
    assert!(!verifier.verify(&forged, &token)?, "the signature fits another body too");
    let other = Scene::start(Scene::shop()?, &[], &IDLE).await?.access.token;
    assert!(!verifier.verify(&delivery, &other)?, "the signature fits another token too");

    let told = scene.hook_when(&hook.id, "the web hook is delivered", delivered).await?;
    assert_eq!(told.attempts, 1);
    Ok(())
}

#[tokio::test]
async fn an_event_lists_no_more_than_256_keys_and_says_so() -> Result<()> {
    let dir = Scene::shop()?;
    dir.write_version("shop", "2.0.0", (0..300).map(|n| (format!("key-{n:03}"), "x")))?;
    let server = HookServer::willing().await?;
    let mut scene = Scene::start(dir, &[], &IDLE).await?;
    scene.subscribed(server.url()).await?;
    scene.dir.switch("shop", "2.0.0")?;
    let event = server.told_of("2.0.0", SOON).await?.event()?;
    assert!(event.data.truncated);
    assert_eq!((event.data.changed.len(), event.data.changed[0].as_str()), (256, "key-000"));
    Ok(())
}

#[tokio::test]
async fn the_flag_subscribes_for_the_child_and_counts_as_its_acknowledgement() -> Result<()> {
    let server = HookServer::willing().await?;
    let arguments = ["--notify", "webhook", "--webhook", server.url()];
    let mut scene = Scene::start(Scene::shop()?, &arguments, &IDLE).await?;
    let hooks = scene.client.status().await?.hooks;
    assert_eq!(hooks.iter().map(|hook| hook.url.as_str()).collect::<Vec<_>>(), [server.url()]);
    scene.dir.switch("shop", "1.0.1")?;
    server.told_of("1.0.1", SOON).await?;
    let container = scene.told_when("the child counts as told", delivered).await?;
    assert!(container.acknowledged, "{container:?}");
    Ok(())
}

#[tokio::test]
async fn a_web_hook_that_answers_500_for_a_while_gets_the_same_event_with_growing_waits_and_then_the_newest()
-> Result<()> {
    let server = HookServer::start(Answer::Status(StatusCode::INTERNAL_SERVER_ERROR)).await?;
    let dir = Scene::shop()?;
    dir.write_version("shop", "2.0.0", [("lives", "5"), ("greeting", "hello")])?;
    let mut scene = Scene::start(dir, &[], &IDLE).await?;
    let hook = scene.subscribed(server.url()).await?;
    scene.dir.switch("shop", "1.0.1")?;
    let tries = server.wait_for(4, SOON).await?;
    assert!(tries.iter().all(|one| one.id() == tries[0].id() && !one.id().is_empty()), "{tries:?}");
    // At least half of 1, 2 and 4 seconds.
    for (pair, least) in tries.windows(2).zip([500, 1000, 2000]) {
        let waited = pair[1].at.duration_since(pair[0].at);
        assert!(waited >= Duration::from_millis(least), "{waited:?} is less than {least} ms");
    }
    let failing = scene.hook_when(&hook.id, "it is tried again", |told| told.attempts >= 4).await?;
    assert_eq!(failing.outcome, Outcome::Pending);
    assert!(failing.message.contains("500"), "{}", failing.message);

    scene.dir.switch("shop", "2.0.0")?;
    let newest = server.told_of("2.0.0", SOON).await?;
    assert_ne!(newest.id(), tries[0].id(), "another event has the same id");
    server.answer(Answer::Status(StatusCode::OK));
    let told = scene.hook_when(&hook.id, "the newest is delivered", delivered).await?;
    assert_eq!(told.etag, Some(scene.client.status().await?.etag));
    // What the first event told of and was never taken is in the second.
    assert_eq!(newest.event()?.data.changed, ["greeting", "lives"]);
    Ok(())
}

#[tokio::test]
async fn a_web_hook_that_hangs_holds_up_nobody_and_gets_the_newest_later() -> Result<()> {
    let (hanging, willing) = (HookServer::start(Answer::Hang).await?, HookServer::willing().await?);
    let mut scene = Scene::start(Scene::shop()?, &USR1, &FETCHES).await?;
    scene.says(1, "ready").await?;
    let stuck = scene.subscribed(hanging.url()).await?;
    scene.subscribed(willing.url()).await?;
    scene.dir.switch("shop", "1.0.1")?;
    hanging.wait_for(1, SOON).await?;
    willing.told_of("1.0.1", SOON).await?;
    scene.says(1, "SIGUSR1 shop=1.0.1").await?;
    let begun = std::time::Instant::now();
    scene.dir.switch("shop", "1.0.2")?;
    willing.told_of("1.0.2", SOON).await?;
    scene.says(1, "SIGUSR1 shop=1.0.2").await?;
    assert!(begun.elapsed() < Duration::from_secs(5), "the others waited: {:?}", begun.elapsed());
    assert_eq!(hanging.deliveries().len(), 1, "two requests at once");

    hanging.answer(Answer::Status(StatusCode::OK));
    hanging.told_of("1.0.2", PAST_GRACE).await?;
    scene.hook_when(&stuck.id, "the newest is delivered", delivered).await?;
    Ok(())
}

#[tokio::test]
async fn a_redirect_is_not_followed() -> Result<()> {
    let elsewhere = HookServer::willing().await?;
    let server = HookServer::start(Answer::Redirect(elsewhere.url().to_owned())).await?;
    let mut scene = Scene::start(Scene::shop()?, &[], &IDLE).await?;
    let hook = scene.subscribed(server.url()).await?;
    scene.dir.switch("shop", "1.0.1")?;
    let told = scene.hook_when(&hook.id, "it has failed twice", |told| told.attempts >= 2).await?;
    assert_eq!(told.outcome, Outcome::Pending);
    assert!(told.message.contains("302") && told.message.contains("not followed"), "{}", told.message);
    assert!(elsewhere.deliveries().is_empty());
    Ok(())
}

#[tokio::test]
async fn a_web_hook_that_says_gone_is_not_tried_again_for_that_change() -> Result<()> {
    let server = HookServer::start(Answer::Status(StatusCode::GONE)).await?;
    let mut scene = Scene::start(Scene::shop()?, &[], &IDLE).await?;
    let hook = scene.subscribed(server.url()).await?;
    scene.dir.switch("shop", "1.0.1")?;
    let told = scene.hook_when(&hook.id, "it has failed", |told| told.outcome == Outcome::Failed).await?;
    assert_eq!(told.attempts, 1);
    assert!(told.message.contains("410"), "{}", told.message);
    assert!(told.at.is_some());
    Ok(())
}

#[tokio::test]
async fn a_web_hook_that_nobody_listens_for_is_tried_again() -> Result<()> {
    let address = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let mut scene = Scene::start(Scene::shop()?, &[], &IDLE).await?;
    let hook = scene.subscribed(&format!("http://{address}/")).await?;
    scene.dir.switch("shop", "1.0.1")?;
    let told = scene.hook_when(&hook.id, "it has failed twice", |told| told.attempts >= 2).await?;
    assert!(told.outcome == Outcome::Pending && told.message.contains("could not be reached"), "{told:?}");
    Ok(())
}

#[tokio::test]
async fn a_web_hook_that_points_outside_is_refused_with_the_way_out() -> Result<()> {
    // TEST-NET-1 of RFC 5737: nobody's address.
    let url = "http://192.0.2.1:8080/changed";
    let mut scene = Scene::start(Scene::shop()?, &[], &IDLE).await?;
    let refused = scene.subscribe(url).await?;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    let body: ErrorBody = serde_json::from_slice(&refused.body)?;
    assert!(body.message.contains("--webhook-allow 192.0.2.1:8080"), "{}", body.message);
    for other in ["http://example.com/", "https://127.0.0.1/", "http://u:p@127.0.0.1/"] {
        assert_eq!(scene.subscribe(other).await?.status, StatusCode::UNPROCESSABLE_ENTITY, "{other}");
    }

    let mut allowing = Scene::start(Scene::shop()?, &["--webhook-allow", "192.0.2.1:8080"], &IDLE).await?;
    assert_eq!(allowing.subscribe(url).await?.status, StatusCode::CREATED);
    let other_port = allowing.subscribe("http://192.0.2.1:8081/").await?;
    assert_eq!(other_port.status, StatusCode::UNPROCESSABLE_ENTITY);
    Ok(())
}

#[tokio::test]
async fn the_same_web_hook_twice_is_one_and_the_seventeenth_is_refused() -> Result<()> {
    let mut scene = Scene::start(Scene::shop()?, &[], &IDLE).await?;
    for number in 0..16 {
        let url = format!("http://127.0.0.1:9/{number}");
        assert_eq!(scene.subscribe(&url).await?.status, StatusCode::CREATED, "{number}");
        assert_eq!(scene.subscribe(&url).await?.status, StatusCode::OK, "{number}");
    }
    let refused = scene.subscribe("http://127.0.0.1:9/16").await?;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    let body: ErrorBody = serde_json::from_slice(&refused.body)?;
    assert!(body.message.contains("DELETE /hooks/"), "{}", body.message);

    let list: HookList = serde_json::from_slice(&scene.client.get("/hooks").await?.body)?;
    assert_eq!(list.hooks.len(), 16);
    let path = format!("/hooks/{}", list.hooks[0].id);
    assert_eq!(scene.send(Method::DELETE, &path, String::new()).await?.status, StatusCode::NO_CONTENT);
    assert_eq!(scene.subscribe("http://127.0.0.1:9/16").await?.status, StatusCode::CREATED);
    Ok(())
}

#[tokio::test]
async fn a_web_hook_that_is_cancelled_gets_nothing_more() -> Result<()> {
    let (cancelled, other) = (HookServer::willing().await?, HookServer::willing().await?);
    let mut scene = Scene::start(Scene::shop()?, &[], &IDLE).await?;
    let hook = scene.subscribed(cancelled.url()).await?;
    scene.subscribed(other.url()).await?;
    scene.dir.switch("shop", "1.0.1")?;
    cancelled.told_of("1.0.1", SOON).await?;
    let path = format!("/hooks/{}", hook.id);
    assert_eq!(scene.send(Method::DELETE, &path, String::new()).await?.status, StatusCode::NO_CONTENT);
    assert_eq!(scene.send(Method::DELETE, &path, String::new()).await?.status, StatusCode::NOT_FOUND);
    scene.dir.switch("shop", "1.0.2")?;
    other.told_of("1.0.2", SOON).await?;
    // Both are told at the same moment, so the one that is not has had its time.
    eventually(SOON, "the other is done", async || {
        scene
            .client
            .status()
            .await
            .is_ok_and(|status| status.hooks.iter().all(|hook| delivered(&hook.told)))
            .then_some(())
    })
    .await?;
    assert_eq!(cancelled.deliveries().len(), 1);
    Ok(())
}
