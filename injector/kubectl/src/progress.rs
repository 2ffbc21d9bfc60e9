//! Shows how a rollout goes: a bar for a person, a line for each change where nobody watches.

use std::io::Write as _;
use std::time::Duration;

use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::outcome::View;
use super::output::Output;

/// How often the bar shows that time passes.
const TICK: Duration = Duration::from_millis(200);

/// Columns beside the bar: brackets, numbers of pods, time.
const BESIDE: usize = 30;

/// See the module's text.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    /// The line that was written last.
    last: String,
    /// The line that is written if it lasts.
    pending: Option<String>,
}

impl Progress {
    pub(super) fn new(out: Output) -> Self {
        let bar = out.is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
            // No colours: NO_COLOR and strange terminals need no care. What may be long has lines of its own, so that nothing of it is cut off.
            let width = columns().saturating_sub(BESIDE).clamp(4, 30);
            let style =
                ProgressStyle::with_template(&format!("[{{bar:{width}}}] {{pos}}/{{len}} pods, {{elapsed}}\n{{msg}}"));
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
            bar.enable_steady_tick(TICK);
            bar
        });
        Self { bar, last: String::new(), pending: None }
    }

    /// Shows the state.
    pub(super) fn show(&mut self, view: &View) {
        if let Some(bar) = &self.bar {
            bar.set_length(view.total.into());
            bar.set_position(view.done.into());
            bar.set_message(wrapped(&view.line, columns()));
        } else if let Some(line) = self.next_line(view) {
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }

    /// The line for this state, unless it was written last or may be over in a moment.
    fn next_line(&mut self, view: &View) -> Option<String> {
        self.pending = None;
        if self.last == view.line {
            return None;
        }
        if view.passing {
            self.pending = Some(view.line.clone());
            return None;
        }
        self.last.clone_from(&view.line);
        Some(view.line.clone())
    }

    /// Nothing has changed for a while.
    pub(super) fn lasts(&mut self) {
        if let Some(line) = self.pending.take() {
            let _ = writeln!(std::io::stderr(), "{line}");
            self.last = line;
        }
    }

    /// Lets the bar stand. The terminal has written `^C` below it, so that nothing above can be taken away any more.
    pub(super) fn leave(self) {
        if let Some(bar) = self.bar {
            bar.disable_steady_tick();
            bar.set_draw_target(ProgressDrawTarget::hidden());
            let _ = writeln!(std::io::stderr());
        }
    }

    /// Takes the bar away.
    pub(super) fn end(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

/// The terminal's width.
fn columns() -> usize {
    usize::from(Term::stderr().size().1)
}

/// The text in lines that are shorter than that, so that the bar knows how many it has to take away.
fn wrapped(text: &str, columns: usize) -> String {
    let (mut all, mut used) = (String::new(), 0);
    for word in text.split(' ') {
        let length = word.chars().count();
        if used > 0 {
            let fits = used + 1 + length < columns;
            all.push(if fits { ' ' } else { '\n' });
            used = if fits { used + 1 } else { 0 };
        }
        all += word;
        used += length;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_divided_between_words() {
        assert_eq!(wrapped("one two three", 80), "one two three");
        assert_eq!(wrapped("one two three", 8), "one two\nthree");
        assert_eq!(wrapped("one two three", 7), "one\ntwo\nthree");
        assert_eq!(wrapped("kubectl-nudge is", 7), "kubectl-nudge\nis");
    }

    #[test]
    fn a_line_is_written_once_and_a_passing_one_only_if_it_lasts() {
        let mut progress = Progress { bar: None, last: String::new(), pending: None };
        let view = |line: &str, passing| View { done: 0, total: 2, line: line.to_owned(), passing };
        assert_eq!(progress.next_line(&view("begins", true)), None);
        assert_eq!(progress.pending.as_deref(), Some("begins"));
        assert_eq!(progress.next_line(&view("moves", false)).as_deref(), Some("moves"));
        assert_eq!((progress.next_line(&view("moves", false)), &progress.pending), (None, &None));
        assert_eq!(progress.next_line(&view("ends", false)).as_deref(), Some("ends"));
        progress.next_line(&view("begins", true));
        progress.lasts();
        assert_eq!((progress.last.as_str(), &progress.pending), ("begins", &None));
    }
}
