//! The help of every command.

use std::process::Command;

use anyhow::Result;
use nudge_tests::{Finished, binary};

#[test]
fn every_command_has_help_that_names_its_arguments() -> Result<()> {
    for (command, parts) in [
        (&[][..], &["exec", "use", "get", "status", "check", "Try it"][..]),
        (&["exec"], &["--dir", "--config", "--notify", "--port", "--mount-path", "--ack", "MY_CONFIG_ENDPOINT", "127"]),
        (&["use"], &["--dir", "<CONFIG>", "<VERSION>"]),
        (&["get"], &["[KEY]", "--format"]),
        (&["status"], &["--format"]),
        (&["check"], &["--dir"]),
    ] {
        let help = Finished::agent(command.iter().chain(&["--help"]))?;
        assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""), "{command:?}");
        for part in parts {
            assert!(help.stdout.contains(part), "{command:?} does not mention {part}: {}", help.stdout);
        }
    }
    Ok(())
}

#[test]
fn a_reader_that_has_gone_is_no_error() -> Result<()> {
    let mut command = Command::new(binary::debug()?);
    // The pipe has no reader from the start.
    let (reader, writer) = std::io::pipe()?;
    drop(reader);
    let finished = command.arg("--help").stdout(writer).status()?;
    assert!(finished.success(), "{finished}");
    Ok(())
}
