//! Whether a server has replaced its workers since a notification.

use super::finding::Finding;
use crate::proc::Process;

/// Compares the children of a container's main process before the notification with those at the last two readings.
/// A new child counts if two readings on end have it: one that comes and goes is no worker.
pub(super) fn compare_workers(before: &[Process], last: &[Process], after: &[Process]) -> Finding {
    let mut new = after.iter().filter(|worker| !before.contains(worker)).peekable();
    if new.peek().is_none() {
        return Finding::NotYet("its main process has no new child".to_owned());
    }
    if !new.any(|worker| last.contains(worker)) {
        return Finding::NotYet("its main process has no new child that stays".to_owned());
    }
    match before.iter().filter(|worker| after.contains(worker)).count() {
        0 => Finding::Taken,
        1 => Finding::NotYet("a child of its main process from before still runs".to_owned()),
        count => Finding::NotYet(format!("{count} children of its main process from before still run")),
    }
}
