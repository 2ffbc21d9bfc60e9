//! A pod as a rollout sees it.

use std::ops::Deref;
use std::sync::Arc;

use nudge_api::{Explanation, Reason};
use ring::digest::{SHA256, digest};

use crate::identity::Identity;
use crate::injection::Uptake;
use crate::keys::PodUid;
use crate::pods::{PodPhase, PodState, Removal, ReportState};

/// The time in seconds after a restart while a pod may still be in a loop of restarts: the kubelet waits for up to five
/// minutes between two restarts.
const CRASH_LOOP_WINDOW_SECONDS: i64 = 600;

/// The reasons why an agent does not serve its assigned version.
const REFUSAL_REASONS: [Reason; 4] = [Reason::TooLarge, Reason::CheckRefused, Reason::CantApply, Reason::Failed];

/// Returns the pod's position in the order of moving: the first 32 bits of SHA-256(identity of the config ‖ pod uid).
/// The identity is written like a uid.
pub fn pod_number(identity: Identity, pod_uid: &PodUid) -> u32 {
    let hash = digest(&SHA256, [&identity.uuid(), pod_uid.as_str()].concat().as_bytes());
    hash.as_ref().iter().take(4).fold(0, |number, &byte| number << 8 | u32::from(byte))
}

/// What the containers of a pod have done with a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledgement {
    /// Not all containers have acknowledged the version.
    Missing,
    /// All containers have acknowledged the version.
    Taken,
    /// The containers read no key that changed, so none was notified.
    Unchanged,
}

impl Acknowledgement {
    fn of(state: Option<&ReportState>) -> Self {
        match state {
            Some(ReportState::Unchanged) => Self::Unchanged,
            Some(state) if state.is_acknowledged() => Self::Taken,
            _ => Self::Missing,
        }
    }
}

/// A pod from the view of the rollout of one of its configs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The facts about the pod.
    pub pod: Arc<PodState>,
    /// The pod's position in the order of moving.
    pub number: u32,
    /// Whether the pod's node is Ready, as far as that is known.
    pub node_ready: bool,
    /// The version of the config that the pod says it serves.
    pub runs: Option<String>,
    /// What the pod's containers have done with the version of the config that it serves.
    pub acknowledgement: Acknowledgement,
    /// Whether the pod's agent has reported since the pod was created.
    pub in_contact: bool,
    /// The failure of the config that the pod reported.
    pub failure: Option<Explanation>,
    /// Whether a container was notified of the version that the pod serves, and has not shown in time that it took it.
    pub is_unverified: bool,
    /// What shows that the pod's containers have taken a version.
    pub confirmation: Confirmation,
}

/// What shows that the containers of a pod have taken a version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Confirmation {
    /// A container was notified.
    Notification,
    /// Files were swapped, which a container watches, and no container is notified.
    SwappedFiles,
    /// Something else, such as a restart, or nothing that is known.
    #[default]
    Unknown,
}

impl Confirmation {
    fn of(pod: &PodState, config: &str) -> Self {
        let mut confirmation = Self::Unknown;
        for container in pod.reads.uptakes_of(config, |_| true) {
            match container.uptake {
                Uptake::Notified(_) => return Self::Notification,
                Uptake::WatchesFiles => confirmation = Self::SwappedFiles,
                Uptake::Restart(_) | Uptake::Asks | Uptake::Itself => {}
            }
        }
        confirmation
    }
}

impl Deref for Subject {
    type Target = PodState;

    fn deref(&self) -> &PodState {
        &self.pod
    }
}

impl Subject {
    /// Returns the pod, as the config sees it; `None` for a pod that is terminating or has finished, which no longer
    /// counts.
    pub fn of(pod: Arc<PodState>, config: &str, identity: Identity, node_ready: bool) -> Option<Self> {
        if !pod.is_live() {
            return None;
        }
        let state = pod.report.as_ref().map(|report| report.state_of(config));
        Some(Self {
            number: pod_number(identity, &pod.uid),
            node_ready,
            runs: pod.runs(config).map(ToString::to_string),
            acknowledgement: Acknowledgement::of(state.as_ref()),
            in_contact: !matches!(state, None | Some(ReportState::NoContact(_))),
            failure: pod.failure(config),
            is_unverified: state.as_ref().and_then(ReportState::explanation).is_some_and(is_unverified),
            confirmation: Confirmation::of(&pod, config),
            pod,
        })
    }

    /// Returns whether the pod can take its assigned version: the pod runs, and its node and its agent are there.
    pub(in crate::rollout) fn is_reachable(&self) -> bool {
        let is_serving = self.phase == PodPhase::Running && !self.is_ending() && self.removal == Removal::None;
        is_serving && self.node_ready && self.in_contact
    }

    /// Returns whether the pod is healthy at `now` (seconds since 1970), so that harm to it counts: a pod that
    /// restarted a short time ago may be in a loop of restarts.
    pub(in crate::rollout) fn is_healthy(&self, now: i64) -> bool {
        self.is_reachable()
            && self.is_ready()
            && self.failure.is_none()
            && !self.is_of_job()
            && self.restarts.sums().last_crash.is_none_or(|crash| now - crash >= CRASH_LOOP_WINDOW_SECONDS)
    }

    /// Returns whether the pod says that it runs `version`, and its containers know.
    pub(in crate::rollout) fn has_taken(&self, version: &str) -> bool {
        self.acknowledgement != Acknowledgement::Missing && self.runs.as_deref() == Some(version)
    }

    /// Returns whether the pod runs `version`, and its health says nothing about it: its containers read no key that
    /// changed.
    pub(in crate::rollout) fn is_unaffected_by(&self, version: &str) -> bool {
        self.acknowledgement == Acknowledgement::Unchanged && self.has_taken(version)
    }

    /// Returns whether the pod serves `version`, and a container has not shown in time that it took it.
    pub(in crate::rollout) fn lacks_proof_of(&self, version: &str) -> bool {
        self.is_unverified && self.runs.as_deref() == Some(version)
    }

    /// Returns the pod's report against `version`, its assigned version. A report may concern the previous version. But
    /// a refusal concerns `version`, even while the pod still runs the previous version.
    pub(in crate::rollout) fn report_against(&self, version: &str) -> Option<&Explanation> {
        let is_about_version =
            |reason: Reason| self.runs.as_deref() == Some(version) || REFUSAL_REASONS.contains(&reason);
        self.failure.as_ref().filter(|failure| is_about_version(failure.reason))
    }
}

fn is_unverified(explanation: &Explanation) -> bool {
    explanation.reason == Reason::NotVerified
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PodCondition;

    use super::*;
    use crate::pods::Report;

    /// A pod with this condition, seen from one of its configs.
    fn seen(config: &str, reason: &str, message: &str) -> Subject {
        let condition = PodCondition {
            status: "False".to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            ..PodCondition::default()
        };
        let (uid, report) = (PodUid::new("u").unwrap(), Report::read(&condition));
        let pod = Arc::new(PodState { uid, report, ..PodState::default() });
        Subject::of(pod, config, Identity::of_uid("c"), true).unwrap()
    }

    #[test]
    fn the_failure_of_one_config_says_nothing_about_the_others() {
        let message = "keys=7,shop=2 (Applied),menu=1 (CheckRefused); config keys: it is too large; config menu: no";
        let of = |config| seen(config, "TooLarge", message);
        let shop = of("shop");
        assert!(shop.has_taken("2") && shop.failure.is_none() && shop.in_contact);
        let reported = ["keys", "menu"].map(|config| of(config).report_against("8").map(|why| why.reason));
        assert_eq!(reported, [Some(Reason::TooLarge), Some(Reason::CheckRefused)]);
        assert_eq!(of("keys").acknowledgement, Acknowledgement::Missing);
        let waits = seen("shop", "TooLarge", "keys=7,shop=2 (Pending); config keys: it is too large");
        assert!(waits.acknowledgement == Acknowledgement::Missing && waits.failure.is_none());
        let silent = seen("shop", "NotVerified", "keys=7 (Applied),shop=2; container app: it has not shown it");
        assert!(silent.acknowledgement == Acknowledgement::Missing && silent.lacks_proof_of("2"));
        assert!(silent.failure.is_none());
        assert!(!silent.lacks_proof_of("1") && !waits.lacks_proof_of("2"));
        assert!(!seen("keys", "NotVerified", "keys=7 (Applied),shop=2; app: it has not").lacks_proof_of("7"));
        // A container's failure concerns all configs.
        for config in ["keys", "shop"] {
            let deaf = seen(config, "NoHandler", "keys=7,shop=2; container app: it has none");
            assert!(deaf.acknowledgement == Acknowledgement::Missing && deaf.failure.is_some(), "{config}");
        }
    }

    #[test]
    fn a_pod_that_reads_no_changed_key_has_the_version_and_is_unaffected() {
        for (reason, config) in [("Unchanged", "shop"), ("TooLarge", "menu")] {
            let message = if reason == "Unchanged" { "shop=2" } else { "keys=7,menu=2 (Unchanged); config keys: no" };
            let condition = PodCondition {
                status: if reason == "Unchanged" { "True" } else { "False" }.to_owned(),
                reason: Some(reason.to_owned()),
                message: Some(message.to_owned()),
                ..PodCondition::default()
            };
            let (uid, report) = (PodUid::new("u").unwrap(), Report::read(&condition));
            let pod = Arc::new(PodState { uid, report, ..PodState::default() });
            let subject = Subject::of(pod, config, Identity::of_uid("c"), true).unwrap();
            assert!(subject.has_taken("2") && subject.in_contact && subject.failure.is_none(), "{reason}");
            assert!(subject.is_unaffected_by("2") && !subject.is_unaffected_by("1"), "{reason}");
        }
        let taken = seen("shop", "TooLarge", "keys=7,shop=2 (Applied); config keys: it is too large");
        assert!(taken.has_taken("2") && !taken.is_unaffected_by("2"));
    }

    #[test]
    fn the_number_is_fixed_for_all_releases() {
        // printf 0af7651c-d43b-41d5-8e2f-0123456789abb | sha256sum
        assert_eq!(
            pod_number(Identity::of_uid("0af7651c-d43b-41d5-8e2f-0123456789ab"), &PodUid::new("b").unwrap()),
            0xa453_e55a
        );
    }
}
