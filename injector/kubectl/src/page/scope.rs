//! The namespaces that the page shows: all if the user may list them, otherwise a single one.

use kube::Api;
use kube::api::ListParams;

use crate::failure::Failure;
use crate::session::{NamespacedKind, Session};

/// The namespaces that the user wants to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All namespaces if the user may list them, else the namespace of the session.
    AllIfAllowed,
    All,
    /// The namespace of the session.
    One,
}

/// The objects of a kind that the user may list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PageScope {
    /// The objects of all namespaces.
    All,
    /// The objects of the session's namespace.
    One,
    /// No objects, for this reason.
    Nothing(String),
}

/// Returns which objects of this kind the user may list; `context` names the attempt.
pub(crate) async fn scope<K: NamespacedKind>(
    session: &Session,
    extent: Extent,
    context: &str,
) -> Result<PageScope, Failure> {
    if extent != Extent::One {
        match probe_list(&Api::<K>::all(session.client.clone())).await {
            Ok(()) => return Ok(PageScope::All),
            Err(kube::Error::Api(status)) if status.code == 403 && extent == Extent::AllIfAllowed => {}
            Err(error) => return refused_scope(context, &error),
        }
    }
    match probe_list(&session.api::<K>()).await {
        Ok(()) => Ok(PageScope::One),
        Err(error) => refused_scope(context, &error),
    }
}

/// Lists one object, which shows whether more may be listed.
pub(super) async fn probe_list<K: NamespacedKind>(api: &Api<K>) -> Result<(), kube::Error> {
    api.list_metadata(&ListParams::default().limit(1)).await.map(drop)
}

fn refused_scope(context: &str, error: &kube::Error) -> Result<PageScope, Failure> {
    let failure = Failure::of(context, error);
    if failure.status == 403 { Ok(PageScope::Nothing(failure.message)) } else { Err(failure) }
}
