//! The rights of the user about a config, as the API server says.

use nudge_api::VersionedConfig;
use nudge_cluster::rights::{self, resource_right};

use crate::failure::{Failure, doing};
use crate::session::Session;

/// A verb on a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Right {
    pub(crate) verb: &'static str,
    pub(crate) group: &'static str,
    pub(crate) resource: &'static str,
}

/// The resource whose objects do not have the name of a config.
pub(crate) const APPROVALS: &str = "versionapprovals";

/// Returns whether the user has the right about the object of the config's name.
pub(crate) async fn has_right(session: &Session, config: &VersionedConfig, right: Right) -> Result<bool, Failure> {
    let Right { verb, group, resource } = right;
    let meta = &config.metadata;
    let name = meta.name.as_deref().filter(|_| resource != APPROVALS);
    let right = resource_right(meta.namespace.as_deref().unwrap_or_default(), (verb, group, resource), name);
    rights::has_right(&session.client, right).await.map_err(doing("asking what you may do"))
}
