//! The pods of a config as its rollout sees them, kept from one pass to the next, so that a pass costs only as much as
//! has changed.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::identity::Identity;
use crate::pods::PodState;
use crate::rollout::Subject;

/// The pods of a config that count.
#[derive(Clone, Debug, Default)]
pub struct Subjects {
    /// The config and the identity that the pods belong to.
    config: Option<(Box<str>, Identity)>,
    /// The pods that steps move.
    by_steps: Vec<Subject>,
    /// The pods that take a version only by a restart: steps can't move them, and they prove nothing.
    by_restart: Vec<Arc<PodState>>,
}

impl Subjects {
    /// Returns the pods of the config. `nodes_away` are the nodes that are not Ready.
    pub fn of(pods: &[Arc<PodState>], config: &str, identity: Identity, nodes_away: &BTreeSet<String>) -> Self {
        let mut subjects = Self::default();
        subjects.update(pods, config, identity, nodes_away);
        subjects
    }

    /// Takes these pods in place of the last ones. Pods that were there before must be in the same order.
    pub fn update(&mut self, pods: &[Arc<PodState>], config: &str, identity: Identity, nodes_away: &BTreeSet<String>) {
        if self.config.as_ref().is_none_or(|(name, before)| &**name != config || *before != identity) {
            *self = Self { config: Some((config.into(), identity)), ..Self::default() };
        }
        self.by_restart.clear();
        let mut index = 0;
        // The subjects after the first pod that is new or gone, by their pods.
        let mut remaining: Option<HashMap<*const PodState, Subject>> = None;
        for pod in pods {
            if pod.is_by_restart() {
                self.by_restart.push(Arc::clone(pod));
                continue;
            }
            let node_ready = pod.node.as_ref().is_none_or(|node| !nodes_away.contains(node));
            if remaining.is_none()
                && let Some(kept) = self.by_steps.get_mut(index).filter(|kept| kept.uid == pod.uid)
            {
                if Arc::ptr_eq(&kept.pod, pod) {
                    kept.node_ready = node_ready;
                    index += 1;
                    continue;
                }
                if let Some(subject) = Subject::of(Arc::clone(pod), config, identity, node_ready) {
                    *kept = subject;
                    index += 1;
                    continue;
                }
            }
            let remaining = remaining.get_or_insert_with(|| {
                self.by_steps.drain(index..).map(|kept| (Arc::as_ptr(&kept.pod), kept)).collect()
            });
            let kept = remaining.remove(&Arc::as_ptr(pod)).map(|kept| Subject { node_ready, ..kept });
            self.by_steps.extend(kept.or_else(|| Subject::of(Arc::clone(pod), config, identity, node_ready)));
        }
        if remaining.is_none() {
            self.by_steps.truncate(index);
        }
    }

    /// Returns the pods that steps move.
    pub fn by_steps(&self) -> &[Subject] {
        &self.by_steps
    }

    /// Returns the pods that take a version only by a restart and are neither terminating nor finished.
    pub fn by_restart(&self) -> impl Iterator<Item = &PodState> {
        self.by_restart.iter().map(|pod| &**pod).filter(|pod| pod.is_live())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::keys::PodUid;
    use crate::pods::{PodPhase, PodState, RestartSums, UpdateMode};

    /// A pod of this number, which is changed so often, takes versions by restarts, and has finished.
    fn pod((number, changed, by_restart, finished): (u8, u8, bool, bool)) -> Arc<PodState> {
        Arc::new(PodState {
            name: format!("web-{number:02}"),
            uid: PodUid::new(&format!("uid-{number}")).unwrap(),
            node: Some(format!("node-{}", number % 3)),
            restarts: RestartSums { crashes: changed.into(), ..RestartSums::default() }.into(),
            update_mode: if by_restart { UpdateMode::ByRestart } else { UpdateMode::Live },
            phase: if finished { PodPhase::Finished } else { PodPhase::Pending },
            ..PodState::default()
        })
    }

    proptest! {
        /// However pods come, change and go, the kept subjects equal subjects that are built from scratch.
        #[test]
        fn what_is_kept_is_what_is_made_anew(
            passes in proptest::collection::vec(
                (proptest::collection::btree_map(0_u8..20, (0_u8..3, proptest::bool::weighted(0.1), proptest::bool::weighted(0.1)), 0..20), 0_usize..3),
                1..8,
            ),
        ) {
            let mut kept = Subjects::default();
            let mut known: HashMap<_, Arc<PodState>> = HashMap::new();
            for (pods, away) in passes {
                let mut arc = |(number, (changed, by_restart, finished))| {
                    let is = (number, changed, by_restart, finished);
                    Arc::clone(known.entry(is).or_insert_with(|| pod(is)))
                };
                let pods: Vec<_> = pods.into_iter().map(&mut arc).collect();
                let away = (0..away).map(|number| format!("node-{number}")).collect();
                kept.update(&pods, "shop", Identity::of_uid("one"), &away);
                let anew = Subjects::of(&pods, "shop", Identity::of_uid("one"), &away);
                prop_assert_eq!(kept.by_steps(), anew.by_steps());
                prop_assert!(kept.by_restart().eq(anew.by_restart()));
            }
        }
    }

    #[test]
    fn another_identity_gives_other_numbers() {
        let pods = [pod((1, 0, false, false))];
        let number = |kept: &Subjects| kept.by_steps()[0].number;
        let mut kept = Subjects::of(&pods, "shop", Identity::of_uid("one"), &BTreeSet::new());
        let before = number(&kept);
        kept.update(&pods, "shop", Identity::of_uid("two"), &BTreeSet::new());
        assert_ne!(number(&kept), before);
    }
}
