//! Which workload is restarted next, or what is waited for. Pure. What matters stands on the workloads: a leader that takes over goes on
//! where the last one stopped.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::marks::Recycled;
use super::memory::Memory;
use super::workload::{Progress, Workload};

/// What cannot be restarted, or is not waited for: a word and a sentence.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Report {
    /// A word.
    pub word: &'static str,
    /// A sentence that names the object.
    pub sentence: String,
}

impl Report {
    pub(super) fn new(word: &'static str, sentence: String) -> Self {
        Self { word, sentence }
    }

    fn undone(id: &str) -> Self {
        Self::new("Undone", format!("somebody has undone the restart of {id}; restart it there"))
    }
}

/// What is looked at.
#[derive(Clone, Debug)]
pub struct Look<'a> {
    /// The workloads that use what is published, each with the digest that its template should have.
    pub workloads: &'a [(Workload, String)],
    /// It is the way back from a version that was published: only what was restarted with it is restarted again.
    pub back: bool,
    /// When this restarting began: what was restarted before says nothing about the version.
    pub since: Timestamp,
    /// How long a workload may take that has no deadline of its own, in seconds.
    pub deadline: u32,
    /// What this leader knows of this part of the rollout.
    pub memory: &'a Memory,
    /// Now.
    pub now: Timestamp,
}

/// What follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// All that is to be restarted was, and is well.
    Done,
    /// This workload's template gets the digest.
    Restart {
        /// Its place in the list.
        index: usize,
        /// What is written beside it.
        mark: Recycled,
    },
    /// A workload is on its way.
    Wait(String),
    /// A workload did not come up, which is the version's fault.
    Failed(String),
}

/// When that time is over.
pub(super) fn over(since: Timestamp, seconds: u32, now: Timestamp) -> bool {
    since.checked_add(SignedDuration::from_secs(i64::from(seconds))).is_ok_and(|end| end <= now)
}

/// How far a restart is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stand {
    Well,
    OnItsWay,
    Late,
}

fn on_its_way(id: &str) -> String {
    format!("{id} is being restarted")
}

fn late(id: &str) -> String {
    format!("{id} did not come up after its restart")
}

/// How far the restart of this mark is.
fn stand(look: &Look<'_>, workload: &Workload, mark: &Recycled) -> Stand {
    let in_time = !over(mark.at, look.deadline, look.now);
    // On the way back a Deployment's controller speaks of the version that is left until it has come forward.
    let patient = match workload.progress {
        Progress::Complete => return Stand::Well,
        Progress::Failed => look.back && in_time,
        Progress::Moving => in_time || (workload.has_deadline && !look.back),
    };
    if patient { Stand::OnItsWay } else { Stand::Late }
}

/// Whether somebody has taken the digest away that a restart of this part wrote, and perhaps the mark with it.
fn undone(look: &Look<'_>, workload: &Workload, ours: Option<&Recycled>, wanted: &str) -> Option<Report> {
    match ours {
        Some(mark) if mark.digest == wanted => Some(Report::undone(&workload.id())),
        // It was restarted since for another of its configs.
        Some(mark) if workload.digest.as_ref() == Some(&mark.digest) => None,
        _ => look.memory.was_restarted(workload, wanted).then(|| Report::undone(&workload.id())),
    }
}

/// How far the restart is that this workload is still in, with what was published before another of its configs was. Whoever restarts it
/// again now can't tell whether it was well, and nobody would be told that the restart before had failed.
fn overtaken(look: &Look<'_>, workload: &Workload) -> Option<Stand> {
    let mark = workload.recycled.as_ref().filter(|mark| workload.digest.as_ref() == Some(&mark.digest))?;
    // What is left is not waited for, nor what nobody waits for anyway.
    if look.back || mark.unwell || workload.hold.is_some() || workload.progress == Progress::Complete {
        return None;
    }
    if mark.at >= look.since {
        return Some(stand(look, workload, mark));
    }
    // The rollout that restarted it judges it. It has until then.
    (!over(mark.at, look.deadline, look.now)).then_some(Stand::OnItsWay)
}

/// Decides. The reports are those of all that was looked at.
pub fn next(look: &Look<'_>) -> (Next, Vec<Report>) {
    let mut reports = Vec::new();
    let (mut waits, mut failed, mut open) = (None, None, Vec::new());
    for (index, (workload, wanted)) in look.workloads.iter().enumerate() {
        let id = workload.id();
        if let Some(report) = look.memory.refused(workload) {
            reports.push(report.clone());
            continue;
        }
        let ours = workload.recycled.as_ref().filter(|mark| mark.at >= look.since);
        if workload.digest.as_ref() != Some(wanted) {
            let never = look.back && workload.digest.is_none();
            if let Some(owner) = workload.owner.as_ref().filter(|_| !never) {
                let sentence = format!("{id} belongs to {owner}, which writes its template; restart it there");
                reports.push(Report::new("Owned", sentence));
            } else if let Some(report) = undone(look, workload, ours, wanted) {
                reports.push(report);
            } else if !never {
                match overtaken(look, workload) {
                    None => open.push((workload.hold.is_some() || workload.progress != Progress::Complete, index)),
                    Some(Stand::Late) => _ = failed.get_or_insert(late(&id)),
                    Some(_) => _ = waits.get_or_insert(on_its_way(&id)),
                }
            }
            continue;
        }
        let Some(mark) = ours else { continue };
        if let Some((word, why)) = workload.hold {
            reports.push(Report::new(word, format!("{id} {why}")));
            continue;
        }
        match stand(look, workload, mark) {
            Stand::Well => {}
            _ if mark.unwell => {
                let sentence = format!("{id} was not well before it was restarted, and was not waited for");
                reports.push(Report::new("Unwell", sentence));
            }
            Stand::OnItsWay => _ = waits.get_or_insert(on_its_way(&id)),
            Stand::Late if look.back => {
                let hint = "see its pods, and delete one that keeps a StatefulSet from replacing it";
                reports.push(Report::new("NotBack", format!("{}: {hint}", late(&id))));
            }
            Stand::Late => _ = failed.get_or_insert(late(&id)),
        }
    }
    reports.sort();
    if let Some(sentence) = failed {
        return (Next::Failed(sentence), reports);
    }
    if let Some(sentence) = waits {
        return (Next::Wait(sentence), reports);
    }
    // Those that can prove something come first; others may have recovered by then.
    open.sort_unstable();
    let step = open.first().map(|(_, index)| {
        let (workload, wanted) = &look.workloads[*index];
        // On the way back it is hardly well, which is not its own fault; what it was before stays known.
        let before = workload.recycled.as_ref().is_some_and(|mark| mark.unwell);
        let unwell = if look.back { before } else { workload.progress != Progress::Complete };
        // Clocks of leaders differ, and a mark must not look older than it is.
        let at = look.now.max(look.since);
        Next::Restart { index: *index, mark: Recycled { at, digest: wanted.clone(), unwell } }
    });
    (step.unwrap_or(Next::Done), reports)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::workload::Kind;
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn workload(name: &str) -> (Workload, String) {
        let workload = Workload {
            kind: Kind::Deployment,
            name: name.to_owned(),
            uid: format!("uid-of-{name}"),
            uses: ["shop".to_owned()].into(),
            digest: None,
            recycled: None,
            owner: None,
            hold: None,
            progress: Progress::Complete,
            has_deadline: true,
        };
        (workload, "new".to_owned())
    }

    fn look(workloads: &[(Workload, String)], back: bool, now: i64) -> (Next, Vec<Report>) {
        let memory = Memory::default();
        next(&Look { workloads, back, since: at(100), deadline: 60, memory: &memory, now: at(now) })
    }

    /// Does what is decided, as the API server would.
    fn apply(workloads: &mut [(Workload, String)], next: &Next) -> Option<usize> {
        let Next::Restart { index, mark } = next else { return None };
        let (workload, _) = &mut workloads[*index];
        workload.digest = Some(mark.digest.clone());
        workload.recycled = Some(mark.clone());
        workload.progress = Progress::Moving;
        Some(*index)
    }

    #[test]
    fn one_after_the_other_and_then_done() {
        let mut all = [workload("a"), workload("b")];
        for index in 0..2 {
            let (step, _) = look(&all, false, 101);
            assert_eq!(apply(&mut all, &step), Some(index));
            assert_eq!(look(&all, false, 500).0, Next::Wait(format!("{} is being restarted", all[index].0.id())));
            all[index].0.progress = Progress::Complete;
        }
        assert_eq!(look(&all, false, 500), (Next::Done, vec![]));
    }

    #[test]
    fn what_does_not_come_up_fails_by_its_own_deadline_or_by_ours() {
        let mut all = [workload("a")];
        let (step, _) = look(&all, false, 101);
        apply(&mut all, &step);
        all[0].0.progress = Progress::Failed;
        assert!(matches!(look(&all, false, 102).0, Next::Failed(_)));
        (all[0].0.progress, all[0].0.has_deadline) = (Progress::Moving, false);
        assert!(matches!(look(&all, false, 160).0, Next::Wait(_)));
        assert!(matches!(look(&all, false, 161).0, Next::Failed(_)));
    }

    #[test]
    fn a_version_is_not_blamed_for_what_was_unwell_or_restarted_before() {
        let mut all = [workload("a"), workload("b"), workload("c")];
        all[0].0.progress = Progress::Moving;
        all[2].0.progress = Progress::Failed;
        all[2].0.digest = Some("new".to_owned());
        all[2].0.recycled = Some(Recycled { at: at(99), digest: "new".to_owned(), unwell: false });
        let (step, _) = look(&all, false, 101);
        assert_eq!(apply(&mut all, &step), Some(1), "the one that is well first");
        all[1].0.progress = Progress::Complete;
        let (step, _) = look(&all, false, 102);
        assert_eq!(apply(&mut all, &step), Some(0));
        let (last, reports) = look(&all, false, 999);
        assert_eq!((last, reports[0].word), (Next::Done, "Unwell"));
    }

    #[test]
    fn another_config_of_the_same_workload_waits_for_the_restart_and_does_not_switch_its_check_off() {
        let both = |workload: &Workload, wanted: &str, now| {
            let all = [(workload.clone(), wanted.to_owned())];
            let memory = Memory::default();
            // The second config came to restarting ten seconds after the first.
            [100, 110].map(|since| {
                next(&Look {
                    workloads: &all,
                    back: false,
                    since: at(since),
                    deadline: 60,
                    memory: &memory,
                    now: at(now),
                })
                .0
            })
        };
        let mut all = [workload("web")];
        let (step, _) = look(&all, false, 101);
        apply(&mut all, &step);
        let mut web = all[0].0.clone();
        // The second is published, so that both want another template.
        assert!(both(&web, "newer", 112).iter().all(|next| matches!(next, Next::Wait(_))));
        web.progress = Progress::Failed;
        assert!(matches!(both(&web, "newer", 113), [Next::Failed(_), Next::Wait(_)]), "the first one's fault");
        web.progress = Progress::Complete;
        let [_, step] = both(&web, "newer", 114);
        assert!(matches!(&step, Next::Restart { mark, .. } if !mark.unwell), "{step:?}");
        let mut all = [(web.clone(), "newer".to_owned())];
        apply(&mut all, &step);
        all[0].0.progress = Progress::Failed;
        assert!(both(&all[0].0, "newer", 115).iter().all(|next| matches!(next, Next::Failed(_))), "it is of both now");
        // What an older rollout has left unwell is waited for no longer than its time.
        web.progress = Progress::Moving;
        let [_, step] = both(&web, "newer", 161);
        assert!(matches!(step, Next::Restart { mark, .. } if mark.unwell));
        assert!(
            matches!(look(&[(web, "newer".to_owned())], true, 112).0, Next::Restart { .. }),
            "the way back is not held up"
        );
    }

    #[test]
    fn on_the_way_back_only_what_was_restarted_is_restarted_and_nothing_fails() {
        let mut all = [workload("a"), workload("b")];
        all[1].0.digest = Some("bad".to_owned());
        all[1].0.progress = Progress::Failed;
        all[1].0.recycled = Some(Recycled { at: at(90), digest: "bad".to_owned(), unwell: false });
        let (step, _) = look(&all, true, 101);
        assert_eq!(apply(&mut all, &step), Some(1));
        all[1].0.progress = Progress::Failed;
        assert!(matches!(look(&all, true, 102).0, Next::Wait(_)));
        let (end, reports) = look(&all, true, 161);
        assert_eq!((end, reports[0].word), (Next::Done, "NotBack"));
    }

    #[test]
    fn what_is_held_or_undone_or_of_others_is_reported_once_written() {
        let mut all = [workload("a"), workload("b"), workload("c")];
        all[0].0.hold = Some(("Paused", "is paused"));
        all[1].0.owner = Some("Prometheus/main".to_owned());
        all[2].0.recycled = Some(Recycled { at: at(101), digest: "new".to_owned(), unwell: false });
        let (step, _) = look(&all, false, 102);
        assert_eq!(apply(&mut all, &step), Some(0));
        let (end, reports) = look(&all, false, 103);
        let words: Vec<_> = reports.iter().map(|report| report.word).collect();
        assert_eq!((end, words), (Next::Done, vec!["Owned", "Paused", "Undone"]));
    }

    #[test]
    fn what_is_replaced_whole_is_restarted_once_by_a_leader() {
        let mut memory = Memory::default();
        let look = |workload: &Workload, wanted: &str, memory: &Memory| {
            let all = [(workload.clone(), wanted.to_owned())];
            next(&Look { workloads: &all, back: false, since: at(100), deadline: 60, memory, now: at(102) })
        };
        // Template and marks are again what the tool has.
        let (mut web, _) = workload("web");
        assert!(matches!(look(&web, "new", &memory).0, Next::Restart { .. }), "a new leader does not know of it");
        memory.restarted(&web, "new");
        let (end, reports) = look(&web, "new", &memory);
        assert_eq!((end, reports[0].word), (Next::Done, "Undone"));
        assert!(matches!(look(&web, "newer", &memory).0, Next::Restart { .. }), "other content");
        // Another config that it uses went there and back.
        web.digest = Some("newer".to_owned());
        web.recycled = Some(Recycled { at: at(101), digest: "newer".to_owned(), unwell: false });
        assert!(matches!(look(&web, "new", &memory).0, Next::Restart { .. }));
        web.recycled = Some(Recycled { at: at(99), digest: "newer".to_owned(), unwell: false });
        assert_eq!(look(&web, "new", &memory).0, Next::Done, "a copy of an older state");
        web.uid = "anew".to_owned();
        assert!(matches!(look(&web, "new", &memory).0, Next::Restart { .. }), "another object");
    }

    #[derive(Clone, Debug)]
    enum Happens {
        Looks,
        Comes(usize),
        Breaks(usize),
        Passes(u8),
    }

    fn happens() -> impl Strategy<Value = Happens> {
        prop_oneof![
            3 => Just(Happens::Looks),
            2 => (0..4_usize).prop_map(Happens::Comes),
            1 => (0..4_usize).prop_map(Happens::Breaks),
            1 => any::<u8>().prop_map(Happens::Passes),
        ]
    }

    proptest! {
        /// Whatever happens in whatever order: never are two on their way that are waited for, none is restarted twice for the same, and it
        /// ends.
        #[test]
        fn one_at_a_time_each_once_and_it_ends(events in proptest::collection::vec(happens(), 0..60), back: bool) {
            let mut all = ["a", "b", "c", "d"].map(workload);
            for (workload, _) in &mut all[..2] {
                workload.digest = Some("old".to_owned());
                workload.has_deadline = false;
            }
            let mut count = [0; 4];
            let mut now = 101;
            let mut turn = |all: &mut [(Workload, String)], now| -> Result<Next, TestCaseError> {
                let (step, _) = look(all, back, now);
                if let Some(index) = apply(all, &step) {
                    count[index] += 1;
                    prop_assert_eq!(count[index], 1, "restarted twice");
                    let moving = all.iter().filter(|(workload, wanted)| {
                        workload.digest.as_ref() == Some(wanted) && workload.progress == Progress::Moving
                            && !workload.recycled.as_ref().is_some_and(|mark| mark.unwell)
                            && !(back && over(workload.recycled.as_ref().unwrap().at, 60, at(now)))
                    });
                    prop_assert!(moving.count() <= 1, "two on their way");
                }
                Ok(step)
            };
            for event in events {
                match event {
                    Happens::Looks => _ = turn(&mut all, now)?,
                    Happens::Comes(index) => all[index].0.progress = Progress::Complete,
                    // What has come up stays up, or it is no restart of ours that is looked at.
                    Happens::Breaks(index) if all[index].0.recycled.is_none() || all[index].0.progress == Progress::Moving => {
                        all[index].0.progress = Progress::Failed;
                    }
                    Happens::Breaks(_) => {}
                    Happens::Passes(seconds) => now += i64::from(seconds),
                }
            }
            for _ in 0..60 {
                now += 10;
                match turn(&mut all, now)? {
                    Next::Done | Next::Failed(_) => return Ok(()),
                    _ => {}
                }
                all.iter_mut().filter(|(workload, _)| workload.progress == Progress::Moving).for_each(|(workload, _)| {
                    workload.progress = Progress::Complete;
                });
            }
            prop_assert!(false, "it does not end");
        }
    }
}
