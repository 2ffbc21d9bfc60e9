//! Texts of git's servers, repositories and programs, and the URLs and revisions of users.
//!
//! The first byte selects the kind of the rest.
#![cfg_attr(fuzzing, no_main)]

use hyper::Request;
use libfuzzer_sys::{Corpus, fuzz_target};
use nudge_git::{GitError, GitUrl, Revision, output_parsers};
use semver::{Version, VersionReq};

fuzz_target!(|bytes: &[u8]| -> Corpus {
    let [kind, said @ ..] = bytes else { return Corpus::Reject };
    match (kind, str::from_utf8(said)) {
        (b'u', Ok(text)) => assert_url(text),
        (b'r', Ok(text)) => assert_refs(text),
        (b'g', Ok(text)) => assert_tag(text),
        (b'e', _) => assert_entries(said),
        (b'b', _) => assert_contents(said),
        (b'c', _) => assert_commit(said),
        (b'f', _) => assert_fault(said),
        (b's', _) => assert_signer(said),
        (b'k', _) => assert_keys(said),
        (b'p', _) => assert_pointer(said),
        (b'l', _) => assert_downloads(said),
        _ => return Corpus::Reject,
    }
    Corpus::Keep
});

/// An error is one line of text, and not longer than its input.
fn assert_error(error: &GitError, about: usize) {
    let text = error.to_string();
    assert!(text.len() < about + 300 && !text.contains(|it: char| it.is_control()), "{text:?}");
}

fn is_id(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|it| it.is_ascii_digit() || (b'a'..=b'f').contains(&it))
}

fn contains(all: &[u8], part: &[u8]) -> bool {
    part.is_empty() || all.windows(part.len()).any(|it| it == part)
}

/// The user, the host in lower case, and the port, as somebody else reads them.
fn authority(url: &str) -> (Option<&str>, String, Option<&str>) {
    let (authority, ports) = match url.split_once("://") {
        Some((_, rest)) => (rest.split(['/', '?']).next().unwrap(), true),
        None => (url.split(':').next().unwrap(), false),
    };
    let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    let port = host.rsplit_once(':').filter(|(_, port)| ports && !port.ends_with(']'));
    let (host, port) = port.map_or((host, None), |(host, port)| (host, Some(port)));
    (user, host.trim_matches(['[', ']']).to_ascii_lowercase(), port.filter(|it| !it.is_empty()))
}

/// A URL on the first line, and that of an LFS server on the second: it is shown as it is read again, and nothing of it
/// is an option, a word for a shell, or another host.
fn assert_url(text: &str) {
    let (line, lfs) = text.split_once('\n').unwrap_or((text, ""));
    let Ok(url) = GitUrl::parse(line) else { return };
    let shown = url.to_string();
    assert!(shown.bytes().all(|it| it.is_ascii_graphic()) && !shown.starts_with('-'), "{shown:?}");
    assert_eq!(GitUrl::parse(&shown).as_ref(), Ok(&url), "{shown:?}");
    let (user, host, port) = authority(line);
    assert_eq!(url.address().host, host, "{line:?}");
    assert!(port.is_none_or(|port| port.parse() == Ok(url.address().port)), "{line:?}");
    assert!(user.is_none_or(|user| !user.contains([':', '@', '/']) && !user.starts_with('-')), "{line:?}");
    assert!(!shown.split(['/', ':']).any(|name| name == "..") && !shown.contains(":-"), "{shown:?}");
    if url.is_ssh() {
        assert!(!line.starts_with("https:"));
        for argument in output_parsers::ssh_arguments(&url, ([192, 0, 2, 1], url.address().port).into()) {
            let plain = |it: char| it.is_ascii_alphanumeric() || "-._=/[]:,".contains(it);
            assert!(argument.chars().all(plain), "{argument:?}");
            let option = matches!(argument.as_str(), "-F" | "-a" | "-x" | "-o");
            assert!(option || !argument.starts_with('-'), "{argument:?}");
        }
    } else {
        assert!(line.starts_with("https://") && user.is_none());
    }
    match output_parsers::address_on_host(lfs, &url) {
        Ok(address) => {
            assert!(address.tls && address.host == host && authority(lfs).1 == host, "{lfs:?} for {line:?}");
            assert!(address.port == url.address().port || !line.starts_with("https:"));
        }
        Err(error) => {
            assert_error(&error, lfs.len());
            assert!(!error.to_string().contains('@'), "{error}");
        }
    }
}

/// A revision on the first line, and a list of refs below it: the result is the requested ref, and of versions the
/// highest.
fn assert_refs(text: &str) {
    let (line, listed) = text.split_once('\n').unwrap_or((text, ""));
    let name = line.get(1..).unwrap_or_default().to_owned();
    let revision = match line.as_bytes().first() {
        Some(b'b') => Revision::Branch(name),
        Some(b't') => Revision::Tag(name),
        Some(b's') => Revision::Semver(name),
        Some(b'c') => Revision::Commit(name),
        _ => Revision::Head,
    };
    if let Err(error) = revision.check() {
        return assert_error(&error.into(), 0);
    }
    assert_error(&GitError::Ref(revision.to_string()), line.len());
    let Some(found) = output_parsers::find_revision(&revision, listed.as_bytes()) else { return };
    assert!(is_id(&found.commit) && found.tag.as_deref().is_none_or(is_id));
    let is_listed = |id: &str, name: &str| listed.lines().any(|line| line == format!("{id}\t{name}"));
    if let Some(name) = &found.name {
        // It becomes part of a refspec.
        assert!(
            !name.contains([':', '^', '*', '?', '[', '~', '\\']) && !name.contains(char::is_whitespace),
            "{name:?}"
        );
        match &found.tag {
            Some(tag) => assert!(is_listed(tag, name) && is_listed(&found.commit, &format!("{name}^{{}}"))),
            None => assert!(is_listed(&found.commit, name)),
        }
    }
    let named = found.name.as_deref();
    match &revision {
        Revision::Head => assert_eq!(named, Some("HEAD")),
        Revision::Branch(name) => assert_eq!(named, Some(format!("refs/heads/{name}").as_str())),
        Revision::Tag(name) => assert_eq!(named, Some(format!("refs/tags/{name}").as_str())),
        Revision::Commit(id) => assert!(*id == found.commit && named.is_none() && found.tag.is_none()),
        Revision::Semver(range) => {
            let range = VersionReq::parse(range).unwrap();
            let version = |name: &str| {
                let tag =
                    name.strip_prefix("refs/tags/").filter(|tag| Revision::Tag((*tag).to_owned()).check().is_ok())?;
                Version::parse(tag.strip_prefix('v').unwrap_or(tag)).ok().filter(|it| range.matches(it))
            };
            let taken = version(named.unwrap()).unwrap();
            let listed = listed.lines().filter_map(|line| line.split_once('\t')).filter(|(id, _)| is_id(id));
            let highest = listed.filter_map(|(_, name)| version(name)).max().unwrap();
            assert!(taken >= highest, "{taken} and not {highest}");
        }
    }
}

/// A name on the first line, an id on the second, and a tag below: it counts for these alone, whatever stands in its
/// message.
fn assert_tag(text: &str) {
    let mut parts = text.splitn(3, '\n');
    let (name, commit, tag) =
        (parts.next().unwrap(), parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let good = output_parsers::is_tag_of(tag.as_bytes(), name, commit);
    let head = tag.split("\n\n").next().unwrap();
    assert_eq!(output_parsers::is_tag_of(head.as_bytes(), name, commit), good);
    if good {
        assert!(head.contains(&format!("tag {name}")) && head.contains(&format!("object {commit}")));
        assert!(!output_parsers::is_tag_of(tag.as_bytes(), &format!("{name}x"), commit));
        assert!(!output_parsers::is_tag_of(tag.as_bytes(), name, &format!("{commit}0")));
    }
}

/// No path leads out, and only files are given.
fn assert_entries(listed: &[u8]) {
    match output_parsers::parse_entries(listed) {
        Ok(entries) => {
            assert!(entries.len() <= 10_000);
            for entry in entries {
                let (id, path) = (&entry.id, &entry.path);
                assert!(is_id(id), "{id:?}");
                assert!(path.split('/').all(|name| !matches!(name, "" | "." | "..")), "{path:?}");
                assert!(!path.contains(|it: char| it.is_control() || it == '\\'), "{path:?}");
                match output_parsers::check_file(&entry) {
                    Ok(()) => assert!(contains(listed, b"100") && contains(listed, path.as_bytes())),
                    Err(error) => assert_error(&error, path.len()),
                }
            }
        }
        Err(error) => assert_error(&error, 0),
    }
}

/// Contents are parts of what was printed, and not more than that.
fn assert_contents(printed: &[u8]) {
    for (id, size) in output_parsers::parse_sizes(printed) {
        assert!(!id.contains([' ', '\n']), "{id:?}");
        let line = |size: &str| String::from_utf8_lossy(printed).contains(&format!("{id} blob {size}"));
        assert!(line(&size.to_string()) || line("+") || line("0"), "{id:?} {size}");
    }
    match output_parsers::parse_contents(printed) {
        Ok(all) => {
            assert!(all.iter().map(|(id, content)| id.len() + content.len() + 8).sum::<usize>() <= printed.len());
            for (id, content) in all {
                assert!(!id.contains([' ', '\n']) && contains(printed, &content));
            }
        }
        Err(error) => assert_error(&error, 0),
    }
}

/// The time stands in the line of the committer, in the head.
fn assert_commit(commit: &[u8]) {
    match output_parsers::parse_commit_time(commit) {
        Ok(time) => {
            let text = String::from_utf8_lossy(commit);
            let head = text.split("\n\n").next().unwrap();
            let mut lines = head.lines().filter(|line| line.starts_with("committer "));
            assert!(lines.next().unwrap().split(' ').any(|word| word.parse() == Ok(time.as_second())));
        }
        Err(error) => assert_error(&error, 0),
    }
}

/// What a server wants to have shown decides nothing.
fn assert_fault(said: &[u8]) {
    let known = output_parsers::fault(said);
    let shown = b"\nremote: no space left on device\nremote: fatal: repository 'a' not found\n".as_slice();
    assert_eq!(output_parsers::fault(&[said, shown].concat()), known);
    assert_eq!(output_parsers::fault(&[shown, said].concat()), known);
    let all: Vec<u8> = said.split(|it| *it == b'\n').flat_map(|line| [b"remote: ", line, b"\n"].concat()).collect();
    assert_eq!(output_parsers::fault(&all), "Other");
}

/// The signer is plain text that ssh-keygen has said once, of a good signature.
fn assert_signer(said: &[u8]) {
    if let Some(signer) = output_parsers::parse_signer(said) {
        assert!(!signer.is_empty() && signer.len() <= 256 && !signer.contains(|it: char| it.is_control()));
        let text = String::from_utf8_lossy(said);
        assert!(text.contains(&format!("Good \"git\" signature for {signer} with ")));
        let again = b"\nGood \"git\" signature for b@example.com with ED25519 key SHA256:x\n".as_slice();
        assert_eq!(output_parsers::parse_signer(&[said, again].concat()), None);
    }
}

/// The line to add is one line for this host.
fn assert_keys(scanned: &[u8]) {
    const HOST: &str = "[git.example.com]:2222";
    let lines = output_parsers::parse_host_keys(HOST, scanned);
    assert!(lines.len() <= 1);
    for line in &lines {
        let words: Vec<&str> = line.split(' ').collect();
        let [HOST, kind, key] = words.as_slice() else { panic!("{line:?}") };
        assert!(line.bytes().all(|it| it.is_ascii_graphic() || it == b' ') && line.len() < 1024 + scanned.len());
        assert!(contains(scanned, format!("{kind} {key}").as_bytes()) && key.len() < 1024);
    }
    assert_error(&GitError::HostKeyUnknown { host: HOST.to_owned(), lines }, scanned.len());
}

/// An id is one, so that it is no path.
fn assert_pointer(content: &[u8]) {
    if let Some(output_parsers::Pointer { id, size, .. }) = output_parsers::Pointer::parse(content) {
        assert!(is_id(&id) && id.len() == 64 && content.len() <= 1024);
        let text = str::from_utf8(content).unwrap();
        assert!(text.contains(&format!("\noid sha256:{id}")) && text.contains("\nsize "), "{size}");
        assert_eq!(output_parsers::Pointer::parse(&[content, [b'\n'; 1024].as_slice()].concat()), None);
    }
}

/// A download is asked of the host that stands in its URL, by TLS, and its headers do not say whom it is for.
fn assert_downloads(answer: &[u8]) {
    let downloads = match output_parsers::parse_downloads(answer) {
        Ok(downloads) => downloads,
        Err(error) => return assert_error(&error, 0),
    };
    // Unused parts may be more broken than used parts.
    let Ok(json) = serde_json::from_slice::<serde_json::Value>(answer) else { return };
    let objects = json.get("objects").or_else(|| json.get(0)).and_then(|it| it.as_array()).unwrap();
    assert!(downloads.len() <= objects.len());
    for download in downloads.into_values() {
        let Some((address, target)) = output_parsers::parse_href(&download.href) else { continue };
        let (headers, hrefs) = (output_parsers::usable_headers(&download.header), strings(&json));
        assert!(address.tls && hrefs.iter().any(|href| authority(href).1 == address.host), "{address:?}");
        for name in ["host", "content-length", "transfer-encoding", "connection", "te", "upgrade"] {
            assert!(headers.len() <= 32 && !headers.contains_key(name), "{name}");
        }
        assert!(target.starts_with('/'), "{target:?}");
        if let Ok(request) = Request::get(&target).body(()) {
            let uri = request.uri();
            assert!(uri.authority().is_none() && uri.scheme().is_none(), "{target:?}");
            assert!(!uri.to_string().contains(|it: char| it.is_control() || it == ' '), "{target:?}");
        }
    }
}

/// All texts of a document.
fn strings(json: &serde_json::Value) -> Vec<&str> {
    match json {
        serde_json::Value::String(text) => vec![text],
        serde_json::Value::Array(all) => all.iter().flat_map(strings).collect(),
        serde_json::Value::Object(all) => all.values().flat_map(strings).collect(),
        _ => Vec::new(),
    }
}
