//! The decision about a published object: it is compared with the version that it should hold. The decision contains no
//! value of either.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use nudge_api::{Explanation, PartKind, Reason};
use nudge_protocol::bounded_text::one_line;
use nudge_protocol::labels;

use super::{PublishedContent, PublishedObject};
use crate::baseline::{RESERVED, is_configuration};
use crate::versions::Seals;

/// The annotation with the digest of the content that Nudge has written.
pub(super) const DIGEST_ANNOTATION: &str = "nudge.dev/published-digest";
/// The maximum size of the keys and values of a ConfigMap or a Secret.
pub(super) const MAX_OBJECT_BYTES: usize = 1024 * 1024;
/// The maximum length of a field manager's name in messages.
pub(crate) const MAX_MANAGER_BYTES: usize = 64;

/// The decision about a published object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Publication {
    /// The object does not exist, and Nudge creates none.
    NotThere,
    /// The object holds the version, as Nudge wrote it or by chance.
    Published,
    /// The object held this version, and somebody else has changed it since.
    Drifted(String),
    /// The object has another text, which Nudge does not overwrite, or not yet.
    OtherText(Explanation),
    /// Nudge does not or may not write the object. The rollout continues without it.
    Refused(Explanation),
    /// A call failed. The rollout waits until the object is written.
    Failed(Explanation),
    /// The object must be created or replaced as [`object_to_write`] says.
    Write,
}

impl Publication {
    /// Returns whether another attempt may succeed soon.
    pub fn is_retried(&self, kind: PartKind) -> bool {
        match self {
            Self::Failed(_) => true,
            Self::Refused(explanation) => explanation.reason != kind.without_part(),
            Self::NotThere | Self::Published | Self::Drifted(_) | Self::OtherText(_) | Self::Write => false,
        }
    }

    /// Returns whether the object belongs to somebody else.
    pub fn is_of_others(&self) -> bool {
        matches!(self, Self::Refused(why) if matches!(why.reason, Reason::NotOurs | Reason::IsVersion))
    }
}

/// The use of a config's object.
#[derive(Clone, Copy)]
pub enum ObjectUse<'a> {
    /// `spec.version` is set, and the object gets the version.
    Published,
    /// Pods should get the text of the object, which Nudge only compares.
    Text,
    /// The text of the object gives way to the version.
    LeftText {
        /// The text that gives way; another one stays.
        text: &'a PublishedContent,
        /// Whether only an object with the label `nudge.dev/baseline` is written.
        needs_label: bool,
    },
}

/// The version and the content that the object is compared with.
pub struct PublishGoal<'a> {
    /// The kind of the object.
    pub kind: PartKind,
    /// The config's name.
    pub name: &'a str,
    /// The version that the object should hold.
    pub version: &'a str,
    /// Whether the object gets the version, or has a text of its own.
    pub object_use: ObjectUse<'a>,
    /// The version that the status says the object holds.
    pub published: Option<&'a str>,
    /// The content of the version's parts of this kind; `None` if the version has no such part.
    pub content: Option<&'a PublishedContent>,
    /// The seals of the config.
    pub seals: &'a Seals,
    /// The field manager of Nudge's writes.
    pub writer: &'a str,
}

/// Decides about the object that has the config's name.
pub fn decide_publication(stored: Option<&PublishedObject>, goal: &PublishGoal<'_>) -> Publication {
    let PublishGoal { kind, name, version, published, content, object_use, .. } = *goal;
    match (object_use, stored) {
        (ObjectUse::Published, None) if !kind.is_created() => return Publication::NotThere,
        (ObjectUse::Published, _) => {}
        (ObjectUse::Text | ObjectUse::LeftText { .. }, None) => return Publication::NotThere,
        (ObjectUse::Text, Some(stored)) => return compare_text(stored, goal),
        (ObjectUse::LeftText { text, needs_label }, Some(stored)) => {
            return decide_write_back(stored, goal, text, needs_label);
        }
    }
    let refusal = |reason: Reason, message: String| Publication::Refused(reason.explained(message));
    if stored.is_some_and(|stored| label(&stored.metadata, labels::CONFIG).is_some()) {
        let message = format!("{kind} {name} is itself an object of a version; give the config another name");
        return refusal(Reason::IsVersion, message);
    }
    if let Some(message) = stored.and_then(|stored| ownership_refusal(stored, goal)) {
        return refusal(Reason::NotOurs, message);
    }
    let Some(content) = content else {
        let message = format!("version {version} has no {kind} part, so {kind} {name} stays as it is");
        return refusal(kind.without_part(), message);
    };
    let secret_type = content.secret_type();
    if let Some(secret_type) = secret_type.filter(|secret_type| !is_configuration(secret_type)) {
        let message = format!(
            "version {version} has Secrets of type {secret_type}, which are not published; remove Secret from spec.objects, or make a \
             version with another type"
        );
        return refusal(Reason::TypeNotAllowed, message);
    }
    let size = content.size();
    if size > MAX_OBJECT_BYTES {
        let message = format!(
            "the {kind} parts of version {version} have {size} bytes, and a {kind} can hold at most {MAX_OBJECT_BYTES}; use an agent"
        );
        return refusal(Reason::TooLarge, message);
    }
    let Some(stored) = stored else { return Publication::Write };
    if let Some(other) = other_type(stored, goal, content) {
        let message = format!(
            "Secret {name} {other}, and a type can't be changed; delete Secret {name}: Nudge creates it with that type"
        );
        return refusal(Reason::OtherType, message);
    }
    let is_same = stored.content.values() == content.values();
    if is_same && label(&stored.metadata, labels::PUBLISHED) == Some(version) {
        return Publication::Published;
    }
    // A change by somebody else stays until the next activation.
    if published == Some(version) && !is_same && !is_unrecorded(stored, goal) {
        return Publication::Drifted(format!(
            "{kind} {name} was changed by someone else and does not hold version {version}; the next activation overwrites the change: \
             make a version of it"
        ));
    }
    immutable(stored, goal).map_or(Publication::Write, Publication::Refused)
}

/// Returns the two types if the stored Secret has another type.
fn other_type(stored: &PublishedObject, goal: &PublishGoal<'_>, content: &PublishedContent) -> Option<String> {
    let (stored_type, secret_type) = (stored.content.secret_type()?, content.secret_type()?);
    let other = || format!("has type {stored_type} and version {} has {secret_type}", goal.version);
    (stored_type != secret_type).then(other)
}

/// Returns the conflict if the stored object is immutable.
fn immutable(stored: &PublishedObject, goal: &PublishGoal<'_>) -> Option<Explanation> {
    let PublishGoal { kind, name, version, .. } = *goal;
    (stored.immutable == Some(true)).then(|| {
        let remedy = if kind.is_created() { "delete it" } else { "delete it and create it again" };
        let message = format!("{kind} {name} is immutable, so it can't hold version {version}; {remedy}");
        Reason::Immutable.explained(message)
    })
}

/// Decides whether the text of an object gives way to the version: only the text that must, and only where no owner
/// and no other manager would write it again.
fn decide_write_back(
    stored: &PublishedObject,
    goal: &PublishGoal<'_>,
    text: &PublishedContent,
    needs_label: bool,
) -> Publication {
    let has_label = label(&stored.metadata, labels::BASELINE) == Some("true");
    let is_left = stored.content.values() == text.values() && (has_label || !needs_label);
    match (compare_text(stored, goal), goal.content) {
        (Publication::OtherText(_), Some(content)) if is_left => {
            kept_text(stored, goal, content).map_or(Publication::Write, Publication::Refused)
        }
        (publication, _) => publication,
    }
}

/// Returns why the object keeps the text that should give way.
fn kept_text(stored: &PublishedObject, goal: &PublishGoal<'_>, content: &PublishedContent) -> Option<Explanation> {
    let PublishGoal { kind, name, version, .. } = *goal;
    let cause = if let Some(writer) = foreign_writer(&stored.metadata, goal) {
        Reason::NotOurs.explained(format!("because {writer}, so correct the text there"))
    } else if let Some(other) = other_type(stored, goal, content) {
        Reason::OtherType.explained(format!("because it {other}; correct the text"))
    } else if stored.immutable == Some(true) {
        Reason::Immutable.explained("because it is immutable; delete it, and create it again with a correct text")
    } else {
        return None;
    };
    let message = format!("{kind} {name} does not get the text of version {version} back, {}", cause.message);
    Some(cause.reason.explained(message))
}

/// Compares the text of an object, which Nudge does not write, with the version.
fn compare_text(stored: &PublishedObject, goal: &PublishGoal<'_>) -> Publication {
    let PublishGoal { kind, name, version, content, .. } = *goal;
    if content.is_some_and(|content| content.values() == stored.content.values()) {
        return Publication::Published;
    }
    Publication::OtherText(Reason::OtherText.explained(format!(
        "{kind} {name} has another text than version {version}, and Nudge does not write it while spec.version is absent; put the text \
         back, or set spec.version"
    )))
}

/// Returns the object to write: the stored object, which keeps its resourceVersion, or a new object. It has exactly the
/// keys of the version.
pub fn object_to_write(stored: Option<PublishedObject>, goal: &PublishGoal<'_>) -> Option<PublishedObject> {
    let content = goal.content?.clone();
    let (mut metadata, immutable) = stored.map(|stored| (stored.metadata, stored.immutable)).unwrap_or_default();
    metadata.name = Some(goal.name.to_owned());
    metadata.managed_fields = None;
    let marks = metadata.labels.get_or_insert_default();
    marks.insert(labels::FOLLOWS.to_owned(), goal.name.to_owned());
    // An object with a text stays a text.
    if matches!(goal.object_use, ObjectUse::Published) {
        marks.insert(labels::PUBLISHED.to_owned(), goal.version.to_owned());
        let mark = goal.seals.of_published(goal.kind, goal.version, content.values());
        metadata.annotations.get_or_insert_default().insert(DIGEST_ANNOTATION.to_owned(), mark);
    }
    Some(PublishedObject { kind: goal.kind, metadata, immutable, content })
}

fn label<'a>(metadata: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    metadata.labels.as_ref()?.get(name).map(String::as_str)
}

/// Returns who else writes the object: its owner, or a field manager that applies its data again and again. Nudge must
/// not write such an object. An edit by anybody else does not count.
fn foreign_writer(metadata: &ObjectMeta, goal: &PublishGoal<'_>) -> Option<String> {
    let PublishGoal { kind, name, .. } = *goal;
    let is_owned = metadata.owner_references.as_ref().is_some_and(|owners| !owners.is_empty());
    if is_owned || name == RESERVED {
        return Some(format!("{kind} {name} belongs to somebody else, who would overwrite it"));
    }
    let applier = other_managers(metadata, goal).find(|entry| entry.operation.as_deref() == Some("Apply"))?;
    Some(managed_by(applier, goal))
}

/// Returns why the object is not Nudge's, and what to do.
fn ownership_refusal(stored: &PublishedObject, goal: &PublishGoal<'_>) -> Option<String> {
    let PublishGoal { kind, name, content, .. } = *goal;
    let metadata = &stored.metadata;
    let with_remedy = |writer: String| format!("{writer}; remove its data there, or give the config another name");
    if !kind.is_created() {
        // A manager that applies the content of the version is no second writer.
        let is_same = content.is_some_and(|content| content.values() == stored.content.values());
        let is_owned = metadata.owner_references.as_ref().is_some_and(|owners| !owners.is_empty());
        let writer = foreign_writer(metadata, goal).filter(|_| is_owned || name == RESERVED || !is_same);
        return writer.map(with_remedy);
    }
    // A Secret without the label is never adopted.
    if label(metadata, labels::PUBLISHED).is_none() {
        return Some(format!(
            "{kind} {name} exists without the label {}, so Nudge does not touch it; delete it, or give the config another name",
            labels::PUBLISHED
        ));
    }
    // Without the digest, Nudge has not written the data yet.
    let has_digest =
        metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(DIGEST_ANNOTATION));
    let writer = || other_managers(metadata, goal).find(|_| !has_digest);
    let writer = foreign_writer(metadata, goal).or_else(|| writer().map(|entry| managed_by(entry, goal)));
    writer.map(with_remedy)
}

/// Returns the other managers of the object's data.
fn other_managers<'a>(
    metadata: &'a ObjectMeta,
    goal: &PublishGoal<'a>,
) -> impl Iterator<Item = &'a ManagedFieldsEntry> + use<'a> {
    let writer = goal.writer;
    let entries = metadata.managed_fields.iter().flatten();
    entries.filter(move |entry| entry.manager.as_deref() != Some(writer) && has_data(entry))
}

fn managed_by(entry: &ManagedFieldsEntry, goal: &PublishGoal<'_>) -> String {
    let manager = one_line(entry.manager.as_deref().unwrap_or_default(), MAX_MANAGER_BYTES);
    format!("the data of {} {} is managed by {manager}, which would overwrite it", goal.kind, goal.name)
}

/// Returns whether the entry is about keys of the object.
pub(crate) fn has_data(entry: &ManagedFieldsEntry) -> bool {
    let fields = ["f:data", "f:binaryData", "f:stringData"];
    entry.fields_v1.as_ref().is_some_and(|owned| fields.iter().any(|field| owned.0.get(field).is_some()))
}

/// Returns whether the object holds, unchanged, another version that Nudge wrote but could not record in the status.
fn is_unrecorded(stored: &PublishedObject, goal: &PublishGoal<'_>) -> bool {
    let metadata = &stored.metadata;
    let mark = metadata.annotations.as_ref().and_then(|annotations| annotations.get(DIGEST_ANNOTATION));
    // A tool that applies a copy of an older state has the label and the digest, too, and would apply the copy again
    // and again.
    let is_applied_by_others = metadata.managed_fields.iter().flatten().any(|entry| {
        let fields = entry.fields_v1.as_ref().and_then(|fields| fields.0.pointer("/f:metadata/f:labels"));
        let field = fields.and_then(|fields| fields.get(format!("f:{}", labels::PUBLISHED)));
        field.is_some() && entry.manager.as_deref() != Some(goal.writer)
    });
    let other_version = label(metadata, labels::PUBLISHED).filter(|version| *version != goal.version);
    let is_marked = |version| mark == Some(&goal.seals.of_published(goal.kind, version, stored.content.values()));
    other_version.is_some_and(is_marked) && !is_applied_by_others
}
