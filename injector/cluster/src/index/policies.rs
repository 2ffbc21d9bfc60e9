//! The policies of the cluster: which hold for a namespace, and whether they are known. If they are not, nothing
//! counts as allowed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nudge_api::RolloutPolicy;
use nudge_core::governance::{MAX_POLICIES, Policies, PolicyReach};
use nudge_core::keys::ConfigKey;

use super::known_policies::{KnownPolicies, Policy, PolicyList, PolicyState, ReadFault};
use super::namespaces::IndexState;
use super::{Index, IndexEvent};
use crate::watch_health::WatchHealth;

/// The minimum number of failures in a row that are reported; fewer happen every day.
const MIN_REPORTED_FAILURES: u32 = 3;
/// The time between two questions to the API server while configs wait. The watch asks independently of them.
const ASK_INTERVAL: Duration = Duration::from_secs(20);

impl Index {
    /// Makes policies hold from now on, by a watch with this health.
    pub fn expect_policies(&self, health: WatchHealth) {
        self.lock().policies = Some(KnownPolicies::new(health));
    }

    /// Returns the policies of the namespace. While they are not known, the API server is asked again from time to
    /// time.
    pub fn policies(&self, namespace: &str) -> Policies {
        let mut inner = self.lock();
        let IndexState { policies, namespaces, .. } = &mut *inner;
        let (Some(policies), Some(state)) = (policies, namespaces.get(namespace)) else { return Policies::default() };
        if policies.is_current() {
            policies.fault = None;
        } else if policies.asked_at.is_none_or(|asked_at| asked_at.elapsed() >= ASK_INTERVAL) {
            policies.asked_at = Some(Instant::now());
            policies.health.request_answer();
        }
        policies.selecting(&state.labels)
    }

    /// Returns the policies, each with its reach; none while they may have changed unseen.
    pub fn policies_with_reach(&self) -> Vec<(Arc<RolloutPolicy>, PolicyReach)> {
        let (policies, namespaces) = {
            let inner = self.lock();
            let current = inner.policies.as_ref().filter(|policies| policies.is_current());
            let policies = current.and_then(KnownPolicies::list).into_iter().flat_map(|list| list.by_name.values());
            let policies: Vec<_> = policies.filter_map(|policy| policy.as_ref().ok().cloned()).collect();
            let namespaces = inner.namespaces.values().map(|state| (Arc::clone(&state.labels), state.configs.len()));
            (policies, namespaces.collect::<Vec<_>>())
        };
        let reach = |policy: &RolloutPolicy| {
            let selected = namespaces.iter().filter(|(labels, _)| policy.spec.namespace_selector.selects(labels));
            selected.fold(PolicyReach::default(), |sum, (_, configs)| PolicyReach {
                namespaces: sum.namespaces.saturating_add(1),
                configs: sum.configs.saturating_add(u32::try_from(*configs).unwrap_or(u32::MAX)),
            })
        };
        policies.into_iter().map(|policy| (Arc::clone(&policy), reach(&policy))).collect()
    }

    /// Returns whether policies may have changed unseen, while it is not clear yet that this lasts.
    pub fn has_doubted_policies(&self) -> bool {
        let inner = self.lock();
        inner.policies.as_ref().is_some_and(|policies| !policies.is_current() && policies.fault.is_none())
    }

    pub(crate) fn begin_policy_list(&self) {
        self.change_policies(|policies| {
            policies.listing = Some(PolicyList::default());
            false
        });
    }

    pub(crate) fn add_listed_policy(&self, name: String, policy: Policy) {
        self.change_policies(|policies| {
            let listing = policies.listing.get_or_insert_default();
            if listing.by_name.len() < MAX_POLICIES {
                listing.by_name.insert(name, policy);
            } else {
                listing.too_many = true;
            }
            false
        });
    }

    /// Notes a policy that can't be parsed, and is on the list, new or changed.
    pub(crate) fn note_unparsed_policy(&self, name: String, reason: String) {
        let is_listing = self.lock().policies.as_ref().is_some_and(|policies| policies.listing.is_some());
        if is_listing { self.add_listed_policy(name, Err(reason)) } else { self.put_policy(name, Err(reason)) }
    }

    /// Completes the list.
    pub(crate) fn complete_policy_list(&self) {
        self.change_policies(|policies| {
            policies.state = PolicyState::Listed(policies.listing.take().unwrap_or_default());
            if policies.fault.take().is_some() {
                tracing::info!("RolloutPolicies can be read now");
            }
            true
        });
    }

    /// Adds a policy, or replaces it. A new status, which Nudge itself writes, wakes nobody.
    pub(crate) fn put_policy(&self, name: String, policy: Policy) {
        self.change_policies(|policies| {
            let PolicyState::Listed(list) = &mut policies.state else { return false };
            let before = list.by_name.get(&name);
            if before.is_none() && list.by_name.len() >= MAX_POLICIES {
                list.too_many = true;
                return true;
            }
            let is_same = matches!((before, &policy), (Some(Ok(before)), Ok(new)) if before.spec == new.spec);
            list.by_name.insert(name, policy);
            !is_same
        });
    }

    /// Removes a policy.
    pub(crate) fn remove_policy(&self, name: &str) {
        self.change_policies(|policies| {
            if let PolicyState::Listed(list) = &mut policies.state {
                list.by_name.remove(name);
                if list.too_many {
                    // There may be room now for a policy that was left out.
                    policies.health.request_relist();
                }
            }
            true
        });
    }

    /// Notes failures in a row to read the policies. A cluster without the kind has none. Returns whether to log this.
    pub(crate) fn note_policy_failures(&self, cause: ReadFault, failures: u32) -> bool {
        let mut is_new = false;
        if failures < MIN_REPORTED_FAILURES {
            return is_new;
        }
        self.change_policies(|policies| {
            let is_absent = cause == ReadFault::Missing;
            let was_absent = matches!(policies.state, PolicyState::Absent);
            if is_absent {
                policies.state = PolicyState::Absent;
            } else if was_absent {
                policies.state = PolicyState::Unlisted;
            }
            let fault = (!is_absent).then_some(cause);
            let changes = is_absent != was_absent || fault != policies.fault;
            policies.fault = fault;
            is_new = changes && !is_absent;
            changes
        });
        is_new
    }

    /// Changes the known policies. Notifies of all configs if `change` returns true.
    fn change_policies(&self, change: impl FnOnce(&mut KnownPolicies) -> bool) {
        let touched: Vec<ConfigKey> = {
            let mut inner = self.lock();
            if !inner.policies.as_mut().is_some_and(change) {
                return;
            }
            inner.namespaces.values().flat_map(|state| state.configs.keys().cloned()).collect()
        };
        for key in touched {
            self.notify(&IndexEvent::Config(key));
        }
    }
}
