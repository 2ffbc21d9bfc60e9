//! Addresses that nothing is sent to, by any name.

use std::net::UdpSocket;
use std::sync::Arc;

use anyhow::{Result, ensure};
use nudge_oci::{OciError, Pick, Registry};
use nudge_outbound::{ConnectError, HttpError, Reach};
use rustls::RootCertStore;

use crate::artifacts::{archive, gzip};
use crate::asking::{HIDDEN, all, anywhere, plain, refused, tag};
use crate::certificate::Certificate;
use crate::stand_in::{Content, StandIn, answer};

fn is_refused(error: &OciError) -> bool {
    matches!(error, OciError::Http { source: HttpError::Connect(ConnectError::Refused { .. }), .. })
}

fn outside() -> Registry {
    Registry::new(Reach::Outside(Arc::default()), Arc::new(RootCertStore::empty()))
}

#[tokio::test]
async fn a_registry_is_not_this_machine_nor_where_clouds_give_credentials() -> Result<()> {
    let server = StandIn::start(|_| answer(200, &[], HIDDEN)).await?;
    let wanted = tag("1");
    for host in [server.host(), server.by_name(), "169.254.169.254".to_owned()] {
        let error = refused(&outside(), &all(&plain(&host)?, &wanted)).await?;
        ensure!(is_refused(&error), "{host}: {error}");
    }
    ensure!(server.asked().is_empty());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_registry_that_does_not_answer_is_not_waited_for() -> Result<()> {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let error = refused(&anywhere(), &all(&plain(&silent.local_addr()?.to_string())?, &tag("1"))).await?;
    ensure!(matches!(error, OciError::Http { source: HttpError::TooSlow(_), .. }), "{error:?}");
    Ok(())
}

/// Returns the address of this machine in its network, if it has a network.
fn own_address() -> Option<String> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent: it is only looked up which way it would be.
    socket.connect("192.0.2.1:9").ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then(|| ip.to_string())
}

#[tokio::test]
async fn neither_is_its_realm_nor_its_storage() -> Result<()> {
    let Some(own) = own_address() else { return Ok(()) };
    let certificate = Certificate::new()?;
    let inside = StandIn::start_at("127.0.0.1", Some(certificate.server()?), |_| answer(200, &[], HIDDEN)).await?;
    let content = Content::of_archive(&gzip(&archive(&[("a", "1")])?)?);
    for host in [inside.host(), inside.by_name(), "169.254.169.254".to_owned()] {
        let challenge = format!("Bearer realm=\"https://{host}/token\"");
        let realm = StandIn::start_at(&own, None, move |_| answer(401, &[("www-authenticate", &challenge)], HIDDEN));
        let (location, content) = (format!("https://{host}/blob"), content.clone());
        let storage = StandIn::start_at(&own, None, move |asked| {
            let is_blob = asked.path.contains("/blobs/");
            if is_blob { answer(307, &[("location", &location)], HIDDEN) } else { content.answer(asked) }
        });
        for server in [realm.await?, storage.await?] {
            let wanted: Pick = tag("1.0.0");
            let error = refused(&outside(), &all(&plain(&server.host())?, &wanted)).await?;
            ensure!(is_refused(&error) && !server.asked().is_empty(), "{host}: {error:?}");
        }
    }
    ensure!(inside.asked().is_empty());
    Ok(())
}
