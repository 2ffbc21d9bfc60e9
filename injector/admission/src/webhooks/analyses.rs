//! The webhook of `RolloutAnalysis`. A user who could write an analysis could make a bad version look good. So only the
//! roles of Nudge can write it, each its own half.

use async_trait::async_trait;
use kube::core::admission::Operation;
use kube::core::dynamic::DynamicObject;
use nudge_api::RolloutAnalysis;

use super::webhook::{Webhook, WebhookError};
use crate::review::ReviewRequest;
use crate::verdict::{AdmissionVerdict, Denial};

/// The names of the users who may write an analysis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnalysisWriters {
    /// The user of the controllers, who write the questions.
    pub questions: String,
    /// The user of the role `analysis`, which writes the answers.
    pub answers: String,
}

/// Checks requests about analyses.
#[derive(Clone, Debug)]
pub struct ValidateAnalyses {
    /// The users who may write analyses.
    pub writers: AnalysisWriters,
}

#[async_trait]
impl Webhook for ValidateAnalyses {
    fn path(&self) -> &'static str {
        "/validate/analyses"
    }

    async fn review(&self, request: &ReviewRequest) -> Result<AdmissionVerdict, WebhookError> {
        request.check_kind::<RolloutAnalysis>()?;
        if !matches!(request.operation, Operation::Create | Operation::Update) {
            return Ok(AdmissionVerdict::allow());
        }
        let (part, writer) = match request.sub_resource.as_deref() {
            None => ("spec", &self.writers.questions),
            _ => ("status", &self.writers.answers),
        };
        // Others change the metadata: the garbage collector takes owners away, for instance.
        let written_part = |object: Option<&DynamicObject>| object.and_then(|object| object.data.get(part)).cloned();
        let is_same = request.operation == Operation::Update
            && written_part(request.old_object.as_ref()) == written_part(request.object.as_ref());
        if is_same || request.user_info.username.as_ref() == Some(writer) {
            return Ok(AdmissionVerdict::allow());
        }
        tracing::warn!(
            namespace = request.namespace,
            analysis = request.name,
            user = request.user(),
            "a foreign {part} of an analysis was refused"
        );
        Ok(AdmissionVerdict::Deny(Denial::forbidden(format!(
            "RolloutAnalysis {}: only Nudge itself ({writer}) may write it, because versions are judged by it",
            request.name
        ))))
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures;

    const CONTROL: &str = "system:serviceaccount:nudge-system:nudge-injector";
    const ANALYSIS: &str = "system:serviceaccount:nudge-system:nudge-analysis";

    fn object(round: &str, target: &str) -> Value {
        json!({
            "apiVersion": "internal.nudge.dev/v1alpha1", "kind": "RolloutAnalysis", "metadata": {"name": "shop", "namespace": "team"},
            "spec": {"round": round}, "status": {"round": target}
        })
    }

    fn allowed(user: &str, part: Option<&str>, (operation, old, new): (&str, Option<&Value>, &Value)) -> bool {
        let mut request = fixtures::request("RolloutAnalysis", operation, old, Some(new));
        request.user_info.username = Some(user.to_owned());
        request.sub_resource = part.map(str::to_owned);
        let writers = AnalysisWriters { questions: CONTROL.to_owned(), answers: ANALYSIS.to_owned() };
        !ValidateAnalyses { writers }.review(&request).now_or_never().unwrap().unwrap().is_denied()
    }

    #[test]
    fn each_part_of_nudge_writes_its_half_and_nobody_else_writes() {
        let (one, other) = (object("a", "a"), object("b", "b"));
        for (user, spec, status) in
            [(CONTROL, true, false), (ANALYSIS, false, true), ("eve", false, false), ("system:admin", false, false)]
        {
            assert_eq!(allowed(user, None, ("CREATE", None, &one)), spec, "{user}");
            assert_eq!(allowed(user, None, ("UPDATE", Some(&one), &other)), spec, "{user}");
            assert_eq!(allowed(user, Some("status"), ("UPDATE", Some(&one), &other)), status, "{user}");
        }
    }

    #[test]
    fn what_changes_nothing_that_counts_passes() {
        let mut labelled = object("a", "a");
        labelled["metadata"]["labels"] = json!({"a": "b"});
        assert!(allowed("eve", None, ("UPDATE", Some(&object("a", "a")), &labelled)));
    }
}
