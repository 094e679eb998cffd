//! The backlog: admitted work that is not done yet, by criticality, and its limits.
//!
//! Level k counts the requests of the k most critical levels, and no others. Each is a fluid queue:
//!
//! ```text
//! dB_k/dt = admitted_k − C      while B_k > 0
//! ```
//!
//! `B_k` [CPU-seconds] grows by the expected cost of each admitted request, and is corrected to the
//! real cost. It drains at the capacity C [CPU-seconds per second], as if no level below k existed.
//! So the queue of a level fills when the work of this level and of those above it exceeds C,
//! whatever is offered below. Since `B_k ≤ B_(k+1)`, a level is overloaded only after all levels
//! below it. This is strict priority without a queue to sort.
//!
//! A fluid queue is only as right as C. So B never exceeds the remaining cost of the requests in
//! progress: whatever the estimate of C, a server that has done its work has no backlog. The
//! exception is a server that used more CPU than the load line allows. Why not the remaining cost
//! alone: requests that wait for something other than CPU have all of their cost left, and are no
//! backlog.
//!
//! The limit depends on how certain an overload is. Requests arrive at random. At a load of 0.8 of
//! one core, a backlog of a dozen mean requests is chance; a backlog of 50 hardly is. After about a
//! second of offered load above C the overload is certain, and a long queue only makes every
//! request wait. So the limit goes from `LOOSE` to `TIGHT` mean requests while the offered load ρ
//! goes from 1 to `CERTAIN`:
//!
//! ```text
//! T_k = tight + (loose − tight) · clamp((CERTAIN − ρ_k)/(CERTAIN − 1), 0, 1)
//! tight = max(C · target delay, TIGHT · mean cost),   loose = max(tight, LOOSE · mean cost)
//! fill_k = B_k ÷ T_k
//! ```
//!
//! If deadlines are short, requests would be late before the queue is full. Then deadlines and not
//! criticality would decide which requests are shed. So `T_k` is at most half of the mean time to
//! the deadline, but at least `MIN_LIMIT` mean requests.
//!
//! The pessimistic outlook takes a burst for the beginning of an overload: `T_k = max(C · target
//! delay, FEW · mean cost)`.

use core::time::Duration;

use crate::outlook::Outlook;
use crate::{Timestamp, decay};

/// Mean requests. With exponential costs, chance alone gets there for one request in 600 at a load
/// of 0.9, and hardly ever at 0.8. A longer queue would forgive more bursts. But at a load of just
/// 1, where it is often full, every request would wait longer.
const LOOSE: f64 = 48.0;
/// Mean requests: with fewer in progress, cores run dry between two arrivals.
const TIGHT: f64 = 16.0;
/// Mean requests under the pessimistic outlook: two for each core of four.
const FEW: f64 = 8.0;
/// Mean requests. With fewer, a core runs dry between two arrivals, however short the deadlines.
const MIN_LIMIT: f64 = 4.0;
/// The largest backlog without work in progress, in limits of the level. The queue then stays full
/// for some time, also for a customer that asks for little.
const MAX_LEFTOVER: f64 = 4.0;
/// The longest time to a deadline that counts, in seconds. Requests without a deadline count with
/// it.
const MAX_TIME: f64 = 10.0;
/// The offered load, in capacities, from which overload is certain.
const CERTAIN: f64 = 1.25;
/// Half-life of the offered load: it is known to some per cent after a few hundred requests.
const HALF_LIFE: Duration = Duration::from_secs(1);

/// Work of one level and of all levels above it.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    /// CPU-seconds of admitted work that is not done.
    backlog: f64,
    /// CPU-seconds that requests in progress have left.
    in_progress: f64,
    /// CPU-seconds of all requests that arrived, decayed.
    offered: f64,
}

/// Work by criticality. The level of a rank holds the work of all ranks up to it.
#[derive(Clone, Debug)]
pub(super) struct Backlog<const N: usize> {
    levels: [Level; N],
    /// Requests that arrived, their CPU-seconds, and their seconds to the deadline, all decayed.
    requests: (f64, f64, f64),
    at: Timestamp,
}

/// The capacity and the limits on its use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Supply {
    /// CPU-seconds a second.
    pub(super) capacity: f64,
    pub(super) target_delay: Duration,
    /// The part of the limit that is in force.
    pub(super) headroom: f64,
    /// Whether more CPU is used than the load line allows.
    pub(super) is_over: bool,
    pub(super) outlook: Outlook,
}

impl<const N: usize> Backlog<N> {
    pub(super) fn new(now: Timestamp) -> Self {
        Self { levels: [Level::default(); N], requests: (0.0, 0.0, 0.0), at: now }
    }

    /// Drains the backlog for the time that has passed.
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

    /// A request of this rank arrives, with a cost in CPU-seconds and the seconds to its deadline.
    pub(super) fn on_request(&mut self, rank: usize, cost: f64, time: Option<f64>) {
        self.levels[rank..].iter_mut().for_each(|level| level.offered += cost);
        let (count, costs, times) = self.requests;
        self.requests = (count + 1.0, costs + cost, times + time.unwrap_or(MAX_TIME).min(MAX_TIME));
    }

    /// Adds admitted work of this rank, or corrects its cost up or down.
    pub(super) fn add(&mut self, rank: usize, cost: f64) {
        for level in &mut self.levels[rank..] {
            level.backlog = (level.backlog + cost).max(0.0);
            level.in_progress = (level.in_progress + cost).max(0.0);
        }
    }

    /// CPU-seconds were used outside the requests in progress. They delay all levels.
    pub(super) fn delay(&mut self, used: f64) {
        self.levels.iter_mut().for_each(|level| level.backlog += used);
    }

    /// Requests in progress have done `used` CPU-seconds of their work.
    pub(super) fn done(&mut self, rank: usize, used: f64, supply: &Supply) {
        for rank in rank..N {
            // Above the load line, an early end used CPU that is not for requests, and frees no
            // headroom. But one request that cost far more than expected should not block all
            // others for as long as it took.
            let least = if supply.is_over { MAX_LEFTOVER * self.limit(rank, supply) } else { 0.0 };
            let level = &mut self.levels[rank];
            level.in_progress = (level.in_progress - used).max(0.0);
            level.backlog = level.backlog.min(level.in_progress.max(least));
        }
    }

    /// Some work in progress was abandoned and not done. The server may still do it at some time.
    pub(super) fn abandon(&mut self, rank: usize, left: f64) {
        self.levels[rank..].iter_mut().for_each(|level| level.in_progress = (level.in_progress - left).max(0.0));
    }

    /// Raises the backlog for requests that are known to wait. Each level has at least its part of
    /// their work. The requests in progress give the parts; if there are none, the work is of the
    /// last level.
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

    /// The backlog of a level over its limit: 1 is full.
    pub(super) fn fill(&self, rank: usize, supply: &Supply) -> f64 {
        self.levels[rank].backlog / self.limit(rank, supply)
    }

    /// Whether `cost` more stays within the limit. It always fits into an empty queue.
    pub(super) fn fits(&self, rank: usize, cost: f64, supply: &Supply) -> bool {
        let backlog = self.levels[rank].backlog;
        backlog <= 0.0 || backlog + cost <= self.limit(rank, supply)
    }

    /// The limit of all levels together, in mean requests.
    pub(super) fn tolerable(&self, supply: &Supply) -> f64 {
        self.limit(N - 1, supply) / self.mean().max(f64::MIN_POSITIVE)
    }

    /// CPU-seconds of the mean request.
    fn mean(&self) -> f64 {
        self.requests.1 / self.requests.0.max(f64::MIN_POSITIVE)
    }

    /// Seconds to the deadline of the mean request.
    fn time(&self) -> f64 {
        let (count, _, times) = self.requests;
        if count > 0.0 { times / count } else { MAX_TIME }
    }

    /// The limit of a level, in CPU-seconds of backlog.
    pub(super) fn limit(&self, rank: usize, supply: &Supply) -> f64 {
        let level = &self.levels[rank];
        let mean = self.mean();
        let target = supply.capacity * supply.target_delay.as_secs_f64();
        if supply.outlook == Outlook::Pessimistic {
            return target.max(FEW * mean) * supply.headroom;
        }
        let tight = target.max(TIGHT * mean);
        let loose = tight.max(LOOSE * mean);
        let load = decay::rate(level.offered, HALF_LIFE) / supply.capacity;
        let doubt = ((CERTAIN - load) / (CERTAIN - 1.0)).clamp(0.0, 1.0);
        let most = 0.5 * supply.capacity * self.time();
        (tight + (loose - tight) * doubt).min(most.max(MIN_LIMIT * mean)) * supply.headroom
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUPPLY: Supply = Supply {
        capacity: 2.0,
        target_delay: Duration::from_millis(1),
        headroom: 1.0,
        is_over: false,
        outlook: Outlook::Optimistic,
    };

    fn ms(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn work_counts_for_its_level_and_all_below_and_drains_at_capacity() {
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
    fn finished_work_leaves_the_backlog_at_once() {
        let mut backlog = Backlog::<2>::new(ms(0));
        backlog.add(0, 0.1);
        backlog.add(1, 0.1);
        backlog.done(0, 0.08, &SUPPLY);
        assert!(backlog.levels.iter().zip([0.02, 0.12]).all(|(level, left)| (level.backlog - left).abs() < 1e-12));
        backlog.delay(0.01);
        assert!((backlog.all() - 0.13).abs() < 1e-12);
    }

    #[test]
    fn certain_overload_gets_a_smaller_limit_than_a_burst() {
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
    fn waiting_requests_raise_levels_by_their_parts_of_work_in_progress() {
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
    fn leftover_backlog_is_bounded_above_the_load_line() {
        let mut backlog = Backlog::<1>::new(ms(0));
        backlog.on_request(0, 0.01, None);
        let supply = Supply { is_over: true, ..SUPPLY };
        backlog.add(0, 20.0);
        backlog.done(0, 20.0, &supply);
        assert!((backlog.fill(0, &supply) - MAX_LEFTOVER).abs() < 1e-12);
    }

    #[test]
    fn limit_is_half_of_the_mean_time_to_the_deadline_at_most() {
        let limit = |time| {
            let mut backlog = Backlog::<1>::new(ms(0));
            backlog.on_request(0, 0.01, time);
            backlog.limit(0, &SUPPLY)
        };
        assert!((limit(None) - LOOSE * 0.01).abs() < 1e-9);
        assert!((limit(Some(0.25)) - 0.25).abs() < 1e-9, "two CPUs for an eighth of a second");
        assert!((limit(Some(0.001)) - MIN_LIMIT * 0.01).abs() < 1e-9);
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
    fn half_of_the_headroom_is_half_of_the_limit() {
        for outlook in [Outlook::Optimistic, Outlook::Pessimistic] {
            let mut backlog = Backlog::<1>::new(ms(0));
            backlog.on_request(0, 0.01, None);
            let limit = |headroom| backlog.limit(0, &Supply { headroom, outlook, ..SUPPLY });
            assert!((limit(0.5) - limit(1.0) / 2.0).abs() < 1e-12, "{outlook:?}");
        }
    }
}
