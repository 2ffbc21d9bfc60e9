//! The admission policies say what a current API server has said to recorded requests: also where the server of these
//! tests is too old.

use std::fs;

use anyhow::{Result, ensure};
use nudge_tests::cluster::installation::deploy;
use nudge_tests::policies::Recorded;
use serde_json::{Value, json};

use crate::deploy::policy::{Policy, Verdict};

#[test]
fn policies_say_to_recorded_requests_what_a_current_server_said() -> Result<()> {
    let mut policies = Vec::new();
    for file in fs::read_dir(deploy().join("components/admission-policies"))? {
        policies.extend(Policy::all(&fs::read_to_string(file?.path())?)?);
    }
    let requests = Recorded::all()?;
    ensure!(!requests.is_empty(), "no requests are recorded");
    for recorded in &requests {
        let request = &recorded.request;
        let title = format!(
            "{} {} {} by {}",
            request["operation"], request["kind"]["kind"], request["name"], request["userInfo"]["username"]
        );
        let mut denied = None;
        for policy in &policies {
            match policy.judge(recorded)? {
                Verdict::Denied(message) if denied.is_none() => denied = Some((policy.name.clone(), message)),
                Verdict::Denied(message) if recorded.denied.as_ref().is_some_and(|(name, _)| *name == policy.name) => {
                    denied = Some((policy.name.clone(), message));
                }
                _ => {}
            }
        }
        ensure!(
            denied == recorded.denied,
            "{title}: the server said {:?}, the expressions {denied:?}",
            recorded.denied
        );
    }
    for policy in &policies {
        ensure!(
            policy.untried_expressions().is_empty(),
            "no request reaches these expressions of {}: {:#?}",
            policy.name,
            policy.untried_expressions()
        );
    }
    Ok(())
}

#[test]
fn pods_opt_in_by_label_or_annotation_and_the_annotation_decides() -> Result<()> {
    let file = fs::read_to_string(deploy().join("components/admission-policies/pods-by-annotation.yaml"))?;
    let webhook = &serde_saphyr::from_str::<Value>(&file)?["webhooks"][0];
    let policy = Policy::of_conditions(webhook);
    for (label, annotation, asked) in [
        (None, None, false),
        (Some("true"), None, true),
        (None, Some("true"), true),
        (Some("true"), Some("false"), false),
        (Some("false"), Some("true"), true),
        (Some("false"), None, false),
        (None, Some("yes"), true),
    ] {
        let values = |value: Option<&str>| value.map(|value| json!({"nudge.dev/inject": value}));
        let metadata = json!({"name": "web", "labels": values(label), "annotations": values(annotation)});
        let request = json!({"operation": "CREATE", "object": {"metadata": metadata}});
        let recorded = Recorded { request, namespace: Value::Null, params: Vec::new(), may: Vec::new(), denied: None };
        ensure!((policy.judge(&recorded)? == Verdict::Allowed) == asked, "label {label:?}, annotation {annotation:?}");
    }
    Ok(())
}

#[test]
fn a_typo_in_a_policy_is_noticed() -> Result<()> {
    let file = fs::read_to_string(deploy().join("components/admission-policies/configs.yaml"))?;
    ensure!(file.contains("variables.version"), "the test replaces it");
    let broken = Policy::all(&file.replace("variables.version", "variables.nothing"))?;
    let fails = Recorded::all()?.iter().any(|request| broken[0].judge(request).is_err());
    ensure!(fails, "an unknown variable is not noticed");
    Ok(())
}
