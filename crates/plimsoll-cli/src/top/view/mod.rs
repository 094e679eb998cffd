//! Draws the state of `plimsoll top`: parts that are lines of text, and their places on a screen.
//!
//! The parts know their width only. So the same parts make up a screen, and the text of `--once`.

mod cells;
mod chart;
mod over;
mod parts;
mod screen;
mod text;
mod theme;

pub(super) use self::screen::draw;
pub(super) use self::text::whole;
pub(super) use self::theme::Theme;

#[cfg(test)]
mod tests;
