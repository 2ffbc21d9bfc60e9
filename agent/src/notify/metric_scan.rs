//! Finds the values of two metrics in a page in the text format of Prometheus, which comes in parts. A container writes
//! the page, so nothing is trusted, and no more than one line is kept. Does no I/O.

use nudge_protocol::expectation::MetricName;

/// The maximum length of a line that is read, in bytes. A longer line is skipped.
const MAX_LINE_BYTES: usize = 8192;

/// A metric, and its value on a page.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The name of the metric.
    pub name: MetricName,
    /// The value; `None` if the page lacks the metric.
    pub value: Option<f64>,
}

/// The values of the metrics of an expectation.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricReading {
    /// The metric that grows: the highest of its values.
    pub metric: Sample,
    /// The metric that is 0 after a failure: the lowest of its values.
    pub ok: Option<Sample>,
}

/// The scan of one page.
#[derive(Clone, Debug)]
pub struct MetricScan {
    reading: MetricReading,
    /// The line that has not ended yet.
    line: Vec<u8>,
    /// Whether the line is too long, so that its end is dropped.
    is_cut: bool,
}

impl MetricScan {
    /// Begins to scan a page for these metrics.
    pub fn new(metric: &MetricName, ok: Option<&MetricName>) -> Self {
        let sample = |name: &MetricName| Sample { name: name.clone(), value: None };
        let reading = MetricReading { metric: sample(metric), ok: ok.map(sample) };
        Self { reading, line: Vec::new(), is_cut: false }
    }

    /// Takes the next part of the page.
    pub fn push(&mut self, part: &[u8]) {
        let mut lines = part.split(|byte| *byte == b'\n');
        self.extend_line(lines.next().unwrap_or_default());
        for line in lines {
            self.end_line();
            self.extend_line(line);
        }
    }

    /// Returns the values at the end of the page.
    pub fn finish(mut self) -> MetricReading {
        self.end_line();
        self.reading
    }

    fn extend_line(&mut self, part: &[u8]) {
        self.is_cut |= self.line.len() + part.len() > MAX_LINE_BYTES;
        if !self.is_cut {
            self.line.extend_from_slice(part);
        }
    }

    fn end_line(&mut self) {
        if !std::mem::take(&mut self.is_cut)
            && let Ok(line) = std::str::from_utf8(&self.line)
        {
            let MetricReading { metric, ok } = &mut self.reading;
            metric.add(line, f64::max);
            if let Some(ok) = ok {
                ok.add(line, f64::min);
            }
        }
        self.line.clear();
    }
}

impl Sample {
    /// Adds the value of a line, if it has the metric.
    fn add(&mut self, line: &str, choose: fn(f64, f64) -> f64) {
        if let Some(value) = line_value(line, self.name.as_str()) {
            self.value = Some(self.value.map_or(value, |other| choose(other, value)));
        }
    }
}

/// Returns the value of a line such as `name{label="text"} 17 1700000000000`, if it is of the metric `name`. A value
/// that is not a number counts as none.
fn line_value(line: &str, name: &str) -> Option<f64> {
    let rest = line.trim_start_matches([' ', '\t']).strip_prefix(name)?;
    let value = match rest.trim_start_matches([' ', '\t']).strip_prefix('{') {
        Some(labels) => after_labels(labels)?,
        None => rest.strip_prefix([' ', '\t'])?,
    };
    let number: f64 = value.split_ascii_whitespace().next()?.parse().ok()?;
    (!number.is_nan()).then_some(number)
}

/// Returns the text after the bracket that ends the labels. A value of a label may have brackets in it.
fn after_labels(labels: &str) -> Option<&str> {
    let mut is_quoted = false;
    let mut is_escaped = false;
    let end = labels.find(|letter: char| {
        let escapes = is_quoted && !is_escaped && letter == '\\';
        let was_escaped = std::mem::replace(&mut is_escaped, escapes);
        if letter == '"' && !was_escaped {
            is_quoted = !is_quoted;
        }
        letter == '}' && !is_quoted
    })?;
    Some(&labels[end + 1..])
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn scan(page: &[u8], part_bytes: usize) -> (Option<f64>, Option<f64>) {
        let ok = "ok".parse().unwrap();
        let mut scan = MetricScan::new(&"time".parse().unwrap(), Some(&ok));
        page.chunks(part_bytes).for_each(|part| scan.push(part));
        let reading = scan.finish();
        (reading.metric.value, reading.ok.unwrap().value)
    }

    #[test]
    fn a_page_of_prometheus() {
        let page = b"# HELP time When.\n# TYPE time gauge\ntime 1.7640000125e+09\ntimes 9e99\nthe_time 8\ntime_ 7\n\
                     ok{a=\"} 5\",b=\"\\\" } 6\"} 1 1764000012500\r\nok{} 0\n";
        for part_bytes in [1, 2, 7, 1000] {
            assert_eq!(scan(page, part_bytes), (Some(1_764_000_012.5), Some(0.0)), "{part_bytes}");
        }
    }

    #[test]
    fn what_is_no_value_counts_as_none() {
        for page in [
            "",
            "time",
            "time\n",
            "time ",
            "time x",
            "time NaN",
            "# time 1",
            "time{a=\"b\" 1",
            "time{} ",
            "time1 2",
            "timé 1",
            "xtime 1",
            "time{}1x",
        ] {
            assert_eq!(scan(page.as_bytes(), 5), (None, None), "{page}");
        }
        assert_eq!(scan(b"\xfftime 1\ntime 2", 3), (Some(2.0), None));
        assert_eq!(scan(b"time +Inf", 4).0, Some(f64::INFINITY));
        assert_eq!(scan(b"  time\t7", 4).0, Some(7.0));
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped_alone() {
        let page = [b"time{a=\"".as_slice(), &[b'x'; MAX_LINE_BYTES], b"\"} 5\ntime 4\n"].concat();
        for part_bytes in [1, 100, 100_000] {
            assert_eq!(scan(&page, part_bytes), (Some(4.0), None), "{part_bytes}");
        }
    }

    proptest! {
        #[test]
        fn parts_do_not_matter_and_nothing_makes_it_panic(
            page in vec(prop_oneof![
                Just(b"time 3\n".to_vec()), Just(b"ok{x=\"}\"} 0\n".to_vec()), vec(any::<u8>(), 0..20)
            ], 0..20),
            part_bytes in 1usize..40,
        ) {
            let page = page.concat();
            prop_assert_eq!(scan(&page, part_bytes), scan(&page, page.len().max(1)));
        }

        #[test]
        fn the_value_of_every_line_is_found(value: f64, label in "[^\\n\\r]{0,20}") {
            prop_assume!(!value.is_nan());
            let escaped = label.replace('\\', "\\\\").replace('"', "\\\"");
            let page = format!("time{{a=\"{escaped}\"}} {value:?}\n");
            prop_assert_eq!(scan(page.as_bytes(), 16).0, Some(value));
        }
    }
}
