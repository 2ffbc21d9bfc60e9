//! `kubectl nudge plan`: what a version would do to the pods of a config, before it does.

mod blockers;
mod cluster_facts;
mod file;
mod planned_version;
mod report;
#[cfg(test)]
mod report_tests;
mod report_text;

pub(crate) use self::file::ConfigChange;
pub(crate) use self::planned_version::Request;
use self::planned_version::{PlannedVersion, read_contents};
use self::report::{Subject, VersionPlan};
use crate::failure::Failure;
use crate::session::Session;
use crate::version::stored::ContentsByKind;

/// Plans a version of the config of this name.
pub(crate) async fn plan(session: &Session, name: &str, request: Request) -> Result<VersionPlan, Failure> {
    let is_requested = matches!(request, Request::Requested);
    let mut planned = Box::pin(PlannedVersion::read(session, name, request)).await?;
    let facts = Box::pin(cluster_facts::ClusterFacts::read(session, &planned.config, is_requested)).await?;
    let status = planned.config.status.clone().unwrap_or_default();
    let current = status.current_version.as_deref().and_then(|current| status.version(current));
    let before = match current {
        Some(current) if planned.contents.is_some() => {
            let (contents, unread) = read_contents(session, current).await?;
            planned.unread.extend(unread);
            contents
        }
        Some(_) => None,
        None => Some(ContentsByKind::new()),
    };
    Ok(VersionPlan::new(&Subject { planned, facts, before }, jiff::Timestamp::now()))
}
