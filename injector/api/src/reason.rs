//! The reasons that Nudge gives: in conditions, in Events, in `status.rollout`, on pods, and in the output of `kubectl
//! nudge`.
//!
//! Reasons are part of the API: programs branch on them. Each has one row in one table, which says who sets it, whether
//! it needs somebody to act, and what it means. `deploy/TROUBLESHOOTING.md` has each of them with its remedy.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};

/// The part of Nudge that sets a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    /// The agent in the pod.
    Agent,
    /// The hub, on pods.
    Hub,
    /// The controllers, on configs, policies and approvals, and in Events.
    Controller,
    /// The sources, on a `ConfigSource`.
    Source,
}

/// The row of a reason in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReasonFacts {
    /// The part of Nudge that sets the reason.
    pub component: Component,
    /// Whether somebody must act before anything continues.
    pub needs_action: bool,
    /// The meaning of the reason, in one line.
    pub meaning: &'static str,
}

macro_rules! reasons {
    ($($reason:ident $component:ident $action:literal $meaning:literal)+) => {
        /// A reason why something is as it is, in one CamelCase word.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        pub enum Reason {
            $(#[doc = $meaning] $reason,)+
        }

        impl Reason {
            /// All reasons.
            pub const ALL: &[Self] = &[$(Self::$reason),+];

            /// Returns the name of the reason, as objects have it.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$reason => stringify!($reason),)+ }
            }

            /// Returns the row of the reason in the table.
            pub fn facts(self) -> ReasonFacts {
                match self {
                    $(Self::$reason => ReasonFacts {
                        component: Component::$component,
                        needs_action: $action,
                        meaning: $meaning,
                    },)+
                }
            }
        }
    };
}

reasons! {
    // What a pod runs: the pod condition nudge.dev/ConfigCurrent.
    Applied Hub false "The pod runs the versions that are assigned to it, and its containers have acknowledged them."
    Unchanged Hub false "The pod runs the versions that are assigned to it, and its containers read no key that changed."
    Pending Hub false "The pod has not reported its versions yet, or is not running yet."
    Resolving Hub false "The hub is reading the versions that are assigned to the pod."
    NoContact Hub false "The agent has been silent for too long."
    NotFound Hub true "An object is missing that a version or the published ConfigMap needs."
    NotAllowed Hub true "Nudge may not read or write an object; a role is not bound."
    Changed Hub true "An object of the version is gone or is not what was sealed."
    TooLarge Hub true "The version is larger than the agent or a ConfigMap can hold."
    ConfigMissing Agent true "The folder of the config is missing."
    CurrentMissing Agent true "The folder of the config does not say which version is current."
    CurrentInvalid Agent true "The current version of the folder has a name that is not allowed."
    Damaged Agent true "The stored content of the version is damaged."
    CheckRefused Agent true "A container of the pod refuses the version."
    CheckFailed Agent true "A container of the pod does not answer whether it takes the version."
    CantApply Agent true "The pod can't take the version: its files, or variables of its containers, can't be written."
    PortTaken Agent true "Another process listens on the port of the agent."
    Unreadable Agent true "The agent can't read the version."
    NoHandler Agent true "No process of the container handles the signal, which would end it."
    NoProcess Agent false "The container has no process."
    NotVerified Agent true "A container was notified, and has not shown in time that it took the version."
    PermissionDenied Agent true "The agent may not signal the processes of the container."
    // Versions: why a version can't become current.
    VersionMissing Controller true "The version that spec.version names does not exist."
    VersionIncomplete Controller true "Objects of the version are missing."
    VersionInvalid Controller true "The version breaks a rule; create it again, or create another one."
    Invalid Controller true "The version breaks a rule of spec.validation; create another version, or change the rules."
    VersionNotAuthorized Controller true "The creator of the version may not activate it; set spec.version to it."
    WaitingFor Controller false "Another config that shares pods with this one is moved first."
    Conflict Controller true "Objects have the labels of a version that they do not belong to."
    Sealed Controller false "A version is complete."
    Pruned Controller false "The history limit has deleted a version."
    Baseline Controller false "An existing ConfigMap or Secret became the first version of a config."
    BaselineFull Controller true "The namespace has as many configs as its label makes."
    StatusRefused Controller true "The API server refuses the status, or a part of it."
    Importing Controller true "The config is being restored from an export; nothing acts on it until that is done."
    // The rollout.
    Current Controller false "The version is proven, and pods run it."
    Progressing Controller false "Pods are being moved to the version."
    Step Controller false "The version is assigned to all pods at once, for a reason that somebody gave."
    Baking Controller false "All pods run the version, which is watched before it is published."
    Publishing Controller false "The version is being written to the published ConfigMap."
    Restarting Controller false "Workloads that take the version by a restart are being restarted."
    Leaving Controller false "Pods leave a version that is not wanted any more."
    RollingBack Controller false "Pods leave a version that failed."
    Paused Controller true "A workload is paused, so its pods are not replaced."
    AwaitingApproval Controller true "Too few users have approved the version."
    OutsideWindow Controller false "Versions may continue at other times only."
    OnHold Controller true "Versions may not continue until a hold ends."
    InvalidSpec Controller true "The object breaks a rule that its schema can't express; nothing new begins until it is corrected."
    HubAway Controller true "The hub is away, so nobody knows which versions pods run."
    PoliciesUnknown Controller true "The RolloutPolicies of the cluster can't be read, so no version continues."
    Released Controller false "A release ended; the message says how, and who requested it."
    Failed Controller true "The version failed; or a notification failed for another reason."
    PodNotReady Controller true "A pod was Ready, and is not since the version was assigned to it."
    ContainerRestarted Controller true "A container restarted after the version was assigned to its pod."
    ProgressDeadlineExceeded Controller true "Pods did not come to run the version within the progress deadline."
    RestartFailed Controller true "A workload did not become ready after its restart."
    NewPodsFailing Controller true "New pods with the version do not become Ready."
    Inconclusive Controller true "Pods were harmed, and the version may not be the cause."
    AnalysisFailed Controller true "A query of spec.rollout.analysis says that the version is bad."
    AnalysisInconclusive Controller true "A query of spec.rollout.analysis has no answer that says whether the version is good."
    Measurable Controller false "Each query of spec.rollout.analysis has an answer."
    NotMeasurable Controller true "A query of spec.rollout.analysis has no answer, so a rollout would be held."
    Suspect Controller true "Pods were harmed soon after the version became current."
    WeakEvidence Controller false "The pods can be bad for longer than they are watched."
    NobodyToJudge Controller true "No healthy pod can prove the version."
    NotAcknowledged Controller true "Too many pods did not acknowledge the version in time."
    // The published ConfigMap, and the published Secret.
    Published Controller false "The published ConfigMap or Secret holds the current version."
    NodesUnread Controller false "Nodes of pods that became unready can't be read."
    ObjectsUnread Controller false "Objects of versions that are not sealed can't be read."
    NotPruned Controller false "Versions that are no longer kept can't be deleted."
    NotPublished Controller true "The published ConfigMap or Secret can't be written."
    TextNotTaken Controller false "The text of the config's objects can't be made a version."
    NoText Controller true "The objects of the config have no text, or text that can't become a version."
    TextRead Controller false "The text of the config's objects is a version."
    Unsettled Controller false "The text of the config's objects is being read, or changes too often; it must stay unchanged for a while."
    OtherText Controller false "The object has other text than the current version, and Nudge does not write it."
    TextContested Controller true "Somebody writes a text that may not go out yet to an object that workloads read; it is put back."
    WrittenBack Controller false "The object got the text of the current version back, because the version of its text failed."
    UnstagedReaders Controller false "Workloads read the objects themselves, so they see a text before its version is judged."
    ReadersUnknown Controller false "The pods that read the objects themselves can't be listed."
    Drifted Controller true "Somebody else has changed the published ConfigMap or Secret."
    ChangedByOthers Controller true "Somebody else has changed the published ConfigMap or Secret."
    IsVersion Controller true "The published ConfigMap or Secret is an object of a version."
    NotOurs Controller true "The ConfigMap or Secret of the config's name belongs to somebody else."
    NoConfigMapPart Controller false "The version has no ConfigMap, so the published ConfigMap stays as it is."
    NoSecretPart Controller false "The version has no Secret, so the published Secret stays as it is."
    Immutable Controller true "The published ConfigMap or Secret is immutable."
    OtherType Controller true "The published Secret has another type than the version's, and a type can't be changed."
    TypeNotAllowed Controller true "Secrets of the version's type are not published, or it has several types."
    // Workloads that take a version by a restart.
    Restarted Controller false "Workloads that take a version by a restart have it."
    NotRestarted Controller true "Processes that take a version only by a restart run another one."
    Refused Controller true "The API server refuses the change of an object."
    Owned Controller true "Another object owns the workload and writes its template."
    Undone Controller true "Somebody has undone the restart of the workload."
    OnDelete Controller true "The workload has the update strategy OnDelete."
    Partition Controller true "The update of the workload has a partition."
    Unwell Controller true "The workload was not well before its restart."
    TemplateChanged Controller true "Somebody has changed the workload's template since its restart, and it did not come up."
    NotBack Controller true "The workload did not become ready with the old content either."
    NotEvicted Controller true "A PodDisruptionBudget kept a pod from being evicted."
    Stale Controller true "Pods that nothing restarts have the old content."
    Several Controller true "Several reasons; the message names them."
    // Pods.
    AgentMissing Controller true "A pod opts in and has no agent."
    AgentMissingEvicted Controller false "A pod was evicted because it opts in and had no agent."
    InjectionWarning Controller true "Annotations of a pod have no effect."
    // Policies.
    Valid Controller false "All of the policy can be used."
    UnknownTimeZone Controller true "A window has a time zone that this release does not know, so it is never open."
    // Approvals.
    Counted Controller false "The approval counts."
    Denied Controller true "The user denies the version, which holds it."
    NoConfig Controller true "The config that was decided about does not exist."
    NoVersion Controller true "The version that was decided about does not exist, or is not complete."
    OtherContent Controller true "The version has other content than what was decided about."
    NotSigned Controller true "Admission has not signed the groups of the user for this decision."
    NotAwaited Controller false "The version does not wait for approvals."
    NoRight Controller true "The user may not approve or deny versions of the config any more."
    RanOut Controller true "The user has approved the version too long ago."
    IsAuthor Controller true "The user has created a part of the version, set the spec of its source, or requested it."
    AuthorUnknown Controller true "Nudge does not know who created the version, or who requested it."
    NotCounted Controller true "Approvals of the version can't be counted."
    // Sources.
    Fetched Source false "The content of the source was read."
    SourceGone Source true "The secret of the source does not exist in Vault; the last version stays."
    FetchFailed Source true "The server of the source did not give its content; the last version stays."
    SourceRefused Source true "The content of the source can't become a version."
    OverLimit Source true "There are more sources, or more content in them, than Nudge handles in a namespace or in all."
    InternalError Source false "Nudge itself failed at the source, and tries again."
    Settling Source false "The content changes; it must stay unchanged for a while."
    TooSoon Source false "The last version is younger than spec.minPeriodSeconds."
    Made Source false "The version is made; somebody must make it current."
    Activated Source false "The config requests the version of the newest content."
    FieldConflict Source true "Somebody else sets spec.version of the config."
    ConfigTaken Source true "An older source makes the versions of the config."
    HistoryFull Source true "The config has almost as many versions as it can have."
    Suspended Source false "The source is suspended."
    // What is named nowhere else.
    Other Agent true "The agent can't serve the version for another reason, which the message names."
    Unknown Agent false "A reason that this release does not know."
}

impl Reason {
    /// Returns the reason of this name, or [`Reason::Unknown`], since an agent may be newer than the control plane.
    pub fn named(name: &str) -> Self {
        Self::ALL.iter().copied().find(|reason| reason.as_str() == name).unwrap_or(Self::Unknown)
    }

    /// Returns the reason with a message.
    pub fn explained(self, message: impl Into<String>) -> Explanation {
        Explanation { reason: self, message: message.into() }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Reason {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::named(&Cow::<str>::deserialize(deserializer)?))
    }
}

/// A string in the CRD, not an enumeration, so that an object with a reason of a newer release is not refused.
impl JsonSchema for Reason {
    fn schema_name() -> Cow<'static, str> {
        "Reason".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string"})
    }
}

/// A reason for programs and a message for people, which names the object and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Explanation {
    /// The reason.
    pub reason: Reason,
    /// The fault and its remedy, in one line.
    pub message: String,
}

impl fmt::Display for Explanation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.reason, self.message)
    }
}

#[cfg(test)]
mod tests {
    use nudge_protocol::status::ProblemReason;

    use super::*;

    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/TROUBLESHOOTING.md");

    #[test]
    fn every_reason_is_named_once_and_read_back() {
        for (at, &reason) in Reason::ALL.iter().enumerate() {
            assert_eq!(Reason::named(reason.as_str()), reason);
            assert!(!Reason::ALL[..at].iter().any(|other| other.as_str() == reason.as_str()));
            let json = serde_json::to_string(&reason).unwrap();
            assert_eq!(serde_json::from_str::<Reason>(&json).unwrap(), reason);
        }
        assert_eq!(serde_json::from_str::<Reason>("\"FromTheFuture\"").unwrap(), Reason::Unknown);
    }

    #[test]
    fn what_agents_report_has_a_reason() {
        // An agent says this in its own status alone.
        let is_reported = |problem: &&ProblemReason| **problem != ProblemReason::NotCompared;
        for problem in ProblemReason::ALL.iter().filter(is_reported) {
            assert_eq!(Reason::named(problem.as_str()).as_str(), problem.as_str());
        }
    }

    #[test]
    fn every_meaning_is_one_line_with_a_full_stop() {
        for &reason in Reason::ALL {
            let meaning = reason.facts().meaning;
            assert!(meaning.ends_with('.') && meaning.starts_with(char::is_uppercase), "{reason}: {meaning}");
            assert!(meaning.len() < 120, "{reason}: {meaning}");
        }
    }

    #[test]
    fn the_page_for_trouble_has_every_reason() {
        let page = std::fs::read_to_string(PAGE).unwrap();
        let missing: Vec<_> = Reason::ALL
            .iter()
            .filter(|reason| !page.contains(&format!("`{reason}`")))
            .map(|reason| reason.as_str())
            .collect();
        assert!(missing == ["Unknown"], "deploy/TROUBLESHOOTING.md lacks {missing:?}");
    }
}
