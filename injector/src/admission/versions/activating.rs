//! A version that becomes current as soon as it is complete: whoever makes it writes the plain ConfigMap by it, without ever
//! touching `spec.current`.

use super::shape::PartId;
use crate::admission::object::VersionObject;
use crate::admission::verdict::Denial;
use crate::api::VersionedConfig;

/// Whether the version would become current by itself: it is waited for, or it is the first one.
pub fn becomes_current(id: &PartId, config: Option<&VersionedConfig>) -> bool {
    let Some(config) = config else { return true };
    let current = config.status.as_ref().and_then(|status| status.current.as_deref());
    match config.spec.current.as_deref() {
        Some(wanted) => wanted == id.version.as_str() && current != Some(wanted),
        None => current.is_none(),
    }
}

/// The refusal for somebody who may not update the plain ConfigMap.
pub fn not_permitted(user: &str, namespace: &str, object: &VersionObject, id: &PartId) -> Denial {
    Denial::forbidden(format!(
        "{}: version {} of config {} becomes current as soon as it is complete, which also writes ConfigMap {}, so user \
         {user:?} needs the right to update that ConfigMap in namespace {namespace}",
        object.title(),
        id.version,
        id.config,
        id.config
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::fixtures::part;
    use crate::admission::versions::shape;
    use crate::api::{PartKind, VersionedConfigSpec, VersionedConfigStatus};

    #[test]
    fn the_first_version_and_the_one_that_is_waited_for_become_current() {
        let id = shape(&part(PartKind::ConfigMap, "shop-1.0.1")).unwrap();
        let becomes = |wanted: Option<&str>, current: Option<&str>| {
            let spec = VersionedConfigSpec { current: wanted.map(str::to_owned), ..VersionedConfigSpec::default() };
            let mut config = VersionedConfig::new("shop", spec);
            let current = current.map(str::to_owned);
            config.status = Some(VersionedConfigStatus { current, ..VersionedConfigStatus::default() });
            becomes_current(&id, Some(&config))
        };
        assert!(becomes_current(&id, None));
        assert!(becomes(None, None) && becomes(Some("1.0.1"), Some("1.0.0")) && becomes(Some("1.0.1"), None));
        assert!(
            !becomes(None, Some("1.0.0")) && !becomes(Some("1.0.2"), None) && !becomes(Some("1.0.1"), Some("1.0.1"))
        );
    }
}
