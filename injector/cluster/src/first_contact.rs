//! The first contact: whether the API server asks the webhooks of this installation, and trusts their answers. A
//! replica of the injector can't find out by itself, because its Service leads to replicas that are Ready.
//!
//! The question is a dry run that creates a `VersionedConfig` with two steps of one name, which only a webhook refuses.
//! An API server that does not ask yet accepts it, and one that can't ask answers why.

use std::time::Duration;

use kube::api::PostParams;
use kube::{Api, Client};
use nudge_api::{Pods, Step, VersionedConfig, VersionedConfigSpec};
use nudge_protocol::backoff::Backoff;
use nudge_protocol::bounded_text::clip;
use nudge_protocol::error_chain::message;

/// The label of the question about an installation; `contact.nudge.dev` is asked this in every namespace.
const CONTACT_LABEL: &str = "nudge.dev/contact";
const QUESTION_NAME: &str = "nudge-first-contact";
/// The number of answers in a row that make the contact. There may be several API servers, and each learns of webhooks
/// by itself.
const MIN_ANSWERS: u32 = 3;
/// The wait after an answer.
const ANSWER_DELAY: Duration = Duration::from_millis(300);
/// The waits after questions without an answer. If there is none for long, as while another webhook refuses the
/// question, few are asked.
const RETRY_BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(15) };
/// The time that the API server may take: longer than the timeout of every webhook.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum size of a cause, which is less than an answer to a probe may have.
const MAX_CAUSE_BYTES: usize = 800;

/// What a question is about: all of Nudge, or one namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuestionScope {
    /// The installation, by a question in its own namespace. No other webhook of Nudge is asked there.
    Installation,
    /// An enabled namespace, by a question in it: the API server also has to know that it is enabled.
    Namespace,
}

/// What the API server did with a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuestionReply {
    /// A webhook of Nudge has refused the question.
    Answered,
    /// The API server would have stored the object.
    NotAsked,
    /// The user may not ask: the API server itself refuses the question.
    NotAllowed(String),
    /// The API server reaches or trusts no webhook, or does not answer itself.
    Failed(String),
}

impl QuestionReply {
    fn of(created: kube::Result<VersionedConfig>) -> Self {
        match created {
            Ok(_) => Self::NotAsked,
            Err(kube::Error::Api(status)) if is_answer(&status.message) => Self::Answered,
            Err(kube::Error::Api(status)) if matches!(status.code, 403 | 422) => {
                Self::NotAllowed(status.message.clone())
            }
            Err(kube::Error::Api(status)) => Self::Failed(status.message.clone()),
            Err(error) => Self::Failed(message(&error)),
        }
    }
}

/// Returns whether a webhook of Nudge has refused.
fn is_answer(message: &str) -> bool {
    let refusal = message.strip_prefix("admission webhook \"").and_then(|text| text.split_once('"'));
    refusal.is_some_and(|(name, text)| name.ends_with(".nudge.dev") && text.starts_with(" denied the request"))
}

/// The contact of the API server with the webhooks. Once it is made, it stays made: rotations and outages take nothing
/// back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contact {
    /// There has been no contact yet.
    Missing {
        /// The number of questions in a row that had an answer.
        answers: u32,
        /// The number of questions without an answer.
        failures: u32,
        /// The cause why the last of these questions had no answer.
        cause: String,
    },
    /// The API server has asked the webhooks.
    Made,
}

impl Default for Contact {
    fn default() -> Self {
        Self::Missing { answers: 0, failures: 0, cause: "nothing has been asked yet".to_owned() }
    }
}

impl Contact {
    /// Returns the contact after one more reply.
    #[must_use]
    pub fn after(self, reply: QuestionReply) -> Self {
        let Self::Missing { answers, failures, cause } = self else { return Self::Made };
        let cause = match reply {
            QuestionReply::Answered if answers + 1 >= MIN_ANSWERS => return Self::Made,
            QuestionReply::Answered => return Self::Missing { answers: answers + 1, failures, cause },
            QuestionReply::NotAsked => "the API server does not ask the webhooks yet".to_owned(),
            QuestionReply::NotAllowed(cause) | QuestionReply::Failed(cause) => clip(cause, MAX_CAUSE_BYTES),
        };
        Self::Missing { answers: 0, failures: failures.saturating_add(1), cause }
    }

    /// Returns the time until the next question; `None` if the contact is made.
    pub fn wait(&self) -> Option<Duration> {
        match self {
            Self::Made => None,
            Self::Missing { answers: 0, failures, .. } => Some(RETRY_BACKOFF.wait(*failures)),
            Self::Missing { .. } => Some(ANSWER_DELAY),
        }
    }

    /// Returns why the contact is not made yet.
    pub fn missing_cause(&self) -> Option<&str> {
        match self {
            Self::Made => None,
            Self::Missing { cause, .. } => Some(cause),
        }
    }
}

/// Asks the API server once.
pub async fn ask(client: Client, namespace: &str, scope: QuestionScope) -> QuestionReply {
    let api = Api::<VersionedConfig>::namespaced(client, namespace);
    let (dry, question) = (PostParams { dry_run: true, ..PostParams::default() }, question(scope));
    match tokio::time::timeout(QUESTION_TIMEOUT, api.create(&dry, &question)).await {
        Ok(created) => QuestionReply::of(created),
        Err(_) => QuestionReply::Failed(format!("the API server did not answer within {QUESTION_TIMEOUT:?}")),
    }
}

fn question(scope: QuestionScope) -> VersionedConfig {
    let mut question = VersionedConfig::new(QUESTION_NAME, VersionedConfigSpec::default());
    let step = Step { name: Some("twice".to_owned()), ..Step::of(Pods::Share("100%".to_owned())) };
    question.spec.rollout.steps = vec![step.clone(), step];
    if scope == QuestionScope::Installation {
        question.metadata.labels = Some([(CONTACT_LABEL.to_owned(), "true".to_owned())].into());
    }
    question
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use nudge_core::config::config_faults;

    use super::*;

    fn refused(code: u16, message: &str) -> QuestionReply {
        let status = Status { code, message: message.to_owned(), ..Status::default() };
        QuestionReply::of(Err(kube::Error::Api(Box::new(status))))
    }

    fn after(replies: &[QuestionReply]) -> Contact {
        replies.iter().cloned().fold(Contact::default(), Contact::after)
    }

    #[test]
    fn a_refusal_by_a_webhook_of_nudge_is_an_answer_and_nothing_else_is() {
        let answered = "admission webhook \"contact.nudge.dev\" denied the request: it is not enabled there";
        assert_eq!(refused(403, answered), QuestionReply::Answered);
        assert_eq!(QuestionReply::of(Ok(question(QuestionScope::Namespace))), QuestionReply::NotAsked);
        let unknown = "Internal error occurred: failed calling webhook \"contact.nudge.dev\": x509: certificate signed by unknown authority";
        assert_eq!(refused(500, unknown), QuestionReply::Failed(unknown.to_owned()));
        let foreign = "admission webhook \"policy.example.com\" denied the request: no";
        assert_eq!(refused(400, foreign), QuestionReply::Failed(foreign.to_owned()));
        let rights = "versionedconfigs.nudge.dev is forbidden: User \"jane\" cannot create resource";
        assert_eq!(refused(403, rights), QuestionReply::NotAllowed(rights.to_owned()));
    }

    #[test]
    fn three_answers_in_a_row_make_the_contact_and_it_stays_made() {
        use QuestionReply::{Answered, NotAsked};
        let failed = || QuestionReply::Failed("unknown authority".to_owned());
        assert_eq!(after(&[]).wait(), Some(RETRY_BACKOFF.first));
        assert_eq!(after(&[Answered, Answered]).wait(), Some(ANSWER_DELAY));
        let broken = after(&[Answered, Answered, failed()]);
        assert_eq!((broken.wait(), broken.missing_cause()), (Some(RETRY_BACKOFF.first), Some("unknown authority")));
        assert_eq!(after(&[failed(), Answered, Answered]).missing_cause(), Some("unknown authority"));
        assert!(after(&[Answered, NotAsked, Answered, Answered]).missing_cause().is_some());
        let made = after(&[failed(), Answered, Answered, Answered]);
        assert_eq!((made.wait(), made.missing_cause()), (None, None));
        assert_eq!(made.after(failed()), Contact::Made);
    }

    #[test]
    fn what_is_not_answered_is_asked_later_and_later() {
        let waits = |failures: usize| after(&vec![QuestionReply::NotAsked; failures]).wait().map(|wait| wait.as_secs());
        assert_eq!([1, 2, 4, 5, 1_000].map(waits), [1, 2, 8, 15, 15].map(Some));
        let refused = vec![QuestionReply::NotAllowed("a quota".to_owned()); 1_000];
        assert_eq!(after(&[refused, vec![QuestionReply::Answered]].concat()).wait(), Some(ANSWER_DELAY));
    }

    #[test]
    fn a_cause_is_bounded() {
        let contact = after(&[QuestionReply::Failed("é".repeat(10_000))]);
        assert!(contact.missing_cause().is_some_and(|cause| !cause.is_empty() && cause.len() <= MAX_CAUSE_BYTES));
    }

    #[test]
    fn the_question_is_refused_wherever_it_is_asked() {
        for about in [QuestionScope::Installation, QuestionScope::Namespace] {
            let question = question(about);
            let faults = config_faults(QUESTION_NAME, &question.spec, k8s_openapi::jiff::Timestamp::UNIX_EPOCH);
            assert_eq!(faults.len(), 1, "{about:?}: {faults:?}");
            assert_eq!(question.metadata.labels.is_some(), about == QuestionScope::Installation);
        }
    }
}
