//! Files that are kept by Git LFS.

use std::collections::BTreeMap;

use nudge_outbound::{Authorities, Reach};
use zeroize::Zeroizing;

use crate::error::GitError;
use crate::mirror::Mirror;
use crate::request::Request;
use crate::session::Session;

/// How an LFS server is reached.
pub(crate) struct Server<'a> {
    pub(crate) reach: &'a Reach,
    pub(crate) authorities: &'a Authorities,
    pub(crate) authorization: Option<&'a Zeroizing<String>>,
}

impl Server<'_> {
    /// Puts the contents in place of their pointers.
    pub(crate) async fn replace(
        &self,
        _session: &Session<'_>,
        _mirror: &Mirror<'_>,
        _request: &Request<'_>,
        _commit: &str,
        _files: &mut BTreeMap<String, Zeroizing<Vec<u8>>>,
    ) -> Result<(), GitError> {
        Ok(())
    }
}
