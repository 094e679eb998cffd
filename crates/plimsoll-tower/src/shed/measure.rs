//! The cost of a request that has ended.

use std::time::Duration;

/// Measures a request when it ends.
pub trait Measure<Res> {
    /// The cost in units of the capacity, from the response and the time of the polls. The response
    /// is `None` after an error, and while the request still runs. `None`: the request counts with
    /// its expected cost.
    fn cost(&self, response: Option<&Res>, polled: Duration) -> Option<f64>;
}

/// The time of the polls, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PollTime;

impl<Res> Measure<Res> for PollTime {
    fn cost(&self, _response: Option<&Res>, polled: Duration) -> Option<f64> {
        Some(polled.as_secs_f64())
    }
}

/// Measures by a closure: see [`ShedLayer::with_cost`](super::ShedLayer::with_cost).
#[derive(Clone, Copy, Debug)]
pub struct CostBy<F>(pub(super) F);

impl<Res, F: Fn(&Res, Duration) -> f64> Measure<Res> for CostBy<F> {
    fn cost(&self, response: Option<&Res>, polled: Duration) -> Option<f64> {
        response.map(|response| (self.0)(response, polled))
    }
}
