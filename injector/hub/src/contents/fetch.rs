//! One attempt to read the parts of a version, and the consequence of each failure for the pods that wait.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use nudge_api::{PartKind, PartStatus};
use nudge_core::versions::Seals;
use nudge_protocol::hub::{HubProblem, HubReason};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::content::{Content, assemble, changed_problem, problem};
use super::parts::{Part, PartError, PartSource};

/// The maximum duration of one read.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// A sealed version that is to be read.
pub(super) struct Fetch {
    pub(super) namespace: String,
    pub(super) config_uid: String,
    pub(super) version: String,
    pub(super) seals: Seals,
    pub(super) parts: Vec<PartStatus>,
}

/// The reason why there is no content.
pub(super) enum FetchError {
    /// The problem does not pass by itself.
    Problem(HubProblem),
    /// A later attempt may succeed.
    Passing(PartError),
}

impl Fetch {
    /// Waits for a slot, reads the parts, and makes the content of them.
    pub(super) async fn run(&self, source: &dyn PartSource, slots: &Semaphore) -> Result<Content, FetchError> {
        // The semaphore is never closed.
        let slot = slots.acquire().await;
        let stored = try_join_all(self.parts.iter().map(|part| self.read(source, part))).await;
        drop(slot);
        assemble(&self.version, &self.parts, stored?, &self.seals).map_err(FetchError::Problem)
    }

    async fn read(&self, source: &dyn PartSource, part: &PartStatus) -> Result<Part, FetchError> {
        let Self { namespace, version, .. } = self;
        let result = timeout(READ_TIMEOUT, source.read(namespace, part.kind, &part.name)).await;
        let timeout_error = |_| Err(PartError::Unavailable(Arc::new(io::Error::from(io::ErrorKind::TimedOut))));
        result.unwrap_or_else(timeout_error).map_err(|error| match error {
            PartError::Missing => FetchError::Problem(changed_problem(version, part, "is gone")),
            PartError::Forbidden => {
                let role = match part.kind {
                    PartKind::Secret => "nudge-secrets-hub",
                    PartKind::ConfigMap => "nudge-namespace-hub",
                };
                let PartStatus { kind, name, .. } = part;
                let message = format!(
                    "version {version}: Nudge may not read {kind} {name}; bind the ClusterRole {role} in namespace \
                     {namespace}"
                );
                FetchError::Problem(problem(HubReason::NotAllowed, message))
            }
            PartError::Unavailable(_) => FetchError::Passing(error),
        })
    }
}
