//! The `dir` source: every way to switch a version is seen, and nothing that is wrong replaces what was good.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use nix::sys::stat::Mode;
use nix::unistd::{Uid, mkfifo};
use nudge_protocol::limits::{MAX_DICTIONARY_BYTES, MAX_VALUE_BYTES};
use nudge_protocol::status::{Outcome, ProblemReason};
use nudge_tests::agent::IDLE;
use nudge_tests::{ConfigDir, Finished, Scene, tools};

/// The application of these tests.
const APP: &str = env!("CARGO_BIN_EXE_app");

async fn idle(dir: ConfigDir) -> Result<Scene> {
    Scene::start(dir, &[], &IDLE).await
}

/// Asserts that the old dictionary is served though the source has `reason`, then switches to something good.
async fn stays_and_recovers(scene: &mut Scene, reason: ProblemReason, part: &str) -> Result<()> {
    let problem = scene.problem("shop", part).await?;
    ensure!(problem.reason == reason, "{problem:?}");
    scene.serves("shop=1.0.0").await?;
    scene.logs("the last good version stays").await?;
    scene.logs(reason.as_str()).await?;
    scene.dir.switch("shop", "1.0.2")?;
    scene.serves("shop=1.0.2").await?;
    scene.all_is_well().await?;
    scene.logs("all is well again").await
}

// ---------------------------------------------------------------------------------------------------------------------
// Switching

#[tokio::test]
async fn a_link_renamed_over_the_old_one_switches() -> Result<()> {
    let mut scene = idle(Scene::shop()?).await?;
    for version in ["1.0.1", "1.0.2", "1.0.0"] {
        scene.dir.switch("shop", version)?;
        scene.serves(&format!("shop={version}")).await?;
    }
    scene.serves_value("lives", b"3").await
}

#[tokio::test]
async fn a_link_made_anew_by_ln_switches() -> Result<()> {
    let mut scene = idle(Scene::shop()?).await?;
    for version in ["1.0.1", "1.0.2"] {
        let done = Command::new("ln").args(["-sfn", version]).arg(scene.dir.path().join("shop/current")).status()?;
        assert!(done.success());
        scene.serves(&format!("shop={version}")).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_link_removed_and_made_again_at_once_switches_without_a_problem() -> Result<()> {
    let mut scene = idle(Scene::shop()?).await?;
    let current = scene.dir.path().join("shop/current");
    fs::remove_file(&current)?;
    symlink("1.0.1", &current)?;
    scene.serves("shop=1.0.1").await?;
    assert!(!scene.agent.log().contains("the last good version stays"), "{}", scene.agent.log());
    Ok(())
}

#[tokio::test]
async fn an_absolute_link_into_the_folder_switches() -> Result<()> {
    let mut scene = idle(Scene::shop()?).await?;
    let folder = scene.dir.path().join("shop");
    symlink(folder.join("1.0.1"), folder.join("draft"))?;
    fs::rename(folder.join("draft"), folder.join("current"))?;
    scene.serves("shop=1.0.1").await
}

#[tokio::test]
async fn a_file_written_in_place_switches() -> Result<()> {
    let dir = Scene::shop()?;
    let current = dir.path().join("shop/current");
    fs::remove_file(&current)?;
    fs::write(&current, "1.0.0\n")?;
    let mut scene = idle(dir).await?;
    for version in ["1.0.1", "1.0.2"] {
        fs::write(&current, format!("{version}\n"))?;
        scene.serves(&format!("shop={version}")).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_file_renamed_into_place_switches() -> Result<()> {
    let mut scene = idle(Scene::shop()?).await?;
    for version in ["1.0.1", "1.0.2"] {
        let draft = scene.dir.beside("draft");
        fs::write(&draft, version)?;
        fs::rename(&draft, scene.dir.path().join("shop/current"))?;
        scene.serves(&format!("shop={version}")).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_value_edited_in_place_is_served_and_told() -> Result<()> {
    let child = [APP, "--catch", "SIGUSR1", "--fetch"];
    let mut scene = Scene::start(Scene::shop()?, &["--notify", "SIGUSR1"], &child).await?;
    scene.says(1, "ready").await?;
    fs::write(scene.dir.path().join("shop/1.0.0/lives"), "4")?;
    scene.says(1, "SIGUSR1 shop=1.0.0").await?;
    scene.serves_value("lives", b"4").await
}

#[tokio::test]
async fn a_key_that_is_added_and_one_that_is_removed_are_seen() -> Result<()> {
    let mut scene = idle(Scene::shop()?).await?;
    let version = scene.dir.path().join("shop/1.0.0");
    fs::write(version.join("greeting"), "hello")?;
    scene.serves_value("greeting", b"hello").await?;
    fs::remove_file(version.join("lives"))?;
    scene.status_when("one key", |status| status.configs[0].keys == 1).await?;
    assert_eq!(scene.client.get("/config/lives").await?.status, 404);
    Ok(())
}

#[tokio::test]
async fn what_editors_leave_beside_a_key_is_no_key() -> Result<()> {
    let mut scene = idle(Scene::shop()?).await?;
    let version = scene.dir.path().join("shop/1.0.0");
    for leftover in [".lives.swp", "lives~", ".#lives", "#lives#"] {
        fs::write(version.join(leftover), "draft")?;
    }
    // What comes after them shows that they have been seen.
    fs::write(version.join("seen"), "")?;
    let status = scene.status_when("the key after them", |status| status.configs[0].keys != 1).await?;
    assert_eq!(status.configs[0].keys, 2);
    Ok(())
}

#[tokio::test]
async fn a_version_kept_as_the_kubelet_does_is_read_whole_at_each_swap() -> Result<()> {
    let dir = Scene::shop()?;
    let version = dir.path().join("shop/mounted");
    let content = |data: &str, one: &str| -> Result<()> {
        fs::create_dir(version.join(data))?;
        fs::write(version.join(data).join("one"), one)?;
        fs::write(version.join(data).join("two"), one)?;
        symlink(data, version.join("..data_tmp"))?;
        Ok(fs::rename(version.join("..data_tmp"), version.join("..data"))?)
    };
    fs::create_dir(&version)?;
    content("..2026_01", "a")?;
    for key in ["one", "two"] {
        symlink(Path::new("..data").join(key), version.join(key))?;
    }
    dir.switch("shop", "mounted")?;
    let mut scene = idle(dir).await?;
    scene.serves_value("one", b"a").await?;
    content("..2026_02", "b")?;
    scene.serves_value("one", b"b").await?;
    scene.serves_value("two", b"b").await?;
    assert_eq!(scene.all_is_well().await?.configs[0].keys, 2);
    Ok(())
}

// ---------------------------------------------------------------------------------------------------------------------
// What is wrong never replaces what was good

#[tokio::test]
async fn a_version_that_is_missing_does_not_replace_the_good_one() -> Result<()> {
    let mut scene = idle(Scene::shop()?).await?;
    scene.dir.switch("shop", "9.9.9")?;
    stays_and_recovers(&mut scene, ProblemReason::VersionMissing, "there is no folder").await
}

#[tokio::test]
async fn a_missing_version_is_taken_as_soon_as_it_is_there() -> Result<()> {
    let mut scene = idle(Scene::shop()?).await?;
    scene.dir.switch("shop", "2.0.0")?;
    scene.problem("shop", "2.0.0").await?;
    scene.dir.write_version("shop", "2.0.0", [("lives", "9")])?;
    scene.serves("shop=2.0.0").await?;
    scene.all_is_well().await?;
    Ok(())
}

#[tokio::test]
async fn a_version_that_is_still_empty_does_not_replace_the_good_one() -> Result<()> {
    let mut scene = idle(Scene::shop()?).await?;
    fs::create_dir(scene.dir.path().join("shop/2.0.0"))?;
    scene.dir.switch("shop", "2.0.0")?;
    stays_and_recovers(&mut scene, ProblemReason::VersionIncomplete, "the folder is empty").await
}

#[tokio::test]
async fn a_version_that_was_empty_is_taken_when_it_is_filled() -> Result<()> {
    let mut scene = idle(Scene::shop()?).await?;
    let version = scene.dir.path().join("shop/2.0.0");
    fs::create_dir(&version)?;
    scene.dir.switch("shop", "2.0.0")?;
    scene.problem("shop", "the folder is empty").await?;
    fs::write(version.join("lives"), "9")?;
    scene.serves("shop=2.0.0").await?;
    scene.serves_value("lives", b"9").await
}

#[tokio::test]
async fn a_value_that_is_over_the_limit_does_not_replace_the_good_one() -> Result<()> {
    let mut scene = idle(Scene::shop()?).await?;
    scene.dir.write_version("shop", "2.0.0", [("lives", vec![b'x'; MAX_VALUE_BYTES + 1])])?;
    scene.dir.switch("shop", "2.0.0")?;
    stays_and_recovers(&mut scene, ProblemReason::TooLarge, "lives has more than 1048576 bytes").await
}

#[tokio::test]
async fn a_version_that_makes_the_dictionary_too_large_does_not_replace_the_good_one() -> Result<()> {
    let mut scene = idle(Scene::shop()?).await?;
    let values = (0..=MAX_DICTIONARY_BYTES / MAX_VALUE_BYTES).map(|n| (format!("k{n}"), vec![b'x'; MAX_VALUE_BYTES]));
    scene.dir.write_version("shop", "2.0.0", values)?;
    scene.dir.switch("shop", "2.0.0")?;
    stays_and_recovers(&mut scene, ProblemReason::TooLarge, "the values have more than").await
}

#[tokio::test]
async fn a_version_that_may_not_be_read_does_not_replace_the_good_one() -> Result<()> {
    let Some(bound) = bound_by_modes() else { return Ok(()) };
    let mut scene = Scene::start_with(Scene::shop()?, |exec| exec.under(bound), &IDLE).await?;
    let key = scene.dir.path().join("shop/1.0.1/lives");
    fs::set_permissions(&key, Permissions::from_mode(0o000))?;
    scene.dir.switch("shop", "1.0.1")?;
    let problem = scene.problem("shop", "lives can't be read").await?;
    assert_eq!(problem.reason, ProblemReason::Unreadable);
    scene.serves("shop=1.0.0").await?;
    // The change of the mode alone is noticed.
    fs::set_permissions(&key, Permissions::from_mode(0o400))?;
    scene.serves("shop=1.0.1").await?;
    scene.all_is_well().await?;
    Ok(())
}

#[tokio::test]
async fn a_versions_folder_that_may_not_be_read_does_not_replace_the_good_one() -> Result<()> {
    let Some(bound) = bound_by_modes() else { return Ok(()) };
    let mut scene = Scene::start_with(Scene::shop()?, |exec| exec.under(bound), &IDLE).await?;
    let folder = scene.dir.path().join("shop/1.0.1");
    fs::set_permissions(&folder, Permissions::from_mode(0o000))?;
    scene.dir.switch("shop", "1.0.1")?;
    let problem = scene.problem("shop", "can't be read").await?;
    assert_eq!(problem.reason, ProblemReason::Unreadable);
    scene.serves("shop=1.0.0").await?;
    fs::set_permissions(&folder, Permissions::from_mode(0o700))?;
    scene.serves("shop=1.0.1").await?;
    scene.all_is_well().await?;
    Ok(())
}

/// What makes the agent heed the modes of files; `None` where that can't be had.
fn bound_by_modes() -> Option<Vec<&'static str>> {
    if !Uid::effective().is_root() {
        return Some(Vec::new());
    }
    let without = vec!["setpriv", "--bounding-set=-dac_override,-dac_read_search"];
    let works = Command::new(without[0]).args(&without[1..]).arg("true").status().is_ok_and(|status| status.success());
    if works {
        return Some(without);
    }
    tools::skipped("root reads what it likes, and setpriv can't take that from it here");
    None
}

#[tokio::test]
async fn a_key_that_is_no_file_makes_its_version_invalid() -> Result<()> {
    let mut scene = idle(Scene::shop()?).await?;
    let outside = scene.dir.beside("outside");
    fs::write(&outside, "secret")?;
    let version = scene.dir.write_version("shop", "2.0.0", [("lives", "9")])?;
    fs::create_dir(version.join("folder"))?;
    mkfifo(&version.join("fifo"), Mode::S_IRUSR | Mode::S_IWUSR)?;
    symlink(&outside, version.join("absolute"))?;
    symlink("../../../outside", version.join("relative"))?;
    scene.dir.switch("shop", "2.0.0")?;
    let problem = scene.problem("shop", "folder is a folder").await?;
    for part in ["fifo is a FIFO", "absolute is a link that leads out", "relative is a link that leads out"] {
        assert!(problem.message.contains(part), "{part}: {problem:?}");
    }
    stays_and_recovers(&mut scene, ProblemReason::VersionInvalid, "folder is a folder").await
}

#[tokio::test]
async fn a_key_that_is_no_name_or_nudges_own_makes_its_version_invalid() -> Result<()> {
    let mut scene = idle(Scene::shop()?).await?;
    let version = scene.dir.write_version("shop", "2.0.0", [("nudge.mine", "1"), ("a b", "2")])?;
    fs::write(version.join(OsStr::from_bytes(b"odd\xff")), "3")?;
    scene.dir.switch("shop", "2.0.0")?;
    let problem = scene.problem("shop", "nudge.mine").await?;
    for part in ["Nudge's own", r#""a b""#, "xff"] {
        assert!(problem.message.contains(part), "{part}: {problem:?}");
    }
    stays_and_recovers(&mut scene, ProblemReason::VersionInvalid, "nudge.mine").await
}

#[tokio::test]
async fn current_must_name_a_version_beside_it() -> Result<()> {
    for (target, part) in [
        ("current", "'current' stands for"),
        ("..", "must point to a version's folder beside it"),
        ("../shop/1.0.1", "must point to a version's folder beside it"),
        ("1.0.1/deeper", "must point to a version's folder beside it"),
        ("/", "must point to a version's folder beside it"),
    ] {
        let mut scene = idle(Scene::shop()?).await?;
        scene.dir.switch("shop", target)?;
        stays_and_recovers(&mut scene, ProblemReason::CurrentInvalid, part).await.context(target)?;
    }
    Ok(())
}

#[tokio::test]
async fn a_current_file_must_hold_one_version() -> Result<()> {
    let mut scene = idle(Scene::shop()?).await?;
    let write = |scene: &Scene, content: &[u8]| -> Result<()> {
        let draft = scene.dir.beside("draft");
        fs::write(&draft, content)?;
        Ok(fs::rename(&draft, scene.dir.path().join("shop/current"))?)
    };
    for (content, part) in [
        (&b"current"[..], "'current' stands for"),
        (b"..", r#"version "..""#),
        (b"a/b", r#"version "a/b""#),
        (b"", r#"version """#),
        (b"\xff", "must hold the name of a version"),
        (&[b'1'; 300], "must hold the name of a version"),
    ] {
        write(&scene, content)?;
        let problem = scene.problem("shop", part).await?;
        assert_eq!(problem.reason, ProblemReason::CurrentInvalid, "{part}");
    }
    scene.serves("shop=1.0.0").await?;
    write(&scene, b"1.0.1\n")?;
    scene.serves("shop=1.0.1").await?;
    scene.all_is_well().await?;
    Ok(())
}

#[tokio::test]
async fn a_config_folder_deleted_and_put_back_is_missed_and_taken_again() -> Result<()> {
    let mut scene = idle(Scene::shop()?).await?;
    let (folder, away) = (scene.dir.path().join("shop"), scene.dir.beside("away"));
    fs::rename(&folder, &away)?;
    let problem = scene.problem("shop", "there is no folder").await?;
    assert_eq!(problem.reason, ProblemReason::ConfigMissing);
    scene.serves("shop=1.0.0").await?;
    fs::remove_file(away.join("current"))?;
    symlink("1.0.1", away.join("current"))?;
    fs::rename(&away, &folder)?;
    scene.serves("shop=1.0.1").await?;
    scene.all_is_well().await?;
    // The new folder is watched as the old one was.
    scene.dir.switch("shop", "1.0.2")?;
    scene.serves("shop=1.0.2").await
}

#[tokio::test]
async fn one_broken_config_does_not_hold_up_another() -> Result<()> {
    let dir = Scene::shop()?;
    for version in ["1", "2"] {
        dir.write_version("web", version, [("title", version)])?;
    }
    dir.switch("web", "1")?;
    let mut scene = idle(dir).await?;
    scene.dir.switch("shop", "9.9.9")?;
    scene.problem("shop", "9.9.9").await?;
    scene.dir.switch("web", "2")?;
    scene.serves("shop=1.0.0,web=2").await
}

#[tokio::test]
async fn a_folder_full_of_odd_names_is_served_without_them() -> Result<()> {
    let dir = Scene::shop()?;
    for odd in [&b"\xff\xfe"[..], b"\xc3\x28", b"UPPER", b"with space", b".hidden"] {
        fs::create_dir(dir.path().join(OsStr::from_bytes(odd)))?;
        fs::create_dir(dir.path().join("shop").join(OsStr::from_bytes(odd)))?;
    }
    fs::write(dir.path().join("README"), "not a config")?;
    let mut scene = idle(dir).await?;
    scene.logs("xff").await?;
    scene.serves("shop=1.0.0").await?;
    fs::create_dir(scene.dir.path().join(OsStr::from_bytes(b"late\xff")))?;
    scene.dir.switch("shop", "1.0.1")?;
    scene.serves("shop=1.0.1").await?;
    scene.all_is_well().await?;
    Ok(())
}

#[tokio::test]
async fn the_whole_folder_can_be_replaced() -> Result<()> {
    let mut scene = idle(Scene::shop()?).await?;
    let other = Scene::shop()?;
    other.switch("shop", "1.0.1")?;
    renameat2(AT_FDCWD, other.path(), AT_FDCWD, scene.dir.path(), RenameFlags::RENAME_EXCHANGE)?;
    scene.serves("shop=1.0.1").await?;
    scene.all_is_well().await?;
    // The new folder is watched as the old one was.
    scene.dir.switch("shop", "1.0.2")?;
    scene.serves("shop=1.0.2").await
}

// ---------------------------------------------------------------------------------------------------------------------
// Values

#[tokio::test]
async fn values_of_no_bytes_of_the_most_and_of_any_bytes_are_served() -> Result<()> {
    let dir = ConfigDir::new()?;
    let most = vec![b'x'; MAX_VALUE_BYTES];
    let any: Vec<u8> = (0..=255).collect();
    dir.write_version("shop", "1", [("empty", &b""[..]), ("most", &most), ("any", &any), ("text", "é\n".as_bytes())])?;
    dir.switch("shop", "1")?;
    let mut scene = idle(dir).await?;
    for (key, value) in [("empty", &b""[..]), ("most", &most), ("any", &any), ("text", "é\n".as_bytes())] {
        let reply = scene.client.get(&format!("/config/{key}")).await?;
        assert!(reply.status == 200 && reply.body == value, "{key}: {} and {} bytes", reply.status, reply.body.len());
    }
    let whole: serde_json::Value = serde_json::from_slice(&scene.client.get("/config").await?.body)?;
    assert_eq!(whole["nudge.binary"], "any");
    assert_eq!(whole["empty"], "");
    assert_eq!(whole["text"], "é\n");
    assert!(whole["any"].as_str().is_some_and(|base64| base64.starts_with("AAECAwQF")), "{}", whole["any"]);
    Ok(())
}

#[tokio::test]
async fn of_two_configs_with_the_same_key_the_one_listed_later_wins() -> Result<()> {
    let dir = Scene::shop()?;
    dir.write_version("extra", "7", [("lives", "99")])?;
    dir.switch("extra", "7")?;
    let mut scene = Scene::start(dir, &["--config", "shop", "--config", "extra"], &IDLE).await?;
    scene.serves("shop=1.0.0,extra=7").await?;
    scene.serves_value("lives", b"99").await?;
    let status = scene.client.status().await?;
    assert_eq!(status.overlaps.len(), 1);
    assert_eq!((status.overlaps[0].key.as_str(), status.overlaps[0].winner.as_str()), ("lives", "extra"));
    assert_eq!(status.overlaps[0].hidden.iter().map(AsRef::as_ref).collect::<Vec<&str>>(), ["shop"]);
    scene.logs("several configs have this key").await
}

#[tokio::test]
async fn without_an_order_the_configs_name_decides_who_wins() -> Result<()> {
    let dir = Scene::shop()?;
    dir.write_version("extra", "7", [("lives", "99")])?;
    dir.switch("extra", "7")?;
    let mut scene = idle(dir).await?;
    scene.serves("extra=7,shop=1.0.0").await?;
    scene.serves_value("lives", b"3").await
}

// ---------------------------------------------------------------------------------------------------------------------
// The slow re-read

const REREAD: [&str; 2] = ["--reread", "1"];

#[tokio::test]
async fn a_change_behind_a_link_makes_no_notice_and_is_found_by_the_re_read() -> Result<()> {
    let dir = Scene::shop()?;
    let common = dir.path().join(".common");
    fs::create_dir(&common)?;
    fs::write(common.join("greeting"), "hello")?;
    symlink("../../.common/greeting", dir.path().join("shop/1.0.0/greeting"))?;
    let mut scene = Scene::start(dir, &REREAD, &IDLE).await?;
    scene.serves_value("greeting", b"hello").await?;
    fs::write(common.join("greeting"), "welcome")?;
    scene.serves_value("greeting", b"welcome").await
}

#[tokio::test]
async fn a_folder_deleted_and_put_back_is_found_by_the_re_read() -> Result<()> {
    let mut scene = Scene::start(Scene::shop()?, &REREAD, &IDLE).await?;
    let away = scene.dir.beside("away");
    fs::rename(scene.dir.path(), &away)?;
    let problem = scene.problem("shop", "can't be opened").await?;
    assert_eq!(problem.reason, ProblemReason::Unreadable);
    scene.serves("shop=1.0.0").await?;
    fs::rename(&away, scene.dir.path())?;
    scene.all_is_well().await?;
    // Now it is watched again.
    scene.dir.switch("shop", "1.0.1")?;
    scene.serves("shop=1.0.1").await
}

#[tokio::test]
async fn without_inotify_the_re_read_finds_a_switch() -> Result<()> {
    for limit in ["max_inotify_instances", "max_inotify_watches"] {
        // A user namespace has limits of its own, which nobody else meets.
        let script = format!("echo 0 >/proc/sys/user/{limit} && exec \"$@\"");
        let limited = ["unshare", "--user", "--map-root-user", "sh", "-c", &script, "sh"];
        let works = Command::new(limited[0]).args(&limited[1..]).arg("true").status();
        if !works.is_ok_and(|status| status.success()) {
            tools::skipped("no user namespace in which inotify could be limited");
            return Ok(());
        }
        let mut scene = Scene::start_with(Scene::shop()?, |exec| exec.args(REREAD).under(limited), &IDLE).await?;
        scene.logs("it is re-read from time to time").await?;
        scene.dir.switch("shop", "1.0.1")?;
        scene.serves("shop=1.0.1").await?;
    }
    Ok(())
}

// ---------------------------------------------------------------------------------------------------------------------
// nudge-agent check and use

fn check(dir: &ConfigDir) -> Result<Finished> {
    Finished::agent([OsStr::new("check"), "--dir".as_ref(), dir.path().as_ref()])
}

fn switch(dir: &ConfigDir, config: &str, version: &str) -> Result<Finished> {
    let words = [OsStr::new("use"), "--dir".as_ref(), dir.path().as_ref(), config.as_ref(), version.as_ref()];
    Finished::agent(words)
}

#[test]
fn check_lists_what_is_there_and_says_that_all_is_well() -> Result<()> {
    let checked = check(&Scene::shop()?)?;
    assert_eq!(checked.code, Some(0), "{checked:?}");
    assert!(checked.stdout.contains("  current  1.0.0  1 keys, 1 bytes\n"), "{}", checked.stdout);
    assert!(checked.stdout.contains("           1.0.1  1 keys, 1 bytes\n"), "{}", checked.stdout);
    assert!(checked.stdout.ends_with("all is well\n"), "{}", checked.stdout);
    assert_eq!(checked.stderr, "");
    Ok(())
}

#[test]
fn check_says_all_that_is_wrong_and_fails() -> Result<()> {
    let dir = Scene::shop()?;
    dir.switch("shop", "9.9.9")?;
    dir.write_version("shop", "-bad-", [("lives", "hunter2")])?;
    let version = dir.write_version("shop", "2.0.0", [("nudge.mine", "hunter2")])?;
    fs::create_dir(version.join("folder"))?;
    fs::create_dir(dir.path().join("shop/empty"))?;
    fs::create_dir(dir.path().join("UPPER"))?;
    fs::create_dir(dir.path().join("none"))?;
    let checked = check(&dir)?;
    assert_eq!(checked.code, Some(1), "{checked:?}");
    for part in [
        "version 9.9.9 is current, but there is no folder",
        r#"version "-bad-" is not allowed"#,
        "nudge.mine",
        "folder is a folder",
        "the folder is empty",
        r#"config "UPPER" is not allowed"#,
        "no version of none is current",
        "6 problems\n",
    ] {
        assert!(checked.stdout.contains(part), "{part}: {}", checked.stdout);
    }
    assert!(!checked.stdout.contains("hunter2"), "a value is printed: {}", checked.stdout);
    Ok(())
}

#[test]
fn check_notes_a_key_that_is_hidden_and_is_content() -> Result<()> {
    let dir = Scene::shop()?;
    dir.write_version("extra", "7", [("lives", "99")])?;
    dir.switch("extra", "7")?;
    let checked = check(&dir)?;
    assert_eq!(checked.code, Some(0), "{checked:?}");
    assert!(checked.stdout.contains("key lives of extra is hidden by shop"), "{}", checked.stdout);
    Ok(())
}

#[test]
fn check_refuses_a_folder_that_is_empty_or_not_there() -> Result<()> {
    let dir = ConfigDir::new()?;
    let empty = check(&dir)?;
    assert_eq!(empty.code, Some(1), "{empty:?}");
    assert!(empty.stdout.contains("holds no config"), "{}", empty.stdout);
    fs::remove_dir(dir.path())?;
    let missing = check(&dir)?;
    assert_eq!(missing.code, Some(1), "{missing:?}");
    assert!(missing.stderr.contains("can't be opened"), "{}", missing.stderr);
    Ok(())
}

#[test]
fn use_switches_and_says_from_what_to_what() -> Result<()> {
    let dir = Scene::shop()?;
    let switched = switch(&dir, "shop", "1.0.1")?;
    assert_eq!((switched.code, switched.stdout.as_str()), (Some(0), "shop: 1.0.0 -> 1.0.1\n"), "{switched:?}");
    let again = switch(&dir, "shop", "1.0.1")?;
    assert_eq!((again.code, again.stdout.as_str()), (Some(0), "shop: 1.0.1 is current already\n"), "{again:?}");
    assert_eq!(fs::read_link(dir.path().join("shop/current"))?, Path::new("1.0.1"));
    Ok(())
}

#[test]
fn use_refuses_a_bad_version_and_leaves_current_as_it_was() -> Result<()> {
    let dir = Scene::shop()?;
    fs::create_dir(dir.path().join("shop/empty"))?;
    dir.write_version("shop", "large", [("lives", vec![b'x'; MAX_VALUE_BYTES + 1])])?;
    for (version, code, part) in [
        ("9.9.9", 1, "there is no folder"),
        ("empty", 1, "the folder is empty"),
        ("large", 1, "more than 1048576 bytes"),
        ("current", 2, "'current' stands for"),
        ("..", 2, "it must be 1 to 63"),
        ("1.0.1/", 2, "it must be 1 to 63"),
        ("../shop/1.0.1", 2, "it must be 1 to 63"),
        ("", 2, "it must be 1 to 63"),
    ] {
        let refused = switch(&dir, "shop", version)?;
        assert_eq!(refused.code, Some(code), "{version}: {refused:?}");
        assert!(refused.stderr.contains(part), "{version}: {}", refused.stderr);
        assert_eq!(fs::read_link(dir.path().join("shop/current"))?, Path::new("1.0.0"), "{version}");
    }
    let unknown = switch(&dir, "nothing", "1.0.0")?;
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
    assert!(unknown.stderr.contains("there is no folder"), "{}", unknown.stderr);
    Ok(())
}

#[test]
fn a_draft_that_a_killed_use_left_behind_does_no_harm() -> Result<()> {
    let dir = Scene::shop()?;
    // `exec` keeps the process id, from which the draft has its name.
    let script = r#"ln -s 1.0.2 "$1/shop/..current-$$" && exec "$0" use --dir "$1" shop 1.0.1"#;
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(nudge_tests::binary::debug()?).arg(dir.path());
    let switched = Finished::of(&mut command)?;
    assert_eq!(switched.code, Some(0), "{switched:?}");
    assert_eq!(fs::read_link(dir.path().join("shop/current"))?, Path::new("1.0.1"));
    Ok(())
}

#[tokio::test]
async fn use_is_seen_by_a_running_agent() -> Result<()> {
    let mut scene = idle(Scene::shop()?).await?;
    assert_eq!(switch(&scene.dir, "shop", "1.0.1")?.code, Some(0));
    scene.serves("shop=1.0.1").await
}

#[test]
fn many_uses_at_once_never_leave_a_broken_current() -> Result<()> {
    let dir = Scene::shop()?;
    let current = dir.path().join("shop/current");
    let valid = || fs::read_link(&current).is_ok_and(|to| to.starts_with("1.0.0") || to.starts_with("1.0.1"));
    let agent = nudge_tests::binary::debug()?;
    let spawn = |version: &str| {
        let mut command = Command::new(agent);
        command.arg("use").arg("--dir").arg(dir.path()).args(["shop", version]);
        command.stdout(std::process::Stdio::null()).spawn()
    };
    let versions = ["1.0.0", "1.0.1"].into_iter().cycle();
    let mut running: Vec<_> = versions.take(20).map(spawn).collect::<std::io::Result<_>>()?;
    while !running.is_empty() {
        assert!(valid(), "{:?}", fs::read_link(&current));
        let mut failed = None;
        running.retain_mut(|child| match child.try_wait() {
            Ok(None) => true,
            Ok(Some(status)) => {
                failed = failed.take().or((!status.success()).then_some(status));
                false
            }
            Err(_) => false,
        });
        assert_eq!(failed, None);
    }
    assert!(valid());
    let mut names: Vec<_> =
        fs::read_dir(dir.path().join("shop"))?.map(|entry| Ok(entry?.file_name())).collect::<Result<_>>()?;
    names.sort();
    assert_eq!(names, ["1.0.0", "1.0.1", "1.0.2", "current"], "drafts are left");
    Ok(())
}

// ---------------------------------------------------------------------------------------------------------------------
// Being written

#[tokio::test]
async fn a_value_that_is_being_written_is_not_served_half() -> Result<()> {
    let child = [APP, "--catch", "SIGUSR1"];
    let mut scene = Scene::start(Scene::shop()?, &["--notify", "SIGUSR1"], &child).await?;
    scene.says(1, "ready").await?;
    // An editor that truncates the file and takes its time: nothing is told before it has closed the file.
    let mut file = File::create(scene.dir.path().join("shop/1.0.0/lives"))?;
    file.write_all(b"4")?;
    scene.told_when("nothing told", |told| told.outcome == Outcome::NothingYet).await?;
    scene.serves_value("lives", b"3").await?;
    file.write_all(b"2")?;
    drop(file);
    scene.serves_value("lives", b"42").await?;
    scene.says(1, "SIGUSR1").await?;
    Ok(())
}
