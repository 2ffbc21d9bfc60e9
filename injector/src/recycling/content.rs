//! What stands for the content of the plain ConfigMaps that a template uses. Pure: the same contents give the same text, so that a version
//! of the same content, or a way back, is the same template.

use std::collections::BTreeSet;

use ring::digest::{Context, SHA256};

use crate::api::{PartKind, Unsubscribed, VersionedConfig};
use crate::versions::hex;

/// The digest over the published contents of these ConfigMaps, as far as they belong to configs whose users are restarted.
pub fn content_digest<'a>(
    names: &BTreeSet<String>,
    config: impl Fn(&str) -> Option<&'a VersionedConfig>,
) -> Option<String> {
    let mut sum = Context::new(&SHA256);
    let mut any = false;
    for name in names {
        let Some(digests) = config(name).and_then(published) else { continue };
        any = true;
        // Names and digests hold neither of these two.
        sum.update(format!("{name}\n{}\0", digests.join("\n")).as_bytes());
    }
    any.then(|| hex(&sum.finish().as_ref()[..16]))
}

/// The sealed digests of what the plain ConfigMap of this config holds.
fn published(config: &VersionedConfig) -> Option<Vec<&str>> {
    let status = config.status.as_ref().filter(|_| config.spec.unsubscribed == Unsubscribed::Recycle)?;
    let version = status.version(status.published.as_deref()?)?;
    let parts = version.parts.iter().filter(|part| part.kind == PartKind::ConfigMap);
    Some(parts.map(|part| part.digest.as_str()).collect())
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    pub(crate) fn config(name: &str, published: &str, digest: &str) -> VersionedConfig {
        serde_json::from_value(json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": name}, "spec": {},
            "status": {"published": published, "versions": [{
                "version": published, "state": "Current", "keys": 1, "bytes": 1,
                "parts": [{"kind": "ConfigMap", "name": format!("{name}-{published}"), "uid": "u", "digest": digest}],
            }]},
        }))
        .unwrap()
    }

    fn of(configs: &[VersionedConfig], names: &[&str]) -> Option<String> {
        let names = names.iter().map(|&name| name.to_owned()).collect();
        content_digest(&names, |name| configs.iter().find(|config| config.metadata.name.as_deref() == Some(name)))
    }

    #[test]
    fn it_follows_the_content_and_not_the_version() {
        let one = of(&[config("shop", "1", "sha256:a")], &["shop", "not-ours"]);
        assert_eq!(one, of(&[config("shop", "2", "sha256:a")], &["shop"]));
        assert_ne!(one, of(&[config("shop", "1", "sha256:b")], &["shop"]));
        assert_eq!(of(&[], &["not-ours"]), None);
    }

    #[test]
    fn all_configs_of_a_template_count_and_those_that_are_ignored_do_not() {
        let (shop, mut keys) = (config("shop", "1", "sha256:a"), config("keys", "1", "sha256:b"));
        let both = of(&[shop.clone(), keys.clone()], &["keys", "shop"]);
        let alone = of(std::slice::from_ref(&shop), &["shop"]);
        assert_ne!(both, alone);
        keys.spec.unsubscribed = Unsubscribed::Ignore;
        assert_eq!(of(&[shop, keys], &["keys", "shop"]), alone);
    }
}
