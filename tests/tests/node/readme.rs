//! Commands as README has them, so that the tested commands are the documented commands.

use std::fs;

use anyhow::{Context, Result, ensure};

use crate::place::repository;

/// Returns the lines of the blocks for shells below a heading of README, up to the next heading, as they stand there.
pub(crate) fn commands(heading: &str) -> Result<Vec<String>> {
    let text = fs::read_to_string(repository().join("README.md"))?;
    let start = format!("# {heading}\n");
    let (_, section) = text.split_once(&start).with_context(|| format!("README has no heading {heading}"))?;
    let section = section.split("\n#").next().unwrap_or_default();
    let blocks = section.split("```sh\n").skip(1).filter_map(|block| block.split("```").next());
    let lines: Vec<_> = blocks.flat_map(str::lines).filter(|line| !line.trim().is_empty()).map(str::to_owned).collect();
    ensure!(!lines.is_empty(), "README has no commands below {heading}");
    Ok(lines)
}

/// Returns the one of those commands that has this in it.
pub(crate) fn command(heading: &str, part: &str) -> Result<String> {
    let all = commands(heading)?;
    let mut found = all.iter().filter(|line| line.contains(part));
    let line = found.next().with_context(|| format!("README has no command with {part} below {heading}"))?;
    ensure!(found.next().is_none(), "README has several commands with {part} below {heading}");
    Ok(line.clone())
}
