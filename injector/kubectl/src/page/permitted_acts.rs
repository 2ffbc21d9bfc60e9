//! The acts that the user may do, as the API server says.

use nudge_api::{PartKind, VersionedConfig};

use super::act::{Act, Need, PermittedAct};
use crate::failure::Failure;
use crate::rights::{APPROVALS, Right, has_right};
use crate::session::Session;

impl Need {
    fn rights(self, config: &VersionedConfig) -> Vec<Right> {
        match self {
            Self::Config(verb) => vec![Right { verb, group: "nudge.dev", resource: "versionedconfigs" }],
            Self::Decide => {
                ["create", "list", "delete"].map(|verb| Right { verb, group: "nudge.dev", resource: APPROVALS }).into()
            }
            Self::Activate => {
                let resources = ["configmaps", "secrets"].into_iter();
                let resources = resources.take(1 + usize::from(config.spec.owns(PartKind::Secret)));
                resources.map(|resource| Right { verb: "update", group: "", resource }).collect()
            }
        }
    }
}

/// Returns the acts that have an effect on the config as it is, and whether the user may do each.
pub(crate) async fn permitted_acts(
    session: &Session,
    config: &VersionedConfig,
    acts: &'static [Act],
) -> Result<Vec<PermittedAct>, Failure> {
    let mut answers: Vec<(Right, bool)> = Vec::new();
    let mut permitted = Vec::new();
    for act in acts.iter().filter(|act| (act.applies)(config)) {
        let mut allowed = true;
        for right in act.needs.iter().flat_map(|need| need.rights(config)) {
            let answer = match answers.iter().find(|(answered, _)| *answered == right) {
                Some((_, answer)) => *answer,
                None => has_right(session, config, right).await?,
            };
            answers.push((right, answer));
            allowed &= answer;
        }
        permitted.push(PermittedAct::new(act, allowed));
    }
    Ok(permitted)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn who_activates_needs_the_rights_that_admission_requests() {
        let rights = |objects: serde_json::Value| {
            let config: VersionedConfig = serde_json::from_value(json!({
                "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop"},
                "spec": {"objects": objects},
            }))
            .unwrap();
            Need::Activate.rights(&config).into_iter().map(|right| right.resource).collect::<Vec<_>>()
        };
        assert_eq!(rights(json!(["ConfigMap"])), ["configmaps"]);
        assert_eq!(rights(json!(["ConfigMap", "Secret"])), ["configmaps", "secrets"]);
        let config = VersionedConfig::new("shop", nudge_api::VersionedConfigSpec::default());
        let right = Right { verb: "patch", group: "nudge.dev", resource: "versionedconfigs" };
        assert_eq!(Need::Config("patch").rights(&config), [right]);
    }
}
