//! Versions and their parts in memory.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::BoxFuture;
use nudge_api::{PartKind, PartStatus, VersionState, VersionStatus};
use nudge_core::derived_keys::ContentKey;
use nudge_core::identity::Identity;
use nudge_core::keys::ConfigKey;
use nudge_core::versions::{Contents, Seals, contents_of, part_digest};
use parking_lot::Mutex;

use super::parts::{Part, PartError, PartSource};

/// The uid of the config `shop`.
pub(super) const UID: &str = "uid-shop";
/// The name of an object that can't be read for now.
pub(crate) const LATE: &str = "late";

pub(crate) fn content_key() -> ContentKey {
    ContentKey::new(&[7; 32])
}

fn contents(pairs: &[(&str, Vec<u8>)]) -> Contents {
    let bytes = |bytes: &Vec<u8>| k8s_openapi::ByteString(bytes.clone());
    contents_of(None, Some(pairs.iter().map(|(key, value)| ((*key).to_owned(), bytes(value))).collect()))
}

pub(super) fn seals(identity: &str) -> Seals {
    Seals::new(&content_key(), &ConfigKey::parse("ns", "shop").unwrap(), Identity::of_uid(identity))
}

/// Part `number` of version 1 of the config `shop`, and the object that it was sealed from.
pub(crate) fn part(kind: PartKind, name: &str, number: usize, pairs: &[(&str, Vec<u8>)]) -> (PartStatus, Part) {
    let contents = contents(pairs);
    let digest = match kind {
        PartKind::ConfigMap => part_digest(&contents, None),
        PartKind::Secret => seals(UID).seal("1", number, &part_digest(&contents, Some(&content_key()))),
    };
    let status = PartStatus { kind, name: name.to_owned(), uid: format!("uid-{name}"), digest };
    (status.clone(), Part { uid: status.uid, contents })
}

/// Objects by name; the first `failures` reads fail.
#[derive(Default)]
pub(crate) struct StoredParts {
    pub(crate) objects: Mutex<HashMap<String, (String, Contents)>>,
    pub(crate) failures: AtomicUsize,
    pub(crate) reads: AtomicUsize,
}

impl PartSource for StoredParts {
    fn read<'a>(&'a self, _: &'a str, _: PartKind, name: &'a str) -> BoxFuture<'a, Result<Part, PartError>> {
        Box::pin(async move {
            self.reads.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            if self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
                || name == LATE
            {
                return Err(PartError::Unavailable(Arc::new(std::io::Error::other("down"))));
            }
            let objects = self.objects.lock();
            let (uid, contents) = objects.get(name).ok_or(PartError::Missing)?;
            Ok(Part { uid: uid.clone(), contents: contents.clone() })
        })
    }
}

impl StoredParts {
    /// Stores a version of one ConfigMap with one key.
    pub(crate) fn add(&self, version: &str, value: &[u8]) -> VersionStatus {
        let (status, stored) = part(PartKind::ConfigMap, &format!("shop-{version}"), 1, &[("k", value.to_vec())]);
        self.objects.lock().insert(status.name.clone(), (stored.uid, stored.contents));
        sealed(version, vec![status])
    }
}

pub(crate) fn sealed(version: &str, parts: Vec<PartStatus>) -> VersionStatus {
    let version = version.to_owned();
    VersionStatus {
        version,
        state: VersionState::Available,
        digest: String::new(),
        parts,
        keys: 1,
        bytes: 1,
        seal_time: None,
        consent: None,
    }
}
