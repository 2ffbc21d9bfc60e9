//! `kubectl nudge import --content-key`: the Secret with the key that versions are sealed with.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use nudge_core::derived_keys::{ROOT, entries};

use super::Import;
use crate::backup::export::ParsedExport;
use crate::commands::export::CONTENT_KEY_SECRET;
use crate::dry_run::DryRun;
use crate::failure::{Failure, doing};
use crate::session::{Session, creating};

/// Writes the content key of the export into its Secret, with all that follows from it, unless the Secret has it.
pub(super) async fn restore(session: &Session, export: &ParsedExport, command: &Import) -> Result<(), Failure> {
    let namespace = command.system_namespace.as_str();
    let Some(key) = &export.content_key else {
        return Err(Failure::new("the export has no content key; make the export with --content-key"));
    };
    let place = format!("Secret {CONTENT_KEY_SECRET} in namespace {namespace}");
    let secrets: Api<Secret> = Api::namespaced(session.client.clone(), namespace);
    let existing = secrets.get_opt(CONTENT_KEY_SECRET).await.map_err(doing(format!("reading {place}")))?;
    let exists = existing.is_some();
    let mut secret = existing.unwrap_or_default();
    if is_complete(&secret, key).map_err(|cause| Failure::new(format!("{place} {cause}")))? {
        return session.out.line("the content key is there already");
    }
    secret.metadata.name = Some(CONTENT_KEY_SECRET.to_owned());
    secret.immutable = Some(true);
    secret.data = Some(entries(key).map(|(entry, bytes)| (entry.to_owned(), ByteString(bytes.to_vec()))).into());
    if command.dry_run {
        return session.out.line(&format!("write: {place}"));
    }
    let params = creating(DryRun::None);
    let written = if exists {
        secrets.replace(CONTENT_KEY_SECRET, &params, &secret).await
    } else {
        secrets.create(&params, &secret).await
    };
    written.map_err(doing(format!("writing {place}")))?;
    session.out.line("the content key is restored; now install Nudge, and import without --content-key")
}

/// Returns whether the Secret has this key and all that follows from it. Fails if the Secret can't be completed.
fn is_complete(secret: &Secret, key: &[u8]) -> Result<bool, String> {
    let mut is_complete = true;
    for (entry, bytes) in entries(key) {
        let stored = secret.data.as_ref().and_then(|data| data.get(entry)).filter(|stored| !stored.0.is_empty());
        match stored {
            Some(stored) if stored.0 == *bytes => {}
            Some(_) if entry == ROOT => {
                let hint = "which versions of this cluster may be sealed with; to replace it, stop Nudge and delete the Secret";
                return Err(format!("has another key, {hint}"));
            }
            Some(_) => {
                let advice = "delete the Secret, and run the command again";
                return Err(format!("has an entry {entry} that does not follow from the key; {advice}"));
            }
            None if secret.immutable == Some(true) => {
                return Err(format!(
                    "is immutable and has no entry {entry}; delete the Secret, and run the command again"
                ));
            }
            None => is_complete = false,
        }
    }
    Ok(is_complete)
}

#[cfg(test)]
mod tests {
    use nudge_core::derived_keys::{CONTENT, KEY_BYTES, NOTES};

    use super::*;

    const KEY: [u8; KEY_BYTES] = [7; KEY_BYTES];

    /// Returns a Secret with these entries of a key.
    fn secret(key: u8, names: &[&str]) -> Secret {
        let data = entries(&[key; KEY_BYTES]).into_iter().filter(|(entry, _)| names.contains(entry));
        let data = data.map(|(entry, bytes)| (entry.to_owned(), ByteString(bytes.to_vec())));
        Secret { data: Some(data.collect()), ..Secret::default() }
    }

    #[test]
    fn a_secret_without_what_follows_from_its_key_is_completed() {
        assert_eq!(is_complete(&secret(7, &[ROOT, CONTENT, NOTES]), &KEY), Ok(true));
        for names in [&[][..], &[ROOT], &[ROOT, CONTENT], &[ROOT, NOTES]] {
            assert_eq!(is_complete(&secret(7, names), &KEY), Ok(false), "{names:?}");
        }
        let empty = [(ROOT.to_owned(), ByteString(Vec::new()))].into();
        assert_eq!(is_complete(&Secret { data: Some(empty), ..Secret::default() }, &KEY), Ok(false));
    }

    #[test]
    fn a_secret_that_can_not_be_completed_is_refused_with_the_reason() {
        let refusal = |secret: Secret| is_complete(&secret, &KEY).unwrap_err();
        assert!(refusal(secret(8, &[ROOT])).starts_with("has another key"));
        assert!(refusal(secret(8, &[NOTES])).starts_with("has an entry notes that does not follow"));
        let immutable = Secret { immutable: Some(true), ..secret(7, &[ROOT, CONTENT]) };
        assert!(refusal(immutable).starts_with("is immutable and has no entry notes"));
        let whole = Secret { immutable: Some(true), ..secret(7, &[ROOT, CONTENT, NOTES]) };
        assert_eq!(is_complete(&whole, &KEY), Ok(true));
    }
}
