//! The rules on the pages of software that shows nothing when it has not taken a version: they refuse what the tests of
//! the software have as a wrong version.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use nudge_tests::binary;

use crate::recipe::{VERSIONS, examples};

/// Pages, and a key with a value that their software does not understand.
const WRONG: [(&str, &str, &str); 5] = [
    ("mosquitto", "acl", "nonsense\n"),
    ("pgbouncer", "pgbouncer.ini", "nonsense\n"),
    ("postgresql", "shop.conf", "nonsense\n"),
    ("rsyslog", "owners.json", "nonsense"),
    ("unbound", "zones.conf", "nonsense\n"),
];

#[test]
fn the_rules_on_the_pages_refuse_wrong_versions() -> Result<()> {
    for (name, key, value) in WRONG {
        let page = fs::read_to_string(examples().join("cookbook").join(name).join("README.md"))?;
        let spec = page.rsplit_once("```yaml\n").and_then(|(_, rest)| rest.split_once("```")).context("no rule")?.0;
        let folder = tempfile::tempdir()?;
        let rules = folder.path().join("rules.yaml");
        let kind = "apiVersion: nudge.dev/v1alpha1\nkind: VersionedConfig\n";
        fs::write(&rules, format!("{kind}metadata: {{name: {name}}}\n{spec}"))?;
        let wrong = folder.path().join("wrong");
        fs::create_dir(&wrong)?;
        fs::write(wrong.join(key), value)?;
        let good = VERSIONS.map(|version| (examples().join("config").join(name).join(version), true));
        for (version, is_good) in good.into_iter().chain([(wrong, false)]) {
            let mut validate = Command::new(binary::kubectl_nudge()?);
            let output = validate.arg("validate").arg(&version).arg("--rules").arg(&rules).output()?;
            ensure!(output.status.success() == is_good, "{}: {output:?}", version.display());
        }
    }
    Ok(())
}
