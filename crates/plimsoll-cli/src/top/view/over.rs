//! Boxes over the screen: help, a confirmation, refusals.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Paragraph};

use super::cells::{cut, wrap};
use super::theme::Theme;
use crate::top::state::{Mode, Page, State};

const HELP: &str = "\
← → Tab     cluster: the worst, then each by name
n N         next and previous proxy
b c r       select in backends, customers, criticalities
↑ ↓ PgUp…   move the selection
/ Esc       filter backends by address, state, reason; clear
s h         sort backends; only unhealthy ones
u           CPUs or requests a second
e           latest refusals of the selection
t           refusals of the selection as they happen
d D         drain or undrain the selected backend
p           pause and go on
q Ctrl-C    quit";

/// Draws the box that the mode asks for.
pub(super) fn draw(frame: &mut Frame<'_>, state: &State, theme: Theme) {
    match &state.mode {
        Mode::Normal | Mode::Filter(_) => {}
        Mode::Help => {
            let lines: Vec<String> = HELP.lines().map(str::to_owned).collect();
            put(frame, "Keys", &lines, 66, theme);
        }
        Mode::Confirm(switch) => {
            let effect = if switch.is_drain {
                "It gets no new requests. Those in flight finish."
            } else {
                "It gets requests again, once it has passed a check."
            };
            let healthy = state.detail().and_then(|cluster| cluster.backends.by_state.get("healthy").copied());
            let mut lines = vec![format!("{} of cluster {}", switch.address, switch.cluster)];
            if state.proxies.len() > 1 {
                lines.push(format!("at the proxy {} only", state.proxies[switch.proxy].admin));
            }
            lines.extend(wrap(effect, 56, 3));
            if let (true, Some(healthy)) = (switch.is_drain, healthy) {
                lines.push(format!("Healthy backends now: {healthy}"));
            }
            lines.push(String::new());
            lines.push("y: yes, any other key: no".to_owned());
            let title = if switch.is_drain { "Drain this backend?" } else { "Undrain this backend?" };
            put(frame, title, &lines, 60, theme);
        }
        Mode::Explain(page) => put_page(frame, page, false, theme),
        Mode::Tap(page) => put_page(frame, page, true, theme),
    }
}

/// A box in the middle.
fn put(frame: &mut Frame<'_>, title: &str, lines: &[String], width: u16, theme: Theme) {
    let screen = frame.area();
    let (width, height) = (width.min(screen.width), (lines.len() as u16 + 2).min(screen.height));
    let (x, y) = ((screen.width - width) / 2, (screen.height - height) / 2);
    fill(frame, Rect { x, y, width, height }, title, lines.iter().map(String::as_str), theme);
}

fn fill<'l>(frame: &mut Frame<'_>, area: Rect, title: &str, lines: impl Iterator<Item = &'l str>, theme: Theme) {
    let inner = usize::from(area.width.saturating_sub(2));
    let lines: Vec<Line<'_>> = lines.map(|text| Line::from(cut(text, inner))).collect();
    let block = Block::bordered().title(Line::styled(cut(title, inner), theme.title()));
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

/// Refusals over most of the screen; of a tap, the latest at the bottom.
fn put_page(frame: &mut Frame<'_>, page: &Page, is_tap: bool, theme: Theme) {
    let screen = frame.area();
    let area = Rect { x: 0, y: 2, width: screen.width, height: screen.height.saturating_sub(3) };
    let room = usize::from(area.height.saturating_sub(2));
    let skipped = if is_tap {
        page.lines.len().saturating_sub(room + page.scrolled)
    } else {
        page.scrolled.min(page.lines.len().saturating_sub(room))
    };
    let waiting = if is_tap { "none yet; Esc to go back" } else { "asks…" };
    let lines: Box<dyn Iterator<Item = &str>> = if page.lines.is_empty() {
        Box::new(std::iter::once(waiting))
    } else {
        Box::new(page.lines.iter().skip(skipped).take(room).map(String::as_str))
    };
    fill(frame, area, &format!("{} · Esc to go back", page.title), lines, theme);
}
