//! Rights that a change of an object needs, and the denial for a user who lacks such a right.

use std::borrow::Cow;

use futures::future::try_join_all;

use crate::audit;
use crate::lookups::{LookupError, Lookups, Right};
use crate::review::ReviewRequest;
use crate::verdict::Denial;

/// A right that a change needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NeededRight<'a> {
    right: Right<'a>,
    /// The change, as it follows after "user may not".
    pub(crate) action: Cow<'a, str>,
    /// The reason why the change needs the right.
    pub(crate) because: String,
}

impl<'a> NeededRight<'a> {
    pub(crate) fn new(right: Right<'a>, action: impl Into<Cow<'a, str>>, because: impl Into<String>) -> Self {
        Self { right, action: action.into(), because: because.into() }
    }

    /// Returns the denial for a user who lacks the right. `title` has the kind and the name of the object.
    pub(crate) fn denial(&self, title: &str, user: &str, namespace: &str) -> Denial {
        let Self { right, action, because } = self;
        let role = if matches!(right, Right::Import(_)) { " (ClusterRole nudge-restore)" } else { "" };
        Denial::forbidden(format!(
            "{title}: user {user:?} may not {action}, because {because}; this needs the right to {right} in namespace {namespace}{role}"
        ))
    }
}

/// Returns the denial for the first of these rights to change a config that the user lacks. They are looked up at the
/// same time.
pub(crate) async fn find_denial(
    lookups: &impl Lookups,
    request: &ReviewRequest,
    (namespace, config): (&str, &str),
    needed: impl IntoIterator<Item = NeededRight<'_>>,
) -> Result<Option<Denial>, LookupError> {
    let denials = needed.into_iter().map(async |needed| {
        if lookups.may(request, namespace, needed.right).await? {
            return Ok::<_, LookupError>(None);
        }
        audit::right_refused(request, config, &needed.action, needed.right);
        Ok(Some(needed.denial(&format!("VersionedConfig {config}"), request.user(), namespace)))
    });
    Ok(try_join_all(denials).await?.into_iter().flatten().next())
}
