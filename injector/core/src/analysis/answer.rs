//! The one number in an answer of Prometheus.

use serde_json::Value;

/// The reason why an answer has no number. The reason repeats nothing of the answer, because the server may not be the
/// user's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// The answer does not come from Prometheus.
    #[error("the server's answer is not one of Prometheus")]
    Foreign,
    /// Prometheus refuses the query.
    #[error("Prometheus could not evaluate the query: {0}")]
    Refused(&'static str),
    /// The query found nothing.
    #[error("the query found nothing")]
    Empty,
    /// The query found several series.
    #[error("the query found {0} series; aggregate them to one number, as by sum(..)")]
    Several(usize),
    /// The query found something else than a number.
    #[error("the query's answer is a matrix or a text, not one number")]
    OtherType,
    /// The result is not a number.
    #[error("the query's answer is not a number (0/0?)")]
    NotANumber,
    /// The result is infinite.
    #[error("the query's answer is infinite")]
    Infinite,
}

/// The types of errors that Prometheus has.
const ERROR_TYPES: [&str; 6] = ["bad_data", "execution", "timeout", "canceled", "internal", "unavailable"];

/// Reads the number of an answer, and returns it in the shortest form.
pub fn parse_number(answer: &[u8]) -> Result<String, AnswerError> {
    let answer: Value = serde_json::from_slice(answer).map_err(|_| AnswerError::Foreign)?;
    match answer["status"].as_str() {
        Some("success") => {}
        Some("error") => {
            let known = ERROR_TYPES.into_iter().find(|error| answer["errorType"].as_str() == Some(error));
            return Err(AnswerError::Refused(known.unwrap_or("unknown error")));
        }
        _ => return Err(AnswerError::Foreign),
    }
    let kind = answer["data"]["resultType"].as_str();
    let result = &answer["data"]["result"];
    let sample = match kind {
        Some("scalar") => result,
        Some("vector") => match result.as_array().map(Vec::as_slice) {
            Some([series]) => &series["value"],
            Some([]) => return Err(AnswerError::Empty),
            Some(several) => return Err(AnswerError::Several(several.len())),
            None => return Err(AnswerError::Foreign),
        },
        Some("matrix" | "string") => return Err(AnswerError::OtherType),
        _ => return Err(AnswerError::Foreign),
    };
    let text = sample[1].as_str().ok_or(AnswerError::Foreign)?;
    let number: f64 = text.parse().map_err(|_| AnswerError::Foreign)?;
    match number {
        _ if number.is_nan() => Err(AnswerError::NotANumber),
        _ if number.is_infinite() => Err(AnswerError::Infinite),
        // Written without an exponent, 1e300 has 300 digits.
        _ if number.abs() > 1e15 || (number != 0.0 && number.abs() < 1e-9) => Ok(format!("{number:e}")),
        _ => Ok(number.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn value_of(kind: &str, result: &Value) -> Result<String, AnswerError> {
        let answer = json!({"status": "success", "data": {"resultType": kind, "result": result}});
        parse_number(answer.to_string().as_bytes())
    }

    #[test]
    fn one_number_is_read() {
        let series = |value: &str| json!([{"metric": {}, "value": [1.5, value]}]);
        assert_eq!(value_of("vector", &series("0.25")).as_deref(), Ok("0.25"));
        assert_eq!(value_of("vector", &series("1e-3")).as_deref(), Ok("0.001"));
        assert_eq!(value_of("vector", &series("1e300")).as_deref(), Ok("1e300"));
        assert_eq!(value_of("scalar", &json!([1.5, "3"])).as_deref(), Ok("3"));
        assert_eq!(value_of("vector", &series("NaN")), Err(AnswerError::NotANumber));
        assert_eq!(value_of("vector", &series("+Inf")), Err(AnswerError::Infinite));
        assert_eq!(value_of("vector", &series("many")), Err(AnswerError::Foreign));
        assert_eq!(value_of("vector", &json!([])), Err(AnswerError::Empty));
        let two = json!([{"value": [1, "1"]}, {"value": [1, "2"]}]);
        assert_eq!(value_of("vector", &two), Err(AnswerError::Several(2)));
        assert_eq!(value_of("matrix", &json!([])), Err(AnswerError::OtherType));
    }

    #[test]
    fn nothing_of_another_answer_is_repeated() {
        let refused = br#"{"status": "error", "errorType": "bad_data", "error": "hunter2"}"#;
        assert_eq!(parse_number(refused), Err(AnswerError::Refused("bad_data")));
        let odd = br#"{"status": "error", "errorType": "hunter2"}"#;
        assert_eq!(parse_number(odd), Err(AnswerError::Refused("unknown error")));
        for foreign in ["", "hunter2", "{}", "[]", "<html>", r#"{"status": "hunter2"}"#] {
            assert_eq!(parse_number(foreign.as_bytes()), Err(AnswerError::Foreign), "{foreign}");
        }
    }

    proptest! {
        #[test]
        fn every_answer_is_understood_or_refused(bytes: Vec<u8>, value: f64) {
            let _ = parse_number(&bytes);
            if let Ok(text) = value_of("scalar", &json!([1, value.to_string()])) {
                prop_assert_eq!(text.parse::<f64>().unwrap().to_bits(), value.to_bits());
                prop_assert!(text.len() <= 32, "{}", text);
            }
        }
    }
}
