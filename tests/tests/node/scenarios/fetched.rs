//! From a commit to the handler in a pod, and from a write to OpenBao to the same, with the defaults of a source: after
//! `kubectl nudge source sync`, and if this scenario runs alone, also by the period of a minute. Git, in the role's own
//! image, and OpenBao are real, and reached from the pod of the role sources.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::try_join;
use k8s_openapi::api::core::v1::Secret;
use nudge_tests::binary;
use nudge_tests::cluster::installation::at_once;
use nudge_tests::servers::git_repository::Repository;
use nudge_tests::servers::git_server::{GitServer, TOKEN, USER};
use nudge_tests::servers::openbao::OpenBao;
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::exposure::nudge;
use crate::log::Log;
use crate::objects::{list, opted_in, pod, shell};
use crate::place::succeed;
use crate::report::seconds;
use crate::space::{LONG_WAIT_TIMEOUT, ScenarioNamespace, WAIT_TIMEOUT, assert_untouched};
use crate::suite::Suite;

const TITLE: &str = "From git or OpenBao to the handler in a pod, everything of the source at its default";
/// The address of this machine, as pods reach it.
const HOST: Ipv4Addr = Ipv4Addr::new(10, 251, 0, 1);
/// How often the source is requested by hand.
const SYNCS: usize = 3;

/// Says what it has when its handler is entered.
const APP: &str = r#"
    trap 'echo "has $(cat /config/key)"' USR1
    echo "has $(cat /config/key)"
    while :; do sleep 0.05; done"#;

pub(crate) async fn run(suite: &Suite) -> Result<()> {
    binary::kubectl_nudge()?;
    let home = ScenarioNamespace::sourced(suite, "fetched").await?;
    if home.place.inside("servers on this machine that pods reach").is_none() {
        return Ok(());
    }
    let address = SocketAddr::from((HOST, TcpListener::bind((HOST, 0))?.local_addr()?.port()));
    let git = GitServer::start_at(address, "").await?.context("no git server; tests/run installs it")?;
    let repository = Repository::new(git.root(), "shop")?;
    let bao =
        OpenBao::start_at(Path::new(env!("CARGO_TARGET_TMPDIR")), IpAddr::V4(HOST)).await?.context("no OpenBao")?;
    configure_kubernetes_auth(&home, &bao).await?;
    // A credential for a host is one for all of its ports.
    let metadata = json!({"name": "deploy", "annotations": {"nudge.dev/allowed-hosts": HOST.to_string()}});
    let secret = json!({"metadata": metadata, "stringData": {"token": TOKEN, "username": USER}});
    home.space.create_object::<Secret>(secret).await?;
    home.allow("deploy", &["--verb=get", "--resource=secrets", "--resource-name=deploy"])?;
    home.allow("vault", &["--verb=create", "--resource=serviceaccounts/token", "--resource-name=shop"])?;

    let from_git = json!({"git": {"url": git.url("token/shop"), "path": "config/prod", "ca": git.ca(), "secretRef": {"name": "deploy"}}});
    let auth = json!({"kubernetes": {"role": "shop", "serviceAccount": "shop"}});
    let from_vault = json!({"vault": {"address": bao.url(), "ca": bao.ca(), "auth": auth, "kv": {"path": "shop"}}});
    let commit = |value: &str| {
        repository.write("config/prod/key", value)?;
        repository.commit(value).map(drop)
    };
    let put = |value: &str| bao.bao(&["kv", "put", "secret/shop", &format!("key={value}")]).map(drop);
    suite.report.row(TITLE, &["from", "by sync (median)", "by the period"].map(str::to_owned));
    let alone = suite.is_alone();
    let timed =
        (time_change(&home, "git", &from_git, commit, alone), time_change(&home, "vault", &from_vault, put, alone));
    let (git, vault) = try_join!(timed.0, timed.1)?;
    for row in [git, vault] {
        suite.report.row(TITLE, &row);
    }
    Ok(())
}

/// OpenBao asks the node's API server.
async fn configure_kubernetes_auth(home: &ScenarioNamespace<'_>, bao: &OpenBao) -> Result<()> {
    let view = |path: &str| {
        let output = format!("jsonpath={{.clusters[0].cluster.{path}}}");
        succeed(home.place.command("kubectl").args(["config", "view", "--raw", "-o", &output]))
    };
    let (url, ca) = (view("server")?, view("certificate-authority-data")?);
    let mut decode = Command::new("base64");
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), ca.trim())?;
    let ca = succeed(decode.arg("-d").arg(file.path()))?;
    bao.configure_kubernetes_auth(&home.space, url.trim(), &ca).await?;
    home.space.service_account("shop").await?;
    bao.allow("shop", (&home.space.name, "shop"), "secret/data/shop")
}

impl ScenarioNamespace<'_> {
    /// A right of the role sources, as the message of a source gives it.
    fn allow(&self, name: &str, rule: &[&str]) -> Result<()> {
        let role = format!("nudge-fetched-{name}");
        self.kubectl(&[&["create", "role", &role], rule].concat())?;
        let account = "--serviceaccount=nudge-system:nudge-sources";
        self.kubectl(&["create", "rolebinding", &role, &format!("--role={role}"), account]).map(drop)
    }
}

/// Returns a config, its source and a pod of the same name. How long a change took to the pod's handler.
async fn time_change(
    home: &ScenarioNamespace<'_>,
    name: &str,
    from: &Value,
    write: impl Fn(&str) -> Result<()>,
    by_period: bool,
) -> Result<[String; 3]> {
    write("first")?;
    let config = json!({
        "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": name}, "spec": {"rollout": at_once()},
    });
    let source = json!({"apiVersion": "nudge.dev/v1alpha1", "kind": "ConfigSource", "metadata": {"name": name}, "spec": {"from": from}});
    home.apply(&list([config, source]))?;
    home.newest_is_current(name, None).await?;
    let annotations = [("configs", name), ("notify", "SIGUSR1"), ("mount-path", "/config")];
    home.apply(&pod(opted_in(name, &shell(home, APP), &annotations)).to_string())?;
    let before = home.ready_pod(&format!("app={name}")).await?;
    let log = home.follow(&before).await?;
    log.line(OffsetDateTime::UNIX_EPOCH, WAIT_TIMEOUT, "has first").await?;
    let mut syncs = Vec::new();
    for number in 0..SYNCS {
        syncs.push(changes(home, name, &log, &format!("sync-{number}"), true, &write).await?);
    }
    syncs.sort_unstable();
    let period =
        if by_period { seconds(changes(home, name, &log, "period", false, &write).await?) } else { "-".to_owned() };
    assert_untouched(home, &before).await?;
    Ok([name.to_owned(), seconds(syncs[SYNCS / 2]), period])
}

async fn changes(
    home: &ScenarioNamespace<'_>,
    name: &str,
    log: &Log,
    value: &str,
    sync: bool,
    write: &impl Fn(&str) -> Result<()>,
) -> Result<Duration> {
    let at = OffsetDateTime::now_utc();
    write(value)?;
    if sync {
        let message = nudge(home, &["source", "sync", name])?;
        ensure!(message.contains("reads its content again"), "{message}");
    }
    let line =
        log.line(at, LONG_WAIT_TIMEOUT, &format!("has {value}")).await.with_context(|| format!("{name}: {value}"))?;
    Ok(Duration::try_from(line.at - at).unwrap_or_default())
}
