//! Decides whether an answer accepts the candidate. Does no I/O.

use hyper::StatusCode;

/// The answer of a container about a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CheckAnswer {
    /// The container takes the candidate.
    Takes,
    /// The container refuses the candidate.
    Refuses,
    /// The container does not know the question.
    NoCheck,
    /// The container must be asked again.
    Again,
}

/// Returns the meaning of a status. Redirects are not followed.
pub(super) fn interpret_status(status: StatusCode) -> CheckAnswer {
    match status.as_u16() {
        200..=299 => CheckAnswer::Takes,
        422 => CheckAnswer::Refuses,
        404 | 405 | 501 => CheckAnswer::NoCheck,
        _ => CheckAnswer::Again,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_its_meaning() {
        let interpret = |status: u16| interpret_status(StatusCode::from_u16(status).unwrap());
        for (statuses, expected) in [
            (&[200, 202, 204, 299][..], CheckAnswer::Takes),
            (&[422], CheckAnswer::Refuses),
            (&[404, 405, 501], CheckAnswer::NoCheck),
            (
                &[100, 301, 302, 308, 400, 401, 403, 408, 409, 410, 421, 423, 429, 500, 502, 503, 504],
                CheckAnswer::Again,
            ),
        ] {
            for status in statuses {
                assert_eq!(interpret(*status), expected, "{status}");
            }
        }
    }
}
