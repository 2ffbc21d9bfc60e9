//! The addresses of the API server, of kube-system and of nodes, which nothing is sent to that a user has asked for. While they are not known,
//! none is sent anywhere.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Endpoints, Node, Service};
use kube::api::ListParams;
use kube::{Api, Client};
use nudge_core::outbound::{Guarded, Range};
use nudge_protocol::error_chain::chain;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::call::{CallError, call};

/// For how long what was read holds.
const FRESH: Duration = Duration::from_secs(30);
/// For how long it holds where it can't be read again.
const STALE: Duration = Duration::from_mins(5);
/// For how long nodes hold: there are many, and their addresses do not change.
const FRESH_NODES: Duration = Duration::from_mins(5);
/// Objects in one page of a list.
const PAGE: u32 = 200;
/// The most pages.
const PAGES: usize = 100;
/// Where the system's own Services are.
const SYSTEM: &str = "kube-system";

/// They can't be read.
#[derive(Debug, thiserror::Error)]
#[error(
    "it is not known which addresses are the API server's, kube-system's and those of nodes; apply the component again, with its ClusterRole, \
     and its Roles in kube-system and default"
)]
pub struct Unguarded(#[source] GuardError);

/// Why not.
#[derive(Debug, thiserror::Error)]
enum GuardError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("there are more {0} than Nudge reads (20,000)")]
    TooMany(String),
}

/// What was read last.
pub struct Guard {
    client: Client,
    server: Option<SocketAddr>,
    lent: Vec<Range>,
    known: Mutex<Option<(Instant, Arc<Guarded>)>>,
    nodes: Mutex<Option<(Instant, HashSet<IpAddr>)>>,
}

impl Guard {
    /// `server`: where the API server is, as this process reaches it. `lent`: where nodes may be asked.
    pub fn new(client: Client, server: &str, lent: Vec<Range>) -> Self {
        let authority = server.split("://").nth(1).and_then(|rest| rest.split('/').next()).unwrap_or_default();
        let ip = || Some(SocketAddr::new(authority.trim_matches(['[', ']']).parse::<IpAddr>().ok()?, 443));
        let server = authority.parse().ok().or_else(ip);
        Self { client, server, lent, known: Mutex::default(), nodes: Mutex::default() }
    }

    /// The addresses.
    pub async fn now(&self) -> Result<Arc<Guarded>, Unguarded> {
        // One reads for all.
        let mut known = self.known.lock().await;
        let age = known.as_ref().map(|(at, _)| at.elapsed());
        if let Some((_, guarded)) = known.as_ref().filter(|_| age.is_some_and(|age| age < FRESH)) {
            return Ok(Arc::clone(guarded));
        }
        let now = Instant::now();
        match self.read().await {
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
                let old = known.as_ref().filter(|_| age.is_some_and(|age| age < STALE));
                old.map(|(_, guarded)| Arc::clone(guarded)).ok_or(Unguarded(error))
            }
        }
    }

    async fn read(&self) -> Result<Guarded, GuardError> {
        let mut guarded = Guarded { nodes: self.nodes().await?, lent: self.lent.clone(), ..Guarded::default() };
        guarded.endpoints.extend(self.server);
        let client = || self.client.clone();
        for service in list::<Service>(Api::namespaced(client(), SYSTEM)).await? {
            add_service(&service, &mut guarded);
        }
        for endpoints in list::<Endpoints>(Api::namespaced(client(), SYSTEM)).await? {
            add_endpoints(&endpoints, &mut guarded);
        }
        let services = Api::<Service>::namespaced(self.client.clone(), "default");
        let endpoints = Api::<Endpoints>::namespaced(self.client.clone(), "default");
        let found = call(|| "reading Service default/kubernetes".to_owned(), services.get_opt("kubernetes")).await?;
        if let Some(service) = found {
            add_service(&service, &mut guarded);
        }
        let found = call(|| "reading Endpoints default/kubernetes".to_owned(), endpoints.get_opt("kubernetes")).await?;
        if let Some(endpoints) = found {
            add_endpoints(&endpoints, &mut guarded);
        }
        Ok(guarded)
    }

    /// The addresses of nodes, of every kind.
    async fn nodes(&self) -> Result<HashSet<IpAddr>, GuardError> {
        let mut nodes = self.nodes.lock().await;
        if let Some((_, known)) = nodes.as_ref().filter(|(at, _)| at.elapsed() < FRESH_NODES) {
            return Ok(known.clone());
        }
        let all = list::<Node>(Api::all(self.client.clone())).await?;
        let addresses: HashSet<IpAddr> = all.iter().flat_map(addresses_of).collect();
        *nodes = Some((Instant::now(), addresses.clone()));
        Ok(addresses)
    }
}

async fn list<K>(api: Api<K>) -> Result<Vec<K>, GuardError>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let (mut params, mut all) = (ListParams::default().limit(PAGE), Vec::new());
    for _ in 0..PAGES {
        let what = || format!("listing {}", K::plural(&()));
        let page = call(what, api.list(&params)).await?;
        all.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(all),
        }
    }
    // Of a part of them, nobody knows what the others are.
    Err(GuardError::TooMany(K::plural(&()).into_owned()))
}

/// Names of hosts among them are no addresses.
fn addresses_of(node: &Node) -> impl Iterator<Item = IpAddr> + '_ {
    let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    addresses.filter_map(|address| address.address.parse().ok())
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

/// What stands behind it.
fn add_endpoints(endpoints: &Endpoints, guarded: &mut Guarded) {
    for subset in endpoints.subsets.iter().flatten() {
        let addresses = subset.addresses.iter().chain(&subset.not_ready_addresses).flatten();
        for ip in addresses.filter_map(|address| address.ip.parse::<IpAddr>().ok()) {
            let ports = subset.ports.iter().flatten().filter_map(|port| u16::try_from(port.port).ok());
            guarded.endpoints.extend(ports.map(|port| SocketAddr::new(ip, port)));
        }
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
            "/api/v1/namespaces/kube-system/services": {"items": []},
            "/api/v1/namespaces/kube-system/endpoints": {"items": []},
            "/api/v1/namespaces/default/endpoints/kubernetes": endpoints,
        })))
    }

    fn guard(answers: &Answers) -> Guard {
        let answers = Arc::clone(answers);
        let service = service_fn(move |request: http::Request<Body>| {
            let found = answers.lock().unwrap().get(request.uri().path()).map(Value::to_string);
            async move {
                let (code, body) = found.map_or((404, "404 page not found".to_owned()), |body| (200, body));
                let response = http::Response::builder().status(code).body(Body::from(body.into_bytes()));
                response.map_err(Box::<dyn std::error::Error + Send + Sync>::from)
            }
        });
        Guard::new(Client::new(service, "ns"), "https://10.0.0.1", Vec::new())
    }

    fn refuses(guarded: &Guarded, address: &str) -> bool {
        refusal(address.parse().unwrap(), guarded).is_some()
    }

    #[tokio::test]
    async fn slices_of_every_family_say_what_stands_behind_services_and_on_old_servers_endpoints() {
        let answers = answers();
        let old = guard(&answers).now().await.unwrap();
        assert!(refuses(&old, "10.9.0.1:6443") && !refuses(&old, "10.1.0.1:6443"));
        for (namespace, network) in [("default", 1), ("kube-system", 2)] {
            let path = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
            let of = |kind: &str, ip: String| json!({"addressType": kind, "endpoints": [{"addresses": [ip]}], "ports": [{"port": 6443}]});
            let slices = [of("IPv4", format!("10.{network}.0.1")), of("IPv6", format!("fd00:{network}::1"))];
            answers.lock().unwrap()[path] = json!({"items": slices});
        }
        let new = guard(&answers).now().await.unwrap();
        for behind in ["10.1.0.1:6443", "[fd00:1::1]:6443", "10.2.0.1:6443", "[fd00:2::1]:6443"] {
            assert!(refuses(&new, behind), "{behind}");
        }
        assert!(!refuses(&new, "10.1.0.1:443") && !refuses(&new, "10.9.0.1:6443"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_node_is_known_within_90_s() {
        let answers = answers();
        let guard = guard(&answers);
        assert!(!refuses(&guard.now().await.unwrap(), "10.3.0.1:10250"));
        let node = json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.3.0.1"}]}});
        answers.lock().unwrap()["/api/v1/nodes"] = json!({"items": [node]});
        for _ in 0..9 {
            tokio::time::sleep(Duration::from_secs(10)).await;
            guard.now().await.unwrap();
        }
        assert!(refuses(&guard.now().await.unwrap(), "10.3.0.1:10250"));
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
        let endpoints = json!({"subsets": [{
            "addresses": [{"ip": "10.1.0.1"}], "notReadyAddresses": [{"ip": "10.1.0.2"}], "ports": [{"port": 53}, {"port": 9153}]}]});
        add_endpoints(&serde_json::from_value(endpoints).unwrap(), &mut guarded);
        let hosts = ["10.0.0.1", "fd00::1", "203.0.113.1", "203.0.113.2"].map(|ip| ip.parse().unwrap());
        assert_eq!(guarded.hosts, hosts.into());
        let behind = ["10.1.0.1:53", "10.1.0.1:9153", "10.1.0.2:53", "10.1.0.2:9153"].map(|it| it.parse().unwrap());
        assert_eq!(guarded.endpoints, behind.into());
        let node = json!({"status": {"addresses": [
            {"type": "InternalIP", "address": "192.168.1.1"}, {"type": "InternalIP", "address": "fd00::1"},
            {"type": "ExternalIP", "address": "203.0.113.9"}, {"type": "Hostname", "address": "node-1"}]}});
        let node: Node = serde_json::from_value(node).unwrap();
        assert_eq!(
            addresses_of(&node).map(|ip| ip.to_string()).collect::<Vec<_>>(),
            ["192.168.1.1", "fd00::1", "203.0.113.9"]
        );
    }
}
