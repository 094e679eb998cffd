//! The work that a server has taken on and not yet done, by how critical it is; and how much of it is too much.
//!
//! Level k counts the requests of the k most critical levels, and no others. Each is a fluid queue:
//!
//! ```text
//! dB_k/dt = admitted_k − C      while B_k > 0
//! ```
//!
//! `B_k` [CPU-seconds] grows by what a request that is taken on is expected to cost, is put right by what it did cost, and
//! drains at the capacity C [CPU-seconds per second], as if nothing below k existed. So the queue of a level fills when its own
//! work and that above it are more than C, whatever is offered below; and since `B_k ≤ B_(k+1)`, a level is never in trouble
//! before all levels below it are. That is strict priority without a queue to sort.
//!
//! A fluid queue is right only as far as C is. So B is never more than what the requests in progress have left of what they are
//! counted with: whatever C is believed to be, a server that has done its work has no backlog; unless it used more CPU for that than it should. Why not that alone: requests that
//! wait for something else than CPU have all of it left, and are no backlog at all.
//!
//! How much is too much depends on what is known. Requests come at random, and at a load of 0.8 of one core a backlog of a dozen
//! mean requests is nothing but chance, which one of 50 hardly is. Once the level has been offered more than C for a second or so it
//! is certain, and a long queue does nothing but make everybody wait. So the limit goes from `LOOSE` mean requests to `TIGHT` ones as the
//! offered load ρ goes from 1 to `CERTAIN`:
//!
//! ```text
//! T_k = tight + (loose − tight) · clamp((CERTAIN − ρ_k)/(CERTAIN − 1), 0, 1)
//! tight = max(C · target delay, TIGHT · mean cost),   loose = max(tight, LOOSE · mean cost)
//! fill_k = B_k ÷ T_k
//! ```
//!
//! Where requests have so little time that they would be late before the queue is full, whom to turn away would be decided by their deadlines and not
//! by how critical they are. So `T_k` is at most half of the time that requests have in the mean, but for `LEAST` mean requests.
//!
//! Whoever is pessimistic takes a burst for the beginning of an overload: `T_k = max(C · target delay, FEW · mean cost)`.

use core::time::Duration;

use super::Outlook;
use crate::{Timestamp, decay};

/// In mean requests. With exponential costs chance alone gets there at a load of 0.9 for one request in 600, at 0.8 hardly ever.
/// Longer would be kinder to chance, and crueller to everybody at a load of just 1, where it is often full.
const LOOSE: f64 = 48.0;
/// In mean requests: no fewer are in progress when all goes well, or the cores run dry between two arrivals.
const TIGHT: f64 = 16.0;
/// In mean requests, for the pessimistic: two a core of four.
const FEW: f64 = 8.0;
/// In mean requests: with fewer, a core runs dry between two arrivals however little time there is.
const LEAST: f64 = 4.0;
/// Of what is tolerable, what may be left of work that is done: the queue is full for some time, to those as well who ask for little.
const OUTLIVES: f64 = 4.0;
/// Seconds that a request has at most, as far as this looks; one without a deadline has so many.
const LONGEST: f64 = 10.0;
/// The offered load, in capacities, at which overload is certain.
const CERTAIN: f64 = 1.25;
/// Of what is offered: the load is known to some per cent after a few hundred requests.
const HALF_LIFE: Duration = Duration::from_secs(1);

/// Work of one level and all above it.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    /// CPU-seconds.
    backlog: f64,
    /// CPU-seconds that requests in progress have left.
    in_progress: f64,
    /// CPU-seconds, decayed, of all requests that came.
    offered: f64,
}

/// Work by how critical it is; the level of a rank holds that of all ranks up to it.
#[derive(Clone, Debug)]
pub(super) struct Backlog<const N: usize> {
    levels: [Level; N],
    /// Of requests that came, decayed: how many, their CPU-seconds, and the seconds that they had.
    requests: (f64, f64, f64),
    at: Timestamp,
}

/// What there is to work with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Supply {
    /// CPU-seconds a second.
    pub(super) capacity: f64,
    pub(super) target_delay: Duration,
    /// Of the backlog that is tolerable, the part that may be.
    pub(super) room: f64,
    /// More CPU is used than the load line allows.
    pub(super) is_over: bool,
    pub(super) outlook: Outlook,
}

impl<const N: usize> Backlog<N> {
    pub(super) fn new(now: Timestamp) -> Self {
        Self { levels: [Level::default(); N], requests: (0.0, 0.0, 0.0), at: now }
    }

    /// Time goes by, in which work is done.
    pub(super) fn advance(&mut self, now: Timestamp, supply: &Supply) {
        if now <= self.at {
            return;
        }
        let done = now.nanos_since(self.at) as f64 * 1e-9 * supply.capacity;
        let left = decay::remaining(now, self.at, HALF_LIFE);
        for level in &mut self.levels {
            level.backlog = (level.backlog - done).max(0.0);
            level.offered *= left;
        }
        let (count, cost, time) = self.requests;
        self.requests = (count * left, cost * left, time * left);
        self.at = now;
    }

    /// A request of this rank asks for `cost` CPU-seconds, and is of use for so many seconds, if there is an end to that.
    pub(super) fn on_request(&mut self, rank: usize, cost: f64, time: Option<f64>) {
        self.levels[rank..].iter_mut().for_each(|level| level.offered += cost);
        let (count, costs, times) = self.requests;
        self.requests = (count + 1.0, costs + cost, times + time.unwrap_or(LONGEST).min(LONGEST));
    }

    /// Work of this rank is taken on, or turns out to be so much more, or less.
    pub(super) fn add(&mut self, rank: usize, cost: f64) {
        for level in &mut self.levels[rank..] {
            level.backlog = (level.backlog + cost).max(0.0);
            level.in_progress = (level.in_progress + cost).max(0.0);
        }
    }

    /// CPU-seconds were used on something that is not in progress: they delay all.
    pub(super) fn delay(&mut self, used: f64) {
        self.levels.iter_mut().for_each(|level| level.backlog += used);
    }

    /// So much of what is in progress is done.
    pub(super) fn done(&mut self, rank: usize, used: f64, supply: &Supply) {
        for rank in rank..N {
            // Above the load line what is done early was done with CPU that is not for requests, and makes no room. But one request that was
            // far dearer than expected is not to keep everybody out for as long as it took.
            let least = if supply.is_over { OUTLIVES * self.limit(rank, supply) } else { 0.0 };
            let level = &mut self.levels[rank];
            level.in_progress = (level.in_progress - used).max(0.0);
            level.backlog = level.backlog.min(level.in_progress.max(least));
        }
    }

    /// So much of what was in progress is not, and was not done either: it may be, some time.
    pub(super) fn abandon(&mut self, rank: usize, left: f64) {
        self.levels[rank..].iter_mut().for_each(|level| level.in_progress = (level.in_progress - left).max(0.0));
    }

    /// So many requests wait: each level has at least its part of them to do. Of how many levels they are is not known but by what is in progress; if
    /// nothing is, they are of the last.
    pub(super) fn at_least(&mut self, requests: f64) {
        let waiting = requests * self.mean();
        let all = self.levels[N - 1].in_progress;
        for (rank, level) in self.levels.iter_mut().enumerate() {
            let part = if all > 0.0 { level.in_progress / all } else { f64::from(u8::from(rank == N - 1)) };
            level.backlog = level.backlog.max(waiting * part);
        }
    }

    /// CPU-seconds of all levels.
    pub(super) fn all(&self) -> f64 {
        self.levels.last().map_or(0.0, |level| level.backlog)
    }

    /// How full a level is: 1 is as much as is tolerable.
    pub(super) fn fill(&self, rank: usize, supply: &Supply) -> f64 {
        self.levels[rank].backlog / self.limit(rank, supply)
    }

    /// Whether so much more is no more than is tolerable; to one who comes when there is nothing, it is.
    pub(super) fn fits(&self, rank: usize, cost: f64, supply: &Supply) -> bool {
        let backlog = self.levels[rank].backlog;
        backlog <= 0.0 || backlog + cost <= self.limit(rank, supply)
    }

    /// How many mean requests are as much as is tolerable, of all levels together.
    pub(super) fn tolerable(&self, supply: &Supply) -> f64 {
        self.limit(N - 1, supply) / self.mean().max(f64::MIN_POSITIVE)
    }

    /// CPU-seconds of the mean request.
    fn mean(&self) -> f64 {
        self.requests.1 / self.requests.0.max(f64::MIN_POSITIVE)
    }

    /// Seconds that the mean request has.
    fn time(&self) -> f64 {
        let (count, _, times) = self.requests;
        if count > 0.0 { times / count } else { LONGEST }
    }

    /// How many CPU-seconds of backlog are tolerable.
    pub(super) fn limit(&self, rank: usize, supply: &Supply) -> f64 {
        let level = &self.levels[rank];
        let mean = self.mean();
        let target = supply.capacity * supply.target_delay.as_secs_f64();
        if supply.outlook == Outlook::Pessimistic {
            return target.max(FEW * mean) * supply.room;
        }
        let tight = target.max(TIGHT * mean);
        let loose = tight.max(LOOSE * mean);
        let load = decay::rate(level.offered, HALF_LIFE) / supply.capacity;
        let doubt = ((CERTAIN - load) / (CERTAIN - 1.0)).clamp(0.0, 1.0);
        let most = 0.5 * supply.capacity * self.time();
        (tight + (loose - tight) * doubt).min(most.max(LEAST * mean)) * supply.room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUPPLY: Supply = Supply {
        capacity: 2.0,
        target_delay: Duration::from_millis(1),
        room: 1.0,
        is_over: false,
        outlook: Outlook::Optimistic,
    };

    fn ms(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn work_counts_for_its_own_level_and_those_below_and_drains_at_capacity() {
        let mut backlog = Backlog::<3>::new(ms(0));
        backlog.add(1, 0.1);
        assert_eq!(backlog.levels.map(|level| level.backlog), [0.0, 0.1, 0.1]);
        backlog.advance(ms(20), &SUPPLY);
        assert!((backlog.all() - 0.06).abs() < 1e-12);
        backlog.add(1, -0.02);
        assert!((backlog.all() - 0.04).abs() < 1e-12);
        backlog.advance(ms(1_000), &SUPPLY);
        assert_eq!(backlog.all(), 0.0);
    }

    #[test]
    fn what_is_done_is_no_backlog_however_little_time_went_by() {
        let mut backlog = Backlog::<2>::new(ms(0));
        backlog.add(0, 0.1);
        backlog.add(1, 0.1);
        backlog.done(0, 0.08, &SUPPLY);
        assert!(backlog.levels.iter().zip([0.02, 0.12]).all(|(level, left)| (level.backlog - left).abs() < 1e-12));
        backlog.delay(0.01);
        assert!((backlog.all() - 0.13).abs() < 1e-12);
    }

    #[test]
    fn certain_overload_is_given_less_room_than_a_burst() {
        let fill = |load: f64| {
            let mut backlog = Backlog::<1>::new(ms(0));
            let gap = 10.0 / (SUPPLY.capacity * load);
            for n in 0..1_000 {
                backlog.advance(Timestamp::from_nanos((f64::from(n) * gap * 1e6) as u64), &SUPPLY);
                backlog.on_request(0, 0.01, None);
            }
            backlog.add(0, 0.1);
            backlog.fill(0, &SUPPLY)
        };
        assert!((fill(0.9) - 10.0 / LOOSE).abs() < 0.01, "{}", fill(0.9));
        assert!((fill(1.5) - 10.0 / TIGHT).abs() < 0.01, "{}", fill(1.5));
    }

    #[test]
    fn what_is_seen_to_wait_is_in_the_backlog_by_the_parts_of_what_is_in_progress() {
        let mut backlog = Backlog::<2>::new(ms(0));
        backlog.on_request(0, 0.01, None);
        backlog.at_least(3.0);
        assert_eq!(backlog.levels.map(|level| level.backlog), [0.0, 0.03], "of the last, if nothing is in progress");
        backlog.add(0, 0.01);
        backlog.add(1, 0.03);
        backlog.advance(ms(1_000), &SUPPLY);
        backlog.at_least(8.0);
        assert!(backlog.levels.iter().zip([0.02, 0.08]).all(|(level, waits)| (level.backlog - waits).abs() < 1e-12));
        backlog.at_least(1.0);
        assert!((backlog.all() - 0.08).abs() < 1e-12, "it is no more than the least");
    }

    #[test]
    fn above_the_load_line_what_outlives_its_work_is_bounded() {
        let mut backlog = Backlog::<1>::new(ms(0));
        backlog.on_request(0, 0.01, None);
        let supply = Supply { is_over: true, ..SUPPLY };
        backlog.add(0, 20.0);
        backlog.done(0, 20.0, &supply);
        assert!((backlog.fill(0, &supply) - OUTLIVES).abs() < 1e-12);
    }

    #[test]
    fn no_more_is_tolerable_than_half_of_the_time_that_requests_have() {
        let limit = |time| {
            let mut backlog = Backlog::<1>::new(ms(0));
            backlog.on_request(0, 0.01, time);
            backlog.limit(0, &SUPPLY)
        };
        assert!((limit(None) - LOOSE * 0.01).abs() < 1e-9);
        assert!((limit(Some(0.25)) - 0.25).abs() < 1e-9, "two CPUs for an eighth of a second");
        assert!((limit(Some(0.001)) - LEAST * 0.01).abs() < 1e-9);
    }

    #[test]
    fn abandoned_work_stays_in_the_backlog_until_the_rest_is_done() {
        let mut backlog = Backlog::<1>::new(ms(0));
        backlog.add(0, 0.1);
        backlog.add(0, 0.1);
        backlog.abandon(0, 0.06);
        assert!((backlog.all() - 0.2).abs() < 1e-12);
        backlog.done(0, 0.1, &SUPPLY);
        assert!((backlog.all() - 0.04).abs() < 1e-12);
    }

    #[test]
    fn half_of_the_room_is_half_of_the_limit() {
        for outlook in [Outlook::Optimistic, Outlook::Pessimistic] {
            let mut backlog = Backlog::<1>::new(ms(0));
            backlog.on_request(0, 0.01, None);
            let limit = |room| backlog.limit(0, &Supply { room, outlook, ..SUPPLY });
            assert!((limit(0.5) - limit(1.0) / 2.0).abs() < 1e-12, "{outlook:?}");
        }
    }
}
