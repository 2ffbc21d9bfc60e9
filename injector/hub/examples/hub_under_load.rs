//! The hub and one webhook with stand-ins for the API server, in their own process, so that their memory and CPU time
//! can be measured. `bench hub` starts it and sends it commands, one a line, on stdin.

#![allow(clippy::print_stdout, reason = "it answers on stdout")]

#[path = "../tests/hub/stand_in.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod stand_in;

use std::env;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ConfigMap;
use nudge_admission::{
    AdmissionMetrics, AdmissionServer, AdmissionSettings, IndexLookups, LookupError, Lookups, ReviewRequest, Right,
    Webhooks, guards,
};
use nudge_api::VersionedConfig;
use nudge_core::derived_keys::NoteKey;
use nudge_hub::{Settings, bind, serve};
use nudge_server::memory::limit_arenas;
use nudge_server::tls::server_config;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::stand_in::StandIn;

/// How long a review takes.
const REVIEW_DELAY: Duration = Duration::from_millis(3);

/// An API server that allows everything, at once.
struct Allowing;

impl Lookups for Allowing {
    async fn config(&self, _: &str, _: &str) -> Result<Option<VersionedConfig>, LookupError> {
        Ok(None)
    }

    async fn is_enabled(&self, _: &ReviewRequest, _: &str) -> Result<bool, LookupError> {
        Ok(true)
    }

    async fn is_terminating(&self, _: &str) -> Result<bool, LookupError> {
        Ok(false)
    }

    fn index(&self) -> &dyn IndexLookups {
        self
    }

    async fn config_map(&self, _: &ReviewRequest, _: &str, _: &str) -> Result<Option<ConfigMap>, LookupError> {
        Ok(None)
    }

    async fn may(&self, _: &ReviewRequest, _: &str, _: Right<'_>) -> Result<bool, LookupError> {
        Ok(true)
    }
}

impl IndexLookups for Allowing {
    fn subscribers(&self, _: &str, _: &str) -> Option<usize> {
        Some(0)
    }
}

/// Ends with its stdin.
fn main() -> Result<()> {
    let [pods, address] = [1, 2].map(|at| env::args().nth(at));
    let pods: usize = pods.context("how many pods?")?.parse()?;
    let address: SocketAddr = address.context("at which address?")?.parse()?;
    limit_arenas(2);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async move {
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        let keys = lines.next_line().await?.context("no certificate")?;
        let [certificate, key]: [String; 2] = serde_json::from_str(&keys)?;
        let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes())?];
        let key = any_supported_type(&PrivateKeyDer::from_pem_slice(key.as_bytes())?)?;
        let tls = Arc::new(server_config(Arc::new(SingleCertAndKey::from(CertifiedKey::new(chain, key))))?);
        let stand_in = StandIn::new(Settings::default(), pods, REVIEW_DELAY);
        let listener = bind(address)?;
        println!("{}", listener.local_addr()?);
        let settings = AdmissionSettings::new((Ipv4Addr::LOCALHOST, 0).into());
        let webhooks = || -> BoxFuture<'static, Result<Webhooks>> {
            let key = Arc::new(NoteKey::new(b"key"));
            Box::pin(async { Ok(guards(&Arc::new(Allowing), key)) })
        };
        let admission = AdmissionServer::start(settings, Arc::clone(&tls), AdmissionMetrics::default(), webhooks);
        let admission = admission.await?;
        println!("{}", admission.address());
        tokio::spawn(serve(listener, tls, Arc::clone(&stand_in.hub), std::future::pending()));
        while let Some(line) = lines.next_line().await? {
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["activate", version, bytes] => {
                    // The content differs each time: an agent is never sent content that it already has.
                    let value = format!("{version:x>0$}", bytes.parse::<usize>()?).into_bytes();
                    stand_in.activate_as(version.parse()?, &stand_in.stored.add(version, &[&[("value", value)]]));
                }
                ["reviews"] => {
                    let (all, most) = stand_in.reviews.counted();
                    println!("{all} {most}");
                }
                _ => {}
            }
        }
        Ok(())
    })
}
