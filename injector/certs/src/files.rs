//! Reads certificates from files. Another program writes the files: the keeper of Nudge's own authority, cert-manager,
//! or a CSI driver.

use std::io;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::authority::{AuthorityError, Pair};
use super::certificate::Certificate;

/// The maximum bytes of a file.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// The paths of the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The serving certificate and the certificates that lead to its authority, PEM.
    pub certificate: PathBuf,
    /// The private key of the serving certificate, PEM.
    pub key: PathBuf,
    /// The CA certificates that clients trust, PEM. Pods get them by injection.
    pub authority: PathBuf,
}

/// The reason why the files can't be used.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// A file can't be read.
    #[error("can't read {}", path.display())]
    Read {
        /// The file that can't be read.
        path: PathBuf,
        /// The error of the file system.
        source: io::Error,
    },
    /// A file is too long for a certificate or key.
    #[error("{} is longer than {MAX_FILE_BYTES} bytes, so it is not a certificate; mount a file in PEM form", .0.display())]
    TooLong(PathBuf),
    /// Certificate and key can't be used together.
    #[error("certificate {} and key {} can't be used", certificate.display(), key.display())]
    Pair {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// The cause.
        source: AuthorityError,
    },
    /// The file of the CA certificates has no certificate.
    #[error("{} holds no certificate in PEM form", .0.display())]
    NoAuthority(PathBuf),
}

#[derive(Clone, Debug)]
pub(super) struct FileContents {
    pub(super) pair: Pair,
    pub(super) bundle: String,
}

impl CertificateFiles {
    /// Returns the paths of the files in the mount folder of a Secret of type `kubernetes.io/tls`.
    pub fn in_folder(folder: &Path) -> Self {
        let path = |name: &str| folder.join(name);
        Self { certificate: path("tls.crt"), key: path("tls.key"), authority: path("ca.crt") }
    }

    /// Reads the files. If a mount is replaced between two reads, the certificate does not match the key, so the read
    /// is retried once.
    pub(super) fn load(&self) -> Result<FileContents, FilesError> {
        self.load_once().or_else(|_| self.load_once())
    }

    fn load_once(&self) -> Result<FileContents, FilesError> {
        let certificate = read(&self.certificate)?;
        let key = read(&self.key)?;
        let pair = Pair::from_pem(&certificate, key).map_err(|source| FilesError::Pair {
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            source,
        })?;
        let authorities = Certificate::all_from_pem(&read(&self.authority)?);
        if authorities.is_empty() {
            return Err(FilesError::NoAuthority(self.authority.clone()));
        }
        Ok(FileContents { pair, bundle: authorities.iter().map(Certificate::pem).collect() })
    }
}

fn read(path: &Path) -> Result<Zeroizing<String>, FilesError> {
    let read_error = |source| FilesError::Read { path: path.to_owned(), source };
    let length = std::fs::metadata(path).map_err(read_error)?.len();
    if length > MAX_FILE_BYTES {
        return Err(FilesError::TooLong(path.to_owned()));
    }
    std::fs::read_to_string(path).map(Zeroizing::new).map_err(read_error)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use time::OffsetDateTime;

    use super::*;
    use crate::{Authority, Certificates, Lifetimes, ServingNames};

    fn put(folder: &Path, authority: &Authority) -> Pair {
        let names = ServingNames::new(["hub.test"]).unwrap();
        let pair = authority.make_serving(&names, OffsetDateTime::now_utc(), &Lifetimes::default()).unwrap();
        std::fs::write(folder.join("tls.crt"), pair.certificate().pem()).unwrap();
        std::fs::write(folder.join("tls.key"), pair.key_pem().as_bytes()).unwrap();
        std::fs::write(folder.join("ca.crt"), authority.certificate().pem()).unwrap();
        pair
    }

    fn authority() -> Authority {
        Authority::make(OffsetDateTime::now_utc(), &Lifetimes::default()).unwrap()
    }

    #[tokio::test]
    async fn replaced_files_are_used_and_bad_ones_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (authority(), authority());
        let first = put(folder.path(), &one);
        let files = CertificateFiles::in_folder(folder.path());
        let (certificates, rotation) = Certificates::from_files(files.clone(), Duration::from_millis(5)).unwrap();
        tokio::spawn(rotation);
        let mut bundle = certificates.ca_bundle();
        assert_eq!(&**bundle.borrow_and_update(), one.certificate().pem());
        assert_eq!(certificates.expires(), first.certificate().not_after());

        std::fs::write(folder.path().join("ca.crt"), "nothing").unwrap();
        assert!(matches!(files.load(), Err(FilesError::NoAuthority(_))));
        std::fs::write(folder.path().join("tls.crt"), two.certificate().pem()).unwrap();
        assert!(matches!(files.load(), Err(FilesError::Pair { .. })));
        put(folder.path(), &two);
        let taken = bundle.wait_for(|bundle| **bundle == *two.certificate().pem());
        tokio::time::timeout(Duration::from_secs(10), taken).await.unwrap().unwrap();
    }

    /// Writes the files of a Secret as the kubelet does: into a new folder; then one link is switched to it.
    fn mount(folder: &Path, count: usize, serving: &Pair, bundle: &str) {
        let version = folder.join(format!("..{count}"));
        std::fs::create_dir(&version).unwrap();
        std::fs::write(version.join("tls.crt"), serving.certificates_pem()).unwrap();
        std::fs::write(version.join("tls.key"), serving.key_pem().as_bytes()).unwrap();
        std::fs::write(version.join("ca.crt"), bundle).unwrap();
        std::os::unix::fs::symlink(format!("..{count}"), folder.join("..data_tmp")).unwrap();
        std::fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
        for name in ["tls.crt", "tls.key", "ca.crt"] {
            let _ = std::os::unix::fs::symlink(format!("..data/{name}"), folder.join(name));
        }
    }

    #[tokio::test]
    async fn a_chain_is_served_and_every_swap_of_the_kubelet_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let (now, lifetimes) = (OffsetDateTime::now_utc(), Lifetimes::default());
        let names = ServingNames::new(["hub.test"]).unwrap();
        let one = authority();
        let (two, cross) = one.make_next(now, &lifetimes).unwrap();
        mount(folder.path(), 1, &one.make_serving(&names, now, &lifetimes).unwrap(), one.certificate().pem());
        let files = CertificateFiles::in_folder(folder.path());
        let (certificates, rotation) = Certificates::from_files(files.clone(), Duration::from_millis(5)).unwrap();
        tokio::spawn(rotation);

        let serving = two.make_serving(&names, now, &lifetimes).unwrap();
        for (count, chain) in [(2, Vec::new()), (3, vec![cross.clone()])] {
            mount(folder.path(), count, &serving.clone().with_chain(chain.clone()), two.certificate().pem());
            assert_eq!(files.load().unwrap().pair.chain(), chain);
        }
        let mut bundle = certificates.ca_bundle();
        let taken = bundle.wait_for(|bundle| **bundle == *two.certificate().pem());
        tokio::time::timeout(Duration::from_secs(10), taken).await.unwrap().unwrap();
        // Only the chain has changed; through it, pods of the first authority trust the serving certificate.
        let since = || certificates.trust().unwrap().pods.unwrap().since;
        let seen = async {
            while since() > one.certificate().not_before() + crate::LEEWAY {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), seen).await.unwrap();
    }

    #[test]
    fn errors_name_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let files = CertificateFiles::in_folder(folder.path());
        assert!(files.load().unwrap_err().to_string().contains("tls.crt"));
        put(folder.path(), &authority());
        std::fs::remove_file(&files.authority).unwrap();
        assert!(files.load().unwrap_err().to_string().contains("ca.crt"), "agents would trust nothing");
        std::fs::write(&files.certificate, vec![b'x'; usize::try_from(MAX_FILE_BYTES).unwrap() + 1]).unwrap();
        assert!(matches!(files.load(), Err(FilesError::TooLong(_))));
    }
}
