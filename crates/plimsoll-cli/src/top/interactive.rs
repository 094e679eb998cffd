//! The live screen: inputs change the state, and each change is drawn.

use std::thread;

use tokio::task::JoinHandle;

use super::state::{Action, State, Switch};
use super::terminal::{Screen, read_keys};
use super::view::{Theme, draw};
use super::{Feeds, Input, outcome, take};
use crate::admin::events::{Events, ask};
use crate::exit::{Outcome, Verdict};
use crate::fleet::follow;
use crate::{explain, tap};

/// The deeds of the shell that go on.
struct Deeds<'f> {
    feeds: &'f Feeds,
    tap: Option<JoinHandle<()>>,
    /// The number of the tap that is shown: lines of an earlier one may still arrive.
    taps: u64,
}

/// Shows the state on the terminal until it is ended.
pub(super) fn run(feeds: &Feeds, mut state: State) -> Outcome {
    let theme = Theme::of_environment();
    let mut screen = Screen::take()?;
    let keys = feeds.sender.clone();
    thread::spawn(move || read_keys(&keys));
    let mut deeds = Deeds { feeds, tap: None, taps: 0 };
    let mut is_changed = true;
    loop {
        if is_changed {
            screen.draw(|frame| draw(frame, &state, theme))?;
        }
        is_changed = false;
        // All that has come is one drawing.
        let mut next = feeds.input.recv().ok();
        while let Some(input) = next {
            is_changed |= !matches!(input, Input::Nothing);
            match input {
                Input::End => return Ok(Verdict::Good),
                Input::Key(key) => match state.on_key(key) {
                    Some(Action::Quit) => return Ok(Verdict::Good),
                    Some(Action::Suspend) => screen.suspend()?,
                    Some(action) => deeds.begin(&state, action),
                    None => {}
                },
                Input::News(proxy, follow::News::NoCluster(name)) => {
                    if feeds.cluster.borrow().as_deref() == Some(&name) {
                        // Several proxies need not have the same clusters.
                        if state.proxies.len() > 1 {
                            state.lost(proxy, format!("it has no cluster {name}"));
                        } else {
                            state.no_cluster(&name);
                            feeds.cluster.send_replace(None);
                        }
                    }
                }
                Input::News(proxy, news) => drop(take(&mut state, proxy, news)),
                Input::Done(text, is_bad) => state.say(text, is_bad),
                Input::Explained(lines) => state.explained(lines),
                Input::Tapped(number, lines) if number == deeds.taps => state.tapped(lines),
                Input::Tapped(..) | Input::Redraw | Input::Nothing => {}
            }
            next = feeds.input.try_recv().ok();
        }
    }
}

impl Deeds<'_> {
    fn begin(&mut self, state: &State, action: Action) {
        match action {
            Action::Quit | Action::Suspend => {}
            Action::Watch(cluster) => drop(self.feeds.cluster.send_replace(cluster)),
            Action::Switch(switch) => self.switch(state, switch),
            Action::Explain { proxy, path } => self.explain(state, proxy, path),
            Action::Tap { proxy, path } => self.tap(state, proxy, path),
            Action::EndTap => self.end_tap(),
        }
    }

    fn switch(&self, state: &State, switch: Switch) {
        let (sender, admin) = (self.feeds.sender.clone(), state.proxies[switch.proxy].admin.clone());
        self.feeds.runtime.spawn(async move {
            let input = match follow::command(&admin, &switch.path()).await {
                Ok(answer) => Input::Done(outcome(switch.verb(), &switch.address, &answer), false),
                Err(failure) => Input::Done(format!("not {}ed: {failure}", switch.verb()), true),
            };
            let _ = sender.send(input);
        });
    }

    fn explain(&self, state: &State, proxy: usize, path: String) {
        let (sender, admin) = (self.feeds.sender.clone(), state.proxies[proxy].admin.clone());
        self.feeds.runtime.spawn(async move {
            let lines = match ask(&admin, http::Method::GET, &path).await {
                Ok(answer) => explain::lines(&answer),
                Err(failure) => vec![format!("no answer: {failure}")],
            };
            let _ = sender.send(Input::Explained(lines));
        });
    }

    fn tap(&mut self, state: &State, proxy: usize, path: String) {
        self.end_tap();
        let (sender, admin, number) = (self.feeds.sender.clone(), state.proxies[proxy].admin.clone(), self.taps);
        self.tap = Some(self.feeds.runtime.spawn(async move {
            let tell = |lines| sender.send(Input::Tapped(number, lines)).is_ok();
            let why = match Events::open(&admin, &path).await {
                Ok(mut events) => loop {
                    match events.next().await {
                        Ok(Some(event)) if !tell(tap::short_lines(&event.data)) => return,
                        Ok(Some(_)) => {}
                        Ok(None) => break "the proxy ended the stream".to_owned(),
                        Err(error) => break format!("{error:#}"),
                    }
                },
                Err(failure) => failure.to_string(),
            };
            tell(vec![format!("# no answer: {why}")]);
        }));
    }

    fn end_tap(&mut self) {
        self.taps += 1;
        if let Some(tap) = self.tap.take() {
            tap.abort();
        }
    }
}

impl Drop for Deeds<'_> {
    fn drop(&mut self) {
        self.end_tap();
    }
}
