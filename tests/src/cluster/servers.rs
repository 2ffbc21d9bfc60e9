//! The arguments of the API server and the controller manager.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::KeyPair;

use super::authority::{Authority, Certified};
use super::part::Part;
use super::version::Version;

/// Who issues the tokens of service accounts, and the audience of those made for none in particular.
pub const ISSUER: &str = "https://kubernetes.default.svc";

/// Every request but for its body, once, when it is answered.
const AUDIT_POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
";

/// The files that the servers read, and those they write.
pub(super) struct Files {
    authority: PathBuf,
    server: PathBuf,
    server_key: PathBuf,
    tokens_key: PathBuf,
    tokens_public: PathBuf,
    audit_policy: PathBuf,
    unused: PathBuf,
    /// Written by the API server.
    pub(super) audit: PathBuf,
}

impl Files {
    /// Writes what the servers read into the folder.
    pub(super) fn write(folder: &Path, authority: &Authority, server: &Certified, tokens: &KeyPair) -> Result<Self> {
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::write(&path, text).with_context(|| format!("can't write {}", path.display())).map(|()| path)
        };
        Ok(Self {
            authority: write("ca.crt", &authority.certificate())?,
            server: write("apiserver.crt", &server.certificate)?,
            server_key: write("apiserver.key", &server.key)?,
            tokens_key: write("tokens.key", &tokens.serialize_pem())?,
            tokens_public: write("tokens.pub", &tokens.public_key_pem())?,
            audit_policy: write("audit-policy.yaml", AUDIT_POLICY)?,
            unused: folder.join("unused"),
            audit: folder.join("audit.log"),
        })
    }

    /// Completes the API server.
    pub(super) fn apiserver(&self, part: &mut Part, etcd: &str, port: u16) {
        part.flag("etcd-servers", etcd);
        part.flag("bind-address", "127.0.0.1");
        part.flag("advertise-address", "127.0.0.1");
        part.flag("secure-port", port.to_string());
        // Nobody reaches it as a service, and it does not like its own address for that.
        part.flag("endpoint-reconciler-type", "none");
        part.flag("service-cluster-ip-range", "10.0.0.0/24");
        part.flag("cert-dir", &self.unused);
        part.flag("tls-cert-file", &self.server);
        part.flag("tls-private-key-file", &self.server_key);
        part.flag("client-ca-file", &self.authority);
        part.flag("service-account-issuer", ISSUER);
        part.flag("service-account-key-file", &self.tokens_public);
        part.flag("service-account-signing-key-file", &self.tokens_key);
        part.flag("authorization-mode", "Node,RBAC");
        part.flag("allow-privileged", "true");
        part.flag("audit-policy-file", &self.audit_policy);
        part.flag("audit-log-path", &self.audit);
    }

    /// Completes the controller manager.
    pub(super) fn controller_manager(
        &self,
        part: &mut Part,
        kubeconfig: &Path,
        controllers: &[String],
        version: Version,
    ) {
        for flag in ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"] {
            part.flag(flag, kubeconfig);
        }
        part.flag("controllers", controllers.join(","));
        part.flag("service-account-private-key-file", &self.tokens_key);
        part.flag("root-ca-file", &self.authority);
        part.flag("use-service-account-credentials", "true");
        part.flag("leader-elect", "false");
        // Its own ports are of no use here, and are the same for every cluster of the machine.
        part.flag("secure-port", "0");
        if version.minor < 24 {
            part.flag("port", "0");
        }
        part.flag("cert-dir", &self.unused);
    }
}
