//! Artifacts as other programs make them.

use std::io::Write as _;

use anyhow::{Result, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use nudge_oci::{OciError, PullRequest};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use serde_json::json;

use crate::asking::{all, anywhere, files, plain, pulled, refused, tag};
use crate::stand_in::Content;

pub(crate) fn archive(entries: &[(&str, &str)]) -> Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, content) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        archive.append_data(&mut header, path, content.as_bytes())?;
    }
    Ok(archive.into_inner()?)
}

pub(crate) fn gzip(content: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content)?;
    Ok(encoder.finish()?)
}

#[tokio::test]
async fn files_of_oras_and_archives_of_flux_are_read() -> Result<()> {
    let mut content = Content::default();
    let title = |title: &str| json!({"org.opencontainers.image.title": title});
    let one = content.blob("application/yaml", b"a: 1", &title("config/app.yaml"));
    // Such as oras makes of a folder. A name alone makes an archive a file.
    let folder = gzip(&archive(&[("dir/b", "2")])?)?;
    let unpack = json!({"org.opencontainers.image.title": "dir", "io.deis.oras.content.unpack": "true"});
    let kind = "application/vnd.oci.image.layer.v1.tar+gzip";
    let (folder, file) = (content.blob(kind, &folder, &unpack), content.blob(kind, b"not unpacked", &title("c.tgz")));
    let unknown = content.blob("application/vnd.dev.cosign.simplesigning.v1+json", b"{}", &json!({}));
    content.artifact("oras", &[one.clone(), folder, file, unknown.clone()]);
    content.artifact("unknown", &[unknown]);
    let flux = archive(&[("./app.yaml", "a: 1"), ("./sub/x", "2")])?;
    for (name, blob) in [
        ("plain", flux.clone()),
        ("gzip", gzip(&flux)?),
        // The output of programs that compress parts one by one.
        ("members", [gzip(&flux[..600])?, gzip(&flux[600..])?].concat()),
        ("zstd", compress_to_vec(flux.as_slice(), CompressionLevel::Fastest)),
    ] {
        let layer = content.blob("application/vnd.cncf.flux.content.v1.tar+gzip", &blob, &json!({}));
        content.artifact(name, &[layer]);
    }
    content.artifact("evil", &[content.clone().blob("a", b"x", &title("../../etc/passwd")), one]);
    let server = content.serve().await?;
    let (registry, reference) = (anywhere(), plain(&server.host())?);
    let oras = pulled(&registry, &all(&reference, &tag("oras"))).await?;
    ensure!(oras.files == files([("config/app.yaml", "a: 1"), ("dir/b", "2"), ("c.tgz", "not unpacked")]), "{oras:?}");
    // Files that are not wanted are not fetched.
    server.asked();
    let wanted = tag("oras");
    let some = PullRequest { path: "config", is_wanted: &|path| path == "app.yaml", ..all(&reference, &wanted) };
    ensure!(pulled(&registry, &some).await?.files == files([("app.yaml", "a: 1")]));
    ensure!(server.asked().len() == 3, "the manifest, the file, and the archive that may have one");
    for name in ["plain", "gzip", "members", "zstd"] {
        let found = pulled(&registry, &all(&reference, &tag(name))).await?;
        ensure!(found.files == files([("app.yaml", "a: 1"), ("sub/x", "2")]), "{name}: {found:?}");
    }
    let unknown = refused(&registry, &all(&reference, &tag("unknown"))).await?;
    ensure!(matches!(unknown, OciError::NoFiles(_)), "{unknown}");
    let evil = refused(&registry, &all(&reference, &tag("evil"))).await?;
    ensure!(evil.to_string().contains("leaves its root"), "{evil}");
    Ok(())
}
