//! What goes wrong around a rollout: a good version becomes current all the same, and in time; a bad one does not.

use nudge_api::{Reason, Tolerance};
use serde_json::json;

use super::test_world::{BAD, Nature, USUAL, World, each};
use super::tests::{TestRollout, failure, steps};
use super::{Evidence, Subject};
use crate::pods::{notices_after, slowest_probe};

/// The pods have one readiness probe, with this timing.
fn with_probe(pods: &mut [Subject], probe: &serde_json::Value) {
    let spec = json!({"containers": [{"name": "app", "readinessProbe": probe}]});
    let spec = serde_json::from_value(spec).unwrap();
    for pod in pods {
        (pod.slowest_probe, pod.notices_after) = (slowest_probe(&spec), notices_after(&spec));
    }
}

#[test]
fn the_spec_changes_in_the_middle() {
    type Change = fn(&mut TestRollout);
    let changes: [(&str, Change); 6] = [
        ("fewer steps", |rollout| rollout.spec.steps = steps(&["100%"])),
        ("more steps", |rollout| rollout.spec.steps = steps(&["1", "2", "3", "4", "5", "6"])),
        ("tolerance", |rollout| rollout.spec.tolerance = Some(Tolerance::Count(0))),
        ("no tolerance", |rollout| rollout.spec.tolerance = None),
        ("deadline", |rollout| rollout.spec.progress_deadline_seconds = 60),
        ("bake", |rollout| rollout.spec.bake_seconds = 300),
    ];
    for (name, change) in changes {
        each(|nature| {
            let mut world = World::new(&[("web", 8)], nature);
            if name == "no tolerance" {
                world.rollout.spec.tolerance = Some(Tolerance::Count(1));
            }
            world.watch(if nature == Nature::Good { 50 } else { 1 });
            change(&mut world.rollout);
            world.rollout.generation += 1;
            if nature == Nature::Good {
                world.passes(USUAL + 250);
            } else {
                world.is_stopped(100);
                assert_eq!(world.exposed, 1, "{name} {nature:?}");
            }
        });
    }
}

#[test]
fn another_version_is_requested_in_the_middle() {
    each(|nature| {
        let mut world = World::new(&[("web", 8)], nature);
        world.watch(20);
        world.requested = "3";
        let began = world.seconds;
        while world.rollout.status.current.as_deref() != Some("3") {
            world.second();
            assert!(world.seconds - began < USUAL + 10, "{nature:?}: {:?}", world.rollout.status.rollout);
        }
        assert_eq!((world.rollout.assigned("3"), failure(&world.rollout)), (8, None), "{nature:?}");
    });
}

#[test]
fn an_image_roll_out_in_the_middle_brings_another_probe() {
    let slow = json!({"periodSeconds": 30, "failureThreshold": 5});
    each(|nature| {
        for at in [5, 45, 120] {
            let mut world = World::new(&[("web", 8)], if at == 5 { nature } else { Nature::Good });
            world.watch(at);
            world.nature = nature;
            let mut old: Vec<String> = world.rollout.pods.iter().map(|pod| pod.uid.clone()).collect();
            let mut number = 100;
            // Every 5 s an old pod is replaced by a new one.
            let replace = |world: &mut World| {
                if world.seconds % 5 > 0 || old.is_empty() {
                    return;
                }
                let gone = old.remove(0);
                world.rollout.pods.retain(|pod| pod.uid != gone);
                number += 1;
                let pod = world.bear("web", number, 15);
                pod.template = "b".to_owned();
                with_probe(std::slice::from_mut(pod), &slow);
            };
            if nature == Nature::Good {
                world.passes_while(900, replace);
                assert_eq!(world.rollout.status.current.as_deref(), Some("2"));
            } else {
                world.is_stopped_while(1500, replace);
                assert!(at > 100 || world.exposed <= 6, "{nature:?} at {at}: {}", world.exposed);
            }
        }
    });
}

#[test]
fn an_autoscaler_goes_from_3_to_60_of_which_20_find_no_node() {
    each(|nature| {
        for at in [5, 45, 120] {
            let mut world = World::new(&[("web", 3)], if at == 5 { nature } else { Nature::Good });
            world.watch(at);
            world.nature = nature;
            for number in 100..157 {
                let pod = world.bear("web", number, 20);
                if number >= 137 {
                    (pod.running, pod.in_contact) = (false, false);
                }
            }
            if nature == Nature::Good {
                world.passes(USUAL);
                assert_eq!(world.rollout.pods.iter().filter(|pod| pod.runs.as_deref() == Some("2")).count(), 40);
            } else {
                world.is_stopped(700);
                assert!(at > 5 || world.exposed <= 30, "{nature:?}: {}", world.exposed);
            }
        }
    });
}

#[test]
fn a_daemonset_of_500() {
    each(|nature| {
        let mut world = World::new(&[("DaemonSet/log", 500)], nature);
        if nature == Nature::Good {
            world.passes(USUAL);
        } else {
            world.is_stopped(60);
            assert_eq!((world.exposed, world.rollout.assigned("1")), (1, 500), "{nature:?}");
        }
    });
}

#[test]
fn pods_of_tasks_and_jobs_that_come_and_go_every_3_seconds() {
    each(|nature| {
        let mut world = World::new(&[("web", 8)], nature);
        let mut number = 1000;
        let come_and_go = |world: &mut World| {
            if world.seconds % 3 > 0 {
                return;
            }
            world.rollout.pods.retain(|pod| pod.workload == "web");
            number += 1;
            world.bear("Job", number, 1);
            world.bear(&format!("TaskRun/build-{number}"), number, 1);
        };
        if nature == Nature::Good {
            world.passes_while(USUAL + 40, come_and_go);
        } else {
            world.is_stopped_while(120, come_and_go);
            assert!(world.rollout.pods.iter().all(|pod| pod.workload != "web" || pod.runs.as_deref() != Some("2")));
            assert!(world.exposed <= 5, "{nature:?}: {}", world.exposed);
        }
    });
}

#[test]
fn one_workload_in_image_pull_back_off_beside_healthy_ones() {
    each(|nature| {
        for sick in [1, 8, 40] {
            let mut world = World::new(&[("web", 8)], nature);
            for number in 0..sick {
                let pod = world.bear("broken", number, 0);
                (pod.running, pod.in_contact) = (false, false);
            }
            if nature == Nature::Good {
                world.passes(USUAL);
            } else {
                world.is_stopped(60);
                let healthy = world.rollout.pods.iter().filter(|pod| pod.restarts > 0 || !pod.ready);
                let exposed = healthy.filter(|pod| pod.workload == "web").count();
                assert!(exposed <= 1, "{nature:?}: {exposed}");
            }
        }
    });
}

#[test]
fn clocks_of_nodes_are_off_by_a_minute() {
    for off in [-60, 60] {
        each(|nature| {
            let mut world = World::new(&[("web", 8)], nature);
            let shift = |world: &mut World| {
                let now = world.rollout.millis / 1000;
                for pod in &mut world.rollout.pods {
                    // What the node has written a moment ago.
                    pod.unready_since = pod.unready_since.map(|at| if now - at <= 1 { at + off } else { at });
                    pod.last_restart = pod.last_restart.map(|at| if now - at <= 1 { at + off } else { at });
                }
            };
            // With another leader in the middle of the step, too.
            world.watch(20);
            shift(&mut world);
            world.hand_over();
            if nature == Nature::Good {
                world.passes_while(USUAL, shift);
            } else {
                world.is_stopped_while(700, shift);
                assert!(world.exposed <= 2, "{nature:?} {off}: {}", world.exposed);
            }
        });
    }
}

#[test]
fn pods_without_any_probe() {
    for nature in [Nature::Good, Nature::Crashes] {
        let mut rollout = TestRollout::new(&[("web", 8)]);
        rollout.pods.iter_mut().for_each(|pod| (pod.slowest_probe, pod.notices_after) = (None, 0));
        let mut world = World::of(rollout, nature);
        if nature == Nature::Good {
            world.passes(110);
        } else {
            assert_eq!(world.is_stopped(10), Reason::ContainerRestarted);
            assert_eq!(world.exposed, 1);
        }
    }
}

#[test]
fn a_probe_of_600_seconds() {
    each(|nature| {
        let mut rollout = TestRollout::new(&[("web", 8)]);
        with_probe(&mut rollout.pods, &json!({"periodSeconds": 600}));
        let mut world = World::of(rollout, nature);
        match nature {
            // The first step alone is watched for as long as the probe needs, the others for 300 s.
            Nature::Good => assert!(world.passes(2_800) > 1_807 + 3 * 300),
            Nature::Crashes => assert_eq!(world.is_stopped(10), Reason::ContainerRestarted),
            Nature::Unready => {
                world.watch(1_200);
                assert!(world.rollout.pods.iter().all(|pod| pod.ready), "it has not noticed yet");
                world.is_stopped(700);
            }
        }
        assert!(nature == Nature::Good || world.exposed == 1);
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
                    let mut world = World::of(rollout, nature);
                    // It did so before, and is the first of the order.
                    let flap = |world: &mut World| {
                        let ready = (world.seconds + phase) % (unready + 2) < 2;
                        let pod = &mut world.rollout.pods[0];
                        if ready { pod.recover() } else { pod.fall() }
                    };
                    world.requested = "1";
                    for _ in 0..40 {
                        flap(&mut world);
                        world.second();
                    }
                    world.requested = "2";
                    if nature == Nature::Good {
                        world.passes_while(USUAL + 40, flap);
                    } else {
                        world.is_stopped_while(120, flap);
                        assert!(world.exposed <= 2, "{nature:?}: {}", world.exposed);
                    }
                }
            }
        });
    }
}

#[test]
fn pods_that_are_drained_before_they_prove_anything_do_not_let_a_version_pass() {
    // The pods of the only node are drained, and their replacements are created so many seconds later.
    for count in [1, 2] {
        for at in [1, 30, 60, 90] {
            for created_after in [0, 1, 31] {
                for (nature, jobs) in
                    [(Nature::Unready, false), (Nature::Unready, true), (Nature::Crashes, false), (Nature::Good, false)]
                {
                    let mut world = World::new(&[("web", count)], Nature::Good);
                    if jobs {
                        world.bear("Job", 5, 1);
                    }
                    world.watch(at);
                    world.rollout.pods.retain(|pod| pod.workload != "web");
                    world.watch(created_after);
                    assert!(!world.is_current(), "{count} at {at}, {created_after} s later");
                    world.nature = nature;
                    (0..count).for_each(|number| drop(world.bear("web", 50 + number, 20).uid.clone()));
                    if nature == Nature::Good {
                        world.passes(USUAL + 100);
                    } else {
                        world.is_stopped(1000);
                    }
                }
            }
        }
    }
}

#[test]
fn a_config_that_is_scaled_to_zero_in_the_middle_does_not_wait_for_ever() {
    for at in [1, 45, 130] {
        let mut world = World::new(&[("web", 8)], Nature::Good);
        world.watch(at);
        world.rollout.pods.clear();
        world.passes(USUAL);
    }
}

#[test]
fn a_judge_that_becomes_pending_is_replaced_by_another_one() {
    for nature in BAD {
        let mut world = World::new(&[("web", 3)], Nature::Good);
        world.watch(10);
        world.nature = nature;
        // Its node is gone, and there is no place for its successor.
        let name = world.rollout.with("2").remove(0).uid.clone();
        world.rollout.pods.retain(|pod| pod.uid != name);
        let pod = world.bear("web", 50, 0);
        (pod.running, pod.in_contact) = (false, false);
        world.is_stopped(60);
        assert!(world.exposed <= 2, "{nature:?}: {}", world.exposed);
    }
}

#[test]
fn a_return_with_every_pod_crash_looping_is_one_write() {
    for count in [1, 8, 40, 500] {
        for hands_over in [false, true] {
            let mut world = World::new(&[("web", count)], Nature::Good);
            world.passes(USUAL);
            let millis = world.rollout.millis;
            world.rollout.pods.iter_mut().for_each(|pod| {
                pod.crash(millis);
                pod.fall();
                pod.in_contact = false;
            });
            world.watch(30);
            if hands_over {
                world.rollout.evidence = Evidence::default();
            }
            let revision = world.rollout.status.rollout.revision;
            world.rollout.spec.paused = true;
            world.rollout.rest("1");
            assert_eq!(world.rollout.assigned("1"), count);
            assert!(world.rollout.status.rollout.revision > revision);
            // They come back one after the other, without anything more to write for them.
            for at in 0..count {
                (world.rollout.pods[at].in_contact, world.rollout.pods[at].runs) = (true, Some("1".to_owned()));
            }
            world.rollout.rest("1");
            assert_eq!((world.rollout.status.current.as_deref(), world.rollout.assigned("1")), (Some("1"), count));
        }
    }
}
