//! How long it takes from a pod that crashes when it is notified until every pod is back, beside what the API server alone needs. A pod that
//! becomes unready is looked at for three seconds first.

use std::cell::Cell;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::{Stream, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::{self, Event, watcher};
use nudge_api::{Phase, VersionedConfig};
use nudge_tests::{Installation, eventually};

use super::rollout_under_test::{LONG, RolloutUnderTest, by_hand};

/// Waits for an object of this kind that is so.
async fn seen<K>(
    events: &mut (impl Stream<Item = Result<Event<K>, watcher::Error>> + Unpin),
    is: impl Fn(&K) -> bool,
) -> Result<()> {
    let found = async {
        loop {
            match events.try_next().await?.context("the watch has ended")? {
                Event::Apply(object) | Event::InitApply(object) if is(&object) => return Ok(()),
                _ => {}
            }
        }
    };
    tokio::time::timeout(LONG, found).await.context("it was not seen")?
}

fn restarts(pod: &Pod) -> i32 {
    let statuses = pod.status.iter().filter_map(|status| status.container_statuses.as_ref()).flatten();
    statuses.map(|status| status.restart_count).sum()
}

fn print_times(name: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let (middle, last) = (times[times.len() / 2], times[times.len() - 1]);
    eprintln!(
        "{name}: p50 {:.1} ms, longest {:.1} ms of {}",
        middle.as_secs_f64() * 1e3,
        last.as_secs_f64() * 1e3,
        times.len()
    );
}

/// `NUDGE_ROLLBACKS` sets how often.
#[tokio::test]
async fn all_go_back_at_once() -> Result<()> {
    let Some((installation, replica)) = Installation::shared().await? else { return Ok(()) };
    let rollout = RolloutUnderTest::new(installation, replica.hub, by_hand("NUDGE_ROLLOUT_PODS", 8), &["50%"]).await?;
    let (mut floor, mut decided, mut back) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..by_hand("NUDGE_ROLLBACKS", 2_u32) {
        let bad = format!("bad-{round}");
        rollout.wants(&bad).await?;
        // The whole step has it, and is watched for its second. The numbers of the status would say so up to 2 s later.
        let status = rollout.first_step(&bad).await?;
        let step = rollout.assigned(&status);
        eventually(LONG, "the step has it", async || step.iter().all(|member| member.was_notified(&bad)).then_some(()))
            .await?;
        ensure!(step.len() == rollout.members.len() / 2, "{} have it assigned", step.len());
        let sick = step[0];

        let only = |name: &str| watcher::Config::default().fields(&format!("metadata.name={name}"));
        let mut pods = Box::pin(watcher(rollout.space.api::<Pod>(), only(&sick.name)));
        let before = Cell::new(0);
        seen(&mut pods, |pod| {
            before.set(restarts(pod));
            true
        })
        .await?;
        let mut configs = Box::pin(watcher(rollout.space.api::<VersionedConfig>(), only("shop")));
        seen(&mut configs, |config| config.status.is_some()).await?;

        let began = Instant::now();
        let fell = async {
            seen(&mut pods, |pod| restarts(pod) > before.get()).await?;
            Ok::<_, anyhow::Error>(began.elapsed())
        };
        let turned = async {
            // What is written is what the hub sends to the pods.
            seen(&mut configs, |config| {
                config.status.as_ref().is_some_and(|status| matches!(status.phase, Phase::RollingBack | Phase::Failed))
            })
            .await?;
            Ok::<_, anyhow::Error>(began.elapsed())
        };
        let returned = async {
            eventually(LONG, "all applications are notified of the way back", async || {
                step.iter().all(|member| member.notified().last().map(String::as_str) == Some("1")).then_some(())
            })
            .await?;
            Ok::<_, anyhow::Error>(began.elapsed())
        };
        let ((), at_all, at_status, at_apps) =
            tokio::try_join!(rollout.crash(&sick.name, true), fell, turned, returned)?;
        floor.push(at_all);
        decided.push(at_status);
        back.push(at_apps);
        rollout.stands("it has failed", |status| status.phase == Phase::Failed).await?;
        rollout.heal(&sick.name).await?;
        // The next one begins when all is as it was.
        rollout.wants("1").await?;
        rollout.is_current("1").await?;
    }
    print_times("floor: the change itself is seen by a watch", floor);
    print_times("every pod is assigned the version before", decided);
    print_times("every application was signalled and has read it", back);
    Ok(())
}
