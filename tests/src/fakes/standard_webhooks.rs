//! The library of the authors of Standard Webhooks, as a second opinion on signatures.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow};
use nudge_protocol::headers;

use crate::{Delivery, python, tools};

/// A Python environment with the library in it.
#[derive(Debug)]
pub struct Verifier {
    python: PathBuf,
}

impl Verifier {
    /// Takes the environment in `folder`, and makes it if no test has before. `None` without Python.
    pub fn in_folder(folder: &Path) -> Result<Option<Self>> {
        Ok(python::environment(folder, "webhook-verify")?.map(|python| Self { python }))
    }

    /// Returns whether the delivery is signed with `token`, and not long ago.
    pub fn verify(&self, delivery: &Delivery, token: &str) -> Result<bool> {
        let signed = [headers::WEBHOOK_ID, headers::WEBHOOK_TIMESTAMP, headers::WEBHOOK_SIGNATURE];
        let signed: serde_json::Map<_, _> =
            signed.iter().map(|&name| (name.to_owned(), delivery.header(name).into())).collect();
        let input = serde_json::json!({
            "secret": format!("whsec_{token}"),
            "headers": signed,
            "body": delivery.body,
        });
        let mut command = Command::new(&self.python);
        command.arg(tools::client("webhook-verify/verify.py")).stdin(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().context("can't run verify.py")?;
        child.stdin.take().context("no standard input")?.write_all(input.to_string().as_bytes())?;
        match child.wait()?.code() {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            other => Err(anyhow!("verify.py ended with {other:?}")),
        }
    }
}
