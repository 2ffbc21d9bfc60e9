//! Whether the text of a config's objects gives way to that of the current version. If workloads read the objects
//! themselves, a text that failed, or that passed a gate, would stay with them.

use nudge_api::{Reason, RolloutStage, VersionedConfig, VersionedConfigStatus};

use super::direct_readers::readings;
use crate::baseline::is_of_namespace;
use crate::event_record::EventRecord;

/// The maximum number of versions that the status remembers.
const MAX_WRITTEN_BACK: usize = 8;

/// The reason why a text gives way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteBackCause {
    /// Its version failed, or breaks a rule of `spec.validation`.
    Failed,
    /// Its version may not go out yet, for this reason.
    ClosedGate(Reason),
}

/// A text that gives way to that of the current version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteBack {
    /// The version of the text.
    pub version: String,
    /// The reason why it gives way.
    pub cause: WriteBackCause,
    /// Whether only an object with the label `nudge.dev/baseline` is written: only its namespace wants the config.
    pub needs_label: bool,
}

impl WriteBack {
    /// Returns the text that gives way, if workloads read an object of the config themselves. It gives way in all
    /// objects: in one alone, it would leave a text that nobody wrote.
    pub fn of(config: &VersionedConfig) -> Option<Self> {
        let has_readers = |status: &VersionedConfigStatus| !status.internal.readers.is_empty();
        config.status.as_ref().is_some_and(has_readers).then(|| Self::pending(config)).flatten()
    }

    /// Returns the text that gives way unless nobody reads the config's objects themselves: its version failed, is
    /// invalid, or waits for approvals, a window or the end of a hold. A text that failed gives way once: a user who
    /// writes it again has the last word.
    pub fn pending(config: &VersionedConfig) -> Option<Self> {
        let status = config.status.as_ref().filter(|_| config.spec.follows_text())?;
        let version = status.internal.text.as_ref().map(|text| &text.version)?;
        let is_current = status.current_version.as_ref().is_none_or(|current| current == version);
        let cause = cause(status, version).filter(|_| !is_current)?;
        Some(Self { version: version.clone(), cause, needs_label: is_of_namespace(config) })
    }

    /// Notes in the status that the text gave way, and returns the Event about it.
    pub fn note(&self, config: &VersionedConfig) -> (VersionedConfigStatus, EventRecord) {
        let mut status = config.status.clone().unwrap_or_default();
        let version = &self.version;
        let name = config.metadata.name.as_deref().unwrap_or_default();
        let readings = readings(config, &status.internal.readers);
        let current = status.current_version.clone().unwrap_or_default();
        let event = match self.cause {
            WriteBackCause::Failed => {
                let written_back = &mut status.internal.written_back;
                written_back.retain(|other| other != version);
                written_back.push(version.clone());
                let surplus = written_back.len().saturating_sub(MAX_WRITTEN_BACK);
                written_back.drain(..surplus);
                EventRecord::warning(
                    Reason::WrittenBack,
                    format!(
                        "version {version} failed, and {readings}, so the text of version {current} was written \
                         back; correct the text, or write it again to keep it"
                    ),
                )
            }
            WriteBackCause::ClosedGate(reason) => EventRecord::warning(
                Reason::TextContested,
                format!(
                    "version {version} may not go out yet ({reason}), and {readings}, so the text of version {current} \
                     was written back; run kubectl nudge use {name} {version}"
                ),
            ),
        };
        (status, event)
    }
}

fn cause(status: &VersionedConfigStatus, version: &String) -> Option<WriteBackCause> {
    let rollout = &status.rollout;
    // A rollout that is stopped (onFailure: Hold) keeps its stage.
    let goes_back = matches!(rollout.stage, None | Some(RolloutStage::RollingBack));
    let has_failed = rollout.failure.as_ref().is_some_and(|failure| failure.version == *version);
    if has_failed || status.invalid.iter().any(|invalid| invalid.version == *version) {
        let is_due = goes_back && !status.internal.written_back.contains(version);
        return is_due.then_some(WriteBackCause::Failed);
    }
    let reason = rollout.gate.as_ref().map(|gate| gate.reason)?;
    let is_gate = matches!(reason, Reason::AwaitingApproval | Reason::OutsideWindow | Reason::OnHold);
    // What has begun to go out stays.
    (is_gate && rollout.stage.is_none()).then_some(WriteBackCause::ClosedGate(reason))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The current version is 1, the text is version 2, and a Deployment reads it itself.
    fn config(rollout: &Value, change: impl Fn(&mut Value)) -> VersionedConfig {
        let mut config = json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "web"},
            "spec": {"objects": ["ConfigMap"]},
            "status": {"currentVersion": "1", "rollout": rollout, "internal": {
                "text": {"version": "2", "settleTime": "2026-01-01T00:00:00Z"},
                "readers": [{"kind": "ConfigMap", "total": 1, "workloads": ["Deployment/api"]}]}},
        });
        change(&mut config);
        serde_json::from_value(config).unwrap()
    }

    fn failed(stage: &Value) -> Value {
        json!({"stage": stage, "failure": {"version": "2", "reason": "RestartFailed", "message": "m"}})
    }

    fn cause(config: &VersionedConfig) -> Option<WriteBackCause> {
        WriteBack::of(config).map(|back| back.cause)
    }

    #[test]
    fn a_text_that_failed_gives_way_once_where_somebody_reads_it() {
        let rolling_back = failed(&json!("RollingBack"));
        let mut once = config(&rolling_back, |_| ());
        assert_eq!(cause(&once), Some(WriteBackCause::Failed));
        assert_eq!(cause(&config(&failed(&Value::Null), |_| ())), Some(WriteBackCause::Failed), "it has gone back");
        assert_eq!(cause(&config(&failed(&json!("Restarting")), |_| ())), None, "the rollout is stopped");
        let back = WriteBack::of(&once).unwrap();
        let (status, event) = back.note(&once);
        assert_eq!((event.explanation.reason, event.warning), (Reason::WrittenBack, true));
        assert!(event.explanation.message.starts_with("version 2 failed, and ConfigMap web is read directly by"));
        once.status = Some(status);
        assert_eq!(cause(&once), None, "who writes it again has the last word");
        for change in [
            |config: &mut Value| config["spec"]["version"] = json!("2"),
            |config: &mut Value| config["status"]["internal"]["readers"] = json!([]),
            |config: &mut Value| config["status"]["internal"]["text"]["version"] = json!("1"),
            |config: &mut Value| config["status"]["internal"]["text"]["version"] = json!("3"),
            |config: &mut Value| config["status"]["currentVersion"] = Value::Null,
        ] {
            assert_eq!(cause(&config(&rolling_back, change)), None);
        }
    }

    #[test]
    fn a_text_that_is_invalid_gives_way_as_one_that_failed_does() {
        let invalid = |version: &str| {
            let record = json!({"version": version, "reason": "Invalid", "message": "m", "rules": "r", "content": "c"});
            move |config: &mut Value| config["status"]["invalid"] = json!([record])
        };
        let mut once = config(&json!({}), invalid("2"));
        let back = WriteBack::of(&once).unwrap();
        assert_eq!(back.cause, WriteBackCause::Failed);
        once.status = Some(back.note(&once).0);
        assert_eq!(cause(&once), None, "who writes it again has the last word");
        assert_eq!(cause(&config(&json!({}), invalid("3"))), None);
        assert_eq!(cause(&config(&json!({"stage": "Moving"}), invalid("2"))), None, "another version goes out");
    }

    #[test]
    fn a_text_that_passed_a_gate_gives_way_unless_it_goes_out() {
        for (reason, stage, expected) in [
            (Reason::AwaitingApproval, Value::Null, true),
            (Reason::OutsideWindow, Value::Null, true),
            (Reason::OnHold, Value::Null, true),
            (Reason::OnHold, json!("Moving"), false),
            (Reason::Unsettled, Value::Null, false),
            (Reason::PoliciesUnknown, Value::Null, false),
        ] {
            let rollout = json!({"stage": stage, "gate": {"reason": reason}});
            let config = config(&rollout, |_| ());
            assert_eq!(cause(&config), expected.then_some(WriteBackCause::ClosedGate(reason)), "{reason} {stage}");
            let Some(back) = WriteBack::of(&config) else { continue };
            let (status, event) = back.note(&config);
            assert_eq!(event.explanation.reason, Reason::TextContested);
            assert!(event.explanation.message.ends_with("kubectl nudge use web 2"), "{}", event.explanation.message);
            assert!(status.internal.written_back.is_empty(), "it is put back as often as it passes");
        }
    }

    #[test]
    fn a_bounded_number_of_versions_is_remembered() {
        let mut config = config(&failed(&Value::Null), |_| ());
        for number in 0..20 {
            let (version, cause) = (format!("{number}"), WriteBackCause::Failed);
            let back = WriteBack { version, cause, needs_label: false };
            config.status = Some(back.note(&config).0);
        }
        let written_back = config.status.unwrap().internal.written_back;
        assert_eq!((written_back.len(), written_back[7].as_str()), (MAX_WRITTEN_BACK, "19"));
    }
}
