//! The report of a config as text: the facts, and the tables of conditions, pods and warnings.

use std::collections::BTreeSet;

use nudge_api::ConditionType;

use super::pods::PodReport;
use super::{Condition, Report};
use crate::output::rollout_report::{analysis_text, evidence_text, watch_text};
use crate::output::table::{or_none, table};
use crate::output::visible;

impl Report {
    /// Returns the row in a list of configs.
    pub(super) fn row(&self, with_namespace: bool) -> Vec<String> {
        let find = |kind: ConditionType, is_true| {
            let is_wanted = move |condition: &&Condition| {
                condition.kind == kind.as_str() && (condition.status == "True") == is_true
            };
            self.conditions.iter().find(is_wanted)
        };
        let notable = find(ConditionType::Ready, false).or_else(|| find(ConditionType::Suspect, true));
        let row = vec![
            self.config.clone(),
            or_none(self.current.as_deref()),
            or_none(self.desired.as_deref()),
            self.state.clone(),
            self.counts.summary.clone(),
            notable.map(|condition| condition.reason.clone()).unwrap_or_default(),
        ];
        if with_namespace { [vec![self.namespace.clone()], row].concat() } else { row }
    }

    /// Returns the facts about the config as a whole: names and texts.
    pub(crate) fn lines(&self) -> Vec<(&'static str, String)> {
        let mut lines = vec![
            ("Config", format!("{}/{}", self.namespace, self.config)),
            ("Current", or_none(self.current.as_deref())),
            ("Desired", or_none(self.desired.as_deref())),
        ];
        let stage = self.stage.map(|stage| format!(", {stage:?}")).unwrap_or_default();
        let hold = if self.on_hold { ", on hold" } else { "" };
        lines.push(("State", format!("{}{stage}{hold}", self.state)));
        for (name, version) in [
            ("Target", &self.target),
            ("Previous", &self.previous),
            ("Published", &self.published),
            ("Secret", &self.published_secret),
        ] {
            lines.extend(version.clone().map(|version| (name, version)));
        }
        lines.extend(self.sources.iter().map(|source| ("Source", source.text())));
        let requested = self.desired.as_ref().or(self.current.as_ref());
        let digest = self.digest.iter().zip(requested);
        lines.extend(digest.map(|(digest, version)| ("Digest", format!("{digest}, of version {version}"))));
        lines.extend(self.approvals.iter().map(|approval| ("Approval", approval.text())));
        let until = self.gate.iter().filter_map(|gate| Some((gate, gate.until_time.as_ref()?)));
        lines.extend(until.map(|(gate, until)| ("Waits", format!("until {}, {}", until.0, gate.reason))));
        lines.extend(self.step.as_ref().map(|step| ("Step", step.to_string())));
        lines.extend(self.watch.as_ref().map(|watch| ("Watch", watch_text(watch))));
        if let (Some(evidence), Some(target)) = (&self.evidence, &self.target) {
            let current = or_none(self.current.as_deref());
            lines.push(("Evidence", evidence_text(evidence, target, &current)));
            let analyses = evidence.analysis.iter();
            lines.extend(analyses.map(|analysis| ("Analysis", analysis_text(analysis, target, &current))));
        }
        let counts = &self.counts;
        let summary = if counts.summary.is_empty() { "0/0" } else { &counts.summary };
        lines.push(("Pods", format!("{summary} on target, {} failed", counts.failed)));
        if !counts.left_alone.is_empty() {
            lines.push(("Left out", format!("{} (notify: none)", counts.left_alone.join(", "))));
        }
        if !self.agents.is_empty() {
            let agents = self.agents.iter().map(|(version, count)| format!("{version} ({count})"));
            lines.push(("Agents", agents.collect::<Vec<_>>().join(", ")));
        }
        lines
    }

    /// Returns the text for one config.
    pub(crate) fn text(&self) -> String {
        let lines = self.lines();
        let lines = lines.iter().map(|(name, value)| format!("{:<11}{}\n", format!("{name}:"), visible::line(value)));
        let mut text = lines.collect::<Vec<_>>().concat();
        if !self.conditions.is_empty() {
            let cells = |condition: &Condition| {
                let Condition { kind, status, reason, message } = condition;
                [kind, status, reason, message].map(String::clone).into()
            };
            let cells: Vec<Vec<String>> = self.conditions.iter().map(cells).collect();
            text = format!("{text}\n{}", table(&["CONDITION", "STATUS", "REASON", "MESSAGE"], &cells));
        }
        if !self.pods.is_empty() {
            let cells = |pod: &PodReport| {
                let ready = if pod.ready { "yes" } else { "no" }.to_owned();
                let version = |version: &Option<String>| or_none(version.as_deref());
                vec![
                    pod.pod.clone(),
                    or_none(Some(&pod.workload)),
                    version(&pod.version),
                    version(&pod.assigned),
                    ready,
                    pod.agent.clone(),
                    pod.message.clone().unwrap_or_default(),
                ]
            };
            let cells: Vec<Vec<String>> = self.pods.iter().map(cells).collect();
            text = format!(
                "{text}\n{}",
                table(&["POD", "WORKLOAD", "VERSION", "ASSIGNED", "READY", "AGENT", "MESSAGE"], &cells)
            );
        }
        let warnings = self.warnings();
        if !warnings.is_empty() {
            text = format!("{text}\n{}", table(&["INJECTED", "WARNING"], &warnings));
        }
        text
    }

    /// Returns the warnings of injection, each once per workload, or once per pod without a workload.
    fn warnings(&self) -> Vec<Vec<String>> {
        let mut warnings = BTreeSet::new();
        for pod in &self.pods {
            let owner = if pod.workload.is_empty() { &pod.pod } else { &pod.workload };
            warnings.extend(pod.warnings.iter().map(|warning| vec![owner.clone(), warning.clone()]));
        }
        warnings.into_iter().collect()
    }
}

/// Returns the table of configs, one row each.
pub(crate) fn config_table(reports: &[Report], with_namespace: bool) -> String {
    let headers = ["NAMESPACE", "CONFIG", "CURRENT", "DESIRED", "STATE", "ON-TARGET", "REASON"];
    let headers = if with_namespace { &headers[..] } else { &headers[1..] };
    let rows: Vec<Vec<String>> = reports.iter().map(|report| report.row(with_namespace)).collect();
    table(headers, &rows)
}
