//! The program that the kubeconfig names for credentials.

use kube::config::{ExecConfig, ExecInteractiveMode};

/// Lets the program ask its user only at a terminal, because input that is piped to the command is not meant for the
/// program. Fails if the program can't run without asking.
pub(super) fn set_interactive(has_terminal: bool, program: &mut ExecConfig) -> Result<(), String> {
    if has_terminal {
        return Ok(());
    }
    if program.interactive_mode == Some(ExecInteractiveMode::Always) {
        let message =
            "the program that the kubeconfig names for credentials asks its user, and standard input is not a terminal";
        return Err(message.to_owned());
    }
    program.interactive_mode = Some(ExecInteractiveMode::Never);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_asks_its_user_at_a_terminal_only() {
        for (mode, terminal, expected) in [
            (None, true, Ok(None)),
            (None, false, Ok(Some("Never"))),
            (Some("IfAvailable"), true, Ok(Some("IfAvailable"))),
            (Some("IfAvailable"), false, Ok(Some("Never"))),
            (Some("Never"), true, Ok(Some("Never"))),
            (Some("Always"), true, Ok(Some("Always"))),
            (Some("Always"), false, Err(())),
        ] {
            let program = serde_json::json!({"command": "login", "interactiveMode": mode});
            let mut program: ExecConfig = serde_json::from_value(program).unwrap();
            let ran = set_interactive(terminal, &mut program).map_err(drop);
            let after = serde_json::to_value(&program).unwrap();
            assert_eq!(ran.map(|()| after["interactiveMode"].as_str()), expected, "{mode:?} {terminal}");
        }
    }
}
