//! What sources may take together of the memory of their pod, and how many of them there may be. The sum of all is the limit of the pod.

use nudge_api::{Explanation, Reason};
use nudge_cluster::turns::{Turn, Turns};

/// The memory limit of the pod, in MiB: `deploy/components/sources/sources.yaml` has it, too.
const POD_MIB: u32 = 4096;
/// Reserved for the process itself, including the watches of the largest number of sources.
const OWN_MIB: u32 = 256;
/// Reserved for content that is not sealed yet.
const KEPT_MIB: u32 = 256;
/// Reserved for reading objects.
const READS_MIB: u32 = 128;
/// What reading one object takes: its body and the text of that, in which a byte of content has six at most (RFC 8259, section 7), and the object.
const READ_MIB: u32 = 16;
/// Reserved for copies of content that is validated or written.
const COPIES_MIB: u32 = 128;
/// How many times its own size content takes then: the object, the body of the request, and what of it the connection has not sent yet.
const COPIES: usize = 8;
/// For what is fetched at the moment, and the programs that fetch.
const WORK_MIB: u32 = POD_MIB - OWN_MIB - KEPT_MIB - READS_MIB - COPIES_MIB;
/// A namespace gets one of this many parts.
const PARTS: u32 = 4;
/// The most sources of all namespaces, and of one.
const ALL_SOURCES: u32 = 1000;
const SOURCES: u32 = 100;

/// What one fetch takes at most, in MiB: git, its program for the protocol, the one that reads what comes, and what they print.
pub(crate) const GIT_MIB: u32 = 3 * nudge_git::PROCESS_MIB + 64;
/// What one pull from a registry takes at most, in MiB.
pub(crate) const OCI_MIB: u32 = nudge_oci::PULL_MIB;
/// What one read of Vault takes at most, in MiB: an answer as it comes and in one piece, and its values in both forms.
pub(crate) const VAULT_MIB: u32 = 64;

/// The most slow fetches at the same time; each namespace may have one of them.
const MAX_SLOW_FETCHES: usize = 2;

/// What there is for all sources.
pub struct Budget {
    /// Memory for fetches, in MiB.
    work: Turns,
    /// Memory for content that is not sealed, in KiB.
    kept: Turns,
    /// Memory for objects that are read, in MiB.
    reads: Turns,
    /// Memory for copies of content, in KiB.
    copies: Turns,
    /// Sources that are looked after.
    sources: Turns,
    /// Fetches from git that take long.
    pub(crate) slow: Turns,
}

impl Default for Budget {
    fn default() -> Self {
        let parted = |amount: u32| Turns::new(amount as usize, (amount / PARTS) as usize);
        Self {
            work: parted(WORK_MIB),
            kept: parted(KEPT_MIB.saturating_mul(1024)),
            reads: parted(READS_MIB),
            copies: parted(COPIES_MIB.saturating_mul(1024)),
            sources: Turns::new(ALL_SOURCES as usize, SOURCES as usize),
            slow: Turns::new(MAX_SLOW_FETCHES, 1),
        }
    }
}

impl Budget {
    /// How many git servers are fetched from at the same time. The disk of the pod is for as many.
    pub const GITS: usize = (WORK_MIB / GIT_MIB) as usize;

    /// Waits until there is so much memory for a fetch.
    pub(crate) async fn work(&self, namespace: &str, mib: u32) -> Turn {
        self.work.take_many(namespace, mib).await
    }

    /// Takes memory for content, until what is returned is dropped.
    pub(crate) fn keep(&self, namespace: &str, bytes: usize) -> Result<Turn, Explanation> {
        self.kept.try_take(namespace, kib(bytes)).ok_or_else(|| {
            Reason::OverLimit.explained(format!(
                "there is no room for the content: content that is not sealed yet may have {} MiB in one namespace and {KEPT_MIB} MiB in all; Nudge \
                 reads it again when there is room. See what else waits with kubectl nudge source list, or take less into each source",
                KEPT_MIB / PARTS
            ))
        })
    }

    /// Waits until there is memory to read an object.
    pub(crate) async fn read(&self, namespace: &str) -> Turn {
        self.reads.take_many(namespace, READ_MIB).await
    }

    /// Waits until there is memory for the copies of content that is judged or written.
    pub(crate) async fn copies(&self, namespace: &str, bytes: usize) -> Turn {
        self.copies.take_many(namespace, kib(bytes.saturating_mul(COPIES))).await
    }

    /// Takes the place of one source, until what is returned is dropped.
    pub(crate) fn source(&self, namespace: &str) -> Result<Turn, Explanation> {
        self.sources.try_take(namespace, 1).ok_or_else(|| {
            Reason::OverLimit.explained(format!(
                "the namespace has more than {SOURCES} sources, or all namespaces have more than {ALL_SOURCES}, so Nudge does not read this \
                 one; delete some"
            ))
        })
    }
}

/// Bytes in KiB, rounded up.
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
        // Without it, memory of content that was dropped is not given back, and counts as the process's own.
        assert!(deployment.contains("MALLOC_MMAP_THRESHOLD_"));
        assert_eq!(OWN_MIB + KEPT_MIB + READS_MIB + COPIES_MIB + WORK_MIB, POD_MIB);
        for mib in [GIT_MIB, OCI_MIB, VAULT_MIB] {
            assert!((1..=WORK_MIB / PARTS).contains(&mib), "{mib} MiB are more than a namespace has");
        }
    }

    #[tokio::test]
    async fn content_and_sources_are_bounded_in_their_sum() {
        let budget = Budget::default();
        let large = nudge_protocol::limits::MAX_DICTIONARY_BYTES;
        let mut kept = Vec::new();
        let mut bytes = 0;
        for namespace in 0..10 {
            let mut own = 0;
            while let Ok(room) = budget.keep(&namespace.to_string(), large) {
                kept.push(room);
                own += large;
            }
            assert!(own <= (KEPT_MIB / PARTS) as usize * 1024 * 1024, "{own}");
            bytes += own;
        }
        assert!((1..=KEPT_MIB as usize * 1024 * 1024).contains(&bytes), "{bytes}");
        let refused = budget.keep("other", large).unwrap_err();
        assert_eq!(refused.reason, Reason::OverLimit);
        kept.truncate(1);
        assert!(budget.keep("other", large).is_ok(), "what is sealed takes nothing");

        let places: Vec<_> = (0..1500).map_while(|_| budget.source("a").ok()).collect();
        assert_eq!(places.len(), SOURCES as usize);
        let places: Vec<_> = (0..1500).filter_map(|number: u32| budget.source(&number.to_string()).ok()).collect();
        assert_eq!(places.len(), (ALL_SOURCES - SOURCES) as usize);
    }

    #[tokio::test]
    async fn what_works_takes_no_more_than_there_is_and_one_namespace_its_part() {
        let budget = Budget::default();
        let first = budget.work("a", GIT_MIB).await;
        assert!(budget.work.try_take("a", GIT_MIB).is_none(), "one of a namespace");
        let others: Vec<_> =
            ["b", "c", "d", "e", "f"].iter().filter_map(|it| budget.work.try_take(it, GIT_MIB)).collect();
        assert_eq!(others.len(), 3, "four of all");
        drop((first, others));
        assert!(budget.work.try_take("a", OCI_MIB).is_some());
        let large = nudge_protocol::limits::MAX_DICTIONARY_BYTES;
        let _copies = budget.copies("a", large).await;
        let _read = budget.read("a").await;
        assert!(budget.copies.try_take("a", kib(large * COPIES)).is_none(), "one of a namespace");
        let _other = budget.reads.try_take("a", READ_MIB).unwrap();
        assert!(budget.reads.try_take("a", READ_MIB).is_none(), "two of a namespace");
    }
}
