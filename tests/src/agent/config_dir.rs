//! A folder of configuration in the layout of the `dir` source, private to one test.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nudge_protocol::names::CURRENT;
use tempfile::TempDir;

/// `<dir>/<config>/<version>/<key>` and `<dir>/<config>/current`, removed when dropped.
#[derive(Debug)]
pub struct ConfigDir {
    root: TempDir,
    configs: PathBuf,
    /// A folder on the same file system that is not watched: what is made ready here appears by one rename and no other
    /// event.
    staging: PathBuf,
}

impl ConfigDir {
    /// Returns a folder without configs.
    pub fn new() -> Result<Self> {
        let root = tempfile::Builder::new().prefix("nudge-configs-").tempdir().context("can't make a folder")?;
        let configs = root.path().join("configs");
        let staging = root.path().join("staging");
        fs::create_dir(&configs)?;
        fs::create_dir(&staging)?;
        Ok(Self { root, configs, staging })
    }

    /// Returns what `--dir` takes.
    pub fn path(&self) -> &Path {
        &self.configs
    }

    /// Returns a folder next to the configs for other files of a test.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Writes a version, which appears complete; gives its folder.
    pub fn write_version<K, V>(
        &self,
        config: &str,
        version: &str,
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> Result<PathBuf>
    where
        K: AsRef<str>,
        V: AsRef<[u8]>,
    {
        let staged = self.staging.join(version);
        fs::create_dir(&staged).with_context(|| format!("can't make {}", staged.display()))?;
        for (key, value) in entries {
            let file = staged.join(key.as_ref());
            fs::write(&file, value).with_context(|| format!("can't write {}", file.display()))?;
        }
        let folder = self.configs.join(config);
        fs::create_dir_all(&folder)?;
        let place = folder.join(version);
        fs::rename(&staged, &place).with_context(|| format!("can't make {}", place.display()))?;
        Ok(place)
    }

    /// Makes `version` the current one of `config`, atomically.
    pub fn switch(&self, config: &str, version: &str) -> Result<()> {
        self.stage_switch(config, version)?.commit()
    }

    /// Does all of a switch but the rename, for those who time what follows from it.
    pub fn stage_switch(&self, config: &str, version: &str) -> Result<StagedSwitch> {
        let link = self.staging.join(CURRENT);
        symlink(version, &link).with_context(|| format!("can't make {}", link.display()))?;
        Ok(StagedSwitch { link, place: self.configs.join(config).join(CURRENT) })
    }
}

/// A link that becomes `current` by one rename.
#[derive(Debug)]
#[must_use]
pub struct StagedSwitch {
    link: PathBuf,
    place: PathBuf,
}

impl StagedSwitch {
    /// The one system call that switches.
    pub fn commit(self) -> Result<()> {
        fs::rename(&self.link, &self.place).with_context(|| format!("can't switch {}", self.place.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_replaces_the_link() {
        let dir = ConfigDir::new().unwrap();
        dir.write_version("shop", "1.0.0", [("lives", "3")]).unwrap();
        dir.write_version("shop", "1.0.1", [("lives", "5")]).unwrap();
        for (version, lives) in [("1.0.0", "3"), ("1.0.1", "5"), ("1.0.0", "3")] {
            dir.switch("shop", version).unwrap();
            assert_eq!(fs::read_to_string(dir.path().join("shop/current/lives")).unwrap(), lives);
        }
    }
}
