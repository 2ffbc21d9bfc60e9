//! The page of `kubectl nudge ui`: a server on 127.0.0.1 that has exactly the rights of the user.
//!
//! - `server`, `foreign_request`, `one_time_link`, `reply`: connections, the checks of requests and their senders, and
//!   the headers of answers
//! - `routes`, `config_routes`: the endpoints; each does one thing
//! - `feed`, `scope`, `contact`, `stream`: the state that the watches have seen, the check that the API server still
//!   answers, and the stream to a window of the browser
//! - `row`, `detail`, `gates`, `cell`, `creation`: the data about a config, its versions and its pods; `view` follows
//!   one config
//! - `act`, `permitted_acts`: the acts, and whether the user may do them
//! - `assets`: the files of the page

pub(crate) mod act;
mod assets;
mod browser;
mod cell;
mod config_routes;
mod contact;
mod creation;
mod detail;
mod feed;
mod foreign_request;
mod gates;
pub(crate) mod one_time_link;
pub(crate) mod permitted_acts;
mod reply;
mod routes;
mod row;
pub(crate) mod scope;
mod server;
mod stream;
mod view;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use futures::future::LocalBoxFuture;
use k8s_openapi::api::core::v1::Pod;
use nudge_api::{VersionApproval, VersionedConfig};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use self::act::Act;
use self::browser::RedirectFile;
use self::feed::Feed;
use self::one_time_link::{Access, EXCHANGE_TIMEOUT};
use self::scope::{Extent, PageScope, scope};
use crate::failure::Failure;
use crate::session::Session;

/// The maximum number of open windows.
const MAX_WINDOWS: usize = 16;

/// Runs the words of a command.
pub(crate) type RunWords = fn(Session, Vec<String>) -> LocalBoxFuture<'static, Result<(), Failure>>;

/// The options of the page.
pub(crate) struct Options {
    /// The port; 0 for any.
    pub(crate) port: u16,
    /// Whether the browser is opened.
    pub(crate) browser: bool,
    /// The requested namespaces.
    pub(crate) extent: Extent,
    /// The context, as the page names it.
    pub(crate) context: String,
    /// The flags that choose the cluster, as they were given.
    pub(crate) flags: Vec<String>,
    pub(crate) acts: &'static [Act],
    /// Runs the command of an act.
    pub(crate) run: RunWords,
}

/// The state that all requests share.
struct Page {
    session: Session,
    options: Options,
    port: u16,
    access: RefCell<Access>,
    /// The notice that ends the wait for the first window.
    opened: tokio::sync::Notify,
    feed: Feed,
    configs: PageScope,
    pods: PageScope,
    approvals: PageScope,
    windows: Arc<Semaphore>,
    /// The permit of the one act that may run at a time.
    acting: Semaphore,
}

/// Serves the page until the user presses Ctrl-C, or nobody opens it in time.
pub(crate) async fn serve(session: Session, options: Options) -> Result<(), Failure> {
    let configs = scope::<VersionedConfig>(&session, options.extent, "listing configs").await?;
    if let PageScope::Nothing(cause) = configs {
        return Err(Failure::new(cause));
    }
    let pods = scope::<Pod>(&session, options.extent, "listing pods").await?;
    let approvals = approvals_scope(&session, options.extent).await?;
    let listener = TcpListener::bind(("127.0.0.1", options.port)).await;
    let bind_failure =
        |error: std::io::Error| Failure::new(format!("127.0.0.1:{}: {error}; choose another --port", options.port));
    let listener = listener.map_err(bind_failure)?;
    let port = listener.local_addr().map_err(bind_failure)?.port();
    let access =
        Access::new(Instant::now()).ok_or_else(|| Failure::new("the operating system gives no random numbers"))?;
    let address = format!("http://127.0.0.1:{port}/#{}", access.first());
    session.out.line(&address)?;
    session.out.note("The address works once, within a minute. The page can do what you may do. Ctrl-C ends it.");
    let redirect = if options.browser {
        let redirect = RedirectFile::open(&address);
        redirect
            .map_err(|cause| {
                session.out.warn(&format!("the browser was not opened: {cause}; open the address yourself"));
            })
            .ok()
    } else {
        None
    };
    let page = Rc::new(Page {
        access: RefCell::new(access),
        opened: tokio::sync::Notify::new(),
        feed: Feed::new(),
        windows: Arc::new(Semaphore::new(MAX_WINDOWS)),
        acting: Semaphore::new(1),
        session,
        options,
        port,
        configs,
        pods,
        approvals,
    });
    let watches = async {
        let page = &page;
        futures::join!(
            page.feed.watch_configs(&page.session, &page.configs),
            page.feed.watch_pods(&page.session, &page.pods),
            page.feed.watch_approvals(&page.session, &page.approvals),
            contact::probe(&page.feed, &page.session, &page.configs)
        );
        // Watches end at once if the user may not list anything.
        std::future::pending::<()>().await;
    };
    tokio::select! {
        ended = server::accept(listener, Rc::clone(&page)) => ended,
        () = watches => Ok(()),
        ended = wait_until_opened(&page, redirect) => ended,
        // Without signal handling, Ctrl-C ends the process.
        Ok(()) = tokio::signal::ctrl_c() => Ok(()),
    }
}

/// Returns which approvals the user may list; none if the cluster does not have the kind.
async fn approvals_scope(session: &Session, extent: Extent) -> Result<PageScope, Failure> {
    match scope::<VersionApproval>(session, extent, "listing VersionApprovals").await {
        Err(failure) if failure.status == 404 => Ok(PageScope::Nothing(failure.message)),
        result => result,
    }
}

/// Fails if nobody opens the page before its address expires. In any case, removes the file that redirects the browser
/// to the page.
async fn wait_until_opened(page: &Page, redirect: Option<RedirectFile>) -> Result<(), Failure> {
    let opened = tokio::time::timeout(EXCHANGE_TIMEOUT, page.opened.notified()).await;
    drop(redirect);
    if opened.is_err() && !page.access.borrow().is_used() {
        return Err(Failure::new(
            "nobody opened the page within a minute, and its address is not valid any more; run kubectl nudge ui again",
        ));
    }
    std::future::pending().await
}
