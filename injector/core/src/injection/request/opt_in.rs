//! Whether a pod opts in. Injection, restarts and repair use this rule.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use nudge_protocol::labels::INJECT;

/// What a pod says about injection: the annotation takes precedence over the label of the same name.
pub(super) fn choice<'a>(annotation: Option<&'a str>, label: Option<&'a str>) -> Option<&'a str> {
    annotation.or(label)
}

/// Whether pods with this metadata opt in.
pub fn opts_in(meta: &ObjectMeta) -> bool {
    let annotation = inject(meta.annotations.as_ref());
    choice(annotation, inject(meta.labels.as_ref())) == Some("true")
}

fn inject(map: Option<&BTreeMap<String, String>>) -> Option<&str> {
    map?.get(INJECT).map(String::as_str)
}
