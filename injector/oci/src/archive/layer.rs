use std::collections::{BTreeMap, BTreeSet};

use zeroize::Zeroizing;

use crate::archive::Limits;
use crate::archive::path::parents;

/// The thing at a path.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Node {
    File(Zeroizing<Vec<u8>>),
    Link,
    /// A device, a pipe or a sparse file.
    Other,
}

/// The changes that one archive makes to the layers below it.
#[derive(Default)]
pub struct Layer {
    /// The nodes that the layer adds, by their path from the root of the artifact.
    pub(crate) nodes: BTreeMap<String, Node>,
    /// The folders, which replace files and links on the layers below.
    pub(super) folders: BTreeSet<String>,
    /// Paths that are removed from the layers below.
    pub(super) removed: BTreeSet<String>,
    /// Folders whose content in the layers below is removed.
    pub(super) emptied: BTreeSet<String>,
    /// The number of entries that were read.
    pub(super) entries: usize,
    /// The number of decompressed bytes that were read.
    pub(super) unpacked: u64,
}

impl Layer {
    /// Applies the layer to the nodes of the layers below, in a time that grows with the layer's entries only.
    pub(crate) fn apply_to(self, nodes: &mut BTreeMap<String, Node>) {
        for folder in &self.emptied {
            remove_below(nodes, folder);
        }
        for path in &self.removed {
            remove_below(nodes, path);
            nodes.remove(path);
        }
        // A folder hides a file of the same path, and the other way round.
        for folder in &self.folders {
            nodes.remove(folder);
            parents(folder).for_each(|parent| drop(nodes.remove(parent)));
        }
        for (path, node) in self.nodes {
            remove_below(nodes, &path);
            parents(&path).for_each(|parent| drop(nodes.remove(parent)));
            nodes.insert(path, node);
        }
    }

    /// Subtracts the cost of reading this layer from the limits, which then hold for the next layer.
    pub(crate) fn subtract_from(&self, limits: &mut Limits) {
        limits.entries = limits.entries.saturating_sub(self.entries);
        limits.unpacked = limits.unpacked.saturating_sub(self.unpacked);
    }

    /// Returns the files that were unpacked.
    pub fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.nodes.iter().filter_map(|(path, node)| match node {
            Node::File(content) => Some((path.as_str(), content.as_slice())),
            Node::Link | Node::Other => None,
        })
    }
}

/// Removes everything in a folder.
fn remove_below(nodes: &mut BTreeMap<String, Node>, folder: &str) {
    if folder.is_empty() {
        return nodes.clear();
    }
    let prefix = format!("{folder}/");
    let paths = nodes.range(prefix.clone()..).map(|(path, _)| path).take_while(|path| path.starts_with(&prefix));
    for path in paths.cloned().collect::<Vec<_>>() {
        nodes.remove(&path);
    }
}
