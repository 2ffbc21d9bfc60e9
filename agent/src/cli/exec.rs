//! `nudge-agent exec`: runs a command with its configuration at hand, the way a pod does it.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nudge_protocol::{Ack, ConfigName, ContainerName, Notify, env};
use time::OffsetDateTime;
use tokio::sync::watch;
use tracing::level_filters::LevelFilter;

use super::LogFormat;
use super::output::{complain, with_causes};
use crate::board::{Board, Container};
use crate::child::{Child, EXIT_AGENT, Signals};
use crate::content::EtagKey;
use crate::identity::{Handout, Identity, serving_addresses};
use crate::memory::{self, Trimmer};
use crate::pipeline::{Outlets, Pipeline};
use crate::serve::{App, Connections, Endpoint, Limits, Metrics, OwnAddresses, bind, serve, tls_config};
use crate::source::Store;
use crate::source::dir::DirSource;
use crate::tell::{HookUrl, Hooks, Scope, TargetPolicy, tell_by_signal};

/// The name that the command has as a container. In a pod it is the container's own.
const CONTAINER: &str = "app";
/// How long the runtime waits at the end for a helper that still reads or writes a file.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// Run a command with its configuration at hand
///
/// Serves the configuration in DIR over HTTPS, runs COMMAND with the variables MY_CONFIG_ENDPOINT, MY_CONFIG_TOKEN,
/// MY_CONFIG_TOKEN_FILE, MY_CONFIG_CERT and MY_CONFIG_CONTAINER, and tells it when another version becomes current. Everything is as
/// in a pod, without a cluster. Ends when COMMAND ends, with its exit status (128 and the signal's number if a signal ended
/// it; 125 if nudge-agent itself fails, 126 if COMMAND can't be run, 127 if it is not found).
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Folder with the configuration: DIR/CONFIG/VERSION/KEY is a file for every value, DIR/CONFIG/current names the current version
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,

    /// Serve this config; may be given several times, and where two have the same key the later one wins [default: all in DIR, by name]
    #[arg(long, value_name = "NAME")]
    config: Vec<ConfigName>,

    /// How to tell COMMAND of a change: SIGUSR1, SIGUSR2, SIGHUP, webhook or none. Node.js starts its debugger on SIGUSR1: take SIGUSR2 there
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

    /// What counts as COMMAND having taken a version: delivered (it was told) or fetched (it has read it)
    #[arg(long, value_name = "WHAT", default_value = "delivered")]
    ack: Ack,

    /// Post changes to this URL of COMMAND, such as http://127.0.0.1:8080/changed; without it COMMAND subscribes by POST /hooks
    #[arg(long, value_name = "URL")]
    webhook: Option<HookUrl>,

    /// Allow web hooks to this address outside of this machine; may be given several times
    #[arg(long, value_name = "HOST:PORT")]
    webhook_allow: Vec<SocketAddr>,

    /// Keep token and certificate in this folder, so that they are the same at the next start
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,

    /// Look at DIR this often even without a notice from the operating system, in seconds
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
    memory::use_one_arena();
    start_log(args.log_format, args.log_level);
    report_panics();
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_keep_alive(Duration::from_secs(1))
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return failed(&[with_causes(&error)]),
    };
    let ended = runtime.block_on(run_child(args));
    runtime.shutdown_timeout(LAST_WORDS);
    match ended {
        Ok(code) => ExitCode::from(code),
        Err(Failure { code, reasons }) => {
            failed(&reasons);
            ExitCode::from(code)
        }
    }
}

struct Failure {
    code: u8,
    reasons: Vec<String>,
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { code: EXIT_AGENT, reasons: vec![with_causes(&error)] }
    }
}

fn failed(reasons: &[String]) -> ExitCode {
    for reason in reasons {
        complain(reason);
    }
    ExitCode::from(EXIT_AGENT)
}

async fn run_child(args: Args) -> Result<u8, Failure> {
    let now = OffsetDateTime::now_utc();
    let signal = match args.notify {
        Notify::Signal(signal) => Some(signal),
        Notify::Webhook | Notify::None => None,
    };
    let mut signals = Signals::watch(signal)?;

    let identity = match &args.state_dir {
        Some(folder) => Identity::load_or_generate(folder, now)?,
        None => Identity::generate(now)?,
    };
    let own = OwnAddresses::of_this_host();
    let listener = bind(SocketAddr::new(args.listen, args.port))?;
    let endpoint = listener.local_addr()?;
    let certificate = identity.authority.serving(&serving_addresses(own.as_slice()), now)?;
    let tls = tls_config(certificate)?;

    let container = ContainerName::new(CONTAINER)?;
    let (current, current_shown) = watch::channel(None);
    let (ready, ready_shown) = watch::channel(None);
    let limits = Arc::new(Limits::default());
    let connections = Connections::new(Arc::clone(&limits));
    let metrics = Metrics::default();
    let board = Board::new(
        "dir",
        vec![Container { name: container.clone(), notify: args.notify, ack: args.ack }],
        Instant::now(),
    );
    let policy = TargetPolicy::new(own.as_slice().to_vec(), args.webhook_allow);
    let hooks =
        Hooks::new(limits.hooks, identity.token.secret(), policy, ready_shown.clone(), board.clone(), metrics.clone());
    let etags = EtagKey::new(&identity.token.secret());

    let wanted = Some(args.config).filter(|wanted| !wanted.is_empty());
    let outlets = Outlets {
        current,
        ready,
        hooks: hooks.clone(),
        connections: connections.clone(),
        board: board.clone(),
        metrics: metrics.clone(),
        mount_path: args.mount_path,
    };
    let store = Store::new(wanted.clone(), etags.clone());
    let pipeline = Pipeline::new(DirSource::new(args.dir, wanted), store, outlets, Duration::from_secs(args.reread));
    let pipeline = pipeline.start().await.map_err(|reasons| Failure { code: EXIT_AGENT, reasons })?;

    if let Some(url) = &args.webhook {
        hooks.add(url.as_str(), Some(container.clone()), "")?;
    }
    let runtime_dir = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let handout = Handout::write(&identity, runtime_dir.as_deref())?;
    let variables = handout.variables(&identity, endpoint, &container);
    let app = App {
        limits: Arc::clone(&limits),
        token: identity.token.clone(),
        etags,
        current: current_shown,
        board: board.clone(),
        hooks,
        metrics: metrics.clone(),
    };
    let served =
        Endpoint { listener, tls, own, limits, connections, metrics: metrics.clone(), trimmer: Trimmer::default() };
    let app = Arc::new(app);
    vital("the endpoint", serve(served, move |connection, request| Arc::clone(&app).answer(connection, request)));
    if let Some(signal) = signal {
        let told = tell_by_signal(container, signal, Scope::Descendants, ready_shown, board, metrics);
        vital("telling by signal", told);
    }
    vital("following the folder", pipeline.run());

    let endpoint = crate::identity::endpoint_url(endpoint);
    tracing::info!(endpoint, token_file = %handout.token_file().display(), certificate = %handout.certificate_file().display(), "ready");
    let child = Child::spawn(&args.command, variables)
        .map_err(|error| Failure { code: error.exit_code(), reasons: vec![with_causes(&error)] })?;
    Ok(child.wait(&mut signals).await)
}

/// Runs a task that never ends by itself. If it ends all the same, the command goes on without it: ending the command too would be the greater
/// harm.
fn vital(what: &'static str, task: impl Future<Output = ()> + Send + 'static) {
    let task = tokio::spawn(task);
    tokio::spawn(async move {
        let ended = task.await;
        tracing::error!(task = what, panicked = ended.is_err(), "has ended, which is a bug; restart this command");
    });
}

/// Says where a panic was and not what it said, which might hold a value.
fn report_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let at = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(at, "a task has panicked, which is a bug; the rest goes on");
    }));
}

fn start_log(format: LogFormat, level: LevelFilter) {
    let log = tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(level).with_target(false);
    match format {
        LogFormat::Json => log.json().flatten_event(true).init(),
        LogFormat::Text => log.with_ansi(std::io::stderr().is_terminal()).init(),
    }
}
