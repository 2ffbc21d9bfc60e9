//! What one archive changes in those that it lies on.

use std::collections::{BTreeMap, BTreeSet};

use zeroize::Zeroizing;

use crate::archive::Limits;
use crate::archive::path::parents;

/// What a path is.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Node {
    File(Zeroizing<Vec<u8>>),
    Link,
    /// A device or alike.
    Other,
}

/// What one archive changes in those below it.
#[derive(Default)]
pub struct Layer {
    /// By path from the root of the artifact.
    pub(crate) nodes: BTreeMap<String, Node>,
    /// Folders, which replace files and links below them.
    pub(super) folders: BTreeSet<String>,
    /// Paths that are removed from the layers below.
    pub(super) removed: BTreeSet<String>,
    /// Folders whose content in the layers below is removed.
    pub(super) emptied: BTreeSet<String>,
    /// What reading it cost.
    pub(super) entries: usize,
    pub(super) unpacked: u64,
}

impl Layer {
    /// What there is when this layer lies on those below. It takes as long as the layer has entries, however much is below.
    pub(crate) fn onto(self, mut below: BTreeMap<String, Node>) -> BTreeMap<String, Node> {
        for folder in &self.emptied {
            empty(&mut below, folder);
        }
        for path in &self.removed {
            empty(&mut below, path);
            below.remove(path);
        }
        // A folder in the place of a file hides it, and the other way round.
        for folder in &self.folders {
            below.remove(folder);
            parents(folder).for_each(|parent| drop(below.remove(parent)));
        }
        for (path, node) in self.nodes {
            empty(&mut below, &path);
            parents(&path).for_each(|parent| drop(below.remove(parent)));
            below.insert(path, node);
        }
        below
    }

    /// How many entries and bytes are left of these limits for the next layer.
    pub(crate) fn left(&self, limits: &Limits) -> (usize, u64) {
        (limits.entries.saturating_sub(self.entries), limits.unpacked.saturating_sub(self.unpacked))
    }

    /// The files that were unpacked.
    pub fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.nodes.iter().filter_map(|(path, node)| match node {
            Node::File(content) => Some((path.as_str(), content.as_slice())),
            Node::Link | Node::Other => None,
        })
    }
}

/// Removes what is in a folder.
fn empty(nodes: &mut BTreeMap<String, Node>, folder: &str) {
    if folder.is_empty() {
        return nodes.clear();
    }
    let prefix = format!("{folder}/");
    let within = nodes.range(prefix.clone()..).map(|(path, _)| path).take_while(|path| path.starts_with(&prefix));
    for path in within.cloned().collect::<Vec<_>>() {
        nodes.remove(&path);
    }
}
