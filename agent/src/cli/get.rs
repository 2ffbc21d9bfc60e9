//! `nudge-agent get`: reads the dictionary from inside a container.

use std::process::ExitCode;

use clap::ValueEnum;

use super::client::get;
use super::output::{fail, print};

/// Read the configuration from inside a container, or below `nudge-agent exec`
///
/// Uses the variables MY_CONFIG_ENDPOINT, MY_CONFIG_TOKEN or MY_CONFIG_TOKEN_FILE, and MY_CONFIG_CERT; in the agent's
/// own container the files that the agent writes for the others. Without KEY prints the whole dictionary; with KEY the
/// bytes of the value, without a newline added.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print this key's value only
    key: Option<String>,
    /// DictionaryFormat of the whole dictionary
    #[arg(long, value_name = "FORMAT", default_value = "json", conflicts_with = "key")]
    format: DictionaryFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DictionaryFormat {
    /// One JSON object.
    Json,
    /// Lines KEY='value' for a shell to source; fails if a key is not a valid name of a variable.
    Env,
}

pub(super) fn run(args: &Args) -> ExitCode {
    let path = match (&args.key, args.format) {
        (Some(key), _) => {
            let key = percent_encoding::utf8_percent_encode(key, percent_encoding::NON_ALPHANUMERIC);
            format!("/config/{key}")
        }
        (None, DictionaryFormat::Json) => "/config".to_owned(),
        (None, DictionaryFormat::Env) => "/config?format=env".to_owned(),
    };
    match get(&path) {
        Err(reason) => fail(&reason),
        Ok(body) => {
            let printed = print(&body);
            let newline = args.key.is_none() && args.format == DictionaryFormat::Json;
            if newline { print(b"\n") } else { printed }
        }
    }
}
