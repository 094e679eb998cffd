//! Screens of recorded answers. After an intended change, `INSTA_UPDATE=always` writes them anew.

use plimsoll_admin::{Live, LiveSample};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;

use super::*;
use crate::fleet::tests::examples::{AT, fine, many, no_gate, overload};
use crate::top::select::Choice;
use crate::top::state::{Message, Mode, Page, State, Switch};

/// The state after ten minutes that led to this answer: demand grew from nothing.
fn state(live: Live) -> State {
    let mut state = State::new(&["127.0.0.1:9900".to_owned()], None, Choice::default());
    let last = live.sample.clone().unwrap();
    let line = last.series["load_line_cpus"];
    for second in 0..600_u32 {
        let share = (second as f32 + 1.0) / 600.0;
        let mut sample = LiveSample { at: AT - 600.0 + f64::from(second), ..last.clone() };
        sample.series.values_mut().flatten().for_each(|value| *value *= share);
        sample.series.insert("load_line_cpus".to_owned(), line);
        state.proxies[0].points.add("web", &sample);
    }
    state.answered(0, live);
    state
}

fn terminal(state: &State, width: u16, height: u16) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, state, Theme::default())).unwrap();
    terminal
}

fn screen(state: &State, width: u16, height: u16) -> String {
    let text = terminal(state, width, height).backend().to_string();
    text.lines().map(|line| line.trim_matches('"').trim_end().to_owned() + "\n").collect()
}

/// Compares a screen with the one in `tests/screens` of the crate.
fn matches(name: &str, screen: &str) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/screens");
    insta::with_settings!({ snapshot_path => folder, prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!(name, screen);
    });
}

#[test]
fn fine_at_80x24() {
    matches("fine_at_80x24", &screen(&state(fine()), 80, 24));
}

#[test]
fn overload_at_80x24() {
    matches("overload_at_80x24", &screen(&state(overload()), 80, 24));
}

#[test]
fn overload_at_120x40() {
    matches("overload_at_120x40", &screen(&state(overload()), 120, 40));
}

#[test]
fn overload_on_a_wide_screen() {
    matches("overload_on_a_wide_screen", &screen(&state(overload()), 180, 40));
}

#[test]
fn no_gate_shows_requests() {
    matches("no_gate_shows_requests", &screen(&state(no_gate()), 80, 24));
}

#[test]
fn ten_thousand_backends_at_100x30() {
    matches("ten_thousand_backends_at_100x30", &screen(&state(many()), 100, 30));
}

#[test]
fn small_terminal_says_so() {
    let text = screen(&state(overload()), 60, 15);
    assert!(text.starts_with("The terminal is too small: 60×15.\nplimsoll top needs 70×20.\n"), "{text}");
    for (width, height) in [(1, 1), (69, 40), (200, 3)] {
        screen(&state(overload()), width, height);
    }
}

#[test]
fn fleet_shows_a_row_each_and_the_sums() {
    let mut state = state(overload());
    let admins = ["edge-1:9900", "edge-2:9900", "edge-3:9900"].map(str::to_owned);
    let fleet = State::new(&admins, None, Choice::default());
    let points = state.proxies.remove(0);
    state.proxies = fleet.proxies;
    (state.proxies[0].live, state.proxies[0].points) = (points.live, points.points);
    state.answered(1, fine());
    state.lost(2, "connection refused".to_owned());
    matches("fleet_shows_a_row_each_and_the_sums", &screen(&state, 100, 30));
}

#[test]
fn boxes_stand_over_the_screen() {
    let mut state = state(overload());
    let switch = Switch { proxy: 0, cluster: "web".to_owned(), address: "10.0.0.1:80".to_owned(), is_drain: true };
    state.mode = Mode::Confirm(switch);
    let text = screen(&state, 80, 24);
    assert!(text.contains("Drain this backend?") && text.contains("10.0.0.1:80 of cluster web"), "{text}");
    assert!(text.contains("Healthy backends now: 38") && text.contains("y: yes, any other key: no"), "{text}");
    state.mode = Mode::Help;
    let text = screen(&state, 80, 24);
    assert!(text.contains("q Ctrl-C    quit") && text.contains("d D         drain or undrain"), "{text}");
    let lines = (0..100).map(|number| format!("line {number}")).collect();
    state.mode = Mode::Tap(Page { title: "Refusals".to_owned(), lines, scrolled: 0 });
    let text = screen(&state, 80, 24);
    assert!(text.contains("line 99 ") && !text.contains("line 10 "), "the latest are at the bottom: {text}");
    if let Mode::Tap(page) = &mut state.mode {
        page.scrolled = 50;
    }
    assert!(screen(&state, 80, 24).contains("line 49 "));
}

#[test]
fn break_and_message_are_seen() {
    let mut state = state(overload());
    state.lost(0, "connection refused".to_owned());
    state.message = Some(Message { text: "not drained: there is no such backend".to_owned(), is_bad: true });
    let text = screen(&state, 80, 24);
    assert!(
        text.contains("no answer since 10:40:00") && text.contains("no answer: connection refused; trying"),
        "{text}"
    );
    assert!(text.trim_end().ends_with("not drained: there is no such backend"), "{text}");
}

#[test]
fn without_colours_nothing_is_coloured() {
    let terminal = terminal(&state(overload()), 80, 24);
    let cells = terminal.backend().buffer().content();
    assert!(cells.iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
}

#[test]
fn every_size_is_drawn() {
    for live in [fine(), overload(), no_gate(), many()] {
        let state = state(live);
        for width in (70..240).step_by(13) {
            for height in 20..60 {
                screen(&state, width, height);
            }
        }
    }
    let waiting = State::new(&["a:1".to_owned()], None, Choice::default());
    assert!(screen(&waiting, 80, 24).contains("waits for the first answer"));
}

#[test]
fn text_has_every_row() {
    let text = whole(&state(many()), 100);
    assert!(text.lines().all(|line| cells::width(line) <= 100), "{text}");
    assert!(text.contains("10.0.0.40:80") && text.contains("10.0.0.1:80 ") && text.contains("hooli"), "{text}");
    matches("text_has_every_row", &whole(&state(no_gate()), 80));
}

/// Characters of double width, and names as long as there may be.
#[test]
fn long_and_wide_names_keep_the_columns() {
    let mut live = overload();
    let cluster = live.cluster.as_mut().unwrap();
    cluster.customers[0].name = "日本語の名前がとても長い".to_owned();
    cluster.customers[1].name = "n".repeat(200);
    cluster.backends.rows[0].address = "[2001:db8:1234:5678:9abc:def0:1234:5678]:65535".to_owned();
    let text = screen(&state(live), 120, 40);
    let column = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {text}"));
        cells::width(line)
    };
    assert!(column("nnnn") <= 120);
    assert!(text.contains("[2001:db8:1234:5678:9abc:def0:1234:5678]:65535 ● healthy"), "{text}");
}
