//! One proxy as a watch knows it: its latest state, its past, and whether it answers.

use std::time::Duration;

use plimsoll_admin::{Live, LiveChange};
use tokio::time::Instant;

use crate::fleet::follow::News;
use crate::fleet::merge::Member;
use crate::fleet::past::Past;

/// Age of figures that are shown no more. An event comes each second.
const MAX_AGE: Duration = Duration::from_secs(4);
/// Difference of clocks that is taken for one. Less is the way of the event.
const MIN_SKEW_S: f64 = 2.0;

/// A proxy, as far as it is known.
#[derive(Debug)]
pub(super) struct Known {
    admin: String,
    live: Option<(Box<Live>, Instant)>,
    pub(super) problem: Option<String>,
    pub(super) name: Option<String>,
    ahead_s: f64,
    pub(super) past: Past,
    /// A cluster that it does not have.
    pub(super) lacked: Option<String>,
    /// Whether it answers, since when, and whether anything is known of it.
    answers: bool,
    since: Instant,
    pub(super) is_heard: bool,
}

impl Known {
    pub(super) fn new(admin: String, now: Instant) -> Self {
        Self {
            admin,
            live: None,
            problem: None,
            name: None,
            ahead_s: 0.0,
            past: Past::default(),
            lacked: None,
            answers: false,
            since: now,
            is_heard: false,
        }
    }

    /// Takes news at `at`, in seconds since 1970. Returns the change of the proxy itself, if there
    /// is one.
    pub(super) fn take(&mut self, news: News, at: f64) -> Option<LiveChange> {
        match news {
            News::History(history) => {
                // The newest sample is at most a second old.
                let end = history.begin + history.samples.saturating_sub(1) as f64 * history.step_s;
                self.past.begin(&history, skew(end - at));
                None
            }
            News::Live(live, _) => {
                self.ahead_s = skew(live.at - at);
                if let (Some(cluster), Some(sample)) = (&live.cluster, &live.sample) {
                    self.past.add(&cluster.name, sample, self.ahead_s);
                }
                self.name = Some(live.process.name.clone());
                self.live = Some((live, Instant::now()));
                self.problem = None;
                self.turn(true, at, "answers again")
            }
            News::Lost(why) => {
                self.live = None;
                let text = format!("does not answer: {why}");
                self.problem = Some(why);
                self.turn(false, at, &text)
            }
            // Its other clusters are asked for.
            News::NoCluster(name) => {
                self.lacked = Some(name);
                None
            }
        }
    }

    /// It answers from now on, or does not. The state at the start is no change.
    fn turn(&mut self, answers: bool, at: f64, text: &str) -> Option<LiveChange> {
        let (was_heard, is_turn) = (std::mem::replace(&mut self.is_heard, true), self.answers != answers);
        if is_turn {
            (self.answers, self.since) = (answers, Instant::now());
        }
        (was_heard && is_turn).then(|| LiveChange {
            at,
            kind: "connection".to_owned(),
            cluster: None,
            subject: self.admin.clone(),
            text: text.to_owned(),
            proxies: Vec::new(),
        })
    }

    /// Its state, unless that is old.
    pub(super) fn fresh(&self) -> Option<&Live> {
        self.live.as_ref().filter(|(_, at)| at.elapsed() <= MAX_AGE).map(|(live, _)| &**live)
    }

    pub(super) fn member(&self) -> Member<'_> {
        let live = self.fresh();
        let since = match &self.live {
            // Silent since its last state: it may be lost.
            Some((_, at)) if live.is_none() => *at,
            _ => self.since,
        };
        let silent = if self.is_heard { "it is silent" } else { "no answer yet" };
        Member {
            admin: &self.admin,
            live,
            name: self.name.as_deref(),
            problem: self.problem.as_deref().or_else(|| live.is_none().then_some(silent)),
            for_s: since.elapsed().as_secs_f64(),
            ahead_s: self.ahead_s,
        }
    }
}

/// How far a clock is ahead, if it is more than the way of an event.
fn skew(ahead_s: f64) -> f64 {
    if ahead_s.is_finite() && ahead_s.abs() >= MIN_SKEW_S { ahead_s } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::tests::examples::{AT, fine};

    fn live(at: f64) -> News {
        News::Live(Box::new(Live { at, ..fine() }), String::new())
    }

    fn text(change: Option<LiveChange>) -> Option<String> {
        change.map(|change| format!("{} {}", change.subject, change.text))
    }

    #[tokio::test(start_paused = true)]
    async fn break_and_return_are_changes_and_the_start_is_none() {
        let mut known = Known::new("a:1".to_owned(), Instant::now());
        assert_eq!((known.member().live, known.member().problem), (None, Some("no answer yet")));
        assert_eq!(known.take(News::Lost("refused".to_owned()), AT), None, "the start");
        assert_eq!(known.member().problem, Some("refused"));
        assert_eq!(text(known.take(live(AT), AT)).as_deref(), Some("a:1 answers again"));
        assert_eq!(known.take(live(AT), AT), None);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(known.member().for_s, 2.0);
        let lost = text(known.take(News::Lost("silent for 5 s".to_owned()), AT));
        assert_eq!(lost.as_deref(), Some("a:1 does not answer: silent for 5 s"));
        let member = known.member();
        assert_eq!((member.live, member.name, member.for_s), (None, Some("edge-3"), 0.0));
    }

    #[tokio::test(start_paused = true)]
    async fn old_figures_are_shown_no_more() {
        let mut known = Known::new("a:1".to_owned(), Instant::now());
        known.take(live(AT), AT);
        tokio::time::advance(MAX_AGE).await;
        assert!(known.fresh().is_some());
        tokio::time::advance(Duration::from_millis(1)).await;
        let member = known.member();
        assert_eq!((member.live, member.problem, member.for_s), (None, Some("it is silent"), 4.001));
    }

    #[tokio::test(start_paused = true)]
    async fn clock_that_is_far_off_is_corrected() {
        let mut known = Known::new("a:1".to_owned(), Instant::now());
        for (ahead, corrected) in [(0.9, 0.0), (-1.9, 0.0), (3_600.0, 3_600.0), (-40.0, -40.0), (f64::NAN, 0.0)] {
            known.take(live(AT + ahead), AT);
            assert_eq!(known.member().ahead_s, corrected, "{ahead}");
        }
    }
}
