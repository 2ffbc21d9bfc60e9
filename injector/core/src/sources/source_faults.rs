//! The faults of a `ConfigSource` beyond its schema, and the remote content that a source without faults requests.
//! Certificates are checked when they are used, because the check requires a TLS library.

use std::fmt::Display;

use nudge_api::{ConfigSourceSpec, Explanation, GitReference, GitSource, OciSource, SourcePlace, VaultSource};

use crate::config::name_fault;
use crate::faults::invalid;
use crate::outbound::Address;
use crate::remote::{GitUrl, OciReference, Pick, Revision, check_path};

/// The fault of a source that names no place, or more than one.
const NO_PLACE: &str = "it must name exactly one of git, oci and vault; a ConfigMap or Secret needs no source: list \
    its kind in spec.objects of the config of its name";

/// Returns all faults of a source of this name. The name is empty if the API server will generate it.
pub fn source_faults(name: &str, spec: &ConfigSourceSpec) -> Vec<Explanation> {
    let config = spec.config_name.as_deref().unwrap_or(name);
    let name_fault =
        Some(config).filter(|config| !config.is_empty()).and_then(|name| name_fault("spec.configName", name));
    name_fault.into_iter().chain(from_fault(spec)).collect()
}

fn from_fault(spec: &ConfigSourceSpec) -> Option<Explanation> {
    match spec.from.place() {
        None => Some(invalid("spec.from", NO_PLACE)),
        Some(SourcePlace::Git(git)) => git_target(git).err(),
        Some(SourcePlace::Oci(oci)) => oci_target(oci).err(),
        Some(SourcePlace::Vault(vault)) => vault_address(vault).err(),
    }
}

/// Returns the repository and the revision that a source requests.
pub fn git_target(from: &GitSource) -> Result<(GitUrl, Revision), Explanation> {
    let url = GitUrl::parse(&from.url).map_err(|error| invalid("spec.from.git.url", error))?;
    let revision = match &from.reference {
        None => Revision::Head,
        Some(reference) => revision(reference)?,
    };
    check_path(&from.path).map_err(|error| invalid("spec.from.git", error))?;
    Ok((url, revision))
}

fn revision(GitReference { branch, tag, semver, commit }: &GitReference) -> Result<Revision, Explanation> {
    let fault = |cause: &dyn Display| invalid("spec.from.git.ref", cause);
    let revision = match (branch, tag, semver, commit) {
        (Some(branch), None, None, None) => Revision::Branch(branch.clone()),
        (None, Some(tag), None, None) => Revision::Tag(tag.clone()),
        (None, None, Some(range), None) => Revision::Semver(range.clone()),
        (None, None, None, Some(commit)) => Revision::Commit(commit.clone()),
        _ => return Err(fault(&"it must have exactly one of branch, tag, semver and commit")),
    };
    revision.check().map_err(|error| fault(&error))?;
    Ok(revision)
}

/// Returns the repository and the artifact that a source requests.
pub fn oci_target(from: &OciSource) -> Result<(OciReference, Pick), Explanation> {
    let reference = OciReference::parse(&from.url).map_err(|error| invalid("spec.from.oci.url", error))?;
    let pick = match (&from.tag, &from.semver, &from.digest) {
        (Some(tag), None, None) => Pick::Tag(tag.clone()),
        (None, Some(range), None) => Pick::Semver(range.clone()),
        (None, None, Some(digest)) => Pick::Digest(digest.clone()),
        _ => return Err(invalid("spec.from.oci", "it must have exactly one of tag, semver and digest")),
    };
    pick.check().map_err(|error| invalid("spec.from.oci", error))?;
    Ok((reference, pick))
}

/// Returns the address of Vault, or why it can't be one.
pub fn vault_address(from: &VaultSource) -> Result<Address, Explanation> {
    Address::parse(&from.address).map_err(|error| invalid("spec.from.vault.address", error))
}
