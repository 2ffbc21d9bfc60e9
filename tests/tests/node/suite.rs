//! What all scenarios share, made when the first of them asks: the cluster, Nudge in it, and the report.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::DeleteParams;
use kube::{Api, Client};
use nudge_tests::eventually;
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;

use crate::component::Component;
use crate::place::{Place, succeed};
use crate::report::{Report, seconds};
use crate::{install, space};

/// A scenario as it stands in the list.
pub(crate) type Run = for<'a> fn(&'a Suite) -> Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

/// The title of the table of scenarios.
const SCENARIOS: &str = "Scenarios";

/// The run.
#[derive(Default)]
pub(crate) struct Suite {
    /// For everything, so that clients live as long as the run.
    runtime: OnceCell<Runtime>,
    place: OnceCell<Result<Place, String>>,
    installed: Mutex<bool>,
    /// The components of `deploy` that are installed.
    components: Mutex<Vec<&'static Component>>,
    /// Namespaces that scenarios have made.
    pub(crate) spaces: Mutex<Vec<String>>,
    pub(crate) report: Report,
}

impl Suite {
    /// Runs one scenario. When it fails, what its namespaces hold is shown.
    pub(crate) fn scenario(&self, name: &str, run: Run) -> Result<()> {
        let runtime = self.runtime()?;
        // Setting up is not the first scenario's time.
        runtime.block_on(self.place())?;
        let before = self.spaces.lock().unwrap_or_else(PoisonError::into_inner).len();
        let began = Instant::now();
        let result = runtime.block_on(run(self));
        let outcome = if result.is_ok() { "passed" } else { "FAILED" };
        self.report.row(SCENARIOS, &[name.to_owned(), outcome.to_owned(), seconds(began.elapsed())]);
        if result.is_err() {
            let spaces = self.spaces.lock().unwrap_or_else(PoisonError::into_inner)[before..].to_vec();
            runtime.block_on(self.show(&spaces));
        }
        result
    }

    fn runtime(&self) -> Result<&Runtime> {
        if let Some(runtime) = self.runtime.get() {
            return Ok(runtime);
        }
        let made = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        // One scenario at a time: nobody else has set it in between.
        let _ = self.runtime.set(made);
        self.runtime.get().context("no runtime")
    }

    /// The cluster.
    pub(crate) async fn place(&self) -> Result<&Place> {
        let take = async || {
            let began = Instant::now();
            let place = Place::take().map_err(|error| format!("{error:#}"))?;
            if let Some(node) = &place.node {
                self.report.row(SCENARIOS, &["(node up)".to_owned(), String::new(), seconds(node.took)]);
                let rest = began.elapsed().saturating_sub(node.took);
                self.report.row(SCENARIOS, &["(programs, images)".to_owned(), String::new(), seconds(rest)]);
            }
            Ok(place)
        };
        self.place.get_or_init(take).await.as_ref().map_err(|error| anyhow!(error.clone()))
    }

    /// The cluster with Nudge in it.
    pub(crate) async fn installed(&self) -> Result<(&Place, Client)> {
        let place = self.place().await?;
        let client = place.client().await?;
        if !*self.flag() {
            install::install(place, &client).await?;
            *self.flag() = true;
        }
        Ok((place, client))
    }

    /// The same with a component.
    pub(crate) async fn with(&self, component: &'static Component) -> Result<()> {
        let (place, client) = self.installed().await?;
        let there = lock(&self.components).iter().any(|one| one.folder == component.folder);
        if !there {
            component.install(place)?;
            lock(&self.components).push(component);
        }
        install::is_ready(&client, component.deployment).await
    }

    /// Removes Nudge.
    pub(crate) async fn removed(&self) -> Result<()> {
        let (place, client) = self.installed().await?;
        for component in std::mem::take(&mut *lock(&self.components)) {
            component.remove(place)?;
        }
        install::remove(place, &client).await?;
        *self.flag() = false;
        Ok(())
    }

    fn flag(&self) -> MutexGuard<'_, bool> {
        lock(&self.installed)
    }

    /// Shows pods, events and logs of namespaces, and the log of the control plane.
    #[allow(clippy::print_stderr)]
    async fn show(&self, spaces: &[String]) {
        let Ok(place) = self.place().await else { return };
        if let Some(node) = &place.node {
            node.keep_logs();
        }
        let system = nudge_tests::cluster::installation::NAMESPACE;
        for space in spaces.iter().map(String::as_str).chain([system]) {
            let script = format!(
                "kubectl -n {space} get pods,deployments -o wide; kubectl -n {space} get vcfg -o yaml; kubectl -n {space} get csrc -o yaml; \
                 kubectl -n {space} get events --sort-by=.lastTimestamp | tail -40; \
                 for pod in $(kubectl -n {space} get pods -o name); do \
                     kubectl -n {space} get $pod -o jsonpath='{{.status}}'; echo; \
                     kubectl -n {space} logs $pod --all-containers --prefix --tail 40; done"
            );
            match succeed(place.command("sh").args(["-c", &format!("{{ {script}; }} 2>&1")])) {
                Ok(text) => eprintln!("---- {space}\n{text}"),
                Err(error) => eprintln!("---- {space}: {error:#}"),
            }
        }
    }

    /// Prints the report, and clears up: a node of our own goes with all that is on it, of another cluster what was made in it.
    pub(crate) fn end(self) -> Result<()> {
        self.report.print();
        if let Some(Ok(Place { node: None, .. })) = self.place.get() {
            self.runtime()?.block_on(self.clear())?;
        }
        self.place.into_inner().map_or(Ok(()), |place| place.map_or(Ok(()), Place::leave))
    }

    async fn clear(&self) -> Result<()> {
        let client = self.place().await?.client().await?;
        let namespaces: Api<Namespace> = Api::all(client);
        let spaces = self.spaces.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for name in &spaces {
            namespaces.delete(name, &DeleteParams::background()).await?;
        }
        for name in &spaces {
            let gone = async || namespaces.get_opt(name).await.ok()?.is_none().then_some(());
            eventually(space::LONG, &format!("the namespace {name} is gone"), gone).await?;
        }
        if *self.flag() {
            self.removed().await?;
        }
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
