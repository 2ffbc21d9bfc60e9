//! What the user may do, asked of the API server for the user.

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::Api;
use kube::api::PostParams;
use nudge_api::{PartKind, VersionedConfig};

use super::act::{Act, Need, Permitted};
use crate::failure::{Failure, doing};
use crate::session::Session;

/// Verb, group and resource.
type Right = (&'static str, &'static str, &'static str);

/// Its objects have names of their own.
const APPROVALS: &str = "versionapprovals";

impl Need {
    /// The rights that it is, for this config.
    fn rights(self, config: &VersionedConfig) -> Vec<Right> {
        match self {
            Self::Config(verb) => vec![(verb, "nudge.dev", "versionedconfigs")],
            Self::Decide => ["create", "list", "delete"].map(|verb| (verb, "nudge.dev", APPROVALS)).into(),
            Self::Activate => {
                let secret = config.spec.publishes(PartKind::Secret).then_some(("update", "", "secrets"));
                [("update", "", "configmaps")].into_iter().chain(secret).collect()
            }
        }
    }
}

/// The acts that do something to the config as it is, and whether the user may do each.
pub(crate) async fn permitted(
    session: &Session,
    config: &VersionedConfig,
    acts: &'static [Act],
) -> Result<Vec<Permitted>, Failure> {
    let mut known: Vec<(Right, bool)> = Vec::new();
    let mut permitted = Vec::new();
    for act in acts.iter().filter(|act| (act.applies)(config)) {
        let mut allowed = true;
        for right in act.needs.iter().flat_map(|need| need.rights(config)) {
            let answer = match known.iter().find(|(asked, _)| *asked == right) {
                Some((_, answer)) => *answer,
                None => may(session, config, right).await?,
            };
            known.push((right, answer));
            allowed &= answer;
        }
        permitted.push(Permitted::of(act, allowed));
    }
    Ok(permitted)
}

async fn may(session: &Session, config: &VersionedConfig, (verb, group, resource): Right) -> Result<bool, Failure> {
    let attributes = ResourceAttributes {
        verb: Some(verb.to_owned()),
        group: Some(group.to_owned()),
        resource: Some(resource.to_owned()),
        namespace: config.metadata.namespace.clone(),
        name: config.metadata.name.clone().filter(|_| resource != APPROVALS),
        ..ResourceAttributes::default()
    };
    let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
    let review = SelfSubjectAccessReview { spec, ..Default::default() };
    let reviews = Api::<SelfSubjectAccessReview>::all(session.client.clone());
    let answer = reviews.create(&PostParams::default(), &review).await;
    let answer = answer.map_err(doing("asking what you may do"))?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn who_activates_needs_the_rights_that_admission_asks_for() {
        let rights = |objects: serde_json::Value| {
            let config: VersionedConfig = serde_json::from_value(json!({
                "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop"},
                "spec": {"objects": objects},
            }))
            .unwrap();
            Need::Activate.rights(&config).into_iter().map(|right| right.2).collect::<Vec<_>>()
        };
        assert_eq!(rights(json!(["ConfigMap"])), ["configmaps"]);
        assert_eq!(rights(json!(["ConfigMap", "Secret"])), ["configmaps", "secrets"]);
        let config = VersionedConfig::new("shop", nudge_api::VersionedConfigSpec::default());
        assert_eq!(Need::Config("patch").rights(&config), [("patch", "nudge.dev", "versionedconfigs")]);
    }
}
