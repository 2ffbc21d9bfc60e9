/// The type of a Secret whose type is not set.
pub(crate) const OPAQUE: &str = "Opaque";
/// The types that stand for an identity or for a release of another tool. A Secret of such a type does more than
/// configure pods.
const NOT_ALLOWED: [&str; 2] = ["kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token"];
const NOT_ALLOWED_PREFIX: &str = "helm.sh/";

/// Returns whether a Secret of this type is configuration, which may become a version and be published.
pub fn is_configuration(secret_type: &str) -> bool {
    !NOT_ALLOWED.contains(&secret_type) && !secret_type.starts_with(NOT_ALLOWED_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_and_releases_are_no_configuration() {
        for not in [NOT_ALLOWED[0], NOT_ALLOWED[1], "helm.sh/release.v1"] {
            assert!(!is_configuration(not), "{not}");
        }
        for is in
            ["", OPAQUE, "kubernetes.io/tls", "kubernetes.io/dockerconfigjson", "kubernetes.io/service-account-tokens"]
        {
            assert!(is_configuration(is), "{is}");
        }
    }
}
