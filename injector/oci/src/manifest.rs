//! Manifests and indexes of untrusted senders, and the choice of a platform.

use std::collections::BTreeMap;

use jiff::Timestamp;
use nudge_core::remote::is_digest;
use serde::Deserialize;

/// The media types that requests accept.
pub(crate) const ACCEPTED_TYPES: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json";

/// The media type of the manifests that Nudge pushes.
pub(crate) const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";

/// The media types of the configs of images, whose layers have whiteouts.
const IMAGE_CONFIG_TYPES: [&str; 2] =
    ["application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json"];

/// The annotation with the creation time of a manifest or an index.
const CREATED: &str = "org.opencontainers.image.created";

/// The maximum number of platforms in a message.
const MAX_SHOWN_PLATFORMS: usize = 20;

/// The description of content: its media type, digest and size.
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
    /// Returns the platform's name, such as `linux/arm/v7`, or `None` if a part of it can't be in a name.
    fn name(&self) -> Option<String> {
        let variant = self.variant.as_ref().filter(|variant| !variant.is_empty());
        let names: Vec<&str> = [&self.os, &self.architecture].into_iter().chain(variant).map(String::as_str).collect();
        let is_name = |name: &&str| {
            let mut bytes = name.bytes();
            (1..=32).contains(&name.len()) && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        };
        // A manifest for an unknown platform is an attestation about another manifest.
        (names.iter().all(is_name) && names[..2] != ["unknown", "unknown"]).then(|| names.join("/"))
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawDocument {
    schema_version: u32,
    manifests: Option<Vec<Descriptor>>,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
    annotations: BTreeMap<String, String>,
}

/// An index or a manifest.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Document {
    /// A list of the manifests for the platforms.
    Index {
        manifests: Vec<Descriptor>,
        created: Option<Timestamp>,
    },
    Manifest(Manifest),
}

/// A list of layers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) config: Descriptor,
    pub(crate) layers: Vec<Descriptor>,
    pub(crate) created: Option<Timestamp>,
}

impl Manifest {
    /// Returns whether this is the manifest of an image, not of another artifact.
    pub(crate) fn is_image(&self) -> bool {
        IMAGE_CONFIG_TYPES.contains(&self.config.media_type.as_str())
    }
}

/// Parses a document. The error names the rule that the document breaks.
pub(crate) fn parse_document(text: &[u8]) -> Result<Document, &'static str> {
    let raw: RawDocument = serde_json::from_slice(text).map_err(|_| "it is not JSON of that kind")?;
    if raw.schema_version != 2 {
        return Err("its schemaVersion is not 2");
    }
    let created = raw.annotations.get(CREATED).and_then(|time| time.parse().ok());
    let have_digests = |descriptors: &[Descriptor]| descriptors.iter().all(|entry| is_digest(&entry.digest));
    match (raw.manifests, raw.config, raw.layers) {
        (Some(manifests), None, None) if have_digests(&manifests) => Ok(Document::Index { manifests, created }),
        (None, Some(config), Some(layers)) if have_digests(&layers) && is_digest(&config.digest) => {
            Ok(Document::Manifest(Manifest { config, layers, created }))
        }
        (Some(_), None, None) | (None, Some(_), Some(_)) => Err("it names no digest of SHA-256"),
        // Programs that read the index and programs that read the manifest would get two artifacts with the same
        // digest.
        (Some(_), ..) => Err("it is an index and a manifest at once"),
        (None, ..) => Err("it has no config or no layers"),
    }
}

pub(crate) fn image_creation_time(config: &[u8]) -> Option<Timestamp> {
    #[derive(Deserialize)]
    struct Config {
        created: Option<String>,
    }
    let config: Config = serde_json::from_slice(config).ok()?;
    config.created?.parse().ok()
}

/// The reason why no manifest is chosen.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ChoiceError {
    /// The index has manifests for these platforms only.
    None(Vec<String>),
    /// The index has manifests for these platforms, and the request names none.
    Several(Vec<String>),
}

/// Returns the manifest for a platform such as `linux/amd64` or `linux/arm/v7`. Without a wanted platform, the index
/// must have exactly one usable manifest.
pub(crate) fn choose_manifest<'a>(
    manifests: &'a [Descriptor],
    wanted: Option<&str>,
) -> Result<&'a Descriptor, ChoiceError> {
    // A manifest without a platform is for all platforms; one whose platform can't be read is for none.
    let platform_name = |manifest: &Descriptor| match &manifest.platform {
        None => Some("any".to_owned()),
        Some(platform) => platform.name(),
    };
    let usable: Vec<(&Descriptor, String)> =
        manifests.iter().filter_map(|manifest| Some((manifest, platform_name(manifest)?))).collect();
    let platforms = || usable.iter().map(|(_, platform)| platform.clone()).take(MAX_SHOWN_PLATFORMS).collect();
    let Some(wanted) = wanted else {
        return match &usable[..] {
            [(manifest, _)] => Ok(*manifest),
            [] => Err(ChoiceError::None(Vec::new())),
            _ => Err(ChoiceError::Several(platforms())),
        };
    };
    // `linux/arm64` also includes that platform with a variant.
    let is_variant = |name: &str| name.strip_prefix(wanted).is_some_and(|suffix| suffix.starts_with('/'));
    let exact = usable.iter().find(|(_, platform)| platform == wanted);
    exact
        .or_else(|| only(usable.iter().filter(|(_, platform)| is_variant(platform))))
        .or_else(|| only(usable.iter().filter(|(manifest, _)| manifest.platform.is_none())))
        .map(|(manifest, _)| *manifest)
        .ok_or_else(|| ChoiceError::None(platforms()))
}

/// Returns the only item of an iterator; `None` unless there is exactly one.
fn only<T>(mut items: impl Iterator<Item = T>) -> Option<T> {
    items.next().filter(|_| items.next().is_none())
}

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
        choose_manifest(&all, wanted)
            .map(|chosen| all.iter().position(|manifest| std::ptr::eq(manifest, chosen)).unwrap())
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
        let index = parse_document(format!(r#"{{"schemaVersion": 2, "manifests": [{named}]}}"#).as_bytes());
        assert!(matches!(index, Ok(Document::Index { created: None, .. })));
        let created = r#"{"org.opencontainers.image.created": "2026-01-02T03:04:05Z"}"#;
        let text = format!(
            r#"{{"schemaVersion": 2, "config": {named}, "layers": [{named}], "annotations": {created}, "other": 1}}"#
        );
        let Ok(Document::Manifest(manifest)) = parse_document(text.as_bytes()) else { panic!("no manifest") };
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
            assert!(parse_document(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn a_message_has_names_alone(os in "\\PC{0,8}", architecture in "[a-z0-9]{0,40}", variant in proptest::option::of("\\PC{0,8}")) {
            let platform = Platform { os, architecture, variant };
            if let Some(name) = platform.name() {
                prop_assert!(name.len() <= 98 && name.bytes().all(|byte| byte.is_ascii_graphic()));
            }
        }
    }
}
