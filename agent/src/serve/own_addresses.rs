//! Decides which clients are in this pod: those that come from one of its own addresses, among them loopback
//! (127.0.0.1, ::1).

use std::net::IpAddr;

use super::RequestOrigin;

/// The addresses of this network namespace.
#[derive(Clone, Debug, Default)]
pub struct OwnAddresses(Vec<IpAddr>);

impl OwnAddresses {
    /// Reads the addresses of this host. If that fails, only the address that a client calls counts.
    pub fn read() -> Self {
        let interfaces = match nix::ifaddrs::getifaddrs() {
            Ok(interfaces) => interfaces,
            Err(error) => {
                tracing::warn!(%error, "listing the addresses of this host failed; only addresses that clients have used count as the pod's");
                return Self::default();
            }
        };
        let mut addresses: Vec<IpAddr> = interfaces
            .filter_map(|interface| {
                let address = interface.address?;
                let v4 = address.as_sockaddr_in().map(|socket| IpAddr::V4(socket.ip()));
                v4.or_else(|| address.as_sockaddr_in6().map(|socket| IpAddr::V6(socket.ip())))
            })
            .collect();
        addresses.sort_unstable();
        addresses.dedup();
        Self(addresses)
    }

    /// Returns the addresses in order, each once.
    pub fn as_slice(&self) -> &[IpAddr] {
        &self.0
    }

    /// Returns the origin of a client that comes from `peer` and calls `local`. A connection within one host has the
    /// same address at both ends, even if the host got that address after this list was made. Other addresses of
    /// loopback do not show that a client is in the pod: a mesh's proxy forwards the connections of neighbours from
    /// 127.0.0.6 (Istio).
    pub fn origin(&self, peer: IpAddr, local: IpAddr) -> RequestOrigin {
        // An IPv4 client of an IPv6 socket shows as ::ffff:a.b.c.d.
        let (peer, local) = (peer.to_canonical(), local.to_canonical());
        if peer == local || self.0.contains(&peer) { RequestOrigin::Pod } else { RequestOrigin::Foreign }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_addresses_are_the_pod_and_all_else_is_not() {
        let own = ["127.0.0.1", "::1", "10.0.0.7", "fd00::7"];
        let own = OwnAddresses(own.map(|address| address.parse().unwrap()).into());
        let origin = |peer: &str, local: &str| own.origin(peer.parse().unwrap(), local.parse().unwrap());
        for peer in ["127.0.0.1", "::1", "10.0.0.7", "::ffff:10.0.0.7", "fd00::7"] {
            assert_eq!(origin(peer, "10.0.0.7"), RequestOrigin::Pod, "{peer}");
        }
        assert_eq!(origin("10.0.0.9", "10.0.0.9"), RequestOrigin::Pod);
        for peer in ["127.0.0.6", "::ffff:127.0.0.6", "10.0.0.8", "fd00::8", "::ffff:10.0.0.8"] {
            assert_eq!(origin(peer, "10.0.0.7"), RequestOrigin::Foreign, "{peer}");
        }
    }

    #[test]
    fn this_host_has_loopback() {
        assert!(OwnAddresses::read().as_slice().contains(&IpAddr::from([127, 0, 0, 1])));
    }
}
