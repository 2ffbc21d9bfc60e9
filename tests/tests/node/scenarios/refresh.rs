//! A pod without an agent that asks for it has the files of a published ConfigMap volume at once. The kubelet's own time is measured by the
//! scenario `handlers`.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt as _;
use nudge_tests::cluster::installation::at_once;
use nudge_tests::eventually;
use serde_json::json;
use time::OffsetDateTime;

use crate::objects::{config, list, plain, pod, shell, template};
use crate::report::seconds;
use crate::space::{Home, SOON, is_untouched};
use crate::suite::Suite;

const TITLE: &str = "A plain volume with `refresh`, from spec.current";
/// Activations, there and back.
const ROUNDS: usize = 6;

const APP: &str = r#"
    while :; do
        now=$(cat /config/greeting)
        [ "$now" = "$was" ] || echo "greeting=$now"
        was=$now
        sleep 0.05
    done"#;

pub(crate) async fn run(suite: &Suite) -> Result<()> {
    let home = Home::enabled(suite, "refresh").await?;
    home.kubectl(&["apply", "-k", "deploy/namespace/restart"])?;
    let [one, two] = ["one", "two"].map(|greeting| json!({"greeting": greeting}));
    home.apply(&list([plain("files", &one)]))?;
    home.apply(&config("files", &[("1", one), ("2", two)], &at_once()))?;
    home.is_current("files", "1").await?;
    let mut container = shell(&home, APP);
    container["volumeMounts"] = json!([{"name": "config", "mountPath": "/config"}]);
    let mut volume = template("volume", &container);
    volume["metadata"]["annotations"]["nudge.dev/refresh"] = "true".into();
    volume["spec"]["volumes"] = json!([{"name": "config", "configMap": {"name": "files"}}]);
    home.apply(&pod(volume).to_string())?;
    let volume = home.ready_pod("app=volume").await?;
    let log = home.follow(&volume).await?;
    log.line(OffsetDateTime::UNIX_EPOCH, SOON, "greeting=one").await?;

    let (maps, pods) = (home.space.api::<ConfigMap>(), home.space.api::<Pod>());
    let mut times = [const { Vec::new() }; 3];
    for round in 0..ROUNDS {
        let (version, greeting) = [("2", "two"), ("1", "one")][round % 2];
        let before = OffsetDateTime::now_utc();
        home.activate("files", version).await?;
        let activated = OffsetDateTime::now_utc();
        let published = eventually(SOON, "the published ConfigMap has the version", async || {
            (maps.get("files").await.ok()?.data?.get("greeting")? == greeting).then(OffsetDateTime::now_utc)
        })
        .await?;
        let touched = eventually(SOON, "the pod was touched for this version", async || {
            let pod = pods.get("volume").await.ok()?;
            (pod.annotations().get("nudge.dev/refreshed")? == version).then(OffsetDateTime::now_utc)
        })
        .await?;
        let file = log.line(before, SOON, &format!("greeting={greeting}")).await?.at;
        for (times, at) in times.iter_mut().zip([published, touched, file]) {
            times.push(Duration::try_from(at - activated).unwrap_or_default());
        }
        home.is_current("files", version).await?;
    }
    is_untouched(&home, &volume).await?;
    suite.report.row(TITLE, &["", "median", "worst", "of"].map(str::to_owned));
    for (what, mut times) in
        ["the published ConfigMap has it", "the pod was touched", "the file has it"].into_iter().zip(times)
    {
        times.sort();
        let cells = [what.to_owned(), seconds(times[ROUNDS / 2]), seconds(times[ROUNDS - 1]), ROUNDS.to_string()];
        suite.report.row(TITLE, &cells);
    }
    Ok(())
}
