//! The credentials that a source sends to its server, from the Secret that the source names.

use nudge_api::{Explanation, Reason};
use nudge_cluster::credential_secret::{CredentialSecret, CredentialSecretError};
use nudge_core::outbound::Address;
use nudge_protocol::error_chain::chain;
use zeroize::Zeroizing;

use crate::server_polls::fetch_failure;
use crate::sources::Sources;

/// The API of GitHub, unless the Secret names another API.
const GITHUB_API: &str = "https://api.github.com";
/// The user name for servers that take any.
const ANY_USER: &str = "git";

/// Reads the Secret if it is for this server.
pub(crate) async fn read_secret(
    sources: &Sources,
    namespace: &str,
    name: &str,
    server: &Address,
) -> Result<CredentialSecret, Explanation> {
    let result = CredentialSecret::read(&sources.client, &sources.account, (namespace, name)).await;
    let checked = result.and_then(|secret| secret.check(server).map(|()| secret));
    checked.map_err(|error| match error {
        CredentialSecretError::Forbidden { .. } => Reason::NotAllowed.explained(error.to_string()),
        CredentialSecretError::Missing(_) | CredentialSecretError::OtherHost { .. } => {
            Reason::SourceRefused.explained(error.to_string())
        }
        CredentialSecretError::Unreadable(..) => {
            tracing::warn!(namespace, secret = name, error = chain(&error), "a Secret of a source was not read");
            fetch_failure(format!("Secret {name}"), "it can't be read now")
        }
    })
}

/// Returns the credential for a git server. The Secret may have an SSH key, a token or password, and a GitHub App: the
/// first of these counts.
pub(crate) fn git_credential(secret: &CredentialSecret, name: &str) -> Result<nudge_git::Credential, Explanation> {
    let refusal = |cause: &str| Reason::SourceRefused.explained(format!("Secret {name}: {cause}"));
    if let Some(key) = secret.value("ssh-privatekey") {
        let known_hosts = secret.text("known_hosts").unwrap_or_default().to_owned();
        return Ok(nudge_git::Credential::Ssh { key: Zeroizing::new(key.to_vec()), known_hosts });
    }
    let username = secret.text("username");
    if let Some(token) = secret.text("token").or_else(|| secret.text("password").filter(|_| username.is_some())) {
        let username = username.unwrap_or(ANY_USER).to_owned();
        return Ok(nudge_git::Credential::Token { username, token: Zeroizing::new(token.to_owned()) });
    }
    let app = |key: &str| secret.text(&format!("github-{key}"));
    match (app("app-id"), app("installation-id"), secret.value("github-private-key")) {
        (Some(id), Some(installation), Some(key)) => {
            let api = Address::parse(app("api").unwrap_or(GITHUB_API))
                .map_err(|error| refusal(&format!("github-api: {error}")))?;
            // A proof of the key is sent to this address.
            secret.check(&api).map_err(|error| Reason::SourceRefused.explained(error.to_string()))?;
            let (id, installation) = (id.to_owned(), installation.to_owned());
            Ok(nudge_git::Credential::App(nudge_git::App { id, installation, key: Zeroizing::new(key.to_vec()), api }))
        }
        _ => Err(refusal(
            "it must have the keys ssh-privatekey and known_hosts; or token; or username and password; or github-app-id, \
             github-installation-id and github-private-key",
        )),
    }
}

/// Returns the credential for a registry.
pub(crate) fn oci_credential(
    secret: &CredentialSecret,
    name: &str,
    reference: &nudge_oci::OciReference,
) -> Result<nudge_oci::Credential, Explanation> {
    let refusal = |cause: String| Reason::SourceRefused.explained(format!("Secret {name}: {cause}"));
    if let Some(config) = secret.value(".dockerconfigjson") {
        return nudge_oci::credential_of(config, reference).map_err(|error| refusal(error.to_string()));
    }
    match (secret.text("username"), secret.text("password")) {
        (Some(username), Some(password)) => Ok(nudge_oci::Credential::Basic {
            username: username.to_owned(),
            password: Zeroizing::new(password.to_owned()),
        }),
        _ => Err(refusal("it must have the key .dockerconfigjson, or username and password".to_owned())),
    }
}
