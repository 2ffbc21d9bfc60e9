//! The addresses of the API server, of kube-system and of nodes. Requests of users are never sent there. While
//! the addresses are not known, no such request is sent anywhere.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Endpoints, Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ListParams;
use kube::{Api, Client};
use nudge_core::outbound::{AddressRange, GuardedAddresses};
use nudge_protocol::error_chain::chain;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::call::{CallError, call};
use crate::listing::for_each_listed;

/// The maximum age of the addresses before they are read again.
const MAX_FRESH_AGE: Duration = Duration::from_secs(30);
/// The maximum age of addresses that are still used because they can't be read again.
const MAX_USABLE_AGE: Duration = Duration::from_mins(5);
/// The maximum age of the nodes before they are read again. It is higher because there may be many nodes.
const MAX_NODES_AGE: Duration = Duration::from_mins(1);
/// The namespace of the system's own Services.
const SYSTEM_NAMESPACE: &str = "kube-system";
/// The namespace of the API server's own Service.
const SERVER_NAMESPACE: &str = "default";
/// The selector of slices of the API server's own Service.
const SERVER_SLICES_SELECTOR: &str = "kubernetes.io/service-name=kubernetes";

/// The error of a read of the guarded addresses.
#[derive(Debug, thiserror::Error)]
#[error(
    "Nudge does not know the addresses of the API server, of kube-system and of nodes; apply the component again, with its ClusterRole, \
     and its Roles in kube-system and default"
)]
pub struct GuardedReadError(#[source] CallError);

/// The reader of the guarded addresses, which caches them for a while.
pub struct GuardedReader {
    client: Client,
    server: Option<SocketAddr>,
    lent: Vec<AddressRange>,
    known: Mutex<Option<(Instant, Arc<GuardedAddresses>)>>,
    nodes: Mutex<Option<(Instant, HashSet<IpAddr>)>>,
}

impl GuardedReader {
    /// Returns a reader. `server` is this process's address for the API server. Nodes in the ranges `lent` may be
    /// asked.
    pub fn new(client: Client, server: &str, lent: Vec<AddressRange>) -> Self {
        let authority =
            server.split("://").nth(1).and_then(|after_scheme| after_scheme.split('/').next()).unwrap_or_default();
        let ip = || Some(SocketAddr::new(authority.trim_matches(['[', ']']).parse::<IpAddr>().ok()?, 443));
        let server = authority.parse().ok().or_else(ip);
        Self { client, server, lent, known: Mutex::default(), nodes: Mutex::default() }
    }

    /// Returns the addresses.
    pub async fn read(&self) -> Result<Arc<GuardedAddresses>, GuardedReadError> {
        // Concurrent calls wait for one read.
        let mut cached = self.known.lock().await;
        let age = cached.as_ref().map(|(read_at, _)| read_at.elapsed());
        if let Some((_, guarded)) = cached.as_ref().filter(|_| age.is_some_and(|age| age < MAX_FRESH_AGE)) {
            return Ok(Arc::clone(guarded));
        }
        let now = Instant::now();
        match self.read_all().await {
            Ok(guarded) => {
                let guarded = Arc::new(guarded);
                *cached = Some((now, Arc::clone(&guarded)));
                Ok(guarded)
            }
            Err(error) => {
                tracing::warn!(
                    error = chain(&error),
                    "addresses of the API server, of kube-system and of nodes not read"
                );
                let old = cached.as_ref().filter(|_| age.is_some_and(|age| age < MAX_USABLE_AGE));
                old.map(|(_, guarded)| Arc::clone(guarded)).ok_or(GuardedReadError(error))
            }
        }
    }

    async fn read_all(&self) -> Result<GuardedAddresses, CallError> {
        let mut guarded = GuardedAddresses {
            nodes: self.nodes().await?,
            allowed_ranges: self.lent.clone(),
            ..GuardedAddresses::default()
        };
        guarded.endpoints.extend(self.server);
        let services = |namespace: &str| Api::<Service>::namespaced(self.client.clone(), namespace);
        add_each(services(SYSTEM_NAMESPACE), ListParams::default(), &mut guarded, add_service).await?;
        let server_services = services(SERVER_NAMESPACE);
        let service =
            call(|| "reading Service default/kubernetes".to_owned(), server_services.get_opt("kubernetes")).await?;
        if let Some(service) = &service {
            add_service(service, &mut guarded);
        }
        match self.add_slices(&mut guarded).await {
            Err(error) if error.code() == Some(404) => self.add_all_endpoints(&mut guarded).await?,
            result => result?,
        }
        Ok(guarded)
    }

    /// Adds the endpoints of Services, of every family of addresses.
    async fn add_slices(&self, guarded: &mut GuardedAddresses) -> Result<(), CallError> {
        let slices = |namespace: &str| Api::<EndpointSlice>::namespaced(self.client.clone(), namespace);
        add_each(slices(SYSTEM_NAMESPACE), ListParams::default(), guarded, add_slice).await?;
        add_each(slices(SERVER_NAMESPACE), ListParams::default().labels(SERVER_SLICES_SELECTOR), guarded, add_slice)
            .await
    }

    /// Adds the endpoints of Services on servers without slices (Kubernetes 1.20).
    async fn add_all_endpoints(&self, guarded: &mut GuardedAddresses) -> Result<(), CallError> {
        let endpoints = |namespace: &str| Api::<Endpoints>::namespaced(self.client.clone(), namespace);
        add_each(endpoints(SYSTEM_NAMESPACE), ListParams::default(), guarded, add_endpoints).await?;
        let server_endpoints = endpoints(SERVER_NAMESPACE);
        let endpoints =
            call(|| "reading Endpoints default/kubernetes".to_owned(), server_endpoints.get_opt("kubernetes")).await?;
        if let Some(endpoints) = &endpoints {
            add_endpoints(endpoints, guarded);
        }
        Ok(())
    }

    /// Returns the addresses of nodes, of every kind.
    async fn nodes(&self) -> Result<HashSet<IpAddr>, CallError> {
        let mut nodes = self.nodes.lock().await;
        if let Some((_, known)) = nodes.as_ref().filter(|(read_at, _)| read_at.elapsed() < MAX_NODES_AGE) {
            return Ok(known.clone());
        }
        let (now, mut read) = (Instant::now(), GuardedAddresses::default());
        add_each(Api::<Node>::all(self.client.clone()), ListParams::default(), &mut read, add_node).await?;
        *nodes = Some((now, read.nodes.clone()));
        Ok(read.nodes)
    }
}

/// Adds every object of a list, with one page in memory at a time.
async fn add_each<K>(
    api: Api<K>,
    params: ListParams,
    guarded: &mut GuardedAddresses,
    add: fn(&K, &mut GuardedAddresses),
) -> Result<(), CallError>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let listing = || format!("listing {}", K::plural(&()));
    for_each_listed(listing, &api, params, |object| add(&object, guarded)).await
}

/// Adds the addresses of a node, without names of hosts.
fn add_node(node: &Node, guarded: &mut GuardedAddresses) {
    let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    guarded.nodes.extend(addresses.filter_map(|address| address.address.parse::<IpAddr>().ok()));
}

fn add_service(service: &Service, guarded: &mut GuardedAddresses) {
    let spec = service.spec.iter();
    let addresses = spec.flat_map(|spec| {
        let others = [&spec.cluster_ips, &spec.external_ips].into_iter().flatten().flatten();
        others.chain(&spec.cluster_ip).chain(&spec.load_balancer_ip)
    });
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = balancer.and_then(|balancer| balancer.ingress.as_ref()).into_iter().flatten();
    let ingress = ingress.filter_map(|ingress| ingress.ip.as_ref());
    // A Service without an address has `None`, which is not parsed.
    guarded.hosts.extend(addresses.chain(ingress).filter_map(|ip| ip.parse::<IpAddr>().ok()));
}

/// Adds the endpoints of a Service, of one family of addresses.
fn add_slice(slice: &EndpointSlice, guarded: &mut GuardedAddresses) {
    let ports: Vec<_> = slice.ports.iter().flatten().map(|port| port.port).collect();
    for endpoint in &slice.endpoints {
        add_addresses(&endpoint.addresses, &ports, guarded);
    }
}

/// Adds the endpoints of a Service, of its first family only, which is all that Endpoints have.
fn add_endpoints(endpoints: &Endpoints, guarded: &mut GuardedAddresses) {
    for subset in endpoints.subsets.iter().flatten() {
        let ports: Vec<_> = subset.ports.iter().flatten().map(|port| Some(port.port)).collect();
        let addresses = subset.addresses.iter().chain(&subset.not_ready_addresses).flatten();
        add_addresses(addresses.map(|address| &address.ip), &ports, guarded);
    }
}

/// Adds addresses with these ports. A port without a number stands for all ports, and so do no ports.
fn add_addresses<'a>(
    addresses: impl IntoIterator<Item = &'a String>,
    ports: &[Option<i32>],
    guarded: &mut GuardedAddresses,
) {
    let is_whole = ports.is_empty() || ports.contains(&None);
    for ip in addresses.into_iter().filter_map(|address| address.parse::<IpAddr>().ok()) {
        let ports = ports.iter().flatten().filter_map(|port| u16::try_from(*port).ok());
        guarded.endpoints.extend(ports.map(|port| SocketAddr::new(ip, port)));
        guarded.hosts.extend(is_whole.then_some(ip));
    }
}

#[cfg(test)]
mod tests {
    use hyper::http;
    use kube::client::Body;
    use nudge_core::outbound::refusal;
    use serde_json::{Value, json};
    use tower::service_fn;

    use super::*;

    /// The answers of an API server, by path.
    type Answers = Arc<std::sync::Mutex<Value>>;

    /// Returns an API server with neither Services nor slices, whose own Service has Endpoints.
    fn answers() -> Answers {
        let endpoints = json!({"subsets": [{"addresses": [{"ip": "10.9.0.1"}], "ports": [{"port": 6443}]}]});
        Arc::new(std::sync::Mutex::new(json!({
            "/api/v1/nodes": {"items": []},
            "/api/v1/namespaces/default/services/kubernetes": {"metadata": {}},
            "/api/v1/namespaces/kube-system/services": {"items": []},
            "/api/v1/namespaces/kube-system/endpoints": {"items": []},
            "/api/v1/namespaces/default/endpoints/kubernetes": endpoints,
        })))
    }

    fn guard(answers: &Answers) -> GuardedReader {
        let answers = Arc::clone(answers);
        let service = service_fn(move |request: http::Request<Body>| {
            let found = answers.lock().unwrap().get(request.uri().path()).map(Value::to_string);
            async move {
                let (code, body) = found.map_or((404, "404 page not found".to_owned()), |body| (200, body));
                let response = http::Response::builder().status(code).body(Body::from(body.into_bytes()));
                response.map_err(Box::<dyn std::error::Error + Send + Sync>::from)
            }
        });
        GuardedReader::new(Client::new(service, "ns"), "https://10.0.0.1", Vec::new())
    }

    fn refuses(guarded: &GuardedAddresses, address: &str) -> bool {
        refusal(address.parse().unwrap(), guarded).is_some()
    }

    #[tokio::test]
    async fn slices_of_every_family_say_what_stands_behind_services_and_on_old_servers_endpoints() {
        let answers = answers();
        let old = guard(&answers).read().await.unwrap();
        assert!(refuses(&old, "10.9.0.1:6443") && !refuses(&old, "10.1.0.1:6443"));
        for (namespace, network) in [("default", 1), ("kube-system", 2)] {
            let path = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
            let of = |kind: &str, ip: String| json!({"addressType": kind, "endpoints": [{"addresses": [ip]}], "ports": [{"port": 6443}]});
            let slices = [of("IPv4", format!("10.{network}.0.1")), of("IPv6", format!("fd00:{network}::1"))];
            answers.lock().unwrap()[path] = json!({"items": slices});
        }
        let new = guard(&answers).read().await.unwrap();
        for behind in ["10.1.0.1:6443", "[fd00:1::1]:6443", "10.2.0.1:6443", "[fd00:2::1]:6443"] {
            assert!(refuses(&new, behind), "{behind}");
        }
        assert!(!refuses(&new, "10.1.0.1:443") && !refuses(&new, "10.9.0.1:6443"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_node_is_known_within_90_s() {
        let answers = answers();
        let guard = guard(&answers);
        assert!(!refuses(&guard.read().await.unwrap(), "10.3.0.1:10250"));
        let node = json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.3.0.1"}]}});
        answers.lock().unwrap()["/api/v1/nodes"] = json!({"items": [node]});
        for _ in 0..9 {
            tokio::time::sleep(Duration::from_secs(10)).await;
            guard.read().await.unwrap();
        }
        assert!(refuses(&guard.read().await.unwrap(), "10.3.0.1:10250"));
    }

    #[test]
    fn all_addresses_of_a_service_and_what_stands_behind_it() {
        let mut guarded = GuardedAddresses::default();
        let service = json!({
            "spec": {"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1", "fd00::1"], "externalIPs": ["203.0.113.1"]},
            "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.2"}, {"hostname": "a.example.com"}]}}
        });
        add_service(&serde_json::from_value(service).unwrap(), &mut guarded);
        add_service(&serde_json::from_value(json!({"spec": {"clusterIP": "None"}})).unwrap(), &mut guarded);
        let endpoints = json!({"subsets": [
            {"addresses": [{"ip": "10.1.0.1"}], "notReadyAddresses": [{"ip": "10.1.0.2"}], "ports": [{"port": 53}, {"port": 9153}]},
            {"addresses": [{"ip": "10.1.0.3"}]}]});
        add_endpoints(&serde_json::from_value(endpoints).unwrap(), &mut guarded);
        let slice = |ip: &str, ports: Value| json!({"endpoints": [{"addresses": [ip], "conditions": {"ready": false}}], "ports": ports});
        for slice in [
            slice("fd00::2", json!([{"port": 53}])),
            slice("fd00::3", json!([{"name": "any"}])),
            slice("fd00::4", json!(null)),
            slice("a.example.com", json!(null)),
        ] {
            add_slice(&serde_json::from_value(slice).unwrap(), &mut guarded);
        }
        let hosts = ["10.0.0.1", "fd00::1", "203.0.113.1", "203.0.113.2", "10.1.0.3", "fd00::3", "fd00::4"];
        assert_eq!(guarded.hosts, hosts.map(|ip| ip.parse().unwrap()).into());
        let behind = ["10.1.0.1:53", "10.1.0.1:9153", "10.1.0.2:53", "10.1.0.2:9153", "[fd00::2]:53"];
        assert_eq!(guarded.endpoints, behind.map(|it| it.parse().unwrap()).into());
        let node = json!({"status": {"addresses": [
            {"type": "InternalIP", "address": "192.168.1.1"}, {"type": "InternalIP", "address": "fd00::1"},
            {"type": "ExternalIP", "address": "203.0.113.9"}, {"type": "Hostname", "address": "node-1"}]}});
        add_node(&serde_json::from_value(node).unwrap(), &mut guarded);
        assert_eq!(guarded.nodes, ["192.168.1.1", "fd00::1", "203.0.113.9"].map(|ip| ip.parse().unwrap()).into());
    }
}
