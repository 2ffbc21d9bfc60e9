//! `nudge-agent exec`: runs a command with its configuration at hand, the way a pod does it.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use nudge_protocol::error_chain::message;
use nudge_protocol::expectation::Expectation;
use nudge_protocol::{Ack, ConfigName, ContainerName, Notify, env};
use time::OffsetDateTime;
use tracing::level_filters::LevelFilter;

use super::LogFormat;
use super::launch::{LaunchFailure, launch};
use crate::assembly::{Assembly, Settings};
use crate::identity::{Handout, Identity, endpoint_url};
use crate::notify::{NotifiedEtags, NotifyScope, WebhookUrl};
use crate::pipeline::DirPipeline;
use crate::proc::{Child, EXIT_AGENT, Signals};
use crate::serve::bind;
use crate::source::Store;
use crate::source::dir::DirSource;
use crate::status::Container;
use crate::tasks::Tasks;

/// The container name of the command; in a pod it is the name of the container.
const CONTAINER: &str = "app";

/// Run a command with its configuration at hand
///
/// Serves the configuration in DIR over HTTPS, runs COMMAND with the variables MY_CONFIG_ENDPOINT, MY_CONFIG_TOKEN,
/// MY_CONFIG_TOKEN_FILE, MY_CONFIG_CERT and MY_CONFIG_CONTAINER, and notifies it when another version becomes current.
/// Everything is as in a pod, without a cluster. Ends when COMMAND ends, with its exit status (128 and the signal's
/// number if a signal ended it; 125 if nudge-agent itself fails, 126 if COMMAND can't be run, 127 if it is not found).
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Folder with the configuration: DIR/CONFIG/VERSION/KEY is a file for every value, DIR/CONFIG/current names the
    /// current version
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,

    /// Serve this config; may be given several times, and where two have the same key the later one wins [default: all
    /// in DIR, by name]
    #[arg(long, value_name = "NAME")]
    config: Vec<ConfigName>,

    /// How to notify COMMAND of a change: SIGUSR1, SIGUSR2, SIGHUP, webhook or none. Node.js starts its debugger on
    /// SIGUSR1: take SIGUSR2 there
    #[arg(long, value_name = "WAY", default_value = "none")]
    notify: Notify,

    /// Port of the endpoint; 0 takes a free one
    #[arg(long, value_name = "N", default_value_t = env::DEFAULT_PORT)]
    port: u16,

    /// Address of the endpoint
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1")]
    listen: IpAddr,

    /// Also write the values as files into this folder, all swapped in one step
    #[arg(long, value_name = "DIR")]
    mount_path: Option<PathBuf>,

    /// What counts as COMMAND having taken a version: delivered (it was notified) or fetched (it has read it)
    #[arg(long, value_name = "WHAT", default_value = "delivered")]
    ack: Ack,

    /// Post changes to this URL of COMMAND, such as http://127.0.0.1:8080/changed; without it COMMAND subscribes by
    /// POST /hooks
    #[arg(long, value_name = "URL")]
    webhook: Option<WebhookUrl>,

    /// After its notification, COMMAND must show that it took the version: workers, URL newer METRIC, URL newer METRIC
    /// ok METRIC, URL is KEY or URL#/pointer is KEY, with 'within 60s' after it if 30s do not suffice
    #[arg(long, value_name = "SIGN")]
    verify: Option<Expectation>,

    /// Allow webhooks and pages of --verify to this address outside of this machine; may be given several times
    #[arg(long, value_name = "HOST:PORT")]
    webhook_allow: Vec<SocketAddr>,

    /// Keep token and certificate in this folder, so that they are the same at the next start
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,

    /// Read DIR again this often, in seconds, even if the operating system reports no change
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    reread: u64,

    /// How to write the log, to standard error
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,

    /// How much to log: error, warn, info or debug
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: LevelFilter,

    /// The command and its arguments, after --
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub(super) fn run(args: Args) -> ExitCode {
    launch(args.log_format, args.log_level, run_child(args))
}

async fn run_child(args: Args) -> Result<u8, LaunchFailure> {
    if args.notify == Notify::InPlace {
        let reason = "--notify in-place is for pods, where the kubelet restarts containers; choose another way";
        return Err(LaunchFailure::of(reason));
    }
    let is_notified = args.notify.signal().is_some() || (args.notify == Notify::Webhook && args.webhook.is_some());
    if args.verify.is_some() && !is_notified {
        let reason =
            "--verify is for a command that is notified; add --notify SIGHUP, or --notify webhook --webhook URL";
        return Err(LaunchFailure::of(reason));
    }
    let now = OffsetDateTime::now_utc();
    let mut signals = Signals::watch(args.notify.signal())?;
    let identity = match &args.state_dir {
        Some(folder) => Identity::load_or_generate(folder, now)?,
        None => Identity::generate(now)?,
    };
    let listener = bind(SocketAddr::new(args.listen, args.port))?;

    let app = Container {
        name: ContainerName::new(CONTAINER)?,
        notify: args.notify,
        ack: args.ack,
        keys: Vec::new(),
        verify: args.verify,
    };
    let settings = Settings {
        source: "dir",
        webhooks: args.webhook.into_iter().map(|url| (url, app.clone())).collect(),
        containers: vec![app.clone()],
        checks: Vec::new(),
        notified: NotifiedEtags::default(),
        webhook_allow: args.webhook_allow,
        mount_path: args.mount_path,
        volumes: Vec::new(),
        addresses: Vec::new(),
    };
    let (assembly, outlets) = Assembly::new(settings, &identity, listener.into(), now)?;
    let configs = Some(args.config).filter(|configs| !configs.is_empty());
    let store = Store::new(configs.clone(), outlets.etags.clone());
    let pipeline =
        DirPipeline::new(DirSource::new(args.dir, configs), store, outlets, Duration::from_secs(args.reread));
    let pipeline = pipeline.start().await.map_err(|reasons| LaunchFailure { code: EXIT_AGENT, reasons })?;

    let runtime_dir = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let handout = Handout::write(&identity, runtime_dir.as_deref())?;
    let address = assembly.address();
    let mut tasks = Tasks::default();
    assembly.run(&mut tasks, |_| NotifyScope::Descendants)?;
    tasks.spawn("folder", pipeline.run());

    let (token_file, certificate) = (handout.files.token_file(), handout.files.certificate_file());
    let (token_file, certificate) = (token_file.display(), certificate.display());
    tracing::info!(endpoint = endpoint_url(address), %token_file, %certificate, "started");
    let variables = handout.variables(&identity, address, &app.name);
    let child = Child::spawn(&args.command, variables)
        .map_err(|error| LaunchFailure { code: error.exit_code(), reasons: vec![message(&error)] })?;
    loop {
        tokio::select! {
            code = child.wait(&mut signals) => return Ok(code),
            // The end is logged. The agent continues with the other tasks, since the command must not lose its parent.
            _ = tasks.wait_for_end() => {}
        }
    }
}
