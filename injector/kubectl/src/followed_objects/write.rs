//! The write of an edit. No message about a Secret repeats the API server, which may quote a value.

use kube::api::Patch;
use nudge_api::PartKind;
use nudge_core::publish::PublishedObject;
use nudge_core::versions::{Contents, object_name};

use super::text_object::patch;
use crate::dry_run::DryRun;
use crate::failure::Failure;
use crate::rollout::field_managers;
use crate::session::{Session, patching};

/// The reason why an edit was not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WriteError {
    /// Somebody has changed the object since it was read.
    Conflict,
    Failed(Failure),
}

/// Writes the new contents of the object, unless this is a dry run on the client.
pub(crate) async fn write(
    session: &Session,
    object: &PublishedObject,
    contents: &Contents,
    dry: DryRun,
) -> Result<(), WriteError> {
    if dry == DryRun::Client {
        return Ok(());
    }
    let patch = Patch::Merge(patch(object, contents));
    let written = session.parts(object.kind).patch(object.name(), &patching(dry), &patch).await;
    written.map(drop).map_err(|error| write_error(object.kind, object.name(), &error))
}

fn write_error(kind: PartKind, name: &str, error: &kube::Error) -> WriteError {
    let what = format!("changing {}", object_name(kind, name));
    let failure = match error {
        kube::Error::Api(status) if status.code == 409 => return WriteError::Conflict,
        kube::Error::Api(status) if !kind.is_quotable() => {
            let may_not = status.code == 403 && status.message.contains(" cannot ");
            let cause = if may_not {
                "you may not; ask the namespace's admin for that right"
            } else {
                "the API server refuses it; look for an admission webhook, immutable: true, or a key that its type needs"
            };
            Failure { status: status.code, ..Failure::new(format!("{what}: {cause}")) }
        }
        kube::Error::SerdeError(_) if !kind.is_quotable() => {
            Failure::new(format!("{what}: the answer of the API server can't be read"))
        }
        error => Failure::of(&what, error),
    };
    WriteError::Failed(failure)
}

/// Warns of other writers of the object, such as a GitOps tool, which will undo an edit.
pub(crate) fn warn_of_other_writers(session: &Session, object: &PublishedObject) {
    let subject = format!("the data of {}", object_name(object.kind, object.name()));
    let entries = object.metadata.managed_fields.as_deref().unwrap_or_default();
    if let Some(warning) = field_managers::warning(&subject, field_managers::DATA, entries) {
        session.out.warn(&warning);
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn no_failure_of_a_secret_quotes_the_api_server() {
        let error = |code, text: &str| kube::Error::Api(Status::failure(text, "").with_code(code).boxed());
        assert_eq!(write_error(PartKind::Secret, "shop", &error(409, "hidden")), WriteError::Conflict);
        let message = |kind, error: &kube::Error| match write_error(kind, "shop", error) {
            WriteError::Failed(failure) => failure.message,
            WriteError::Conflict => panic!("a conflict"),
        };
        for code in [400, 403, 422, 500] {
            let message = message(PartKind::Secret, &error(code, "data[pin]: Invalid value: \"hidden\""));
            assert!(message.starts_with("changing Secret shop: ") && !message.contains("hidden"), "{message}");
        }
        let parsed = kube::Error::SerdeError(serde_json::from_str::<u8>("\"hidden\"").unwrap_err());
        assert!(!message(PartKind::Secret, &parsed).contains("hidden"));
        let forbidden = error(403, "User \"jane\" cannot patch resource \"secrets\"");
        assert!(message(PartKind::Secret, &forbidden).ends_with("ask the namespace's admin for that right"));
        assert!(message(PartKind::ConfigMap, &error(422, "field is immutable")).contains("field is immutable"));
    }
}
