//! One measurement: the query for both sides, at the same time.

use nudge_api::{Analysis, RolloutAnalysisSpec};
use nudge_cluster::guarded::GuardedReadError;
use nudge_cluster::tasks::catch_panic;
use nudge_core::analysis::{Fault, fill, is_answered, is_rehearsal, server};
use nudge_outbound::Reach;
use nudge_protocol::error_chain::chain;

use crate::ask::{AskError, ask};
use crate::credentials::{Credentials, CredentialsError, credentials};
use crate::shared::Analyses;

/// The longest text of an error.
const MAX_MESSAGE_BYTES: usize = 300;

/// Both numbers: of the pods with the version, and of the others, if there are any.
pub(crate) type Numbers = (String, Option<String>);

/// Why there are no numbers.
#[derive(Debug, thiserror::Error)]
enum MeasureError {
    #[error(transparent)]
    Meaningless(#[from] Fault),
    #[error(transparent)]
    GuardedReader(#[from] GuardedReadError),
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error(transparent)]
    Rehearsal(AskError),
    #[error("of the pods with the version")]
    Target(#[source] AskError),
    #[error("of the other pods")]
    Control(#[source] AskError),
    #[error("InternalError: Nudge itself failed at this query; report it with the log of nudge-analysis")]
    Internal,
}

/// Measures, when it is this namespace's turn. An error is a text for people.
pub(crate) async fn measure(
    analyses: &Analyses,
    namespace: &str,
    analysis: &Analysis,
    question: &RolloutAnalysisSpec,
) -> Result<Numbers, String> {
    let turns = if is_rehearsal(&question.round) { &analyses.rehearsals } else { &analyses.turns };
    let _turn = turns.take(namespace).await;
    with_message(Box::pin(measured(analyses, namespace, analysis, question))).await
}

/// Says that Nudge itself failed.
pub(crate) fn internal() -> String {
    MeasureError::Internal.to_string()
}

/// What there is to say of a measurement, whatever comes of it.
async fn with_message(measured: impl Future<Output = Result<Numbers, MeasureError>>) -> Result<Numbers, String> {
    let measured = catch_panic(measured).await.unwrap_or(Err(MeasureError::Internal));
    measured.map_err(|error| chain(&error).chars().filter(|it| !it.is_control()).take(MAX_MESSAGE_BYTES).collect())
}

async fn measured(
    analyses: &Analyses,
    namespace: &str,
    analysis: &Analysis,
    question: &RolloutAnalysisSpec,
) -> Result<Numbers, MeasureError> {
    let prometheus = &analysis.prometheus;
    let address = server(analysis)?;
    let reach = Reach::Outside(analyses.guarded.read().await?);
    let credentials = match &prometheus.secret_ref {
        Some(secret) => credentials(&analyses.client, &analyses.account, (namespace, &secret.name), &address).await?,
        None => Credentials::default(),
    };
    let tries = is_rehearsal(&question.round);
    let of = async |pods: &[String]| {
        let query = fill(&prometheus.query, namespace, pods);
        match ask(&address, &query, &credentials, &reach, &analyses.roots).await {
            Err(AskError::Answer(error)) if tries && is_answered(&error) => Ok(String::new()),
            answer => answer,
        }
    };
    let control = async {
        if question.control.is_empty() {
            return Ok(None);
        }
        of(&question.control).await.map(Some)
    };
    let (target, control) = tokio::join!(of(&question.pods), control);
    let of_target: fn(AskError) -> MeasureError = if tries { MeasureError::Rehearsal } else { MeasureError::Target };
    Ok((target.map_err(of_target)?, control.map_err(MeasureError::Control)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_query_that_panics_says_so_and_ends_nothing_else() {
        let planted = with_message(async { panic!("planted: hunter2") });
        let good = with_message(async { Ok(("1".to_owned(), None)) });
        let (planted, good) = tokio::join!(planted, good);
        let error = planted.unwrap_err();
        assert!(error.starts_with("InternalError: ") && !error.contains("hunter2"), "{error}");
        assert_eq!(good.unwrap().0, "1");
    }
}
