//! The environments of git processes: they have all settings of git and ssh, and exclude the settings of the machine.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use nudge_core::remote::GitUrl;
use zeroize::Zeroizing;

/// The speed in bytes a second below which a server is too slow.
const MIN_BYTES_PER_SECOND: &str = "1000";
/// How long git waits for a server that is too slow, in seconds.
pub(crate) const LOW_SPEED_TIMEOUT_SECONDS: u64 = 20;

/// The settings of every process. Settings of the machine, of users and of repositories have no effect.
const SETTINGS: [(&str, &str); 35] = [
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.askPass", ""),
    ("core.attributesFile", "/dev/null"),
    ("core.excludesFile", "/dev/null"),
    ("core.alternateRefsCommand", "/bin/false"),
    ("credential.helper", ""),
    ("http.followRedirects", "false"),
    ("http.sslVerify", "true"),
    ("http.proxy", ""),
    ("http.saveCookies", "false"),
    ("http.emptyAuth", "false"),
    ("http.proactiveAuth", "none"),
    ("protocol.allow", "never"),
    ("protocol.version", "2"),
    ("transfer.fsckObjects", "true"),
    ("transfer.bundleURI", "false"),
    ("transfer.credentialsInUrl", "die"),
    ("fetch.unpackLimit", "1"),
    ("fetch.writeCommitGraph", "false"),
    ("fetch.recurseSubmodules", "false"),
    ("fetch.showForcedUpdates", "false"),
    ("fetch.pruneTags", "false"),
    ("submodule.recurse", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("gpg.format", "ssh"),
    ("gpg.program", "/bin/false"),
    ("gpg.x509.program", "/bin/false"),
    ("gpg.minTrustLevel", "fully"),
    ("color.ui", "false"),
    ("log.showSignature", "false"),
    ("pack.threads", "1"),
    // Larger files go to the disk without filling the memory.
    ("core.bigFileThreshold", "32m"),
    ("core.deltaBaseCacheLimit", "32m"),
];

/// The options of ssh. The key and `known_hosts` are in the working directory of the process.
const SSH_OPTIONS: [&str; 33] = [
    "BatchMode=yes",
    "IdentitiesOnly=yes",
    "IdentityAgent=none",
    "IdentityFile=key",
    "CertificateFile=none",
    "PKCS11Provider=none",
    "StrictHostKeyChecking=yes",
    "UserKnownHostsFile=known_hosts",
    "GlobalKnownHostsFile=/dev/null",
    "UpdateHostKeys=no",
    "VerifyHostKeyDNS=no",
    "CheckHostIP=no",
    "CanonicalizeHostname=no",
    "PreferredAuthentications=publickey",
    "PasswordAuthentication=no",
    "KbdInteractiveAuthentication=no",
    "HostbasedAuthentication=no",
    "GSSAPIAuthentication=no",
    "NumberOfPasswordPrompts=0",
    "ProxyCommand=none",
    "ProxyJump=none",
    "ForwardAgent=no",
    "ForwardX11=no",
    "ClearAllForwardings=yes",
    "Tunnel=no",
    "PermitLocalCommand=no",
    "ControlMaster=no",
    "ControlPath=none",
    "RequestTTY=no",
    "EscapeChar=none",
    "ConnectTimeout=10",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=2",
];

/// The names and values of variables. Values may be credentials.
pub(crate) type Environment = Vec<(String, Zeroizing<String>)>;

/// How a server is reached.
pub(crate) struct Remote<'a> {
    pub(crate) url: &'a GitUrl,
    /// The only addresses that are connected to.
    pub(crate) addresses: &'a [SocketAddr],
    /// The value of the header `Authorization`.
    pub(crate) authorization: Option<&'a str>,
    /// Whether the trusted authorities are in the file `ca` of the working directory.
    pub(crate) has_ca: bool,
    /// The path of the program ssh.
    pub(crate) ssh: &'a Path,
}

/// Returns the environment of a process without access to the network.
pub(crate) fn local_environment(path: &str, private: &Path) -> Environment {
    environment(path, private, "none", Vec::new())
}

/// Returns the environment of a process that may reach this server only.
pub(crate) fn remote_environment(path: &str, private: &Path, remote: &Remote<'_>) -> Environment {
    let setting = |name: &str, value: String| (name.to_owned(), Zeroizing::new(value));
    if remote.url.is_ssh() {
        let allow = setting("protocol.ssh.allow", "always".to_owned());
        let mut variables = environment(path, private, "ssh", vec![allow]);
        variables.push(setting("GIT_SSH_COMMAND", ssh_command(remote)));
        variables.push(setting("GIT_SSH_VARIANT", "ssh".to_owned()));
        return variables;
    }
    let mut settings = vec![
        setting("protocol.https.allow", "always".to_owned()),
        setting("http.lowSpeedLimit", MIN_BYTES_PER_SECOND.to_owned()),
        setting("http.lowSpeedTime", LOW_SPEED_TIMEOUT_SECONDS.to_string()),
    ];
    let address = remote.url.address();
    // Curl must not resolve a host name itself, because it may get other addresses.
    if address.host.parse::<IpAddr>().is_err() {
        let addresses: Vec<_> = remote.addresses.iter().map(|address| bracketed(address.ip())).collect();
        let resolve = format!("{}:{}:{}", address.host, address.port, addresses.join(","));
        settings.push(setting("http.curloptResolve", resolve));
    }
    if remote.has_ca {
        settings.push(setting("http.sslCAInfo", private.join("ca").display().to_string()));
        // Without this setting the authorities of the machine would be trusted, too.
        settings.push(setting("http.sslCAPath", private.join("home").display().to_string()));
    }
    if let Some(authorization) = remote.authorization {
        let name = format!("http.{}.extraHeader", remote.url.origin());
        settings.push(setting(&name, format!("Authorization: {authorization}")));
    }
    environment(path, private, "https", settings)
}

fn environment(path: &str, private: &Path, protocol: &str, settings: Environment) -> Environment {
    let home = private.join("home").display().to_string();
    let private = private.display().to_string();
    let owned = |(name, value): (&str, &str)| (name.to_owned(), Zeroizing::new(value.to_owned()));
    let mut environment: Environment = [
        ("PATH", path),
        ("HOME", &home),
        ("XDG_CONFIG_HOME", &home),
        ("TMPDIR", &private),
        ("LC_ALL", "C"),
        ("LANGUAGE", "C"),
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_CONFIG_SYSTEM", "/dev/null"),
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_ATTR_NOSYSTEM", "1"),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_ASKPASS", ""),
        ("SSH_ASKPASS_REQUIRE", "never"),
        ("GIT_ALLOW_PROTOCOL", protocol),
        ("GIT_PROTOCOL_FROM_USER", "0"),
        ("GIT_OPTIONAL_LOCKS", "0"),
        ("GIT_NO_LAZY_FETCH", "1"),
        ("GIT_NO_REPLACE_OBJECTS", "1"),
        ("GIT_LITERAL_PATHSPECS", "1"),
        ("GIT_ADVICE", "0"),
        ("GIT_FLUSH", "1"),
    ]
    .map(owned)
    .into();
    let settings: Environment = SETTINGS.into_iter().map(owned).chain(settings).collect();
    environment.push(("GIT_CONFIG_COUNT".to_owned(), Zeroizing::new(settings.len().to_string())));
    for (number, (name, value)) in settings.into_iter().enumerate() {
        environment.push((format!("GIT_CONFIG_KEY_{number}"), Zeroizing::new(name)));
        environment.push((format!("GIT_CONFIG_VALUE_{number}"), value));
    }
    environment
}

/// Returns the arguments of ssh without the host and the command.
pub fn ssh_arguments(url: &GitUrl, address: SocketAddr) -> Vec<String> {
    let server_options = [
        format!("User={}", url.user()),
        format!("HostName={}", address.ip()),
        format!("HostKeyAlias={}", url.known_hosts_name()),
    ];
    let options = SSH_OPTIONS.iter().map(|option| (*option).to_owned()).chain(server_options);
    let options = options.flat_map(|option| ["-o".to_owned(), option]);
    ["-F", "/dev/null", "-a", "-x"].into_iter().map(str::to_owned).chain(options).collect()
}

/// Returns the command line of ssh, quoted for the shell that git runs it in.
fn ssh_command(remote: &Remote<'_>) -> String {
    let Some(address) = remote.addresses.first() else { return "false".to_owned() };
    let words = std::iter::once(remote.ssh.display().to_string()).chain(ssh_arguments(remote.url, *address));
    words.map(|word| format!("'{}'", word.replace('\'', "'\\''"))).collect::<Vec<_>>().join(" ")
}

fn bracketed(ip: IpAddr) -> String {
    if ip.is_ipv6() { format!("[{ip}]") } else { ip.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment_for(url: &str) -> Environment {
        let url = GitUrl::parse(url).unwrap();
        let addresses = ["192.0.2.1:443".parse().unwrap(), "[2001:db8::1]:443".parse().unwrap()];
        let ssh = Path::new("/usr/bin/ssh");
        let remote = Remote { url: &url, addresses: &addresses, authorization: Some("Basic eA=="), has_ca: false, ssh };
        remote_environment("/usr/bin", Path::new("/private"), &remote)
    }

    fn setting(environment: &Environment, name: &str) -> Option<String> {
        let number = environment.iter().find(|(_, value)| value.as_str() == name)?.0.strip_prefix("GIT_CONFIG_KEY_")?;
        let (_, value) = environment.iter().find(|(name, _)| *name == format!("GIT_CONFIG_VALUE_{number}"))?;
        Some(value.to_string())
    }

    #[test]
    fn a_header_is_for_the_origin_and_a_name_for_the_addresses_that_were_looked_at() {
        let environment = environment_for("https://git.example.com:8443/shop");
        let header = setting(&environment, "http.https://git.example.com:8443/.extraHeader");
        assert_eq!(header.as_deref(), Some("Authorization: Basic eA=="));
        let pinned = setting(&environment, "http.curloptResolve");
        assert_eq!(pinned.as_deref(), Some("git.example.com:8443:192.0.2.1,[2001:db8::1]"));
        assert!(environment.iter().any(|(name, value)| name == "GIT_ALLOW_PROTOCOL" && value.as_str() == "https"));
    }

    #[test]
    fn ssh_goes_to_the_address_and_requests_the_key_of_the_host() {
        let environment = environment_for("ssh://git@git.example.com:2222/shop");
        let (_, command) = environment.iter().find(|(name, _)| name == "GIT_SSH_COMMAND").unwrap();
        for part in ["'-F' '/dev/null'", "'HostName=192.0.2.1'", "'HostKeyAlias=[git.example.com]:2222'", "'User=git'"]
        {
            assert!(command.contains(part), "{}", **command);
        }
        assert!(!environment.iter().any(|(_, value)| value.contains("eA==")), "a header for HTTPS");
    }

    #[test]
    fn what_works_with_what_is_there_has_no_credential_and_no_protocol() {
        let environment = local_environment("/usr/bin", Path::new("/private"));
        assert!(environment.iter().any(|(name, value)| name == "GIT_ALLOW_PROTOCOL" && value.as_str() == "none"));
        assert!(environment.iter().all(|(name, _)| name != "GIT_SSH_COMMAND"));
    }
}
