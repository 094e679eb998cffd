//! The admin API: metrics for machines, JSON for people and scripts, and the switch that drains a backend.
//!
//! It knows nothing of sockets to backends, locks or threads: whoever runs a fleet implements [`Fleet`], whose
//! [`FleetSnapshot`] is all that both metrics and API are written from. So the two can never disagree, and a test
//! needs no proxy.
//!
//! | request | answer |
//! |---|---|
//! | `GET /` | the index of all pages, as text or as JSON; a browser is sent to the live page |
//! | `GET /live/` | the live page |
//! | `GET /metrics` | all metrics, in the OpenMetrics text format, see `docs/metrics.md` |
//! | `GET /healthz` | 200 while the process runs |
//! | `GET /readyz` | 200 while it takes requests, 503 with the reason otherwise |
//! | `GET /api/v1/live` | the state of a page that a person watches: verdict, demand, backends, customers |
//! | `GET /api/v1/live/stream` | the same each second, after ten minutes of history, as server-sent events |
//! | `GET /api/v1/clusters` | all clusters: policy, backends by state, spread and waste |
//! | `GET /api/v1/clusters/{name}` | one of them |
//! | `GET /api/v1/clusters/{name}/backends` | its backends: state and reason, load, latency, counts; `?state=`, `?sort=`, `?limit=`, `?offset=` |
//! | `GET /api/v1/batch` | what waits at listeners for batch work, and how much is at backends |
//! | `GET /api/v1/splits` | splits and mirrors of routes: the verdict on each canary, the fate of copies |
//! | `GET /api/v1/throttling` | the shedding report: a verdict, and the load of one window |
//! | `GET /api/v1/explain` | what became of the latest requests, and why |
//! | `GET /api/v1/explain/{id}` | what became of the requests with this id |
//! | `GET /api/v1/explain/stream` | the same as they happen, as server-sent events |
//! | `GET /api/v1/process` | the process: version, uptime, state, listeners, clusters, the latest reload |
//! | `POST /api/v1/process/reload` | reads the config again; 200 when it is in force, 422 with the problems when not |
//! | `POST /api/v1/process/upgrade` | hands over to a successor; 200 when it serves, 422 with the reason when not |
//! | `POST /api/v1/process/drain` | begins to drain, 202 |
//! | `PUT /api/v1/clusters/{name}/backends/{address}` | the backend by hand: added, or changed in place |
//! | `PATCH /api/v1/clusters/{name}/backends/{address}` | another weight, or a drain |
//! | `DELETE /api/v1/clusters/{name}/backends/{address}` | removed; with `?revoke`, no change by hand any more |
//! | `GET /api/v1/clusters/{name}/overrides` | all changes by hand |
//! | `POST /api/v1/clusters/{name}/backends/{address}/drain` | no new requests to this backend |
//! | `POST /api/v1/clusters/{name}/backends/{address}/undrain` | back again, by way of a check |
//!
//! What was drained outside the subset that this process uses has no state here: its answer says so, and what follows.
//!
//! An error is `{"error": ..., "help": ...}`. What a web page of another origin made a browser send is
//! refused: the API listens at loopback, where browsers are too. So is what asks for a name that is not the fleet's
//! ([`Fleet::is_called`]). Commands to the process, and changes of its
//! backends, are taken from its own user and from root, on its own machine.

#![forbid(unsafe_code)]

mod api;
mod caller;
mod control;
mod discovery;
mod explain;
mod fleet;
mod host;
mod lease;
mod live;
mod metrics;
mod page;
mod process;
mod readiness;
mod round;
mod serve;
mod shedding;
mod snapshot;
mod split;
mod tap;
mod view;

/// The parts of an admin API that know no fleet, for the API of another process.
pub mod parts {
    pub use crate::api::answer::{Form, Problem};
    pub use crate::api::client::{Client, check};
    pub use crate::api::live::event_stream;
    pub use crate::api::{Called, no_foreign_page};
    pub use crate::lease::Lease;
    pub use crate::live::{
        Changes as LiveChanges, History, Look, MAX_BATCH, MAX_CHANGES, MAX_CLUSTERS, MAX_ROWS, MAX_ROWS_OF_MANY,
        MAX_SAMPLES, MAX_VIEWERS, NamedSeries, STEP, Series, Subject, Viewers, event, first_events, live_series, now,
    };
    pub use crate::page::{PATH as PAGE_PATH, for_browser, router as page_router};
    pub use crate::round::significant;
    pub use crate::serve::{serve_router, serve_router_tls};
}

pub use api::router;
pub use control::{
    ClusterStatus, Control, Declined, LastFailedUpgrade, LastReload, ListenerStatus, Pending, ProblemView, ProcessView,
    ReloadView, UpgradeView,
};
pub use discovery::{Changes, DiscoveryView, Known, LastError, Overrides, Unserved};
pub use explain::{
    AttemptExplained, CriticalityExplained, Explained, Explanation, FleetExplained, GateExplained, HashExplained,
    Marks, QuotaExplained, Remembered, RequestLimitExplained, SplitExplained, Wanted,
};
pub use fleet::{BackendOrder, Fleet, Missing, Obeyed, Refused};
pub use live::{
    Live, LiveBackend, LiveBackends, LiveBatch, LiveChange, LiveCluster, LiveClusterRow, LiveClusterSnapshot,
    LiveCustomer, LiveDemand, LiveFleetLimit, LiveGate, LivePage, LiveProcess, LiveSample, LiveSeen, LiveShed,
    LiveSnapshot, LiveSource, LiveTraffic, LiveVerdict,
};
pub use metrics::figures::{BackendFigures, BackendMetrics, ClusterScrape};
pub use metrics::text::{Kind as MetricKind, Writer as MetricWriter};
pub use metrics::{Encoder, Scrape};
pub use readiness::Readiness;
pub use serve::serve;
pub use shedding::{ClassView, CustomerView, EpisodeView, RateView, ShareView, SheddingView, WindowView};
pub use snapshot::{
    BatchSnapshot, ClusterSnapshot, EtcdSnapshot, FleetSnapshot, InboundSnapshot, LastReloadSnapshot, ListenerSnapshot,
    PressureSnapshot, StaleSnapshot, TracesSnapshot,
};
pub use split::{MirrorSnapshot, SideSnapshot, SplitSnapshot};
pub use tap::{Tap, Tapped};
pub use view::{
    BackendView, BatchView, ClusterView, LocalityView, OverrideShown, SpreadView, StateCounts, SwitchedView,
};

/// Runs the example of the README as a test of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
