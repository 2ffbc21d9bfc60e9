//! What a git process is started with: all of its settings, and nothing of the machine's.

use std::net::SocketAddr;
use std::path::Path;

use nudge_core::remote::GitUrl;
use zeroize::Zeroizing;

/// Less than this many bytes a second, for so long, is too slow.
const LOW_SPEED: (u32, u32) = (1000, 20);

/// Settings of every process. Those of the machine, of users and of repositories count for nothing.
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
    // Larger files go to the disk without being in memory.
    ("core.bigFileThreshold", "32m"),
    ("core.deltaBaseCacheLimit", "32m"),
];

/// Options of ssh. `-i key` and the files stand in the working directory of the process.
const SSH: [&str; 33] = [
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

/// Names and values of variables. Values may be credentials.
pub(crate) type Environment = Vec<(String, Zeroizing<String>)>;

/// How a server is reached.
pub(crate) struct Remote<'a> {
    pub(crate) url: &'a GitUrl,
    /// The only addresses that are connected to.
    pub(crate) addresses: &'a [SocketAddr],
    /// The value of the header `Authorization`.
    pub(crate) authorization: Option<&'a str>,
    /// Authorities are in the file `ca` of the working directory.
    pub(crate) own_ca: bool,
    /// The program ssh.
    pub(crate) ssh: &'a Path,
}

/// The environment of a process that works with what is there, and reaches nobody.
pub(crate) fn local(path: &str, private: &Path) -> Environment {
    with(path, private, "none", &[])
}

/// The environment of a process that may reach this server, and no other.
pub(crate) fn remote(path: &str, private: &Path, remote: &Remote<'_>) -> Environment {
    let mut more: Vec<(String, Zeroizing<String>)> = Vec::new();
    let mut add = |name: String, value: String| more.push((name, Zeroizing::new(value)));
    if remote.url.is_ssh() {
        add("protocol.ssh.allow".to_owned(), "always".to_owned());
        let mut environment = with(path, private, "ssh", &more);
        environment.push(("GIT_SSH_COMMAND".to_owned(), Zeroizing::new(ssh_command(remote))));
        environment.push(("GIT_SSH_VARIANT".to_owned(), Zeroizing::new("ssh".to_owned())));
        return environment;
    }
    add("protocol.https.allow".to_owned(), "always".to_owned());
    add("http.lowSpeedLimit".to_owned(), LOW_SPEED.0.to_string());
    add("http.lowSpeedTime".to_owned(), LOW_SPEED.1.to_string());
    let address = remote.url.address();
    // An address needs no name; of a name, curl asks nobody else what it means.
    if address.host.parse::<std::net::IpAddr>().is_err() {
        let addresses: Vec<_> = remote.addresses.iter().map(|one| bracketed(one.ip())).collect();
        add("http.curloptResolve".to_owned(), format!("{}:{}:{}", address.host, address.port, addresses.join(",")));
    }
    if remote.own_ca {
        let file = |name| private.join(name).display().to_string();
        add("http.sslCAInfo".to_owned(), file("ca"));
        // Without it, the folder of the machine counts as well.
        add("http.sslCAPath".to_owned(), file("home"));
    }
    if let Some(authorization) = remote.authorization {
        let header = Zeroizing::new(format!("Authorization: {authorization}"));
        more.push((format!("http.{}.extraHeader", remote.url.origin()), header));
    }
    with(path, private, "https", &more)
}

fn with(path: &str, private: &Path, protocol: &str, more: &[(String, Zeroizing<String>)]) -> Environment {
    let home = private.join("home").display().to_string();
    let private = private.display().to_string();
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
    .into_iter()
    .map(|(name, value)| (name.to_owned(), Zeroizing::new(value.to_owned())))
    .collect();
    let settings = SETTINGS.iter().map(|(name, value)| ((*name).to_owned(), Zeroizing::new((*value).to_owned())));
    let settings: Environment = settings.chain(more.iter().cloned()).collect();
    environment.push(("GIT_CONFIG_COUNT".to_owned(), Zeroizing::new(settings.len().to_string())));
    for (number, (name, value)) in settings.into_iter().enumerate() {
        environment.push((format!("GIT_CONFIG_KEY_{number}"), Zeroizing::new(name)));
        environment.push((format!("GIT_CONFIG_VALUE_{number}"), value));
    }
    environment
}

/// The arguments of ssh but the host and the command.
pub(crate) fn ssh_arguments(url: &GitUrl, address: SocketAddr) -> Vec<String> {
    let options = SSH.iter().map(|it| (*it).to_owned());
    let own = [
        format!("User={}", url.user()),
        format!("HostName={}", address.ip()),
        format!("HostKeyAlias={}", url.known_as()),
    ];
    let options = options.chain(own).flat_map(|option| ["-o".to_owned(), option]);
    ["-F".to_owned(), "/dev/null".to_owned(), "-a".to_owned(), "-x".to_owned()].into_iter().chain(options).collect()
}

/// For the shell, that git runs it by: all of it is of characters without a meaning there, or quoted.
fn ssh_command(remote: &Remote<'_>) -> String {
    let Some(address) = remote.addresses.first() else { return "false".to_owned() };
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "'\\''"));
    let arguments = ssh_arguments(remote.url, *address);
    let words = std::iter::once(quoted(&remote.ssh.display().to_string())).chain(arguments.iter().map(|it| quoted(it)));
    words.collect::<Vec<_>>().join(" ")
}

fn bracketed(ip: std::net::IpAddr) -> String {
    if ip.is_ipv6() { format!("[{ip}]") } else { ip.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(url: &str) -> Environment {
        let url = GitUrl::parse(url).unwrap();
        let addresses = ["192.0.2.1:443".parse().unwrap(), "[2001:db8::1]:443".parse().unwrap()];
        let ssh = Path::new("/usr/bin/ssh");
        let it = Remote { url: &url, addresses: &addresses, authorization: Some("Basic eA=="), own_ca: false, ssh };
        remote("/usr/bin", Path::new("/private"), &it)
    }

    fn setting(environment: &Environment, name: &str) -> Option<String> {
        let number = environment.iter().find(|(_, value)| value.as_str() == name)?.0.strip_prefix("GIT_CONFIG_KEY_")?;
        let (_, value) = environment.iter().find(|(name, _)| *name == format!("GIT_CONFIG_VALUE_{number}"))?;
        Some(value.to_string())
    }

    #[test]
    fn a_header_is_for_the_origin_and_a_name_for_the_addresses_that_were_looked_at() {
        let environment = environment("https://git.example.com:8443/shop");
        let header = setting(&environment, "http.https://git.example.com:8443/.extraHeader");
        assert_eq!(header.as_deref(), Some("Authorization: Basic eA=="));
        let pinned = setting(&environment, "http.curloptResolve");
        assert_eq!(pinned.as_deref(), Some("git.example.com:8443:192.0.2.1,[2001:db8::1]"));
        assert!(environment.iter().any(|(name, value)| name == "GIT_ALLOW_PROTOCOL" && value.as_str() == "https"));
    }

    #[test]
    fn ssh_goes_to_the_address_and_asks_for_the_key_of_the_host() {
        let environment = environment("ssh://git@git.example.com:2222/shop");
        let (_, command) = environment.iter().find(|(name, _)| name == "GIT_SSH_COMMAND").unwrap();
        for part in ["'-F' '/dev/null'", "'HostName=192.0.2.1'", "'HostKeyAlias=[git.example.com]:2222'", "'User=git'"]
        {
            assert!(command.contains(part), "{}", **command);
        }
        assert!(!environment.iter().any(|(_, value)| value.contains("eA==")), "a header for HTTPS");
    }

    #[test]
    fn what_works_with_what_is_there_has_no_credential_and_no_protocol() {
        let environment = local("/usr/bin", Path::new("/private"));
        assert!(environment.iter().any(|(name, value)| name == "GIT_ALLOW_PROTOCOL" && value.as_str() == "none"));
        assert!(environment.iter().all(|(name, _)| name != "GIT_SSH_COMMAND"));
    }
}
