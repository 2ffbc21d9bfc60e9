//! Clients of PostgreSQL: psql with a session that stays open, and pgbench.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

use anyhow::{Context, Result, ensure};

use crate::load::{Count, Load};
use crate::recipe::Software;

/// A session of psql.
pub(crate) struct Psql {
    client: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Psql {
    /// Connects. Whether that works shows with the first question.
    pub(crate) fn connect(port: u16, database: &str) -> Result<Self> {
        let mut command = Command::new("psql");
        command.args(["-XAtq", "-h", "127.0.0.1", "-U", "postgres", "-d", database, "-p", &port.to_string()]);
        let mut client = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let questions = client.stdin.take().context("no input")?;
        let answers = BufReader::new(client.stdout.take().context("no output")?);
        Ok(Self { client, questions, answers })
    }

    /// Requests one value.
    pub(crate) fn ask(&mut self, query: &str) -> Result<String> {
        writeln!(self.questions, "{query};")?;
        let mut answer = String::new();
        ensure!(self.answers.read_line(&mut answer)? > 0, "the session has ended");
        Ok(answer.trim_end().to_owned())
    }
}

impl Drop for Psql {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.client.kill();
        let _ = self.client.wait();
    }
}

/// `pgbench`: two sessions that stay open, and two clients that connect for each transaction; 200 transactions a second
/// each.
pub(crate) fn pgbench(software: &Software, database: &'static str) -> Result<Load> {
    let script = software.folder.join("select.sql");
    fs::write(&script, "SELECT 1;\n")?;
    let port = software.port.to_string();
    Ok(Load::rounds(move || {
        let mut command = Command::new("pgbench");
        command.args(["-n", "-c2", "-T2", "-R200", "-h", "127.0.0.1", "-U", "postgres", "-p", &port, "-f"]);
        command.arg(&script).arg(database).stdout(Stdio::piped()).stderr(Stdio::piped());
        let kept = command.spawn()?;
        let fresh = command.arg("-C").output()?;
        let (kept, fresh) = (count(&kept.wait_with_output()?)?, count(&fresh)?);
        Ok(Count { done: kept.done + fresh.done, dropped: fresh.dropped, closed: kept.dropped })
    }))
}

/// Returns what `pgbench` reports.
fn count(output: &Output) -> Result<Count> {
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let done = text.lines().find_map(|line| line.strip_prefix("number of transactions actually processed: "));
    let done = done.with_context(|| format!("can't understand pgbench: {text}{errors}"))?.trim().parse()?;
    // A client that loses its connection says so once, and ends.
    let dropped = errors.lines().filter(|line| line.contains("error:") && !line.contains("Run was aborted")).count();
    Ok(Count { done, dropped: dropped.try_into()?, ..Count::default() })
}
