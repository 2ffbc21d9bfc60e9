//! The URL of a git repository, with only the parts that are used.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::outbound::{Address, AddressError};

/// The maximum length of a URL.
const MAX_URL_BYTES: usize = 2048;

/// The error for a URL that can't be used. It repeats nothing of the URL, which may hold a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GitUrlError {
    /// The protocol is missing or not supported.
    #[error("it must be https://HOST/PATH, ssh://USER@HOST/PATH or USER@HOST:PATH")]
    Scheme,
    /// The URL has a password, a query or a fragment.
    #[error("it must not have a password, ? or #, nor a user with https://: put credentials into the Secret")]
    ExtraPart,
    /// The user is invalid.
    #[error("its user may hold letters, digits and -._ only, and not begin with -")]
    User,
    /// The host is missing or invalid.
    #[error("it names no host")]
    Host,
    /// The port is invalid.
    #[error("its port is not between 1 and 65535")]
    Port,
    /// The path is missing or invalid.
    #[error(
        "its path must name a repository by letters, digits and -._~/%+ only, not begin with -, and have no name \"..\""
    )]
    Path,
    /// The URL is too long.
    #[error("it has more than {MAX_URL_BYTES} characters")]
    TooLong,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    Https,
    /// `ssh://user@host:port/path`.
    Ssh(Option<String>),
    /// `user@host:path`. The path begins in the home of the user.
    Short(String),
}

/// The URL of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitUrl {
    form: Form,
    address: Address,
    /// The path, which begins with a slash except for [`Form::Short`].
    path: String,
}

impl GitUrl {
    /// Reads a URL.
    pub fn parse(url: &str) -> Result<Self, GitUrlError> {
        if url.len() > MAX_URL_BYTES {
            return Err(GitUrlError::TooLong);
        }
        if url.contains(['?', '#', '\\']) {
            return Err(GitUrlError::ExtraPart);
        }
        if let Some(remainder) = url.strip_prefix("https://") {
            let (authority, path) = remainder.split_at(remainder.find('/').ok_or(GitUrlError::Path)?);
            let address = parse_address("https", authority)?;
            return Ok(Self { form: Form::Https, address, path: check_url_path(path)? });
        }
        if let Some(remainder) = url.strip_prefix("ssh://") {
            let (authority, path) = remainder.split_at(remainder.find('/').ok_or(GitUrlError::Path)?);
            let (user, host) = match authority.rsplit_once('@') {
                Some((user, host)) => (Some(check_user(user)?), host),
                None => (None, authority),
            };
            let address = parse_ssh_address(host)?;
            return Ok(Self { form: Form::Ssh(user), address, path: check_url_path(path)? });
        }
        if url.contains("://") || url.starts_with(['-', '/', '.']) {
            return Err(GitUrlError::Scheme);
        }
        let (authority, path) = url.split_once(':').ok_or(GitUrlError::Scheme)?;
        let (user, host) = authority.split_once('@').ok_or(GitUrlError::Scheme)?;
        let user = check_user(user)?;
        // `user:password@host:path` has its second @ in the path.
        if path.contains('@') {
            return Err(GitUrlError::ExtraPart);
        }
        let address = parse_ssh_address(host)?;
        Ok(Self { form: Form::Short(user), address, path: check_url_path(path)? })
    }

    /// Returns the address of the host.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Returns whether the server is asked by SSH, and not by HTTPS.
    pub fn is_ssh(&self) -> bool {
        self.form != Form::Https
    }

    /// Returns the user on the SSH server.
    pub fn user(&self) -> &str {
        match &self.form {
            Form::Ssh(Some(user)) | Form::Short(user) => user,
            Form::Https | Form::Ssh(None) => "git",
        }
    }

    /// Returns the path on the server.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the URL without the path: `https://host:port/`.
    pub fn origin(&self) -> String {
        format!("https://{}/", self.address.authority())
    }

    /// Returns the host as `known_hosts` names it.
    pub fn known_hosts_name(&self) -> String {
        let Address { host, port, .. } = &self.address;
        if *port == 22 { host.clone() } else { format!("[{host}]:{port}") }
    }
}

impl fmt::Display for GitUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { form, address, path } = self;
        let host = if address.host.contains(':') { format!("[{}]", address.host) } else { address.host.clone() };
        match form {
            Form::Https => write!(f, "https://{}{path}", address.authority()),
            Form::Short(user) => write!(f, "{user}@{host}:{path}"),
            Form::Ssh(user) => {
                let user = user.as_ref().map(|user| format!("{user}@")).unwrap_or_default();
                let port = if address.port == 22 { String::new() } else { format!(":{}", address.port) };
                write!(f, "ssh://{user}{host}{port}{path}")
            }
        }
    }
}

fn parse_address(scheme: &str, authority: &str) -> Result<Address, GitUrlError> {
    // For git, a text with a slash before the colon is a path of this machine.
    if authority.contains('/') {
        return Err(GitUrlError::Host);
    }
    let address = Address::parse(&format!("{scheme}://{authority}")).map_err(|error| match error {
        AddressError::ExtraPart => GitUrlError::ExtraPart,
        AddressError::Port => GitUrlError::Port,
        AddressError::Scheme | AddressError::Host | AddressError::Path => GitUrlError::Host,
    })?;
    if is_host(&address.host) { Ok(address) } else { Err(GitUrlError::Host) }
}

fn parse_ssh_address(authority: &str) -> Result<Address, GitUrlError> {
    let mut address = parse_address("http", authority)?;
    // The default port of HTTP does not hold for SSH.
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| !port.is_empty() && !port.ends_with(']'));
    if !has_port {
        address.port = 22;
    }
    Ok(address)
}

/// Returns whether all programs read this host in the same way: some take a name that ends with a number for an IPv4
/// address, and some ignore a dot at the end.
fn is_host(host: &str) -> bool {
    if host.contains(':') {
        return host.parse::<Ipv6Addr>().is_ok();
    }
    let last = host.rsplit('.').next().unwrap_or_default();
    let is_number = last.chars().all(|c| c.is_ascii_digit()) || last.starts_with("0x");
    !host.starts_with(['-', '.']) && !last.is_empty() && (!is_number || host.parse::<Ipv4Addr>().is_ok())
}

fn check_user(user: &str) -> Result<String, GitUrlError> {
    if user.contains(':') {
        return Err(GitUrlError::ExtraPart);
    }
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let is_valid = !user.is_empty() && user.len() <= 64 && !user.starts_with('-') && user.chars().all(is_allowed);
    if is_valid { Ok(user.to_owned()) } else { Err(GitUrlError::User) }
}

fn check_url_path(path: &str) -> Result<String, GitUrlError> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-._~/%+".contains(c);
    let path = path.trim_end_matches('/');
    let relative = path.trim_start_matches('/');
    let steps_out = path.split('/').any(|name| name == "..");
    if relative.is_empty() || relative.starts_with('-') || steps_out || !path.chars().all(is_allowed) {
        return Err(GitUrlError::Path);
    }
    Ok(path.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_url_is_read() {
        for (url, shown, host, port) in [
            ("https://Git.example.com/team/shop.git", "https://git.example.com/team/shop.git", "git.example.com", 443),
            ("https://git.example.com:8443/shop/", "https://git.example.com:8443/shop", "git.example.com", 8443),
            ("https://[fd00::1]:8443/shop", "https://[fd00::1]:8443/shop", "fd00::1", 8443),
            ("ssh://git@git.example.com/shop", "ssh://git@git.example.com/shop", "git.example.com", 22),
            ("ssh://git.example.com:80/shop", "ssh://git.example.com:80/shop", "git.example.com", 80),
            ("ssh://git@[fd00::1]:2222/~/shop", "ssh://git@[fd00::1]:2222/~/shop", "fd00::1", 2222),
            ("ssh://git@[fd00::1]/shop", "ssh://git@[fd00::1]/shop", "fd00::1", 22),
            ("git@10.0.0.1:team/shop.git", "git@10.0.0.1:team/shop.git", "10.0.0.1", 22),
        ] {
            let read = GitUrl::parse(url).unwrap();
            assert_eq!(read.to_string(), shown);
            assert_eq!((read.address().host.as_str(), read.address().port), (host, port), "{url}");
        }
        assert_eq!(GitUrl::parse("ssh://git@a:2222/b").unwrap().known_hosts_name(), "[a]:2222");
        assert_eq!(GitUrl::parse("git@a:b").unwrap().known_hosts_name(), "a");
    }

    #[test]
    fn nothing_else_is() {
        for (url, error) in [
            ("http://a/b", GitUrlError::Scheme),
            ("file:///b", GitUrlError::Scheme),
            ("ext::sh -c id", GitUrlError::Scheme),
            ("/b", GitUrlError::Scheme),
            ("--upload-pack=id", GitUrlError::Scheme),
            ("-oProxyCommand=id@a:b", GitUrlError::Scheme),
            ("a:b", GitUrlError::Scheme),
            ("https://user:secret@a/b", GitUrlError::ExtraPart),
            ("https://token@a/b", GitUrlError::ExtraPart),
            ("ssh://user:secret@a/b", GitUrlError::ExtraPart),
            ("user:secret@a:b", GitUrlError::Scheme),
            ("https://a/b?c", GitUrlError::ExtraPart),
            ("ssh://-oProxyCommand=id/b", GitUrlError::Host),
            ("ssh://-a/b", GitUrlError::Host),
            ("ssh://-u@a/b", GitUrlError::User),
            ("git@-a:b", GitUrlError::Host),
            ("git@a/b:c", GitUrlError::Host),
            ("git@a:-b", GitUrlError::Path),
            ("https://2130706433/b", GitUrlError::Host),
            ("https://0x7f.1/b", GitUrlError::Host),
            ("https://127.0.0.0x1/b", GitUrlError::Host),
            ("https://a./b", GitUrlError::Host),
            ("https://a:0/b", GitUrlError::Port),
            ("https://a/", GitUrlError::Path),
            ("https://a", GitUrlError::Path),
            ("https://a/b/../c", GitUrlError::Path),
            ("https://a/b\nc", GitUrlError::Path),
            ("ssh://a/b';id'", GitUrlError::Path),
        ] {
            assert_eq!(GitUrl::parse(url), Err(error), "{url:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_alike(url in "(https://|ssh://(git@)?|git@)[a-z0-9.:\\[\\]-]{1,12}[:/]\\PC{0,20}") {
            if let Ok(read) = GitUrl::parse(&url) {
                let shown = read.to_string();
                prop_assert!(shown.bytes().all(|byte| byte.is_ascii_graphic()) && !shown.starts_with('-'), "{}", shown);
                prop_assert_eq!(GitUrl::parse(&shown), Ok(read));
            }
        }
    }
}
