//! Which redirects are followed: those of blobs, which many registries store elsewhere, and these only once, with TLS and without the credential.

use bytes::Bytes;
use hyper::Response;
use hyper::header::LOCATION;

use super::{Ask, Session};
use crate::error::OciError;
use crate::url::located;

impl Session<'_> {
    /// Asks for a blob, which a registry may have elsewhere. Nothing but the request goes there.
    pub(crate) async fn ask_blob(&mut self, ask: &Ask) -> Result<Response<Bytes>, OciError> {
        let answer = self.ask(ask).await?;
        if !answer.status().is_redirection() {
            return Ok(answer);
        }
        let refusal = |why| OciError::Redirect { host: self.host(), what: "a blob", why };
        let location = answer.headers().get(LOCATION).and_then(|it| it.to_str().ok());
        let (address, path) = located(location.unwrap_or_default(), self.reference.address())
            .ok_or_else(|| refusal("its target is not an address"))?;
        if !address.tls && &address != self.reference.address() {
            return Err(refusal("its target has no TLS"));
        }
        let there = Ask { method: ask.method.clone(), path, accept: None, content: None, bytes: ask.bytes };
        let answer = self.send(&address, &there, None).await?;
        if answer.status().is_redirection() {
            return Err(refusal("its target redirects again"));
        }
        if !answer.status().is_success() {
            let status = answer.status().as_u16();
            return Err(OciError::Status { host: address.authority(), what: "the request for a blob", status });
        }
        Ok(answer)
    }
}
