//! The addresses of the API server and of kube-system, which nothing is sent to that a user has asked for. While they are not known, none is sent anywhere.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Endpoints, Service};
use kube::api::ListParams;
use kube::{Api, Client};
use nudge_core::outbound::Guarded;
use nudge_protocol::error_chain::chain;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::call::{CallError, call};

/// For how long what was read holds.
const FRESH: Duration = Duration::from_secs(30);
/// For how long it holds where it can't be read again.
const STALE: Duration = Duration::from_mins(5);
/// Objects in one page of a list.
const PAGE: u32 = 200;
/// The most pages.
const PAGES: usize = 25;
/// Where the system's own Services are.
const SYSTEM: &str = "kube-system";

/// They can't be read.
#[derive(Debug, thiserror::Error)]
#[error(
    "it is not known which addresses are the API server's and kube-system's; apply the component again, with its Roles in kube-system and default"
)]
pub struct Unguarded(#[source] CallError);

/// What was read last.
pub struct Guard {
    client: Client,
    server: Option<SocketAddr>,
    known: Mutex<Option<(Instant, Arc<Guarded>)>>,
}

impl Guard {
    /// `server`: where the API server is, as this process reaches it.
    pub fn new(client: Client, server: &str) -> Self {
        let authority = server.split("://").nth(1).and_then(|rest| rest.split('/').next()).unwrap_or_default();
        let ip = || Some(SocketAddr::new(authority.trim_matches(['[', ']']).parse::<IpAddr>().ok()?, 443));
        Self { client, server: authority.parse().ok().or_else(ip), known: Mutex::default() }
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
                tracing::warn!(error = chain(&error), "addresses of the API server and of kube-system not read");
                let old = known.as_ref().filter(|_| age.is_some_and(|age| age < STALE));
                old.map(|(_, guarded)| Arc::clone(guarded)).ok_or(Unguarded(error))
            }
        }
    }

    async fn read(&self) -> Result<Guarded, CallError> {
        let mut guarded = Guarded::default();
        guarded.endpoints.extend(self.server);
        for service in self.list::<Service>().await? {
            add_service(&service, &mut guarded);
        }
        for endpoints in self.list::<Endpoints>().await? {
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

    async fn list<K>(&self) -> Result<Vec<K>, CallError>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        let api = Api::<K>::namespaced(self.client.clone(), SYSTEM);
        let (mut params, mut all) = (ListParams::default().limit(PAGE), Vec::new());
        for _ in 0..PAGES {
            let what = || format!("listing {} of {SYSTEM}", K::plural(&()));
            let page = call(what, api.list(&params)).await?;
            all.extend(page.items);
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => break,
            }
        }
        Ok(all)
    }
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
    use serde_json::json;

    use super::*;

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
    }
}
