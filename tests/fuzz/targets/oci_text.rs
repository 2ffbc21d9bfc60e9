//! Texts of users and registries about artifacts: references, docker configs, and the header `WWW-Authenticate`.
//!
//! The first line is a reference, and the rest a header and a docker config.
#![cfg_attr(fuzzing, no_main)]

use libfuzzer_sys::{Corpus, fuzz_target};
use nudge_oci::{ArtifactLocation, Challenge, Credential, OciReference, credential_of, parse_challenges};

fuzz_target!(|bytes: &[u8]| -> Corpus {
    let Ok(text) = str::from_utf8(bytes) else { return Corpus::Reject };
    let (line, rest) = text.split_once('\n').unwrap_or((text, ""));
    assert_challenges(rest);
    if let Ok(located) = ArtifactLocation::parse(line) {
        assert_reference(line, &located);
        assert_credential(rest, &located.reference);
    }
    Corpus::Keep
});

/// A realm stands in the header as it was read, but for escapes.
fn assert_challenges(header: &str) {
    for challenge in parse_challenges([header]) {
        let lower = header.to_ascii_lowercase();
        match challenge {
            Challenge::Basic => assert!(lower.contains("basic")),
            Challenge::Bearer { realm, service } => {
                assert!(lower.contains("bearer") && lower.contains("realm"));
                for value in [Some(realm), service].into_iter().flatten() {
                    assert!(header.replace('\\', "").contains(&value.replace('\\', "")), "{header:?} {value:?}");
                }
            }
        }
    }
}

/// A second reading of the same text finds the same host, and nothing of the text gets into another part of a request.
fn assert_reference(line: &str, located: &ArtifactLocation) {
    let ArtifactLocation { reference, path, .. } = located;
    let rest = line.split_once("://").unwrap().1;
    let authority = rest.split('/').next().unwrap();
    assert!(!authority.contains(['@', '?', '#', '\\']), "{line:?}");
    let host = authority.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')).map_or(authority, |(host, _)| host);
    let host = host.trim_matches(['[', ']']).to_ascii_lowercase();
    assert!(reference.address().host == host || ["docker.io", "index.docker.io"].contains(&host.as_str()));
    assert_eq!(reference.address().tls, line.starts_with("oci://"));
    assert!(!reference.repository().contains(['.', '/', '-', '_']) || !reference.repository().contains(".."));
    assert!(
        reference
            .repository()
            .bytes()
            .all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || b"./_-".contains(&it))
    );
    assert_eq!(OciReference::parse(&reference.to_string()).as_ref(), Ok(reference));
    assert!(!path.starts_with('/') && !path.ends_with('/'));
}

/// A credential is that of an entry which names the host, and no error repeats any of it.
fn assert_credential(config: &str, reference: &OciReference) {
    match credential_of(config.as_bytes(), reference) {
        Ok(Credential::Anonymous) => {}
        Ok(Credential::Basic { .. }) => assert!(config.contains("auths")),
        Err(error) => assert!(error.to_string().len() < 500),
    }
}
