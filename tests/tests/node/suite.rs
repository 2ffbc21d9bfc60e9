//! What all scenarios share, made when the first of them asks: the cluster, Nudge in it, and the report.

use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, anyhow};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::DeleteParams;
use kube::{Api, Client};
use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;

use crate::component::Component;
use crate::costs::{Cost, Costs};
use crate::place::{Place, succeed};
use crate::report::{Report, seconds};
use crate::turns::Turns;
use crate::{install, space};
use nudge_tests::eventually;

/// A scenario as it stands in the list.
pub(crate) type Run = for<'a> fn(&'a Suite) -> Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

/// The title of the table of scenarios.
const SCENARIOS: &str = "Scenarios: seconds by the clock, and of the processors (all that the machine was busy with, in equal parts for those that \
                         ran at the moment)";
/// The name of what comes before all scenarios.
const FIRST: &str = "(programs, images, node)";

/// What all scenarios of a run share.
pub(crate) struct Shared {
    /// The runtime of everything, so that clients live as long as the run.
    runtime: Runtime,
    place: OnceCell<Result<Place, String>>,
    nudge: tokio::sync::Mutex<Installed>,
    /// Namespaces that scenarios have made that have ended.
    spaces: Mutex<Vec<String>>,
    pub(crate) report: Report,
    turns: Turns,
    costs: Costs,
    /// How many scenarios run, have begun and have ended.
    count: usize,
    begun: AtomicUsize,
    ended: AtomicUsize,
}

/// What is there of Nudge.
#[derive(Default)]
struct Installed {
    base: bool,
    /// The components of `deploy`.
    components: Vec<&'static Component>,
}

/// The run as one scenario sees it.
pub(crate) struct Suite {
    shared: Arc<Shared>,
    /// Namespaces that it has made.
    pub(crate) spaces: Mutex<Vec<String>>,
}

impl Deref for Suite {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl Suite {
    /// Runs one scenario when this many others have ended. What its namespaces hold is shown when it fails, and
    /// deleted.
    #[allow(clippy::print_stdout)]
    pub(crate) fn scenario(shared: &Arc<Shared>, after: usize, name: &str, run: Run) -> Result<()> {
        let _turn = shared.turns.after(after);
        // Setting up is not the first scenario's time.
        shared.runtime.block_on(shared.place())?;
        let (suite, count) = (Self { shared: Arc::clone(shared), spaces: Mutex::default() }, shared.count);
        println!("== {name} begins, {} of {count}", shared.begun.fetch_add(1, Ordering::Relaxed) + 1);
        shared.costs.begin(name)?;
        let result = shared.runtime.block_on(run(&suite));
        let cost = shared.costs.end(name)?;
        let outcome = if result.is_ok() { "passed" } else { "FAILED" };
        let ended = shared.ended.fetch_add(1, Ordering::Relaxed) + 1;
        println!("== {name} {outcome} after {}, {ended} of {count} have ended", seconds(cost.clock));
        shared.row(name, outcome, cost);
        let spaces = lock(&suite.spaces).clone();
        lock(&shared.spaces).extend_from_slice(&spaces);
        if result.is_err() {
            shared.runtime.block_on(shared.show(&spaces));
        }
        // Those who run next get the machine, and don't wait until the namespaces are gone.
        result.and(shared.runtime.block_on(shared.delete(&spaces)))
    }
}

impl Shared {
    /// Returns a run of this many scenarios.
    pub(crate) fn new(count: usize) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        Ok(Self {
            runtime,
            place: OnceCell::new(),
            nudge: tokio::sync::Mutex::default(),
            spaces: Mutex::default(),
            report: Report::default(),
            turns: Turns::default(),
            costs: Costs::new()?,
            count,
            begun: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
        })
    }

    /// Returns whether nothing else runs. Only then a scenario takes long measurements, or measures the same without
    /// Nudge.
    pub(crate) fn is_alone(&self) -> bool {
        self.count == 1
    }

    fn row(&self, name: &str, outcome: &str, cost: Cost) {
        let cells = [name.to_owned(), outcome.to_owned(), seconds(cost.clock), seconds(cost.processors)];
        self.report.row(SCENARIOS, &cells);
    }

    /// Returns the cluster.
    #[allow(clippy::print_stdout)]
    pub(crate) async fn place(&self) -> Result<&Place> {
        let take = async || {
            println!("== {FIRST}, and then {} scenarios", self.count);
            let take = || -> Result<Place> {
                self.costs.begin(FIRST)?;
                let place = Place::take()?;
                self.row(FIRST, "", self.costs.end(FIRST)?);
                Ok(place)
            };
            take().map_err(|error| format!("{error:#}"))
        };
        self.place.get_or_init(take).await.as_ref().map_err(|error| anyhow!(error.clone()))
    }

    /// Returns the cluster with Nudge in it.
    pub(crate) async fn installed(&self) -> Result<(&Place, Client)> {
        let place = self.place().await?;
        let client = place.client().await?;
        let mut nudge = self.nudge.lock().await;
        if !nudge.base {
            install::install(place, &client).await?;
            nudge.base = true;
        }
        Ok((place, client))
    }

    /// Installs Nudge with a component.
    pub(crate) async fn with(&self, component: &'static Component) -> Result<()> {
        let (place, client) = self.installed().await?;
        let mut nudge = self.nudge.lock().await;
        if !nudge.components.iter().any(|one| one.folder == component.folder) {
            component.install(place)?;
            nudge.components.push(component);
        }
        install::wait_until_ready(&client, component.deployment).await
    }

    /// Removes Nudge.
    pub(crate) async fn removed(&self) -> Result<()> {
        let (place, client) = self.installed().await?;
        let mut nudge = self.nudge.lock().await;
        for component in std::mem::take(&mut nudge.components) {
            component.remove(place)?;
        }
        install::remove(place, &client).await?;
        nudge.base = false;
        Ok(())
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
                     kubectl -n {space} logs $pod --all-containers --prefix --tail 40; \
                     kubectl -n {space} logs $pod --previous --prefix --tail 40 2>/dev/null; done"
            );
            match succeed(place.command("sh").args(["-c", &format!("{{ {script}; }} 2>&1")])) {
                Ok(text) => eprintln!("---- {space}\n{text}"),
                Err(error) => eprintln!("---- {space}: {error:#}"),
            }
        }
    }

    /// Prints the report, and clears up: a node of our own goes with all that is on it, of another cluster what was
    /// made in it.
    pub(crate) fn end(self) -> Result<()> {
        if self.place.get().is_some() {
            self.row("total", "", self.costs.total()?);
        }
        self.report.print();
        if let Some(Ok(Place { node: None, .. })) = self.place.get() {
            self.runtime.block_on(self.clear())?;
        }
        self.place.into_inner().map_or(Ok(()), |place| place.map_or(Ok(()), Place::leave))
    }

    /// Deletes namespaces that are there.
    async fn delete(&self, spaces: &[String]) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.place().await?.client().await?);
        for name in spaces {
            if namespaces.get_opt(name).await?.is_some_and(|found| found.metadata.deletion_timestamp.is_none()) {
                namespaces.delete(name, &DeleteParams::background()).await.with_context(|| name.clone())?;
            }
        }
        Ok(())
    }

    async fn clear(&self) -> Result<()> {
        let spaces = lock(&self.spaces).clone();
        self.delete(&spaces).await?;
        let namespaces: Api<Namespace> = Api::all(self.place().await?.client().await?);
        for name in &spaces {
            let gone = async || namespaces.get_opt(name).await.ok()?.is_none().then_some(());
            eventually(space::LONG_WAIT_TIMEOUT, &format!("the namespace {name} is gone"), gone).await?;
        }
        if self.nudge.lock().await.base {
            self.removed().await?;
        }
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}
