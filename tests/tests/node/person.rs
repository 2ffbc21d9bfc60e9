//! A user of a namespace, who is not its administrator: a service account, with its token in a kubeconfig of its own.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use nudge_tests::binary;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::place::{Place, succeed};
use crate::space::{ScenarioNamespace, WAIT_TIMEOUT};
use nudge_tests::eventually;

/// The lifetime of a token: longer than any scenario.
const TOKEN_SECONDS: u32 = 3600;

/// A role as kubectl binds it, and a verb and a resource that it gives.
pub(crate) type Right = (&'static str, [&'static str; 2]);

/// Kubernetes' own role.
pub(crate) const EDIT: Right = ("--clusterrole=edit", ["patch", "vcfg"]);
/// Nudge's role for approvers.
pub(crate) const APPROVE: Right = ("--clusterrole=nudge-approve", ["approve", "vcfg"]);

/// A user with a kubeconfig.
pub(crate) struct Person<'a> {
    place: &'a Place,
    namespace: String,
    /// The name that the API server knows the user by.
    pub(crate) user: String,
    folder: TempDir,
}

impl<'a> Person<'a> {
    /// Returns one who has these rights, once they hold.
    pub(crate) async fn new(home: &ScenarioNamespace<'a>, name: &str, rights: &[Right]) -> Result<Self> {
        let namespace = home.space.name.clone();
        home.space.service_account(name).await?;
        let account = format!("--serviceaccount={namespace}:{name}");
        for (number, (role, _)) in rights.iter().enumerate() {
            home.kubectl(&["create", "rolebinding", &format!("{name}-{number}"), role, &account])?;
        }
        let spec = json!({"audiences": [], "expirationSeconds": TOKEN_SECONDS});
        let request: TokenRequest = serde_json::from_value(json!({"spec": spec}))?;
        let accounts = home.space.api::<ServiceAccount>();
        let token = accounts.create_token_request(name, &PostParams::default(), &request).await?;
        let token = token.status.context("no token")?.token;
        let mut config: Value = serde_json::from_str(&home.kubectl(&[
            "config",
            "view",
            "--raw",
            "--flatten",
            "--minify",
            "-o",
            "json",
        ])?)?;
        for user in config["users"].as_array_mut().context("no users")? {
            user["user"] = json!({"token": token});
        }
        let folder = tempfile::tempdir()?;
        let user = format!("system:serviceaccount:{namespace}:{name}");
        let person = Self { place: home.place, namespace, user, folder };
        fs::write(person.kubeconfig(), config.to_string())?;
        for (role, [verb, resource]) in rights {
            let may = async || person.kubectl(&["auth", "can-i", verb, resource]).ok().map(drop);
            eventually(WAIT_TIMEOUT, &format!("{name} has {role}"), may).await?;
        }
        Ok(person)
    }

    fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let mut command = self.place.command(program);
        command.env("KUBECONFIG", self.kubeconfig()).args(["-n", &self.namespace]).args(arguments);
        succeed(&mut command)
    }

    /// Runs kubectl in the namespace.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        self.run("kubectl", arguments)
    }

    /// Returns the same with a command of kubectl nudge.
    pub(crate) fn nudge(&self, arguments: &[&str]) -> Result<String> {
        self.run(binary::kubectl_nudge()?.to_str().context("no text")?, arguments)
    }

    /// Fails unless kubectl is refused, and says one of these.
    pub(crate) fn assert_refused(&self, arguments: &[&str], because: &[&str]) -> Result<()> {
        let message = self.kubectl(arguments).err().with_context(|| format!("{} could {arguments:?}", self.user))?;
        let message = message.to_string();
        ensure!(because.iter().any(|because| message.contains(because)), "{message}");
        Ok(())
    }
}
