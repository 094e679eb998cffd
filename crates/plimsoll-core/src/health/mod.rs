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
//! New requests go to healthy backends only. A lame duck serves what it has and gets nothing new. A
//! backend that refuses is checked again after a delay that doubles, with jitter. Why not one boolean, as
//! most balancers have: a backend that asks to be left alone, one that cannot be reached and one that answers
//! badly want different cures, and an operator wants to know which it was.
//!
//! - [`State`], [`Reason`]: the names; `machine.rs` holds the transitions.
//! - [`CheckConfig`], [`CheckOutcome`]: active checks.
//! - [`OutlierConfig`]: ejection of backends that fail more than their peers (gRFC A50).
//! - `peers.rs`: whether the backend is at fault, or the load of the cluster.
//! - `shared_fault.rs`: whether a failure says something about its backend.
//! - [`SlowStartConfig`]: how much a backend that just came takes.
//! - [`BackoffConfig`]: when to look again at one that refuses.
//! - [`Scope`]: the panic rule, who may be chosen when too few are healthy.

mod backoff;
mod checks;
mod machine;
mod outlier;
mod peers;
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
