//! The addresses of the API server, of kube-system and of nodes, which nothing is sent to that a user has asked for. While they are not known,
//! none is sent anywhere.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Endpoints, Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ListParams;
use kube::{Api, Client};
use nudge_core::outbound::{Guarded, Range};
use nudge_protocol::error_chain::chain;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::call::{CallError, call};

/// For how long what was read holds.
const REREAD_AFTER: Duration = Duration::from_secs(30);
/// For how long it holds where it can't be read again.
const UNUSABLE_AFTER: Duration = Duration::from_mins(5);
/// For how long nodes hold: there may be many.
const FRESH_NODES: Duration = Duration::from_mins(1);
/// Objects in one page of a list.
const PAGE: u32 = 200;
/// The most pages.
const MAX_PAGES: usize = 100;
/// Where the system's own Services are.
const SYSTEM: &str = "kube-system";
/// Where the API server's own Service is.
const SERVER_NAMESPACE: &str = "default";
/// Slices of the API server's own Service.
const SERVER_SLICES: &str = "kubernetes.io/service-name=kubernetes";

/// The guarded addresses can't be read.
#[derive(Debug, thiserror::Error)]
#[error(
    "Nudge does not know the addresses of the API server, of kube-system and of nodes; apply the component again, with its ClusterRole, \
     and its Roles in kube-system and default"
)]
pub struct GuardedReadError(#[source] GuardError);

/// Why the guarded addresses can't be read.
#[derive(Debug, thiserror::Error)]
enum GuardError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("there are more {0} than Nudge reads (20,000)")]
    TooMany(String),
}

/// What was read last.
pub struct GuardedReader {
    client: Client,
    server: Option<SocketAddr>,
    lent: Vec<Range>,
    known: Mutex<Option<(Instant, Arc<Guarded>)>>,
    nodes: Mutex<Option<(Instant, HashSet<IpAddr>)>>,
}

impl GuardedReader {
    /// `server`: where the API server is, as this process reaches it. `lent`: where nodes may be asked.
    pub fn new(client: Client, server: &str, lent: Vec<Range>) -> Self {
        let authority = server.split("://").nth(1).and_then(|rest| rest.split('/').next()).unwrap_or_default();
        let ip = || Some(SocketAddr::new(authority.trim_matches(['[', ']']).parse::<IpAddr>().ok()?, 443));
        let server = authority.parse().ok().or_else(ip);
        Self { client, server, lent, known: Mutex::default(), nodes: Mutex::default() }
    }

    /// The addresses.
    pub async fn read(&self) -> Result<Arc<Guarded>, GuardedReadError> {
        // One reads for all.
        let mut known = self.known.lock().await;
        let age = known.as_ref().map(|(at, _)| at.elapsed());
        if let Some((_, guarded)) = known.as_ref().filter(|_| age.is_some_and(|age| age < REREAD_AFTER)) {
            return Ok(Arc::clone(guarded));
        }
        let now = Instant::now();
        match self.read_all().await {
            Ok(guarded) => {
                let guarded = Arc::new(guarded);
                *known = Some((now, Arc::clone(&guarded)));
                Ok(guarded)
            }
            Err(error) => {
                tracing::warn!(
                    error = chain(&error),
                    "addresses of the API server, of kube-system and of nodes not read"
                );
                let old = known.as_ref().filter(|_| age.is_some_and(|age| age < UNUSABLE_AFTER));
                old.map(|(_, guarded)| Arc::clone(guarded)).ok_or(GuardedReadError(error))
            }
        }
    }

    async fn read_all(&self) -> Result<Guarded, GuardError> {
        let mut guarded = Guarded { nodes: self.nodes().await?, lent: self.lent.clone(), ..Guarded::default() };
        guarded.endpoints.extend(self.server);
        let services = |namespace: &str| Api::<Service>::namespaced(self.client.clone(), namespace);
        each(services(SYSTEM), ListParams::default(), &mut guarded, add_service).await?;
        let own = services(SERVER_NAMESPACE);
        let found = call(|| "reading Service default/kubernetes".to_owned(), own.get_opt("kubernetes")).await?;
        if let Some(service) = found {
            add_service(&service, &mut guarded);
        }
        match self.slices(&mut guarded).await {
            Err(GuardError::Call(error)) if error.code() == 404 => self.endpoints(&mut guarded).await?,
            read => read?,
        }
        Ok(guarded)
    }

    /// Adds what stands behind Services, of every family of addresses.
    async fn slices(&self, guarded: &mut Guarded) -> Result<(), GuardError> {
        let slices = |namespace: &str| Api::<EndpointSlice>::namespaced(self.client.clone(), namespace);
        each(slices(SYSTEM), ListParams::default(), guarded, add_slice).await?;
        each(slices(SERVER_NAMESPACE), ListParams::default().labels(SERVER_SLICES), guarded, add_slice).await
    }

    /// Adds the same on servers without slices: Kubernetes 1.20.
    async fn endpoints(&self, guarded: &mut Guarded) -> Result<(), GuardError> {
        let endpoints = |namespace: &str| Api::<Endpoints>::namespaced(self.client.clone(), namespace);
        each(endpoints(SYSTEM), ListParams::default(), guarded, add_endpoints).await?;
        let own = endpoints(SERVER_NAMESPACE);
        let found = call(|| "reading Endpoints default/kubernetes".to_owned(), own.get_opt("kubernetes")).await?;
        if let Some(endpoints) = found {
            add_endpoints(&endpoints, guarded);
        }
        Ok(())
    }

    /// The addresses of nodes, of every kind.
    async fn nodes(&self) -> Result<HashSet<IpAddr>, GuardError> {
        let mut nodes = self.nodes.lock().await;
        if let Some((_, known)) = nodes.as_ref().filter(|(at, _)| at.elapsed() < FRESH_NODES) {
            return Ok(known.clone());
        }
        let (now, mut read) = (Instant::now(), Guarded::default());
        each(Api::<Node>::all(self.client.clone()), ListParams::default(), &mut read, add_node).await?;
        *nodes = Some((now, read.nodes.clone()));
        Ok(read.nodes)
    }
}

/// Adds every object of a list. One page is in memory at a time.
async fn each<K>(
    api: Api<K>,
    params: ListParams,
    guarded: &mut Guarded,
    add: fn(&K, &mut Guarded),
) -> Result<(), GuardError>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let mut params = params.limit(PAGE);
    for _ in 0..MAX_PAGES {
        let what = || format!("listing {}", K::plural(&()));
        let page = call(what, api.list(&params)).await?;
        for object in &page.items {
            add(object, guarded);
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(()),
        }
    }
    // Of a part of them, nobody knows what the others are.
    Err(GuardError::TooMany(K::plural(&()).into_owned()))
}

/// All of its addresses. Names of hosts among them are none.
fn add_node(node: &Node, guarded: &mut Guarded) {
    let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    guarded.nodes.extend(addresses.filter_map(|address| address.address.parse::<IpAddr>().ok()));
}

/// All addresses by which it is reached.
fn add_service(service: &Service, guarded: &mut Guarded) {
    let spec = service.spec.iter();
    let own = spec.flat_map(|spec| {
        let more = [&spec.cluster_ips, &spec.external_ips].into_iter().flatten().flatten();
        more.chain(&spec.cluster_ip).chain(&spec.load_balancer_ip)
    });
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = balancer.and_then(|balancer| balancer.ingress.as_ref()).into_iter().flatten();
    let ingress = ingress.filter_map(|ingress| ingress.ip.as_ref());
    // A Service without an address says None.
    guarded.hosts.extend(own.chain(ingress).filter_map(|ip| ip.parse::<IpAddr>().ok()));
}

/// What stands behind a Service, of one family of addresses.
fn add_slice(slice: &EndpointSlice, guarded: &mut Guarded) {
    let ports: Vec<_> = slice.ports.iter().flatten().map(|port| port.port).collect();
    for endpoint in &slice.endpoints {
        add_behind(&endpoint.addresses, &ports, guarded);
    }
}

/// What stands behind a Service, of its first family alone, which is all that Endpoints have.
fn add_endpoints(endpoints: &Endpoints, guarded: &mut Guarded) {
    for subset in endpoints.subsets.iter().flatten() {
        let ports: Vec<_> = subset.ports.iter().flatten().map(|port| Some(port.port)).collect();
        let addresses = subset.addresses.iter().chain(&subset.not_ready_addresses).flatten();
        add_behind(addresses.map(|address| &address.ip), &ports, guarded);
    }
}

/// Addresses at these ports. One that is not named stands for all of them, and so does none.
fn add_behind<'a>(addresses: impl IntoIterator<Item = &'a String>, ports: &[Option<i32>], guarded: &mut Guarded) {
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

    /// What an API server answers, by paths.
    type Answers = Arc<std::sync::Mutex<Value>>;

    /// An API server with neither Services nor slices, where Endpoints stand behind its own Service.
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

    fn refuses(guarded: &Guarded, address: &str) -> bool {
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
        let mut guarded = Guarded::default();
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
