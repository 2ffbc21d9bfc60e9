//! The policies of the cluster: what holds for a namespace, and whether that is known. Where it is not, nothing may be taken for allowed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nudge_api::RolloutPolicy;
use nudge_core::governance::{MOST_POLICIES, Policies, PolicyReach};
use nudge_core::keys::ConfigKey;

use super::known_policies::{KnownPolicies, PartialList, Policy, ReadFault};
use super::state::Inner;
use super::{Index, IndexEvent};
use crate::watch_health::WatchHealth;

/// From this many failures in a row on, they are reported; fewer are an everyday event.
const FAILURES: u32 = 3;
/// How often the API server is asked anew while configs wait, beside what the watch does by itself.
const ASK_INTERVAL: Duration = Duration::from_secs(20);

impl Index {
    /// From now on policies hold, by a watch with this health.
    pub fn expect_policies(&self, health: WatchHealth) {
        self.lock().policies = Some(KnownPolicies::new(health));
    }

    /// The policies of the namespace. Where they can't be known, the API server is asked anew from time to time.
    pub fn policies(&self, namespace: &str) -> Policies {
        let mut inner = self.lock();
        let Inner { policies, spaces, .. } = &mut *inner;
        let (Some(policies), Some(space)) = (policies, spaces.get(namespace)) else { return Policies::default() };
        if policies.is_current() {
            policies.fault = None;
        } else if policies.asked.is_none_or(|asked| asked.elapsed() >= ASK_INTERVAL) {
            policies.asked = Some(Instant::now());
            policies.health.ask();
        }
        policies.selecting(&space.labels)
    }

    /// The policies with what each of them is about; none while they may have changed unseen.
    pub fn policies_with_reach(&self) -> Vec<(Arc<RolloutPolicy>, PolicyReach)> {
        let (policies, spaces) = {
            let inner = self.lock();
            let known = inner.policies.as_ref().filter(|policies| policies.is_current());
            let policies = known.into_iter().flat_map(|known| known.all.iter().flatten());
            let policies: Vec<_> = policies.filter_map(|(_, policy)| policy.as_ref().ok().cloned()).collect();
            let spaces = inner.spaces.values().map(|space| (Arc::clone(&space.labels), space.configs.len()));
            (policies, spaces.collect::<Vec<_>>())
        };
        let reach = |policy: &RolloutPolicy| {
            let selected = spaces.iter().filter(|(labels, _)| policy.spec.namespace_selector.selects(labels));
            selected.fold(PolicyReach::default(), |sum, (_, configs)| PolicyReach {
                namespaces: sum.namespaces.saturating_add(1),
                configs: sum.configs.saturating_add(u32::try_from(*configs).unwrap_or(u32::MAX)),
            })
        };
        policies.into_iter().map(|policy| (Arc::clone(&policy), reach(&policy))).collect()
    }

    /// Policies may have changed unseen, and it is not clear yet that this lasts.
    pub fn doubts_policies(&self) -> bool {
        let inner = self.lock();
        inner.policies.as_ref().is_some_and(|policies| !policies.is_current() && policies.fault.is_none())
    }

    /// A list of policies begins.
    pub(crate) fn list_policies(&self) {
        self.change_policies(|policies| {
            policies.listing = Some(PartialList::default());
            false
        });
    }

    /// The list has this.
    pub(crate) fn found_policy(&self, name: String, policy: Policy) {
        self.change_policies(|policies| {
            let listing = policies.listing.get_or_insert_default();
            if listing.all.len() < MOST_POLICIES {
                listing.all.insert(name, policy);
            } else {
                listing.too_many = true;
            }
            false
        });
    }

    /// One is on the list, new or changed, and can't be parsed.
    pub(crate) fn unparsed_policy(&self, name: String, reason: String) {
        let lists = self.lock().policies.as_ref().is_some_and(|policies| policies.listing.is_some());
        if lists { self.found_policy(name, Err(reason)) } else { self.put_policy(name, Err(reason)) }
    }

    /// The list is complete.
    pub(crate) fn listed_policies(&self) {
        self.change_policies(|policies| {
            let PartialList { all, too_many } = policies.listing.take().unwrap_or_default();
            (policies.all, policies.too_many, policies.absent) = (Some(all), too_many, false);
            if policies.fault.take().is_some() {
                tracing::info!("RolloutPolicies can be read now");
            }
            true
        });
    }

    /// One is new or changed. The status that Nudge itself writes wakes nobody.
    pub(crate) fn put_policy(&self, name: String, policy: Policy) {
        self.change_policies(|policies| {
            let Some(all) = &mut policies.all else { return false };
            let known = all.get(&name);
            if known.is_none() && all.len() >= MOST_POLICIES {
                policies.too_many = true;
                return true;
            }
            let says_the_same = matches!((known, &policy), (Some(Ok(known)), Ok(new)) if known.spec == new.spec);
            all.insert(name, policy);
            !says_the_same
        });
    }

    /// One is gone.
    pub(crate) fn remove_policy(&self, name: &str) {
        self.change_policies(|policies| {
            policies.all.iter_mut().for_each(|all| drop(all.remove(name)));
            if policies.too_many {
                // There may be room now for one that was left out.
                policies.health.request_relist();
            }
            true
        });
    }

    /// Records failures in a row to read the policies. A cluster without the kind has none. Returns whether to log this.
    pub(crate) fn policies_failed(&self, why: ReadFault, failures: u32) -> bool {
        let mut news = false;
        if failures < FAILURES {
            return news;
        }
        self.change_policies(|policies| {
            let known = (policies.absent, policies.fault);
            policies.absent = why == ReadFault::Missing;
            if policies.absent {
                (policies.all, policies.too_many, policies.fault) = (None, false, None);
            } else {
                policies.fault = Some(why);
            }
            let changed = known != (policies.absent, policies.fault);
            news = changed && !policies.absent;
            changed
        });
        news
    }

    /// Changes what is known; wakes everything where that matters.
    fn change_policies(&self, change: impl FnOnce(&mut KnownPolicies) -> bool) {
        let touched: Vec<ConfigKey> = {
            let mut inner = self.lock();
            if !inner.policies.as_mut().is_some_and(change) {
                return;
            }
            inner.spaces.values().flat_map(|space| space.configs.keys().cloned()).collect()
        };
        for key in touched {
            self.notify(&IndexEvent::Config(key));
        }
    }
}
