//! Certificates of the webhooks and the hub: made and rotated by the replicas themselves, or read from files.

mod apply;
mod authority;
mod certificate;
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
pub use files::{CertificateFiles, FilesError};
pub use handle::{Certificates, CertificatesError, Rotation};
pub use keeper::{KeepError, Keeper};
pub use lifetimes::{Lifetimes, LifetimesError};
pub use names::{ServingNameError, ServingNames};
pub use plan::{Cause, Step, plan};
pub use publish::{HUB_CA, HUB_CA_KEY, PublishTimes, publish_to_namespaces, publish_to_webhooks};
pub use store::{Found, KubeSecret, SecretStore, StoreError, Written};
pub use stored::{Entries, Signer, Stored};
