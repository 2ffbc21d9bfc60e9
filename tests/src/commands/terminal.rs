//! A terminal for one command, that remembers each of its screens.

use std::fs::File;
use std::io::Read as _;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use nix::pty::{Winsize, openpty};
use parking_lot::Mutex;
use vt100::Parser;

use crate::commands::recording::Frame;
use crate::{Process, eventually};

/// How long a command may take, on a busy machine.
const COMMAND_TIMEOUT: Duration = Duration::from_mins(2);

/// A command at work on a terminal.
pub struct Terminal {
    /// The process of the command.
    pub process: Process,
    frames: Arc<Mutex<Vec<Frame>>>,
    reader: JoinHandle<Vec<u8>>,
}

impl Terminal {
    /// Starts the command on a terminal of this size.
    pub fn spawn(name: &str, command: &mut Command, (rows, columns): (u16, u16)) -> Result<Self> {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let pair = openpty(&size, None)?;
        let (input, output) = (pair.slave.try_clone()?, pair.slave.try_clone()?);
        command.stdin(input).stdout(output).stderr(pair.slave);
        let process = Process::spawn(name, command)?;
        // Else the terminal would have another end, and reading would never be over.
        command
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null());
        let frames = Arc::new(Mutex::new(Vec::new()));
        let mut master = File::from(pair.master);
        let (seen, began) = (Arc::clone(&frames), Instant::now());
        let reader = thread::spawn(move || {
            let (mut parser, mut raw, mut buffer) = (Parser::new(rows, columns, 0), Vec::new(), [0; 4096]);
            // Linux reports an error when the last of the other end is closed.
            while let Ok(count @ 1..) = master.read(&mut buffer) {
                raw.extend_from_slice(&buffer[..count]);
                parser.process(&buffer[..count]);
                let lines: Vec<String> = parser.screen().rows(0, columns).collect();
                let used = lines.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1);
                let mut seen = seen.lock();
                let screen = lines[..used].iter().map(|line| line.trim_end().to_owned()).collect();
                seen.push((began.elapsed(), screen));
            }
            raw
        });
        Ok(Self { process, frames, reader })
    }

    /// Returns all screens so far.
    pub fn screens(&self) -> Vec<Vec<String>> {
        self.frames().into_iter().map(|(_, screen)| screen).collect()
    }

    /// Returns the same with their times.
    pub fn frames(&self) -> Vec<Frame> {
        self.frames.lock().clone()
    }

    /// Waits until the screen is as expected, and gives it.
    pub async fn wait_for_screen(&self, what: &str, expected: impl Fn(&[String]) -> bool) -> Result<Vec<String>> {
        let result =
            eventually(COMMAND_TIMEOUT, what, async || self.screens().into_iter().find(|screen| expected(screen)));
        result.await.map_err(|error| error.context(format!("{:#?}", self.screens().last())))
    }

    /// Waits for the command's end: its status, all screens, and all that it wrote.
    pub async fn wait_for_end(self) -> Result<(ExitStatus, Vec<Vec<String>>, String)> {
        let (status, frames, raw) = self.ends_with_frames().await?;
        Ok((status, frames.into_iter().map(|(_, screen)| screen).collect(), raw))
    }

    /// Returns the same, the screens with their times.
    pub async fn ends_with_frames(mut self) -> Result<(ExitStatus, Vec<Frame>, String)> {
        let status = self.process.wait_for_exit(COMMAND_TIMEOUT).await?;
        let raw = self.reader.join().map_err(|_| anyhow!("the terminal could not be read"))?;
        let frames = self.frames.lock().clone();
        Ok((status, frames, String::from_utf8_lossy(&raw).into_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_overwritten_was_seen() {
        let mut command = Command::new("sh");
        command.args(["-c", r"test -t 2 && printf 'one\n' && kill -STOP $$; printf '\033[1A\033[2Ktwo'; exit 3"]);
        let terminal = Terminal::spawn("sh", &mut command, (5, 20)).unwrap();
        terminal.wait_for_screen("the first line", |screen| screen == ["one"]).await.unwrap();
        // It may not have stopped yet, and a signal to continue would be lost then.
        let stat = format!("/proc/{}/stat", terminal.process.pid());
        let stopped = async || std::fs::read_to_string(&stat).ok()?.contains(") T ").then_some(());
        eventually(COMMAND_TIMEOUT, "the shell has stopped", stopped).await.unwrap();
        terminal.process.signal(nix::sys::signal::Signal::SIGCONT).unwrap();
        let (status, screens, raw) = terminal.wait_for_end().await.unwrap();
        assert_eq!((status.code(), screens.last().unwrap().join("|")), (Some(3), "two".to_owned()));
        assert!(raw.starts_with("one\r\n"), "{raw:?}");
    }
}
