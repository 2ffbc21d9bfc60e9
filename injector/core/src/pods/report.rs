//! The report about the versions that a pod runs. The hub writes it into the pod condition `nudge.dev/ConfigCurrent`,
//! and all others read it there.

use k8s_openapi::api::core::v1::PodCondition;
use nudge_api::{Explanation, Reason};
use nudge_protocol::bounded_text::one_line;
use nudge_protocol::limits::MAX_CONFIGS;
use nudge_protocol::{ConfigName, VersionName};

/// The maximum length of a condition's message that is read, in bytes: more than the hub writes, which is a name, a
/// version and a reason for each config and 1 KiB.
const MAX_MESSAGE_BYTES: usize = MAX_CONFIGS * (253 + 63 + 50) + 2048;

/// The report about a pod: the versions that it runs, and whether they are the assigned ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The version of each config that the pod runs, in the order of merging; `None` if the pod serves no version.
    pub versions: Vec<(ConfigName, Option<VersionName>)>,
    /// The state of the pod: the first failure of all configs, if any config has failed.
    pub state: ReportState,
    /// The reasons of configs that differ from the pod's reason.
    pub reasons: Vec<(ConfigName, Reason)>,
    /// The time when the agent made the report, in seconds since 1970; `None` if there is no report.
    pub at: Option<i64>,
}

/// The state of a pod: whether it runs its assigned versions, and if not, why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportState {
    /// The pod runs its assigned versions, and its containers have acknowledged them.
    Acknowledged,
    /// The pod runs its assigned versions, and its containers read no key that changed, so none was notified.
    Unchanged,
    /// The pod does not run an assigned version yet, or takes it only by a restart.
    Pending(Explanation),
    /// The hub can't give one of the pod's configs. This says nothing about its other configs.
    Unavailable(Explanation),
    /// An assigned version failed in the pod.
    Failed(Explanation),
    /// The agent has not reported since the pod was created.
    NoContact(Explanation),
}

impl ReportState {
    /// Returns the state of a pod that does not run its assigned versions, or has not acknowledged them.
    pub fn of(explanation: Explanation) -> Self {
        match explanation.reason {
            Reason::Unchanged => Self::Unchanged,
            Reason::NoContact => Self::NoContact(explanation),
            Reason::NotFound | Reason::NotAllowed | Reason::Changed => Self::Unavailable(explanation),
            Reason::TooLarge
            | Reason::CheckRefused
            | Reason::CantApply
            | Reason::NoHandler
            | Reason::PermissionDenied
            | Reason::Failed => Self::Failed(explanation),
            _ => Self::Pending(explanation),
        }
    }

    /// Returns whether the containers have acknowledged all versions that the pod serves, even if it can't get others
    /// or does not have them yet. The hub says this only of a pod whose agent says so.
    pub fn is_acknowledged(&self) -> bool {
        match self {
            Self::Acknowledged | Self::Unchanged | Self::Unavailable(_) => true,
            Self::Pending(explanation) => matches!(explanation.reason, Reason::Resolving | Reason::NotRestarted),
            Self::Failed(_) | Self::NoContact(_) => false,
        }
    }

    /// Returns whether the pod runs its assigned versions, and its containers have acknowledged them.
    pub fn is_success(&self) -> bool {
        self.explanation().is_none()
    }

    /// Returns the reason of the state.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Unchanged => Reason::Unchanged,
            state => state.explanation().map_or(Reason::Applied, |explanation| explanation.reason),
        }
    }

    /// Returns why the state is no success.
    pub fn explanation(&self) -> Option<&Explanation> {
        match self {
            Self::Acknowledged | Self::Unchanged => None,
            Self::Pending(explanation)
            | Self::Unavailable(explanation)
            | Self::Failed(explanation)
            | Self::NoContact(explanation) => Some(explanation),
        }
    }
}

impl Report {
    /// Reads the condition; `None` if it has no reason, which the hub always writes.
    pub fn read(condition: &PodCondition) -> Option<Self> {
        let reason = condition.reason.as_deref().filter(|reason| !reason.is_empty())?;
        let text = one_line(condition.message.as_deref().unwrap_or_default(), MAX_MESSAGE_BYTES);
        let (configs, message) = parse(&text);
        let acknowledged = condition.status == "True";
        let state = match Reason::named(reason) {
            Reason::Unchanged => ReportState::Unchanged,
            _ if acknowledged => ReportState::Acknowledged,
            reason => ReportState::of(reason.explained(message)),
        };
        let reported_at = condition.last_probe_time.as_ref().map(|time| time.0.as_second());
        let reasons = configs.iter().filter_map(|config| Some((config.name.clone(), config.reason?))).collect();
        let versions = configs.into_iter().map(|config| (config.name, config.version)).collect();
        Some(Self { versions, state, reasons, at: reported_at })
    }

    /// Returns the state of the pod for one config. A failure has the message of the pod, which names all failures.
    /// Other states have no message if they differ from the pod's state.
    pub fn state_of(&self, config: &str) -> ReportState {
        let entry = self.reasons.iter().find(|(name, _)| name.as_str() == config);
        match entry {
            None => self.state.clone(),
            Some((_, Reason::Applied)) => ReportState::Acknowledged,
            Some((_, reason)) => match (ReportState::of(reason.explained("")), self.state.explanation()) {
                (ReportState::Failed(_), Some(explanation)) => ReportState::of(reason.explained(&explanation.message)),
                (state, _) => state,
            },
        }
    }

    /// Returns the status of the condition.
    pub fn status(&self) -> &'static str {
        if self.state.is_success() { "True" } else { "False" }
    }

    /// Returns the reason of the condition.
    pub fn reason(&self) -> Reason {
        self.state.reason()
    }

    /// Returns the message of the condition: the versions, such as `shop=1.0.1 (Applied),shop-keys=7` (nothing after
    /// `=` if no version is served; a reason only if it differs from the pod's), then `; ` and the explanation's
    /// message.
    pub fn message(&self) -> String {
        let version = |version: &Option<VersionName>| version.as_ref().map_or_else(String::new, ToString::to_string);
        let entry = |config: &ConfigName| self.reasons.iter().find(|(name, _)| name == config);
        let reason = |config: &ConfigName| entry(config).map_or_else(String::new, |(_, reason)| format!(" ({reason})"));
        let versions =
            self.versions.iter().map(|(config, served)| format!("{config}={}{}", version(served), reason(config)));
        let versions = versions.collect::<Vec<_>>().join(",");
        let message = self.state.explanation().map_or("", |explanation| &explanation.message);
        match (versions.is_empty(), message.is_empty()) {
            (_, true) => versions,
            (true, false) => message.to_owned(),
            (false, false) => format!("{versions}; {message}"),
        }
    }

    /// Returns whether the conditions of both reports are the same.
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.versions, &self.state, &self.reasons) == (&other.versions, &other.state, &other.reasons)
    }
}

/// The part of a message that describes one config.
struct Config {
    name: ConfigName,
    version: Option<VersionName>,
    /// The reason of the config; `None` if it equals the pod's.
    reason: Option<Reason>,
}

impl Config {
    /// Reads `shop=1.0.1 (Applied)`.
    fn parse(text: &str) -> Option<Self> {
        let (name, remainder) = text.split_once('=')?;
        let (version, reason) = match remainder.split_once(" (") {
            Some((version, reason)) => (version, Some(Reason::named(reason.strip_suffix(')')?))),
            None => (remainder, None),
        };
        let version = if version.is_empty() { None } else { Some(VersionName::new(version).ok()?) };
        Some(Self { name: ConfigName::new(name).ok()?, version, reason })
    }
}

/// Parses a message, as the inverse of [`Report::message`]. If the text does not begin with versions, all of it is the
/// explanation's message.
fn parse(message: &str) -> (Vec<Config>, &str) {
    let (list, remainder) = message.split_once("; ").unwrap_or((message, ""));
    let configs: Option<Vec<_>> = list.split(',').map(Config::parse).collect();
    configs.map_or((Vec::new(), message), |configs| (configs, remainder))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn report(versions: &[(&str, Option<&str>)], state: ReportState) -> Report {
        let named = |(config, version): &(&str, Option<&str>)| {
            (ConfigName::new(config).unwrap(), version.map(|version| VersionName::new(version).unwrap()))
        };
        Report { versions: versions.iter().map(named).collect(), state, reasons: Vec::new(), at: None }
    }

    fn written(report: &Report) -> PodCondition {
        PodCondition {
            status: report.status().to_owned(),
            reason: Some(report.reason().to_string()),
            message: Some(report.message()),
            ..PodCondition::default()
        }
    }

    #[test]
    fn the_message_has_the_versions_and_the_explanation() {
        let message = |versions: &[(&str, Option<&str>)], state| report(versions, state).message();
        let failed = || ReportState::of(Reason::TooLarge.explained("it is large"));
        assert_eq!(message(&[("shop", Some("1.0.1"))], ReportState::Acknowledged), "shop=1.0.1");
        assert_eq!(message(&[("shop", None)], failed()), "shop=; it is large");
        assert_eq!(message(&[], failed()), "it is large");
        let mut two = report(&[("shop", None), ("keys", Some("7"))], failed());
        two.reasons = vec![(ConfigName::new("keys").unwrap(), Reason::Applied)];
        assert_eq!(two.message(), "shop=,keys=7 (Applied); it is large");
        assert_eq!((two.state_of("shop"), two.state_of("keys")), (failed(), ReportState::Acknowledged));
    }

    #[test]
    fn a_message_without_versions_is_the_explanation() {
        for message in ["", "the agent has not reported; see a=b", "a=b=c", "shop", "shop=1,", "shop=1 (Applied"] {
            let (configs, rest) = parse(message);
            assert!(configs.is_empty() && rest == message, "{message}");
        }
    }

    #[test]
    fn each_reason_has_its_state() {
        use Reason::{CantApply, CheckRefused, Failed, NoHandler, PermissionDenied, TooLarge};
        use Reason::{CheckFailed, Damaged, NotRestarted, NotVerified, Pending, Resolving, Unknown};

        let state = |reason: Reason| ReportState::of(reason.explained("m"));
        for reason in [TooLarge, CheckRefused, CantApply, NoHandler, PermissionDenied, Failed] {
            assert!(matches!(state(reason), ReportState::Failed(_)), "{reason}");
        }
        for reason in [Reason::NotFound, Reason::NotAllowed, Reason::Changed] {
            assert!(matches!(state(reason), ReportState::Unavailable(_)), "{reason}");
        }
        assert!(matches!(state(Reason::NoContact), ReportState::NoContact(_)));
        for reason in [Pending, Resolving, NotRestarted, NotVerified, CheckFailed, Damaged, Unknown] {
            assert!(matches!(state(reason), ReportState::Pending(_)), "{reason}");
        }
        for reason in Reason::ALL.iter().copied() {
            let about_others =
                [Reason::Unchanged, Resolving, NotRestarted, Reason::NotFound, Reason::NotAllowed, Reason::Changed];
            assert_eq!(state(reason).is_acknowledged(), about_others.contains(&reason), "{reason}");
        }
        assert_eq!(Report::read(&PodCondition::default()), None, "the hub did not write it");
    }

    #[test]
    fn what_a_terminal_acts_on_is_not_read() {
        // The hub writes no such message, but others may write the status of pods.
        let condition = PodCondition {
            status: "False".to_owned(),
            reason: Some("Failed".to_owned()),
            message: Some(format!("shop=1; \u{1b}[2Jgone\u{202e}\n{}", "x".repeat(100_000))),
            ..PodCondition::default()
        };
        let read = Report::read(&condition).unwrap();
        let explanation = read.state.explanation().unwrap();
        assert_eq!(read.versions.len(), 1);
        assert!(explanation.message.starts_with(" [2Jgone  xx") && explanation.message.len() < MAX_MESSAGE_BYTES);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            versions in proptest::collection::vec(
                ("[a-z][a-z0-9]{0,9}", proptest::option::of("[a-z0-9][a-z0-9._-]{0,9}[a-z0-9]")), 1..5,
            ),
            at in 0..Reason::ALL.len(),
            message in "([a-z]([ a-z;=,()]{0,30}))?",
            own in 0..Reason::ALL.len(),
        ) {
            let versions: Vec<_> = versions.iter().map(|(config, of)| (config.as_str(), of.as_deref())).collect();
            prop_assume!(!versions.iter().any(|(_, version)| *version == Some("current")));
            for state in [ReportState::Acknowledged, ReportState::of(Reason::ALL[at].explained(message))] {
                let mut report = report(&versions, state);
                let own = (report.versions[0].0.clone(), Reason::ALL[own]);
                // Names may be the same.
                report.reasons = report.versions.iter().filter(|(name, _)| *name == own.0).map(|_| own.clone()).collect();
                prop_assert_eq!(Report::read(&written(&report)), Some(report));
            }
        }

        #[test]
        fn no_message_makes_the_reader_panic(message in "\\PC{0,60}") {
            let _ = parse(&message);
        }
    }
}
