//! The service accounts: a token counts only while the account that it was made for exists.

use super::{Index, PodEntry, WatchedKind};

impl Index {
    /// Returns whether the namespace has this service account. An account that is deleted and created again has another
    /// uid.
    pub fn has_account(&self, namespace: &str, name: &str, uid: &str) -> bool {
        let state = self.lock_namespace(namespace);
        state.is_some_and(|state| state.accounts.get(name).is_some_and(|account| **account == *uid))
    }

    /// Adds a service account, or replaces it.
    pub fn put_account(&self, namespace: &str, name: &str, uid: &str) {
        let replaced = {
            let Some(mut state) = self.lock_namespace(namespace) else { return };
            let present = state.accounts.get(name);
            if present.is_some_and(|account| **account == *uid) {
                return;
            }
            let is_known = present.is_some();
            if !state.has_room(WatchedKind::Accounts, namespace, name, is_known) {
                return;
            }
            state.accounts.insert(name.into(), uid.into())
        };
        // Requests wait for new accounts, as they do for pods.
        self.additions.send_replace(());
        self.notify_account_gone(namespace, name, replaced.as_deref());
    }

    /// Removes a service account.
    pub fn remove_account(&self, namespace: &str, name: &str) {
        let removed = self.remove_object(WatchedKind::Accounts, namespace, name, |state| state.accounts.remove(name));
        self.notify_account_gone(namespace, name, removed.as_deref());
    }

    /// Notifies the listener of an account that is gone, and wakes its pods.
    fn notify_account_gone(&self, namespace: &str, name: &str, uid: Option<&str>) {
        let Some(uid) = uid else { return };
        if let Some(listener) = self.account_gone.get() {
            listener(uid);
        }
        let Some(state) = self.lock_namespace(namespace) else { return };
        state.pods.values().filter(|entry| entry.state.service_account == name).for_each(PodEntry::wake);
    }
}
