//! Probes of a backend: its answer about the latency of one more request.

mod latency_by_load;

pub use latency_by_load::LatencyByLoad;
