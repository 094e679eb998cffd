//! What one locality can take: its room, and whether it is drained.

use crate::Ratio;

/// What is known of a locality.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Locality {
    /// Backends that may be chosen.
    pub healthy: u32,
    /// All backends that it has.
    pub backends: u32,
    /// Mean utilization of the healthy ones, 1 = at their limit, whoever loads them; `None` where none has reported of late.
    pub utilization: Option<f64>,
}

/// How a locality stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standing {
    /// Requests a second that it can take from this client; `None` while that is not known, and nothing bounds it.
    pub room: Option<f64>,
    /// Requests a second that it gets from this client.
    pub sent: f64,
    /// It gets nothing, too few of its backends being healthy.
    pub is_drained: bool,
}

/// By so much more than what drains it a share of healthy backends has to be for a locality to come back.
const HYSTERESIS: f64 = 0.1;
/// Within so much of the target, as a share of it, the room stands still.
const DEAD_BAND: f64 = 0.02;

/// A locality, as a client sees it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    healthy: Option<u32>,
    pub(super) utilization: Option<f64>,
    pub(super) drained: bool,
    /// Drained, but so are all.
    pub(super) spared: bool,
    /// Requests a second for each healthy backend; `None` while not known.
    room: Option<f64>,
    /// Requests sent, decaying.
    pub(super) sent: f64,
}

impl Place {
    /// Requests a second that it can take.
    pub(super) fn room(&self) -> f64 {
        match (self.drained && !self.spared, self.healthy) {
            (true, _) | (_, Some(0)) => 0.0,
            (false, None) => f64::INFINITY,
            (false, Some(healthy)) => self.room.map_or(f64::INFINITY, |room| room * f64::from(healthy)),
        }
    }

    /// Healthy backends; one until anything is known.
    pub(super) fn healthy(&self) -> u32 {
        self.healthy.unwrap_or(1)
    }

    pub(super) fn see(&mut self, locality: &Locality, drain_below: Ratio) {
        let Locality { healthy, backends, utilization } = *locality;
        let limit = (drain_below.as_f64() + if self.drained { HYSTERESIS } else { 0.0 }).min(1.0);
        self.drained = f64::from(healthy) < limit * f64::from(backends);
        self.healthy = Some(healthy);
        self.utilization = utilization.filter(|utilization| utilization.is_finite());
    }

    /// Moves the room to where utilization says; `left` is what counts of where it was.
    pub(super) fn settle(&mut self, sent: f64, target: f64, cost: f64, left: f64) {
        let healthy = f64::from(self.healthy());
        if healthy == 0.0 {
            return;
        }
        let goal = (sent / healthy + (target - self.utilization.unwrap_or(0.0)) / cost).max(0.0);
        self.room = Some(match self.room {
            None => goal,
            Some(room) if self.utilization.is_some_and(|u| (u / target - 1.0).abs() < DEAD_BAND) => room,
            Some(room) => goal + (room - goal) * left,
        });
    }

    pub(super) fn standing(&self, sent: f64) -> Standing {
        let room = self.room();
        Standing { room: room.is_finite().then_some(room), sent, is_drained: self.drained && !self.spared }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_stands_still_within_two_percent_of_the_target() {
        for (utilization, stands) in [(0.78, false), (0.785, true), (0.8, true), (0.815, true), (0.82, false)] {
            let mut place = Place { healthy: Some(4), utilization: Some(utilization), ..Place::default() };
            place.room = Some(7.0);
            place.settle(100.0, 0.8, 0.01, 0.5);
            assert_eq!(place.room == Some(7.0), stands, "{utilization}: {:?}", place.room);
        }
    }
}
