//! Windows of a `RolloutPolicy` that can't be used are refused.

use anyhow::Result;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use nudge_api::RolloutPolicy;
use serde_json::{Value, json};

use crate::guarded_cluster::{GuardedCluster, message, rollout_policy};

const GUARD: &str = "policies.nudge.dev";
const REFUSAL: &str = "RolloutPolicy hours: spec.windows: window w1: time zone \"Mars/Olympus\" is not known to this release; \
                       use a name of the IANA database, such as Europe/Berlin or UTC";

#[tokio::test]
async fn a_time_zone_that_does_not_exist_is_refused() -> Result<()> {
    let Some(guarded) = GuardedCluster::shared().await? else { return Ok(()) };
    let policies: Api<RolloutPolicy> = Api::all(guarded.cluster.admin().await?);
    let create = async |zones: &[&str]| {
        let policy = rollout_policy("hours", zones, &json!({"reason": "black friday"}));
        policies.create(&PostParams::default(), &policy).await
    };
    let change = async |spec: Value| {
        policies.patch("hours", &PatchParams::default(), &Patch::Merge(json!({"spec": spec}))).await
    };
    assert_eq!(message(GUARD, create(&["UTC", "Mars/Olympus"]).await), REFUSAL);
    create(&["UTC", "Europe/Berlin"]).await?;
    let bad = rollout_policy("hours", &["UTC", "Mars/Olympus"], &Value::Null).spec.windows;
    assert_eq!(message(GUARD, change(json!({"windows": bad})).await), REFUSAL);
    change(json!({"hold": null})).await?;
    change(json!({"windows": []})).await?;
    policies.delete("hours", &DeleteParams::default()).await?;
    Ok(())
}
