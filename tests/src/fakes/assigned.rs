//! The assignments of a test's hub.

use std::collections::BTreeMap;

use anyhow::Result;
use nudge_protocol::Key;
use nudge_protocol::block::{self, Stored};
use nudge_protocol::hub::{HubProblem, HubReason, MountedSecrets};

use super::hub_tls;

/// A config as the hub assigns it.
#[derive(Clone, Debug, Default)]
pub struct Assigned {
    /// Uid of its object.
    pub uid: String,
    /// Revision within the uid.
    pub revision: u64,
    /// The name of the version.
    pub version: String,
    /// The block with its values.
    pub block: Vec<u8>,
    /// What the hub says the block's digest is.
    pub sha256: String,
    /// Why it can't be had.
    pub problem: Option<HubProblem>,
    /// The verdict about mounted Secret parts that it is asked about.
    pub mounted_secrets: Option<MountedSecrets>,
}

impl Assigned {
    /// Gives it another version, with the next revision.
    pub fn set(&mut self, version: &str, values: &[(&str, &[u8])]) -> Result<()> {
        let values = values.iter().map(|(key, value)| Ok((Key::new(key)?, Stored::in_config_map(*value))));
        let values = values.collect::<Result<BTreeMap<_, _>>>()?;
        let mut block = Vec::new();
        block::encode(&values, &mut block)?;
        self.sha256 = hub_tls::sha256(&block);
        (self.version, self.block, self.problem) = (version.to_owned(), block, None);
        self.revision += 1;
        Ok(())
    }

    /// Says why it can't be had, with the next revision.
    pub fn fail(&mut self, reason: HubReason, message: &str) {
        self.problem = Some(HubProblem { reason, message: message.to_owned() });
        self.revision += 1;
    }
}
