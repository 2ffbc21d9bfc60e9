//! The content flags of `create` for artifacts and images in registries, and the credentials for the registries.

use std::env;
use std::fs;
use std::path::PathBuf;

use clap::Args;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{Origin, OriginKind};
use nudge_authoring::Content;
use nudge_core::outbound::Address;
use nudge_oci::{Artifact, ArtifactLocation, Credential, OciReference, Pick, PullRequest, Registry, credential_of};
use nudge_outbound::{Reach, system_authorities};
use nudge_protocol::error_chain::message;
use zeroize::Zeroizing;

use crate::failure::{Failure, file_message};

/// The flags about registries.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Registries {
    /// The docker config with the credential for the registry; by default config.json in $DOCKER_CONFIG or ~/.docker.
    /// Credential helpers are not run
    #[arg(long, value_name = "FILE", help_heading = "Registries")]
    docker_config: Option<PathBuf>,
    /// Other hosts that the credential may be sent to for a token, such as auth.docker.io. By default it is sent to the
    /// registry alone
    #[arg(long, value_name = "HOST,...", default_value = "", hide_default_value = true, help_heading = "Registries")]
    allowed_hosts: String,
}

/// The flags of `create` about artifacts.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct FromOci {
    /// The files of an OCI artifact or image, or those below PATH; sub/file has the key sub.file. Without a tag it is
    /// latest
    #[arg(
        id = "from_oci",
        long = "from-oci",
        value_name = "oci://REGISTRY/REPOSITORY[:TAG|@DIGEST][//PATH]",
        help_heading = "Content"
    )]
    artifact: Option<String>,
    /// Which manifest of an image, such as linux/amd64, if there are several
    #[arg(long, value_name = "OS/ARCH", requires = "from_oci", help_heading = "Content")]
    platform: Option<String>,
    #[command(flatten)]
    registries: Registries,
}

/// The credentials file of docker and similar tools.
struct DockerConfig {
    path: PathBuf,
    content: Zeroizing<Vec<u8>>,
}

impl Registries {
    /// Returns whether the credential may be sent to this token realm.
    pub(crate) fn allows(&self, address: &Address) -> bool {
        address.is_listed_in(&self.allowed_hosts)
    }

    /// Returns the credential for the registry.
    pub(crate) fn credential(&self, reference: &OciReference) -> Result<Credential, Failure> {
        let Some(DockerConfig { path, content }) = self.config()? else { return Ok(Credential::Anonymous) };
        credential_of(&content, reference).map_err(|error| Failure::new(format!("{}: {error}", path.display())))
    }

    /// Reads the docker config. Without the flag, the file need not exist.
    fn config(&self) -> Result<Option<DockerConfig>, Failure> {
        let default_path = || {
            let folder = env::var_os("DOCKER_CONFIG").filter(|folder| !folder.is_empty()).map(PathBuf::from);
            folder.or_else(|| Some(env::home_dir()?.join(".docker"))).map(|folder| folder.join("config.json"))
        };
        let Some(path) = self.docker_config.clone().or_else(default_path) else { return Ok(None) };
        match fs::read(&path) {
            Ok(content) => Ok(Some(DockerConfig { path, content: Zeroizing::new(content) })),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && self.docker_config.is_none() => Ok(None),
            Err(error) => Err(Failure::new(file_message(&path, &error))),
        }
    }
}

/// Returns a client that reaches registries as the user can.
pub(crate) fn registry() -> Registry {
    Registry::new(Reach::Anywhere, system_authorities())
}

/// Adds the files of the artifact, if the flags name an artifact, and returns their origin.
pub(crate) async fn add(content: &mut Content, from: &FromOci) -> Result<Option<Origin>, Failure> {
    let Some(text) = &from.artifact else { return Ok(None) };
    let failure = |error: String| format!("--from-oci {text}: {error}");
    let located = ArtifactLocation::parse(text).map_err(|error| Failure::usage(failure(error.to_string())))?;
    let pick = located.pick.unwrap_or_else(|| Pick::Tag("latest".to_owned()));
    let request = PullRequest {
        reference: &located.reference,
        pick: &pick,
        platform: from.platform.as_deref(),
        path: &located.path,
        credential: &from.registries.credential(&located.reference)?,
        trusts_realm: &|address| from.registries.allows(address),
        is_wanted: &|_| true,
    };
    match registry().pull(&request, None).await.map_err(|error| Failure::new(failure(message(&error))))? {
        // An artifact without a known digest is never unchanged.
        None => Ok(None),
        Some(Artifact { digest, created, files }) => {
            content.add_files(false, files).map_err(|error| Failure::new(failure(error.to_string())))?;
            Ok(Some(Origin {
                kind: OriginKind::Oci,
                url: located.reference.to_string().into(),
                revision: digest.into(),
                path: located.path.as_str().into(),
                time: created.map(Time),
                signer: None,
            }))
        }
    }
}
