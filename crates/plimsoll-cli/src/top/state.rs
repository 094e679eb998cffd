//! The state of `plimsoll top`, and the effect of each key on it.
//!
//! Pure: a key or an update changes the state, and returns at most one [`Action`] for the shell. A
//! command that changes a backend is returned only after its confirmation, and names the same backend: the
//! list may have moved since.

use std::collections::VecDeque;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use plimsoll_admin::{Live, LiveBackend, LiveCluster};

use super::points::Points;
use super::select::Choice;
use crate::admin::path::escaped;
use crate::fleet::follow::History;

/// Lines of refusals kept.
const MAX_TAPPED: usize = 500;

/// The unit of loads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Unit {
    /// Reference CPUs.
    #[default]
    Cpus,
    /// Requests a second.
    Requests,
}

/// The list that the arrows move in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Focus {
    #[default]
    Backends,
    Customers,
    Criticalities,
}

/// The meaning of keys now.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Mode {
    #[default]
    Normal,
    /// A filter is typed; the text is the one before.
    Filter(String),
    /// A command awaits its confirmation.
    Confirm(Switch),
    Help,
    /// Refusals of the past.
    Explain(Page),
    /// Refusals as they happen.
    Tap(Page),
}

/// Lines over the screen.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Page {
    pub(super) title: String,
    pub(super) lines: VecDeque<String>,
    /// Lines scrolled away from the beginning; of a tap, from the end.
    pub(super) scrolled: usize,
}

/// A change of one backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Switch {
    pub(super) proxy: usize,
    pub(super) cluster: String,
    pub(super) address: String,
    pub(super) is_drain: bool,
}

impl Switch {
    pub(super) fn verb(&self) -> &'static str {
        if self.is_drain { "drain" } else { "undrain" }
    }

    /// The path of the command.
    pub(super) fn path(&self) -> String {
        let (cluster, address) = (escaped(&self.cluster), escaped(&self.address));
        format!("/api/v1/clusters/{cluster}/backends/{address}/{}", self.verb())
    }
}

/// A deed of the shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Quit,
    /// Back to the shell for a while.
    Suspend,
    /// Follow this cluster; `None` for the one with the worst verdict.
    Watch(Option<String>),
    Switch(Switch),
    /// Ask this proxy for past requests.
    Explain {
        proxy: usize,
        path: String,
    },
    /// Follow refusals of this proxy.
    Tap {
        proxy: usize,
        path: String,
    },
    EndTap,
}

/// The line below the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) text: String,
    pub(super) is_bad: bool,
}

/// A proxy, as far as it is known.
#[derive(Clone, Debug, Default)]
pub(super) struct Proxy {
    /// Its admin address, as it was given.
    pub(super) admin: String,
    /// The latest answer.
    pub(super) live: Option<Live>,
    pub(super) points: Points,
    /// Why there is no answer now.
    pub(super) lost: Option<String>,
}

/// All that is shown.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) proxies: Vec<Proxy>,
    /// The proxy in detail.
    pub(super) shown: usize,
    /// The cluster asked for; `None` for the one with the worst verdict.
    pub(super) cluster: Option<String>,
    pub(super) unit: Unit,
    pub(super) choice: Choice,
    pub(super) focus: Focus,
    /// The selected backend, customer and criticality; the first row if it is not in the list.
    selected: [Option<String>; 3],
    pub(super) mode: Mode,
    /// The proxies at the time of the pause.
    pub(super) paused: Option<Vec<Proxy>>,
    pub(super) message: Option<Message>,
}

impl State {
    pub(super) fn new(admins: &[String], cluster: Option<String>, choice: Choice) -> Self {
        let proxies = admins.iter().map(|admin| Proxy { admin: admin.clone(), ..Proxy::default() }).collect();
        Self { proxies, cluster, choice, ..Self::default() }
    }

    /// The proxies as they are to be drawn.
    pub(super) fn drawn(&self) -> &[Proxy] {
        self.paused.as_deref().unwrap_or(&self.proxies)
    }

    /// The proxy in detail.
    pub(super) fn proxy(&self) -> &Proxy {
        &self.drawn()[self.shown]
    }

    pub(super) fn live(&self) -> Option<&Live> {
        self.proxy().live.as_ref()
    }

    pub(super) fn detail(&self) -> Option<&LiveCluster> {
        self.live()?.cluster.as_ref()
    }

    /// The unit that can be shown.
    pub(super) fn unit(&self) -> Unit {
        let has_gate = self.detail().is_some_and(|cluster| cluster.gate.is_some());
        if has_gate { self.unit } else { Unit::Requests }
    }

    /// The backends in the list.
    pub(super) fn backends(&self) -> Vec<&LiveBackend> {
        self.detail().map(|cluster| self.choice.of(&cluster.backends.rows)).unwrap_or_default()
    }

    /// The names of the rows that the arrows move in.
    fn names(&self, focus: Focus) -> Vec<&str> {
        let Some(cluster) = self.detail() else { return Vec::new() };
        match focus {
            Focus::Backends => self.backends().into_iter().map(|row| row.address.as_str()).collect(),
            Focus::Customers => cluster.customers.iter().map(|row| row.name.as_str()).collect(),
            Focus::Criticalities => cluster.demand.iter().map(|row| row.criticality.as_str()).collect(),
        }
    }

    /// The place of the selected row in a list.
    pub(super) fn place(&self, focus: Focus) -> usize {
        let wanted = self.selected[focus as usize].as_deref();
        self.names(focus).iter().position(|name| Some(*name) == wanted).unwrap_or(0)
    }

    fn selected(&self, focus: Focus) -> Option<&str> {
        self.names(focus).get(self.place(focus)).copied()
    }

    /// An update of the proxy at this place.
    pub(super) fn history(&mut self, proxy: usize, history: &History) {
        self.proxies[proxy].points.begin(history);
    }

    pub(super) fn answered(&mut self, proxy: usize, live: Live) {
        let proxy = &mut self.proxies[proxy];
        if let (Some(cluster), Some(sample)) = (&live.cluster, &live.sample) {
            proxy.points.add(&cluster.name, sample);
        }
        if proxy.lost.take().is_some() {
            self.message = Some(Message { text: format!("{} answers again", proxy.admin), is_bad: false });
        }
        proxy.live = Some(live);
    }

    pub(super) fn lost(&mut self, proxy: usize, why: String) {
        self.proxies[proxy].lost = Some(why);
    }

    /// The cluster was removed from its proxy.
    pub(super) fn no_cluster(&mut self, name: &str) {
        if self.cluster.as_deref() == Some(name) {
            self.cluster = None;
            self.say(format!("the cluster {name} is removed: the one with the worst verdict is shown"), true);
        }
    }

    pub(super) fn say(&mut self, text: String, is_bad: bool) {
        self.message = Some(Message { text, is_bad });
    }

    /// Requests of the past, for the page that waits for them.
    pub(super) fn explained(&mut self, lines: Vec<String>) {
        if let Mode::Explain(page) = &mut self.mode {
            page.lines = lines.into();
        }
    }

    /// Refusals that have just happened.
    pub(super) fn tapped(&mut self, lines: Vec<String>) {
        if self.paused.is_none()
            && let Mode::Tap(page) = &mut self.mode
        {
            // A reader who has scrolled back keeps the place.
            page.scrolled += if page.scrolled > 0 { lines.len() } else { 0 };
            page.lines.extend(lines);
            let excess = page.lines.len().saturating_sub(MAX_TAPPED);
            page.lines.drain(..excess);
            page.scrolled = page.scrolled.min(page.lines.len());
        }
    }

    /// A key was pressed.
    pub(super) fn on_key(&mut self, key: KeyEvent) -> Option<Action> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Some(Action::Quit),
                KeyCode::Char('z') => Some(Action::Suspend),
                _ => None,
            };
        }
        match &mut self.mode {
            Mode::Normal => self.normal(key.code),
            Mode::Filter(_) => {
                self.filter(key.code);
                None
            }
            Mode::Confirm(_) => self.confirm(key.code),
            Mode::Help => {
                self.mode = Mode::Normal;
                (key.code == KeyCode::Char('q')).then_some(Action::Quit)
            }
            Mode::Explain(page) => match key.code {
                KeyCode::Esc | KeyCode::Char('e' | 'q') => {
                    self.mode = Mode::Normal;
                    None
                }
                code => {
                    let most = page.lines.len().saturating_sub(1);
                    page.scrolled = scroll(page.scrolled, code, false).min(most);
                    None
                }
            },
            Mode::Tap(page) => match key.code {
                KeyCode::Esc | KeyCode::Char('t' | 'q') => {
                    self.mode = Mode::Normal;
                    Some(Action::EndTap)
                }
                KeyCode::Char('p') => {
                    self.pause();
                    None
                }
                code => {
                    let most = page.lines.len().saturating_sub(1);
                    page.scrolled = scroll(page.scrolled, code, true).min(most);
                    None
                }
            },
        }
    }

    fn normal(&mut self, code: KeyCode) -> Option<Action> {
        self.message = None;
        match code {
            KeyCode::Char('q') => return Some(Action::Quit),
            KeyCode::Right | KeyCode::Tab => return self.turn_cluster(1),
            KeyCode::Left | KeyCode::BackTab => return self.turn_cluster(-1),
            KeyCode::Char('n') => return self.turn_proxy(1),
            KeyCode::Char('N') => return self.turn_proxy(-1),
            KeyCode::Char('d') => self.ask(true),
            KeyCode::Char('D') => self.ask(false),
            KeyCode::Char('e') => return self.explain(),
            KeyCode::Char('t') => return self.tap(),
            KeyCode::Char('s') => self.choice.sort = self.choice.sort.next(),
            KeyCode::Char('h') => self.choice.is_unhealthy_only = !self.choice.is_unhealthy_only,
            KeyCode::Char('/') => self.mode = Mode::Filter(self.choice.filter.clone()),
            KeyCode::Esc => self.choice.filter.clear(),
            KeyCode::Char('u') => self.turn_unit(),
            KeyCode::Char('p' | ' ') => self.pause(),
            KeyCode::Char('?') => self.mode = Mode::Help,
            KeyCode::Char('b') => self.focus = Focus::Backends,
            KeyCode::Char('c') => self.focus = Focus::Customers,
            KeyCode::Char('r') => self.focus = Focus::Criticalities,
            code => self.move_by(code),
        }
        None
    }

    fn move_by(&mut self, code: KeyCode) {
        let names = self.names(self.focus);
        let Some(last) = names.len().checked_sub(1) else { return };
        let place = self.place(self.focus);
        let place = match code {
            KeyCode::Up => place.saturating_sub(1),
            KeyCode::Down => place + 1,
            KeyCode::PageUp => place.saturating_sub(10),
            KeyCode::PageDown => place + 10,
            KeyCode::Home => 0,
            KeyCode::End => last,
            _ => return,
        };
        let name = names[place.min(last)].to_owned();
        self.selected[self.focus as usize] = Some(name);
    }

    fn filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.mode = Mode::Normal,
            KeyCode::Esc => {
                if let Mode::Filter(before) = std::mem::take(&mut self.mode) {
                    self.choice.filter = before;
                }
            }
            KeyCode::Backspace => drop(self.choice.filter.pop()),
            KeyCode::Char(c) if !c.is_control() => self.choice.filter.push(c),
            _ => {}
        }
    }

    fn confirm(&mut self, code: KeyCode) -> Option<Action> {
        let Mode::Confirm(switch) = std::mem::take(&mut self.mode) else { return None };
        match code {
            KeyCode::Char('y' | 'Y') => Some(Action::Switch(switch)),
            _ => {
                self.say("nothing was changed".to_owned(), false);
                None
            }
        }
    }

    fn ask(&mut self, is_drain: bool) {
        let backend = if self.focus == Focus::Backends { self.selected(Focus::Backends) } else { None };
        let (Some(address), Some(cluster)) = (backend, self.detail()) else {
            return self.say("select a backend first: b, then the arrows".to_owned(), true);
        };
        let (address, cluster) = (address.to_owned(), cluster.name.clone());
        self.mode = Mode::Confirm(Switch { proxy: self.shown, cluster, address, is_drain });
    }

    /// The clusters of the proxy in the order of the keys: the worst of them, and then all by name.
    fn turn_cluster(&mut self, by: isize) -> Option<Action> {
        let live = self.live()?;
        let mut names: Vec<Option<&str>> = live.clusters.iter().map(|row| Some(row.name.as_str())).collect();
        if names.len() < 2 && self.cluster.is_none() {
            return None;
        }
        names.sort_unstable();
        names.insert(0, None);
        let place = match &self.cluster {
            Some(name) => names.iter().position(|each| *each == Some(name)).unwrap_or(0),
            // From the worst one to its neighbours by name.
            None => 0,
        };
        let next = (place as isize + by).rem_euclid(names.len() as isize) as usize;
        let cluster = names[next].map(str::to_owned);
        self.cluster.clone_from(&cluster);
        self.selected = [None, None, None];
        Some(Action::Watch(cluster))
    }

    fn turn_proxy(&mut self, by: isize) -> Option<Action> {
        let count = self.proxies.len() as isize;
        self.shown = (self.shown as isize + by).rem_euclid(count) as usize;
        self.selected = [None, None, None];
        None
    }

    fn turn_unit(&mut self) {
        if self.detail().is_some_and(|cluster| cluster.gate.is_none()) {
            return self.say("without a gate, costs in CPUs are not known".to_owned(), true);
        }
        self.unit = if self.unit == Unit::Cpus { Unit::Requests } else { Unit::Cpus };
    }

    fn pause(&mut self) {
        self.paused = if self.paused.is_some() { None } else { Some(self.proxies.clone()) };
    }

    /// The filter of the selected row, in a query and in words.
    fn chosen(&self) -> (String, String) {
        let cluster = self.detail().map(|cluster| cluster.name.clone()).unwrap_or_default();
        let (mut query, mut title) = (format!("&cluster={}", escaped(&cluster)), format!("cluster {cluster}"));
        let key = match self.focus {
            Focus::Backends => None,
            Focus::Customers => Some("customer"),
            Focus::Criticalities => Some("criticality"),
        };
        if let (Some(key), Some(name)) = (key, self.selected(self.focus)) {
            query += &format!("&{key}={}", escaped(name));
            title += &format!(", {key} {name}");
        }
        (query, title)
    }

    fn explain(&mut self) -> Option<Action> {
        self.detail()?;
        let (query, title) = self.chosen();
        let title = format!("Latest refusals of {title}");
        self.mode = Mode::Explain(Page { title, ..Page::default() });
        Some(Action::Explain { proxy: self.shown, path: format!("/api/v1/explain?last=100&outcome=refused{query}") })
    }

    fn tap(&mut self) -> Option<Action> {
        self.detail()?;
        let (query, title) = self.chosen();
        let title = format!("Refusals of {title}, as they happen");
        self.mode = Mode::Tap(Page { title, ..Page::default() });
        Some(Action::Tap { proxy: self.shown, path: format!("/api/v1/explain/stream?last=100&outcome=refused{query}") })
    }
}

/// The lines scrolled away after a key; up goes back in time where the latest line is the last.
fn scroll(scrolled: usize, code: KeyCode, is_from_end: bool) -> usize {
    let (back, by) = match code {
        KeyCode::Up => (true, 1),
        KeyCode::Down => (false, 1),
        KeyCode::PageUp => (true, 10),
        KeyCode::PageDown => (false, 10),
        KeyCode::Home => (true, usize::MAX),
        KeyCode::End => (false, usize::MAX),
        _ => return scrolled,
    };
    if back == is_from_end { scrolled.saturating_add(by) } else { scrolled.saturating_sub(by) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::tests::examples::{fine, no_gate, overload};
    use crate::top::select::Sort;

    fn state(live: Live) -> State {
        let mut state = State::new(&["127.0.0.1:9900".to_owned()], None, Choice::default());
        state.answered(0, live);
        state
    }

    fn press(state: &mut State, keys: &str) -> Vec<Action> {
        let named = |key: &str| match key {
            "Esc" => KeyCode::Esc,
            "Enter" => KeyCode::Enter,
            "Up" => KeyCode::Up,
            "Down" => KeyCode::Down,
            "End" => KeyCode::End,
            "Right" => KeyCode::Right,
            "Left" => KeyCode::Left,
            "Back" => KeyCode::Backspace,
            one => KeyCode::Char(one.chars().next().unwrap()),
        };
        keys.split(' ').filter_map(|key| state.on_key(KeyEvent::new(named(key), KeyModifiers::NONE))).collect()
    }

    #[test]
    fn keys_change_what_is_shown() {
        let is_filtered = |state: &State, filter: &str| state.choice.filter == filter && state.mode == Mode::Normal;
        type Row<'a> = (&'a str, &'a dyn Fn(&State) -> bool);
        let table: [Row<'_>; 13] = [
            ("s", &|state| state.choice.sort == Sort::Requests),
            ("s s s s", &|state| state.choice.sort == Sort::Load),
            ("u", &|state| state.unit() == Unit::Requests),
            ("u u", &|state| state.unit() == Unit::Cpus),
            ("h", &|state| state.backends().len() == 2),
            ("/ e j e c", &|state| state.backends().len() == 1 && matches!(state.mode, Mode::Filter(_))),
            ("/ e j Back Enter", &|state| is_filtered(state, "e")),
            ("/ a Enter / b Esc", &|state| is_filtered(state, "a")),
            ("/ a Enter Esc", &|state| is_filtered(state, "")),
            ("/ q d", &|state| state.choice.filter == "qd"),
            ("p", &|state| state.paused.is_some()),
            ("p p", &|state| state.paused.is_none()),
            ("? x", &|state| state.mode == Mode::Normal),
        ];
        for (keys, is_so) in table {
            let mut state = state(overload());
            assert_eq!(press(&mut state, keys), [], "{keys}");
            assert!(is_so(&state), "{keys}: {:?} {:?}", state.choice, state.mode);
        }
    }

    #[test]
    fn quit_and_suspend_work_in_every_mode() {
        for mode in ["Esc", "?", "/", "d", "e", "t"] {
            let mut state = state(overload());
            press(&mut state, mode);
            let control = |c| KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL);
            assert_eq!(state.on_key(control('z')), Some(Action::Suspend), "{mode}");
            assert_eq!(state.on_key(control('c')), Some(Action::Quit), "{mode}");
        }
        assert_eq!(press(&mut state(overload()), "q"), [Action::Quit]);
        assert_eq!(press(&mut state(overload()), "? q"), [Action::Quit]);
    }

    #[test]
    fn drain_needs_a_confirmation_and_keeps_its_backend() {
        let mut state = state(overload());
        assert_eq!(press(&mut state, "Down d"), []);
        // The list is sorted anew while the operator reads.
        let mut live = overload();
        live.cluster.as_mut().unwrap().backends.rows.reverse();
        live.cluster.as_mut().unwrap().backends.rows.truncate(3);
        state.answered(0, live);
        let drain = Switch { proxy: 0, cluster: "web".to_owned(), address: "10.0.0.2:80".to_owned(), is_drain: true };
        assert_eq!(drain.path(), "/api/v1/clusters/web/backends/10.0.0.2%3A80/drain");
        assert_eq!(press(&mut state, "y"), [Action::Switch(drain)]);
        for keys in ["d n", "d Esc", "d d", "d q", "D Enter"] {
            assert_eq!(press(&mut state, keys), [], "{keys}");
            assert_eq!(state.mode, Mode::Normal, "{keys}");
            assert_eq!(state.message.as_ref().map(|message| message.text.as_str()), Some("nothing was changed"));
        }
        let [Action::Switch(undrain)] = &press(&mut state, "D y")[..] else { panic!("undrain") };
        assert_eq!(undrain.verb(), "undrain");
    }

    #[test]
    fn nothing_is_drained_without_a_selected_backend() {
        for keys in ["c d", "r d", "/ n o n e Enter d"] {
            let mut state = state(overload());
            assert_eq!(press(&mut state, keys), [], "{keys}");
            assert!(state.mode == Mode::Normal && state.message.as_ref().is_some_and(|message| message.is_bad));
        }
    }

    #[test]
    fn selection_stays_with_its_backend() {
        let mut state = state(overload());
        press(&mut state, "Down Down");
        let name = |state: &State| state.selected(Focus::Backends).map(str::to_owned);
        assert_eq!(name(&state).as_deref(), Some("10.0.0.3:80"));
        press(&mut state, "s s s");
        assert_eq!(name(&state).as_deref(), Some("10.0.0.3:80"));
        press(&mut state, "End Down");
        assert_eq!(name(&state).as_deref(), Some("10.0.0.40:80"));
        press(&mut state, "/ . 1 Enter");
        assert_eq!(name(&state).as_deref(), Some("10.0.0.1:80"), "the first, if it is not in the list");
    }

    #[test]
    fn clusters_turn_from_the_worst_through_all_by_name() {
        let mut state = state(overload());
        let watched = |name: Option<&str>| Action::Watch(name.map(str::to_owned));
        assert_eq!(
            press(&mut state, "Right Right Right Left"),
            [watched(Some("api")), watched(Some("web")), watched(None), watched(Some("web"))]
        );
        state.no_cluster("web");
        assert_eq!(state.cluster, None);
        assert_eq!(press(&mut self::state(fine()), "Right"), [], "there is one only");
    }

    #[test]
    fn explain_and_tap_ask_for_the_selection() {
        let asked = |keys: &str| match press(&mut state(overload()), keys).pop() {
            Some(Action::Explain { path, .. } | Action::Tap { path, .. }) => path,
            other => panic!("{keys}: {other:?}"),
        };
        assert_eq!(asked("e"), "/api/v1/explain?last=100&outcome=refused&cluster=web");
        assert!(asked("c Down e").ends_with("&cluster=web&customer=initech"));
        assert!(asked("r End e").ends_with("&criticality=sheddable"));
        assert_eq!(asked("t"), "/api/v1/explain/stream?last=100&outcome=refused&cluster=web");
        assert_eq!(press(&mut state(overload()), "t Esc").pop(), Some(Action::EndTap));
    }

    #[test]
    fn tap_keeps_the_latest_and_the_reader_s_place() {
        let mut state = state(overload());
        press(&mut state, "t");
        let lines = |from: usize, count: usize| (from..from + count).map(|number| number.to_string()).collect();
        state.tapped(lines(0, 600));
        let page = |state: &State| match &state.mode {
            Mode::Tap(page) => page.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!((page(&state).lines.len(), page(&state).lines.back().unwrap().as_str()), (MAX_TAPPED, "599"));
        press(&mut state, "Up Up");
        state.tapped(lines(600, 10));
        assert_eq!(page(&state).scrolled, 12);
        press(&mut state, "End p");
        state.tapped(lines(610, 10));
        assert_eq!(page(&state).lines.back().unwrap(), "609", "paused");
    }

    #[test]
    fn pause_shows_the_same_and_goes_on_with_the_latest() {
        let mut state = state(overload());
        press(&mut state, "p");
        state.answered(0, fine());
        assert_eq!(state.live().unwrap(), &overload());
        press(&mut state, "p");
        assert_eq!(state.live().unwrap(), &fine());
    }

    #[test]
    fn without_a_gate_there_is_one_unit() {
        let mut state = state(no_gate());
        assert_eq!(state.unit(), Unit::Requests);
        press(&mut state, "u");
        assert!(state.message.is_some() && state.unit() == Unit::Requests);
    }

    #[test]
    fn proxies_turn() {
        let mut state = State::new(&["a:1", "b:1", "c:1"].map(str::to_owned), None, Choice::default());
        let mut shown = Vec::new();
        for key in ["n", "n", "n", "N"] {
            press(&mut state, key);
            shown.push(state.shown);
        }
        assert_eq!(shown, [1, 2, 0, 2]);
    }

    #[test]
    fn return_of_a_proxy_is_told() {
        let mut state = state(fine());
        state.lost(0, "connection refused".to_owned());
        state.answered(0, fine());
        assert_eq!(state.message.unwrap().text, "127.0.0.1:9900 answers again");
    }
}
