//! A server of the tree: it gives leases on the capacity that it has itself.
//!
//! A server is a group of three tasks, one of them the master. A new master knows nothing. For one lease it *learns*:
//! it confirms the capacity that those that ask say they have.

use std::time::Duration;

use plimsoll_core::Timestamp;

use super::share::Share;

/// Tasks of a server.
pub(super) const MASTERS: usize = 3;

/// Times of a lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) lease: Duration,
    /// Time until those that ask shall do so again.
    pub(super) refresh: Duration,
}

/// Capacity for a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Lease {
    /// In µCPU.
    pub(super) capacity: f64,
    pub(super) until: Timestamp,
    /// Time until it is to be renewed; zero where the lease is too short for that.
    pub(super) refresh: Duration,
}

/// The lease, if it is not over.
pub(super) fn valid(lease: Option<Lease>, now: Timestamp) -> Option<Lease> {
    lease.filter(|lease| lease.until > now)
}

/// The name of a task, or of the master of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) node: u32,
    pub(super) master: usize,
}

/// A request for capacity.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    pub(super) name: Name,
    /// In µCPU.
    pub(super) wants: f64,
    pub(super) has: Option<Lease>,
}

/// See the [module](self).
#[derive(Clone, Debug)]
pub(super) struct Server {
    times: Times,
    /// `None`: lost.
    pub(super) master: Option<usize>,
    /// Counts the masters.
    pub(super) term: u32,
    learns_until: Timestamp,
    pub(super) has: Option<Lease>,
    /// Those that have asked: the last request of each, with the lease that it got.
    asked: Vec<Ask>,
}

impl Server {
    pub(super) fn new(now: Timestamp, times: Times) -> Self {
        Self { times, master: Some(0), term: 0, learns_until: now + times.lease, has: None, asked: Vec::new() }
    }

    /// The master is lost, with all that it knows.
    pub(super) fn lose(&mut self) {
        (self.master, self.has) = (None, None);
        self.asked.clear();
        self.term += 1;
    }

    /// Another master begins.
    pub(super) fn elect(&mut self, now: Timestamp, master: usize) {
        self.lose();
        self.master = Some(master);
        self.learns_until = now + self.times.lease;
    }

    /// The sum of all wishes, in µCPU. `None`: nobody has asked.
    pub(super) fn wants(&self) -> Option<f64> {
        (!self.asked.is_empty()).then(|| self.asked.iter().map(|ask| ask.wants).sum())
    }

    /// The lease for one that asks.
    pub(super) fn answer(&mut self, now: Timestamp, ask: Ask) -> Lease {
        self.has = valid(self.has, now);
        let is_learning = now <= self.learns_until;
        if !is_learning {
            self.asked.retain(|ask| ask.has.is_none_or(|lease| lease.until > now));
        }
        let place = self.asked.iter().position(|known| known.name == ask.name);
        let place = place.unwrap_or_else(|| {
            self.asked.push(ask);
            self.asked.len() - 1
        });
        self.asked[place] = Ask { has: None, ..ask };
        let capacity = if is_learning {
            ask.has.map_or(0.0, |lease| lease.capacity)
        } else {
            let capacity = |lease: Option<Lease>| lease.map_or(0.0, |lease| lease.capacity);
            Share {
                wants: ask.wants,
                all_want: self.asked.iter().map(|ask| ask.wants).sum(),
                has: capacity(self.has),
                leased: self.asked.iter().map(|ask| capacity(ask.has)).sum(),
            }
            .capacity()
        };
        let lease = self.lease(now, capacity);
        self.asked[place].has = Some(lease);
        lease
    }

    /// A lease that is not longer than that of the capacity itself.
    fn lease(&self, now: Timestamp, capacity: f64) -> Lease {
        let Times { lease, refresh } = self.times;
        let until = self.has.map_or(now + lease, |has| has.until.min(now + lease));
        let before_end = until.since(now).saturating_sub(Duration::from_secs(1));
        let refresh = if now + refresh >= until { before_end } else { refresh };
        Lease { capacity, until, refresh }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: Times = Times { lease: Duration::from_secs(60), refresh: Duration::from_secs(8) };

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_origin(Duration::from_secs(seconds))
    }

    fn ask(node: u32, wants: f64, has: Option<Lease>) -> Ask {
        Ask { name: Name { node, master: 0 }, wants, has }
    }

    fn with_capacity(now: u64, capacity: f64) -> Option<Lease> {
        Some(Lease { capacity, until: at(now + 60), refresh: TIMES.refresh })
    }

    #[test]
    fn new_master_confirms_leases_until_it_has_learned_all() {
        let mut server = Server::new(at(0), TIMES);
        server.has = with_capacity(0, 100.0);
        assert_eq!(server.answer(at(1), ask(1, 80.0, with_capacity(0, 70.0))).capacity, 70.0);
        assert_eq!(server.answer(at(60), ask(2, 80.0, None)).capacity, 0.0);
        server.has = with_capacity(60, 100.0);
        assert_eq!(server.answer(at(61), ask(1, 80.0, with_capacity(60, 70.0))).capacity, 50.0);
        assert_eq!(server.answer(at(62), ask(2, 80.0, None)).capacity, 50.0);
    }

    #[test]
    fn lease_of_a_lost_master_stays_reserved_until_its_end() {
        let mut server = Server::new(at(0), TIMES);
        server.has = with_capacity(100, 100.0);
        assert_eq!(server.answer(at(100), ask(1, 90.0, None)).capacity, 90.0);
        let successor = Ask { name: Name { node: 1, master: 1 }, wants: 90.0, has: None };
        let other = |now| Ask { has: with_capacity(now, 10.0), ..successor };
        assert_eq!(server.answer(at(110), successor).capacity, 10.0);
        server.has = with_capacity(161, 100.0);
        assert_eq!(server.answer(at(161), other(161)).capacity, 90.0);
    }

    #[test]
    fn lease_ends_with_that_of_the_server() {
        let mut server = Server::new(at(0), TIMES);
        server.has = with_capacity(50, 100.0);
        let lease = server.answer(at(105), ask(1, 10.0, None));
        assert_eq!((lease.until, lease.refresh), (at(110), Duration::from_secs(4)));
        let late = server.answer(at(111), ask(1, 10.0, None));
        assert_eq!((late.capacity, late.until), (0.0, at(171)), "the server has nothing");
    }
}
