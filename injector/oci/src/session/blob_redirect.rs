//! Requests for blobs. A registry may redirect them to a storage, which gets nothing but the request itself.

use bytes::Bytes;
use hyper::Response;
use hyper::header::LOCATION;

use crate::error::OciError;
use crate::session::{RepositoryRequest, Session};
use crate::url::parse_location;

impl Session<'_> {
    /// Requests a blob, and follows one redirect.
    pub(crate) async fn request_blob(&mut self, request: &RepositoryRequest) -> Result<Response<Bytes>, OciError> {
        let answer = self.request(request).await?;
        if !answer.status().is_redirection() {
            return Ok(answer);
        }
        let refusal = |cause| OciError::Redirect { host: self.host(), what: "a blob", cause };
        let location = answer.headers().get(LOCATION).and_then(|value| value.to_str().ok());
        let (address, path) = parse_location(location.unwrap_or_default(), self.reference.address())
            .ok_or_else(|| refusal("its target is not an address"))?;
        if !address.tls && &address != self.reference.address() {
            return Err(refusal("its target has no TLS"));
        }
        let (method, max_bytes) = (request.method.clone(), request.max_bytes);
        let redirected = RepositoryRequest { max_bytes, ..RepositoryRequest::new(method, path) };
        let answer = self.send(&address, &redirected, None).await?;
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
