//! The colours, or none: everything that has a colour has a word or a glyph, too.

use plimsoll_core::health::State;
use ratatui::style::{Color, Modifier, Style};

/// The styles of a screen.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::top) struct Theme {
    is_colored: bool,
}

impl Theme {
    /// In colours, unless `NO_COLOR` is set.
    pub(in crate::top) fn of_environment() -> Self {
        Self { is_colored: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) }
    }

    fn color(self, color: Color) -> Style {
        if self.is_colored { Style::new().fg(color) } else { Style::new() }
    }

    pub(super) fn title(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Names of columns, and notes.
    pub(super) fn quiet(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    pub(super) fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub(super) fn verdict(self, name: Option<&str>) -> Style {
        let style = match name {
            Some("fine") => self.color(Color::Green),
            Some("as-intended") => self.color(Color::Cyan),
            Some("capacity-short") => self.color(Color::Yellow),
            Some("users-affected") => self.color(Color::Red),
            _ => Style::new(),
        };
        style.add_modifier(Modifier::BOLD)
    }

    pub(super) fn state(self, state: Option<State>) -> Style {
        match state {
            Some(State::Healthy) => self.color(Color::Green),
            Some(State::Connecting | State::LameDuck) => self.color(Color::Yellow),
            Some(State::Refusing | State::Ejected) | None => self.color(Color::Red),
        }
    }

    pub(super) fn admitted(self) -> Style {
        self.color(Color::Blue)
    }

    pub(super) fn shed(self) -> Style {
        self.color(Color::Red)
    }

    pub(super) fn load_line(self) -> Style {
        self.color(Color::Yellow)
    }

    pub(super) fn message(self, is_bad: bool) -> Style {
        if is_bad { self.color(Color::Red).add_modifier(Modifier::BOLD) } else { Style::new() }
    }
}
