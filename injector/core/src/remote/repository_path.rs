//! The path of a folder or file in a repository.

/// The maximum length of a path.
const MAX_PATH_BYTES: usize = 4096;

/// The error for a path that can't be requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("path must be relative, such as config/prod, without empty names, '.' and '..'")]
pub struct PathError;

/// Checks a path below the root of a repository. The empty path stands for the whole repository.
pub fn check_path(path: &str) -> Result<(), PathError> {
    let is_bad = |name: &str| matches!(name, "" | "." | "..") || name.contains(|c: char| c.is_control());
    if path.len() > MAX_PATH_BYTES || (!path.is_empty() && path.split('/').any(is_bad)) {
        return Err(PathError);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stays_below_the_root() {
        for good in ["", "config/prod", "a.b", "..a"] {
            assert_eq!(check_path(good), Ok(()), "{good}");
        }
        for bad in ["/a", "a/", "a//b", ".", "a/..", "../a", "a\nb", &"a".repeat(MAX_PATH_BYTES + 1)] {
            assert_eq!(check_path(bad), Err(PathError), "{bad:?}");
        }
    }
}
