//! The agent's address for a test: the agent's child writes its environment to a file and continues.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use hyper::Uri;
use nudge_protocol::env;

/// What the agent gave its child.
#[derive(Clone, Debug)]
pub struct Access {
    /// The address at which the agent listens.
    pub address: SocketAddr,
    /// The token of the endpoint.
    pub token: String,
    /// The certificate to trust.
    pub authority: PathBuf,
    /// All variables of the child, these among them.
    pub variables: BTreeMap<String, String>,
}

impl Access {
    /// Reads what a command made by [`reporting`] has written; `None` while it has not.
    pub fn read(file: &Path) -> Option<Result<Self>> {
        let text = fs::read(file).ok()?;
        Some(Self::from_variables(parse(&text)))
    }

    /// Reads the variables of this process.
    pub fn from_env() -> Result<Self> {
        let text = |text: OsString| text.into_string().ok();
        Self::from_variables(
            std::env::vars_os().filter_map(|(name, value)| Some((text(name)?, text(value)?))).collect(),
        )
    }

    fn from_variables(variables: BTreeMap<String, String>) -> Result<Self> {
        let variable = |name| variables.get(name).with_context(|| format!("the child has no variable {name}"));
        let endpoint = variable(env::ENDPOINT)?;
        let address = address(endpoint).with_context(|| format!("can't understand {} {endpoint}", env::ENDPOINT))?;
        let token = match variables.get(env::TOKEN).filter(|token| !token.is_empty()) {
            Some(token) => token.clone(),
            None => fs::read_to_string(variable(env::TOKEN_FILE)?).context("can't read the token's file")?,
        };
        let authority = PathBuf::from(variable(env::CERT)?);
        Ok(Self { address, token, authority, variables })
    }
}

/// Returns a command that writes its environment to `file` and becomes `command`, in the same process.
pub fn reporting<S: AsRef<OsStr>>(file: &Path, command: &[S]) -> Vec<OsString> {
    // The rename lets the reader see all or nothing.
    let script = r#"env -0 >"$0.part" && mv "$0.part" "$0" && exec "$@""#;
    let shell = ["sh".into(), "-c".into(), script.into(), file.into()];
    shell.into_iter().chain(command.iter().map(Into::into)).collect()
}

/// Variables as `env -0` writes them. One that is not UTF-8 is none of Nudge's.
fn parse(text: &[u8]) -> BTreeMap<String, String> {
    let variables = text.split(|&byte| byte == 0).filter_map(|variable| str::from_utf8(variable).ok());
    variables.filter_map(|variable| variable.split_once('=')).map(|(name, value)| (name.into(), value.into())).collect()
}

fn address(endpoint: &str) -> Result<SocketAddr> {
    let uri: Uri = endpoint.parse()?;
    Ok(uri.authority().context("it has no host")?.as_str().parse()?)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_command_reports_its_environment_and_becomes_another() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("env");
        assert!(Access::read(&file).is_none());

        let command = reporting(&file, &["sh", "-c", "echo $0-$1", "a b", "c"]);
        let output = Command::new(&command[0])
            .args(&command[1..])
            .env(env::ENDPOINT, "https://[::1]:9001/config")
            .env(env::TOKEN, "two\nlines=")
            .env(env::CERT, "/a/b.crt")
            .output()
            .unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "a b-c\n");

        let access = Access::read(&file).unwrap().unwrap();
        assert_eq!(access.address, "[::1]:9001".parse().unwrap());
        assert_eq!(access.token, "two\nlines=");
        assert_eq!(access.authority, Path::new("/a/b.crt"));
    }

    #[test]
    fn without_the_variable_the_file_serves() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        fs::write(&file, "of the file").unwrap();
        for variable in [None, Some(String::new())] {
            let mut variables = BTreeMap::from([
                (env::ENDPOINT.to_owned(), "https://127.0.0.1:9001/config".to_owned()),
                (env::CERT.to_owned(), "/a/b.crt".to_owned()),
                (env::TOKEN_FILE.to_owned(), file.display().to_string()),
            ]);
            variables.extend(variable.map(|token| (env::TOKEN.to_owned(), token)));
            assert_eq!(Access::from_variables(variables).unwrap().token, "of the file");
        }
    }
}
