//! The whole state as plain text, for `--once`: every row of each part, and no selection.

use ratatui::text::Line;

use super::parts;
use super::theme::Theme;
use crate::top::state::State;

/// Lines of the chart.
const CHART: usize = 6;

/// The text, of lines of at most `width`.
pub(in crate::top) fn whole(state: &State, width: usize) -> String {
    let theme = Theme::default();
    let mut groups = vec![vec![parts::head(state, width, theme)]];
    groups[0].extend(parts::verdict_lines(state, width, theme));
    groups.push(parts::fleet(state, width, theme));
    let mut load = parts::load(state, width, theme);
    load.extend(parts::chart(state, width, CHART, theme));
    groups.push(load);
    groups.push(parts::demand(state, width, theme));
    groups.push(parts::traffic(state, width));
    groups.push(parts::backends(state, width, usize::MAX, theme));
    groups.push(parts::customers(state, width, usize::MAX, theme));
    groups.extend(state.live().map(|live| parts::changes(live, width, usize::MAX, theme)));
    let plain = |line: &Line<'_>| line.to_string().trim_end().to_owned() + "\n";
    let groups: Vec<String> =
        groups.iter().filter(|lines| !lines.is_empty()).map(|lines| lines.iter().map(plain).collect()).collect();
    groups.join("\n")
}
