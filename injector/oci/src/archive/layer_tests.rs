//! Layers on top of each other, compared with a file system that takes the same changes.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tar::{EntryType, Header};
use zeroize::Zeroizing;

use super::*;

#[derive(Clone, Debug)]
enum Act {
    File(String, u8),
    Link(String),
    Folder(String),
    Whiteout(String),
    Opaque(String),
}

fn archive(acts: &[Act]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for act in acts {
        let whiteout = |path: &str| match path.rsplit_once('/') {
            Some((folder, name)) => format!("{folder}/.wh.{name}"),
            None => format!(".wh.{path}"),
        };
        let (kind, path, content) = match act {
            Act::File(path, content) => (EntryType::Regular, path.clone(), vec![*content]),
            Act::Link(path) => (EntryType::Symlink, path.clone(), Vec::new()),
            Act::Folder(path) => (EntryType::Directory, format!("{path}/"), Vec::new()),
            Act::Whiteout(path) => (EntryType::Regular, whiteout(path), Vec::new()),
            Act::Opaque(path) => (EntryType::Regular, format!("{path}/.wh..wh..opq"), Vec::new()),
        };
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(content.len() as u64);
        archive.append_data(&mut header, path, content.as_slice()).unwrap();
    }
    archive.into_inner().unwrap()
}

fn merge(layers: &[Vec<Act>], whiteouts: Whiteouts, root: &str) -> BTreeMap<String, Node> {
    let mut nodes = BTreeMap::new();
    for acts in layers {
        let archive = archive(acts);
        unpack(archive.as_slice(), &Limits::default(), whiteouts, root, &mut |_| true).unwrap().apply_to(&mut nodes);
    }
    nodes
}

fn file(path: &str, content: u8) -> Act {
    Act::File(path.to_owned(), content)
}

fn paths(nodes: &BTreeMap<String, Node>) -> Vec<&str> {
    nodes.keys().map(String::as_str).collect()
}

#[test]
fn whiteouts_hide_what_is_below_and_nothing_of_their_own_layer() {
    let below = vec![file("a/x", 1), file("a/y", 2), file("b", 3), file("ab", 4)];
    let whiteout = |path: &str| Act::Whiteout(path.to_owned());
    let of = |above: Vec<Act>| merge(&[below.clone(), above], Whiteouts::Apply, "");
    assert_eq!(paths(&of(vec![whiteout("a")])), ["ab", "b"]);
    assert_eq!(paths(&of(vec![whiteout("a/x"), file("b", 5)])), ["a/y", "ab", "b"]);
    assert_eq!(paths(&of(vec![file("a/new", 5), Act::Opaque("a".to_owned())])), ["a/new", "ab", "b"]);
    assert_eq!(paths(&of(vec![file("a/x", 5), whiteout("a/x")])), ["a/x", "a/y", "ab", "b"]);
    // A name that begins so is one like any other in an artifact that is no image.
    assert_eq!(
        paths(&merge(&[below.clone(), vec![whiteout("a")]], Whiteouts::Ignore, "")),
        [".wh.a", "a/x", "a/y", "ab", "b"]
    );
}

#[test]
fn a_link_is_gone_when_a_layer_above_replaces_it() {
    let link = vec![Act::Link("config".to_owned())];
    assert!(merge(std::slice::from_ref(&link), Whiteouts::Apply, "config/prod")["config"] == Node::Link);
    let replaced = [link.clone(), vec![Act::Folder("config".to_owned()), file("config/prod/a", 1)]];
    assert_eq!(paths(&merge(&replaced, Whiteouts::Apply, "config/prod")), ["config/prod/a"]);
    let implied = [link, vec![file("config/prod/a", 1)]];
    assert_eq!(paths(&merge(&implied, Whiteouts::Apply, "config/prod")), ["config/prod/a"]);
}

/// Applies the changes to the tree of a file system. Folders are known by their contents.
fn apply(tree: &mut BTreeMap<String, Option<u8>>, acts: &[Act]) {
    let below = |path: &str, folder: &str| is_below(path, folder);
    for act in acts {
        match act {
            Act::Whiteout(path) => tree.retain(|it, _| !below(it, path)),
            Act::Opaque(folder) => tree.retain(|it, _| it == folder || !below(it, folder)),
            _ => {}
        }
    }
    for act in acts {
        let mut put = |path: &str, node| {
            tree.retain(|it, _| !below(it, path) && !below(path, it));
            tree.insert(path.to_owned(), node);
        };
        match act {
            Act::File(path, content) => put(path, Some(*content)),
            Act::Link(path) => put(path, None),
            Act::Folder(path) => tree.retain(|it, _| !below(path, it)),
            Act::Whiteout(_) | Act::Opaque(_) => {}
        }
    }
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let path = || "[ab](/[ab]){0,2}";
    let act = prop_oneof![
        4 => (path(), any::<u8>()).prop_map(|(path, content)| Act::File(path, content)),
        1 => path().prop_map(Act::Link),
        1 => path().prop_map(Act::Folder),
        2 => path().prop_map(Act::Whiteout),
        1 => path().prop_map(Act::Opaque),
    ];
    // No program writes a layer with two entries for the same path.
    proptest::collection::vec(act, 0..6).prop_filter("one path, one thing", |acts| {
        let real = acts.iter().filter_map(|act| match act {
            Act::File(path, _) | Act::Link(path) => Some((path, true)),
            Act::Folder(path) => Some((path, false)),
            _ => None,
        });
        let real: Vec<(&String, bool)> = real.collect();
        let mut seen = BTreeSet::new();
        real.iter().all(|(path, _)| seen.insert(*path))
            && real
                .iter()
                .all(|(one, is_leaf)| !is_leaf || real.iter().all(|(two, _)| one == two || !is_below(two, one)))
    })
}

proptest! {
    #[test]
    fn layers_end_as_in_a_file_system(layers in proptest::collection::vec(acts(), 1..4)) {
        let mut tree = BTreeMap::new();
        for acts in &layers {
            apply(&mut tree, acts);
        }
        let expected: BTreeMap<String, Node> = tree
            .into_iter()
            .map(|(path, content)| (path, content.map_or(Node::Link, |it| Node::File(Zeroizing::new(vec![it])))))
            .collect();
        let found = merge(&layers, Whiteouts::Apply, "");
        prop_assert_eq!(paths(&found), paths(&expected));
        prop_assert!(found == expected);
    }
}
