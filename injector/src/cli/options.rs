//! The options of `serve`: its settings, checked together and converted to the types of the parts that use them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use nudge_certs::{Lifetimes, ServingNames};
use nudge_cluster::lease::LeaseSettings;
use nudge_cluster::watch::WatchSettings;
use nudge_controller::RepairSettings;
use nudge_core::features::Overrides;
use nudge_core::injection::{self, AgentDefaults, InjectionSettings};
use nudge_core::namespaces::NamespaceRule;
use nudge_core::outbound::AddressRange;
use nudge_protocol::error_chain::chain;

use super::roles::{Role, Roles};
use super::settings::{InjectionArguments, Repair, RepairArguments, ServeSettings, UnknownKeys, list_items};

/// The maximum time that tasks take to end after agents were handed over: first for the last writes of the hub, then
/// for the last admission reviews.
const LAST_ANSWERS_TIMEOUT: Duration = Duration::from_secs(16);

/// The reasons why settings can't be used, each with its flag.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("settings can't be used: {}", .0.join("; "))]
pub(super) struct OptionsError(Vec<String>);

/// The source of the serving certificate.
pub(super) enum CertificateSource {
    /// Files in a folder, which another program writes.
    Folder(PathBuf),
    /// Nudge's own authority, which this process keeps.
    Own { names: ServingNames, lifetimes: Lifetimes },
}

pub(super) enum KeySource {
    /// Files in a folder, one for each key.
    Folder(PathBuf),
    /// A Secret that this process fills.
    Secret(String),
}

/// The settings of `serve`, ready for use.
pub(super) struct Options {
    pub(super) roles: Roles,
    pub(super) replica: String,
    pub(super) namespace: String,
    pub(super) listen_admission: SocketAddr,
    /// The authority of clients that may post reviews.
    pub(super) admission_client_ca: Option<PathBuf>,
    pub(super) listen_hub: SocketAddr,
    pub(super) listen_health: SocketAddr,
    pub(super) health_socket: Option<PathBuf>,
    /// The source of the certificates; `None` if no role needs any.
    pub(super) certificates: Option<CertificateSource>,
    /// The source of the keys; `None` if no role needs any.
    pub(super) content_key: Option<KeySource>,
    pub(super) enabled: NamespaceRule,
    pub(super) watch: WatchSettings,
    /// The maximum silence of a watch. After a longer silence, other replicas may be more current.
    pub(super) stale: Duration,
    /// The time after which a config goes that its namespace made, if nobody needs it.
    pub(super) max_unused_time: Duration,
    pub(super) lease: LeaseSettings,
    pub(super) hub_lease: LeaseSettings,
    pub(super) sources_lease: LeaseSettings,
    /// The service account of the role sources, in the form that kubectl accepts.
    pub(super) sources_account: String,
    /// The folder of the role sources for mirrors.
    pub(super) mirrors_folder: PathBuf,
    /// The maximum bytes of the mirrors.
    pub(super) max_mirror_bytes: u64,
    /// The addresses of nodes that sources and analyses may reach.
    pub(super) allowed_nodes: Vec<AddressRange>,
    pub(super) analysis_lease: LeaseSettings,
    /// The service account of the role analysis, in the form that kubectl accepts.
    pub(super) analysis_account: String,
    pub(super) hub: nudge_hub::Settings,
    pub(super) features: Overrides,
    pub(super) injection: InjectionSettings,
    pub(super) repair: RepairSettings,
    /// The maximum duration of a shutdown.
    pub(super) shutdown_timeout: Duration,
}

impl TryFrom<ServeSettings> for Options {
    type Error = OptionsError;

    fn try_from(settings: ServeSettings) -> Result<Self, OptionsError> {
        let mut faults = Vec::new();
        let replica = settings.replica();
        if replica.is_empty() {
            faults.push("--identity: a replica needs a name".to_owned());
        }
        if settings.injection.hub_url.as_deref().is_some_and(|url| !url.is_empty() && !url.starts_with("https://")) {
            faults.push("--hub-url: agents reach the hub by https:// only".to_owned());
        }
        let allowed_nodes = parse_ranges(&settings.outbound_allow, &mut faults);
        let agent_defaults = agent_defaults(&settings.injection, &mut faults);
        let roles = Roles::new(&settings.roles);
        let certificates = certificates(&settings, &roles, &mut faults);
        let content_key = content_key(&settings, &roles, &mut faults);
        if !faults.is_empty() {
            return Err(OptionsError(faults));
        }
        let namespace = settings.namespace;
        let enabled =
            if settings.all_namespaces { NamespaceRule::all_but(&namespace) } else { NamespaceRule::Labelled };
        let drain = Duration::from_secs(settings.drain_seconds.into());
        // A watch that is silent for longer than its seconds is started again. After this time, the new watch must have
        // failed, too.
        let stale = Duration::from_secs(u64::from(settings.watch_seconds) * 3 + 30);
        let mut hub = nudge_hub::Settings {
            max_connections: usize::try_from(settings.hub_connections).unwrap_or(usize::MAX),
            drain_period: drain,
            max_watch_silence: stale,
            ..nudge_hub::Settings::default()
        };
        hub.agents.wait_seconds = settings.hub_wait_seconds;
        let lease = |name: String| LeaseSettings {
            namespace: namespace.clone(),
            name,
            identity: replica.clone(),
            duration: Duration::from_secs(settings.lease_seconds.into()),
        };
        Ok(Self {
            listen_admission: settings.listen_admission,
            admission_client_ca: settings.admission_client_ca_file,
            listen_hub: settings.listen_hub,
            listen_health: settings.listen_health,
            health_socket: settings.health_socket,
            certificates,
            content_key,
            watch: WatchSettings {
                seconds: settings.watch_seconds,
                enabled: enabled.clone(),
                reads: settings.reads,
                kinds: roles.watches(),
                policies: roles.has(Role::Control),
                ..WatchSettings::default()
            },
            roles,
            enabled,
            stale,
            max_unused_time: Duration::from_secs(settings.baseline_seconds.into()),
            lease: lease(settings.lease),
            hub_lease: lease(settings.hub_lease),
            sources_lease: lease(settings.sources_lease),
            sources_account: format!("{namespace}:{}", settings.sources_service_account),
            mirrors_folder: settings.mirrors_dir,
            max_mirror_bytes: u64::from(settings.mirrors_mib) << 20,
            allowed_nodes,
            analysis_lease: lease(settings.analysis_lease),
            analysis_account: format!("{namespace}:{}", settings.analysis_service_account),
            hub,
            features: Overrides {
                kubelet: settings.injection.kubelet_version,
                family: settings.injection.pod_ip_family,
                own_address: settings.injection.pod_ip,
            },
            injection: injection(settings.injection, agent_defaults, &namespace),
            repair: repair(&settings.repair, &namespace, &settings.service_account),
            shutdown_timeout: drain + LAST_ANSWERS_TIMEOUT,
            replica,
            namespace,
        })
    }
}

/// Returns the source of the keys; `None` after a fault, or if the roles need none.
fn content_key(settings: &ServeSettings, roles: &Roles, faults: &mut Vec<String>) -> Option<KeySource> {
    match &settings.content_key_dir {
        _ if !roles.needs_content_key() => None,
        Some(folder) => Some(KeySource::Folder(folder.clone())),
        None if roles.has(Role::Certs) => Some(KeySource::Secret(settings.content_key_secret.clone())),
        None => {
            faults.push("--content-key-dir: a process without the role certs needs it".to_owned());
            None
        }
    }
}

/// Returns the source of the certificates; `None` after a fault, or if the roles need none.
fn certificates(settings: &ServeSettings, roles: &Roles, faults: &mut Vec<String>) -> Option<CertificateSource> {
    if !roles.serve() && !roles.has(Role::Certs) {
        return None;
    }
    if let Some(folder) = &settings.certificate_dir {
        return Some(CertificateSource::Folder(folder.clone()));
    }
    if !roles.has(Role::Certs) {
        faults.push("--certificate-dir: a process without the role certs needs it".to_owned());
        return None;
    }
    let authority = Duration::from_hours(24) * settings.ca_days;
    let lifetimes = Lifetimes { authority, ..Lifetimes::default() }.checked();
    let lifetimes = lifetimes.map_err(|error| faults.push(format!("--ca-days: {}", chain(&error)))).ok();
    let mut names = ServingNames::default();
    for name in settings.names() {
        match ServingNames::new([name]) {
            Ok(name) => names = names.and(&name),
            Err(error) => faults.push(format!("--certificate-names: {}", chain(&error))),
        }
    }
    Some(CertificateSource::Own { names, lifetimes: lifetimes? })
}

fn parse_ranges(list: &[String], faults: &mut Vec<String>) -> Vec<AddressRange> {
    let mut ranges = Vec::new();
    for text in list_items(list) {
        match text.parse::<AddressRange>() {
            Ok(range) => ranges.push(range),
            Err(allowed) => faults.push(format!("--outbound-allow: {text:?} is not allowed: {allowed}")),
        }
    }
    ranges
}

/// Returns the defaults of agents. An empty setting counts as missing.
fn agent_defaults(arguments: &InjectionArguments, faults: &mut Vec<String>) -> AgentDefaults {
    let mut defaults = AgentDefaults::default();
    let mut parse = |flag: &str, text: Option<&str>, set: fn(&mut AgentDefaults, &str) -> Result<(), String>| {
        let Some(text) = text.filter(|text| !text.is_empty()) else { return };
        if let Err(allowed) = set(&mut defaults, text) {
            faults.push(format!("{flag}: {text:?} is not allowed: {allowed}"));
        }
    };
    parse("--agent-cpu", arguments.agent_cpu.as_deref(), AgentDefaults::set_cpu);
    parse("--agent-memory", arguments.agent_memory.as_deref(), AgentDefaults::set_memory);
    parse("--agent-port", arguments.agent_port.as_deref(), AgentDefaults::set_port);
    parse("--agent-start-timeout", arguments.agent_start_timeout.as_deref(), AgentDefaults::set_start_timeout);
    defaults
}

fn injection(arguments: InjectionArguments, agent_defaults: AgentDefaults, namespace: &str) -> InjectionSettings {
    let names = |list: Vec<String>| list_items(&list).map(str::to_owned).collect();
    InjectionSettings {
        agent_image: arguments.agent_image,
        agent_kill_image: arguments.agent_kill_image,
        image_pull_policy: arguments.image_pull_policy,
        image_pull_secrets: names(arguments.image_pull_secrets),
        hub: arguments.hub_url.unwrap_or_else(|| format!("https://nudge-hub.{namespace}.svc")),
        foreign_containers: names(arguments.foreign_containers),
        foreign_containers_allowed: arguments.foreign_containers_allowed,
        agent_defaults,
        unknown_keys: match arguments.unknown_keys {
            UnknownKeys::Refuse => injection::UnknownKeys::Refuse,
            UnknownKeys::Warn => injection::UnknownKeys::Warn,
        },
    }
}

fn repair(arguments: &RepairArguments, namespace: &str, account: &str) -> RepairSettings {
    RepairSettings {
        account: format!("{namespace}:{account}"),
        evictions_per_minute: match arguments.repair {
            Repair::Off => 0,
            Repair::Evict => arguments.repair_per_minute,
        },
        scan_interval: Duration::from_secs(arguments.repair_seconds.into()),
        min_age: Duration::from_secs(arguments.repair_age_seconds.into()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use nudge_cluster::watch::ReadScope;
    use nudge_core::injection::UnknownKeys;
    use nudge_git::MAX_MIRROR_BYTES;
    use nudge_sources::Budget;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        settings: ServeSettings,
    }

    fn options(line: &[&str]) -> Result<Options, OptionsError> {
        Line::parse_from(line).settings.try_into()
    }

    #[test]
    fn every_default_is_usable() {
        let options = options(&["serve"]).unwrap();
        assert_eq!(options.injection.hub, "https://nudge-hub.nudge-system.svc");
        assert_eq!(options.injection.agent_image, format!("nudge-agent:{}", env!("CARGO_PKG_VERSION")));
        assert_eq!(options.injection.image_pull_policy, None);
        assert!(options.injection.foreign_containers.contains(&"istio-proxy".to_owned()));
        assert!(options.injection.foreign_containers.iter().all(|name| !name.contains(char::is_whitespace)));
        assert_eq!(options.repair.evictions_per_minute, 0);
        assert!(options.shutdown_timeout < Duration::from_secs(30), "terminationGracePeriodSeconds of the Deployment");
    }

    /// The kubelet evicts a pod whose volume has more than its limit.
    #[test]
    fn the_volume_has_room_for_all_mirrors() {
        let deployment = include_str!("../../../deploy/components/sources/sources.yaml");
        let limit =
            deployment.split_once("emptyDir: {sizeLimit: ").and_then(|(_, rest)| rest.split_once("Gi}")).unwrap();
        let limit = limit.0.parse::<u64>().unwrap() << 30;
        let most = options(&["serve"]).unwrap().max_mirror_bytes;
        let room = most + Budget::MAX_GIT_FETCHES as u64 * MAX_MIRROR_BYTES.min(most);
        // Git is ended a moment after it has too much.
        assert!(room + (1 << 30) <= limit, "{room} of {limit} bytes");
    }

    #[test]
    fn flags_reach_the_options() {
        let line = ["serve", "--kubelet-version", "1.33", "--pod-ip-family=ipv6", "--image-pull-secrets", "a, b,"];
        assert_eq!(options(&["serve"]).unwrap().watch.reads, ReadScope::Namespaces);
        assert_eq!(options(&["serve", "--reads=cluster"]).unwrap().watch.reads, ReadScope::Cluster);
        assert!(Line::try_parse_from(["serve", "--reads=all"]).is_err());
        let options = options(&line).unwrap();
        assert_eq!(options.features.kubelet.map(|version| version.to_string()).as_deref(), Some("1.33"));
        assert_eq!(options.injection.image_pull_secrets, ["a", "b"]);
        assert!(Line::try_parse_from(["serve", "--kubelet-version", "new"]).is_err());
        assert!(Line::try_parse_from(["serve", "--image-pull-policy", "Sometimes"]).is_err());
    }

    #[test]
    fn lists_without_a_text_are_empty() {
        let empty = ["serve", "--outbound-allow=", "--certificate-names=", "--image-pull-secrets="];
        let line = Line::try_parse_from(empty).unwrap_or_else(|error| panic!("{error}"));
        assert!(Options::try_from(line.settings).unwrap().allowed_nodes.is_empty());
        assert_eq!(options(&["serve", "--outbound-allow=10.0.0.7, 10.1.0.0/24,"]).unwrap().allowed_nodes.len(), 2);
        let error = options(&["serve", "--outbound-allow=node-1"]).err().unwrap().to_string();
        assert!(error.contains("--outbound-allow: \"node-1\" is not allowed: it must be an address"), "{error}");
    }

    #[test]
    fn agents_get_what_the_installation_says_and_unknown_keys_are_refused_unless_it_says_otherwise() {
        let injection = |line: &[&str]| options(&[&["serve"][..], line].concat()).map(|options| options.injection);
        let plain = injection(&[]).unwrap();
        assert_eq!((plain.unknown_keys, &plain.agent_defaults), (UnknownKeys::Refuse, &AgentDefaults::default()));
        assert_eq!(injection(&["--unknown-keys=warn"]).unwrap().unknown_keys, UnknownKeys::Warn);
        assert!(Line::try_parse_from(["serve", "--unknown-keys=ignore"]).is_err());
        let mut expected = AgentDefaults::default();
        expected.set_cpu("20m").and_then(|()| expected.set_memory("64Mi")).unwrap();
        expected.set_port("9100").and_then(|()| expected.set_start_timeout("2m")).unwrap();
        let line = ["--agent-cpu=20m", "--agent-memory=64Mi", "--agent-port=9100", "--agent-start-timeout=2m"];
        assert_eq!(injection(&line).unwrap().agent_defaults, expected);
        assert_eq!(injection(&["--agent-cpu=", "--agent-port="]).unwrap().agent_defaults, AgentDefaults::default());
        let error = injection(&["--agent-cpu=8", "--agent-port=80"]).err().unwrap().to_string();
        assert!(error.contains("--agent-cpu: \"8\" is not allowed: it must be a CPU quantity from 1m to 4"), "{error}");
        assert!(error.contains("--agent-port: \"80\" is not allowed: it must be a port from 1024 to 65535"), "{error}");
    }

    #[test]
    fn only_the_role_certs_can_do_without_files() {
        assert_eq!(options(&["serve"]).unwrap().roles.to_string(), "control,hub,certs");
        let error = options(&["serve", "--roles=control,hub"]).err().unwrap().to_string();
        assert!(error.contains("--certificate-dir: ") && error.contains("--content-key-dir: "), "{error}");
        let options = options(&["serve", "--roles=hub", "--certificate-dir=a", "--content-key-dir=b"]).unwrap();
        assert_eq!((options.roles.to_string().as_str(), options.roles.serve()), ("hub", true));
        assert!(matches!(options.certificates, Some(CertificateSource::Folder(folder)) if folder == *"a"));
        assert!(matches!(options.content_key, Some(KeySource::Folder(folder)) if folder == *"b"));
        for bad in ["--roles=", "--roles=all", "--roles=hub,"] {
            assert!(Line::try_parse_from(["serve", bad]).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_role_sources_serves_nobody_and_needs_the_content_key() {
        let error = options(&["serve", "--roles=sources"]).err().unwrap().to_string();
        assert!(error.contains("--content-key-dir: ") && !error.contains("--certificate-dir"), "{error}");
        let options = options(&["serve", "--roles=sources", "--content-key-dir=b"]).unwrap();
        assert!(options.certificates.is_none() && !options.roles.serve() && options.roles.works_in_namespaces());
        assert!(options.watch.kinds.is_empty());
        assert_eq!(options.sources_account, "nudge-system:nudge-sources");
    }

    #[test]
    fn the_role_analysis_serves_nobody_and_gets_no_key() {
        let options = options(&["serve", "--roles=analysis"]).unwrap();
        assert!(options.certificates.is_none() && options.content_key.is_none());
        assert!(!options.roles.works_in_namespaces() && options.watch.kinds.is_empty());
        assert_eq!(options.analysis_account, "nudge-system:nudge-analysis");
    }

    #[test]
    fn all_faults_are_named_together() {
        let line = ["serve", "--ca-days=30", "--certificate-names=a b,hub,c/d", "--hub-url=http://hub", "--identity="];
        let error = options(&line).err().unwrap().to_string();
        for part in ["--ca-days: a third of", "--certificate-names: \"a b\"", "\"c/d\"", "--hub-url: ", "--identity: "]
        {
            assert!(error.contains(part), "{part} in {error}");
        }
    }
}
