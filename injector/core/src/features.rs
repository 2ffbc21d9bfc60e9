//! The features of Kubernetes that injection uses. The API server and every kubelet must support them.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::injection::Features;

/// The first version with init containers with `restartPolicy: Always` by default.
const NATIVE_SIDECARS: Minor = Minor { major: 1, minor: 29 };
/// The first version with `env.valueFrom.fileKeyRef` by default.
const ENV_FILES: Minor = Minor { major: 1, minor: 35 };

/// The first version that by default lets a container's exit restart all containers of its pod.
const RESTART_IN_PLACE: Minor = Minor { major: 1, minor: 36 };

/// A minor version of Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Minor {
    /// The major version.
    pub major: u32,
    /// The minor version.
    pub minor: u32,
}

/// The error for a text that is not a version of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a version of Kubernetes; it must begin like 1.33")]
pub struct MinorError(String);

impl FromStr for Minor {
    type Err = MinorError;

    /// Reads `1.33`, `v1.33.2`, and versions of providers such as `v1.29.3-eks-ae9a62a`.
    fn from_str(text: &str) -> Result<Self, MinorError> {
        let number = |text: &str| {
            let digits = text.find(|c: char| !c.is_ascii_digit()).map_or(text, |digits_end| &text[..digits_end]);
            digits.parse().ok()
        };
        let (major, minor_text) = text.strip_prefix('v').unwrap_or(text).split_once('.').unzip();
        // Only digits may stand before the dot.
        let major = major.filter(|major| major.bytes().all(|byte| byte.is_ascii_digit())).and_then(number);
        let version = major.zip(minor_text.and_then(number)).map(|(major, minor)| Self { major, minor });
        version.ok_or_else(|| MinorError(text.chars().take(64).collect()))
    }
}

impl fmt::Display for Minor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}", self.major, self.minor)
    }
}

/// The address family of the first addresses of pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IpFamily {
    /// The family of this replica's own address.
    #[default]
    Auto,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

/// The error for a text that is neither `auto` nor a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be auto, ipv4 or ipv6")]
pub struct IpFamilyError;

impl FromStr for IpFamily {
    type Err = IpFamilyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "ipv4" => Ok(Self::Ipv4),
            "ipv6" => Ok(Self::Ipv6),
            _ => Err(IpFamilyError),
        }
    }
}

/// The settings of an installation that decide about features.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// The version that counts instead of the oldest kubelet's, if it is set.
    pub kubelet: Option<Minor>,
    /// The address family of the first addresses of pods.
    pub family: IpFamily,
    /// The address of this replica's own pod.
    pub own_address: Option<IpAddr>,
}

/// Returns the features that the API server and the oldest kubelet have. In a cluster without nodes the server's
/// version alone counts.
pub fn supported_features(server: Minor, kubelets: impl IntoIterator<Item = Minor>, overrides: &Overrides) -> Features {
    let kubelet = overrides.kubelet.or_else(|| kubelets.into_iter().min());
    let oldest = kubelet.unwrap_or(server).min(server);
    Features {
        native_sidecars: oldest >= NATIVE_SIDECARS,
        env_files: oldest >= ENV_FILES,
        restart_in_place: oldest >= RESTART_IN_PLACE,
        ipv6: match overrides.family {
            IpFamily::Ipv4 => false,
            IpFamily::Ipv6 => true,
            IpFamily::Auto => overrides.own_address.is_some_and(|address| address.is_ipv6()),
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn minor(text: &str) -> Minor {
        text.parse().unwrap()
    }

    fn features_of(server: &str, kubelets: &[&str], kubelet: Option<&str>) -> (bool, bool) {
        let overrides = Overrides { kubelet: kubelet.map(minor), ..Overrides::default() };
        let features = supported_features(minor(server), kubelets.iter().map(|text| minor(text)), &overrides);
        (features.native_sidecars, features.env_files)
    }

    #[test]
    fn the_oldest_of_all_decides() {
        assert_eq!(features_of("1.36", &[], None), (true, true));
        assert_eq!(features_of("1.20", &[], None), (false, false));
        assert_eq!(features_of("1.36", &["1.36", "1.34"], None), (true, false));
        assert_eq!(features_of("1.36", &["1.36", "1.28", "1.35"], None), (false, false));
        // The pair is not supported, but the server would refuse unknown fields.
        assert_eq!(features_of("1.28", &["1.36"], None), (false, false));
        assert_eq!(features_of("1.29", &["1.29"], None), (true, false));
        assert_eq!(features_of("1.35", &["1.35"], None), (true, true));
    }

    #[test]
    fn restarts_in_place_need_all_nodes() {
        let features =
            |server: &str, kubelet: &str| supported_features(minor(server), [minor(kubelet)], &Overrides::default());
        assert!(features("1.36", "1.36").restart_in_place && features("1.37", "1.36").restart_in_place);
        assert!(!features("1.36", "1.35").restart_in_place && !features("1.35", "1.36").restart_in_place);
    }

    #[test]
    fn the_setting_overrides_the_nodes_and_not_the_server() {
        assert_eq!(features_of("1.36", &["1.20"], Some("1.36")), (true, true));
        assert_eq!(features_of("1.36", &["1.36"], Some("1.28")), (false, false));
        assert_eq!(features_of("1.20", &[], Some("1.36")), (false, false));
    }

    #[test]
    fn the_family_is_that_of_the_own_pod_unless_set() {
        let ipv6 = |family, own: Option<&str>| {
            let own_address = own.map(|address| address.parse().unwrap());
            supported_features(minor("1.30"), [], &Overrides { kubelet: None, family, own_address }).ipv6
        };
        assert!(ipv6(IpFamily::Auto, Some("fd00::1")) && !ipv6(IpFamily::Auto, Some("10.0.0.1")));
        assert!(!ipv6(IpFamily::Auto, None) && ipv6(IpFamily::Ipv6, Some("10.0.0.1")));
        assert!(!ipv6(IpFamily::Ipv4, Some("fd00::1")));
    }

    #[test]
    fn versions_are_read_as_providers_write_them() {
        for (text, expected) in
            [("1.33", "1.33"), ("v1.29.3-eks-ae9a62a", "1.29"), ("v1.27.3+k3s1", "1.27"), ("1.30+", "1.30")]
        {
            assert_eq!(minor(text).to_string(), expected);
        }
        for odd in ["", "1", "v1", "1.", ".33", "latest", "v1x.2", "-1.3", "1.-3", "99999999999.1"] {
            assert!(odd.parse::<Minor>().is_err(), "{odd}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_version_or_none(text in "\\PC{0,40}") {
            if let Ok(version) = text.parse::<Minor>() {
                prop_assert_eq!(minor(&version.to_string()), version);
            }
        }

        #[test]
        fn another_node_never_adds_a_feature(server in 20_u32..40, nodes in proptest::collection::vec(20_u32..40, 1..9)) {
            let minors = |nodes: &[u32]| nodes.iter().map(|&minor| Minor { major: 1, minor }).collect::<Vec<_>>();
            let server = Minor { major: 1, minor: server };
            let all = supported_features(server, minors(&nodes), &Overrides::default());
            let fewer = supported_features(server, minors(&nodes[1..]), &Overrides::default());
            prop_assert!(nodes.len() == 1 || all.native_sidecars <= fewer.native_sidecars && all.env_files <= fewer.env_files);
        }
    }
}
