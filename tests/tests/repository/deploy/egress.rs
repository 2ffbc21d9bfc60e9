//! What pods of Nudge reach, if the network of the cluster enforces NetworkPolicies: their rules, evaluated as
//! Kubernetes defines them.

use std::net::{IpAddr, Ipv6Addr};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::networking::v1::{IPBlock, NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use nudge_core::outbound::METADATA;
use nudge_tests::cluster::installation::deploy;
use serde_json::{Value, json};

use crate::deploy::manifests::{documents, read};

/// A destination of a connection.
struct To {
    ip: IpAddr,
    /// Whether the address is that of a pod.
    is_pod: bool,
    protocol: &'static str,
    port: i32,
}

/// Returns the NetworkPolicies of a component, and the labels of its pods.
fn of_component(name: &str) -> Result<(Vec<NetworkPolicy>, Value)> {
    let folder = deploy().join("components").join(name);
    let policies = documents(&read(&folder.join("network-policy.yaml"))?)?.into_iter();
    let policies = policies.map(serde_json::from_value).collect::<Result<_, _>>()?;
    let deployment = documents(&read(&folder.join(format!("{name}.yaml")))?)?.remove(0);
    Ok((policies, deployment["spec"]["template"]["metadata"]["labels"].clone()))
}

/// Returns whether a pod with these labels may send so. Policies add up, and without one for it a pod may send
/// everywhere.
fn may_send(policies: &[NetworkPolicy], labels: &Value, to: &To) -> Result<bool> {
    let (mut isolated, mut allowed) = (false, false);
    for spec in policies.iter().filter_map(|policy| policy.spec.as_ref()) {
        let selector = spec.pod_selector.as_ref().context("no selector")?;
        ensure!(selector.match_expressions.is_none(), "matchExpressions are not evaluated here");
        let mut wanted = selector.match_labels.iter().flatten();
        let egress = spec.policy_types.iter().flatten().any(|direction| direction == "Egress");
        if egress && wanted.all(|(name, value)| labels[name] == **value) {
            isolated = true;
            for rule in spec.egress.iter().flatten() {
                // An empty list is the same as none: everything.
                let (peers, ports) = (rule.to.iter().flatten(), rule.ports.iter().flatten());
                let mut by_peer = rule.to.as_ref().is_none_or(Vec::is_empty);
                for peer in peers {
                    by_peer |= is_peer(peer, to)?;
                }
                let mut by_port = rule.ports.as_ref().is_none_or(Vec::is_empty);
                for port in ports {
                    by_port |= is_port(port, to)?;
                }
                allowed |= by_peer && by_port;
            }
        }
    }
    Ok(allowed || !isolated)
}

fn is_port(port: &NetworkPolicyPort, to: &To) -> Result<bool> {
    let first = match port.port {
        None => return Ok(port.protocol.as_deref().unwrap_or("TCP") == to.protocol),
        Some(IntOrString::Int(port)) => port,
        Some(IntOrString::String(_)) => bail!("names of ports are not evaluated here"),
    };
    Ok(port.protocol.as_deref().unwrap_or("TCP") == to.protocol
        && (first..=port.end_port.unwrap_or(first)).contains(&to.port))
}

fn is_peer(peer: &NetworkPolicyPeer, to: &To) -> Result<bool> {
    match peer {
        NetworkPolicyPeer { ip_block: Some(IPBlock { cidr, except }), .. } => {
            let mut is_in = is_within(cidr, to.ip)?;
            for except in except.iter().flatten() {
                is_in &= !is_within(except, to.ip)?;
            }
            Ok(is_in)
        }
        NetworkPolicyPeer { namespace_selector: Some(all), pod_selector: None, .. } => {
            ensure!(*all == LabelSelector::default(), "selectors of namespaces are not evaluated here");
            Ok(to.is_pod)
        }
        other => bail!("{other:?} is not evaluated here"),
    }
}

fn is_within(cidr: &str, ip: IpAddr) -> Result<bool> {
    let (network, length) = cidr.split_once('/').context("no length")?;
    let (network, length): (IpAddr, u32) = (network.parse()?, length.parse()?);
    let bits = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => u128::from(ip.to_bits()) << 96,
        IpAddr::V6(ip) => Ipv6Addr::to_bits(ip),
    };
    let different = bits(network) ^ bits(ip);
    Ok(network.is_ipv4() == ip.is_ipv4() && different.leading_zeros() >= length.min(128))
}

#[test]
fn neither_the_node_nor_what_gives_credentials_is_reached_and_servers_are() -> Result<()> {
    for (component, usual) in
        [("sources", &[22, 443, 5000, 8200, 8443][..]), ("analysis", &[80, 443, 8080, 8443, 9090])]
    {
        let (policies, labels) = of_component(component)?;
        let sends = |ip: &str, is_pod: bool, protocol: &'static str, port: i32| -> Result<bool> {
            may_send(&policies, &labels, &To { ip: ip.parse()?, is_pod, protocol, port })
        };
        let local = ["169.254.169.254", "169.254.170.2", "127.0.0.1", "::1", "fe80::1"].map(str::to_owned);
        for ip in METADATA.map(|ip| ip.to_string()).into_iter().chain(local) {
            for port in [80, 988].iter().chain(usual) {
                ensure!(!sends(&ip, false, "TCP", *port)?, "{component} reaches {ip}:{port}");
            }
        }
        // The kubelet and etcd of a node.
        for port in [10250, 2379] {
            ensure!(!sends("10.0.0.7", false, "TCP", port)?, "{component} reaches port {port} of a node");
        }
        for port in usual {
            for (ip, is_pod) in
                [("203.0.113.7", false), ("2001:db8::7", false), ("10.96.0.1", false), ("10.244.0.7", true)]
            {
                ensure!(sends(ip, is_pod, "TCP", *port)?, "{component} does not reach {ip}:{port}");
                ensure!(!sends(ip, is_pod, "UDP", *port)?, "{component} reaches {ip}:{port} by UDP");
            }
        }
        // Name servers in pods and on the node itself, and an API server.
        for (ip, is_pod, protocol, port) in [
            ("10.244.0.7", true, "UDP", 53),
            ("169.254.20.10", false, "UDP", 53),
            ("169.254.20.10", false, "TCP", 53),
            ("10.0.0.7", false, "TCP", 6443),
        ] {
            ensure!(sends(ip, is_pod, protocol, port)?, "{component} does not reach {ip}:{port}");
        }
        // Other pods are not held by it.
        let to = To { ip: "169.254.169.254".parse()?, is_pod: false, protocol: "TCP", port: 80 };
        ensure!(may_send(&policies, &json!({"app.kubernetes.io/name": "nudge"}), &to)?);
    }
    Ok(())
}
