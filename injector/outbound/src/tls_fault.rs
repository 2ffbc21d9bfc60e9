//! The faults of TLS handshakes, each with its cause and remedy. No message repeats text of a certificate.

use rustls::{AlertDescription as Alert, CertificateError as Certificate, Error};

const OTHER: &str = "its certificate is not valid, for a reason that is rare: see it with openssl s_client -showcerts";

/// A fault whose remedy is to give the certificate of an authority.
macro_rules! trusted {
    ($why:literal) => {
        concat!($why, ": set the authority's certificate in ca of the source, in ca.crt of the Secret of an analysis, or with --git-ca-file")
    };
}

/// Returns the cause of an error, and the remedy.
pub(crate) fn describe(error: &Error) -> &'static str {
    match error {
        Error::InvalidCertificate(error) => describe_certificate(error),
        Error::InvalidMessage(_) => {
            "the server does not speak TLS: check the port, and whether the address must begin with http://"
        }
        Error::PeerIncompatible(_) | Error::AlertReceived(Alert::ProtocolVersion | Alert::HandshakeFailure) => {
            "the server has no version or cipher of TLS in common with Nudge: let it offer TLS 1.2 or 1.3"
        }
        Error::AlertReceived(Alert::UnrecognisedName) => "the server does not know this host: check its name",
        Error::AlertReceived(Alert::CertificateRequired | Alert::BadCertificate) => {
            "the server wants a certificate of its clients, and Nudge has none"
        }
        Error::NoCertificatesPresented => "the server shows no certificate",
        _ => "the server breaks the rules of TLS",
    }
}

fn describe_certificate(error: &Certificate) -> &'static str {
    match error {
        Certificate::Expired | Certificate::ExpiredContext { .. } => "its certificate has expired: renew it",
        Certificate::NotValidYet | Certificate::NotValidYetContext { .. } => {
            "its certificate is not valid yet: check the clocks of the server and of the node"
        }
        Certificate::NotValidForName | Certificate::NotValidForNameContext { .. } => {
            "its certificate is not for this host: name the server as its certificate does (subjectAltName)"
        }
        Certificate::UnknownIssuer => trusted!("the authority of its certificate is not trusted"),
        Certificate::BadSignature => {
            trusted!("its certificate is not signed by the authority that it names, which may have a new key")
        }
        Certificate::Revoked => "its authority has revoked its certificate: give the server another one",
        Certificate::BadEncoding => "its certificate can't be read: make a new one",
        Certificate::UnhandledCriticalExtension => {
            "its certificate has a critical extension that Nudge does not know: make one without it"
        }
        Certificate::UnsupportedSignatureAlgorithmContext { .. }
        | Certificate::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "its certificate is signed in a way that is not safe any more, such as by SHA-1: make a new one"
        }
        Certificate::InvalidPurpose | Certificate::InvalidPurposeContext { .. } => {
            "its certificate is not for servers: make it with the extended key usage serverAuth"
        }
        Certificate::Other(other) => other.0.downcast_ref().map_or(OTHER, describe_chain),
        _ => OTHER,
    }
}

fn describe_chain(error: &webpki::Error) -> &'static str {
    match error {
        webpki::Error::CaUsedAsEndEntity => {
            "its certificate is that of an authority itself: make one for the server (openssl req -x509 -addext \
             basicConstraints=critical,CA:FALSE), and give it in ca, ca.crt or --git-ca-file"
        }
        webpki::Error::EndEntityUsedAsCa => "its certificate is signed by one that is not an authority: make a new one",
        webpki::Error::PathLenConstraintViolated => {
            "its certificate has more authorities above it than one of them allows: make a new one"
        }
        webpki::Error::NameConstraintViolation => {
            "its certificate is for a name that its authority may not sign: give the server another one"
        }
        webpki::Error::UnsupportedCertVersion => "its certificate is not of X.509 version 3: make a new one",
        _ => OTHER,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nudge_core::outbound::Address;
    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair, date_time_ymd,
    };
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
    use rustls::{RootCertStore, ServerConfig};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use crate::{ConnectError, Reach, connect};

    /// Returns the message about a server with this certificate if these authorities are trusted.
    async fn said(certificate: CertificateDer<'static>, key: &KeyPair, trusted: &[&CertificateDer<'static>]) -> String {
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = Address::parse(&format!("https://localhost:{}", listener.local_addr().unwrap().port())).unwrap();
        let serve = async {
            let (stream, _) = listener.accept().await.unwrap();
            // The client leaves.
            let _ = TlsAcceptor::from(Arc::new(config)).accept(stream).await;
        };
        let mut roots = RootCertStore::empty();
        for authority in trusted {
            roots.add((*authority).clone()).unwrap();
        }
        let roots = Arc::new(roots);
        let (connected, ()) = tokio::join!(connect(&address, &Reach::Anywhere, &roots), serve);
        match connected {
            Ok(_) => "good".to_owned(),
            Err(ConnectError::Tls { cause, .. }) => cause.to_owned(),
            Err(error) => panic!("{error}"),
        }
    }

    fn params(name: &str) -> CertificateParams {
        CertificateParams::new([name.to_owned()]).unwrap()
    }

    fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    }

    #[tokio::test]
    async fn every_cause_has_its_name_and_its_remedy() {
        let (ours, others, impostor) = (authority("ours"), authority("others"), authority("ours"));
        let key = KeyPair::generate().unwrap();
        let (good, other_name) = (params("localhost"), params("example.com"));
        let (mut expired, mut early, mut clients) = (params("localhost"), params("localhost"), params("localhost"));
        expired.not_after = date_time_ymd(2001, 1, 1);
        expired.not_before = date_time_ymd(2000, 1, 1);
        early.not_before = date_time_ymd(2990, 1, 1);
        early.not_after = date_time_ymd(2999, 1, 1);
        clients.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        for (params, trusted, parts) in [
            (&good, &ours, ["good", ""]),
            (&good, &others, ["authority of its certificate is not trusted", "in ca of the source"]),
            (&good, &impostor, ["not signed by the authority that it names", "in ca of the source"]),
            (&other_name, &ours, ["not for this host", "name the server as"]),
            (&expired, &ours, ["has expired", "renew it"]),
            (&early, &ours, ["not valid yet", "clocks"]),
            (&clients, &ours, ["not for servers", "serverAuth"]),
        ] {
            let certificate = params.clone().signed_by(&key, &ours).unwrap();
            let said = said(certificate.der().clone(), &key, &[trusted.der()]).await;
            assert!(parts.iter().all(|part| said.contains(part)), "{parts:?}: {said}");
        }
    }

    #[tokio::test]
    async fn a_certificate_that_signs_itself_is_good_unless_it_is_an_authority() {
        let key = KeyPair::generate().unwrap();
        let plain = params("localhost").self_signed(&key).unwrap();
        assert_eq!(said(plain.der().clone(), &key, &[plain.der()]).await, "good");
        let mut own_authority = params("localhost");
        own_authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let own_authority = own_authority.self_signed(&key).unwrap();
        for trusted in [vec![own_authority.der()], Vec::new()] {
            let said = said(own_authority.der().clone(), &key, &trusted).await;
            assert!(said.contains("that of an authority itself") && said.contains("CA:FALSE"), "{said}");
        }
    }

    #[tokio::test]
    async fn what_speaks_no_tls_is_said() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = Address::parse(&format!("https://localhost:{}", listener.local_addr().unwrap().port())).unwrap();
        let serve = async {
            use tokio::io::AsyncWriteExt as _;
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
            stream
        };
        let roots = Arc::new(RootCertStore::empty());
        let (connected, _stream) = tokio::join!(connect(&address, &Reach::Anywhere, &roots), serve);
        let error = connected.err().unwrap().to_string();
        assert!(error.contains("does not speak TLS: check the port"), "{error}");
    }
}
