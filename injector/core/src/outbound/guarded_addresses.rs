//! The addresses that Nudge never sends requests to: addresses of the node and of the cluster itself, which trust
//! requests from their pods. Names are resolved before the check.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::address_range::AddressRange;

/// The addresses of this cluster that Nudge never sends requests to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuardedAddresses {
    /// The addresses of Services, and of the servers behind them, which are guarded at all ports.
    pub hosts: HashSet<IpAddr>,
    /// The endpoints of Services, each guarded at its port alone.
    pub endpoints: HashSet<SocketAddr>,
    /// The addresses of nodes, which are guarded at all ports: kubelets answer there, and Services with node ports.
    pub nodes: HashSet<IpAddr>,
    /// The ranges of nodes that requests are allowed to despite the guard.
    pub allowed_ranges: Vec<AddressRange>,
}

/// The addresses of clouds that give credentials to machines or their pods, outside of the ranges that [`refusal`]
/// checks: Alibaba, Oracle, Azure, AWS (for machines and for pods), and Google. The NetworkPolicies of the components
/// have the same addresses.
pub const METADATA: [IpAddr; 6] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
];

/// Returns why Nudge never sends requests to this address, if it does not.
pub fn refusal(address: SocketAddr, guarded: &GuardedAddresses) -> Option<&'static str> {
    let ip = embedded_ipv4(address.ip());
    if METADATA.contains(&ip) {
        return Some("at this address clouds give credentials to their machines");
    }
    let by_range = match ip {
        IpAddr::V4(ip) if ip.is_loopback() => Some("it is the machine itself"),
        IpAddr::V4(ip) if ip.octets()[0] == 0 => Some("it is the machine itself"),
        IpAddr::V4(ip) if ip.is_link_local() => Some("it is link-local, and clouds give credentials at such addresses"),
        IpAddr::V4(ip) if ip.is_multicast() || ip.is_broadcast() => Some("it is not the address of one machine"),
        IpAddr::V6(ip) if ip.is_loopback() || ip.is_unspecified() => Some("it is the machine itself"),
        IpAddr::V6(ip) if ip.is_unicast_link_local() => Some("it is link-local"),
        IpAddr::V6(ip) if ip.is_multicast() => Some("it is not the address of one machine"),
        _ => None,
    };
    if by_range.is_some() {
        return by_range;
    }
    let is_same = |other: &IpAddr| embedded_ipv4(*other) == ip;
    let is_endpoint = |other: &SocketAddr| embedded_ipv4(other.ip()) == ip && other.port() == address.port();
    if guarded.hosts.iter().any(is_same) || guarded.endpoints.iter().any(is_endpoint) {
        return Some("it belongs to the API server or to kube-system");
    }
    if guarded.nodes.iter().any(is_same) && !guarded.allowed_ranges.iter().any(|range| range.contains(ip)) {
        return Some(
            "it belongs to a node of the cluster; an admin of the cluster can allow it with NUDGE_OUTBOUND_ALLOW",
        );
    }
    None
}

/// Returns the IPv4 address that is embedded in an IPv6 address, or the address itself.
fn embedded_ipv4(ip: IpAddr) -> IpAddr {
    let IpAddr::V6(ipv6) = ip else { return ip };
    let ipv4 = |high: u16, low: u16| IpAddr::V4(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)));
    match ipv6.segments() {
        // The rules for IPv6 cover :: and ::1.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => ip,
        // IPv4-compatible, IPv4-mapped, NAT64, and 6to4.
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] | [0x64, 0xff9b, .., high, low] | [0x2002, high, low, ..] => {
            ipv4(high, low)
        }
        _ => ip,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(address: &str) -> SocketAddr {
        SocketAddr::new(address.parse().unwrap(), 9090)
    }

    #[test]
    fn the_node_and_the_metadata_of_clouds_are_refused() {
        for address in [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "0.1.2.3",
            "169.254.169.254",
            "169.254.0.1",
            "100.100.100.200",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "fe80::1",
            "febf::1",
            "ff02::1",
            "fd00:ec2::254",
            "fd00:ec2::23",
            "fd20:ce::254",
            "168.63.129.16",
            "192.0.0.192",
            "::ffff:168.63.129.16",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "64:ff9b::169.254.169.254",
            "2002:a9fe:a9fe::1",
            "2002:7f00:1::",
        ] {
            assert!(refusal(at(address), &GuardedAddresses::default()).is_some(), "{address}");
        }
        for address in ["10.0.0.1", "192.168.1.1", "172.16.0.1", "203.0.113.1", "fd00::1", "2001:db8::1", "100.64.0.1"]
        {
            assert_eq!(refusal(at(address), &GuardedAddresses::default()), None, "{address}");
        }
    }

    #[test]
    fn the_api_server_and_kube_system_are_refused() {
        let guarded = GuardedAddresses {
            hosts: ["10.96.0.1".parse().unwrap()].into(),
            endpoints: ["192.168.1.1:9090".parse().unwrap(), "192.168.1.1:6443".parse().unwrap()].into(),
            ..GuardedAddresses::default()
        };
        for refused in ["10.96.0.1", "::ffff:10.96.0.1", "192.168.1.1", "64:ff9b::192.168.1.1"] {
            assert!(refusal(at(refused), &guarded).is_some(), "{refused}");
        }
        assert_eq!(refusal("192.168.1.1:9091".parse().unwrap(), &guarded), None, "another port of that machine");
        assert_eq!(refusal(at("10.96.0.2"), &guarded), None);
    }

    #[test]
    fn a_node_is_refused_at_every_port_unless_it_is_lent() {
        let nodes = ["192.168.1.1", "192.168.2.1", "fd00::1"].map(|ip| ip.parse().unwrap()).into();
        let allowed_ranges = vec!["192.168.2.0/24".parse().unwrap(), "169.254.0.0/16".parse().unwrap()];
        let server = "192.168.2.1:6443".parse().unwrap();
        let guarded =
            GuardedAddresses { nodes, allowed_ranges, endpoints: [server].into(), ..GuardedAddresses::default() };
        for refused in ["192.168.1.1:443", "192.168.1.1:30080", "[fd00::1]:443", "[64:ff9b::192.168.1.1]:443"] {
            assert!(refusal(refused.parse().unwrap(), &guarded).is_some(), "{refused}");
        }
        assert_eq!(refusal("192.168.2.1:5000".parse().unwrap(), &guarded), None);
        for never in ["192.168.2.1:6443", "169.254.169.254:80"] {
            assert!(refusal(never.parse().unwrap(), &guarded).is_some(), "{never} is never allowed");
        }
    }

    proptest! {
        #[test]
        fn no_form_of_an_address_passes_where_another_does_not(a: u8, b: u8, c: u8, d: u8) {
            let four = Ipv4Addr::new(a, b, c, d);
            let guarded = GuardedAddresses::default();
            let refused = refusal(SocketAddr::new(four.into(), 1), &guarded).is_some();
            let [high, low] = [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])];
            let forms = [four.to_ipv6_mapped(), Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low), Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1)];
            for six in forms {
                prop_assert_eq!(refusal(SocketAddr::new(six.into(), 1), &guarded).is_some(), refused, "{}", six);
            }
        }
    }
}
