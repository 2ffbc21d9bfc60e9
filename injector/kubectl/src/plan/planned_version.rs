//! The version that is planned: one that is named or requested, or one of a file. Its config is as it would be then.

use nudge_api::{Explanation, PartKind, Reason, VersionStatus, VersionedConfig};
use nudge_core::followed_objects::read_object;
use nudge_core::versions::object_name;

use super::file::ConfigChange;
use crate::failure::Failure;
use crate::followed_objects::{ConfigText, check_follows, check_text, find_version};
use crate::session::Session;
use crate::version::stored::{ContentsByKind, contents, sealed};

/// The version that a plan is about.
pub(crate) enum Request {
    /// The version that the config requests.
    Requested,
    /// A named version, as `kubectl nudge use` requests it.
    Named(String),
    /// What a file requests.
    File(Box<ConfigChange>),
}

pub(super) struct PlannedVersion {
    /// The config as it would be: with the spec that requests the version.
    pub(super) config: VersionedConfig,
    /// The version that the stored config requests, if the plan leaves its spec as it is.
    pub(super) requested_version: Option<String>,
    /// The name of the version; absent for a version that Nudge would make.
    pub(super) version: Option<String>,
    /// The contents, if the user may read them.
    pub(super) contents: Option<ContentsByKind>,
    /// The reasons why the version can't be made or used.
    pub(super) faults: Vec<Explanation>,
    /// What the user may not read.
    pub(super) unread: Vec<String>,
}

impl PlannedVersion {
    /// Returns the version that is planned for the config of this name.
    pub(super) async fn read(session: &Session, name: &str, request: Request) -> Result<Self, Failure> {
        match request {
            Request::Named(version) => {
                let mut config = session.config(name).await?;
                let version = sealed(&config, &version)?.version.clone();
                let requested_version = config.requested_version().map(str::to_owned);
                config.spec.version = Some(version.clone());
                config.spec.rollout.overridden = None;
                Ok(Self { requested_version, ..Box::pin(Self::of_version(session, config, version)).await? })
            }
            Request::Requested => {
                let config = session.config(name).await?;
                let requested_version = config.requested_version().map(str::to_owned);
                Ok(Self {
                    requested_version,
                    ..Box::pin(Self::of_request(session, config, ContentsByKind::new())).await?
                })
            }
            Request::File(change) => Box::pin(Self::of_file(session, name, *change)).await,
        }
    }

    fn of(config: VersionedConfig) -> Self {
        Self { config, requested_version: None, version: None, contents: None, faults: Vec::new(), unread: Vec::new() }
    }

    /// Returns the sealed version of this name, or why it is not sealed.
    async fn of_version(session: &Session, config: VersionedConfig, version: String) -> Result<Self, Failure> {
        let status = config.status.clone().unwrap_or_default();
        let mut planned = Self { version: Some(version.clone()), ..Self::of(config) };
        match status.version(&version) {
            Some(sealed) => {
                (planned.contents, planned.unread) = read_contents(session, sealed).await?;
                return Ok(planned);
            }
            None => planned.faults.push(match status.invalid.iter().find(|invalid| invalid.version == version) {
                Some(invalid) => invalid.reason.explained(invalid.message.clone()),
                None => {
                    Reason::VersionMissing.explained(format!("version {version} does not exist, or is not complete"))
                }
            }),
        }
        Ok(planned)
    }

    /// Returns the version that the config requests. `text` replaces the text of its objects.
    async fn of_request(session: &Session, config: VersionedConfig, text: ContentsByKind) -> Result<Self, Failure> {
        if config.spec.follows_text() {
            return Box::pin(Self::of_text(session, config, text)).await;
        }
        let status = config.status.as_ref();
        let desired = status.and_then(|status| status.desired_version.clone().or(status.current_version.clone()));
        if let Some(version) = config.spec.version.clone().or(desired) {
            return Self::of_version(session, config, version).await;
        }
        let fault = Reason::VersionMissing.explained("there is no version yet; make one with kubectl nudge create");
        Ok(Self { faults: vec![fault], ..Self::of(config) })
    }

    async fn of_file(session: &Session, name: &str, change: ConfigChange) -> Result<Self, Failure> {
        let ConfigChange { config: written, text, mut versions } = change;
        let mut config = match (session.find_config(name).await?, written) {
            (Some(stored), Some(written)) => VersionedConfig { spec: written.spec, ..stored },
            (Some(stored), None) => stored,
            (None, Some(mut written)) => {
                written.metadata.namespace = Some(session.namespace.clone());
                VersionedConfig { status: None, ..written }
            }
            // The first object of a version makes no config.
            (None, None) => session.config(name).await?,
        };
        if let Some(kind) = text.keys().next() {
            check_follows(&config, *kind)?;
        }
        let version = match (config.spec.version.clone(), versions.len()) {
            (Some(version), _) if versions.contains_key(&version) => version,
            (_, 0) => return Box::pin(Self::of_request(session, config, text)).await,
            (_, 1) => versions.keys().next().cloned().unwrap_or_default(),
            _ => {
                let names: Vec<&str> = versions.keys().map(String::as_str).collect();
                return Err(Failure::usage(format!(
                    "the file has the versions {} of config {name}; name one of them in spec.version of its VersionedConfig",
                    names.join(", ")
                )));
            }
        };
        config.spec.version = Some(version.clone());
        let contents = versions.remove(&version).unwrap_or_default();
        let mut planned = Self { version: Some(version), ..Self::of(config) };
        planned.check(session, &contents).await?;
        planned.contents = Some(contents);
        Ok(planned)
    }

    /// Returns the version of the text of the config's objects.
    async fn of_text(session: &Session, config: VersionedConfig, written: ContentsByKind) -> Result<Self, Failure> {
        let name = config.metadata.name.clone().unwrap_or_default();
        let stored = match ConfigText::read(session, &config).await {
            Ok(stored) => stored,
            Err(failure) if failure.status == 403 => {
                let version = config.requested_version().map(str::to_owned);
                let mut planned = match version {
                    Some(version) => Self::of_version(session, config, version).await?,
                    None => Self::of(config),
                };
                planned.unread.push(format!("the present text: {}", failure.message));
                return Ok(planned);
            }
            Err(failure) => return Err(failure),
        };
        let lacks_secret = stored.lacks_secret && !written.contains_key(&PartKind::Secret);
        let mut planned = Self::of(config);
        let mut contents = ContentsByKind::new();
        let mut objects = stored.objects;
        for kind in PartKind::ALL.into_iter().filter(|kind| planned.config.spec.owns(*kind)) {
            if let Some(written) = written.get(&kind) {
                contents.insert(kind, written.clone());
            } else if kind == PartKind::Secret && lacks_secret {
                planned.unread.push(format!("{}: you may not read it", object_name(kind, &name)));
            } else {
                match read_object(kind, &name, objects.remove(&kind)) {
                    Ok(text) => _ = contents.insert(kind, text.contents),
                    Err(explanation) => planned.faults.push(explanation),
                }
            }
        }
        if !planned.faults.is_empty() {
            return Ok(planned);
        }
        if lacks_secret {
            planned.unread.push("the version of the text, because only its Secret can show it".to_owned());
        } else {
            planned.version = find_version(session, &planned.config, &contents).await?;
        }
        if planned.version.is_none() && !lacks_secret {
            planned.check(session, &contents).await?;
        }
        planned.contents = Some(contents);
        Ok(planned)
    }

    /// Checks that the contents can become a version, and follow the rules of the config.
    async fn check(&mut self, session: &Session, contents: &ContentsByKind) -> Result<(), Failure> {
        match check_text(session, &self.config, contents, false).await {
            Ok(()) => {}
            Err(failure) if failure.status == 403 => {
                self.unread.push(format!("whether the content follows spec.validation: {}", failure.message));
            }
            Err(failure) if failure.status != 0 => return Err(failure),
            Err(failure) => self.faults.push(Reason::Invalid.explained(failure.message)),
        }
        Ok(())
    }
}

/// Reads the contents of a sealed version, by kind; `None` if the user may not read a part, which is named then.
pub(super) async fn read_contents(
    session: &Session,
    version: &VersionStatus,
) -> Result<(Option<ContentsByKind>, Vec<String>), Failure> {
    match contents(session, version).await {
        Ok(contents) => Ok((Some(contents), Vec::new())),
        Err(failure) if failure.status == 403 => {
            Ok((None, vec![format!("the content of version {}: {}", version.version, failure.message)]))
        }
        Err(failure) => Err(failure),
    }
}
