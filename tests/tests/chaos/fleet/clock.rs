//! Wall clocks that are off, each for one process: by a preloaded library, since nobody may set the clock of the
//! machine.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};
use nudge_tests::tools;

/// The library, which is compiled once.
pub(crate) struct Clocks {
    library: Option<PathBuf>,
}

impl Clocks {
    /// Compiles the library in a folder; without a compiler all clocks are right.
    pub(crate) fn compile(folder: &Path) -> Result<Self> {
        let Some(compiler) = tools::find("cc")? else { return Ok(Self { library: None }) };
        let library = folder.join("skew.so");
        let status = Command::new(compiler)
            .args(["-shared", "-fPIC", "-O2", "-o"])
            .arg(&library)
            .arg(tools::client("skew.c"))
            .status()?;
        ensure!(status.success(), "skew.c can't be compiled");
        Ok(Self { library: Some(library) })
    }

    /// Returns the environment variables of a process whose clock is off by this many seconds.
    pub(crate) fn variables(&self, seconds: i64) -> Vec<(&'static str, String)> {
        let Some(library) = &self.library else { return Vec::new() };
        vec![("LD_PRELOAD", library.display().to_string()), ("NUDGE_SKEW", seconds.to_string())]
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn a_clock_is_off() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let clocks = Clocks::compile(folder.path())?;
        let time = |seconds| -> Result<i64> {
            let out = Command::new("date").arg("+%s").envs(clocks.variables(seconds)).output()?;
            String::from_utf8(out.stdout)?.trim().parse().context("no time")
        };
        if clocks.library.is_some() {
            assert!((295..=305).contains(&(time(300)? - time(0)?)));
            assert!((295..=305).contains(&(time(0)? - time(-300)?)));
        }
        Ok(())
    }
}
