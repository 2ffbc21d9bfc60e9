//! A recording of a terminal as one SVG file that plays by itself: a film of screens, moved along by a style sheet.

use std::fmt::Write as _;
use std::time::Duration;

/// A screen, and the time from the beginning until it was seen.
pub type Frame = (Duration, Vec<String>);

/// The longest pause; more of it is cut.
const MAX_PAUSE: Duration = Duration::from_millis(2500);
/// The duration of the last screen.
const LAST_SCREEN_DURATION: Duration = Duration::from_secs(5);
/// The shortest duration of a screen; screens that follow faster are one.
const MIN_SCREEN_DURATION: Duration = Duration::from_millis(80);

/// Size of a character and height of a line, in pixels.
const CHARACTER_WIDTH: f64 = 8.4;
const LINE_HEIGHT: f64 = 19.0;
const MARGIN: f64 = 14.0;

/// Returns the film of these screens, each this many columns and rows in size. `title` is for those who can't see it.
pub fn film(frames: &[Frame], columns: u16, rows: u16, title: &str) -> String {
    let frames = cut(frames);
    let whole = frames.last().map_or(LAST_SCREEN_DURATION, |(time, _)| *time + LAST_SCREEN_DURATION).as_secs_f64();
    let width = f64::from(columns) * CHARACTER_WIDTH + 2.0 * MARGIN;
    let height = f64::from(rows) * LINE_HEIGHT + 2.0 * MARGIN;
    let mut steps = String::new();
    let mut screens = String::new();
    let mut left = 0.0;
    for (time, lines) in &frames {
        let share = time.as_secs_f64() / whole * 100.0;
        // Writing into a String can't fail.
        let _ = writeln!(steps, "{share:.3}%{{transform:translateX({:.0}px)}}", -left);
        let _ = writeln!(screens, "<g transform=\"translate({left:.0} 0)\">");
        for (row, line) in (0_u16..).zip(lines.iter().rev().take(rows.into()).rev()) {
            if line.trim().is_empty() {
                continue;
            }
            let class = if line.starts_with("$ ") { " class=\"typed\"" } else { "" };
            let top = MARGIN + (f64::from(row) + 0.8) * LINE_HEIGHT;
            let _ = writeln!(screens, "<text x=\"{MARGIN}\" y=\"{top:.1}\"{class}>{}</text>", columns_kept(line));
        }
        screens += "</g>\n";
        left += width;
    }
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0} {height:.0}" width="{width:.0}" height="{height:.0}" role="img">
<title>{title}</title>
<style>
text{{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#d0d7de}}
.typed{{fill:#7ee787;font-weight:600}}
.film{{animation:film {whole:.2}s steps(1,end) infinite}}
@keyframes film{{
{steps}}}
</style>
<rect width="100%" height="100%" rx="8" fill="#0d1117"/>
<g class="film">
{screens}</g>
</svg>
"##,
        title = escaped(title),
    )
}

/// Returns the frames without long pauses, and without screens that are too short to see.
fn cut(frames: &[Frame]) -> Vec<Frame> {
    let mut kept: Vec<Frame> = Vec::new();
    let (mut before, mut time) = (Duration::ZERO, Duration::ZERO);
    for (at, lines) in frames {
        time += at.saturating_sub(before).min(MAX_PAUSE);
        before = *at;
        match kept.last_mut() {
            Some((_, last)) if last == lines => {}
            Some((since, last)) if time.saturating_sub(*since) < MIN_SCREEN_DURATION => last.clone_from(lines),
            _ => kept.push((time, lines.clone())),
        }
    }
    kept
}

/// Several spaces would be shown as one: not every program that shows SVG knows the style for that.
fn columns_kept(line: &str) -> String {
    escaped(line).replace(' ', "\u{a0}")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(millis: u64, text: &str) -> Frame {
        (Duration::from_millis(millis), vec![text.to_owned()])
    }

    #[test]
    fn pauses_are_cut_and_flicker_is_not_shown() {
        let kept = cut(&[frame(0, "a"), frame(100, "b"), frame(110, "c"), frame(60_000, "d"), frame(60_500, "d")]);
        assert_eq!(kept, [frame(0, "a"), frame(100, "c"), frame(2610, "d")]);
    }

    #[test]
    fn every_screen_is_in_the_film_once_as_plain_text() {
        let film = film(&[frame(0, "$ a < b & c"), frame(1000, "done")], 20, 2, "a <demo>");
        assert!(
            film.contains("<title>a &lt;demo&gt;</title>")
                && film.contains(">$\u{a0}a\u{a0}&lt;\u{a0}b\u{a0}&amp;\u{a0}c</text>"),
            "{film}"
        );
        assert_eq!(film.matches("<g transform").count(), 2);
        assert_eq!(film.matches("{transform:translateX").count(), 2);
        assert!(film.contains("film 6.00s"), "{film}");
    }

    #[test]
    fn of_long_screens_the_end_is_seen() {
        let lines = (0..5).map(|number| format!("line {number}")).collect();
        let film = film(&[(Duration::ZERO, lines)], 20, 2, "");
        assert!(
            film.contains("line\u{a0}4") && film.contains("line\u{a0}3") && !film.contains("line\u{a0}2"),
            "{film}"
        );
    }
}
