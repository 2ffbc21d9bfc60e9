//! The refusal to request a version, if the config publishes a Secret.

use nudge_api::Explanation;

/// Explains why a version is not requested if the config publishes a Secret: this needs the right to update that
/// Secret.
pub fn explain_unpublishable(explanation: &Explanation, config: &str, account: &str) -> Explanation {
    explanation.reason.explained(format!(
        "{}; config {config} publishes Secret {config}, which is allowed by its name: kubectl create role nudge-source-publish-{config} \
         --verb=update --resource=secrets --resource-name={config}; kubectl create rolebinding nudge-source-publish-{config} \
         --role=nudge-source-publish-{config} --serviceaccount={account}",
        explanation.message
    ))
}
