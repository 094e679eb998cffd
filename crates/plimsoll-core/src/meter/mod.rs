//! What requests cost: the expectation that admission uses before it is known, and what a server uses beside them.
//!
//! Requests per second say little: one costs a thousand times what another does. CPU-seconds are what runs out first on most
//! servers, and can be measured for each request while it runs (SRE ch. 21, "Customer limits"). The shells measure; the machines here
//! remember.
//!
//! - [`Costs`]: what the next request of a route and a customer is expected to cost.
//! - [`Fitted`]: what requests cost in a process that says nothing of itself.
//! - [`Overhead`]: what is used on accepting, reading, and writing, which no request's own code does.

mod costs;
mod fitted;
mod overhead;
mod recent;

pub use costs::{Costs, Kind};
pub use fitted::Fitted;
pub use overhead::{Overhead, Used};
