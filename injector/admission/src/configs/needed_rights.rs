//! The rights that a change of a config needs because of Nudge's next acts: Nudge updates the published objects,
//! deletes objects of its versions' kinds, and reads the objects that the config names.

use std::collections::BTreeSet;

use nudge_api::{Analysis, PartKind, VersionedConfig, VersionedConfigSpec};

use crate::lookups::Right;
use crate::needed_right::NeededRight;

/// Returns the rights needed for a change that decides about the content of the published objects. If a Secret is or
/// was published, they include the right to update that Secret.
pub(crate) fn publishing_rights<'a>(
    old: Option<&VersionedConfigSpec>,
    new: &VersionedConfigSpec,
    name: &'a str,
    action: &'a str,
) -> impl Iterator<Item = NeededRight<'a>> + use<'a> {
    let has_secret = old.into_iter().chain([new]).any(|spec| spec.owns(PartKind::Secret));
    let kinds = [PartKind::ConfigMap].into_iter().chain(has_secret.then_some(PartKind::Secret));
    kinds.map(move |kind| {
        NeededRight::new(Right::Update(kind, name), action, format!("that decides what {kind} {name} holds"))
    })
}

/// Returns the rights that a change needs if it makes Nudge delete versions with parts of these kinds.
pub(crate) fn deletion_rights(kinds: BTreeSet<PartKind>, action: &str) -> impl Iterator<Item = NeededRight<'_>> {
    kinds.into_iter().map(move |kind| NeededRight::new(Right::Delete(kind), action, "that deletes its versions"))
}

/// Returns the kinds of the objects that are parts of the config's sealed versions.
pub(crate) fn part_kinds(config: &VersionedConfig) -> BTreeSet<PartKind> {
    let versions = config.status.iter().flat_map(|status| &status.versions);
    versions.flat_map(|version| version.parts.iter().map(|part| part.kind)).collect()
}

/// Returns the rights to get the Secrets that are sent with the queries of these analyses.
pub(crate) fn credential_rights(analyses: &[Analysis]) -> impl Iterator<Item = NeededRight<'_>> {
    let secrets = analyses.iter().filter_map(|analysis| analysis.prometheus.secret_ref.as_ref());
    let names: BTreeSet<&str> = secrets.map(|secret| secret.name.as_str()).collect();
    names.into_iter().map(|name| {
        let right = Right::Get(PartKind::Secret, name);
        NeededRight::new(right, "change its spec.rollout.analysis", format!("it sends what Secret {name} holds"))
    })
}

/// Returns the right to set, change or remove the annotation `nudge.dev/importing`.
pub(crate) fn import_right<'a>(name: &'a str, action: &'a str) -> NeededRight<'a> {
    NeededRight::new(Right::Import(name), action, "that decides whether Nudge acts on the config")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_published_secret_needs_its_right_from_the_beginning_to_its_end() {
        let spec = |objects: Value| serde_json::from_value::<VersionedConfigSpec>(json!({"objects": objects})).unwrap();
        let (map, both) = (spec(json!(["ConfigMap"])), spec(json!(["ConfigMap", "Secret"])));
        let (alone, none) = (spec(json!(["Secret"])), spec(json!([])));
        let secret = |old: Option<&VersionedConfigSpec>, new: &VersionedConfigSpec| {
            let needed: Vec<_> = publishing_rights(old, new, "shop", "move pods").collect();
            let of_kind = |kind| {
                NeededRight::new(
                    Right::Update(kind, "shop"),
                    "move pods",
                    format!("that decides what {kind} shop holds"),
                )
            };
            assert!(needed.contains(&of_kind(PartKind::ConfigMap)), "it is needed to move pods");
            needed.contains(&of_kind(PartKind::Secret))
        };
        assert!(secret(None, &both) && secret(None, &alone) && !secret(None, &map) && !secret(None, &none));
        assert!(secret(Some(&map), &both) && secret(Some(&both), &map) && secret(Some(&both), &both));
        assert!(!secret(Some(&map), &none));
    }
}
