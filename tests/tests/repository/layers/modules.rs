//! No modules with the same parent use each other, at any depth: not by their paths, and not by a name that a module
//! above them takes from one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::cargo;

/// The segments of a path below the root of a crate.
type Segments = Vec<String>;

/// The modules of a crate by their paths, the root among them.
type Modules = BTreeMap<Segments, Module>;

/// The layers of siblings: the parent, and each of its modules with the siblings that it uses.
type Siblings = BTreeMap<Segments, BTreeMap<String, BTreeSet<String>>>;

/// A module that is a file of its own.
struct Module {
    /// The file without comments and tests.
    text: String,
    children: Vec<String>,
    /// What `use` takes from modules of the crate, by the name that it has here.
    imports: BTreeMap<String, Segments>,
    /// The modules of which `use` takes everything.
    globs: Vec<Segments>,
}

impl Module {
    fn defines(&self, name: &str) -> bool {
        let kinds = ["fn", "struct", "enum", "trait", "type", "const", "static", "union"];
        let defined = |at: usize| {
            let ends = !self.text[at + name.len()..].starts_with(is_name);
            let words = self.text[..at].strip_suffix(' ').unwrap_or_default();
            ends && words.rsplit(|letter| !is_name(letter)).next().is_some_and(|word| kinds.contains(&word))
        };
        self.text.match_indices(name).any(|(at, _)| defined(at))
    }
}

#[test]
fn no_modules_of_a_crate_use_each_other() -> Result<()> {
    let mut cycles = Vec::new();
    for root in roots()? {
        let modules = modules(&root)?;
        for (parent, uses) in siblings(&modules) {
            let cycle = cycle(uses);
            if !cycle.is_empty() {
                cycles.push(format!("{} {}: {}", root.display(), parent.join("::"), cycle.join(" -> ")));
            }
        }
    }
    ensure!(cycles.is_empty(), "modules use each other:\n{}", cycles.join("\n"));
    Ok(())
}

#[test]
fn names_lead_to_the_module_that_has_the_item() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        path.parent().map(std::fs::create_dir_all).transpose()?;
        std::fs::write(path, text)
    };
    write("lib.rs", "mod a;\nmod b;\npub use b::deep::Item;\n")?;
    write("a.rs", "use crate::{Item as Other, b as c};\n// use crate::b::X;\n")?;
    write("b.rs", "pub(crate) mod deep;\npub(crate) mod low;\npub use low::*;\n")?;
    write("b/deep.rs", "use super::Low;\npub struct Item;\n")?;
    write(
        "b/low.rs",
        "pub enum Low {}\n#[cfg(test)]\nmod tests {\n    use crate::a;\n}\nfn f() { super::deep::g() }\n",
    )?;
    let siblings = siblings(&modules(&folder.path().join("lib.rs"))?);
    let uses = |parent: &[&str], name: &str| {
        let parent: Segments = parent.iter().map(|&segment| segment.to_owned()).collect();
        let uses = siblings.get(&parent).and_then(|modules| modules.get(name)).into_iter().flatten();
        uses.cloned().collect::<Vec<_>>()
    };
    assert_eq!((uses(&[], "a"), uses(&[], "b")), (vec!["b".to_owned()], Vec::new()));
    assert_eq!((uses(&["b"], "deep"), uses(&["b"], "low")), (vec!["low".to_owned()], vec!["deep".to_owned()]));
    assert_eq!(cycle(siblings[&vec!["b".to_owned()]].clone()), ["deep", "low", "deep"]);
    Ok(())
}

/// Returns the root files of all programs and libraries.
fn roots() -> Result<Vec<PathBuf>> {
    let metadata: Value =
        serde_json::from_str(&cargo(&["metadata", "--no-deps", "--format-version", "1", "--locked"])?)?;
    let packages = metadata["packages"].as_array().context("no packages")?;
    let targets = packages.iter().filter_map(|package| package["targets"].as_array()).flatten();
    let built = |kind: &Value| kind == &json!(["lib"]) || kind == &json!(["bin"]);
    let paths = targets.filter(|target| built(&target["kind"])).map(|target| target["src_path"].as_str());
    paths.map(|path| path.map(PathBuf::from).context("no path")).collect()
}

fn modules(root: &Path) -> Result<Modules> {
    let mut modules = Modules::new();
    load(root, root.parent().context("no folder")?, &Segments::new(), &mut modules)?;
    Ok(modules)
}

/// Adds the module of this path and those inside of it, whose files are in `folder`.
fn load(file: &Path, folder: &Path, path: &Segments, modules: &mut Modules) -> Result<()> {
    let text = product(file)?;
    let children = declared_modules(&text);
    let (mut imports, mut globs) = (BTreeMap::new(), Vec::new());
    let starts = text.match_indices("use ").filter(|(at, _)| {
        let line = text[..*at].rsplit('\n').next().unwrap_or_default();
        line.is_empty() || line.starts_with("pub")
    });
    for (at, word) in starts {
        let mut leaves = Vec::new();
        leaves_of(&text[at + word.len()..], &[], &mut leaves);
        for (segments, alias) in leaves {
            let Some(mut target) = absolute(path, &segments, &children) else { continue };
            match target.last().map(String::as_str) {
                Some("*") => {
                    target.pop();
                    globs.push(target);
                    continue;
                }
                Some("self") => drop(target.pop()),
                _ => {}
            }
            if let Some(name) = alias.or_else(|| target.last().cloned()) {
                imports.insert(name, target);
            }
        }
    }
    for child in &children {
        let (flat, inside) = (folder.join(format!("{child}.rs")), folder.join(child));
        let file = if flat.exists() { flat } else { inside.join("mod.rs") };
        load(&file, &inside, &[&path[..], std::slice::from_ref(child)].concat(), modules)?;
    }
    modules.insert(path.clone(), Module { text, children, imports, globs });
    Ok(())
}

/// Returns a file without comments and tests.
fn product(path: &Path) -> Result<String> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let mut lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let mut kept = Vec::new();
    while let Some(line) = lines.next() {
        if line == "#[cfg(test)]" {
            // To the item's end.
            lines.find(|line| *line == "}" || !line.starts_with(' ') && line.ends_with(';'));
        } else {
            kept.push(line);
        }
    }
    Ok(kept.join("\n"))
}

/// Returns the modules that a file declares, which are files of their own.
fn declared_modules(text: &str) -> Vec<String> {
    let declared = text.lines().filter_map(|line| line.strip_suffix(';')?.rsplit_once("mod "));
    declared
        .filter(|(public, _)| public.is_empty() || public.starts_with("pub"))
        .map(|(_, name)| name.to_owned())
        .collect()
}

/// Adds the paths that a text begins with, such as `a::A` and `b` of `{a::A, b}`, each with the name that `as` gives
/// it. Returns what is behind them.
fn leaves_of<'a>(text: &'a str, before: &[String], leaves: &mut Vec<(Segments, Option<String>)>) -> &'a str {
    let (mut path, mut text) = (before.to_vec(), text.trim_start());
    loop {
        if let Some(mut group) = text.strip_prefix('{') {
            loop {
                group = group.trim_start_matches(|letter: char| letter.is_whitespace() || letter == ',');
                match group.strip_prefix('}') {
                    Some(behind) => return behind,
                    None if group.is_empty() => return group,
                    None => {}
                }
                let behind = leaves_of(group, &path, leaves);
                // No path begins here: this is no list of names.
                if behind.len() == group.len() {
                    return behind;
                }
                group = behind;
            }
        }
        let end = text.find(|letter| !is_name(letter)).unwrap_or(text.len()).max(usize::from(text.starts_with('*')));
        path.push(text[..end].to_owned());
        text = &text[end..];
        let Some(behind) = text.strip_prefix("::") else { break };
        text = behind;
    }
    let alias = text.strip_prefix(" as ").map(|text| text.chars().take_while(|&letter| is_name(letter)).collect());
    if let Some(alias) = &alias {
        text = &text[" as ".len() + String::len(alias)..];
    }
    leaves.push((path, alias));
    text
}

/// Returns a path as seen from the root; `None` for one of another crate.
fn absolute(module: &Segments, segments: &[String], children: &[String]) -> Option<Segments> {
    let first = segments.first()?;
    let supers = segments.iter().take_while(|segment| *segment == "super").count();
    let (base, below) = match first.as_str() {
        "crate" => (&module[..0], &segments[1..]),
        "self" => (&module[..], &segments[1..]),
        "super" => (&module[..module.len().checked_sub(supers)?], &segments[supers..]),
        _ if children.contains(first) => (&module[..], segments),
        _ => return None,
    };
    Some([base, below].concat())
}

/// Returns the module that has what a path leads to. `steps` is the maximum number of re-exported names that are
/// followed, at most.
fn home(modules: &Modules, path: &[String], steps: u8) -> Segments {
    let mut module = Segments::new();
    for (at, name) in path.iter().enumerate() {
        let Some(Module { children, imports, globs, .. }) = modules.get(&module) else { break };
        if children.contains(name) {
            module.push(name.clone());
        } else if let Some(target) = imports.get(name).filter(|target| steps > 0 && **target != path[..=at]) {
            return home(modules, &[&target[..], &path[at + 1..]].concat(), steps - 1);
        } else {
            let defines = |path: &&Segments| modules.get(*path).is_some_and(|module| module.defines(name));
            let from = globs.iter().find(defines).filter(|_| !modules[&module].defines(name));
            return from.cloned().unwrap_or(module);
        }
    }
    module
}

/// Returns the uses between the modules of each parent, including their submodules.
fn siblings(modules: &Modules) -> Siblings {
    let mut siblings = Siblings::new();
    for (path, module) in modules {
        let mut leaves = Vec::new();
        for root in ["crate::", "self::", "super::"] {
            let starts = module.text.match_indices(root).map(|(at, _)| at);
            for at in starts.filter(|at| !module.text[..*at].ends_with(|letter| is_name(letter) || letter == ':')) {
                leaves_of(&module.text[at..], &[], &mut leaves);
            }
        }
        for (segments, _) in leaves {
            let Some(target) = absolute(path, &segments, &module.children) else { continue };
            let target = home(modules, &target, 9);
            let shared = path.iter().zip(&target).take_while(|(one, other)| one == other).count();
            if let (Some(user), Some(used)) = (path.get(shared), target.get(shared)) {
                let uses = siblings.entry(path[..shared].to_vec()).or_default();
                uses.entry(user.clone()).or_default().insert(used.clone());
            }
        }
    }
    siblings
}

fn is_name(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// Modules each of which uses the next, the first one again at the end; empty if there is no cycle.
fn cycle(mut uses: BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    // What uses none of the others is in no cycle.
    loop {
        let left = uses.len();
        let names: BTreeSet<String> = uses.keys().cloned().collect();
        uses.retain(|_, used| !used.is_disjoint(&names));
        if uses.len() == left {
            break;
        }
    }
    let mut cycle: Vec<String> = uses.keys().next().cloned().into_iter().collect();
    while let Some(next) = cycle.last().and_then(|last| uses[last].iter().find(|used| uses.contains_key(*used))) {
        let position = cycle.iter().position(|name| name == next);
        cycle.push(next.clone());
        if let Some(start) = position {
            return cycle.split_off(start);
        }
    }
    cycle
}
