//! State of one locality: its room, and whether it is drained.

use crate::Ratio;

/// Backends of a locality and their load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Locality {
    /// Backends that may be picked.
    pub healthy: u32,
    /// All backends of the locality.
    pub backends: u32,
    /// Mean utilization of the healthy backends by all clients, 1 at their limit; `None` without
    /// recent reports.
    pub utilization: Option<f64>,
}

/// Room and load of a locality, for display.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standing {
    /// Requests a second that this client may send there; `None` while unknown and unlimited.
    pub room: Option<f64>,
    /// Requests a second that this client sends there.
    pub sent: f64,
    /// Whether it is drained: too few of its backends are healthy.
    pub is_drained: bool,
}

/// Share of healthy backends above the draining limit at which a drained locality returns.
const HYSTERESIS: f64 = 0.1;
/// Distance from the target, as a share of it, within which the room stands still.
const DEAD_BAND: f64 = 0.02;

/// A client's view of a locality.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LocalityState {
    healthy: Option<u32>,
    pub(super) utilization: Option<f64>,
    pub(super) drained: bool,
    /// Whether it is used although drained, because all are.
    pub(super) spared: bool,
    /// Requests a second for each healthy backend; `None` while unknown.
    room: Option<f64>,
    /// Requests sent, decaying.
    pub(super) sent: f64,
}

impl LocalityState {
    /// Requests a second that this client may send there.
    pub(super) fn room(&self) -> f64 {
        match (self.drained && !self.spared, self.healthy) {
            (true, _) | (_, Some(0)) => 0.0,
            (false, None) => f64::INFINITY,
            (false, Some(healthy)) => self.room.map_or(f64::INFINITY, |room| room * f64::from(healthy)),
        }
    }

    /// Healthy backends; one until the first update.
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

    /// Moves the room towards the value for this utilization; `left` is the weight of the old
    /// value.
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
            let mut place =
                LocalityState { healthy: Some(4), utilization: Some(utilization), ..LocalityState::default() };
            place.room = Some(7.0);
            place.settle(100.0, 0.8, 0.01, 0.5);
            assert_eq!(place.room == Some(7.0), stands, "{utilization}: {:?}", place.room);
        }
    }
}
