//! One measurement: the same query for both groups of pods, at the same time.

use nudge_api::{Analysis, RolloutAnalysisSpec};
use nudge_cluster::guarded_reader::GuardedReadError;
use nudge_cluster::panics::catch_panic;
use nudge_core::analysis::{AnalysisFault, fill_query, is_answer_without_pods, is_rehearsal, parse_server};
use nudge_outbound::Reach;
use nudge_protocol::error_chain::chain;

use crate::analyses::Analyses;
use crate::credentials::{Credentials, CredentialsError, read_credentials};
use crate::prometheus_query::{QueryError, query_number};

/// The maximum size of an error's text.
const MAX_MESSAGE_BYTES: usize = 300;

#[derive(Debug)]
pub(crate) struct Numbers {
    /// The number for the pods with the version.
    pub(crate) target: String,
    /// The number for the other pods.
    pub(crate) control: Option<String>,
}

/// The reason why there are no numbers.
#[derive(Debug, thiserror::Error)]
enum MeasureError {
    #[error(transparent)]
    Meaningless(#[from] AnalysisFault),
    #[error(transparent)]
    GuardedReader(#[from] GuardedReadError),
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error(transparent)]
    Rehearsal(QueryError),
    #[error("of the pods with the version")]
    Target(#[source] QueryError),
    #[error("of the other pods")]
    Control(#[source] QueryError),
    #[error("InternalError: Nudge itself failed at this query; report it with the log of nudge-analysis")]
    Internal,
}

/// Measures when the namespace gets its turn. The error is a message for users.
pub(crate) async fn measure(
    analyses: &Analyses,
    namespace: &str,
    analysis: &Analysis,
    question: &RolloutAnalysisSpec,
) -> Result<Numbers, String> {
    let turns = if is_rehearsal(&question.round) { &analyses.rehearsals } else { &analyses.turns };
    let _turn = turns.take(namespace).await;
    with_message(Box::pin(query_both(analyses, namespace, analysis, question))).await
}

/// Returns the message that Nudge itself failed.
pub(crate) fn internal_error_message() -> String {
    MeasureError::Internal.to_string()
}

/// Returns the result of a measurement, with any error or panic as a message.
async fn with_message(measurement: impl Future<Output = Result<Numbers, MeasureError>>) -> Result<Numbers, String> {
    let result = catch_panic(measurement).await.unwrap_or(Err(MeasureError::Internal));
    result
        .map_err(|error| chain(&error).chars().filter(|letter| !letter.is_control()).take(MAX_MESSAGE_BYTES).collect())
}

/// Queries the numbers of both groups of pods.
async fn query_both(
    analyses: &Analyses,
    namespace: &str,
    analysis: &Analysis,
    question: &RolloutAnalysisSpec,
) -> Result<Numbers, MeasureError> {
    let prometheus = &analysis.prometheus;
    let address = parse_server(analysis)?;
    let reach = Reach::Outside(analyses.guarded.read().await?);
    let credentials = match &prometheus.secret_ref {
        Some(secret) => {
            read_credentials(&analyses.client, &analyses.account, (namespace, &secret.name), &address).await?
        }
        None => Credentials::default(),
    };
    let is_rehearsed = is_rehearsal(&question.round);
    let query_pods = async |pods: &[String]| {
        let query = fill_query(&prometheus.query, namespace, pods);
        match query_number(&address, &query, &credentials, &reach, &analyses.roots).await {
            Err(QueryError::Answer(error)) if is_rehearsed && is_answer_without_pods(&error) => Ok(String::new()),
            answer => answer,
        }
    };
    let control = async {
        if question.control.is_empty() {
            return Ok(None);
        }
        query_pods(&question.control).await.map(Some)
    };
    let (target, control) = tokio::join!(query_pods(&question.pods), control);
    let target_error = if is_rehearsed { MeasureError::Rehearsal } else { MeasureError::Target };
    Ok(Numbers { target: target.map_err(target_error)?, control: control.map_err(MeasureError::Control)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_query_that_panics_is_reported_and_ends_nothing_else() {
        let planted = with_message(async { panic!("planted: hunter2") });
        let good = with_message(async { Ok(Numbers { target: "1".to_owned(), control: None }) });
        let (planted, good) = tokio::join!(planted, good);
        let error = planted.unwrap_err();
        assert!(error.starts_with("InternalError: ") && !error.contains("hunter2"), "{error}");
        assert_eq!(good.unwrap().target, "1");
    }
}
