//! Service accounts: a token counts only as long as the account is there that it was made for.

use super::{Index, Kind, PodEntry};

impl Index {
    /// Returns whether the namespace has this service account. One that is deleted and made again has another uid.
    pub fn has_account(&self, namespace: &str, name: &str, uid: &str) -> bool {
        let inner = self.lock();
        let known = inner.spaces.get(namespace).and_then(|space| space.accounts.get(name));
        known.is_some_and(|known| **known == *uid)
    }

    /// Adds a service account, or replaces it.
    pub fn put_account(&self, namespace: &str, name: &str, uid: &str) {
        let replaced = {
            let mut inner = self.lock();
            let Some(space) = inner.spaces.get_mut(namespace) else { return };
            let known = space.accounts.get(name);
            if known.is_some_and(|known| **known == *uid) {
                return;
            }
            if !space.takes(Kind::Accounts, namespace, name, known.is_some()) {
                return;
            }
            space.accounts.insert(name.into(), uid.into())
        };
        // Requests wait for accounts that are new, as they do for pods.
        self.pod_added.send_replace(());
        self.account_is_gone(namespace, name, replaced.as_deref());
    }

    /// Removes a service account.
    pub fn remove_account(&self, namespace: &str, name: &str) {
        let removed = {
            let mut inner = self.lock();
            let Some(space) = inner.spaces.get_mut(namespace) else { return };
            space.unkept.remove(Kind::Accounts, name);
            let removed = space.accounts.remove(name);
            if removed.is_some() {
                space.removed(Kind::Accounts);
            }
            removed
        };
        self.account_is_gone(namespace, name, removed.as_deref());
    }

    /// The listener hears of one that is gone, and its pods are woken.
    fn account_is_gone(&self, namespace: &str, name: &str, uid: Option<&str>) {
        let Some(uid) = uid else { return };
        if let Some(listener) = self.account_gone.get() {
            listener(uid);
        }
        let inner = self.lock();
        let pods = inner.spaces.get(namespace).into_iter().flat_map(|space| space.pods.values());
        pods.filter(|entry| entry.state.service_account == name).for_each(PodEntry::wake);
    }
}
