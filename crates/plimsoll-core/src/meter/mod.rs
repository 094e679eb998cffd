//! Costs of requests: expected costs for admission, and the overhead of a server.
//!
//! Requests per second say little, since one costs a thousand times as much as another. CPU-seconds
//! are the first resource to run short on most servers, and each request's use can be measured
//! while it runs (SRE ch. 21, "Customer limits"). The shells measure; the machines here remember.
//!
//! - [`Costs`]: the expected cost of the next request of a route and a customer.
//! - [`CostFit`]: costs of requests in a process that reports nothing of itself.
//! - [`Overhead`]: CPU for accepting, reading and writing, outside the own code of requests.

mod cost_fit;
mod costs;
mod overhead;
mod recent_map;

pub use cost_fit::CostFit;
pub use costs::{Costs, Kind};
pub use overhead::{Overhead, UsageTotals};
