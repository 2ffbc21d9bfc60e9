//! The progress of a rollout: a bar on a terminal, elsewhere a line for each change.

use std::time::Duration;

use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::{Output, visible};

/// The progress to show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProgressView {
    /// The number of pods that run the version that they should run.
    pub(crate) done: u32,
    /// The number of all pods.
    pub(crate) total: u32,
    /// The current step of the rollout.
    pub(crate) line: String,
    /// Whether the state usually ends at once. Without a terminal, such a state is shown only if it lasts.
    pub(crate) is_passing: bool,
}

/// The time between two updates of the bar.
const TICK_INTERVAL: Duration = Duration::from_millis(200);

/// The columns around the bar, for brackets, numbers of pods, and the time.
const MARGIN_COLUMNS: usize = 30;

/// The display of the progress.
pub(crate) struct ProgressOutput {
    out: Output,
    /// The bar; absent without a terminal.
    bar: Option<ProgressBar>,
    last_line: String,
    /// The line to write if the state lasts.
    pending_line: Option<String>,
}

impl ProgressOutput {
    pub(crate) fn new(out: &Output) -> Self {
        let bar = out.is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
            // No colours, so NO_COLOR has no effect. The message has lines of its own, so it is not cut off.
            let width = columns().saturating_sub(MARGIN_COLUMNS).clamp(4, 30);
            let style =
                ProgressStyle::with_template(&format!("[{{bar:{width}}}] {{pos}}/{{len}} pods, {{elapsed}}\n{{msg}}"));
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
            bar.enable_steady_tick(TICK_INTERVAL);
            bar
        });
        Self { out: out.clone(), bar, last_line: String::new(), pending_line: None }
    }

    /// Shows the state.
    pub(crate) fn show(&mut self, view: &ProgressView) {
        if let Some(bar) = &self.bar {
            // A bar of length 0 would be full.
            match view.total {
                0 => bar.unset_length(),
                total => bar.set_length(total.into()),
            }
            bar.set_position(view.done.into());
            bar.set_message(wrap(&visible::line(&view.line), columns()));
        } else if let Some(line) = self.next_line(view) {
            self.out.note(&line);
        }
    }

    /// Returns the line for this state, unless it is the last line or the state is passing.
    fn next_line(&mut self, view: &ProgressView) -> Option<String> {
        self.pending_line = None;
        if self.last_line == view.line {
            return None;
        }
        if view.is_passing {
            self.pending_line = Some(view.line.clone());
            return None;
        }
        self.last_line.clone_from(&view.line);
        Some(view.line.clone())
    }

    /// Shows a passing state that has lasted.
    pub(crate) fn show_pending(&mut self) {
        if let Some(line) = self.pending_line.take() {
            self.out.note(&line);
            self.last_line = line;
        }
    }

    /// Leaves the bar on the screen. After Ctrl-C the terminal has written `^C`, so the bar can't be cleared.
    pub(crate) fn keep(self) {
        if let Some(bar) = self.bar {
            bar.disable_steady_tick();
            bar.set_draw_target(ProgressDrawTarget::hidden());
            self.out.note("");
        }
    }

    /// Clears the bar.
    pub(crate) fn clear(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Returns the width of the terminal.
fn columns() -> usize {
    usize::from(Term::stderr().size().1)
}

/// Wraps the text in lines shorter than the terminal, so that the bar clears the right number of lines.
fn wrap(text: &str, columns: usize) -> String {
    let (mut lines, mut used) = (String::new(), 0);
    for word in text.split(' ') {
        let length = word.chars().count();
        if used > 0 {
            let fits_line = used + 1 + length < columns;
            lines.push(if fits_line { ' ' } else { '\n' });
            used = if fits_line { used + 1 } else { 0 };
        }
        lines += word;
        used += length;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_wrapped_between_words() {
        assert_eq!(wrap("one two three", 80), "one two three");
        assert_eq!(wrap("one two three", 8), "one two\nthree");
        assert_eq!(wrap("one two three", 7), "one\ntwo\nthree");
        assert_eq!(wrap("kubectl-nudge is", 7), "kubectl-nudge\nis");
    }

    #[test]
    fn a_line_is_written_once_and_a_passing_one_only_if_it_lasts() {
        let mut progress =
            ProgressOutput { out: Output::default(), bar: None, last_line: String::new(), pending_line: None };
        let view = |line: &str, is_passing| ProgressView { done: 0, total: 2, line: line.to_owned(), is_passing };
        assert_eq!(progress.next_line(&view("begins", true)), None);
        assert_eq!(progress.pending_line.as_deref(), Some("begins"));
        assert_eq!(progress.next_line(&view("moves", false)).as_deref(), Some("moves"));
        assert_eq!((progress.next_line(&view("moves", false)), &progress.pending_line), (None, &None));
        assert_eq!(progress.next_line(&view("ends", false)).as_deref(), Some("ends"));
        progress.next_line(&view("begins", true));
        progress.show_pending();
        assert_eq!((progress.last_line.as_str(), &progress.pending_line), ("begins", &None));
    }
}
