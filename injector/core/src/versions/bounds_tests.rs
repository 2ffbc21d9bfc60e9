//! The largest status that a config can have, and what keeps it from being larger.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use k8s_openapi::jiff::Timestamp;
use nudge_api::{
    Analysis, AnalysisStatus, AnalysisVerdict, BackgroundStatus, ConditionType, EvidenceStatus, HarmedPod,
    InvalidVersion, PartKind, PartStatus, Pods, Reason, Release, ReleaseOutcome, ReleaseOverride, ReleaseStep,
    RetiredVersion, RolloutFailure, RolloutStage, SelectorThreshold, StepSelector, VersionState, VersionStatus,
    VersionedConfigStatus, Watch, clipped, condition,
};

use super::inventory::{MAX_RETIRED, MAX_VERSIONS, inventory, room_for_releases};
use super::judged::Judging;
use super::seal::tests::seals;
use super::seal_check::Facts;
use super::seal_check::tests::facts;
use crate::identity::Identity;
use crate::keys::{PartMeta, PodUid};
use crate::pods::PodState;
use crate::rollout::{Subject, Thresholds, fitting};

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
    let (state, sealed_at) = (VersionState::Available, Some(now()));
    VersionStatus { version, state, parts, keys: 999, bytes: 999_999, sealed_at, consent: None, origin: None }
}

/// What becomes of these versions, and of as many that were deleted as are remembered at most.
fn kept(versions: &[VersionStatus], more: &[VersionStatus]) -> super::Inventory {
    surveyed(versions, more).0
}

/// The same, and how long it took.
fn surveyed(versions: &[VersionStatus], more: &[VersionStatus]) -> (super::Inventory, Duration) {
    let retired = |number: usize| RetiredVersion {
        version: format!("2025.11.{number}"),
        digests: vec![format!("seal:{number:048x}")],
    };
    let status = VersionedConfigStatus {
        versions: versions.to_vec(),
        retired: (0..=MAX_RETIRED).map(retired).collect(),
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
    let facts: Facts = fresh.map(|object| (object.uid.clone(), facts(object, "content"))).collect();
    let began = Instant::now();
    (inventory(&status, &objects, &facts, &[], None, &Judging::NONE, &seals(), &now()), began.elapsed())
}

/// 12,000 pods of 150 workloads.
fn thresholds(name: &str) -> Thresholds {
    let pods: Vec<Subject> = (0..12_000)
        .filter_map(|number| {
            let uid = format!("0af7651c-d43b-41d5-8e2f-{number:012x}");
            let workload = format!("Deployment/{name}-{:03}", number % 150);
            let pod = PodState { uid: PodUid::new(&uid)?, workload, ..PodState::default() };
            Subject::of(&pod, "shop", Identity::of_uid("uid"), true)
        })
        .collect();
    Thresholds::default().raised(&pods, &Pods::Share("50%".to_owned()), None)
}

/// The largest status with these parts of each version.
fn largest(names: &[String], versions: usize) -> VersionedConfigStatus {
    let sealed: Vec<VersionStatus> = (0..versions).map(|number| version(number, names)).collect();
    let inventory = kept(&sealed, &[]);
    assert_eq!(inventory.sealed.len(), versions);
    let long = "a message ".repeat(1000);
    let mut status = VersionedConfigStatus {
        observed_generation: Some(i64::MAX),
        identity: Some(Identity::of_uid("uid").to_string()),
        current: Some(sealed[0].version.clone()),
        previous: Some(sealed[1].version.clone()),
        target: Some(sealed[2].version.clone()),
        published: Some(sealed[0].version.clone()),
        published_at: Some(now()),
        published_secret: Some(sealed[0].version.clone()),
        published_secret_at: Some(now()),
        versions: inventory.sealed,
        retired: inventory.retired,
        background: Some(BackgroundStatus { since: now(), pod_seconds: u64::MAX, harmed: u64::MAX }),
        ..VersionedConfigStatus::default()
    };
    for (at, state) in [VersionState::Current, VersionState::Failed, VersionState::Target].into_iter().enumerate() {
        status.versions[at].state = state;
    }
    let rollout = &mut status.rollout;
    let thresholds = thresholds("a-workload-with-a-long-name-as-charts-make-them");
    assert!(thresholds.workloads.len() > 50, "{}", thresholds.workloads.len());
    (rollout.threshold, rollout.workloads) = (thresholds.config, thresholds.workloads);
    let selector = |number: usize| StepSelector {
        match_labels: [("topology.example.com/zone".to_owned(), format!("zone-{number}"))].into(),
    };
    rollout.selectors =
        (0..StepSelector::MOST).map(|at| SelectorThreshold { selector: selector(at), threshold: u64::MAX }).collect();
    (rollout.revision, rollout.step, rollout.stage) = (u64::MAX, 32, Some(RolloutStage::Restarting));
    (rollout.stepped_at, rollout.began_at) = (Some(now()), Some(now()));
    rollout.progressed_at = Some(MicroTime(now().0));
    rollout.watch = Some(Watch { seconds: u32::MAX, reason: "r".repeat(200), weak: Some("w".repeat(200)) });
    let first = HarmedPod { name: "p".repeat(63), reason: Reason::ContainerRestarted, after_seconds: Some(i64::MIN) };
    let measured = AnalysisStatus {
        name: "n".repeat(32),
        verdict: AnalysisVerdict::Inconclusive,
        target: Some("0".repeat(12)),
        control: Some("0".repeat(12)),
        at: Some(now()),
    };
    let count = u32::MAX;
    rollout.evidence = Some(EvidenceStatus {
        assigned: count,
        harmed: count,
        unassigned: count,
        unassigned_harmed: count,
        not_waited_for: count,
        reason: Some(Reason::ContainerRestarted),
        first: Some(first),
        analysis: vec![measured; Analysis::MOST],
    });
    let message = clipped(long.clone());
    let (name, reason) = (sealed[1].version.clone(), Reason::ProgressDeadlineExceeded);
    let (digest, retry, overridden) = (format!("sha256:{}", "0".repeat(48)), Some(now()), Some("r".repeat(256)));
    rollout.failure = Some(RolloutFailure { version: name, digest, retry, reason, message, overridden });
    let kinds = [
        ConditionType::Ready,
        ConditionType::Reconciling,
        ConditionType::Published,
        ConditionType::Drifted,
        ConditionType::SecretPublished,
        ConditionType::Restarted,
        ConditionType::Conflict,
        ConditionType::WeakEvidence,
        ConditionType::Suspect,
    ];
    let condition = |kind| condition(kind, true, Reason::ProgressDeadlineExceeded, &long, Some(i64::MAX), &now());
    status.conditions = kinds.into_iter().map(condition).collect();
    status.invalid = (0..InvalidVersion::MOST)
        .map(|number| InvalidVersion {
            version: format!("2026.12.{number}"),
            reason: Reason::Invalid,
            message: "m".repeat(300),
            rules: "0".repeat(24),
            content: "0".repeat(24),
        })
        .collect();
    let room = room_for_releases(&status);
    status.releases = fitting((0..Release::MOST).map(release).collect(), room);
    status
}

/// A release with all that it can have.
fn release(number: usize) -> Release {
    let mut release = Release::new(format!("2026.11.{number}"), Some(format!("2026.10.{number}")), now());
    (release.requested_by, release.requested_at) = (Some("u".repeat(253)), Some(now()));
    (release.ended_at, release.outcome) = (Some(now()), Some(ReleaseOutcome::RolledBack));
    (release.reason, release.message) = (Some(Reason::ProgressDeadlineExceeded), Some("m".repeat(512)));
    release.steps = vec![ReleaseStep { at: now(), pods: u32::MAX }; Release::MOST_STEPS];
    let (requested_by, requested_at) = (release.requested_by.clone(), release.requested_at.clone());
    release.overridden = Some(ReleaseOverride { reason: "r".repeat(256), requested_by, requested_at });
    release
}

/// A release as most are.
fn usual_release(number: usize) -> Release {
    let mut release = Release::new(format!("1.0.{number}"), Some(format!("1.0.{}", number - 1)), now());
    let user = "system:serviceaccount:argocd:argocd-application-controller";
    (release.requested_by, release.requested_at) = (Some(user.to_owned()), Some(now()));
    (release.ended_at, release.outcome) = (Some(now()), Some(ReleaseOutcome::Current));
    release.steps = [1, 10, 20, 40].map(|pods| ReleaseStep { at: now(), pods }).to_vec();
    release.evidence = Some(EvidenceStatus { assigned: 40, ..EvidenceStatus::default() });
    release
}

#[test]
fn twenty_releases_fit_beside_three_hundred_versions() {
    let one = vec!["shop-*".to_owned()];
    let kept = |versions: usize| {
        let sealed = (0..versions).map(|number| version(number, &one)).collect();
        let status = VersionedConfigStatus { versions: sealed, ..VersionedConfigStatus::default() };
        let releases: Vec<Release> = (1..=Release::MOST).map(usual_release).collect();
        let kept = fitting(releases, room_for_releases(&status));
        (kept.len(), kept.iter().filter(|release| !release.steps.is_empty()).count())
    };
    assert_eq!((kept(10), kept(300)), ((20, 20), (20, 20)));
    let (few, whole) = kept(MAX_VERSIONS);
    assert!(few >= 4 && whole >= 1, "{few} {whole}");
}

#[test]
fn the_largest_status_has_64_kib() {
    let one = vec!["shop-*".to_owned()];
    let status = largest(&one, MAX_VERSIONS);
    let json = serde_json::to_string(&status).unwrap();
    let parts = [
        (
            "versions",
            serde_json::to_string(&VersionedConfigStatus { versions: status.versions.clone(), ..Default::default() }),
        ),
        (
            "retired",
            serde_json::to_string(&VersionedConfigStatus { retired: status.retired.clone(), ..Default::default() }),
        ),
        ("rollout", serde_json::to_string(&status.rollout)),
        ("invalid", serde_json::to_string(&status.invalid)),
        ("conditions", serde_json::to_string(&status.conditions)),
        ("releases", serde_json::to_string(&status.releases)),
    ];
    let sizes: Vec<(&str, usize)> = parts.into_iter().map(|(name, part)| (name, part.unwrap().len())).collect();
    let whole = serde_json::to_string(&status.versions).unwrap().len();
    println!("the largest status: {} bytes; {sizes:?}; its versions without an archive: {whole}", json.len());
    assert!(json.len() <= MOST, "{} {sizes:?}", json.len());
    assert!(json.len() > MOST * 9 / 10, "{}: the bounds could be higher", json.len());
    assert_eq!(serde_json::from_str::<VersionedConfigStatus>(&json).unwrap(), status);
}

#[test]
fn what_does_not_fit_is_refused_or_forgotten() {
    let one = vec!["shop-*".to_owned()];
    let of = |names: &[String], count: usize| (0..count).map(|number| version(number, names)).collect::<Vec<_>>();
    // 500 versions, and the oldest of those that were deleted are forgotten.
    let full = kept(&of(&one, MAX_VERSIONS), &[]);
    assert!((5..MAX_RETIRED).contains(&full.retired.len()), "{}", full.retired.len());
    assert_eq!(full.retired.last().unwrap().version, format!("2025.11.{MAX_RETIRED}"));
    assert!(kept(&of(&one, 20), &[]).retired.len() > 300, "beside a few there is room for many");
    // Fewer where names are long: another one is refused, and not those that are sealed.
    let long: Vec<String> = (0..4).map(|number| format!("{}-{number}-*", "n".repeat(200))).collect();
    let (few, many) = (of(&long, 100), of(&long, 200));
    let next = version(999, &long);
    assert!(kept(&few, std::slice::from_ref(&next)).sealed.len() == 101);
    let refused = kept(&many, std::slice::from_ref(&next));
    assert_eq!(refused.sealed.len(), 200);
    let said = format!("{:?}", refused.others[&next.version]);
    assert!(said.contains("200 versions with 800 parts") && said.contains("delete some"), "{said}");
    // Thresholds of fewer workloads where their names are long.
    let counts = ["w", &"w".repeat(200)].map(|name| thresholds(name).workloads.len());
    assert!(counts[0] == 100 && (20..30).contains(&counts[1]), "{counts:?}");
}

#[test]
fn versions_that_find_no_room_do_not_count_all_others_again() {
    let names: Vec<String> = (0..4).map(|number| format!("{}-{number}-*", "n".repeat(200))).collect();
    let of = |numbers: std::ops::Range<usize>| numbers.map(|number| version(number, &names)).collect::<Vec<_>>();
    let (full, waiting) = (of(0..200), of(1000..1300));
    let took = |waiting: &[VersionStatus]| {
        let surveys = (0..5).map(|_| {
            let (inventory, took) = surveyed(&full, waiting);
            assert_eq!((inventory.sealed.len(), inventory.others.len()), (200, waiting.len()));
            took
        });
        surveys.min().unwrap_or_default()
    };
    let (one, all) = (took(&waiting[..1]), took(&waiting));
    assert!(all < one * 20, "{one:?} with one that waits, {all:?} with {}", waiting.len());
}
