//! Lists of tags: their pages, and the highest tag within a range of semantic versions.

use semver::{Version, VersionReq};

/// Returns the highest tag within the range. Tags may begin with `v`, and have `_` instead of `+`, which tags can't
/// have. Pre-releases are in a range only if it names one of them.
pub(crate) fn highest_tag<'a>(tags: impl IntoIterator<Item = &'a str>, range: &VersionReq) -> Option<&'a str> {
    let versions = tags.into_iter().filter_map(|tag| {
        let text = tag.strip_prefix('v').unwrap_or(tag).replace('_', "+");
        Some((Version::parse(&text).ok()?, tag))
    });
    versions.filter(|(version, _)| range.matches(version)).max().map(|(_, tag)| tag)
}

/// Returns the path and query of the next page of a list, from the header `Link`. A page on another server is an error,
/// because the highest tag may be on it.
pub(crate) fn next_page<'a>(link: &'a str, registry: &str) -> Result<Option<&'a str>, &'static str> {
    let Some((target, parameters)) = link.trim().strip_prefix('<').and_then(|remainder| remainder.split_once('>'))
    else {
        return Err("its header Link can't be read");
    };
    let is_next = |text: &str| ["rel=\"next\"", "rel=next"].iter().any(|next| text.trim().eq_ignore_ascii_case(next));
    if !parameters.split(';').any(is_next) {
        return Ok(None);
    }
    let path = match target.split_once("://") {
        Some(("http" | "https", remainder)) => remainder.strip_prefix(registry).unwrap_or_default(),
        _ => target,
    };
    let is_usable = path.starts_with("/v2/") && path.bytes().all(|byte| byte.is_ascii_graphic());
    if is_usable { Ok(Some(path)) } else { Err("its next page is not on the same registry") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_version_in_the_range_is_found() {
        let tags = ["latest", "1.2.0", "v1.10.0", "1.9.3", "2.0.0-rc.1", "2.0.0", "1.2", "v1.10.0-beta", "3.0.0_b1"];
        let found = |range: &str| highest_tag(tags, &VersionReq::parse(range).unwrap());
        assert_eq!(found("1"), Some("v1.10.0"));
        assert_eq!(found(">=1.2, <1.10"), Some("1.9.3"));
        assert_eq!(found("*"), Some("3.0.0_b1"));
        assert_eq!(found("=2.0.0-rc.1"), Some("2.0.0-rc.1"));
        assert_eq!(found("<2.0.0"), Some("v1.10.0"), "no version before a release");
        assert_eq!(found("4"), None);
    }

    #[test]
    fn the_next_page_is_of_the_same_registry() {
        let path = "/v2/team/shop/tags/list?last=b&n=2";
        for link in [format!("<{path}>; rel=\"next\""), format!("<https://r:5000{path}>;rel=next")] {
            assert_eq!(next_page(&link, "r:5000"), Ok(Some(path)));
        }
        assert_eq!(next_page(r#"</v2/a>; rel="prev""#, "r"), Ok(None));
        for bad in [
            "",
            r#"<https://evil.example.com/v2/a>; rel="next""#,
            r#"<https://r.evil.example.com/v2/a>; rel="next""#,
            r#"<//evil.example.com/v2/a>; rel="next""#,
            "</v2/a b>; rel=next",
        ] {
            assert!(next_page(bad, "r").is_err(), "{bad}");
        }
    }
}
