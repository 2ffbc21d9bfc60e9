//! Faults around a rollout: a good version becomes current all the same, and in time; a bad version does not.

use std::time::Duration;

use nudge_api::{Pods, Reason};
use serde_json::json;

use super::scene::{BAD, Nature, Scene, USUAL, each};
use super::{TestRollout, failure, on_hold, steps};
use crate::keys::PodUid;
use crate::pods::{PodPhase, ProbeTimes, Readiness};
use crate::rollout::{Evidence, Subject};

/// The pods have one readiness probe, with this timing.
fn with_probe(pods: &mut [Subject], probe: &serde_json::Value) {
    let spec = json!({"containers": [{"name": "app", "readinessProbe": probe}]});
    let spec = serde_json::from_value(spec).unwrap();
    for pod in pods {
        pod.probes = ProbeTimes { start_time: pod.probes.start_time, ..ProbeTimes::of(&spec) };
    }
}

#[test]
fn the_spec_changes_in_the_middle() {
    type Change = fn(&mut TestRollout);
    let changes: [(&str, Change); 6] = [
        ("fewer steps", |rollout| rollout.spec.steps = steps(&["100%"])),
        ("more steps", |rollout| rollout.spec.steps = steps(&["1", "2", "3", "4", "5", "6"])),
        ("maxHarmed", |rollout| rollout.spec.max_harmed = Some(Pods::Count(0))),
        ("no maxHarmed", |rollout| rollout.spec.max_harmed = None),
        ("deadline", |rollout| rollout.spec.progress_deadline_seconds = 60),
        ("bake", |rollout| rollout.spec.bake_seconds = 300),
    ];
    for (name, change) in changes {
        each(|nature| {
            let mut scene = Scene::new(&[("web", 8)], nature);
            if name == "no maxHarmed" {
                scene.rollout.spec.max_harmed = Some(Pods::Count(1));
            }
            scene.watch(if nature == Nature::Good { 50 } else { 1 });
            change(&mut scene.rollout);
            scene.rollout.generation += 1;
            if nature == Nature::Good {
                scene.passes(USUAL + 250);
            } else {
                scene.is_stopped(100);
                assert_eq!(scene.exposed, 1, "{name} {nature:?}");
            }
        });
    }
}

#[test]
fn another_version_is_requested_in_the_middle() {
    each(|nature| {
        let mut scene = Scene::new(&[("web", 8)], nature);
        scene.watch(20);
        scene.requested = "3";
        let began = scene.seconds;
        while scene.rollout.status.current_version.as_deref() != Some("3") {
            scene.second();
            assert!(scene.seconds - began < USUAL + 10, "{nature:?}: {:?}", scene.rollout.status.rollout);
        }
        assert_eq!((scene.rollout.assigned("3"), failure(&scene.rollout)), (8, None), "{nature:?}");
    });
}

#[test]
fn an_image_roll_out_in_the_middle_brings_another_probe() {
    let slow = json!({"periodSeconds": 30, "failureThreshold": 5});
    each(|nature| {
        for at in [5, 45, 120] {
            let mut scene = Scene::new(&[("web", 8)], if at == 5 { nature } else { Nature::Good });
            scene.watch(at);
            scene.nature = nature;
            let mut old: Vec<PodUid> = scene.rollout.pods.iter().map(|pod| pod.uid.clone()).collect();
            let mut number = 100;
            // Every 5 s a new pod replaces an old pod.
            let replace = |scene: &mut Scene| {
                if scene.seconds % 5 > 0 || old.is_empty() {
                    return;
                }
                let gone = old.remove(0);
                scene.rollout.pods.retain(|pod| pod.uid != gone);
                number += 1;
                let pod = scene.bear("web", number, 15);
                pod.template = Some("b".to_owned());
                with_probe(std::slice::from_mut(pod), &slow);
            };
            if nature == Nature::Good {
                scene.passes_while(900, replace);
                assert_eq!(scene.rollout.status.current_version.as_deref(), Some("2"));
            } else {
                scene.is_stopped_while(1500, replace);
                assert!(at > 100 || scene.exposed <= 6, "{nature:?} at {at}: {}", scene.exposed);
            }
        }
    });
}

#[test]
fn an_autoscaler_goes_from_3_to_60_of_which_20_find_no_node() {
    each(|nature| {
        for at in [5, 45, 120] {
            let mut scene = Scene::new(&[("web", 3)], if at == 5 { nature } else { Nature::Good });
            scene.watch(at);
            scene.nature = nature;
            for number in 100..157 {
                let pod = scene.bear("web", number, 20);
                if number >= 137 {
                    (pod.phase, pod.in_contact) = (PodPhase::Pending, false);
                }
            }
            if nature == Nature::Good {
                scene.passes(USUAL);
                assert_eq!(scene.rollout.pods.iter().filter(|pod| pod.runs.as_deref() == Some("2")).count(), 40);
            } else {
                scene.is_stopped(700);
                assert!(at > 5 || scene.exposed <= 30, "{nature:?}: {}", scene.exposed);
            }
        }
    });
}

#[test]
fn a_daemonset_of_500() {
    each(|nature| {
        let mut scene = Scene::new(&[("DaemonSet/log", 500)], nature);
        if nature == Nature::Good {
            scene.passes(USUAL);
        } else {
            scene.is_stopped(60);
            assert_eq!((scene.exposed, scene.rollout.assigned("1")), (1, 500), "{nature:?}");
        }
    });
}

#[test]
fn pods_of_tasks_and_jobs_that_come_and_go_every_3_seconds() {
    each(|nature| {
        let mut scene = Scene::new(&[("web", 8)], nature);
        let mut number = 1000;
        let come_and_go = |scene: &mut Scene| {
            if scene.seconds % 3 > 0 {
                return;
            }
            scene.rollout.pods.retain(|pod| pod.workload_name() == "web");
            number += 1;
            scene.bear("Job", number, 1);
            scene.bear(&format!("TaskRun/build-{number}"), number, 1);
        };
        if nature == Nature::Good {
            scene.passes_while(USUAL + 40, come_and_go);
        } else {
            scene.is_stopped_while(120, come_and_go);
            assert!(
                scene.rollout.pods.iter().all(|pod| pod.workload_name() != "web" || pod.runs.as_deref() != Some("2"))
            );
            assert!(scene.exposed <= 5, "{nature:?}: {}", scene.exposed);
        }
    });
}

#[test]
fn one_workload_in_image_pull_back_off_beside_healthy_ones() {
    each(|nature| {
        for sick in [1, 8, 40] {
            let mut scene = Scene::new(&[("web", 8)], nature);
            for number in 0..sick {
                let pod = scene.bear("broken", number, 0);
                (pod.phase, pod.in_contact) = (PodPhase::Pending, false);
            }
            if nature == Nature::Good {
                scene.passes(USUAL);
            } else {
                scene.is_stopped(60);
                let healthy =
                    scene.rollout.pods.iter().filter(|pod| pod.restarts.sums().crashes > 0 || !pod.is_ready());
                let exposed = healthy.filter(|pod| pod.workload_name() == "web").count();
                assert!(exposed <= 1, "{nature:?}: {exposed}");
            }
        }
    });
}

#[test]
fn clocks_of_nodes_are_off_by_a_minute() {
    for off in [-60, 60] {
        each(|nature| {
            let mut scene = Scene::new(&[("web", 8)], nature);
            let shift = |scene: &mut Scene| {
                let now = scene.rollout.millis / 1000;
                for pod in &mut scene.rollout.pods {
                    // A readiness that the node wrote a moment ago.
                    if let Readiness::Lost { since } = pod.readiness {
                        pod.lose_readiness(if now - since <= 1 { since + off } else { since });
                    }
                    pod.change_restarts(|sums| {
                        sums.last_crash = sums.last_crash.map(|at| if now - at <= 1 { at + off } else { at });
                    });
                }
            };
            // With another leader in the middle of the step, too.
            scene.watch(20);
            shift(&mut scene);
            scene.hand_over();
            if nature == Nature::Good {
                scene.passes_while(USUAL, shift);
            } else {
                scene.is_stopped_while(700, shift);
                assert!(scene.exposed <= 2, "{nature:?} {off}: {}", scene.exposed);
            }
        });
    }
}

#[test]
fn pods_without_any_probe() {
    for nature in [Nature::Good, Nature::Crashes] {
        let mut rollout = TestRollout::new(&[("web", 8)]);
        rollout.pods.iter_mut().for_each(|pod| (pod.probes.slowest, pod.probes.notice_time) = (None, Duration::ZERO));
        let mut scene = Scene::of(rollout, nature);
        if nature == Nature::Good {
            scene.passes(110);
        } else {
            assert_eq!(scene.is_stopped(10), Reason::ContainerRestarted);
            assert_eq!(scene.exposed, 1);
        }
    }
}

#[test]
fn a_probe_of_600_seconds() {
    each(|nature| {
        let mut rollout = TestRollout::new(&[("web", 8)]);
        with_probe(&mut rollout.pods, &json!({"periodSeconds": 600}));
        let mut scene = Scene::of(rollout, nature);
        match nature {
            // The first step alone is watched for as long as the probe needs, the others for 300 s.
            Nature::Good => assert!(scene.passes(2_800) > 1_807 + 3 * 300),
            Nature::Crashes => assert_eq!(scene.is_stopped(10), Reason::ContainerRestarted),
            Nature::Unready => {
                scene.watch(1_200);
                assert!(scene.rollout.pods.iter().all(|pod| pod.is_ready()), "it has not noticed yet");
                scene.is_stopped(700);
            }
        }
        assert!(nature == Nature::Good || scene.exposed == 1);
    });
}

#[test]
fn a_pod_that_is_ready_for_2_seconds_at_a_time() {
    for unready in [4, 20] {
        each(|nature| {
            for probe in [json!({}), json!({"failureThreshold": 1})] {
                for phase in 0..unready + 2 {
                    let mut rollout = TestRollout::new(&[("web", 8)]);
                    with_probe(&mut rollout.pods, &probe);
                    rollout.pods.sort_by_key(|pod| pod.number);
                    let mut scene = Scene::of(rollout, nature);
                    // The pod did so before, and is the first in the order.
                    let flap = |scene: &mut Scene| {
                        let ready = (scene.seconds + phase) % (unready + 2) < 2;
                        let pod = &mut scene.rollout.pods[0];
                        if ready { pod.recover() } else { pod.fall() }
                    };
                    scene.requested = "1";
                    for _ in 0..40 {
                        flap(&mut scene);
                        scene.second();
                    }
                    scene.requested = "2";
                    if nature == Nature::Good {
                        scene.passes_while(USUAL + 40, flap);
                    } else {
                        scene.is_stopped_while(120, flap);
                        assert!(scene.exposed <= 2, "{nature:?}: {}", scene.exposed);
                    }
                }
            }
        });
    }
}

#[test]
fn pods_that_are_drained_before_they_prove_anything_do_not_let_a_version_pass() {
    // The pods of the only node are drained, and their replacements are created `created_after` seconds later.
    for count in [1, 2] {
        for at in [1, 30, 60, 90] {
            for created_after in [0, 1, 31] {
                for (nature, jobs) in
                    [(Nature::Unready, false), (Nature::Unready, true), (Nature::Crashes, false), (Nature::Good, false)]
                {
                    let mut scene = Scene::new(&[("web", count)], Nature::Good);
                    if jobs {
                        scene.bear("Job", 5, 1);
                    }
                    scene.watch(at);
                    scene.rollout.pods.retain(|pod| pod.workload_name() != "web");
                    scene.watch(created_after);
                    assert!(!scene.is_current(), "{count} at {at}, {created_after} s later");
                    scene.nature = nature;
                    (0..count).for_each(|number| drop(scene.bear("web", 50 + number, 20).uid.clone()));
                    if nature == Nature::Good {
                        scene.passes(USUAL + 100);
                    } else {
                        scene.is_stopped(1000);
                    }
                }
            }
        }
    }
}

#[test]
fn a_config_that_is_scaled_to_zero_in_the_middle_does_not_wait_for_ever() {
    for at in [1, 45, 130] {
        let mut scene = Scene::new(&[("web", 8)], Nature::Good);
        scene.watch(at);
        scene.rollout.pods.clear();
        scene.passes(USUAL);
    }
}

#[test]
fn a_judge_that_becomes_pending_is_replaced_by_another_one() {
    for nature in BAD {
        let mut scene = Scene::new(&[("web", 3)], Nature::Good);
        scene.watch(10);
        scene.nature = nature;
        // The pod's node is gone, and there is no room for its successor.
        let name = scene.rollout.with("2").remove(0).uid.clone();
        scene.rollout.pods.retain(|pod| pod.uid != name);
        let pod = scene.bear("web", 50, 0);
        (pod.phase, pod.in_contact) = (PodPhase::Pending, false);
        scene.is_stopped(60);
        assert!(scene.exposed <= 2, "{nature:?}: {}", scene.exposed);
    }
}

#[test]
fn a_return_with_every_pod_crash_looping_is_one_write() {
    for count in [1, 8, 40, 500] {
        for hands_over in [false, true] {
            let mut scene = Scene::new(&[("web", count)], Nature::Good);
            scene.passes(USUAL);
            let millis = scene.rollout.millis;
            scene.rollout.pods.iter_mut().for_each(|pod| {
                pod.crash(millis);
                pod.fall();
                pod.in_contact = false;
            });
            scene.watch(30);
            if hands_over {
                scene.rollout.evidence = Evidence::default();
            }
            let revision = scene.rollout.status.internal.revision;
            scene.rollout.closed_gate = Some(on_hold());
            scene.rollout.rest("1");
            assert_eq!(scene.rollout.assigned("1"), count);
            assert!(scene.rollout.status.internal.revision > revision);
            // The pods come back one after the other, without any further writes for them.
            for at in 0..count {
                (scene.rollout.pods[at].in_contact, scene.rollout.pods[at].runs) = (true, Some("1".to_owned()));
            }
            scene.rollout.rest("1");
            let current = scene.rollout.status.current_version.as_deref();
            assert_eq!((current, scene.rollout.assigned("1")), (Some("1"), count));
        }
    }
}
