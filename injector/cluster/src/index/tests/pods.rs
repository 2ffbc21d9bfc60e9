//! Who is woken by changes of pods.

use nudge_core::pods::{PodState, Readiness, Report, ReportState, RestartSums};

use super::*;

#[test]
fn pods_are_woken_by_their_configs_and_by_themselves() {
    let index = enabled();
    index.put_pod(pod("u", &["shop"]));
    let key = PodKey::new("ns", "web");
    let mut woken = index.pod(&key).unwrap().subscribe();
    index.put_config(config("a", "1"));
    assert!(woken.has_changed().unwrap());
    woken.mark_unchanged();
    index.put_pod(pod("u", &["shop"]));
    assert!(!woken.has_changed().unwrap(), "nothing has changed");
    index.put_pod(PodState { readiness: Readiness::Ready, ..pod("u", &["shop"]) });
    assert!(woken.has_changed().unwrap());
    index.remove_pod(&key);
    assert!(index.subscribers(&config_key("shop")).is_empty());
}

#[test]
fn another_version_of_a_pod_that_is_the_same_wakes_nobody_and_is_known() {
    let index = enabled();
    let of = |version: &str| PodState { resource_version: Some(version.into()), ..pod("u", &["shop"]) };
    index.put_pod(of("1"));
    let entry = index.pod(&PodKey::new("ns", "web")).unwrap();
    let mut woken = entry.subscribe();
    woken.borrow_and_update();
    index.put_pod(of("2"));
    assert!(!woken.has_changed().unwrap());
    let entry = index.pod(&PodKey::new("ns", "web")).unwrap();
    assert_eq!(entry.state.resource_version.as_deref(), Some("2"));
}

#[test]
fn that_the_report_of_a_pod_changes_is_noted() {
    let index = enabled();
    let of = |ready: bool, state: &ReportState| PodState {
        readiness: if ready { Readiness::Ready } else { Readiness::Never },
        report: Some(Report { versions: Vec::new(), state: state.clone(), reasons: Vec::new(), at: None }),
        ..pod("u", &["shop"])
    };
    index.put_pod(of(false, &ReportState::Acknowledged));
    index.put_pod(of(true, &ReportState::Acknowledged));
    assert_eq!(index.last_report_change(None), None, "a pod that is new to the index says nothing new");
    index.put_pod(of(true, &ReportState::Pending(nudge_api::Reason::Pending.explained("not yet"))));
    assert!(index.last_report_change(None).is_some() && index.last_report_change(Some("ns")).is_some());
    assert_eq!(index.last_report_change(Some("another")), None);
}

#[test]
fn a_pod_of_the_same_name_with_another_uid_is_another_pod() {
    let index = enabled();
    index.put_pod(pod("u", &["shop"]));
    let mut old = index.pod(&PodKey::new("ns", "web")).unwrap().subscribe();
    index.put_pod(pod("v", &["keys"]));
    assert!(old.has_changed().is_ok_and(|changed| changed) || old.has_changed().is_err());
    assert!(index.subscribers(&config_key("shop")).is_empty());
    assert_eq!(index.subscribers(&config_key("keys")).len(), 1);
    old.mark_unchanged();
}

#[test]
fn pods_of_other_service_accounts_are_no_subscribers_and_are_woken_when_that_changes() {
    let index = enabled();
    let of = |uid: &str, name: &str, account: &str| PodState {
        name: name.to_owned(),
        service_account: account.to_owned(),
        ..pod(uid, &["shop"])
    };
    index.put_pod(of("u", "web", "app"));
    index.put_pod(of("v", "stranger", "default"));
    let names = || index.subscribers(&config_key("shop")).iter().map(|pod| pod.name.clone()).collect::<Vec<_>>();
    index.put_config(config("a", "1"));
    assert_eq!(names(), ["stranger", "web"]);
    let mut woken = index.pod(&PodKey::new("ns", "stranger")).unwrap().subscribe();
    woken.mark_unchanged();
    let mut limited = config("a", "2");
    limited.spec.allowed_service_accounts = Some(vec!["app".to_owned()]);
    index.put_config(limited);
    assert_eq!(names(), ["web"]);
    assert!(woken.has_changed().unwrap());
}

#[test]
fn the_pods_of_a_node_are_those_that_are_there_now() {
    let index = enabled();
    let on = |node: &str| -> Vec<String> {
        let pods = index.pods_on(&[node].into());
        pods.into_iter().map(|(pod, _)| pod.uid.to_string()).collect()
    };
    let there = |uid: &str, node: &str| PodState { node: Some(node.to_owned()), ..pod(uid, &["shop"]) };
    index.put_pod(PodState { node: None, ..there("u1", "") });
    assert!(on("").is_empty() && on("a").is_empty());
    index.put_pod(there("u1", "a"));
    assert_eq!((on("a"), on("b")), (vec!["u1".to_owned()], Vec::new()));
    // Another pod of the same name.
    index.put_pod(there("u2", "b"));
    assert_eq!((on("a"), on("b")), (Vec::new(), vec!["u2".to_owned()]));
    index.remove_pod(&there("u2", "b").key());
    assert!(on("b").is_empty());
    assert!(index.lock().namespaces["ns"].pods_by_node.is_empty(), "nothing is left of nodes without pods");
}

#[test]
fn harm_is_reported_with_the_change_and_those_who_use_a_config_are_known_as_they_are() {
    use nudge_core::pods::{Report, ReportState};
    let index = enabled();
    let (sent, events) = std::sync::mpsc::channel();
    index.listen(move |event| {
        if let IndexEvent::Pods { config, harmed } = event {
            sent.send((config.name.to_string(), *harmed)).unwrap();
        }
    });
    let fails = |message: &str| {
        let state = ReportState::of(nudge_api::Reason::Failed.explained(message));
        Some(Report { versions: Vec::new(), state, reasons: Vec::new(), at: None })
    };
    let well = || PodState { containers_ready: true, ..pod("u", &["shop"]) };
    let crashed = || RestartSums { crashes: 1, ..RestartSums::default() }.into();
    let all = [
        (well(), false),
        (PodState { readiness: Readiness::Ready, ..well() }, false),
        (pod("u", &["shop"]), true),
        (well(), false),
        (PodState { restarts: crashed(), ..well() }, true),
        (PodState { restarts: crashed(), report: fails("a"), ..well() }, true),
        (PodState { restarts: crashed(), report: fails("a"), readiness: Readiness::Ready, ..well() }, false),
        (PodState { restarts: crashed(), report: fails("b"), readiness: Readiness::Ready, ..well() }, true),
        (PodState { report: fails("c"), ..pod("v", &["shop"]) }, false),
    ];
    for (state, harmed) in all {
        index.put_pod(state.clone());
        assert_eq!(events.try_recv().unwrap(), ("shop".to_owned(), harmed), "{state:?}");
        let users = index.subscribers(&config_key("shop"));
        assert!(users.len() == 1 && *users[0] == state && index.count_users(&config_key("shop")) == 1);
    }
}
