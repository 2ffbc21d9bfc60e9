//! The faults of a `VersionedConfig` beyond its schema.
//!
//! No version begins while the spec has faults, but running versions are judged, and rolled back if they are bad. The
//! rules of `spec.validation` are not checked here, because that takes ConfigMaps and time; they hold new versions
//! before they are sealed: see [`Judging`](crate::versions::Judging).

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;
use nudge_api::{Explanation, Override, RolloutSpec, Step, StepSelector, VersionedConfigSpec};
use nudge_protocol::{ConfigName, VersionName, labels};

use crate::analysis::analysis_faults;
use crate::faults::{invalid, no_label_key};
use crate::governance::window_faults;

/// The maximum length of a label's value.
const MAX_LABEL_BYTES: usize = 63;

/// Returns all faults of a config of this name. The name is empty if the API server will generate it.
pub fn config_faults(name: &str, spec: &VersionedConfigSpec, now: Timestamp) -> Vec<Explanation> {
    let RolloutSpec { steps, overridden, windows, analysis, .. } = &spec.rollout;
    let name_fault = Some(name).filter(|name| !name.is_empty()).and_then(|name| name_fault("metadata.name", name));
    let mut faults: Vec<Explanation> = name_fault.into_iter().collect();
    faults.extend(spec.version.as_deref().and_then(|version| version_fault("spec.version", version)));
    faults.extend(overridden.iter().flat_map(|overridden| override_faults(overridden, now)));
    faults.extend(step_faults(steps));
    faults.extend(window_faults("spec.rollout.windows", windows));
    faults.extend(analysis_faults("spec.rollout.analysis", analysis));
    faults
}

/// Returns the fault of a config's name in this field. The name must fit into a label of its versions.
pub(crate) fn name_fault(field: &str, name: &str) -> Option<Explanation> {
    if let Err(error) = ConfigName::new(name) {
        return Some(invalid(field, format!("{error}; choose another one")));
    }
    (name.len() > MAX_LABEL_BYTES).then(|| {
        let label = labels::CONFIG;
        let cause =
            format!("versions have it in the label {label}, where at most {MAX_LABEL_BYTES} characters are allowed");
        invalid(field, format!("{cause}; give it a shorter name"))
    })
}

/// Returns the fault of a version's name in this field.
fn version_fault(field: &str, version: &str) -> Option<Explanation> {
    VersionName::new(version).err().map(|error| invalid(field, error))
}

fn override_faults(overridden: &Override, now: Timestamp) -> impl Iterator<Item = Explanation> {
    const FIELD: &str = "spec.rollout.override";
    let too_late = overridden.ends_too_late(now).then(|| {
        let end_time = overridden.until_time.0;
        let hours = Override::MAX_REMAINING_TIME.as_hours();
        invalid(
            FIELD,
            format!("its untilTime is {end_time}, and it may be at most {hours} hours ahead; set an earlier time"),
        )
    });
    version_fault(FIELD, &overridden.version).into_iter().chain(too_late)
}

fn step_faults(steps: &[Step]) -> Vec<Explanation> {
    let fault = |cause: String| invalid("spec.rollout.steps", cause);
    let mut names = BTreeSet::new();
    let mut duplicates = BTreeSet::new();
    duplicates.extend(steps.iter().filter_map(|step| step.name.as_ref()).filter(|name| !names.insert(*name)));
    let mut faults: Vec<Explanation> =
        duplicates.into_iter().map(|name| fault(format!("two of them have the name {name}; rename one"))).collect();
    let selectors: BTreeSet<_> = steps.iter().filter_map(|step| Some(&step.selector.as_ref()?.match_labels)).collect();
    if selectors.len() > StepSelector::MAX_SELECTORS {
        let count = selectors.len();
        let max = StepSelector::MAX_SELECTORS;
        faults.push(fault(format!("they have {count} different selectors, and at most {max} are allowed; use fewer")));
    }
    let keys: BTreeSet<&String> = selectors.into_iter().flat_map(|labels| labels.keys()).collect();
    let invalid_keys = keys.into_iter().filter_map(|key| no_label_key(key));
    faults.extend(
        invalid_keys.map(|key| fault(format!("no pod can have a label with the key {key}; correct the selector"))),
    );
    faults
}
