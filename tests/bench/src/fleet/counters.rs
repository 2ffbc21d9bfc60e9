//! The cost of a run: requests by the API server's own count, the hub's metrics, processor time, and the counts of
//! agents.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Result;
use hyper::Request;
use kube::Client;
use nudge_tests::{ApartTwice, Cluster, Replica, procfs};
use serde::Serialize;

use super::journal::Journal;

/// Requests that write nothing although they are posted.
const REVIEWS: [&str; 4] = ["tokenreviews", "subjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectreviews"];
const WRITING: [&str; 5] = ["POST", "PUT", "PATCH", "DELETE", "APPLY"];

/// The metrics of the hub that are read, each with its labels.
const OF_HUB: [&str; 7] = [
    "nudge_hub_polls_total",
    "nudge_hub_reports_total",
    "nudge_hub_conditions_total",
    "nudge_hub_token_reviews_total",
    "nudge_hub_blocks_total",
    "nudge_hub_connections_accepted_total",
    "nudge_hub_connections_failed_total",
];

/// What agents have done, added up, and the most of one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Done {
    pub(super) all: u64,
    pub(super) most: u32,
}

/// The counts of one agent: answers, reports, handshakes and failures.
type OfAgent = [u32; 4];

/// All counters at one time.
pub(super) struct Reading {
    /// The number of requests by verb and resource.
    requests: BTreeMap<String, f64>,
    hub: BTreeMap<String, f64>,
    processor: BTreeMap<&'static str, Duration>,
    agents: Vec<OfAgent>,
}

/// What was spent between two readings.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Spent {
    /// Writes by verb and resource.
    pub(super) writes: BTreeMap<String, f64>,
    /// The number of other requests.
    pub(super) reads: BTreeMap<String, f64>,
    pub(super) hub: BTreeMap<String, f64>,
    /// The processor time in seconds, of both replicas of a role together.
    pub(super) processor_seconds: BTreeMap<&'static str, f64>,
    pub(super) answers: Done,
    pub(super) reports: Done,
    pub(super) handshakes: Done,
    pub(super) failures: Done,
}

impl Reading {
    pub(super) async fn of(
        client: &Client,
        cluster: &Cluster,
        roles: &ApartTwice,
        journal: &Journal,
        agents: usize,
    ) -> Result<Self> {
        let text = client.request_text(Request::get("/metrics").body(Vec::new())?).await?;
        let mut hub = BTreeMap::new();
        for replica in &roles.hub {
            let Ok((200, text)) = replica.get("/metrics").await else { continue };
            for (series, value) in series(&text).filter(|(name, _)| OF_HUB.iter().any(|of| name.starts_with(of))) {
                *hub.entry(series.to_owned()).or_default() += value;
            }
        }
        let pids = |replicas: &[Replica; 2]| replicas.each_ref().map(|replica| replica.process.pid()).to_vec();
        let servers = cluster.pids();
        let mut processor = BTreeMap::new();
        for (name, pids) in [
            ("control", pids(&roles.control)),
            ("hub", pids(&roles.hub)),
            ("certs", pids(&roles.certs)),
            ("etcd", servers.iter().take(1).copied().collect()),
            ("API server", servers.iter().skip(1).take(1).copied().collect()),
            ("agents and benchmark", vec![std::process::id().cast_signed()]),
        ] {
            // A replica that was stopped spends nothing.
            processor.insert(name, pids.into_iter().filter_map(|pid| procfs::cpu_time(pid).ok()).sum());
        }
        let agents = (0..agents).map(|pod| {
            let of = journal.counts(pod);
            [&of.answers, &of.reports, &of.handshakes, &of.failures].map(|count| count.load(Ordering::Relaxed))
        });
        Ok(Self { requests: requests(&text), hub, processor, agents: agents.collect() })
    }

    /// Returns what was spent since an earlier reading.
    pub(super) fn since(&self, before: &Self) -> Spent {
        let requests = difference(&self.requests, &before.requests);
        let (writes, reads) = requests.into_iter().partition(|(what, _)| is_write(what));
        let processor = self.processor.iter().map(|(name, time)| {
            let before = before.processor.get(name).copied().unwrap_or_default();
            (*name, time.saturating_sub(before).as_secs_f64())
        });
        let done = |which: usize| {
            let each = self.agents.iter().zip(&before.agents).map(|(now, before)| now[which] - before[which]);
            each.fold(Done::default(), |sum, one| Done { all: sum.all + u64::from(one), most: sum.most.max(one) })
        };
        Spent {
            writes,
            reads,
            hub: difference(&self.hub, &before.hub),
            processor_seconds: processor.collect(),
            answers: done(0),
            reports: done(1),
            handshakes: done(2),
            failures: done(3),
        }
    }

    /// Returns all that agents have done: while it stays, they are at rest.
    pub(super) fn of_agents(&self) -> u64 {
        self.agents.iter().flatten().copied().map(u64::from).sum()
    }
}

impl Spent {
    /// Returns all writes to the API server.
    pub(super) fn all_writes(&self) -> f64 {
        self.writes.values().fold(0.0, |sum, value| sum + value)
    }

    /// Returns a metric of the hub, over all its labels.
    pub(super) fn of_hub(&self, name: &str) -> f64 {
        let of = self.hub.iter().filter(|(series, _)| series.split('{').next() == Some(name));
        of.fold(0.0, |sum, (_, value)| sum + value)
    }
}

/// Returns what grew, by how much.
fn difference(now: &BTreeMap<String, f64>, before: &BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    let grown = now.iter().map(|(name, value)| (name.clone(), value - before.get(name).copied().unwrap_or_default()));
    grown.filter(|(_, value)| *value > 0.0).collect()
}

fn is_write(what: &str) -> bool {
    let (verb, resource) = what.split_once(' ').unwrap_or((what, ""));
    WRITING.contains(&verb) && !REVIEWS.contains(&resource) && resource != "serviceaccounts/token"
}

/// Requests by verb and resource.
fn requests(text: &str) -> BTreeMap<String, f64> {
    let mut collected = BTreeMap::new();
    for (series, value) in series(text) {
        let Some(labels) = series.strip_prefix("apiserver_request_total{") else { continue };
        let label = |name: &str| {
            let of = labels.split(',').find_map(|label| label.strip_prefix(name)?.strip_prefix("=\""));
            of.map_or("", |value| value.trim_end_matches(['}', '"']))
        };
        let subresource = Some(label("subresource")).filter(|name| !name.is_empty());
        let resource = label("resource");
        let what = subresource.map_or_else(|| resource.to_owned(), |sub| format!("{resource}/{sub}"));
        *collected.entry(format!("{} {what}", label("verb"))).or_default() += value;
    }
    collected
}

/// Returns the series of metrics in Prometheus' format, with their values.
fn series(text: &str) -> impl Iterator<Item = (&str, f64)> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        Some((series, value.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_verb_and_resource() {
        let text = "# HELP apiserver_request_total x\n\
            apiserver_request_total{code=\"200\",resource=\"pods\",subresource=\"status\",verb=\"PATCH\",version=\"v1\"} 7\n\
            apiserver_request_total{code=\"409\",resource=\"pods\",subresource=\"status\",verb=\"PATCH\",version=\"v1\"} 2\n\
            apiserver_request_total{code=\"201\",resource=\"tokenreviews\",subresource=\"\",verb=\"POST\"} 5\n\
            apiserver_request_duration_seconds_count{verb=\"PATCH\"} 9\n";
        let counted = requests(text);
        let expected = [("PATCH pods/status".to_owned(), 9.0), ("POST tokenreviews".to_owned(), 5.0)];
        assert_eq!(counted.into_iter().collect::<Vec<_>>(), expected);
        assert!(is_write("PATCH pods/status") && is_write("PUT leases"));
        assert!(!is_write("POST tokenreviews") && !is_write("WATCH pods") && !is_write("POST serviceaccounts/token"));
    }

    #[test]
    fn what_agents_have_done_is_added_up_beside_the_most_of_one() {
        let reading = |agents: Vec<OfAgent>| Reading {
            requests: BTreeMap::new(),
            hub: BTreeMap::new(),
            processor: BTreeMap::new(),
            agents,
        };
        let spent = reading(vec![[3, 1, 2, 0], [9, 1, 2, 0]]).since(&reading(vec![[1, 1, 1, 0], [1, 1, 1, 0]]));
        assert_eq!((spent.answers, spent.reports), (Done { all: 10, most: 8 }, Done { all: 0, most: 0 }));
        assert_eq!(spent.handshakes, Done { all: 2, most: 1 });
    }
}
