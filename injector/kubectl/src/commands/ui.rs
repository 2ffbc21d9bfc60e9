//! `kubectl nudge ui`: serves a page on this machine that shows configs and their rollouts.

use clap::Args;
use kube::config::Kubeconfig;

use crate::commands::acts::ACTS;
use crate::failure::Failure;
use crate::page::scope::Extent;
use crate::page::{Options, RunWords, serve};
use crate::session::{ConnectionOptions, Session};

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  kubectl nudge ui
  kubectl nudge ui -n shop --no-browser --port=8001

The page shows what you may see, and does what you may do: it asks the API server with your kubeconfig. Nothing is installed. The command \
serves the page on 127.0.0.1 until you press Ctrl-C. The address has a token that works once, within a minute.")]
pub(crate) struct Ui {
    /// The port on 127.0.0.1; by default any that is free
    #[arg(long, default_value_t = 0, value_name = "PORT", hide_default_value = true)]
    pub(crate) port: u16,
    /// Print the address, and do not open the browser
    #[arg(long)]
    pub(crate) no_browser: bool,
    /// The configs of all namespaces, or fail; by default all namespaces if you may list them, and else one
    #[arg(short = 'A', long)]
    pub(crate) all_namespaces: bool,
}

/// Serves the page. `run_words` runs a command as the command line does.
pub(crate) async fn run(
    session: &Session,
    connection: &ConnectionOptions,
    command: &Ui,
    run_words: RunWords,
) -> Result<(), Failure> {
    let extent = match (command.all_namespaces, &connection.namespace) {
        (true, _) => Extent::All,
        (false, Some(_)) => Extent::One,
        (false, None) => Extent::AllIfAllowed,
    };
    let options = Options {
        port: command.port,
        browser: !command.no_browser,
        extent,
        context: context(connection),
        flags: flags(connection),
        acts: ACTS,
        run: run_words,
    };
    tokio::task::LocalSet::new().run_until(Box::pin(serve(session.clone(), options))).await
}

/// Returns the context that the page names.
fn context(connection: &ConnectionOptions) -> String {
    let read_kubeconfig = || match &connection.kubeconfig {
        Some(file) => Kubeconfig::read_from(file),
        None => Kubeconfig::read(),
    };
    let context = connection.context.clone().or_else(|| read_kubeconfig().ok()?.current_context);
    context.unwrap_or_else(|| "the pod's own account".to_owned())
}

/// Returns the flags that choose the cluster, for commands that are typed.
fn flags(connection: &ConnectionOptions) -> Vec<String> {
    let context = connection.context.iter().map(|context| format!("--context={context}"));
    let kubeconfig = connection.kubeconfig.iter().map(|file| format!("--kubeconfig={}", file.display()));
    context.chain(kubeconfig).collect()
}
