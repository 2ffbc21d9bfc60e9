//! Rehearsals of analyses: whether they can be asked before there is a version on trial. Nothing waits for one, so it costs little: it is
//! written once, its answers are read later each time, and where it can't be written, as without the component, the config is looked at no
//! sooner for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nudge_api::{RolloutAnalysisSpec, RolloutAnalysisStatus, VersionedConfig};
use nudge_cluster::call::call;
use nudge_core::keys::ConfigKey;
use nudge_protocol::error_chain::chain;

use super::analysis::if_allowed;
use super::asked::{Asked, Rehearsal};
use super::controller::Controller;

impl Controller {
    /// The answers so far to a rehearsal, if it was written.
    pub(super) async fn rehearsed(
        &self,
        key: &ConfigKey,
        question: &RolloutAnalysisSpec,
    ) -> Option<RolloutAnalysisStatus> {
        let known = self.asked(key)?;
        let before = known.object.clone().filter(|object| object.spec == *question)?;
        let (now, rehearsal) = (Instant::now(), known.rehearsal(&question.round));
        if rehearsal.as_ref().is_some_and(|rehearsal| !rehearsal.rests(now).is_zero()) {
            return before.status.clone();
        }
        let api = self.analyses(key);
        let found = call(|| format!("reading RolloutAnalysis {key}"), api.get_opt(key.name.as_str())).await;
        let object = match found.or_else(|error| if_allowed(key, error)) {
            Ok(object) => object.map(Arc::new),
            Err(error) => {
                tracing::warn!(config = %key, error = chain(&error), "answers of a rehearsal not read; retrying");
                Some(before)
            }
        };
        let answers = object.as_ref().and_then(|object| object.status.clone());
        let read = rehearsal.unwrap_or_else(|| Rehearsal::asked(&question.round, now)).read(now);
        // One that is gone is written again.
        let rehearsal = object.as_ref().map(|_| read);
        self.keep_asked(key, Asked { object, rehearsal, ..known });
        answers
    }

    /// Writes a rehearsal, once. Returns when its answers are read next; `None` where it can't be written.
    pub(super) async fn rehearse(
        &self,
        key: &ConfigKey,
        config: &VersionedConfig,
        question: &RolloutAnalysisSpec,
    ) -> Option<Duration> {
        let known = self.asked(key).unwrap_or_default();
        let round = &question.round;
        let rests = known.rehearsal(round).map_or(Duration::ZERO, |rehearsal| rehearsal.rests(Instant::now()));
        if known.object.as_ref().is_some_and(|object| object.spec == *question) {
            return Some(rests.max(Rehearsal::FIRST));
        }
        if !rests.is_zero() {
            return None;
        }
        let written = self.write_question(key, config, question).await;
        let now = Instant::now();
        let (object, rehearsal, again) = match written {
            Ok(Some(object)) => (Some(Arc::new(object)), Rehearsal::asked(round, now), Some(Rehearsal::FIRST)),
            Ok(None) => (None, Rehearsal::refused(round, now), None),
            Err(error) => {
                tracing::warn!(config = %key, error = chain(&error), "rehearsal of analyses not written; retrying");
                (known.object.clone(), Rehearsal::refused(round, now), None)
            }
        };
        self.keep_asked(key, Asked { object, rehearsal: Some(rehearsal), ..known });
        again
    }
}
