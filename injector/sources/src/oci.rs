//! An OCI artifact or image, as one source sees it.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{ConfigSourceSpec, Explanation, OciSource, Origin, OriginKind, PartKind, Reason};
use nudge_authoring::{file_key, keys_of_files};
use nudge_core::outbound::Address;
use nudge_core::sources::{oci_target, selects_key};
use nudge_oci::{Artifact, Credential, PullRequest, Registry};
use nudge_outbound::authorities_from_pem;
use nudge_protocol::error_chain::chain;

use crate::budget::OCI_MIB;
use crate::credentials::{oci_credential, read_secret};
use crate::server_polls::{Remote, fetch_failure};
use crate::source_content::SourceContent;
use crate::sources::Sources;

/// A registry with the content of one source.
pub(crate) struct Oci {
    sources: Arc<Sources>,
    namespace: String,
    spec: Arc<ConfigSourceSpec>,
    from: OciSource,
}

impl Oci {
    pub(crate) fn new(sources: Arc<Sources>, namespace: String, spec: Arc<ConfigSourceSpec>, from: OciSource) -> Self {
        Self { sources, namespace, spec, from }
    }

    async fn pull(&self, last: Option<&str>) -> Result<Option<Artifact>, Explanation> {
        let (reference, pick) = oci_target(&self.from)?;
        let secret = match &self.from.secret_ref {
            Some(object) => {
                let name = object.name.as_str();
                Some((read_secret(&self.sources, &self.namespace, name, reference.address()).await?, name))
            }
            None => None,
        };
        let credential = match &secret {
            Some((secret, name)) => oci_credential(secret, name, &reference)?,
            None => Credential::Anonymous,
        };
        let roots = match &self.from.ca {
            Some(pem) => authorities_from_pem(pem.as_bytes())
                .ok_or_else(|| Reason::SourceRefused.explained("spec.from.oci.ca holds no certificate"))?,
            None => Arc::clone(&self.sources.roots),
        };
        let reach = self.sources.reach(&self.from.url).await?;
        let request = PullRequest {
            reference: &reference,
            pick: &pick,
            platform: self.from.platform.as_deref(),
            path: &self.from.path,
            credential: &credential,
            trusts_realm: &|realm: &Address| secret.as_ref().is_none_or(|(secret, _)| secret.allows(realm)),
            // The patterns for keys also choose files.
            is_wanted: &|path| selects_key(&self.spec, &file_key(path)),
        };
        let artifact = Registry::new(reach, roots).pull(&request, last).await;
        artifact.map_err(|error| fetch_failure(&self.from.url, chain(&error)))
    }
}

impl Remote for Oci {
    const KIND: OriginKind = OriginKind::Oci;

    async fn read(&mut self, last: Option<&str>) -> Result<Option<SourceContent>, Explanation> {
        let sources = Arc::clone(&self.sources);
        let _room = sources.budget.fetches.take_many(&self.namespace, OCI_MIB).await;
        let Some(Artifact { digest, created, files }) = self.pull(last).await? else { return Ok(None) };
        let origin = Origin {
            kind: Self::KIND,
            url: self.from.url.as_str().into(),
            revision: digest.as_str().into(),
            path: self.from.path.as_str().into(),
            time: created.map(Time),
            signer: None,
        };
        let contents = keys_of_files(files)
            .map_err(|cause| Reason::SourceRefused.explained(format!("{}: {cause}", self.from.url)))?;
        Ok(Some(SourceContent { kind: PartKind::ConfigMap, origin, contents }))
    }
}
