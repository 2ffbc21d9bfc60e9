//! The largest status that a config can have, and the limits of its size.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use k8s_openapi::jiff::Timestamp;
use nudge_api::{
    Analysis, AnalysisStatus, AnalysisVerdict, BackgroundStatus, ConditionType, DirectReaders, EvidenceStatus,
    GateStatus, HarmedPod, InternalStatus, InvalidVersion, MAX_LEFT_ALONE, PartKind, PartStatus, PodCounts, Pods,
    Reason, Release, ReleaseOutcome, ReleaseOverride, ReleaseStep, RetiredVersion, RolloutFailure, RolloutStage,
    SelectorThreshold, StepSelector, TextStatus, VersionState, VersionStatus, VersionedConfigStatus, Watch, clipped,
    condition,
};

use super::inventory::take_inventory;
use super::part_facts::PartFacts;
use super::rule_verdicts::Judging;
use super::seal::tests::seals;
use super::seal_check::FactsByUid;
use super::seal_check::tests::facts;
use super::version_room::{MAX_BYTES, MAX_FREE_VERSIONS, MAX_RETIRED_VERSIONS, MAX_VERSION_BYTES, MAX_VERSIONS};
use crate::analysis::rehearsal_question;
use crate::identity::Identity;
use crate::keys::{PartMeta, PodUid};
use crate::owners::WorkloadId;
use crate::pods::PodState;
use crate::rollout::{MAX_RELEASES_BYTES, Subject, Thresholds, fit_releases};

const MOST: usize = 64 * 1024;

fn now() -> Time {
    Time(Timestamp::from_second(1_790_000_000).unwrap())
}

/// A sealed version, with parts of these names.
fn version(number: usize, names: &[String]) -> VersionStatus {
    let version = format!("2026.11.{number}");
    let part = |(name, at): (&String, u16)| PartStatus {
        kind: PartKind::Secret,
        name: name.replace('*', &version),
        uid: format!("0af7651c-d43b-41d5-{at:04x}-{number:012x}"),
        digest: format!("seal:{number:048x}"),
    };
    let parts = names.iter().zip(1..).map(part).collect();
    let (state, seal_time) = (VersionState::Available, Some(now()));
    let (digest, bytes) = ("0".repeat(32), 999_999);
    VersionStatus { version, state, digest, parts, keys: 999, bytes, seal_time, consent: None }
}

/// Returns the versions that are kept of these versions and of the maximum number of remembered deleted versions.
fn kept(versions: &[VersionStatus], more: &[VersionStatus]) -> super::Inventory {
    surveyed(versions, more, None, |_| true)
}

/// The same if `named` is requested and these versions are marked.
fn surveyed(
    versions: &[VersionStatus],
    more: &[VersionStatus],
    named: Option<&str>,
    marked: impl Fn(&str) -> bool,
) -> super::Inventory {
    let retired = |number: usize| RetiredVersion {
        version: format!("2025.11.{number}"),
        digests: vec![format!("seal:{number:048x}")],
    };
    let status = VersionedConfigStatus {
        versions: versions.to_vec(),
        internal: InternalStatus {
            retired: (0..=MAX_RETIRED_VERSIONS).map(retired).collect(),
            ..InternalStatus::default()
        },
        ..VersionedConfigStatus::default()
    };
    let objects = versions.iter().chain(more).flat_map(|of| {
        of.parts.iter().zip(1..).map(|(part, number)| PartMeta {
            kind: part.kind,
            name: part.name.clone(),
            uid: part.uid.clone(),
            resource_version: "1".to_owned(),
            version: of.version.clone(),
            part: (of.parts.len() > 1).then(|| format!("{number}")),
            parts: (of.parts.len() > 1).then(|| of.parts.len().to_string()),
            prune: true,
            keep: None,
            created: 0,
            terminating: false,
        })
    });
    let objects: Vec<Arc<PartMeta>> = objects.map(Arc::new).collect();
    let fresh = objects.iter().filter(|object| more.iter().any(|more| more.version == object.version));
    let known = |object: &Arc<PartMeta>| PartFacts { marked: marked(&object.version), ..facts(object, "content") };
    let facts: FactsByUid = fresh.map(|object| (object.uid.clone(), known(object))).collect();
    take_inventory(&status, &objects, &facts, &[], named, &Judging::NONE, &seals(), &now())
}

/// 12,000 pods of 150 workloads.
fn thresholds(name: &str) -> Thresholds {
    let pods: Vec<Subject> = (0..12_000)
        .filter_map(|number| {
            let uid = format!("0af7651c-d43b-41d5-8e2f-{number:012x}");
            let workload = Some(WorkloadId::new("Deployment", &format!("{name}-{:03}", number % 150)));
            let pod = PodState { uid: PodUid::new(&uid)?, workload, ..PodState::default() };
            Subject::of(Arc::new(pod), "shop", Identity::of_uid("uid"), true)
        })
        .collect();
    Thresholds::default().raise(&pods, &Pods::Share("50%".to_owned()), None)
}

/// The types of a config's conditions.
const CONDITIONS: [ConditionType; 13] = [
    ConditionType::Ready,
    ConditionType::Reconciling,
    ConditionType::Published,
    ConditionType::Drifted,
    ConditionType::SecretPublished,
    ConditionType::Restarted,
    ConditionType::Impaired,
    ConditionType::Conflict,
    ConditionType::WeakEvidence,
    ConditionType::Suspect,
    ConditionType::Measurable,
    ConditionType::Fetched,
    ConditionType::UnstagedReaders,
];

/// The largest status with these parts of each version.
fn largest(names: &[String], versions: usize) -> VersionedConfigStatus {
    let sealed: Vec<VersionStatus> = (0..versions).map(|number| version(number, names)).collect();
    let inventory = kept(&sealed, &[]);
    assert_eq!(inventory.sealed.len(), versions);
    let long = "a message ".repeat(1000);
    let mut status = VersionedConfigStatus {
        observed_generation: Some(i64::MAX),
        desired_version: Some(sealed[2].version.clone()),
        current_version: Some(sealed[0].version.clone()),
        target_version: Some(sealed[2].version.clone()),
        previous_version: Some(sealed[1].version.clone()),
        published_version: Some(sealed[0].version.clone()),
        publish_time: Some(now()),
        published_secret_version: Some(sealed[0].version.clone()),
        secret_publish_time: Some(now()),
        versions: inventory.sealed,
        internal: InternalStatus {
            identity: Some(Identity::of_uid("uid").to_string()),
            revision: u64::MAX,
            workloads_restart_time: Some(now()),
            yields: true,
            background: Some(BackgroundStatus { start_time: now(), pod_seconds: u64::MAX, harmed: u64::MAX }),
            retired: inventory.retired,
            rehearsed: Some(rehearsal_question(&[]).round),
            text: Some(TextStatus {
                version: "x".repeat(63),
                settle_time: now(),
                managers: vec!["m".repeat(64); 3],
                write_time: Some(now()),
            }),
            readers: [PartKind::ConfigMap, PartKind::Secret]
                .map(|kind| DirectReaders { kind, total: u32::MAX, workloads: vec!["x".repeat(317); 3] })
                .into(),
            written_back: vec!["x".repeat(63); 8],
            ..InternalStatus::default()
        },
        ..VersionedConfigStatus::default()
    };
    for (at, state) in [VersionState::Current, VersionState::Failed, VersionState::Target].into_iter().enumerate() {
        status.versions[at].state = state;
    }
    let thresholds = thresholds("a-workload-with-a-long-name-as-charts-make-them");
    assert!(thresholds.workloads.len() > 50, "{}", thresholds.workloads.len());
    (status.internal.threshold, status.internal.workloads) = (thresholds.config, thresholds.workloads);
    let selector = |number: usize| StepSelector {
        match_labels: [("topology.example.com/zone".to_owned(), format!("zone-{number}"))].into(),
    };
    status.internal.selectors = (0..StepSelector::MAX_SELECTORS)
        .map(|at| SelectorThreshold { selector: selector(at), threshold: u64::MAX })
        .collect();
    let [total, on_target, ready, failed] = [u32::MAX; 4];
    let left_alone = vec!["x".repeat(256); MAX_LEFT_ALONE];
    status.pods = PodCounts { total, on_target, ready, failed, summary: format!("{total}/{total}"), left_alone };
    let rollout = &mut status.rollout;
    (rollout.step, rollout.stage, rollout.step_name) = (32, Some(RolloutStage::Restarting), Some("n".repeat(32)));
    rollout.gate = Some(GateStatus { reason: Reason::AwaitingApproval, until_time: Some(now()) });
    (rollout.step_time, rollout.start_time) = (Some(now()), Some(now()));
    rollout.progress_time = Some(MicroTime(now().0));
    rollout.watch = Some(Watch { seconds: u32::MAX, reason: "r".repeat(200), weak: Some("w".repeat(200)) });
    let first = HarmedPod { name: "p".repeat(63), reason: Reason::ContainerRestarted, after_seconds: Some(i64::MIN) };
    let measured = AnalysisStatus {
        name: "n".repeat(32),
        verdict: AnalysisVerdict::Inconclusive,
        target: Some("0".repeat(12)),
        control: Some("0".repeat(12)),
        measure_time: Some(now()),
    };
    let count = u32::MAX;
    rollout.evidence = Some(EvidenceStatus {
        assigned: count,
        harmed: count,
        unassigned: count,
        unassigned_harmed: count,
        not_waited_for: count,
        unchanged: count,
        reason: Some(Reason::ContainerRestarted),
        first: Some(first),
        analysis: vec![measured; Analysis::MAX_ANALYSES],
    });
    let message = clipped(long.clone());
    let (name, reason) = (sealed[1].version.clone(), Reason::ProgressDeadlineExceeded);
    let (digest, retry_time, overridden) = (format!("sha256:{}", "0".repeat(48)), Some(now()), Some("r".repeat(256)));
    rollout.failure = Some(RolloutFailure { version: name, digest, retry_time, reason, message, overridden });
    let condition = |kind| condition(kind, true, Reason::ProgressDeadlineExceeded, &long, Some(i64::MAX), &now());
    status.conditions = CONDITIONS.into_iter().map(condition).collect();
    status.invalid = (0..InvalidVersion::MAX_INVALID)
        .map(|number| InvalidVersion {
            version: format!("2026.12.{number}"),
            reason: Reason::Invalid,
            message: "m".repeat(300),
            rules: "0".repeat(24),
            content: "0".repeat(24),
        })
        .collect();
    status.releases = fit_releases((0..Release::MAX_RELEASES).map(release).collect(), MAX_RELEASES_BYTES);
    status
}

/// A release with all that it can have.
fn release(number: usize) -> Release {
    let mut release = Release::new(format!("2026.11.{number}"), Some(format!("2026.10.{number}")), now());
    (release.requested_by, release.request_time) = (Some("u".repeat(253)), Some(now()));
    (release.end_time, release.outcome) = (Some(now()), Some(ReleaseOutcome::RolledBack));
    (release.reason, release.message) = (Some(Reason::ProgressDeadlineExceeded), Some("m".repeat(512)));
    release.steps = vec![ReleaseStep { start_time: now(), pods: u32::MAX }; Release::MAX_STEPS];
    let (requested_by, request_time) = (release.requested_by.clone(), release.request_time.clone());
    release.overridden = Some(ReleaseOverride { reason: "r".repeat(256), requested_by, request_time });
    release.unverified_managers = vec!["m".repeat(64); 3];
    release
}

/// A release as most are.
fn usual_release(number: usize) -> Release {
    let mut release = Release::new(format!("1.0.{number}"), Some(format!("1.0.{}", number - 1)), now());
    let user = "system:serviceaccount:argocd:argocd-application-controller";
    (release.requested_by, release.request_time) = (Some(user.to_owned()), Some(now()));
    (release.end_time, release.outcome) = (Some(now()), Some(ReleaseOutcome::Current));
    release.steps = [1, 10, 20, 40].map(|pods| ReleaseStep { start_time: now(), pods }).to_vec();
    release.evidence = Some(EvidenceStatus { assigned: 40, ..EvidenceStatus::default() });
    release
}

#[test]
fn twenty_releases_as_most_are_fit() {
    let releases: Vec<Release> = (1..=Release::MAX_RELEASES).map(usual_release).collect();
    assert_eq!(fit_releases(releases.clone(), MAX_RELEASES_BYTES), releases);
}

/// The bytes of each field of the status as JSON, of `internal` field by field.
fn sizes(status: &VersionedConfigStatus) -> BTreeMap<String, usize> {
    let whole = serde_json::to_value(status).unwrap();
    let mut sizes = BTreeMap::new();
    for (name, value) in whole.as_object().unwrap() {
        if let ("internal", Some(fields)) = (name.as_str(), value.as_object()) {
            for (field, value) in fields {
                sizes.insert(format!("{name}.{field}"), value.to_string().len());
            }
        } else {
            sizes.insert(name.clone(), value.to_string().len());
        }
    }
    sizes
}

#[test]
fn the_largest_status_has_64_kib() {
    let status = largest(&[format!("{}-*", "n".repeat(122))], MAX_VERSIONS - 1);
    let json = serde_json::to_string(&status).unwrap();
    let sizes = sizes(&status);
    let table: Vec<String> = sizes.iter().map(|(name, bytes)| format!("{bytes:6} {name}")).collect();
    let table = format!("{:6} bytes, of these:\n{}", json.len(), table.join("\n"));
    println!("{table}");
    let lists = sizes["versions"] + sizes["internal.retired"];
    for (bytes, bound) in [(json.len(), MOST), (lists, MAX_BYTES), (sizes["releases"], MAX_RELEASES_BYTES)] {
        assert!(bytes <= bound, "{bytes} of {bound}: {table}");
        assert!(bytes > bound * 8 / 10, "{bytes} of {bound}: not all is at its most: {table}");
    }
    assert_eq!(serde_json::from_str::<VersionedConfigStatus>(&json).unwrap(), status);
}

#[test]
fn what_does_not_fit_is_refused_or_forgotten() {
    let one = vec!["shop-*".to_owned()];
    let of = |names: &[String], count: usize| (0..count).map(|number| version(number, names)).collect::<Vec<_>>();
    let said =
        |inventory: &super::Inventory, version: &VersionStatus| format!("{:?}", inventory.others[&version.version]);
    // Places are kept for versions that are requested or in use.
    let next = version(999, &one);
    let full = kept(&of(&one, MAX_FREE_VERSIONS), std::slice::from_ref(&next));
    assert_eq!((full.sealed.len(), full.others.len()), (MAX_FREE_VERSIONS, 1));
    assert!(said(&full, &next).contains("the config has 45 versions"), "{}", said(&full, &next));
    let named = surveyed(&of(&one, MAX_VERSIONS - 1), std::slice::from_ref(&next), Some(&next.version), |_| true);
    assert_eq!(named.sealed.len(), MAX_VERSIONS);
    // The oldest of those that were deleted are forgotten.
    assert_eq!(full.retired.last().unwrap().version, format!("2025.11.{MAX_RETIRED_VERSIONS}"));
    assert_eq!(full.retired.len(), MAX_RETIRED_VERSIONS);
    // Fewer versions fit if names are long: a further version is refused, but no sealed version is removed.
    let long: Vec<String> = (0..4).map(|number| format!("{}-{number}-*", "n".repeat(200))).collect();
    let next = version(999, &long);
    assert_eq!(kept(&of(&long, 5), std::slice::from_ref(&next)).sealed.len(), 6);
    let many = kept(&of(&long, 14), std::slice::from_ref(&next));
    assert_eq!(many.sealed.len(), 14);
    assert!(said(&many, &next).contains("the config has 14 versions"), "{}", said(&many, &next));
    assert!(many.retired.len() < MAX_RETIRED_VERSIONS, "{}", many.retired.len());
    // A version that would take too much room by itself.
    let huge: Vec<String> = (0..16).map(|number| format!("{}-{number}-*", "n".repeat(200))).collect();
    let huge = version(999, &huge);
    let refused = kept(&[], std::slice::from_ref(&huge));
    let bound = format!("a version can have at most {MAX_VERSION_BYTES}");
    assert!(said(&refused, &huge).contains(&bound), "{}", said(&refused, &huge));
    let named = surveyed(&[], std::slice::from_ref(&huge), Some(&huge.version), |_| true);
    assert!(said(&named, &huge).contains(&bound), "{}", said(&named, &huge));
    // Thresholds of fewer workloads fit if their names are long.
    let counts = ["w", &"w".repeat(200)].map(|name| thresholds(name).workloads.len());
    assert!(counts[0] == 100 && (20..30).contains(&counts[1]), "{counts:?}");
}

#[test]
fn versions_of_those_who_may_not_activate_keep_out_no_other() {
    let one = vec!["shop-*".to_owned()];
    let fillers: Vec<VersionStatus> = (0..60).map(|number| version(number, &one)).collect();
    let wanted = version(999, &one);
    let more: Vec<VersionStatus> = fillers.iter().cloned().chain([wanted.clone()]).collect();
    let marked = |version: &str| version == wanted.version;
    let inventory = surveyed(&[], &more, None, marked);
    assert_eq!(inventory.sealed.len(), MAX_VERSIONS / 2 + 1);
    assert!(inventory.find(&wanted.version).is_some_and(|sealed| sealed.consent.is_none()));
    let refused = format!("{:?}", inventory.others.values().next().unwrap());
    assert!(refused.contains("users without the right to activate them"), "{refused}");
}
