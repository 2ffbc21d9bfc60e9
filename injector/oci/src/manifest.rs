//! Manifests and indexes: what of them is used. They come from anybody.

use std::collections::BTreeMap;

use jiff::Timestamp;
use nudge_core::remote::is_digest;
use serde::Deserialize;

/// Media types that are asked for.
pub(crate) const ACCEPTED: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json";

/// Media type of the manifests that Nudge pushes.
pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// Configs of images, whose layers have whiteouts.
const IMAGE_CONFIGS: [&str; 2] =
    ["application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json"];

/// The annotation that says when something was made.
const CREATED: &str = "org.opencontainers.image.created";

/// What content is named by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Descriptor {
    pub(crate) media_type: String,
    pub(crate) digest: String,
    pub(crate) size: u64,
    pub(crate) annotations: BTreeMap<String, String>,
    platform: Option<Platform>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Platform {
    os: String,
    architecture: String,
    variant: Option<String>,
}

impl Platform {
    /// On one line, if it is a platform and no text.
    fn shown(&self) -> Option<String> {
        let names = [Some(&self.os), Some(&self.architecture), self.variant.as_ref().filter(|it| !it.is_empty())];
        let is_name = |name: &&String| {
            (1..=32).contains(&name.len()) && name.bytes().all(|it| it.is_ascii_alphanumeric() || b"._-".contains(&it))
        };
        let names: Vec<&str> =
            names.into_iter().flatten().map(|it| is_name(&it).then_some(it.as_str())).collect::<Option<_>>()?;
        // Such are attestations, which are about another one.
        (names[..2] != ["unknown", "unknown"]).then(|| names.join("/"))
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Raw {
    schema_version: u32,
    manifests: Option<Vec<Descriptor>>,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
    annotations: BTreeMap<String, String>,
}

/// One of both.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Document {
    /// Names a manifest for each platform.
    Index { manifests: Vec<Descriptor>, created: Option<Timestamp> },
    /// Names layers.
    Manifest(Manifest),
}

/// Names layers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) config: Descriptor,
    pub(crate) layers: Vec<Descriptor>,
    pub(crate) created: Option<Timestamp>,
}

impl Manifest {
    /// Returns whether it is an image, and no other artifact.
    pub(crate) fn is_image(&self) -> bool {
        IMAGE_CONFIGS.contains(&self.config.media_type.as_str())
    }
}

/// Reads a document. The error is the rule that it breaks.
pub(crate) fn read(text: &[u8]) -> Result<Document, &'static str> {
    let raw: Raw = serde_json::from_slice(text).map_err(|_| "it is not JSON of that kind")?;
    if raw.schema_version != 2 {
        return Err("its schemaVersion is not 2");
    }
    let created = raw.annotations.get(CREATED).and_then(|it| it.parse().ok());
    let have_digests = |descriptors: &[Descriptor]| descriptors.iter().all(|it| is_digest(&it.digest));
    let document = match (raw.manifests, raw.config, raw.layers) {
        (Some(manifests), None, None) if have_digests(&manifests) => Document::Index { manifests, created },
        (None, Some(config), Some(layers)) if have_digests(&layers) && is_digest(&config.digest) => {
            Document::Manifest(Manifest { config, layers, created })
        }
        (Some(_), None, None) | (None, Some(_), Some(_)) => return Err("it names no digest of SHA-256"),
        // Programs that read one and programs that read the other would see two artifacts of one digest.
        (Some(_), ..) => return Err("it is an index and a manifest at once"),
        (None, ..) => return Err("it has no config or no layers"),
    };
    Ok(document)
}

/// When an image was made, by its config.
pub(crate) fn created_of(config: &[u8]) -> Option<Timestamp> {
    #[derive(Deserialize)]
    struct Config {
        created: Option<String>,
    }
    let config: Config = serde_json::from_slice(config).ok()?;
    config.created?.parse().ok()
}

/// Why none is chosen.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ChoiceError {
    /// There is none for it.
    None(Vec<String>),
    /// There are several, and no wish.
    Several(Vec<String>),
}

/// The manifest for a platform such as `linux/amd64` or `linux/arm/v7`. Without a wish, there must be one.
pub(crate) fn choose<'a>(manifests: &'a [Descriptor], wanted: Option<&str>) -> Result<&'a Descriptor, ChoiceError> {
    let with_platforms = || manifests.iter().map(|it| (it, it.platform.as_ref().map(Platform::shown)));
    // Without a platform it is for all; with one that can't be read it is for none.
    let usable: Vec<(&Descriptor, String)> = with_platforms()
        .filter_map(|(it, platform)| match platform {
            None => Some((it, "any".to_owned())),
            Some(platform) => Some((it, platform?)),
        })
        .collect();
    let platforms = || usable.iter().map(|(_, platform)| platform.clone()).take(MAX_SHOWN_PLATFORMS).collect();
    let Some(wanted) = wanted else {
        return match &usable[..] {
            [(one, _)] => Ok(*one),
            [] => Err(ChoiceError::None(Vec::new())),
            _ => Err(ChoiceError::Several(platforms())),
        };
    };
    let exact = usable.iter().find(|(_, platform)| platform == wanted);
    // `linux/arm64` is also that with a variant, if there is one of it.
    let of_any_variant = || {
        let mut fitting =
            usable.iter().filter(|(_, it)| it.strip_prefix(wanted).is_some_and(|rest| rest.starts_with('/')));
        fitting.next().filter(|_| fitting.next().is_none())
    };
    let mut for_all = usable.iter().filter(|(it, _)| it.platform.is_none());
    let for_all = || for_all.next().filter(|_| for_all.next().is_none());
    exact.or_else(of_any_variant).or_else(for_all).map(|(it, _)| *it).ok_or_else(|| ChoiceError::None(platforms()))
}

/// The most platforms that a message has.
const MAX_SHOWN_PLATFORMS: usize = 20;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DIGEST: &str = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";

    fn of(platforms: &[&str]) -> Vec<Descriptor> {
        let one = |platform: &&str| {
            let mut names = platform.split('/').map(str::to_owned);
            let platform = names.next().filter(|os| !os.is_empty()).map(|os| Platform {
                os,
                architecture: names.next().unwrap(),
                variant: names.next(),
            });
            Descriptor { platform, ..Descriptor::default() }
        };
        platforms.iter().map(one).collect()
    }

    fn place_of(platforms: &[&str], wanted: Option<&str>) -> Result<usize, ChoiceError> {
        let all = of(platforms);
        choose(&all, wanted).map(|found| all.iter().position(|it| std::ptr::eq(it, found)).unwrap())
    }

    #[test]
    fn the_platform_is_chosen() {
        let all = ["unknown/unknown", "linux/amd64", "linux/arm/v6", "linux/arm/v7", "linux/arm64/v8"];
        for (wanted, expected) in [("linux/amd64", 1), ("linux/arm/v7", 3), ("linux/arm64", 4), ("linux/arm64/v8", 4)] {
            assert_eq!(place_of(&all, Some(wanted)), Ok(expected), "{wanted}");
        }
        let there: Vec<String> = all[1..].iter().map(|&it| it.to_owned()).collect();
        for none in ["linux/arm", "linux", "windows/amd64", "", "linux/amd6"] {
            assert_eq!(place_of(&all, Some(none)), Err(ChoiceError::None(there.clone())), "{none}");
        }
        assert_eq!(place_of(&all, None), Err(ChoiceError::Several(there)));
        assert_eq!(place_of(&["unknown/unknown", "linux/amd64"], None), Ok(1));
        assert_eq!(place_of(&[], None), Err(ChoiceError::None(Vec::new())));
        assert_eq!(place_of(&["linux/amd64", ""], Some("linux/arm64")), Ok(1), "one without a platform is for all");
        assert_eq!(place_of(&["linux/am d\n64"], Some("linux/amd64")), Err(ChoiceError::None(Vec::new())));
    }

    #[test]
    fn a_document_is_one_of_both() {
        let named = format!(r#"{{"mediaType": "a", "digest": "{DIGEST}", "size": 2, "annotations": {{"x": "y"}}}}"#);
        let index = read(format!(r#"{{"schemaVersion": 2, "manifests": [{named}]}}"#).as_bytes());
        assert!(matches!(index, Ok(Document::Index { created: None, .. })));
        let created = r#"{"org.opencontainers.image.created": "2026-01-02T03:04:05Z"}"#;
        let text = format!(
            r#"{{"schemaVersion": 2, "config": {named}, "layers": [{named}], "annotations": {created}, "other": 1}}"#
        );
        let Ok(Document::Manifest(manifest)) = read(text.as_bytes()) else { panic!("no manifest") };
        assert_eq!(manifest.created, "2026-01-02T03:04:05Z".parse().ok());
        assert_eq!((manifest.layers[0].size, manifest.layers[0].annotations["x"].as_str()), (2, "y"));
        for bad in [
            String::new(),
            "[]".to_owned(),
            r#"{"schemaVersion": 1, "layers": [], "config": {}}"#.to_owned(),
            r#"{"schemaVersion": 2}"#.to_owned(),
            r#"{"schemaVersion": 2, "manifests": [{"digest": "sha256:../../x"}]}"#.to_owned(),
            format!(r#"{{"schemaVersion": 2, "config": {named}, "layers": [{{"digest": "md5:1"}}]}}"#),
            format!(r#"{{"schemaVersion": 2, "config": {named}, "layers": [], "manifests": []}}"#),
            format!(r#"{{"schemaVersion": 2, "config": {named}, "layers": [{{"digest": "{DIGEST}", "size": -1}}]}}"#),
        ] {
            assert!(read(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn a_message_has_names_alone(os in "\\PC{0,8}", architecture in "[a-z0-9]{0,40}", variant in proptest::option::of("\\PC{0,8}")) {
            let platform = Platform { os, architecture, variant };
            if let Some(shown) = platform.shown() {
                prop_assert!(shown.len() <= 98 && shown.bytes().all(|it| it.is_ascii_graphic()));
            }
        }
    }
}
