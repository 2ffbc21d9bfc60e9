//! The certificates of the webhooks and the hub: one role of the control plane makes and rotates them, the others read
//! them from files.

mod apply;
mod authority;
mod certificate;
mod chain;
mod files;
mod handle;
mod keeper;
mod lifetimes;
mod names;
mod plan;
mod publish;
mod resolver;
#[cfg(test)]
mod rotation_tests;
mod store;
mod stored;

pub use apply::apply;
pub use authority::{Authority, AuthorityError, Pair};
pub use certificate::{Certificate, CertificateError};
pub use chain::{Trust, TrustingPods};
pub use files::{CertificateFiles, FilesError};
pub use handle::{Certificates, CertificatesError, Rotation};
pub use keeper::{KeepError, Keeper, Stores};
pub use lifetimes::{LEEWAY, Lifetimes, LifetimesError, MAX_CROSSES};
pub use names::{ServingNameError, ServingNames};
pub use plan::{Cause, Step, plan};
pub use publish::{PUBLISH_CHECK_INTERVAL, publish_to_webhooks};
pub use store::{KubeSecret, SecretStore, StoreError, StoredSecret, WriteOutcome};
pub use stored::{Entries, Signer, Stored};
