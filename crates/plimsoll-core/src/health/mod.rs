//! The state of a backend, as one client sees it, and the rules that change it.
//!
//! ```text
//!            passed                      flag, NOT_SERVING, drain
//! Connecting ───────────────▶ Healthy ◀────────────────────────▶ LameDuck
//!     │                        │   ▲  ▲                              │
//!     │ refused     refused or │   │  └── time is up ── Ejected ◀─────┼── outlier (from Healthy)
//!     ▼        checks failing  ▼   │ passed                           │ gone
//!  Refusing ◀───────────────────   └───────── Refusing ◀──────────────┘
//! ```
//!
//! New requests go to healthy backends only. A lame duck finishes its requests and gets no new
//! ones. A refusing backend is checked again after a delay that doubles, with jitter. Most
//! balancers have one boolean instead. Several states are better: a lame duck, an unreachable
//! backend and an outlier need different cures, and an operator wants to know which it was.
//!
//! - [`State`], [`Reason`]: the names.
//! - [`CheckConfig`], [`CheckOutcome`]: active checks.
//! - [`OutlierConfig`]: ejection of backends that fail more than their peers (gRFC A50).
//! - [`SlowStartConfig`]: the share of a new backend.
//! - [`BackoffConfig`]: the waits between checks of a refusing backend.
//! - [`Scope`]: the panic threshold, and the backends that may be chosen below it.

// - `machine.rs` holds the transitions.
// - `peers.rs`: whether the backend is at fault, or the load of the cluster.
// - `probed.rs`: checks of a backend that probes observe.
// - `shared_fault.rs`: whether a failure is evidence against its backend.

mod backoff;
mod checks;
mod machine;
mod outlier;
mod peers;
mod probed;
mod scope;
mod shared_fault;
mod slow_start;
mod state;

pub use backoff::BackoffConfig;
pub use checks::{CheckConfig, CheckOutcome};
pub use outlier::OutlierConfig;
pub use scope::{Census, Scope};
pub use slow_start::SlowStartConfig;
pub use state::{Reason, State};

pub(crate) use machine::{Change, Health};
pub(crate) use outlier::{Outlier, SuccessRateFloor};
pub(crate) use peers::{Row, Tally, has_capacity};
pub(crate) use scope::eligible;
pub(crate) use shared_fault::SharedFaults;
