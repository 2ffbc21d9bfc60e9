//! `kubectl nudge inject`: gives the pods of a workload an agent, and shows before what that does to them.

mod manifest;
mod preview;
mod report;
mod template;
mod workload;

use std::path::PathBuf;

use clap::{ArgGroup, Args};
use nudge_protocol::ContainerName;

use self::manifest::inject_documents;
use self::preview::injected_pod;
use self::report::report;
use self::template::TemplateChange;
use self::workload::{Workload, read_workload};
use crate::dry_run::{Dry, DryRun};
use crate::failure::{Failure, file_message};
use crate::manifest::read_file;
use crate::output::{Format, Output, document};
use crate::session::Session;

/// The ways to notify a container, as the annotation has them.
const NOTIFY_WAYS: [&str; 7] = ["SIGHUP", "SIGUSR1", "SIGUSR2", "webhook", "in-place", "rollout", "none"];

#[derive(Clone, Debug, Args)]
#[command(
    group(ArgGroup::new("subject").required(true).args(["workload", "filename"])),
    after_help = "Examples:
  kubectl nudge inject deployment/web --notify SIGHUP
  kubectl nudge inject deployment/web --notify SIGHUP --apply
  kubectl nudge inject statefulset/db --notify SIGHUP --container postgres
  kubectl nudge inject -f web.yaml --notify SIGHUP -o yaml

The command adds the label nudge.dev/inject, and with --notify the annotation nudge.dev/notify, to the template of the pods. Volumes, \
variables and images stay as they are.

Without --apply nothing is changed, and with --dry-run=server the API server checks the change of the workload, too. The command shows the change of the template, and what the pods would be: it asks the API server to \
create such a pod in a dry run, so that Nudge's webhook answers. The report says which mounts move to the agent and which stay, how each \
container takes another version, and as which user the agent runs. What the webhook warns of is printed, too. You need the right to create \
pods for this.

With --apply the template is changed, and the workload replaces its pods. If the webhook refuses the pod, nothing is changed.

With -f the command sends no request, and prints the objects of the file with the change. It takes no file with Secrets."
)]
pub(crate) struct Inject {
    /// The workload: deployment/NAME, statefulset/NAME or daemonset/NAME
    #[arg(value_name = "TYPE/NAME", value_parser = Workload::parse)]
    pub(crate) workload: Option<Workload>,
    /// A file with objects, whose pods or templates are changed; - is standard input
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["apply", "dry_run"])]
    pub(crate) filename: Option<PathBuf>,
    /// How containers are notified of another version. Programs that watch their files need nothing
    #[arg(long, value_name = "HOW", value_parser = NOTIFY_WAYS)]
    pub(crate) notify: Option<String>,
    /// Notify only this container
    #[arg(long, value_name = "NAME", requires = "notify")]
    pub(crate) container: Option<ContainerName>,
    /// Change the workload
    #[arg(long)]
    pub(crate) apply: bool,
    /// The format of the objects: yaml or json; by default YAML
    #[arg(short, long, value_enum, conflicts_with = "workload")]
    pub(crate) output: Option<Format>,
    #[command(flatten)]
    pub(crate) dry: Dry,
}

impl Inject {
    /// Returns whether the command sends no request to an API server.
    pub(crate) fn is_offline(&self) -> bool {
        self.filename.is_some()
    }

    fn change(&self) -> TemplateChange {
        TemplateChange { notify: self.notify.clone(), container: self.container.as_ref().map(ToString::to_string) }
    }
}

/// Prints the objects of the file with the change.
pub(crate) fn run_offline(out: &Output, command: &Inject) -> Result<(), Failure> {
    let path = command.filename.clone().unwrap_or_default();
    let format = match command.output {
        Some(Format::Name) => return Err(Failure::usage("-o name prints no objects; use -o yaml or -o json")),
        format => format.unwrap_or(Format::Yaml),
    };
    let text = read_file(&path).map_err(|error| Failure::usage(file_message(&path, &error)))?;
    let fault = |fault: String| Failure::usage(format!("{}: {fault}", path.display()));
    let objects = inject_documents(&text, &command.change()).map_err(fault)?;
    let documents = objects.iter().map(|object| document(object, format)).collect::<Result<Vec<_>, _>>()?;
    let separator = if format == Format::Json { "" } else { "---\n" };
    out.print(&documents.join(separator))
}

pub(crate) async fn run(session: &Session, command: &Inject) -> Result<(), Failure> {
    let Some(workload) = &command.workload else { return run_offline(&session.out, command) };
    let (dry, title) = (command.dry.dry_run, workload.title());
    let stored = read_workload(session, workload).await?;
    let before = &stored["spec"]["template"];
    let mut after = before.clone();
    let change = command.change();
    change.apply(&mut after).map_err(|fault| Failure::new(format!("{title}: {fault}")))?;
    let diff = template::diff(before, &after, &title)?;
    if diff.is_empty() {
        session.out.line(&format!("the template of {title} has this already"))?;
    } else {
        session.out.print(&diff)?;
    }
    match injected_pod(session, workload, &stored, &after).await {
        Ok(pod) => session.out.print(&format!("\n{}", report(session, &after, pod).await?))?,
        // A user may be allowed to change the workload, and not to create pods.
        Err(failure) if failure.status == 403 && command.apply => session.out.warn(&failure.message),
        Err(failure) => return Err(failure),
    }
    if !command.apply && dry != DryRun::Server {
        return session.out.line(&format!("\nnothing is changed; {title} gets the agent with --apply"));
    }
    workload::patch_template(session, workload, &change.patch(), dry).await?;
    session.out.line(&format!("\n{title} injected{}", dry.suffix()))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::commands::arguments::{Arguments, Command};

    fn parse(line: &str) -> Result<Inject, String> {
        let words = ["kubectl-nudge", "inject"].into_iter().chain(line.split(' '));
        match Arguments::try_parse_from(words).map_err(|error| error.to_string())?.command {
            Command::Inject(command) => Ok(command),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_workload_or_a_file_is_injected() {
        let command = parse("deploy/web --notify SIGHUP --container app --dry-run=server").unwrap();
        assert_eq!(
            (command.workload.as_ref().unwrap().title().as_str(), command.is_offline()),
            ("deployment.apps/web", false)
        );
        assert!(parse("-f web.yaml -o yaml").unwrap().is_offline());
        for bad in [
            "--notify SIGHUP",
            "deploy/web -f web.yaml",
            "deploy/web --notify SIGKILL",
            "deploy/web --container app",
            "deploy/web -o yaml",
            "-f web.yaml --apply",
            "web",
            "pod/web",
            "deploy/Web",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_ways_to_notify_are_those_of_the_annotation() {
        for way in NOTIFY_WAYS {
            assert!(way == "rollout" || way.parse::<nudge_protocol::Notify>().is_ok(), "{way}");
        }
    }
}
