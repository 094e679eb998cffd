//! The place where a scene shows itself: a text that is redrawn on a terminal, lines elsewhere.
//!
//! Always on stderr, so that stdout holds the result alone. Every line is cut at the width of the
//! terminal, since a wrapped line would break the count by which the next drawing goes back.

use std::io::{self, IsTerminal, Write as _};
use std::time::Duration;

use crossterm::cursor::MoveToPreviousLine;
use crossterm::queue;
use crossterm::terminal::{Clear, ClearType};

/// Where the width is unknown.
const DEFAULT_WIDTH: usize = 80;
/// Interval of drawings on a terminal.
const REDRAW_EVERY: Duration = Duration::from_millis(500);
/// Interval of lines elsewhere.
const LINE_EVERY: Duration = Duration::from_secs(2);

/// The display.
#[derive(Debug)]
pub(crate) struct Screen {
    live: bool,
    /// The last drawing, to be drawn over: the lengths of its lines.
    drawn: Vec<usize>,
}

impl Screen {
    /// On a terminal, if stderr is one.
    pub(crate) fn new() -> Self {
        Self { live: io::stderr().is_terminal(), drawn: Vec::new() }
    }

    /// Time between two calls of [`show`](Self::show).
    pub(crate) fn interval(&self) -> Duration {
        if self.live { REDRAW_EVERY } else { LINE_EVERY }
    }

    /// Shows the text that `draw` makes for a width in place of the last one; or the line, if this is no terminal.
    pub(crate) fn show(&mut self, draw: impl FnOnce(usize) -> String, line: impl FnOnce() -> String) -> io::Result<()> {
        if !self.live {
            return write_stderr(&line());
        }
        let width = crossterm::terminal::size().map_or(DEFAULT_WIDTH, |(columns, _)| usize::from(columns));
        let text = fit(&draw(width), width);
        let up = rows_taken(&self.drawn, width);
        self.drawn = text.lines().map(|line| line.chars().count()).collect();
        let mut stderr = io::stderr().lock();
        if up > 0 {
            queue!(stderr, MoveToPreviousLine(up), Clear(ClearType::FromCursorDown))?;
        }
        stderr.write_all(text.as_bytes())?;
        stderr.flush()
    }

    /// Leaves the last drawing in place; the next goes below it.
    pub(crate) fn keep(&mut self) -> io::Result<()> {
        self.drawn.clear();
        if self.live { write_stderr("\n") } else { Ok(()) }
    }
}

fn write_stderr(text: &str) -> io::Result<()> {
    let mut stderr = io::stderr().lock();
    stderr.write_all(text.as_bytes())?;
    stderr.flush()
}

/// Rows that lines of these lengths take on a terminal of this width, which may have shrunk since.
fn rows_taken(lengths: &[usize], width: usize) -> u16 {
    let rows = lengths.iter().map(|length| length.div_ceil(width.max(1)).max(1)).sum::<usize>();
    u16::try_from(rows).unwrap_or(u16::MAX)
}

/// The text with each line cut at the width.
fn fit(text: &str, width: usize) -> String {
    text.lines().map(|line| line.chars().take(width.max(1)).collect::<String>() + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_fits_the_terminal() {
        let text = format!("{}\n\nshort\n", "█".repeat(200));
        for width in [1, 20, 79, 80, 200] {
            assert!(fit(&text, width).lines().all(|line| line.chars().count() <= width));
            assert_eq!(fit(&text, width).lines().count(), 3);
        }
    }

    #[test]
    fn drawing_goes_back_over_lines_that_a_narrower_terminal_wraps() {
        assert_eq!(rows_taken(&[], 80), 0);
        assert_eq!(rows_taken(&[80, 0, 12], 80), 3);
        assert_eq!(rows_taken(&[80, 0, 12], 40), 4);
    }
}
