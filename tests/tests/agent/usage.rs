//! The output of the three programs when they are used wrongly: a short message that names the mistake and the remedy.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use nudge_tests::{Finished, binary};
use tempfile::TempDir;

/// Runs a program without a cluster: with an empty home folder, and no environment variables but these.
fn run_without_cluster(program: &Path, arguments: &[&str], variables: &[(&str, &Path)]) -> Result<(Finished, TempDir)> {
    let home = tempfile::tempdir()?;
    let mut command = Command::new(program);
    command.args(arguments).env_clear().env("HOME", home.path()).envs(variables.iter().copied());
    Ok((Finished::of(&mut command)?, home))
}

#[test]
fn a_wrong_argument_is_named_with_the_way_to_the_help() -> Result<()> {
    let (agent, kubectl_nudge, injector) = (binary::debug()?, binary::kubectl_nudge()?, binary::injector()?);
    let refused = |program: &Path, arguments: &[&str], part: &str| -> Result<()> {
        let (refused, _) = run_without_cluster(program, arguments, &[])?;
        let text = &refused.stderr;
        ensure!((refused.code, refused.stdout.as_str()) == (Some(2), ""), "{arguments:?}: {refused:?}");
        ensure!(text.starts_with("error: ") && text.contains(part), "{arguments:?}: {text}");
        ensure!(text.ends_with("For more information, try '--help'.\n"), "{arguments:?}: {text}");
        Ok(())
    };
    for (program, command) in [(agent, "status"), (kubectl_nudge, "status"), (injector, "serve")] {
        refused(program, &["no-such-command"], "unrecognized subcommand 'no-such-command'")?;
        refused(program, &["--no-such-flag"], "unexpected argument '--no-such-flag'")?;
        refused(program, &[command, "--no-such-flag"], "unexpected argument '--no-such-flag'")?;
    }
    refused(agent, &["status", "--format=odd"], "invalid value 'odd' for '--format <FORMAT>'")?;
    refused(agent, &["use", "--dir=.", "shop"], "<VERSION>")?;
    refused(kubectl_nudge, &["status", "--output=odd"], "invalid value 'odd' for '--output <OUTPUT>'")?;
    refused(kubectl_nudge, &["use", "shop"], "<VERSION>")?;
    refused(injector, &["serve", "--lease-seconds=odd"], "invalid value 'odd' for '--lease-seconds <SECONDS>'")?;
    Ok(())
}

#[test]
fn without_a_command_the_commands_are_listed() -> Result<()> {
    for (program, command) in
        [(binary::debug()?, "exec"), (binary::kubectl_nudge()?, "status"), (binary::injector()?, "serve")]
    {
        let (refused, _) = run_without_cluster(program, &[], &[])?;
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.stderr.lines().any(|line| line.trim_start().starts_with(command)), "{}", refused.stderr);
    }
    Ok(())
}

#[test]
fn a_command_that_is_not_notified_can_show_nothing() -> Result<()> {
    for notify in ["--notify=none", "--notify=webhook"] {
        let arguments = ["exec", "--dir=.", notify, "--verify=workers", "--", "true"];
        let (refused, _) = run_without_cluster(binary::debug()?, &arguments, &[])?;
        ensure!(refused.code == Some(125) && refused.stderr.contains("add --notify SIGHUP"), "{refused:?}");
    }
    Ok(())
}

/// Returns what a command prints that fails because there is no cluster, with `~` for the home folder.
fn without_cluster(program: &Path, arguments: &[&str], variables: &[(&str, &Path)]) -> Result<String> {
    let (failed, home) = run_without_cluster(program, arguments, variables)?;
    ensure!(failed.code == Some(1) && failed.stdout.is_empty(), "{failed:?}");
    Ok(failed.stderr.replace(&home.path().display().to_string(), "~"))
}

#[test]
fn the_injector_without_a_cluster_says_what_to_do() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let broken = folder.path().join("broken");
    fs::write(&broken, "users:\n- token: hunter2\n  name: [\n")?;
    let (missing, host, port) = (folder.path().join("missing"), Path::new("192.0.2.1"), Path::new("443"));
    let help = "help: run it in a pod of the cluster, or name a kubeconfig file with $KUBECONFIG\n";
    let says_it = |variables: &[(&str, &Path)]| without_cluster(binary::injector()?, &["serve"], variables);

    let nowhere = says_it(&[])?;
    assert_eq!(
        nowhere,
        format!("nudge-injector: no cluster is known: ~/.kube/config: No such file or directory\n{help}")
    );
    let named = says_it(&[("KUBECONFIG", &missing)])?;
    assert_eq!(
        named,
        format!("nudge-injector: no cluster is known: {}: No such file or directory\n{help}", missing.display())
    );
    let unreadable = says_it(&[("KUBECONFIG", &broken)])?;
    assert!(
        unreadable.starts_with("nudge-injector: no cluster is known: it is not a kubeconfig: line "),
        "{unreadable}"
    );
    assert!(unreadable.ends_with(help) && unreadable.lines().count() == 2, "{unreadable}");
    assert!(!unreadable.contains("hunter2"), "a secret of the kubeconfig is shown: {unreadable}");
    // Such as a pod with automountServiceAccountToken: false.
    let in_pod = says_it(&[("KUBERNETES_SERVICE_HOST", host), ("KUBERNETES_SERVICE_PORT", port)])?;
    assert!(in_pod.starts_with("nudge-injector: the pod's service account can't be used: "), "{in_pod}");
    assert!(in_pod.contains("\nhelp: give the pod a service account") && in_pod.lines().count() == 2, "{in_pod}");
    Ok(())
}

#[test]
fn settings_of_the_injector_that_cannot_be_used_are_named_together() -> Result<()> {
    let arguments = ["serve", "--ca-days=30", "--certificate-names=a b", "--hub-url=http://hub"];
    let message = without_cluster(binary::injector()?, &arguments, &[])?;
    for part in ["nudge-injector: settings can't be used: ", "--ca-days: ", "--certificate-names: ", "--hub-url: "] {
        ensure!(message.contains(part), "{part} in {message}");
    }
    Ok(())
}

#[test]
fn kubectl_nudge_without_a_cluster_says_what_to_do() -> Result<()> {
    let message = without_cluster(binary::kubectl_nudge()?, &["status"], &[])?;
    assert_eq!(
        message,
        "error: no cluster is known: ~/.kube/config: No such file or directory; name a kubeconfig file with --kubeconfig or $KUBECONFIG\n"
    );
    Ok(())
}
