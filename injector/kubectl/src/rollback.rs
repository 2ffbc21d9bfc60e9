//! `kubectl nudge rollback`: away from a version that is not proven, or back to the one before.

use nudge_api::VersionedConfig;

use super::arguments::Rollback;
use super::failure::Failure;
use super::session::Session;
use super::stored::sealed;
use super::switch::switch;

/// The version to go back to. Pure.
fn aim(config: &VersionedConfig) -> Result<&str, String> {
    let name = config.metadata.name.as_deref().unwrap_or_default();
    let status = config.status.as_ref();
    let current = status.and_then(|status| status.current.as_deref());
    let desired = config.spec.current.as_deref();
    match (current, desired) {
        (None, _) => Err(format!("config {name} has no current version yet, so there is none to go back to")),
        (Some(current), Some(desired)) if current != desired => Ok(current),
        _ => status.and_then(|status| status.previous.as_deref()).ok_or_else(|| {
            format!("config {name} has no version before the current one to go back to; choose one of kubectl nudge versions {name} with kubectl nudge use")
        }),
    }
}

pub(super) async fn run(session: &Session, command: &Rollback) -> Result<(), Failure> {
    let config = session.config(command.config.as_str()).await?;
    let version = aim(&config).map_err(Failure::new)?.to_owned();
    sealed(&config, &version)?;
    switch(session, &config, &version, command.wait, command.dry.dry_run).await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rollout_is_left_for_what_is_current_and_a_proven_version_for_the_one_before() {
        let aim = |desired: Option<&str>, current: Option<&str>, previous: Option<&str>| {
            let config = serde_json::from_value(json!({
                "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop"},
                "spec": {"current": desired}, "status": {"current": current, "previous": previous},
            }));
            aim(&config.unwrap()).map(str::to_owned)
        };
        assert_eq!(aim(Some("3"), Some("2"), Some("1")).as_deref(), Ok("2"));
        assert_eq!(aim(Some("2"), Some("2"), Some("1")).as_deref(), Ok("1"));
        assert_eq!(aim(None, Some("2"), Some("1")).as_deref(), Ok("1"));
        assert!(aim(Some("2"), Some("2"), None).unwrap_err().contains("kubectl nudge use"));
        assert!(aim(Some("2"), None, None).is_err());
    }
}
