//! The pod condition `nudge.dev/ConfigCurrent`, from what a pod should have and what its agent has reported. Pure.

use nudge_core::pods::PodState;
use nudge_protocol::bounded_text::clip;
use nudge_protocol::hub::{HubProblem, HubReason, ReportRequest, ReportedConfig};
use nudge_protocol::pod::{AGENT_CONTAINER, condition_message};
use nudge_protocol::status::Outcome;

use super::view::View;

/// Longest sentence, in bytes.
const LONGEST: usize = 1024;

/// The condition as it should stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The pod runs what it is to run, and all that wanted to be told have acknowledged it.
    pub current: bool,
    /// A word for programs.
    pub reason: String,
    /// What the pod runs, and a sentence ([`condition_message`]).
    pub message: String,
    /// When the report came that says so, in seconds since 1970; absent where none has.
    pub reported_at: Option<i64>,
}

impl Condition {
    /// The status as it stands in the object.
    pub fn status(&self) -> &'static str {
        if self.current { "True" } else { "False" }
    }

    /// Whether the pod says so already.
    pub(super) fn stands_in(&self, pod: &PodState) -> bool {
        let same = |(status, reason, message): &(String, String, String)| {
            status == self.status() && *reason == self.reason && *message == self.message
        };
        pod.condition.as_ref().is_some_and(same)
    }

    /// Something better is likely to come at once.
    pub(super) fn is_passing(&self) -> bool {
        matches!(self.reason.as_str(), "Resolving" | "Pending")
    }
}

/// The condition of a pod whose agent has reported; `None` where the agent knows more than this replica.
pub(super) fn judge(pod: &PodState, views: &[View], report: &ReportRequest) -> Option<Condition> {
    let reported = |view: &View| report.configs.iter().find(|config| config.name == view.name);
    let ahead = |view: &View| {
        let ahead = |config: &ReportedConfig| config.uid == view.uid && config.revision > view.revision;
        reported(view).is_some_and(ahead)
    };
    if views.iter().any(ahead) {
        return None;
    }
    let (reason, message) = views
        .iter()
        .find_map(|view| of_config(view, reported(view)))
        .or_else(|| of_containers(pod, report))
        .or_else(|| views.iter().find_map(of_restart))
        .unwrap_or_else(|| ("Applied".to_owned(), String::new()));
    let runs = views.iter().map(|view| (&view.name, reported(view).and_then(|config| config.version.as_ref())));
    let message = condition_message(runs, &cut(message));
    Some(Condition { current: reason == "Applied", reason, message, reported_at: None })
}

/// The condition of a pod whose agent has not reported since it was made.
pub(super) fn without_contact(pod: &PodState) -> Condition {
    let PodState { namespace, name, .. } = pod;
    let message = format!(
        "the agent has not reported since the pod was made; see kubectl logs -n {namespace} {name} -c {AGENT_CONTAINER}"
    );
    Condition { current: false, reason: "NoContact".to_owned(), message, reported_at: None }
}

/// Why one config is not as it should be.
fn of_config(view: &View, reported: Option<&ReportedConfig>) -> Option<(String, String)> {
    if let Err(problem) = &view.content {
        let HubProblem { reason, message } = &**problem;
        return Some((word(*reason).to_owned(), message.clone()));
    }
    let name = &view.name;
    if let Some(problem) = reported.and_then(|config| config.problem.as_ref()) {
        let is_word = !problem.reason.is_empty()
            && problem.reason.len() <= 64
            && problem.reason.starts_with(|letter: char| letter.is_ascii_uppercase())
            && problem.reason.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let reason = if is_word { problem.reason.clone() } else { "Failed".to_owned() };
        return Some((reason, format!("config {name}: {}", problem.message)));
    }
    let version = view.version.as_ref()?;
    let runs = reported.and_then(|config| config.version.as_ref());
    (runs != Some(version))
        .then(|| ("Resolving".to_owned(), format!("version {version} of config {name} is on its way")))
}

/// Which container has not taken what is served.
fn of_containers(pod: &PodState, report: &ReportRequest) -> Option<(String, String)> {
    if report.acknowledged {
        return None;
    }
    // Of a container that is not in the pod nothing is said: hooks of none have an empty place of their own.
    let failed = |outcome| match outcome {
        Outcome::NothingYet | Outcome::Pending | Outcome::Delivered => false,
        Outcome::NoHandler | Outcome::NoProcess | Outcome::PermissionDenied | Outcome::Failed => true,
    };
    let mut waiting = report.containers.iter().filter(|container| !container.acknowledged);
    let worst = report.containers.iter().find(|container| failed(container.outcome));
    let known = |name: &str| pod.containers.iter().any(|container| container.name.as_str() == name);
    let Some(container) = worst else {
        let who = waiting.next().map_or("a subscriber", |container| container.name.as_str());
        return Some(("Pending".to_owned(), format!("{who} has not acknowledged yet")));
    };
    let what = if known(container.name.as_str()) { "container" } else { "subscriber" };
    Some((container.outcome.as_str().to_owned(), format!("{what} {}: {}", container.name, container.message)))
}

/// What the pod runs is not what it is to run, and nobody but a new pod takes that.
fn of_restart(view: &View) -> Option<(String, String)> {
    let (name, due) = (&view.name, view.due.as_ref()?);
    Some(("NotRestarted".to_owned(), format!("version {due} of config {name} is taken by a restart of the pod alone")))
}

fn word(reason: HubReason) -> &'static str {
    match reason {
        HubReason::Resolving => "Resolving",
        HubReason::NotFound => "NotFound",
        HubReason::NotAllowed => "NotAllowed",
        HubReason::TooLarge => "TooLarge",
        HubReason::Changed => "Changed",
        HubReason::Other => "Failed",
    }
}

fn cut(mut message: String) -> String {
    clip(&mut message, LONGEST);
    message
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use nudge_protocol::hub::{ReportedContainer, ReportedProblem};
    use nudge_protocol::{Ack, ConfigName, ContainerName, Notify, VersionName};

    use super::*;
    use crate::content::Content;

    fn view(name: &str, revision: u64, version: &str) -> View {
        let content = Content { block: Bytes::new(), sha256: "s".to_owned(), secrets: Vec::new() };
        View {
            name: ConfigName::new(name).unwrap(),
            uid: "u".to_owned(),
            revision,
            version: VersionName::new(version).ok(),
            content: Ok(Arc::new(content)),
            due: None,
        }
    }

    fn config(name: &str, revision: u64, version: &str) -> ReportedConfig {
        let (name, version) = (ConfigName::new(name).unwrap(), VersionName::new(version).ok());
        ReportedConfig { name, uid: "u".to_owned(), revision, version, problem: None }
    }

    fn container(outcome: Outcome, acknowledged: bool) -> ReportedContainer {
        let (name, message) = (ContainerName::new("app").unwrap(), "why".to_owned());
        ReportedContainer { name, notify: Notify::Webhook, ack: Ack::default(), outcome, message, acknowledged }
    }

    #[test]
    fn a_pod_that_only_a_restart_brings_up_to_date_is_not_current() {
        let due = View { due: VersionName::new("2").ok(), ..view("shop", 3, "1") };
        let said = judge(&PodState::default(), &[due], &report(vec![config("shop", 3, "1")])).unwrap();
        assert_eq!((said.current, said.reason.as_str()), (false, "NotRestarted"));
        assert!(said.message.starts_with("shop=1; version 2 of config shop"), "{}", said.message);
    }

    fn report(configs: Vec<ReportedConfig>) -> ReportRequest {
        ReportRequest { configs, acknowledged: true, ..ReportRequest::default() }
    }

    fn judged(views: &[View], report: &ReportRequest) -> (bool, String, String) {
        let Condition { current, reason, message, .. } = judge(&PodState::default(), views, report).unwrap();
        (current, reason, message)
    }

    fn expect(current: bool, reason: &str, message: &str) -> (bool, String, String) {
        (current, reason.to_owned(), message.to_owned())
    }

    #[test]
    fn what_is_applied_and_acknowledged_is_current() {
        let views = [view("shop", 3, "1.0.1"), view("keys", 1, "7")];
        let all = report(vec![config("keys", 1, "7"), config("shop", 3, "1.0.1")]);
        assert_eq!(judged(&views, &all), expect(true, "Applied", "shop=1.0.1,keys=7"));
        assert_eq!(judged(&[], &report(Vec::new())), expect(true, "Applied", ""));
    }

    #[test]
    fn what_is_in_the_way_is_named() {
        let views = [view("shop", 3, "2")];
        let old = report(vec![config("shop", 2, "1")]);
        let on_its_way = "shop=1; version 2 of config shop is on its way";
        assert_eq!(judged(&views, &old), expect(false, "Resolving", on_its_way));
        assert_eq!(judged(&views, &report(Vec::new())).2, "shop=; version 2 of config shop is on its way");

        let mut failed = report(vec![config("shop", 3, "1")]);
        let reason = "TooLarge".to_owned();
        failed.configs[0].problem = Some(ReportedProblem { reason, message: "it is over 3 MiB".to_owned() });
        assert_eq!(judged(&views, &failed), expect(false, "TooLarge", "shop=1; config shop: it is over 3 MiB"));
        failed.configs[0].problem.as_mut().unwrap().reason = "no word".to_owned();
        assert_eq!(judged(&views, &failed).1, "Failed");

        let mut view = view("shop", 3, "2");
        let problem = HubProblem { reason: HubReason::NotAllowed, message: "ask the admin".to_owned() };
        view.content = Err(Arc::new(problem));
        assert_eq!(judged(&[view], &old), expect(false, "NotAllowed", "shop=1; ask the admin"));
    }

    #[test]
    fn containers_are_named_by_what_they_did() {
        let views = [view("shop", 3, "2")];
        let with =
            |containers| ReportRequest { containers, acknowledged: false, ..report(vec![config("shop", 3, "2")]) };
        let waiting = with(vec![container(Outcome::Delivered, true), container(Outcome::Pending, false)]);
        assert_eq!(judged(&views, &waiting), expect(false, "Pending", "shop=2; app has not acknowledged yet"));
        for outcome in [Outcome::NoHandler, Outcome::PermissionDenied, Outcome::Failed, Outcome::NoProcess] {
            let judged = judged(&views, &with(vec![container(Outcome::Pending, false), container(outcome, false)]));
            assert_eq!(judged, expect(false, outcome.as_str(), "shop=2; subscriber app: why"));
        }
    }

    #[test]
    fn a_replica_that_is_behind_says_nothing() {
        assert_eq!(judge(&PodState::default(), &[view("shop", 3, "2")], &report(vec![config("shop", 4, "3")])), None);
    }
}
