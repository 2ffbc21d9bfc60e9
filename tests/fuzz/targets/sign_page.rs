//! What a container shows after its notification: an expectation, a page of metrics, and an answer of JSON.
//!
//! The input is an expectation in its first line, and a page or an answer after it.
#![cfg_attr(fuzzing, no_main)]

use libfuzzer_sys::{Corpus, fuzz_target};
use nudge_agent::notify::{MetricReading, MetricScan, is_value};
use nudge_protocol::expectation::{Expectation, Proof, Sign};

fuzz_target!(|bytes: &[u8]| -> Corpus {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return Corpus::Reject };
    let (first, page) = (&bytes[..end], &bytes[end + 1..]);
    let Some(expectation) = std::str::from_utf8(first).ok().and_then(|text| text.parse::<Expectation>().ok()) else {
        return Corpus::Reject;
    };
    assert_eq!(expectation.to_string().parse(), Ok(expectation.clone()), "it is read as it is written");
    match &expectation.sign {
        Sign::Workers => {}
        Sign::Page { proof: Proof::Newer { metric, ok }, .. } => {
            let scan = |part_bytes: usize| -> MetricReading {
                let mut scan = MetricScan::new(metric, ok.as_ref());
                page.chunks(part_bytes).for_each(|part| scan.push(part));
                scan.finish()
            };
            let reading = scan(page.len().max(1));
            assert_eq!(reading, scan(1), "parts do not matter");
            assert!(reading.metric.value.is_none_or(|value| !value.is_nan()));
        }
        Sign::Page { proof: Proof::Is { pointer, .. }, .. } => {
            let is_empty = is_value(page, pointer.as_ref(), b"");
            assert!(!is_empty || pointer.is_some() || page.trim_ascii().is_empty());
            assert!(pointer.is_some() || is_value(page, None, page));
        }
    }
    Corpus::Keep
});
