//! The frequency of harm to pods without a new version.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;
use nudge_api::BackgroundStatus;

use super::{Background, Evidence};
use crate::rollout::clock::{Millis, Now};

const HOUR: Millis = 3_600_000;
const WEEK: SignedDuration = SignedDuration::from_hours(7 * 24);

impl Evidence {
    /// Returns the status of harm without a new version, which is updated once an hour.
    pub(crate) fn background(&mut self, known: Option<BackgroundStatus>, now: Now<'_>) -> Option<BackgroundStatus> {
        let since = *self.background.since.get_or_insert(now.steady);
        if now.steady - since < HOUR || self.background.watched < 1000 {
            return known;
        }
        let fresh = Background { since: Some(now.steady), ..Background::default() };
        let Background { watched, harmed, .. } = std::mem::replace(&mut self.background, fresh);
        let began = now.time.0.checked_sub(SignedDuration::from_millis(now.steady - since));
        let fresh = BackgroundStatus { start_time: Time(began.unwrap_or(now.time.0)), pod_seconds: 0, harmed: 0 };
        let known = known.unwrap_or(fresh);
        let sum = BackgroundStatus {
            pod_seconds: known.pod_seconds.saturating_add(watched / 1000),
            harmed: known.harmed.saturating_add(harmed),
            ..known
        };
        if now.time.0.duration_since(sum.start_time.0) < WEEK {
            return Some(sum);
        }
        let half = sum.start_time.0.checked_add(WEEK / 2).unwrap_or(now.time.0);
        Some(BackgroundStatus { start_time: Time(half), pod_seconds: sum.pod_seconds / 2, harmed: sum.harmed / 2 })
    }
}
