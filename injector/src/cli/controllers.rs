//! Starts the controllers, which work only in the leader: reconciles, repair, and warnings as Events.

use std::sync::Arc;

use nudge_cluster::lease::Leadership;
use nudge_controller::{
    Controller, ControllerMetrics, RepairMetrics, RolloutMetrics, follow_hub_lease, keep_approval_statuses,
    keep_policy_statuses, record_warnings, repair, run, take_over,
};
use nudge_core::derived_keys::Keys;

use super::control_plane::ControlPlane;
use crate::task_supervisor::Tasks;

/// Starts the controllers.
pub(super) fn start(plane: &mut ControlPlane, keys: Keys) {
    let leadership = plane.lead("lease", plane.lease(&plane.options.lease));
    let ControlPlane { options, client, index, registry, tasks, .. } = plane;
    let (metrics, rollouts, repairs) =
        (ControllerMetrics::default(), RolloutMetrics::default(), RepairMetrics::default());
    metrics.register(registry);
    rollouts.register(registry);
    repairs.register(registry);
    let controller =
        Controller::new(client.clone(), Arc::clone(index), keys, &options.replica, options.stale, rollouts);
    let controller = Arc::new(controller.with_max_unused_time(options.max_unused_time));
    let (lease, settings) = (options.hub_lease.clone(), options.repair.clone());
    let mut tasks_of_leader = LeaderTasks { tasks, leadership: &leadership, controller: &controller };
    tasks_of_leader.spawn("Lease of the hub", move |controller| {
        follow_hub_lease(controller, lease.namespace.clone(), lease.name.clone())
    });
    tasks_of_leader.spawn("statuses of policies", keep_policy_statuses);
    tasks_of_leader.spawn("statuses of approvals", keep_approval_statuses);
    tasks_of_leader.spawn("repair", move |controller| repair(controller, settings.clone(), repairs.clone()));
    tasks_of_leader.spawn("injection warnings", record_warnings);
    tasks_of_leader.spawn("baseline of namespaces", take_over);
    tasks.spawn("controllers", run(controller, leadership, metrics));
}

/// The tasks that work while this replica leads.
struct LeaderTasks<'a> {
    tasks: &'a mut Tasks,
    leadership: &'a Leadership,
    controller: &'a Arc<Controller>,
}

impl LeaderTasks<'_> {
    fn spawn<F>(&mut self, name: &'static str, work: impl Fn(Arc<Controller>) -> F + Clone + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (leadership, controller) = (self.leadership.clone(), Arc::clone(self.controller));
        self.tasks.spawn_restarted(name, move || {
            let (controller, work) = (Arc::clone(&controller), work.clone());
            while_leading(leadership.clone(), move || work(Arc::clone(&controller)))
        });
    }
}

/// Runs the work while this replica leads. Each time it leads again, the work starts over. Returns when the work ends
/// by itself.
pub(super) async fn while_leading<F: Future<Output = ()>>(mut leadership: Leadership, mut work: impl FnMut() -> F) {
    while leadership.wait_for(|is_leader| *is_leader).await.is_ok() {
        tokio::select! {
            () = work() => return,
            _ = leadership.wait_for(|is_leader| !*is_leader) => {}
        }
    }
}
