//! `plimsoll top`: one proxy, or several, in a terminal.
//!
//! ```text
//! fleet::follow (a task for each) ──news──┐
//! keys, signals (threads) ────────────────┼──▶ State ──▶ view ──▶ terminal
//! answers to commands ────────────────────┘      └──▶ Action ──▶ commands, other streams
//! ```
//! Without a terminal, the same news become a line each second, or JSON.

mod interactive;
mod lines;
mod points;
mod select;
mod state;
mod terminal;
mod view;

use std::io::{self, IsTerminal as _};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crossterm::event::KeyEvent;
use http::Method;
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use self::select::{Choice, Sort};
use self::state::{Proxy, State};
use crate::admin::events::{ask_text, clean_line};
use crate::control::Target;
use crate::exit::{Outcome, Problem, Verdict};
use crate::fleet::follow::{self, News};
use crate::output::{errln, out, write_line};
use crate::units;

/// Width of the text of `--once` where no terminal tells one.
const DEFAULT_WIDTH: usize = 100;
/// Time for the first answers of `--once`.
const PATIENCE: Duration = Duration::from_secs(6);
/// Time after which a line of a fleet is written without the news of a slow proxy.
const MAX_WAIT: Duration = Duration::from_millis(1_500);

/// Arguments of `plimsoll top`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  plimsoll top                            the proxy at 127.0.0.1:9900
  plimsoll top edge-1:9900 edge-2:9900    a fleet: a row each, and the sums
  plimsoll top --cluster web --unhealthy
  plimsoll top --once                     everything as text
  plimsoll top --json --once | jq .cluster.gate.verdict
  plimsoll top | grep --line-buffered users-affected

Press ? for the keys. On a terminal it is a live screen. Elsewhere it writes a line each second; with --json, an \
object on each line: for one proxy the answer of GET /api/v1/live, for several their sums and answers.

Exits with 0 when it is ended, 1 when the proxy refuses, 2 when there is no such proxy.")]
pub(crate) struct Args {
    /// Admin addresses of the proxies, as HOST:PORT or :PORT
    #[arg(value_name = "ADDR", value_parser = units::admin_address, conflicts_with_all = ["admin", "pid_file"])]
    addresses: Vec<String>,
    #[command(flatten)]
    target: Target,
    /// Show this cluster [default: the one with the worst verdict]
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// Print the state once, and exit
    #[arg(long)]
    once: bool,
    /// Print JSON: an object on each line, or one object with --once
    #[arg(long)]
    json: bool,
    /// Order of the backends
    #[arg(long, value_enum, default_value_t)]
    sort: Sort,
    /// Only backends with this text in their address, state, reason or locality
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    filter: String,
    /// Only backends that are not healthy
    #[arg(long)]
    unhealthy: bool,
}

/// An input of the loop.
#[derive(Debug)]
enum Input {
    News(usize, News),
    Key(KeyEvent),
    Redraw,
    /// The outcome of a command, and whether it failed.
    Done(String, bool),
    Explained(Vec<String>),
    /// Refusals of the tap with this number.
    Tapped(u64, Vec<String>),
    End,
    Nothing,
}

/// The proxies that are followed.
struct Feeds {
    runtime: Runtime,
    cluster: watch::Sender<Option<String>>,
    input: Receiver<Input>,
    sender: Sender<Input>,
}

impl Args {
    fn admins(&self) -> Result<Vec<String>, Problem> {
        if self.addresses.is_empty() {
            Ok(vec![self.target.admin_address()?.to_string()])
        } else {
            Ok(self.addresses.clone())
        }
    }

    fn state(&self, admins: &[String]) -> State {
        let choice = Choice { sort: self.sort, filter: self.filter.clone(), is_unhealthy_only: self.unhealthy };
        State::new(admins, self.cluster.clone(), choice)
    }
}

/// Shows the proxies until it is ended.
pub(crate) fn run(args: &Args) -> Outcome {
    let admins = args.admins()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let first = runtime.block_on(first(&admins, args.cluster.as_deref()))?;
    let mut state = args.state(&admins);
    let is_fleet = admins.len() > 1;
    if args.once && args.json {
        for (proxy, answer) in state.proxies.iter_mut().zip(&first) {
            match answer.as_ref().map(|json| follow::read(json)) {
                Ok(Ok(live)) => proxy.live = Some(live),
                Ok(Err(failure)) => proxy.lost = Some(failure.to_string()),
                Err(failure) => proxy.lost = Some(failure.clone()),
            }
        }
        let whole = if is_fleet {
            lines::fleet_json(&state.proxies, now())
        } else {
            let json = first.into_iter().next().and_then(Result::ok).unwrap_or_default();
            serde_json::from_str(&json)?
        };
        for line in format!("{whole:#}").lines() {
            out!("{}\n", clean_line(line))?;
        }
        return Ok(Verdict::Good);
    }
    let feeds = Feeds::start(runtime, &admins, args.cluster.clone());
    if args.once {
        return once(&feeds, state);
    }
    if io::stdout().is_terminal() && !args.json {
        return interactive::run(&feeds, state);
    }
    stream(&feeds, &mut state, args.json)
}

/// The first answers: a mistake in the command line is told before the screen is taken.
async fn first(admins: &[String], cluster: Option<&str>) -> Result<Vec<Result<String, String>>, Problem> {
    let path = follow::path("live", cluster);
    // At once: each of them may let its patience run out.
    let asked: Vec<_> = admins
        .iter()
        .map(|admin| {
            let (admin, path) = (admin.clone(), path.clone());
            tokio::spawn(async move {
                let answer = ask_text(&admin, Method::GET, &path).await;
                answer.and_then(|json| follow::read(&json).map(|_| json))
            })
        })
        .collect();
    let mut answers = Vec::new();
    let mut problem = None;
    for (admin, answer) in admins.iter().zip(asked) {
        answers.push(answer.await?.map_err(|failure| {
            let why = failure.to_string();
            problem.get_or_insert_with(|| failure.problem(admin));
            why
        }));
    }
    match problem {
        Some(problem) if answers.iter().all(Result::is_err) => Err(problem),
        _ => Ok(answers),
    }
}

impl Feeds {
    fn start(runtime: Runtime, admins: &[String], cluster: Option<String>) -> Self {
        let (sender, input) = mpsc::channel();
        let cluster = watch::Sender::new(cluster);
        for (proxy, admin) in admins.iter().enumerate() {
            let sender = sender.clone();
            let tell = move |news| sender.send(Input::News(proxy, news)).is_ok();
            runtime.spawn(follow::follow(admin.clone(), cluster.subscribe(), follow::read, tell));
        }
        let ending = sender.clone();
        runtime.spawn(async move {
            crate::signals::ending().await;
            let _ = ending.send(Input::End);
        });
        Self { runtime, cluster, input, sender }
    }
}

/// News, as far as every view takes them. Returns the JSON of a present.
fn take(state: &mut State, proxy: usize, news: News) -> Option<String> {
    match news {
        News::History(history) => state.history(proxy, &history),
        News::Live(live, json) => {
            state.answered(proxy, *live);
            return Some(json);
        }
        News::Lost(why) => state.lost(proxy, why),
        News::NoCluster(name) => state.lost(proxy, format!("there is no cluster {name:?}")),
    }
    None
}

/// Prints everything once all have answered.
fn once(feeds: &Feeds, mut state: State) -> Outcome {
    let until = Instant::now() + PATIENCE;
    let is_awaited = |proxy: &Proxy| proxy.live.is_none() && proxy.lost.is_none();
    while state.proxies.iter().any(is_awaited) {
        match feeds.input.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Input::News(proxy, news)) => drop(take(&mut state, proxy, news)),
            Ok(Input::End) => return Ok(Verdict::Good),
            Ok(_) => {}
            Err(_) => break,
        }
    }
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let of_terminal = || {
        let is_terminal = io::stdout().is_terminal();
        is_terminal.then(|| crossterm::terminal::size().ok().map(|(columns, _)| usize::from(columns))).flatten()
    };
    let width = of_terminal().or(columns).unwrap_or(DEFAULT_WIDTH).clamp(60, 1_000);
    out!("{}", view::whole(&state, width))?;
    Ok(Verdict::Good)
}

/// Writes a line for each second, until nobody reads.
fn stream(feeds: &Feeds, state: &mut State, is_json: bool) -> Outcome {
    let is_fleet = state.proxies.len() > 1;
    let mut heard = vec![false; state.proxies.len()];
    let mut last = Instant::now();
    loop {
        let input = if is_fleet {
            feeds.input.recv_timeout(MAX_WAIT.saturating_sub(last.elapsed())).unwrap_or(Input::Redraw)
        } else {
            feeds.input.recv().unwrap_or(Input::End)
        };
        let mut json = None;
        match input {
            Input::End => return Ok(Verdict::Good),
            Input::News(proxy, news) => {
                let was_lost = state.proxies[proxy].lost.is_some();
                json = take(state, proxy, news);
                heard[proxy] |= json.is_some();
                tell_of_breaks(&state.proxies[proxy], was_lost, is_json)?;
            }
            _ => {}
        }
        let is_read = match (is_fleet, json) {
            (false, Some(json)) if is_json => write_line(&clean_line(&json))?,
            (false, Some(_)) => {
                state.proxies[0].live.as_ref().map_or(Ok(true), |live| write_line(&lines::line(live)))?
            }
            (true, _) if is_due(&heard, &state.proxies) || last.elapsed() >= MAX_WAIT => {
                heard.fill(false);
                last = Instant::now();
                if is_json {
                    write_line(&clean_line(&lines::fleet_json(&state.proxies, now()).to_string()))?
                } else {
                    write_line(&lines::fleet_line(&state.proxies, now()))?
                }
            }
            _ => true,
        };
        if !is_read {
            return Ok(Verdict::Good);
        }
    }
}

/// Whether there are news of all proxies that answer.
fn is_due(heard: &[bool], proxies: &[Proxy]) -> bool {
    let mut answering = heard.iter().zip(proxies).filter(|(_, proxy)| proxy.lost.is_none()).peekable();
    answering.peek().is_some() && answering.all(|(heard, _)| *heard)
}

/// Tells of the beginning and the end of a break: among the lines, as they belong to the record.
fn tell_of_breaks(proxy: &Proxy, was_lost: bool, is_json: bool) -> anyhow::Result<()> {
    let text = match (&proxy.lost, was_lost) {
        (Some(why), false) => format!("# no answer from {}: {why}; trying again", proxy.admin),
        (None, true) => format!("# {} answers again", proxy.admin),
        _ => return Ok(()),
    };
    if is_json {
        errln!("{text}");
    } else {
        write_line(&text)?;
    }
    Ok(())
}

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as f64 / 1e3
}

/// The outcome of a command in a line.
fn outcome(verb: &str, address: &str, answer: &Value) -> String {
    let state = answer["state"].as_str().map(|state| format!(": now {state}")).unwrap_or_default();
    format!("{verb}ed {address}{state}")
}
