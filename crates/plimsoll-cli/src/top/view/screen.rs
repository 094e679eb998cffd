//! The places of the parts on a screen.
//!
//! From the top: verdict, fleet, load, criticalities, traffic. Lists share the rest: below each other
//! on a narrow screen, side by side on a wide one.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use super::theme::Theme;
use super::{over, parts};
use crate::top::state::State;

/// The smallest screen with room for each part.
const MIN_WIDTH: u16 = 70;
const MIN_HEIGHT: u16 = 20;
/// Lines about traffic on a low screen.
const MAX_TRAFFIC: usize = 3;
/// From here on, lists stand side by side.
const WIDE: u16 = 150;

/// Places lines from the top down.
struct Column {
    area: Rect,
}

impl Column {
    fn put(&mut self, frame: &mut Frame<'_>, lines: Vec<Line<'static>>) {
        let height = (lines.len() as u16).min(self.area.height);
        let area = Rect { height, ..self.area };
        frame.render_widget(Paragraph::new(lines), area);
        self.area.y += height;
        self.area.height -= height;
    }

    fn height(&self) -> usize {
        self.area.height.into()
    }

    fn width(&self) -> usize {
        self.area.width.into()
    }
}

/// Draws the whole screen.
pub(in crate::top) fn draw(frame: &mut Frame<'_>, state: &State, theme: Theme) {
    let area = frame.area();
    if area.width < MIN_WIDTH || area.height < MIN_HEIGHT {
        let text = format!(
            "The terminal is too small: {}×{}.\nplimsoll top needs {MIN_WIDTH}×{MIN_HEIGHT}.\nq quits; --once prints text of any width.",
            area.width, area.height
        );
        frame.render_widget(Paragraph::new(text), area);
        return;
    }
    let width = usize::from(area.width);
    let foot = Rect { y: area.bottom() - 1, height: 1, ..area };
    let mut column = Column { area: Rect { height: area.height - 1, ..area } };
    column.put(frame, vec![parts::head(state, width, theme)]);
    column.put(frame, parts::verdict_lines(state, width, theme));
    let mut fleet = parts::fleet(state, width, theme);
    // The sums stay, whatever the number of proxies.
    let most = (column.height() / 3).max(4);
    if fleet.len() > most {
        let sums = fleet.pop();
        let first = (state.shown + 3).saturating_sub(most);
        fleet.drain(1..=first);
        fleet.truncate(most - 1);
        fleet.extend(sums);
    }
    column.put(frame, fleet);
    column.put(frame, parts::load(state, width, theme));
    let chart = match column.height() {
        0..26 => 3,
        26..40 => 5,
        _ => 8,
    };
    column.put(frame, parts::chart(state, width, chart, theme));
    column.put(frame, parts::demand(state, width, theme));
    let mut traffic = parts::traffic(state, width);
    traffic.truncate(if area.height < 30 { MAX_TRAFFIC } else { usize::MAX });
    column.put(frame, traffic);
    if area.width >= WIDE {
        side_by_side(frame, state, column, theme);
    } else {
        stacked(frame, state, column, theme);
    }
    frame.render_widget(Paragraph::new(parts::foot(state, width, theme)), foot);
    over::draw(frame, state, theme);
}

fn stacked(frame: &mut Frame<'_>, state: &State, mut column: Column, theme: Theme) {
    let (width, height) = (column.width(), column.height());
    let customers = state.detail().map_or(0, |cluster| cluster.customers.len());
    let changes = state.live().map_or(0, |live| live.changes.len());
    let wanted = parts::backends_height(state);
    // Backends get the most, and leave what they do not need.
    let spare = height.saturating_sub(wanted);
    let changes = changes.min((height / 6).max(1)).max(changes.min(spare / 2));
    let customers =
        if customers == 0 { 0 } else { (customers + 1).min((height / 3).max(spare.saturating_sub(changes))) };
    let backends = height.saturating_sub(customers + changes);
    column.put(frame, parts::backends(state, width, backends, theme));
    column.put(frame, parts::customers(state, width, customers, theme));
    if let Some(live) = state.live() {
        let lines = parts::changes(live, width, column.height(), theme);
        column.put(frame, lines);
    }
}

fn side_by_side(frame: &mut Frame<'_>, state: &State, column: Column, theme: Theme) {
    let area = column.area;
    let half = area.width / 2;
    let mut right = Column { area: Rect { x: area.x + half + 1, width: area.width - half - 1, ..area } };
    let mut left = Column { area: Rect { width: half - 1, ..area } };
    left.put(frame, parts::backends(state, left.width(), left.height(), theme));
    right.put(frame, parts::customers(state, right.width(), right.height() * 2 / 3, theme));
    if let Some(live) = state.live() {
        let lines = parts::changes(live, right.width(), right.height(), theme);
        right.put(frame, lines);
    }
}
