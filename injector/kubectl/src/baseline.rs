//! `kubectl nudge baseline`: plain ConfigMaps become version 1.0.0 of configs of their names.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use nudge_api::{VersionedConfig, VersionedConfigSpec};
use nudge_core::versions::{FIRST_VERSION, baseline_refusal, first_names, first_version, is_first_version};
use nudge_protocol::{ConfigName, VersionName, labels};

use super::arguments::{Baseline, DryRun};
use super::failure::{Failure, doing};
use super::session::{Session, creating};
use super::stored::{label, objects};

/// Why this ConfigMap is not taken over. Pure.
fn refusal(plain: &ConfigMap) -> Option<&'static str> {
    let name = plain.metadata.name.as_deref().unwrap_or_default();
    if ConfigName::new(name).is_err() || VersionName::new(name).is_err() {
        // A label holds 63 characters, a name 253.
        return Some("its name can't be a label, so it can't have versions");
    }
    baseline_refusal(plain)
}

pub(super) async fn run(session: &Session, command: &Baseline) -> Result<(), Failure> {
    let dry = command.dry.dry_run;
    let maps = session.api::<ConfigMap>();
    if let Some(name) = &command.name {
        let plain = maps.get_opt(name).await.map_err(doing(format!("reading ConfigMap {name}")))?;
        let none = || {
            Failure::new(format!(
                "there is no ConfigMap {name} in namespace {}; see kubectl get configmaps",
                session.namespace
            ))
        };
        let plain = plain.ok_or_else(none)?;
        // One that a config keeps up has its mark, which is none of a config that was deleted.
        let known = session.find_config(name).await?.is_some();
        if let Some(reason) = refusal(&plain).filter(|_| !known) {
            return Err(Failure::new(format!("ConfigMap {name} is not taken over: {reason}")));
        }
        if !take_over(session, name, plain, dry).await? {
            return session.out.line(&format!("config {name} has versions already"));
        }
        return Ok(());
    }
    let mut failures: Vec<String> = Vec::new();
    let all = maps.list(&ListParams::default()).await.map_err(doing("listing ConfigMaps"))?.items;
    if all.is_empty() {
        let none = || Failure::new(format!("there are no ConfigMaps in namespace {}", session.namespace));
        return Err(session.without_namespace().await.unwrap_or_else(none));
    }
    let configs =
        session.api::<VersionedConfig>().list(&ListParams::default()).await.map_err(doing("listing configs"))?;
    let known: Vec<String> = configs.items.into_iter().filter_map(|config| config.metadata.name).collect();
    for plain in all.into_iter().filter(|plain| label(&plain.metadata, labels::VERSION).is_empty()) {
        let name = plain.metadata.name.clone().unwrap_or_default();
        match refusal(&plain).filter(|_| !known.contains(&name)) {
            Some(reason) => session.out.line(&format!("configmap/{name} left alone: {reason}"))?,
            None => match take_over(session, &name, plain, dry).await {
                Ok(true) => {}
                Ok(false) => session.out.line(&format!("configmap/{name} left alone: it has versions already"))?,
                // One that can't be taken over does not keep the others back.
                Err(failure) => failures.push(failure.message),
            },
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(Failure::new(failures.join("\nerror: "))) }
}

/// Makes the version, then the config. False where there is a config of this name.
async fn take_over(session: &Session, name: &str, plain: ConfigMap, dry: DryRun) -> Result<bool, Failure> {
    if session.find_config(name).await?.is_some() {
        return Ok(false);
    }
    let (found, _) = objects(session, name, None).await?;
    let other = |labels: Option<&std::collections::BTreeMap<String, String>>| {
        labels
            .and_then(|labels| labels.get(nudge_protocol::labels::VERSION))
            .is_none_or(|version| version != FIRST_VERSION)
    };
    if found.iter().any(|(_, meta)| other(meta.labels.as_ref())) {
        return Err(Failure::new(format!(
            "ConfigMap {name} is not taken over: there are versions of a config {name} already, made by hand; make the config by hand too"
        )));
    }
    if dry != DryRun::Client {
        create_first(session, name, plain, dry).await?;
        let new = VersionedConfig::new(name, VersionedConfigSpec::default());
        match session.api::<VersionedConfig>().create(&creating(dry), &new).await {
            Ok(_) => {}
            // The control plane was faster, because a pod uses it.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(Failure::of(&format!("creating config {name}"), &error)),
        }
    }
    session.out.line(&format!("configmap/{name} is version {FIRST_VERSION} of config {name}{}", dry.suffix()))?;
    Ok(true)
}

async fn create_first(session: &Session, config: &str, plain: ConfigMap, dry: DryRun) -> Result<(), Failure> {
    let maps = session.api::<ConfigMap>();
    for name in first_names(&plain, config) {
        let object = first_version(plain.clone(), config, &name);
        match maps.create(&creating(dry), &object).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(Failure::of(&format!("creating ConfigMap {name}"), &error)),
        }
        let found = maps.get_opt(&name).await.map_err(doing(format!("reading ConfigMap {name}")))?;
        if found.is_some_and(|found| is_first_version(&found, &object)) {
            return Ok(());
        }
    }
    let names = first_names(&plain, config).join(" and ");
    Err(Failure::new(format!("ConfigMap {config} is not taken over: the names {names} are taken; delete one of them")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_users_own_is_left_alone() {
        let named = |name: &str| {
            let mut map = ConfigMap::default();
            map.metadata.name = Some(name.to_owned());
            map
        };
        assert_eq!(refusal(&named("shop")), None);
        assert!(refusal(&named("kube-root-ca.crt")).is_some());
        assert!(refusal(&named(&"a.".repeat(40))).unwrap().contains("can't be a label"));
    }
}
