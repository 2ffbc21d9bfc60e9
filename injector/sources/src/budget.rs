//! The budget of all sources: the number of sources, and the memory of their pod by purpose. The parts of the memory
//! add up to the limit of the pod.

use nudge_api::{Explanation, Reason};
use nudge_cluster::turns::{Turn, Turns};

/// The memory limit of the pod, in MiB. `deploy/components/sources/sources.yaml` repeats it.
const POD_MIB: u32 = 4096;
/// The memory of the process itself, including the watches of the maximum number of sources, in MiB.
const PROCESS_MIB: u32 = 256;
/// The memory for drafts that are not sealed yet, in MiB.
const DRAFTS_MIB: u32 = 256;
/// The memory for copies of content that is validated or written, in MiB.
const COPIES_MIB: u32 = 128;
/// The number of copies of content that is validated or written: the object, the body of the request, and the bytes of
/// the body that the connection has not sent yet.
const COPIES: usize = 8;
/// The memory for running fetches and their programs, in MiB.
const FETCHES_MIB: u32 = POD_MIB - PROCESS_MIB - DRAFTS_MIB - COPIES_MIB;
/// The number of shares of the budget. A namespace gets one share.
const NAMESPACE_SHARES: u32 = 4;
/// The maximum number of sources of all namespaces.
const MAX_SOURCES: u32 = 1000;
/// The maximum number of sources of one namespace.
const MAX_NAMESPACE_SOURCES: u32 = 100;

/// The maximum memory of one fetch, in MiB: git, its program for the protocol, its program that reads the received
/// data, and the output of all three.
pub(crate) const GIT_MIB: u32 = 3 * nudge_git::PROCESS_MIB + 64;
/// The maximum memory of one pull from a registry, in MiB.
pub(crate) const OCI_MIB: u32 = nudge_oci::PULL_MIB;
/// The maximum memory of one read of Vault, in MiB: an answer both in chunks as received and in one piece, and its
/// values in both forms.
pub(crate) const VAULT_MIB: u32 = 64;

/// The maximum number of slow fetches at the same time; each namespace may have one of them.
const MAX_SLOW_FETCHES: usize = 2;

/// The memory and the places that all sources share.
pub struct Budget {
    /// The memory for fetches, in MiB.
    pub(crate) fetches: Turns,
    /// The memory for drafts that are not sealed, in KiB.
    drafts: Turns,
    /// The memory for copies of content, in KiB.
    copies: Turns,
    /// The sources that have a task.
    sources: Turns,
    /// The fetches from git that are slow.
    pub(crate) slow_fetches: Turns,
}

impl Default for Budget {
    fn default() -> Self {
        let share = |amount: u32| Turns::new(amount as usize, (amount / NAMESPACE_SHARES) as usize);
        Self {
            fetches: share(FETCHES_MIB),
            drafts: share(DRAFTS_MIB.saturating_mul(1024)),
            copies: share(COPIES_MIB.saturating_mul(1024)),
            sources: Turns::new(MAX_SOURCES as usize, MAX_NAMESPACE_SOURCES as usize),
            slow_fetches: Turns::new(MAX_SLOW_FETCHES, 1),
        }
    }
}

impl Budget {
    /// The maximum number of git fetches at the same time. The disk of the pod suffices for them.
    pub const MAX_GIT_FETCHES: usize = (FETCHES_MIB / GIT_MIB) as usize;

    /// Takes memory for a draft, or explains that there is none.
    pub(crate) fn reserve_draft(&self, namespace: &str, bytes: usize) -> Result<Turn, Explanation> {
        self.drafts.try_take(namespace, kib(bytes)).ok_or_else(|| {
            Reason::OverLimit.explained(format!(
                "content that is not sealed yet may have {} MiB in one namespace and {DRAFTS_MIB} MiB in all; Nudge \
                 waits for room: see what else waits with kubectl nudge source list",
                DRAFTS_MIB / NAMESPACE_SHARES
            ))
        })
    }

    /// Waits until there is memory for the copies of content that is validated or written, and takes it.
    pub(crate) async fn reserve_copies(&self, namespace: &str, bytes: usize) -> Turn {
        self.copies.take_many(namespace, kib(bytes.saturating_mul(COPIES))).await
    }

    /// Takes the place of one source, or explains that there is none.
    pub(crate) fn reserve_source(&self, namespace: &str) -> Result<Turn, Explanation> {
        self.sources.try_take(namespace, 1).ok_or_else(|| {
            Reason::OverLimit.explained(format!(
                "the namespace has more than {MAX_NAMESPACE_SOURCES} sources, or all namespaces have more than {MAX_SOURCES}, so Nudge does not read this \
                 one; delete some"
            ))
        })
    }
}

/// Converts bytes to KiB, rounded up.
fn kib(bytes: usize) -> u32 {
    u32::try_from(bytes / 1024).unwrap_or(u32::MAX).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_the_limit_of_the_pod() {
        let deployment = include_str!("../../../deploy/components/sources/sources.yaml");
        assert!(deployment.contains(&format!("limits: {{memory: {}Gi}}", POD_MIB / 1024)), "another limit");
        // Without the variable, memory of dropped content is not given back, and counts as the process's own.
        assert!(deployment.contains("MALLOC_MMAP_THRESHOLD_"));
        assert_eq!(PROCESS_MIB + DRAFTS_MIB + COPIES_MIB + FETCHES_MIB, POD_MIB);
        for mib in [GIT_MIB, OCI_MIB, VAULT_MIB] {
            assert!((1..=FETCHES_MIB / NAMESPACE_SHARES).contains(&mib), "{mib} MiB are more than a namespace has");
        }
    }

    #[tokio::test]
    async fn content_and_sources_are_bounded_in_their_sum() {
        let budget = Budget::default();
        let large = nudge_protocol::limits::MAX_DICTIONARY_BYTES;
        let mut kept = Vec::new();
        let mut bytes = 0;
        for namespace in 0..10 {
            let mut kept_bytes = 0;
            while let Ok(room) = budget.reserve_draft(&namespace.to_string(), large) {
                kept.push(room);
                kept_bytes += large;
            }
            assert!(kept_bytes <= (DRAFTS_MIB / NAMESPACE_SHARES) as usize * 1024 * 1024, "{kept_bytes}");
            bytes += kept_bytes;
        }
        assert!((1..=DRAFTS_MIB as usize * 1024 * 1024).contains(&bytes), "{bytes}");
        let refused = budget.reserve_draft("other", large).unwrap_err();
        assert_eq!(refused.reason, Reason::OverLimit);
        kept.truncate(1);
        assert!(budget.reserve_draft("other", large).is_ok(), "what is sealed takes nothing");

        let places: Vec<_> = (0..1500).map_while(|_| budget.reserve_source("a").ok()).collect();
        assert_eq!(places.len(), MAX_NAMESPACE_SOURCES as usize);
        let places: Vec<_> =
            (0..1500).filter_map(|number: u32| budget.reserve_source(&number.to_string()).ok()).collect();
        assert_eq!(places.len(), (MAX_SOURCES - MAX_NAMESPACE_SOURCES) as usize);
    }

    #[tokio::test]
    async fn what_works_takes_no_more_than_there_is_and_one_namespace_its_part() {
        let budget = Budget::default();
        let first = budget.fetches.take_many("a", GIT_MIB).await;
        assert!(budget.fetches.try_take("a", GIT_MIB).is_none(), "one of a namespace");
        let others: Vec<_> = ["b", "c", "d", "e", "f"]
            .iter()
            .filter_map(|namespace| budget.fetches.try_take(namespace, GIT_MIB))
            .collect();
        assert_eq!(others.len(), 3, "four of all");
        drop((first, others));
        assert!(budget.fetches.try_take("a", OCI_MIB).is_some());
        let large = nudge_protocol::limits::MAX_DICTIONARY_BYTES;
        let _copies = budget.reserve_copies("a", large).await;
        assert!(budget.copies.try_take("a", kib(large * COPIES)).is_none(), "one of a namespace");
    }
}
