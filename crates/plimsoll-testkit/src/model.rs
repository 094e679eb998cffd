//! The rules of a cluster's states in their plainest form: O(n), no derived tables, no timers.
//!
//! It takes the same facts as a [`Balancer`](plimsoll_core::Balancer), and gives each backend's
//! state and active requests, the backends that may be picked, and whether there is panic. The
//! rules leave open the choice among usable backends, the time of the next check, and success-rate
//! ejection (turn that off to compare).

use std::collections::BTreeMap;

use plimsoll_core::health::{CheckOutcome, State};
use plimsoll_core::{BackendId, BalancerConfig, Outcome, Timestamp};

/// One backend.
#[derive(Clone, Debug)]
pub struct Backend {
    /// Its state.
    pub state: State,
    /// Requests picked and not finished.
    pub active: u32,
    /// Whether it refuses connections, as opposed to failing its checks.
    pub unreachable: bool,
    drained: bool,
    passes: u32,
    check_failures: u32,
    failures_in_a_row: u32,
    /// Whether all of these were timeouts.
    only_timeouts: bool,
    /// Length of this row at the last comparison with its peers.
    compared_at: u32,
    /// Requests that ended in this and in the previous interval: all, and those with a timeout or
    /// an overloaded answer.
    ended: [(u32, u32); 2],
    /// Share of failures among about the last ten requests.
    failing: f64,
    ejections: u32,
    ejected_until: Timestamp,
}

/// The cluster.
#[derive(Clone, Debug)]
pub struct Model {
    config: BalancerConfig,
    backends: BTreeMap<BackendId, Backend>,
    /// Time at which each backend's ejections are next forgiven one.
    next_sweep: Timestamp,
}

impl Model {
    /// A cluster without backends.
    #[must_use]
    pub fn new(config: BalancerConfig) -> Self {
        Self { config, backends: BTreeMap::new(), next_sweep: Timestamp::ZERO }
    }

    /// The members.
    pub fn backends(&self) -> impl Iterator<Item = (BackendId, &Backend)> {
        self.backends.iter().map(|(id, backend)| (*id, backend))
    }

    /// Adds a backend with this id.
    pub fn add(&mut self, id: BackendId) {
        let backend = Backend {
            state: State::Connecting,
            active: 0,
            unreachable: false,
            drained: false,
            passes: 0,
            check_failures: 0,
            failures_in_a_row: 0,
            only_timeouts: true,
            compared_at: 0,
            ended: [(0, 0); 2],
            failing: 0.0,
            ejections: 0,
            ejected_until: Timestamp::ZERO,
        };
        assert!(self.backends.insert(id, backend).is_none(), "{id} was given out twice");
    }

    /// Removes a backend.
    pub fn remove(&mut self, id: BackendId) {
        self.backends.remove(&id);
    }

    /// Records a request sent to `id`.
    pub fn picked(&mut self, id: BackendId) {
        if let Some(backend) = self.backends.get_mut(&id) {
            backend.active += 1;
        }
    }

    /// Records the end of a request.
    pub fn finish(&mut self, now: Timestamp, id: BackendId, outcome: Outcome) {
        let explained_by_load = self.is_explained_by_load(id);
        let peers: Vec<f64> = self.peers(id).map(|peer| peer.failing).collect();
        let mean = peers.iter().sum::<f64>() / peers.len().max(1) as f64;
        let may_eject = self.may_eject();
        let config = self.config.outlier;
        let Some(backend) = self.backends.get_mut(&id) else { return };
        backend.active -= 1;
        backend.ended[0].0 += u32::from(outcome != Outcome::Cancelled);
        backend.ended[0].1 += u32::from(matches!(outcome, Outcome::TimedOut | Outcome::Overloaded));
        match outcome {
            Outcome::Success | Outcome::RateLimited => {
                backend.end_row();
                backend.failing -= backend.failing * 0.1;
                return;
            }
            Outcome::Failure | Outcome::TimedOut => backend.failures_in_a_row += 1,
            Outcome::Overloaded | Outcome::Cancelled => return,
        }
        backend.only_timeouts &= outcome == Outcome::TimedOut;
        backend.failing += (1.0 - backend.failing) * 0.1;
        let (row, last) = (backend.failures_in_a_row, backend.compared_at);
        let is_long = config.consecutive_failures.is_some_and(|most| row >= most.get());
        if !is_long || last > 0 && row <= last + last / 4 {
            return;
        }
        backend.compared_at = row;
        let by_chance = mean.powf(f64::from(row)) > 1e-6;
        let by_load = backend.only_timeouts && explained_by_load;
        if backend.state == State::Healthy && may_eject && !by_chance && !by_load {
            backend.state = State::Ejected;
            backend.end_row();
            backend.ejections += 1;
            backend.ejected_until = now + (config.base_ejection * backend.ejections).min(config.max_ejection);
        }
    }

    /// Takes a load report, with or without the lame-duck flag.
    pub fn report(&mut self, id: BackendId, lame_duck: bool) {
        if let Some(backend) = self.backends.get_mut(&id)
            && lame_duck
            && matches!(backend.state, State::Healthy | State::Ejected)
        {
            backend.state = State::LameDuck;
        }
    }

    /// Records a new connection.
    pub fn connected(&mut self, id: BackendId) {
        if let Some(backend) = self.backends.get_mut(&id)
            && !self.config.checks.active
            && matches!(backend.state, State::Connecting | State::Refusing)
        {
            backend.heal();
        }
    }

    /// Records a failed attempt to connect.
    pub fn connect_failed(&mut self, id: BackendId) {
        if let Some(backend) = self.backends.get_mut(&id).filter(|backend| !backend.drained) {
            backend.state = State::Refusing;
            backend.unreachable = true;
        }
    }

    /// Records the end of the process behind a lame duck.
    pub fn process_ended(&mut self, id: BackendId) {
        if let Some(backend) = self.backends.get_mut(&id)
            && backend.state == State::LameDuck
            && !backend.drained
        {
            backend.state = State::Refusing;
            backend.unreachable = true;
        }
    }

    /// Takes the outcome of a check.
    pub fn check(&mut self, id: BackendId, outcome: CheckOutcome) {
        let checks = self.config.checks;
        let Some(backend) = self.backends.get_mut(&id).filter(|backend| !backend.drained) else { return };
        if outcome == CheckOutcome::NotMade {
            return;
        }
        backend.passes = if outcome == CheckOutcome::Passed { backend.passes + 1 } else { 0 };
        backend.check_failures = match outcome {
            CheckOutcome::Passed | CheckOutcome::NotServing | CheckOutcome::NotMade => 0,
            CheckOutcome::Failed | CheckOutcome::Unreachable => backend.check_failures + 1,
        };
        match (outcome, backend.state) {
            (CheckOutcome::Passed, State::Connecting | State::LameDuck) => backend.heal(),
            (CheckOutcome::Passed, State::Refusing) if backend.passes >= checks.passes_to_heal.get() => backend.heal(),
            (CheckOutcome::Passed | CheckOutcome::NotMade, _) => {}
            (CheckOutcome::NotServing, _) => backend.state = State::LameDuck,
            (CheckOutcome::Unreachable, _) => {
                backend.state = State::Refusing;
                backend.unreachable = true;
            }
            (CheckOutcome::Failed, state) => {
                let known_ill = matches!(state, State::Connecting | State::Refusing);
                if known_ill || backend.check_failures >= checks.failures_to_refuse.get() {
                    backend.state = State::Refusing;
                    backend.unreachable = false;
                }
            }
        }
    }

    /// Drains a backend, as an operator does.
    pub fn drain(&mut self, id: BackendId) {
        if let Some(backend) = self.backends.get_mut(&id) {
            backend.drained = true;
            backend.state = State::LameDuck;
        }
    }

    /// Ends a drain.
    pub fn undrain(&mut self, id: BackendId) {
        if let Some(backend) = self.backends.get_mut(&id).filter(|backend| backend.drained) {
            backend.drained = false;
            backend.state = State::Connecting;
            (backend.passes, backend.check_failures) = (0, 0);
        }
    }

    /// Advances to `now`: ends ejections that are due.
    pub fn timeout(&mut self, now: Timestamp) {
        for backend in self.backends.values_mut() {
            if backend.state == State::Ejected && backend.ejected_until <= now {
                backend.state = State::Healthy;
            }
        }
        if self.next_sweep <= now {
            self.next_sweep = now + self.config.outlier.interval;
            for backend in self.backends.values_mut() {
                backend.ended = [(0, 0), backend.ended[0]];
            }
            for backend in self.backends.values_mut().filter(|backend| backend.state != State::Ejected) {
                backend.ejections = backend.ejections.saturating_sub(1);
            }
        }
    }

    /// Whether too few backends are healthy: less than the threshold's share of all but lame ducks
    /// and connecting ones. There is no panic while some are still connecting and all others are
    /// unreachable.
    #[must_use]
    pub fn panicking(&self) -> bool {
        if self.starting() && self.count(Backend::is_reachable) == 0 {
            return false;
        }
        let healthy = self.count(|backend| backend.state == State::Healthy);
        let known = self.count(|backend| !matches!(backend.state, State::Connecting | State::LameDuck));
        known > 0 && (healthy == 0 || (healthy as f64) < self.config.panic_threshold.as_f64() * known as f64)
    }

    /// The backends that a pick may name.
    #[must_use]
    pub fn usable(&self) -> Vec<BackendId> {
        let limit = self.config.max_active_requests.get();
        self.in_scope().into_iter().filter(|id| self.backends[id].active < limit).collect()
    }

    /// The backends that states and panic threshold admit, apart from flow control.
    #[must_use]
    pub fn in_scope(&self) -> Vec<BackendId> {
        let healthy = |backend: &Backend| backend.state == State::Healthy;
        let anybody = |backend: &Backend| !matches!(backend.state, State::Connecting | State::LameDuck);
        if !self.panicking() {
            self.ids(healthy)
        } else if self.count(Backend::is_reachable) > 0 {
            self.ids(Backend::is_reachable)
        } else {
            self.ids(anybody)
        }
    }

    /// Whether a backend has yet to be reached for the first time.
    #[must_use]
    pub fn starting(&self) -> bool {
        self.count(|backend| backend.state == State::Connecting) > 0
    }

    fn peers(&self, id: BackendId) -> impl Iterator<Item = &Backend> {
        let is_peer = move |of: &BackendId, backend: &Backend| *of != id && backend.state == State::Healthy;
        self.backends.iter().filter(move |(of, backend)| is_peer(of, backend)).map(|(_, backend)| backend)
    }

    /// Whether load may explain a backend's timeouts: most of its peers fail, or one in thirty
    /// requests at the others finds no capacity.
    fn is_explained_by_load(&self, id: BackendId) -> bool {
        let serving: Vec<&Backend> = self.peers(id).filter(|peer| peer.failing < 0.5).collect();
        let (all, full) =
            serving.iter().flat_map(|peer| peer.ended).fold((0, 0), |(all, full), of| (all + of.0, full + of.1));
        2 * serving.len() < self.peers(id).count() || full > 0 && 30 * full >= all
    }

    fn may_eject(&self) -> bool {
        let most = (self.config.outlier.max_ejected.as_f64() * self.backends.len() as f64).floor().max(1.0) as usize;
        self.count(|backend| backend.state == State::Ejected) < most
            && self.count(|backend| backend.state == State::Healthy) > 1
    }

    fn count(&self, which: impl Fn(&Backend) -> bool) -> usize {
        self.backends.values().filter(|backend| which(backend)).count()
    }

    fn ids(&self, which: impl Fn(&Backend) -> bool) -> Vec<BackendId> {
        self.backends.iter().filter(|(_, backend)| which(backend)).map(|(id, _)| *id).collect()
    }
}

impl Backend {
    /// Whether it accepts connections and wants requests, as far as is known.
    fn is_reachable(&self) -> bool {
        match self.state {
            State::Healthy | State::Ejected => true,
            State::Refusing => !self.unreachable,
            State::Connecting | State::LameDuck => false,
        }
    }

    fn end_row(&mut self) {
        (self.failures_in_a_row, self.only_timeouts, self.compared_at) = (0, true, 0);
    }

    fn heal(&mut self) {
        self.state = State::Healthy;
        self.check_failures = 0;
    }
}
