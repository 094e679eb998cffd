//! What can be set about a server's layer, and what it is by default.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use plimsoll_core::Ratio;
use plimsoll_core::admit::{Mode, Outlook, QueueConfig, Quota};
use plimsoll_core::classify::{Classifier, Trust};
use plimsoll_core::report::DEFAULT_WINDOW;
use plimsoll_core::signal::ScarceConfig;

use super::admission::{Gate, Gauge};
use super::available::Available;
use super::classify::Rules;
use super::context::{Cohort, Customer, RequestHead};
use super::layer::ServerLayer;
use super::lifecycle::Lifecycle;
use super::places::Places;
use super::report::{ReportSource, Reporter};
use crate::system::LEAST_CPUS;

/// What can be set about a [`ServerLayer`].
#[must_use]
pub struct ServerLayerBuilder {
    lifecycle: Lifecycle,
    window: Duration,
    cpus: Option<f64>,
    source: Option<Box<dyn ReportSource>>,
    readiness_path: Option<Arc<str>>,
    rules: Rules,
    admission: Option<Mode>,
    outlook: Outlook,
    gauge: Option<Gauge>,
    scarce: ScarceConfig,
    concurrency: Option<QueueConfig>,
}

impl ServerLayerBuilder {
    pub(super) fn new(lifecycle: Lifecycle) -> Self {
        Self {
            lifecycle,
            window: DEFAULT_WINDOW,
            cpus: None,
            source: None,
            readiness_path: None,
            rules: Rules::default(),
            admission: Some(Mode::default()),
            outlook: Outlook::default(),
            gauge: None,
            scarce: ScarceConfig::default(),
            concurrency: None,
        }
    }

    /// The window over which rates and CPU are averaged: default 1 s, at least 100 ms.
    pub fn window(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// The CPUs that 100% utilization stands for: by default all that the process may use; its control group's quota is looked at each
    /// second, as it may be changed in place. A server that can only keep one thread busy is full at 1.0. At least a hundredth of a CPU.
    pub fn cpus(mut self, cpus: f64) -> Self {
        self.cpus = cpus.is_finite().then(|| cpus.max(LEAST_CPUS));
        self
    }

    /// Reports what `source` makes of the measured load.
    pub fn source(mut self, source: impl ReportSource) -> Self {
        self.source = Some(Box::new(source));
        self
    }

    /// Answers GET and HEAD of `path` (`/readyz`, say): 200 while requests are welcome, else 503. By
    /// default no path is taken from the service.
    pub fn readiness_path(mut self, path: impl Into<Arc<str>>) -> Self {
        self.readiness_path = Some(path.into());
        self
    }

    /// What is done about too much load: by default [`Mode::Protect`]. `None`: nothing, and no cost is measured;
    /// requests still have their [`RequestContext`](super::RequestContext).
    pub fn admission(mut self, mode: impl Into<Option<Mode>>) -> Self {
        self.admission = mode.into();
        self
    }

    /// What the server expects of a load that it does not know yet: by default [`Outlook::Optimistic`]. With
    /// [`Outlook::Pessimistic`] there is never more work than its line allows, whatever comes at once; what a request may cost is
    /// kept free for it, and so some of the CPU is not used.
    ///
    /// ```
    /// use plimsoll::server::{Lifecycle, Outlook, ServerLayer};
    ///
    /// let layer = ServerLayer::builder(Lifecycle::new()).outlook(Outlook::Pessimistic).build();
    /// ```
    pub fn outlook(mut self, outlook: Outlook) -> Self {
        self.outlook = outlook;
        self
    }

    /// How far callers are believed. By default they are strangers: they may make their requests
    /// less critical than [`Criticality::Critical`](plimsoll_core::Criticality::Critical) and not
    /// more. Their attempt counts are not read (unless they are trusted with a
    /// [`customer_header`](Self::customer_header)). With [`Trust::Full`] both claims are believed.
    /// Use it only where all callers are services of your own, or a proxy of your own that caps
    /// strangers' claims. One believed caller can have the requests of all others shed.
    ///
    /// A claim that is not believed is replaced in the headers of the request, so that the service does not pass it on. Deadlines are
    /// believed of everybody: a short one harms its sender alone.
    ///
    /// ```
    /// use plimsoll::server::{Lifecycle, ServerLayer, Trust};
    ///
    /// let layer = ServerLayer::builder(Lifecycle::new()).trust(Trust::Full).build();
    /// ```
    pub fn trust(mut self, trust: Trust) -> Self {
        self.rules.classifier.trust = trust;
        self
    }

    /// Sets the same, and the criticality of requests without a claim, or with one that is not
    /// believed.
    pub fn criticality(mut self, classifier: Classifier) -> Self {
        self.rules.classifier = classifier;
        self
    }

    /// The customer of a request is named by this header, once: a request that names two has none.
    /// Set it only where its senders are trusted: customers that take others' names take their
    /// shares. By default all requests are of one customer.
    pub fn customer_header(mut self, header: HeaderName) -> Self {
        self.rules.customer_header = Some(header);
        self
    }

    /// The customer of a request is named by this rule: from a verified token, say. Where it names none, the header does.
    ///
    /// What is sent with [`plimsoll::client`](crate::client) on its behalf names it in [`customer_header`](Self::customer_header), or where
    /// [`Customer::carried_in`] says; where neither is set, it names none.
    pub fn customer_by(mut self, rule: impl Fn(RequestHead<'_>) -> Option<Customer> + Send + Sync + 'static) -> Self {
        self.rules.customer = Some(Box::new(rule));
        self
    }

    /// Requests that have the same value in this header are of one cohort: under overload they are taken on or turned away together,
    /// and so are they by all servers that have it so, in front of this one, beside it and behind. For tasks that ask several
    /// times, and sessions, which are of use only as a whole. By default each request is by itself.
    ///
    /// Only a header that your own edge sets, or takes off: which cohorts are in luck changes with each hour, but is no secret, and
    /// strangers who may choose theirs find a lucky one. There have to be many: of a few, all may be in luck or none.
    ///
    /// What is sent with [`plimsoll::client`](crate::client) on behalf of a request carries its header on.
    ///
    /// ```
    /// use http::HeaderName;
    /// use plimsoll::server::{Lifecycle, ServerLayer};
    ///
    /// let layer =
    ///     ServerLayer::builder(Lifecycle::new()).cohort_header(HeaderName::from_static("x-session")).build();
    /// ```
    pub fn cohort_header(mut self, header: HeaderName) -> Self {
        self.rules.cohort_header = Some(header);
        self
    }

    /// The cohort of a request is named by this rule: by a verified token, or the number of a task, say. Where it names none,
    /// [`cohort_header`](Self::cohort_header) does.
    ///
    /// What is sent with [`plimsoll::client`](crate::client) on behalf of the request names it in that header, or where
    /// [`Cohort::carried_in`] says; where neither is set, it names none, and those behind know of no cohort.
    pub fn cohort_by(mut self, rule: impl Fn(RequestHead<'_>) -> Option<Cohort> + Send + Sync + 'static) -> Self {
        self.rules.cohort = Some(Box::new(rule));
        self
    }

    /// The quota of each customer. `None` for customers that the rule does not know: they have the
    /// [`default_quota`](Self::default_quota).
    ///
    /// It is called for each request, so quotas may change at any time. It must not block.
    ///
    /// ```
    /// use http::HeaderName;
    /// use plimsoll::server::{InvalidQuota, Lifecycle, Quota, ServerLayer};
    ///
    /// let crawler = Quota::hard(0.5)?;
    /// let layer = ServerLayer::builder(Lifecycle::new())
    ///     .customer_header(HeaderName::from_static("x-customer"))
    ///     .quota_by(move |customer| (customer.name() == b"crawler").then_some(crawler))
    ///     .build();
    /// # Ok::<_, InvalidQuota>(())
    /// ```
    ///
    /// An invalid quota is an error and no `None`, which would lift the limit:
    ///
    /// ```compile_fail,E0271
    /// use plimsoll::server::{Lifecycle, Quota, ServerLayer};
    ///
    /// let builder = ServerLayer::builder(Lifecycle::new()).quota_by(|_| Quota::hard(-1.0));
    /// ```
    pub fn quota_by(mut self, rule: impl Fn(&Customer) -> Option<Quota> + Send + Sync + 'static) -> Self {
        self.rules.quota = Some(Box::new(rule));
        self
    }

    /// The quota of each customer that [`quota_by`](Self::quota_by) does not know. Requests without a
    /// customer together are one of these. By default [`Quota::UNLIMITED`].
    pub fn default_quota(mut self, quota: Quota) -> Self {
        self.rules.default_quota = quota;
        self
    }

    /// Requests for which `route` gives the same number are expected to cost alike. By default those of the same method and path do;
    /// where paths hold names without end (`/users/7`), what comes before the name makes a better one.
    pub fn route_by(mut self, route: impl Fn(RequestHead<'_>) -> u64 + Send + Sync + 'static) -> Self {
        self.rules.route = Some(Box::new(route));
        self
    }

    /// Requests of which this says so are served whatever the load, and not charged. Health checks, reports and readiness are, in any case.
    pub fn exempt(mut self, exempt: impl Fn(RequestHead<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.rules.exempt = Some(Box::new(exempt));
        self
    }

    /// A further measure of how loaded the server is, beside its CPU: 1 is as much as it can bear, from there on requests are turned
    /// away. Asked about a hundred times a second, on the path of a request: it must not block.
    pub fn gauge(mut self, gauge: impl Fn() -> f64 + Send + Sync + 'static) -> Self {
        self.gauge = Some(Box::new(gauge));
        self
    }

    /// From which used part of its memory on the server looks at whether that is running out: by default 90%; `None`: never. The memory is
    /// that of its control group, else of the machine. While it would be full within ten seconds at the rate of late, there are fewer
    /// requests in progress at a time; one that is always nearly full, as heaps and caches are, turns nobody away.
    pub fn memory(mut self, line: impl Into<Option<Ratio>>) -> Self {
        self.scarce.memory = line.into();
        self
    }

    /// For which part of the time some task of the server's control group, else of the machine, may wait for a CPU (PSI, `some`): by
    /// default that is not looked at, for a busy server that is well has somebody wait most of the time. Above it there are
    /// fewer requests in progress at a time. For servers that share CPUs with what must not be slowed down.
    pub fn cpu_pressure(mut self, most: impl Into<Option<Ratio>>) -> Self {
        self.scarce.cpu_pressure = most.into();
        self
    }

    /// The same for memory: the time that goes into getting back what was thrown out a moment ago. By default it is not looked at;
    /// 10% is much. For servers whose memory may be swapped, or that work on files in memory.
    pub fn memory_pressure(mut self, most: impl Into<Option<Ratio>>) -> Self {
        self.scarce.memory_pressure = most.into();
        self
    }

    /// At most so many requests are in progress at a time, and others wait for a place: by default there is no such limit. For what is
    /// not CPU and is held by each, such as connections to a database. The most critical are next, and under overload the newest among
    /// equals ([`Queue`](plimsoll_core::admit::Queue)). A response has its place until its body has ended.
    ///
    /// ```
    /// use plimsoll::server::{Lifecycle, QueueConfig, ServerLayer};
    ///
    /// let layer = ServerLayer::builder(Lifecycle::new()).concurrency_limit(QueueConfig::new(32)).build();
    /// ```
    pub fn concurrency_limit(mut self, limit: impl Into<Option<QueueConfig>>) -> Self {
        self.concurrency = limit.into();
        self
    }

    /// The layer.
    #[must_use]
    pub fn build(self) -> ServerLayer {
        let available = Arc::new(Available::new(self.cpus));
        let gate = self.admission.map(|mode| Gate::new(&available, self.outlook, mode, self.gauge, &self.scarce));
        ServerLayer {
            reporter: Reporter::new(self.lifecycle, self.window, available, self.source),
            readiness_path: self.readiness_path,
            rules: Arc::new(self.rules),
            gate,
            places: self.concurrency.map(|limit| Places::new(limit, self.admission.unwrap_or_default())),
        }
    }
}
