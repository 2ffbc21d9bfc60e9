//! Users who may approve, approvals that count, and the messages about the other approvals.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nudge_api::{Approval, ApprovalDecision, Reason};
use proptest::prelude::*;

use super::RuleOwner;
use super::approval::{ApprovalCandidate, Approvals, Authors, KnownRequester, Right, UserDecision, check_approvals};
use crate::rollout::{Millis, Now, SteadyTime};

const DIGEST: &str = "sha256:4967c54464734967c54464734967c5440123456789abcdef";

fn given(user: &str, second: i64) -> UserDecision {
    UserDecision {
        version: "2".to_owned(),
        digest: DIGEST.to_owned(),
        user: user.to_owned(),
        decision: ApprovalDecision::Approve,
        reason: "read it".to_owned(),
        at: Time(Timestamp::from_second(second).unwrap()),
        right: Right::Granted,
    }
}

fn denied(user: &str) -> UserDecision {
    UserDecision { decision: ApprovalDecision::Deny, reason: "too risky".to_owned(), ..given(user, 1) }
}

fn made_by(users: &[&str]) -> Authors {
    Authors::Known(users.iter().map(|user| (*user).to_owned()).collect())
}

fn needs(required: u32) -> Approval {
    Approval { required, ..Approval::default() }
}

/// Version 2 of config shop, which nobody has requested.
fn of_nobody<'a>(authors: &'a Authors, rule: &'a RuleOwner) -> ApprovalCandidate<'a> {
    ApprovalCandidate { config: "shop", version: "2", digest: DIGEST, authors, requester: KnownRequester::Nobody, rule }
}

/// Returns the users who count, or the message about missing approvals.
fn count(
    needed: &Approval,
    authors: &Authors,
    requester: KnownRequester<'_>,
    all: &[UserDecision],
) -> Result<Vec<String>, String> {
    let approvals = Approvals { decisions: all.to_vec(), incomplete: None, awaited: None };
    let candidate = ApprovalCandidate { requester, ..of_nobody(authors, &RuleOwner::Config) };
    let now = Now { time: &Time(Timestamp::UNIX_EPOCH), steady: SteadyTime(0) };
    let users = check_approvals(needed, candidate, &approvals, now);
    users.map(|all| all.into_iter().map(|it| it.user).collect()).map_err(|gate| {
        assert_eq!(gate.why.reason, Reason::AwaitingApproval);
        assert_eq!(gate.recheck_at.is_some(), !all.is_empty(), "rights change unseen");
        gate.why.message
    })
}

fn by_alice(required: u32, all: &[UserDecision]) -> Result<Vec<String>, String> {
    count(&needs(required), &made_by(&["alice"]), KnownRequester::User("dora"), all)
}

#[test]
fn what_is_missing_is_said_with_the_whole_command() {
    assert_eq!(
        by_alice(1, &[]).unwrap_err(),
        "version 2 has 0 of 1 approval that it needs; kubectl nudge approve shop 2 --digest=4967c54464734967c54464734967c544 --reason=TEXT, \
         by a user with the verb approve on the config who has read it (kubectl nudge diff shop current 2)"
    );
    let gone = UserDecision { right: Right::Refused, ..given("carol", 1) };
    let open = UserDecision { right: Right::Unanswered { last: None }, ..given("erin", 1) };
    let all = [given("bob", 1), given("alice", 1), given("dora", 1), gone, open];
    let message = by_alice(2, &all).unwrap_err();
    assert!(message.starts_with("version 2 has 1 of 2 approvals that it needs; kubectl nudge approve "), "{message}");
    assert!(
        message.contains("; so far: bob approves it; alice has created a part of it, or set its source; "),
        "{message}"
    );
    assert!(message.contains("carol may not approve it any more; dora has requested it; and 1 more"), "{message}");
    assert_eq!(by_alice(1, &all), Ok(vec!["bob".to_owned()]));
}

#[test]
fn a_user_counts_once_for_the_version_and_content_that_was_approved() {
    let (mut other, mut digest) = (given("carol", 1), given("carol", 1));
    (other.version, digest.digest) = ("3".to_owned(), "sha256:01".to_owned());
    let all = [given("bob", 9), given("bob", 5), other, digest];
    assert!(by_alice(2, &all).unwrap_err().ends_with("current 2); so far: bob approves it"));
    let approvals = Approvals { decisions: all.to_vec(), incomplete: None, awaited: None };
    let authors = made_by(&["alice"]);
    let candidate = of_nobody(&authors, &RuleOwner::Config);
    let now = Now { time: &Time(Timestamp::UNIX_EPOCH), steady: SteadyTime(0) };
    let counted = check_approvals(&needs(1), candidate, &approvals, now).unwrap();
    assert_eq!((counted.len(), counted[0].approval_time.0.as_second()), (1, 5), "since the first time");
    // The right of a group that the user has left does not hide the right of another group.
    for gone in [Some(false), None] {
        let again = [UserDecision { right: Right::of(gone, None), ..given("bob", 1) }, given("bob", 2)];
        assert_eq!(by_alice(1, &again), Ok(vec!["bob".to_owned()]));
    }
    let two = [given("carol", 3), given("bob", 4)];
    assert_eq!(by_alice(2, &two), Ok(vec!["carol".to_owned(), "bob".to_owned()]));
}

#[test]
fn an_approval_counts_for_so_long_and_a_later_one_of_the_user_for_longer() {
    let authors = made_by(&["alice"]);
    let candidate = of_nobody(&authors, &RuleOwner::Config);
    let needed = Approval { valid_seconds: 3600, ..needs(1) };
    let at = |second: i64, all: &[UserDecision]| {
        let approvals = Approvals { decisions: all.to_vec(), ..Approvals::default() };
        let time = Time(Timestamp::from_second(second).unwrap());
        let counted = check_approvals(&needed, candidate, &approvals, Now { time: &time, steady: SteadyTime(0) });
        counted.map(|all| all[0].approval_time.0.as_second()).map_err(|gate| gate.why.message)
    };
    let (one, other) = (given("bob", 10), given("bob", 20));
    assert_eq!(at(3609, std::slice::from_ref(&one)), Ok(10));
    let message = at(3610, std::slice::from_ref(&one)).unwrap_err();
    assert!(message.starts_with("version 2 has 0 of 1 approval that it needs; kubectl nudge approve "), "{message}");
    assert!(message.ends_with("; so far: bob approved it, but the approval has run out (validSeconds)"), "{message}");
    for all in [[one.clone(), other.clone()], [other, one]] {
        assert_eq!(at(3610, &all), Ok(20));
    }
    let message = at(1_000_000, &[given("bob", 999_999), denied("carol")]).unwrap_err();
    assert!(message.starts_with("carol denies version 2"), "a denial has no end: {message}");
}

#[test]
fn one_denial_by_somebody_with_the_right_holds_it_also_by_an_author() {
    for user in ["carol", "alice", "dora", "bob"] {
        let message = by_alice(1, &[given("bob", 1), denied(user)]).unwrap_err();
        assert!(message.starts_with(&format!("{user} denies version 2 (too risky); ")), "{message}");
    }
    let with =
        |answer| by_alice(1, &[given("bob", 1), UserDecision { right: Right::of(answer, None), ..denied("carol") }]);
    assert!(with(None).is_err(), "it may be one");
    assert!(with(Some(false)).is_ok());
    let mut other = denied("carol");
    other.digest = "sha256:01".to_owned();
    assert!(by_alice(1, &[given("bob", 1), other]).is_ok());
}

#[test]
fn nobody_is_no_author_of_what_nobody_knows_who_made() {
    let bob = [given("bob", 1)];
    let (known, asked) = (made_by(&["alice"]), KnownRequester::User("dora"));
    for (authors, requester, why) in [
        (&Authors::Unknown, asked, "Nudge does not know who created it"),
        (&known, KnownRequester::Unknown, "Nudge does not know who requested it"),
        (&Authors::Unread, asked, "its parts are being read"),
    ] {
        let message = count(&needs(1), authors, requester, &bob).unwrap_err();
        assert!(message.contains(why) && !message.contains("kubectl nudge approve"), "{message}");
        let anybody = Approval { not_author: false, ..needs(1) };
        assert!(count(&anybody, authors, requester, &bob).is_ok());
    }
    assert!(count(&needs(1), &known, KnownRequester::Nobody, &bob).is_ok());
    let anybody = Approval { not_author: false, ..needs(1) };
    for user in ["alice", "dora"] {
        assert!(count(&anybody, &known, asked, &[given(user, 1)]).is_ok());
    }
}

#[test]
fn a_version_of_a_source_is_made_again_by_the_source() {
    let rule = RuleOwner::Config;
    let candidate = ApprovalCandidate { version: "src-0123", ..of_nobody(&Authors::SetterUnknown, &rule) };
    let now = Now { time: &Time(Timestamp::UNIX_EPOCH), steady: SteadyTime(0) };
    let message = check_approvals(&needs(1), candidate, &Approvals::default(), now).unwrap_err().why.message;
    assert!(message.contains("run kubectl nudge source sync") && !message.contains("another name"), "{message}");
}

#[test]
fn what_is_not_known_whole_counts_for_nothing() {
    let approvals = Approvals {
        decisions: vec![given("bob", 1)],
        incomplete: Some("there are too many".to_owned()),
        awaited: None,
    };
    let authors = made_by(&["alice"]);
    let candidate = of_nobody(&authors, &RuleOwner::Config);
    let now = Now { time: &Time(Timestamp::UNIX_EPOCH), steady: SteadyTime(7) };
    let gate = check_approvals(&needs(1), candidate, &approvals, now).unwrap_err();
    assert!(gate.why.message.contains("there are too many") && gate.recheck_at.is_some());
}

#[test]
fn names_and_reasons_of_others_stay_in_one_bounded_line() {
    let long = "x\u{202e}\n".repeat(600);
    let mut all: Vec<UserDecision> =
        (0..40).map(|at| UserDecision { right: Right::Refused, ..given(&format!("{at}{long}"), 1) }).collect();
    let message = by_alice(1, &all).unwrap_err();
    assert!(message.len() <= 512 && !message.contains('\n'), "{}", message.len());
    let longest = ["s".repeat(63), "2".repeat(63)];
    let (authors, rule) = (made_by(&[]), RuleOwner::Config);
    let candidate = ApprovalCandidate { config: &longest[0], version: &longest[1], ..of_nobody(&authors, &rule) };
    let given = all.iter().map(|given| UserDecision { version: longest[1].clone(), ..given.clone() }).collect();
    let approvals = Approvals { decisions: given, ..Approvals::default() };
    let now = Now { time: &Time(Timestamp::UNIX_EPOCH), steady: SteadyTime(0) };
    let message = check_approvals(&needs(1), candidate, &approvals, now).unwrap_err().why.message;
    assert!(
        message.len() <= 512 && message.contains("c544 --reason=TEXT, by a user "),
        "the command is whole: {message}"
    );
    all.push(UserDecision { reason: long.clone(), ..denied(&long) });
    let message = by_alice(1, &all).unwrap_err();
    assert!(message.len() <= 512 && !message.contains('\n'), "{}", message.len());
}

prop_compose! {
    fn any_given()(user in 0..5_usize, approves in any::<bool>(), answer in prop::option::of(any::<bool>()), is_about in prop::bool::weighted(0.8)) -> UserDecision {
        let given = given(["alice", "bob", "carol", "dora", "erin"][user], 1);
        let decision = if approves { ApprovalDecision::Approve } else { ApprovalDecision::Deny };
        let digest = if is_about { DIGEST } else { "sha256:01" };
        UserDecision { decision, right: Right::of(answer, None), digest: digest.to_owned(), ..given }
    }
}

proptest! {
    /// A version may continue exactly if nobody with the right denies it, and enough users with the right, other than
    /// its authors, have approved exactly this content.
    #[test]
    fn enough_others_with_the_right_have_approved_it(all in prop::collection::vec(any_given(), 0..8), required in 1..4_u32) {
        let counted = by_alice(required, &all);
        let about = || all.iter().filter(|it| it.digest == DIGEST);
        let others: std::collections::BTreeSet<&str> = about()
            .filter(|it| it.decision == ApprovalDecision::Approve && it.right == Right::Granted && it.user != "alice" && it.user != "dora")
            .map(|it| it.user.as_str()).collect();
        let denies = about().any(|it| it.decision == ApprovalDecision::Deny && it.right != Right::Refused);
        prop_assert_eq!(counted.is_ok(), !denies && others.len() >= required as usize);
        if let Ok(counted) = counted {
            prop_assert_eq!(counted.iter().map(String::as_str).collect::<std::collections::BTreeSet<_>>(), others);
        }
    }
}

#[test]
fn the_policy_that_requests_it_is_named() {
    let authors = made_by(&["alice"]);
    let policy = RuleOwner::Policy("prod".to_owned());
    let candidate = of_nobody(&authors, &policy);
    let now = Now { time: &Time(Timestamp::UNIX_EPOCH), steady: SteadyTime(0) };
    let gate = check_approvals(&needs(2), candidate, &Approvals::default(), now).unwrap_err();
    let begins = "version 2 has 0 of 2 approvals that RolloutPolicy prod requires; kubectl nudge approve shop 2 ";
    assert!(gate.why.message.starts_with(begins), "{}", gate.why.message);
}

#[test]
fn an_answer_that_is_under_way_lets_nothing_continue_and_is_not_said_for_a_while() {
    let authors = made_by(&["alice"]);
    let candidate = of_nobody(&authors, &RuleOwner::Config);
    let at = |steady: Millis, given: &[UserDecision]| {
        let approvals = Approvals { decisions: given.to_vec(), incomplete: None, awaited: Some(SteadyTime(10_000)) };
        let now = Now { time: &Time(Timestamp::UNIX_EPOCH), steady: SteadyTime(steady) };
        check_approvals(&needs(1), candidate, &approvals, now)
            .map_err(|gate| (gate.keeps_message, gate.recheck_at.map(|until| until.0)))
    };
    let old = |last| UserDecision { right: Right::Unanswered { last }, ..given("bob", 1) };
    for could in [Some(true), None] {
        assert_eq!(at(9_999, &[old(could)]), Err((true, Some(10_000))), "{could:?}");
        assert_eq!(at(10_000, &[old(could)]), Err((false, Some(25_000))), "the bound");
    }
    // A right that is known to be missing is reported at once.
    let denies = |answer, last| UserDecision { right: Right::of(answer, last), ..denied("carol") };
    let gone = UserDecision { right: Right::Refused, ..given("bob", 1) };
    for all in [vec![old(Some(false))], vec![gone], vec![], vec![old(Some(true)), denies(Some(true), None)]] {
        assert!(!at(1, &all).unwrap_err().0, "{all:?}");
    }
    // A denial whose user could not deny it any more may count again. Nobody knows, so it stops.
    assert_eq!(at(1, &[given("bob", 1), denies(None, Some(false))]), Err((true, Some(10_000))));
    assert!(!at(1, &[given("bob", 1), denies(None, Some(true))]).unwrap_err().0);
    assert!(at(1, &[given("bob", 1)]).is_ok());
}
