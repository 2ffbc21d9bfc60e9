//! What only the leader does for configs and namespaces: reconciles, repair, and warnings as Events.

use std::sync::Arc;

use nudge_cluster::lease::Leadership;
use nudge_controller::{
    Controller, ControllerMetrics, RepairMetrics, RolloutMetrics, follow_line, keep_approval_statuses,
    keep_policy_statuses, record_warnings, repair, run,
};

use super::plane::ControlPlane;

/// Starts the controllers.
pub(super) fn start(plane: &mut ControlPlane) {
    let leadership = plane.lead("lease", plane.lease(&plane.options.lease));
    let ControlPlane { options, client, index, content_key, registry, tasks, .. } = plane;
    let (metrics, rollouts, repairs) =
        (ControllerMetrics::default(), RolloutMetrics::default(), RepairMetrics::default());
    metrics.register(registry);
    rollouts.register(registry);
    repairs.register(registry);
    let controller = Arc::new(Controller::new(
        client.clone(),
        Arc::clone(index),
        Arc::clone(content_key),
        &options.replica,
        options.stale,
        rollouts,
    ));
    let (notes, leads) = (Arc::clone(&controller), leadership.clone());
    let (namespace, lease) = (options.hub_lease.namespace.clone(), options.hub_lease.name.clone());
    tasks.spawn_restarted("line of the hub", move || {
        let (notes, namespace, lease) = (Arc::clone(&notes), namespace.clone(), lease.clone());
        while_leading(leads.clone(), move || follow_line(Arc::clone(&notes), namespace.clone(), lease.clone()))
    });
    let (noting, leads) = (Arc::clone(&controller), leadership.clone());
    tasks.spawn_restarted("statuses of policies", move || {
        let noting = Arc::clone(&noting);
        while_leading(leads.clone(), move || keep_policy_statuses(Arc::clone(&noting)))
    });
    let (noting, leads) = (Arc::clone(&controller), leadership.clone());
    tasks.spawn_restarted("statuses of approvals", move || {
        let noting = Arc::clone(&noting);
        while_leading(leads.clone(), move || keep_approval_statuses(Arc::clone(&noting)))
    });
    tasks.spawn("controllers", run(controller, Arc::clone(index), leadership.clone(), metrics));

    let (known, api, leads, replica) = (Arc::clone(index), client.clone(), leadership.clone(), options.replica.clone());
    let settings = options.repair.clone();
    tasks.spawn_restarted("repair", move || {
        repair(api.clone(), Arc::clone(&known), leads.clone(), settings.clone(), repairs.clone(), replica.clone())
    });
    let (known, api, leads, replica) = (Arc::clone(index), client.clone(), leadership.clone(), options.replica.clone());
    tasks.spawn_restarted("injection warnings", move || {
        record_warnings(api.clone(), Arc::clone(&known), leads.clone(), replica.clone())
    });
}

/// Does the work while this replica leads, from the start each time; returns when the work does.
pub(super) async fn while_leading<F: Future<Output = ()>>(mut leadership: Leadership, mut work: impl FnMut() -> F) {
    while leadership.wait_for(|leads| *leads).await.is_ok() {
        tokio::select! {
            () = work() => return,
            _ = leadership.wait_for(|leads| !*leads) => {}
        }
    }
}
