//! Notices changes in the watched folders by inotify.
//!
//! Folders are watched, not files: the swap of a link or an atomic rename makes no close-write on the file
//! (inotify(7)). Events are only hints: after each one the folder is scanned again.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use futures_core::Stream as _;
use inotify::{Event, EventMask, EventStream, Inotify, WatchDescriptor, WatchMask};
use nudge_protocol::names;

/// The size of the buffer for events that are read at once, in bytes; the longest event fits (inotify(7)).
const BUFFER_BYTES: usize = 4096;

/// A change of the folders, which says how soon it must be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FolderChange {
    /// Files were written. More writes may follow: the change is read when they stop.
    Content,
    /// Another version may be current, or a folder was added or removed. The change is read at once.
    Current,
}

/// A watcher of folders below one folder.
pub struct Watcher {
    root: PathBuf,
    events: EventStream<[u8; BUFFER_BYTES]>,
    /// The watched folders: two or three for each config.
    watched: Vec<(PathBuf, WatchDescriptor)>,
    /// The folders that can't be watched; each is logged once.
    unwatchable: BTreeSet<PathBuf>,
}

impl Watcher {
    /// Creates a watcher that watches nothing yet. Needs a tokio runtime.
    pub fn new(root: PathBuf) -> io::Result<Self> {
        let events = Inotify::init()?.into_event_stream([0; BUFFER_BYTES])?;
        Ok(Self { root, events, watched: Vec::new(), unwatchable: BTreeSet::new() })
    }

    /// Watches exactly `folders` (relative to the root) from now on. Returns whether a folder was added: earlier
    /// changes in it made no event, so it must be scanned again. A folder that can't be watched is re-read from time to
    /// time.
    pub fn watch(&mut self, folders: &BTreeSet<PathBuf>) -> bool {
        let Self { root, events, watched, unwatchable } = self;
        let mut watches = events.watches();
        watched.retain(|(folder, watch)| {
            let is_still_watched = folders.contains(folder);
            if !is_still_watched {
                // The removal fails if the kernel has dropped the watch already, with the folder.
                let _ = watches.remove(watch.clone());
            }
            is_still_watched
        });
        unwatchable.retain(|folder| folders.contains(folder));
        let mut added = false;
        for folder in folders {
            let old = watched.iter().position(|(path, _)| path == folder).map(|index| watched.swap_remove(index).1);
            // A folder that was watched may have been replaced by another one of the same name.
            match watches.add(root.join(folder), mask()) {
                Ok(watch) => {
                    added |= old.as_ref() != Some(&watch);
                    watched.push((folder.clone(), watch));
                }
                Err(error) => {
                    if error.kind() != io::ErrorKind::NotFound && unwatchable.insert(folder.clone()) {
                        let folder = root.join(folder);
                        tracing::warn!(folder = %folder.display(), %error, "watching a folder failed; it is re-read from time to time");
                    }
                }
            }
        }
        added
    }

    /// Waits for the next change.
    ///
    /// Cancel safe: no event is lost when the future is dropped.
    pub async fn next_change(&mut self) -> io::Result<FolderChange> {
        loop {
            let event = poll_fn(|context| Pin::new(&mut self.events).poll_next(context)).await;
            let Some(event) = event.transpose()? else {
                return Err(io::ErrorKind::UnexpectedEof.into());
            };
            let change = self.classify(&event);
            if event.mask.contains(EventMask::IGNORED) {
                // The watch is gone with the folder. It is added again when the folder is back.
                self.watched.retain(|(_, watch)| *watch != event.wd);
            }
            if let Some(change) = change {
                return Ok(change);
            }
        }
    }

    fn classify(&self, event: &Event<std::ffi::OsString>) -> Option<FolderChange> {
        let folder = self.watched.iter().find(|(_, watch)| *watch == event.wd).map(|(folder, _)| folder.as_path());
        classify(folder, event.name.as_deref().map(Path::new), event.mask)
    }
}

/// Returns the kind of a change of `name` in `folder`; `None` if the change does not matter. Does no I/O.
fn classify(folder: Option<&Path>, name: Option<&Path>, events: EventMask) -> Option<FolderChange> {
    if events.contains(EventMask::Q_OVERFLOW) {
        return Some(FolderChange::Current);
    }
    // A watch that was removed has a last event.
    let folder = folder?;
    if events.contains(EventMask::IGNORED) {
        return Some(FolderChange::Current);
    }
    let Some(name) = name else { return Some(FolderChange::Current) };
    match folder.components().count() {
        // In the folder of all configs, one was added or removed.
        0 => Some(FolderChange::Current),
        // In a config's folder, `current` and versions matter; drafts of `current` begin with "..".
        1 if name == Path::new(names::CURRENT) => Some(FolderChange::Current),
        1 if super::is_ignored(name.as_os_str()) => None,
        1 => Some(FolderChange::Content),
        // In a version's folder, the kubelet swaps `..data`, so this name matters; other ignored names do not.
        _ if name == Path::new("..data") => Some(FolderChange::Current),
        _ if super::is_ignored(name.as_os_str()) => None,
        _ => Some(FolderChange::Content),
    }
}

fn mask() -> WatchMask {
    WatchMask::CREATE
        | WatchMask::MOVED_TO
        | WatchMask::MOVED_FROM
        | WatchMask::DELETE
        | WatchMask::CLOSE_WRITE
        | WatchMask::ATTRIB
        | WatchMask::DELETE_SELF
        | WatchMask::MOVE_SELF
        | WatchMask::ONLYDIR
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_that_can_matter_count_and_a_swap_counts_at_once() {
        let kind =
            |folder: &str, name: &str| classify(Some(Path::new(folder)), Some(Path::new(name)), EventMask::CREATE);
        assert_eq!(kind("", "shop"), Some(FolderChange::Current));
        assert_eq!(kind("shop", "current"), Some(FolderChange::Current));
        assert_eq!(kind("shop", "..current-12"), None);
        assert_eq!(kind("shop", "1.0.2"), Some(FolderChange::Content));
        assert_eq!(kind("shop/1", "key"), Some(FolderChange::Content));
        assert_eq!(kind("shop/1", ".key.swp"), None);
        assert_eq!(kind("shop/1", "..data"), Some(FolderChange::Current));
        assert_eq!(classify(Some(Path::new("shop/1")), None, EventMask::ATTRIB), Some(FolderChange::Current));
        assert_eq!(classify(None, None, EventMask::Q_OVERFLOW), Some(FolderChange::Current));
        assert_eq!(classify(None, None, EventMask::CREATE), None);
        assert_eq!(classify(None, None, EventMask::IGNORED), None);
        assert_eq!(classify(Some(Path::new("shop")), None, EventMask::IGNORED), Some(FolderChange::Current));
    }
}
