//! What the software shows when it has taken a version, as `nudge.dev/verify` on its page says: it is another thing
//! than when it has not.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result};
use nudge_protocol::expectation::{Expectation, Proof, Sign};
use nudge_tests::agent::WAIT_TIMEOUT;
use nudge_tests::eventually;

use crate::http;
use crate::recipe::{Software, VERSIONS};

/// What the software shows at one moment.
#[derive(Debug)]
pub(crate) enum Reading {
    /// The children of the process that gets the signal.
    Workers(BTreeSet<i32>),
    /// Two metrics: the time of the last success, and whether the last attempt was one.
    Metrics { success_time: f64, is_ok: bool },
    /// A page with the value of a key.
    Value(String),
}

impl Reading {
    /// Returns whether a version was taken between the other moment and this one.
    pub(crate) fn is_newer(&self, before: &Self) -> bool {
        match (before, self) {
            (Self::Workers(before), Self::Workers(now)) => !now.is_empty() && now.is_disjoint(before),
            (Self::Metrics { success_time: before, .. }, Self::Metrics { success_time, is_ok }) => {
                *is_ok && success_time > before
            }
            (Self::Value(before), Self::Value(now)) => now != before,
            _ => false,
        }
    }
}

impl Software {
    /// Returns what the software shows now; `None` if its page has nothing to look at.
    pub(crate) async fn sign(&mut self) -> Result<Option<Reading>> {
        let Some(Expectation { sign, .. }) = self.recipe.verify.clone() else { return Ok(None) };
        Ok(Some(match sign {
            Sign::Workers => {
                let status = self.agent.client.status().await?;
                let notified = status.containers.first().context("no container")?;
                let process = *notified.notified.processes.first().context("no process was notified")?;
                Reading::Workers(children(process)?)
            }
            Sign::Page { url, proof: Proof::Newer { metric: time, ok } } => {
                let page = self.page(url.as_str())?;
                let is_ok = ok.map_or(Ok(true), |ok| metric(&page, ok.as_str()).map(|value| value > 0.0))?;
                Reading::Metrics { success_time: metric(&page, time.as_str())?, is_ok }
            }
            Sign::Page { url, proof: Proof::Is { .. } } => Reading::Value(self.page(url.as_str())?),
        }))
    }

    fn page(&self, url: &str) -> Result<String> {
        let path = url.splitn(4, '/').nth(3).context("the URL has no path")?;
        Ok(http::get(self.port, &format!("/{path}"))?.1)
    }

    /// Switches to a good version, which shows, and returns what is shown then; `None` if the page has nothing to look
    /// at.
    pub(crate) async fn shows_a_good_version(&mut self) -> Result<Option<Reading>> {
        let Some(before) = self.sign().await? else { return Ok(None) };
        self.switch(VERSIONS[1])?;
        let newer = eventually(WAIT_TIMEOUT, "the good version shows", async || {
            self.sign().await.ok()?.filter(|sign| sign.is_newer(&before))
        });
        newer.await.map(Some).map_err(|error| self.agent.agent.explain(&error))
    }
}

/// Returns the children of a process.
fn children(process: i32) -> Result<BTreeSet<i32>> {
    let mut children = BTreeSet::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(id) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        // It may have ended meanwhile. The parent is the second field after the command, which is in parentheses.
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        let fields = stat.rsplit_once(") ").map(|(_, rest)| rest.split(' '));
        if fields.and_then(|mut fields| fields.nth(1)?.parse().ok()) == Some(process) {
            children.insert(id);
        }
    }
    Ok(children)
}

/// Returns the value of a metric without labels.
fn metric(page: &str, name: &str) -> Result<f64> {
    let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.and_then(|value| value.parse().ok()).with_context(|| format!("no metric {name}"))
}
