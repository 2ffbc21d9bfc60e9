//! The memory volumes of one agent, small enough to be filled.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};
use nix::unistd::geteuid;

/// The size of a volume: much more than a version and the one before it.
const DISK_BYTES: usize = 512 * 1024;
const FILLER: &str = "..filler";

/// Folders that are file systems of their own, where this process may make them; else they can't be filled.
pub(crate) struct Disk {
    mounted: Vec<PathBuf>,
}

impl Disk {
    pub(crate) fn new(folders: [PathBuf; 2]) -> Result<Self> {
        let mut disk = Self { mounted: Vec::new() };
        if geteuid().is_root() {
            for folder in folders {
                fs::create_dir_all(&folder)?;
                let status = Command::new("mount")
                    .args(["-t", "tmpfs", "-o", &format!("size={DISK_BYTES},mode=0700"), "nudge-chaos"])
                    .arg(&folder)
                    .status()?;
                // In some containers not even root may mount.
                if status.success() {
                    disk.mounted.push(folder);
                }
            }
        }
        Ok(disk)
    }

    /// Fills the volumes to the last byte.
    pub(crate) fn fill(&self) -> Result<()> {
        for folder in &self.mounted {
            let mut file = File::create(folder.join(FILLER))?;
            let mut size = DISK_BYTES;
            while size > 0 {
                match file.write_all(&vec![0; size]) {
                    Ok(()) => {}
                    Err(_) => size /= 2,
                }
            }
        }
        Ok(())
    }

    /// Frees the room again.
    pub(crate) fn empty(&self) -> Result<()> {
        for folder in &self.mounted {
            let filler = folder.join(FILLER);
            // A process that another thread has just forked may have it open until it executes: removing it alone frees
            // nothing by then.
            File::create(&filler)?;
            fs::remove_file(filler)?;
        }
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        for folder in &self.mounted {
            // Nothing can be done about it here; what is in memory goes with the machine.
            let _ = Command::new("umount").arg("--lazy").arg(folder).status();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_full_until_it_is_emptied() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let disk = Disk::new(["a", "b"].map(|name| folder.path().join(name)))?;
        let Some(mounted) = disk.mounted.first() else { return Ok(()) };
        fs::write(mounted.join("before"), "text")?;
        disk.fill()?;
        assert!(fs::write(mounted.join("after"), "text").is_err());
        disk.empty()?;
        fs::write(mounted.join("after"), "text")?;
        ensure!(fs::read_to_string(mounted.join("before"))? == "text", "it is lost");
        Ok(())
    }
}
