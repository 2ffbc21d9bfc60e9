//! Shows how a rollout goes: a bar for a person, a line for each change where nobody watches.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::outcome::View;
use super::output::Output;

/// See the module's text.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    last: Option<String>,
}

impl Progress {
    pub(super) fn new(out: Output) -> Self {
        let bar = out.is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{spinner} [{bar:24}] {pos}/{len} pods  {elapsed}  {wide_msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
            bar.enable_steady_tick(std::time::Duration::from_millis(120));
            bar
        });
        Self { bar, last: None }
    }

    /// Shows the state.
    pub(super) fn show(&mut self, view: &View) {
        if let Some(bar) = &self.bar {
            bar.set_length(view.total.into());
            bar.set_position(view.updated.into());
            bar.set_message(view.line.clone());
        } else if let Some(line) = self.next_line(view) {
            use std::io::Write as _;
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }

    /// The line for this state, unless it was written last.
    fn next_line(&mut self, view: &View) -> Option<String> {
        let line = format!("{}/{} pods: {}", view.updated, view.total, view.line);
        (self.last.as_ref() != Some(&line)).then(|| {
            self.last = Some(line.clone());
            line
        })
    }

    /// Takes the bar away.
    pub(super) fn end(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_written_once() {
        let mut progress = Progress { bar: None, last: None };
        let view = |updated| View { updated, total: 2, line: "moving".to_owned() };
        assert_eq!(progress.next_line(&view(0)).as_deref(), Some("0/2 pods: moving"));
        assert_eq!(progress.next_line(&view(0)), None);
        assert_eq!(progress.next_line(&view(1)).as_deref(), Some("1/2 pods: moving"));
        assert_eq!(progress.next_line(&view(0)).as_deref(), Some("0/2 pods: moving"));
    }
}
