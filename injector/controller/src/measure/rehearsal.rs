//! Rehearsals of analyses: whether their questions can be asked before any version is on trial. Nothing waits for a
//! rehearsal, so it costs little: it is written once, and its answers are read later each time. If it can't be written,
//! for example without the component, the config is not reconciled sooner.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nudge_api::{RolloutAnalysisSpec, RolloutAnalysisStatus, VersionedConfig};
use nudge_core::keys::ConfigKey;
use nudge_protocol::error_chain::chain;

use crate::controller::Controller;
use crate::memory::{AnalysisMemory, Rehearsal};

impl Controller {
    /// Returns the answers so far to a rehearsal, if it was written.
    pub(super) async fn rehearsal_answers(
        &self,
        key: &ConfigKey,
        question: &RolloutAnalysisSpec,
    ) -> Option<RolloutAnalysisStatus> {
        let last = self.analysis_memory(key)?;
        let before = last.object.clone().filter(|object| object.spec == *question)?;
        let (now, rehearsal) = (Instant::now(), last.rehearsal(&question.round));
        if rehearsal.as_ref().is_some_and(|rehearsal| !rehearsal.wait(now).is_zero()) {
            return before.status.clone();
        }
        let object = self.read_analysis(key, Some(before)).await;
        let answers = object.as_ref().and_then(|object| object.status.clone());
        let read = rehearsal.unwrap_or_else(|| Rehearsal::new(&question.round, now)).after_read(now);
        // An object that is gone is written again.
        let rehearsal = object.as_ref().map(|_| read);
        self.keep_analysis_memory(key, AnalysisMemory { object, rehearsal, ..last });
        answers
    }

    /// Writes a rehearsal, once. Returns when its answers are read next; `None` if it can't be written.
    pub(super) async fn rehearse(
        &self,
        key: &ConfigKey,
        config: &VersionedConfig,
        question: &RolloutAnalysisSpec,
    ) -> Option<Duration> {
        let last = self.analysis_memory(key).unwrap_or_default();
        let round = &question.round;
        let wait = last.rehearsal(round).map_or(Duration::ZERO, |rehearsal| rehearsal.wait(Instant::now()));
        if last.object.as_ref().is_some_and(|object| object.spec == *question) {
            return Some(wait.max(Rehearsal::MIN_INTERVAL));
        }
        if !wait.is_zero() {
            return None;
        }
        let written = self.write_analysis(key, config, question).await;
        let now = Instant::now();
        let (object, rehearsal, next) = match written {
            Ok(Some(object)) => (Some(Arc::new(object)), Rehearsal::new(round, now), Some(Rehearsal::MIN_INTERVAL)),
            Ok(None) => (None, Rehearsal::unwritten(round, now), None),
            Err(error) => {
                tracing::warn!(config = %key, error = chain(&error), "rehearsal of analyses not written; retrying");
                (last.object.clone(), Rehearsal::unwritten(round, now), None)
            }
        };
        self.keep_analysis_memory(key, AnalysisMemory { object, rehearsal: Some(rehearsal), ..last });
        next
    }
}
