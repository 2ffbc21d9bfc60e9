//! The published Secret: what it should hold, why it can't, and whether somebody else has changed it. What is decided holds no value.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use nudge_api::{Explanation, Reason};
use nudge_protocol::bounded_text::clipped;
use nudge_protocol::labels;

use super::digest::{Contents, contents_of};
use super::publish::{DIGEST, MAX_BYTES};
use super::seal::Seals;
use super::secret_type::{OPAQUE, is_configuration};

/// Longest name of a field manager in a message, in bytes.
const MANAGER_BYTES: usize = 64;

/// The Secret parts of a version as one Secret. It has no `Debug`.
pub struct SecretData {
    type_: String,
    content: Contents,
}

impl SecretData {
    /// Adds the part to those before it, which have its type.
    pub fn with(before: Option<Self>, part: Secret, version: &str) -> Result<Self, Explanation> {
        let (type_, content) = (type_of(part.type_), contents_of(None, part.data));
        let mut all = before.unwrap_or_else(|| Self { type_: type_.clone(), content: Contents::new() });
        if all.type_ != type_ {
            let message = format!(
                "the Secrets of version {version} have the types {} and {type_}, so they can't be one published Secret; make a version \
                 whose Secrets have one type",
                all.type_
            );
            return Err(Reason::TypeNotAllowed.explained(message));
        }
        all.content.extend(content);
        Ok(all)
    }

    /// The type that the published Secret is to have.
    pub fn type_(&self) -> &str {
        &self.type_
    }
}

fn type_of(type_: Option<String>) -> String {
    type_.filter(|type_| !type_.is_empty()).unwrap_or_else(|| OPAQUE.to_owned())
}

/// What to do about the published Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretPublication {
    /// It holds the version.
    Published,
    /// It held this version, and somebody else has changed it since.
    Drifted(String),
    /// It can't be written.
    Refused(Explanation),
    /// It is to be created as [`published_secret`] says, or replaced where it is there.
    Write,
}

/// What the Secret is compared with.
pub struct SecretWanted<'a> {
    /// The config's name.
    pub name: &'a str,
    /// The version that it is to hold.
    pub version: &'a str,
    /// What the status says it holds.
    pub published: Option<&'a str>,
    /// The Secret parts of the version; `None` if it has none.
    pub data: Option<&'a SecretData>,
    /// The seals of the config.
    pub seals: &'a Seals,
    /// The field manager of what Nudge writes.
    pub writer: &'a str,
}

/// Decides about the Secret that was found under the config's name.
pub fn secret_publication(found: Option<&Secret>, wanted: &SecretWanted<'_>) -> SecretPublication {
    let SecretWanted { name, version, published, data, seals, .. } = *wanted;
    let refused = |reason: Reason, message: String| SecretPublication::Refused(reason.explained(message));
    if let Some(message) = found.and_then(|found| is_version(found, name)) {
        return refused(Reason::IsVersion, message);
    }
    if let Some(message) = found.and_then(|found| of_others(found, wanted)) {
        return refused(Reason::NotOurs, message);
    }
    let Some(SecretData { type_, content }) = data else {
        let message = format!("version {version} has no Secret part, so Secret {name} stays as it is");
        return refused(Reason::NoSecretPart, message);
    };
    if !is_configuration(type_) {
        let message = format!(
            "version {version} has Secrets of type {type_}, which are not published; remove Secret from spec.objects, or make a \
             version with another type"
        );
        return refused(Reason::TypeNotAllowed, message);
    }
    let size = content.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
    if size > MAX_BYTES {
        let message = format!(
            "the Secret parts of version {version} have {size} bytes, and one Secret holds {MAX_BYTES}; use an agent"
        );
        return refused(Reason::TooLarge, message);
    }
    let Some(found) = found else { return SecretPublication::Write };
    let has = type_of(found.type_.clone());
    if has != *type_ {
        let message = format!(
            "Secret {name} has type {has} and version {version} has {type_}, and a type can't be changed; delete Secret {name}: \
             Nudge creates it with that type"
        );
        return refused(Reason::OtherType, message);
    }
    let stored = contents_of(None, found.data.clone());
    let ours = label(found) == Some(version);
    if stored == *content && ours {
        return SecretPublication::Published;
    }
    // What somebody else wrote stays until the next activation.
    if published == Some(version) && stored != *content && !is_unrecorded(found, version, &stored, seals) {
        return SecretPublication::Drifted(format!(
            "Secret {name} was changed by someone else and does not hold version {version}; the next activation overwrites it: make \
             a version of the change"
        ));
    }
    if found.immutable == Some(true) {
        let message = format!("Secret {name} is immutable, so it can't hold version {version}; delete it");
        return refused(Reason::Immutable, message);
    }
    SecretPublication::Write
}

/// The Secret to write: the one that was found, which keeps its resourceVersion, or a new one. It has the keys of the version and no others.
pub fn published_secret(found: Option<Secret>, name: &str, version: &str, data: &SecretData, seals: &Seals) -> Secret {
    let mut next = found.unwrap_or_default();
    next.metadata.name = Some(name.to_owned());
    next.metadata.managed_fields = None;
    next.metadata.labels.get_or_insert_default().insert(labels::PUBLISHED.to_owned(), version.to_owned());
    let digest = seals.of_published(version, &data.content);
    next.metadata.annotations.get_or_insert_default().insert(DIGEST.to_owned(), digest);
    next.type_ = Some(data.type_.clone());
    // Wiped.
    drop(contents_of(None, next.data.take()));
    let bytes = data.content.iter().map(|(key, value)| (key.clone(), ByteString(value.to_vec())));
    next.data = Some(bytes.collect());
    next
}

/// The version that its label names.
fn label(found: &Secret) -> Option<&str> {
    found.metadata.labels.as_ref()?.get(labels::PUBLISHED).map(String::as_str)
}

fn is_version(found: &Secret, name: &str) -> Option<String> {
    let labelled = found.metadata.labels.as_ref().is_some_and(|all| all.contains_key(labels::CONFIG));
    labelled.then(|| format!("Secret {name} is itself an object of a version; give the config another name"))
}

/// Why the Secret is not Nudge's, if there is a reason. One that is not marked is never adopted.
fn of_others(found: &Secret, wanted: &SecretWanted<'_>) -> Option<String> {
    let SecretWanted { name, writer, .. } = *wanted;
    if label(found).is_none() {
        return Some(format!(
            "there is a Secret {name} without the label {}, which Nudge does not touch; delete it, or give the config another name",
            labels::PUBLISHED
        ));
    }
    if found.metadata.owner_references.as_ref().is_some_and(|owners| !owners.is_empty()) {
        return Some(format!(
            "Secret {name} belongs to its owner, who would overwrite it; give the config another name"
        ));
    }
    let written = found.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(DIGEST));
    let others =
        found.metadata.managed_fields.iter().flatten().filter(|entry| entry.manager.as_deref() != Some(writer));
    // One that applies it goes on to do so. What somebody edited once, Nudge overwrites at the next activation.
    let mut keepers =
        others.filter(|entry| has_data(entry) && (!written || entry.operation.as_deref() == Some("Apply")));
    let manager = keepers.next()?.manager.clone().unwrap_or_default();
    Some(format!(
        "the data of Secret {name} is managed by {}; remove it there and delete it, or give the config another name",
        clipped(manager, MANAGER_BYTES)
    ))
}

fn has_data(entry: &ManagedFieldsEntry) -> bool {
    entry.fields_v1.as_ref().is_some_and(|fields| fields.0.get("f:data").is_some())
}

/// Whether it holds, unchanged, another version that Nudge wrote and could not record: the status was not written any more.
fn is_unrecorded(found: &Secret, version: &str, stored: &Contents, seals: &Seals) -> bool {
    let written = found.metadata.annotations.as_ref().and_then(|all| all.get(DIGEST));
    let other = label(found).filter(|label| *label != version);
    other.is_some_and(|other| written == Some(&seals.of_published(other, stored)))
}

#[cfg(test)]
#[path = "publish_secret_tests.rs"]
mod tests;
