//! The files of the page, from the folder `assets`.

/// A file of the page.
pub(crate) struct Asset {
    /// The path in the address.
    path: &'static str,
    /// The content type.
    pub(crate) kind: &'static str,
    pub(crate) content: &'static str,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! assets {
    ($($path:literal $kind:expr, $file:literal;)+) => {
        /// All files. The page loads nothing else.
        const ASSETS: &[Asset] =
            &[$(Asset { path: $path, kind: $kind, content: include_str!(concat!("assets/", $file)) }),+];
    };
}

assets! {
    "/" "text/html; charset=utf-8", "index.html";
    "/style.css" "text/css; charset=utf-8", "style.css";
    "/main.js" SCRIPT, "main.js";
    "/api.js" SCRIPT, "api.js";
    "/dom.js" SCRIPT, "dom.js";
    "/format.js" SCRIPT, "format.js";
    "/overview.js" SCRIPT, "overview.js";
    "/config.js" SCRIPT, "config.js";
    "/guarded.js" SCRIPT, "guarded.js";
    "/rollout.js" SCRIPT, "rollout.js";
    "/cells.js" SCRIPT, "cells.js";
    "/pods.js" SCRIPT, "pods.js";
    "/versions.js" SCRIPT, "versions.js";
    "/past.js" SCRIPT, "past.js";
    "/diff.js" SCRIPT, "diff.js";
    "/acts.js" SCRIPT, "acts.js";
}

/// Returns the file at this path.
pub(crate) fn asset(path: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.path == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_loads_what_is_there_and_nothing_else() {
        let mut named = vec!["/".to_owned()];
        for asset in ASSETS {
            for line in asset.content.lines() {
                let quoted = line.split(['"', '\'']).skip(1).step_by(2);
                named.extend(quoted.filter_map(|text| text.strip_prefix("./").map(|name| format!("/{name}"))));
                assert!(!line.contains("://") || line.contains("http://www.w3.org/"), "{}: {line}", asset.path);
            }
        }
        for name in &named {
            assert!(asset(name).is_some(), "{name}");
        }
        for Asset { path, .. } in ASSETS {
            assert!(named.iter().any(|name| name == path), "{path} is not used");
        }
        assert!(["/../Cargo.toml", "//", "", "/main.js/", "/assets/main.js"].iter().all(|path| asset(path).is_none()));
    }

    #[test]
    fn scripts_make_no_html_of_text() {
        for Asset { path, content, .. } in ASSETS.iter().filter(|asset| asset.kind == SCRIPT) {
            for refused in
                ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "DOMParser"]
            {
                assert!(!content.contains(refused), "{path}: {refused}");
            }
            for refused in [".cookie", "localStorage.setItem('session", "srcdoc"] {
                assert!(!content.contains(refused), "{path}: {refused}");
            }
        }
    }
}
