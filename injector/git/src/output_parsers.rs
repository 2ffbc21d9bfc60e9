//! Parsers of the output of servers, repositories and git itself, for the fuzz target `git_text`.

use crate::stderr::GitFault;

pub use crate::commit_signer::{is_tag_of, parse_signer};
pub use crate::lfs::{address_on_host, parse_downloads, parse_href, usable_headers};
pub use crate::mirror::{check_file, parse_contents, parse_sizes};
pub use crate::mirrors::parse_commit_time;
pub use crate::pointer::Pointer;
pub use crate::reference::{ResolvedRef, find_revision};
pub use crate::session::parse_host_keys;
pub use crate::settings::ssh_arguments;
pub use crate::tree::parse_entries;

/// Returns the kind of a fault, by the messages of git and ssh.
pub fn fault(messages: &[u8]) -> String {
    format!("{:?}", GitFault::parse(messages))
}
