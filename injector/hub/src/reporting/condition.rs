//! The pod condition `nudge.dev/ConfigCurrent`, derived from the pod's assigned versions and its agent's report.

use std::slice;
use std::sync::Arc;

use nudge_api::{Explanation, Reason};
use nudge_core::pods::{PodState, Report, ReportState};
use nudge_core::restart::StartState;
use nudge_protocol::bounded_text::one_line;
use nudge_protocol::hub::{HubProblem, HubReason, ReportRequest, ReportedConfig, ReportedContainer, ReportedProblem};
use nudge_protocol::pod::AGENT_CONTAINER;
use nudge_protocol::status::Outcome;

use crate::contents::ConfigView;

/// The maximum bytes of a message.
const MAX_MESSAGE_BYTES: usize = 1024;

/// The priority of a condition's write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Priority {
    /// The condition is written before others, because the pod does not show the failure yet.
    Urgent,
    /// The condition is written in its turn.
    Normal,
    /// The condition is written later, because a better one is likely to follow.
    Passing,
}

/// Returns the priority of `condition` if the pod has the condition `old`.
pub(super) fn priority(condition: &Report, old: Option<&Report>) -> Priority {
    let has_failed = matches!(condition.state, ReportState::Failed(_));
    if has_failed && !old.is_some_and(|old| shows_failures(old, condition)) {
        return Priority::Urgent;
    }
    let is_passing = |reason: Reason| matches!(reason, Reason::Resolving | Reason::Pending);
    let has_passing = is_passing(condition.reason()) || condition.reasons.iter().any(|(_, reason)| is_passing(*reason));
    if has_passing { Priority::Passing } else { Priority::Normal }
}

/// Returns whether each config that fails in `condition` fails in `shown` for the same reason and with the same
/// version.
fn shows_failures(shown: &Report, condition: &Report) -> bool {
    let failure = |report: &Report, name: &str| match report.state_of(name) {
        ReportState::Failed(explanation) => Some(explanation.reason),
        _ => None,
    };
    condition.versions.iter().all(|version| {
        let name = version.0.as_str();
        let reason = failure(condition, name);
        reason.is_none() || (reason == failure(shown, name) && shown.versions.contains(version))
    })
}

/// Turns the report that the agent made at `reported_at` into the condition of its pod; `None` if the agent knows
/// more than this replica.
pub(super) fn judge(pod: &PodState, views: &[ConfigView], report: &ReportRequest, reported_at: i64) -> Option<Report> {
    let reported_config = |view: &ConfigView| report.configs.iter().find(|config| config.name == view.name);
    let is_ahead =
        |view: &ConfigView, config: &ReportedConfig| config.uid == view.uid && config.revision > view.revision;
    if views.iter().any(|view| reported_config(view).is_some_and(|config| is_ahead(view, config))) {
        return None;
    }
    let containers = container_problem(pod, report);
    let is_unchanged = is_unchanged(pod, views, report);
    let explain = |views: &[ConfigView], acknowledged: bool| {
        let agent = views.iter().filter_map(|view| agent_problem(view, reported_config(view)?));
        let containers = containers.clone().filter(|_| !acknowledged);
        let hub = views.iter().filter_map(|view| hub_problem(view, reported_config(view)));
        let restart = views.iter().filter_map(restart_explanation);
        let start = views.iter().filter(|_| acknowledged && !is_unchanged).filter_map(start_explanation);
        // If nothing is served, no container has anything to acknowledge.
        let silent = (!acknowledged).then(|| not_acknowledged("a subscriber"));
        summarize(&agent.chain(containers).chain(hub).chain(restart).chain(start).chain(silent).collect::<Vec<_>>())
    };
    let success = if is_unchanged { ReportState::Unchanged } else { ReportState::Acknowledged };
    let reason =
        |explanation: Option<&Explanation>| explanation.map_or(success.reason(), |explanation| explanation.reason);
    let explanation = explain(views, report.acknowledged);
    let reasons = views.iter().map(|view| {
        let acknowledged = report.acknowledged || reported_config(view).is_some_and(|config| config.acknowledged);
        (view.name.clone(), reason(explain(slice::from_ref(view), acknowledged).as_ref()))
    });
    let reasons = reasons.filter(|(_, of_config)| *of_config != reason(explanation.as_ref())).collect();
    let version = |view: &ConfigView| reported_config(view).and_then(|config| config.version.clone());
    let clip =
        |explanation: Explanation| explanation.reason.explained(one_line(&explanation.message, MAX_MESSAGE_BYTES));
    Some(Report {
        versions: views.iter().map(|view| (view.name.clone(), version(view))).collect(),
        state: explanation.map_or(success, |explanation| ReportState::of(clip(explanation))),
        reasons,
        at: Some(reported_at),
    })
}

/// Returns the condition of a pod whose agent has not reported since the pod was created.
pub(super) fn without_contact(pod: &PodState) -> Report {
    let PodState { namespace, name, .. } = pod;
    let message = format!(
        "the agent has not reported since the pod was created; see kubectl logs -n {namespace} {name} -c {AGENT_CONTAINER}"
    );
    Report {
        versions: Vec::new(),
        state: ReportState::of(Reason::NoContact.explained(message)),
        reasons: Vec::new(),
        at: None,
    }
}

/// Returns the failures, or else the first explanation. The agent's explanations come before the hub's. So a config
/// that can't be delivered hides nothing of the others, and is only named if all else is acknowledged.
fn summarize(explanations: &[Explanation]) -> Option<Explanation> {
    let mut failures: Vec<&Explanation> = Vec::new();
    for explanation in explanations.iter().filter(|explanation| is_failure(explanation)) {
        if !failures.iter().any(|other| other.message == explanation.message) {
            failures.push(explanation);
        }
    }
    let Some(first) = failures.first() else { return explanations.first().cloned() };
    let messages: Vec<&str> = failures.iter().map(|explanation| explanation.message.as_str()).collect();
    Some(first.reason.explained(messages.join("; ")))
}

fn is_failure(explanation: &Explanation) -> bool {
    matches!(ReportState::of(explanation.reason.explained("")), ReportState::Failed(_))
}

/// Explains why the agent does not serve the version of one config.
fn agent_problem(view: &ConfigView, reported: &ReportedConfig) -> Option<Explanation> {
    let problem = reported.problem.as_ref().filter(|problem| !is_passed_on(view, &problem.reason))?;
    Some(explain_reported(problem, view))
}

/// Returns whether the agent only passes on a problem that a hub has reported to it.
fn is_passed_on(view: &ConfigView, reason: &str) -> bool {
    let by_hub = |problem: &Arc<HubProblem>| problem.reason == HubReason::TooLarge && reason == "TooLarge";
    ["Resolving", "NotFound", "NotAllowed", "Changed", "Other"].contains(&reason)
        || view.content.as_ref().err().is_some_and(by_hub)
}

fn explain_reported(problem: &ReportedProblem, view: &ConfigView) -> Explanation {
    reported_reason(&problem.reason).explained(format!("config {}: {}", view.name, problem.message))
}

/// Explains why the pod does not have the assigned version of a config.
fn hub_problem(view: &ConfigView, reported: Option<&ReportedConfig>) -> Option<Explanation> {
    if let Err(problem) = &view.content {
        return Some(hub_reason(problem.reason).explained(&problem.message));
    }
    let name = &view.name;
    if let Some(problem) = reported.and_then(|config| config.problem.as_ref()) {
        return Some(explain_reported(problem, view));
    }
    let version = view.version.as_ref()?;
    let served = reported.and_then(|config| config.version.as_ref());
    (served != Some(version))
        .then(|| Reason::Resolving.explained(format!("version {version} of config {name} is on its way")))
}

/// Returns the reason that an agent reports. A newer agent may have an unknown reason; a text that can't be a reason is
/// a failure.
fn reported_reason(reason: &str) -> Reason {
    let is_word = reason.starts_with(|first: char| first.is_ascii_uppercase())
        && reason.chars().all(|letter| letter.is_ascii_alphanumeric());
    if is_word { Reason::named(reason) } else { Reason::Failed }
}

/// Returns whether no container has taken the served version, because they read no key that has changed. With several
/// configs it is not known which of them changed.
fn is_unchanged(pod: &PodState, views: &[ConfigView], report: &ReportRequest) -> bool {
    let is_unchanged =
        |container: &ReportedContainer| container.acknowledged && container.outcome == Outcome::Unchanged;
    views.len() == 1
        && !pod.has_silent_takers
        && !report.containers.is_empty()
        && report.containers.iter().all(is_unchanged)
}

/// Explains which container has not acknowledged the served versions.
fn container_problem(pod: &PodState, report: &ReportRequest) -> Option<Explanation> {
    if report.acknowledged {
        return None;
    }
    let failure = |outcome: Outcome| match outcome {
        Outcome::NothingYet | Outcome::Pending | Outcome::Delivered | Outcome::Unchanged => None,
        Outcome::NoHandler => Some(Reason::NoHandler),
        Outcome::NoProcess => Some(Reason::NoProcess),
        Outcome::PermissionDenied => Some(Reason::PermissionDenied),
        Outcome::Failed => Some(Reason::Failed),
        Outcome::NotVerified => Some(Reason::NotVerified),
    };
    let failed = report.containers.iter().find_map(|container| Some((container, failure(container.outcome)?)));
    let Some((container, reason)) = failed else {
        let serves_version = report.configs.iter().any(|config| config.version.is_some());
        let mut waiting = report.containers.iter().filter(|container| !container.acknowledged);
        let who = waiting.next().map_or("a subscriber", |container| container.name.as_str());
        return serves_version.then(|| not_acknowledged(who));
    };
    // A webhook may name a container that the pod does not have.
    let is_container = pod.containers.iter().any(|other| other.name == container.name);
    let kind = if is_container { "container" } else { "subscriber" };
    Some(reason.explained(format!("{kind} {}: {}", container.name, container.message)))
}

fn not_acknowledged(who: &str) -> Explanation {
    Reason::Pending.explained(format!("{who} has not acknowledged yet"))
}

/// Explains that the pod runs another version than the assigned one, which only a new pod takes.
fn restart_explanation(view: &ConfigView) -> Option<Explanation> {
    let (name, version) = (&view.name, view.restart_version.as_ref()?);
    let message = format!("only a restart of the pod brings version {version} of config {name}");
    Some(Reason::NotRestarted.explained(message))
}

/// Explains that a container has read something at its start that is older than the version of the pod.
fn start_explanation(view: &ConfigView) -> Option<Explanation> {
    let (name, version) = (&view.name, view.version.as_ref()?);
    let message = match &view.start {
        StartState::Present => return None,
        StartState::Older { container, path } => format!(
            "container {container} reads {path} at its start, perhaps from before version {version} of config {name}; \
             Nudge restarts its workload after the bake if that changed"
        ),
        StartState::ObjectLacksVersion { container, kind } => format!(
            "container {container} reads the {kind} at its start, which gets version {version} of config {name} after \
             the bake; Nudge restarts its workload then"
        ),
    };
    Some(Reason::NotRestarted.explained(message))
}

fn hub_reason(reason: HubReason) -> Reason {
    match reason {
        HubReason::Resolving => Reason::Resolving,
        HubReason::NotFound => Reason::NotFound,
        HubReason::NotAllowed => Reason::NotAllowed,
        HubReason::TooLarge => Reason::TooLarge,
        HubReason::Changed => Reason::Changed,
        HubReason::Other => Reason::Failed,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use nudge_protocol::{Ack, BlockDigest, ConfigName, ConfigUid, ContainerName, Notify, VersionName};

    use super::*;
    use crate::contents::Content;

    fn view(name: &str, revision: u64, version: &str) -> ConfigView {
        let content = Content { block: Bytes::new(), sha256: BlockDigest::new("s"), secrets: Vec::new() };
        ConfigView {
            name: ConfigName::new(name).unwrap(),
            uid: ConfigUid::new("u"),
            revision,
            version: VersionName::new(version).ok(),
            content: Ok(Arc::new(content)),
            restart_version: None,
            start: StartState::Present,
            spread: None,
            ack_timeout_seconds: None,
            mounted_secrets: None,
        }
    }

    fn config(name: &str, revision: u64, version: &str) -> ReportedConfig {
        let (name, version) = (ConfigName::new(name).unwrap(), VersionName::new(version).ok());
        ReportedConfig { name, uid: ConfigUid::new("u"), revision, version, problem: None, acknowledged: false }
    }

    fn container(outcome: Outcome, acknowledged: bool) -> ReportedContainer {
        let (name, message) = (ContainerName::new("app").unwrap(), "why".to_owned());
        ReportedContainer { name, notify: Notify::Webhook, ack: Ack::default(), outcome, message, acknowledged }
    }

    #[test]
    fn a_pod_that_only_a_restart_brings_up_to_date_is_not_current() {
        let restarts = ConfigView { restart_version: VersionName::new("2").ok(), ..view("shop", 3, "1") };
        let message = "shop=1; only a restart of the pod brings version 2 of config shop";
        assert_eq!(judged(&[restarts], &report(vec![config("shop", 3, "1")])), expect(false, "NotRestarted", message));
    }

    #[test]
    fn a_pod_whose_container_did_not_start_with_its_version_is_not_current() {
        use nudge_api::PartKind::ConfigMap;
        use nudge_core::injection::ReadPath;

        let container = || "app".to_owned();
        let older = StartState::Older { container: container(), path: ReadPath::Variables(ConfigMap) };
        let lacks = StartState::ObjectLacksVersion { container: container(), kind: ConfigMap };
        for (start, cause) in [
            (
                older.clone(),
                "reads the ConfigMap by variables at its start, perhaps from before version 2 of config shop; Nudge \
                 restarts its workload after the bake if that changed",
            ),
            (
                lacks,
                "reads the ConfigMap at its start, which gets version 2 of config shop after the bake; Nudge restarts \
                 its workload then",
            ),
        ] {
            let views = [ConfigView { start, ..view("shop", 3, "2") }];
            let message = format!("shop=2; container app {cause}");
            assert_eq!(judged(&views, &report(vec![config("shop", 3, "2")])), expect(false, "NotRestarted", &message));
        }
        let views = [ConfigView { start: older, ..view("shop", 3, "2") }];
        let reported = |outcome, acknowledged| ReportRequest {
            containers: vec![super::tests::container(outcome, acknowledged)],
            acknowledged,
            ..report(vec![config("shop", 3, "2")])
        };
        assert_eq!(judged(&views, &reported(Outcome::Failed, false)).1, "Failed", "a failure says more");
        assert_eq!(judged(&views, &reported(Outcome::Pending, false)).1, "Pending");
        assert_eq!(judged(&views, &reported(Outcome::Unchanged, true)).1, "Unchanged", "it proves nothing");
        let restarted = judge(&PodState::default(), &views, &reported(Outcome::Delivered, true), 1).unwrap();
        assert!(restarted.state.is_acknowledged(), "the rollout continues with its restarts");
    }

    fn report(configs: Vec<ReportedConfig>) -> ReportRequest {
        ReportRequest { configs, acknowledged: true, ..ReportRequest::default() }
    }

    fn judged(views: &[ConfigView], report: &ReportRequest) -> (bool, String, String) {
        let report = judge(&PodState::default(), views, report, 1).unwrap();
        (report.status() == "True", report.reason().to_string(), report.message())
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
    fn the_first_config_that_is_not_as_assigned_gives_the_reason() {
        let views = [view("shop", 3, "2")];
        let old = report(vec![config("shop", 2, "1")]);
        let on_its_way = "shop=1; version 2 of config shop is on its way";
        assert_eq!(judged(&views, &old), expect(false, "Resolving", on_its_way));
        assert_eq!(judged(&views, &report(Vec::new())).2, "shop=; version 2 of config shop is on its way");

        let mut failed = report(vec![config("shop", 3, "1")]);
        let reason = "TooLarge".to_owned();
        failed.configs[0].problem = Some(ReportedProblem { reason, message: "it is over 3 MiB".to_owned() });
        assert_eq!(judged(&views, &failed), expect(false, "TooLarge", "shop=1; config shop: it is over 3 MiB"));
        failed.configs[0].problem.as_mut().unwrap().reason = "not a reason".to_owned();
        assert_eq!(judged(&views, &failed).1, "Failed");
        failed.configs[0].problem.as_mut().unwrap().reason = "FromTheFuture".to_owned();
        assert_eq!(judged(&views, &failed).1, "Unknown");

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
        for outcome in Outcome::FINAL.into_iter().filter(|outcome| *outcome != Outcome::Delivered) {
            let judged = judged(&views, &with(vec![container(Outcome::Pending, false), container(outcome, false)]));
            assert_eq!(judged, expect(false, outcome.as_str(), "shop=2; subscriber app: why"));
        }
    }

    #[test]
    fn a_pod_is_unchanged_if_all_its_containers_are() {
        let views = [view("shop", 3, "2")];
        let with = |containers| ReportRequest { containers, ..report(vec![config("shop", 3, "2")]) };
        let unchanged = || container(Outcome::Unchanged, true);
        let judge = |containers| judged(&views, &with(containers));
        assert_eq!(judge(vec![unchanged(), unchanged()]), expect(true, "Unchanged", "shop=2"));
        assert_eq!(judge(vec![unchanged(), container(Outcome::Delivered, true)]).1, "Applied");
        assert_eq!(judge(vec![unchanged(), container(Outcome::NothingYet, true)]).1, "Applied");
        let watcher = PodState { has_silent_takers: true, ..PodState::default() };
        let judgement = super::judge(&watcher, &views, &with(vec![unchanged()]), 1).unwrap();
        assert_eq!(judgement.reason(), Reason::Applied, "another container watches its files");
        let mut lacking = with(vec![unchanged()]);
        let reason = "TooLarge".to_owned();
        lacking.configs[0].problem = Some(ReportedProblem { reason, message: "no".to_owned() });
        assert_eq!(judged(&views, &lacking), expect(false, "TooLarge", "shop=2; config shop: no"));
        let two = [view("shop", 3, "2"), view("keys", 1, "7")];
        let configs = vec![config("shop", 3, "2"), config("keys", 1, "7")];
        let of_two = ReportRequest { containers: vec![unchanged()], ..report(configs) };
        assert_eq!(judged(&two, &of_two).1, "Applied", "it is not known which config has not changed");
    }

    #[test]
    fn what_the_hub_can_not_give_hides_nothing_that_the_agent_reports() {
        for hub in [HubReason::Resolving, HubReason::NotFound, HubReason::NotAllowed, HubReason::Changed] {
            let lacking = |served: bool| {
                let problem = HubProblem { reason: hub, message: "the hub's".to_owned() };
                ConfigView { content: Err(Arc::new(problem)), ..view("keys", 1, if served { "7" } else { "" }) }
            };
            // The agent passes on the hub's reason.
            let passed_on = || {
                let reason = format!("{hub:?}");
                let problem = Some(ReportedProblem { reason, message: "the hub's".to_owned() });
                ReportedConfig { problem, version: None, ..config("keys", 1, "7") }
            };
            let views = [lacking(true), view("shop", 3, "2")];
            let reports = |shop: &str| report(vec![passed_on(), config("shop", 3, shop)]);
            let whole = reports("2");
            assert_eq!(judged(&views, &whole).1, format!("{hub:?}"), "there is nothing else");
            let with = |containers| ReportRequest { containers, acknowledged: false, ..reports("2") };
            for outcome in [Outcome::NoHandler, Outcome::PermissionDenied, Outcome::Failed, Outcome::NoProcess] {
                assert_eq!(judged(&views, &with(vec![container(outcome, false)])).1, outcome.as_str(), "{hub:?}");
            }
            assert_eq!(judged(&views, &with(vec![container(Outcome::Pending, false)])).1, "Pending", "{hub:?}");
            for reason in ["CheckRefused", "CheckFailed", "CantApply"] {
                let mut refused = reports("1");
                refused.configs[1].problem =
                    Some(ReportedProblem { reason: reason.to_owned(), message: "no".to_owned() });
                assert_eq!(judged(&views, &refused).1, reason, "{hub:?}");
            }
            // If nothing is served, there is nothing to acknowledge.
            let none = ReportRequest { acknowledged: false, ..report(vec![passed_on()]) };
            assert_eq!(judged(&[lacking(false)], &none).1, format!("{hub:?}"));
        }
    }

    #[test]
    fn each_config_has_the_reason_that_is_its_own() {
        let views = [view("keys", 1, "8"), view("shop", 3, "2")];
        let fails = |config: ReportedConfig, reason: &str| {
            let problem = Some(ReportedProblem { reason: reason.to_owned(), message: "no".to_owned() });
            ReportedConfig { problem, ..config }
        };
        let keys = || fails(config("keys", 1, "7"), "TooLarge");
        let one = report(vec![keys(), config("shop", 3, "2")]);
        assert_eq!(judged(&views, &one), expect(false, "TooLarge", "keys=7,shop=2 (Applied); config keys: no"));
        let with = |outcome, report: ReportRequest| ReportRequest {
            containers: vec![container(outcome, false)],
            acknowledged: false,
            ..report
        };
        let waits = with(Outcome::Pending, one);
        assert_eq!(judged(&views, &waits), expect(false, "TooLarge", "keys=7,shop=2 (Pending); config keys: no"));
        let both = report(vec![keys(), fails(config("shop", 3, "1"), "CheckRefused")]);
        let message = "keys=7,shop=1 (CheckRefused); config keys: no; config shop: no";
        assert_eq!(judged(&views, &both), expect(false, "TooLarge", message));
        // A container's failure concerns all configs except those that it already has unchanged.
        let mut deaf = with(Outcome::NoHandler, report(vec![config("keys", 1, "8"), config("shop", 3, "2")]));
        assert_eq!(judged(&views, &deaf), expect(false, "NoHandler", "keys=8,shop=2; subscriber app: why"));
        deaf.configs[1].acknowledged = true;
        assert_eq!(judged(&views, &deaf), expect(false, "NoHandler", "keys=8,shop=2 (Applied); subscriber app: why"));
    }

    #[test]
    fn a_failure_is_urgent_once() {
        let shown = |keys: ReportedConfig, shop: &str, acknowledged: bool| {
            let problem = Some(ReportedProblem { reason: "TooLarge".to_owned(), message: "no".to_owned() });
            let configs = vec![ReportedConfig { problem, ..keys }, config("shop", 3, shop)];
            let report = ReportRequest { acknowledged, ..report(configs) };
            judge(&PodState::default(), &[view("keys", 1, "8"), view("shop", 3, shop)], &report, 1).unwrap()
        };
        let first = shown(config("keys", 1, "7"), "1", true);
        assert_eq!(priority(&first, None), Priority::Urgent);
        assert_eq!(priority(&shown(config("keys", 1, "7"), "2", true), Some(&first)), Priority::Normal);
        assert_eq!(priority(&shown(config("keys", 1, "7"), "2", false), Some(&first)), Priority::Passing);
        assert_eq!(
            priority(&shown(config("keys", 1, "6"), "1", true), Some(&first)),
            Priority::Urgent,
            "another version"
        );
        assert_eq!(priority(&shown(config("keys", 1, "7"), "2", false), None), Priority::Urgent);
    }

    #[test]
    fn a_replica_that_is_behind_says_nothing() {
        assert_eq!(
            judge(&PodState::default(), &[view("shop", 3, "2")], &report(vec![config("shop", 4, "3")]), 1),
            None
        );
    }
}
