//! The unit that starts software under the agent.

use std::fs;
use std::process::Command;

use anyhow::{Result, ensure};
use nudge_tests::{binary, tools};

use crate::recipe::examples;

const UNIT: &str = "haproxy-nudge.service";

#[test]
fn systemd_understands_the_unit() -> Result<()> {
    for program in ["systemd-analyze", "haproxy"] {
        if tools::find(program)?.is_none() {
            return Ok(());
        }
    }
    let folder = tempfile::tempdir()?;
    let unit = fs::read_to_string(examples().join("cookbook/systemd").join(UNIT))?;
    let agent = binary::debug()?.display().to_string();
    ensure!(unit.contains("ExecStart=/usr/local/bin/nudge-agent exec "), "{unit}");
    let file = folder.path().join(UNIT);
    fs::write(&file, unit.replace("/usr/local/bin/nudge-agent", &agent))?;
    let verified = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&file).output()?;
    let text = String::from_utf8_lossy(&verified.stderr);
    // Of other units of the machine it may say more.
    ensure!(verified.status.success() && !text.contains(UNIT), "{text}");
    Ok(())
}
