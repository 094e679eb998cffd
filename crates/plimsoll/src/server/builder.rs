//! The settings of a server's layer, with their defaults.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use plimsoll_core::Ratio;
use plimsoll_core::admit::{Mode, Outlook, QueueConfig, Quota};
use plimsoll_core::classify::{Classifier, Trust};
use plimsoll_core::report::DEFAULT_WINDOW;
use plimsoll_core::signal::ResourceConfig;
use plimsoll_system::{MIN_CPUS, MachineSpeed};

use super::admission::{Gate, Gauge};
use super::available::Available;
use super::classify::Rules;
use super::context::{Cohort, Customer, RequestHead};
use super::cost;
use super::cpu;
use super::gate::ServerGate;
use super::layer::ServerLayer;
use super::lifecycle::Lifecycle;
use super::places::Places;
use super::report::{ReportSource, Reporter};

/// The settings of a [`ServerLayer`].
#[must_use]
pub struct ServerLayerBuilder {
    lifecycle: Lifecycle,
    window: Duration,
    cpus: Option<f64>,
    cpu: cpu::Clock,
    speed: Option<MachineSpeed>,
    source: Option<Box<dyn ReportSource>>,
    readiness_path: Option<Arc<str>>,
    has_cost_header: bool,
    rules: Rules,
    admission: Option<Mode>,
    outlook: Outlook,
    gauge: Option<Gauge>,
    scarce: ResourceConfig,
    concurrency: Option<QueueConfig>,
    #[cfg(feature = "test-util")]
    seed: Option<u64>,
}

impl ServerLayerBuilder {
    pub(super) fn new(lifecycle: Lifecycle) -> Self {
        Self {
            lifecycle,
            window: DEFAULT_WINDOW,
            cpus: None,
            cpu: cpu::Clock::default(),
            speed: None,
            source: None,
            readiness_path: None,
            has_cost_header: false,
            rules: Rules::default(),
            admission: Some(Mode::default()),
            outlook: Outlook::default(),
            gauge: None,
            scarce: ResourceConfig::default(),
            concurrency: None,
            #[cfg(feature = "test-util")]
            seed: None,
        }
    }

    /// The seed of the gate's random decisions, for a test. By default each process has another one.
    #[cfg(feature = "test-util")]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The window over which rates and CPU are averaged: default 1 s, at least 100 ms.
    pub fn window(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// The CPUs that 100% utilization stands for, at least a hundredth.
    ///
    /// By default all that the process may use. The quota of its control group is read again each
    /// second. Set it to 1.0 for a server that can keep only one thread busy.
    pub fn cpus(mut self, cpus: f64) -> Self {
        self.cpus = cpus.is_finite().then(|| cpus.max(MIN_CPUS));
        self
    }

    /// The CPU time that the server has used since its start, where its work runs elsewhere.
    ///
    /// For example in worker processes. By default it is that of this process, and the code of each
    /// request is timed on its threads. With a clock of your own nothing is timed: charge the work
    /// of each request with [`RemoteWork`](super::RemoteWork).
    ///
    /// It is called about a hundred times a second, in the path of a request. It must not block.
    pub fn cpu_clock(mut self, used: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        self.cpu = cpu::Clock::by(used);
        self
    }

    /// The speed of this machine, relative to the reference core. By default 1, and reports name
    /// none.
    ///
    /// Quotas and the `cpu` of reported request costs are in reference CPU-seconds, so that they
    /// hold on every type of machine: local seconds × speed. [`MachineSpeed::calibrated`] measures
    /// the speed, once for each process. Utilization needs no speed.
    ///
    /// ```
    /// use plimsoll::server::{Lifecycle, MachineSpeed, ServerLayer};
    ///
    /// let layer = ServerLayer::builder(Lifecycle::new()).speed(MachineSpeed::calibrated()).build();
    /// assert!(layer.load().speed.is_some());
    /// ```
    pub fn speed(mut self, speed: impl Into<MachineSpeed>) -> Self {
        self.speed = Some(speed.into());
        self
    }

    /// Replaces the measured load in reports by the result of `source`.
    pub fn source(mut self, source: impl ReportSource) -> Self {
        self.source = Some(Box::new(source));
        self
    }

    /// Answers GET and HEAD of `path`, such as `/readyz`: 200 while the server is ready, else 503.
    ///
    /// By default the layer takes no path from the service.
    pub fn readiness_path(mut self, path: impl Into<Arc<str>>) -> Self {
        self.readiness_path = Some(path.into());
        self
    }

    /// Whether responses carry the CPU cost of their request in the header `x-plimsoll-cost-us`.
    ///
    /// It is in reference CPU-microseconds, up to the response head, and needs [admission](Self::admission).
    /// A proxy can charge its rate limits with it.
    pub fn cost_header(mut self, has: bool) -> Self {
        self.has_cost_header = has;
        self
    }

    /// The reaction to overload: by default [`Mode::Protect`].
    ///
    /// `None` sheds nothing and measures no cost. Requests still have their
    /// [`RequestContext`](super::RequestContext).
    pub fn admission(mut self, mode: impl Into<Option<Mode>>) -> Self {
        self.admission = mode.into();
        self
    }

    /// The assumption about load of unknown cost: by default [`Outlook::Optimistic`].
    ///
    /// With [`Outlook::Pessimistic`] the admitted work never exceeds its limit, not even in a
    /// burst. The server reserves the CPU that a request may cost, so some CPU stays idle.
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

    /// The trust in the claims of callers. By default they are strangers.
    ///
    /// A stranger may make its requests less critical than
    /// [`Criticality::Critical`](plimsoll_core::Criticality::Critical), but not more. Its attempt
    /// counts are ignored, unless it is trusted with a [`customer_header`](Self::customer_header).
    /// With [`Trust::Full`] both claims count. Use it only where all callers are services of your
    /// own, or a proxy of your own that caps strangers' claims: one trusted caller can have the
    /// requests of all others shed.
    ///
    /// The layer replaces an untrusted claim in the request's headers, so that the service does not
    /// pass it on. Deadlines always count, because a short one harms its sender alone.
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

    /// The trust in callers, and the criticality of requests without a trusted claim.
    pub fn criticality(mut self, classifier: Classifier) -> Self {
        self.rules.classifier = classifier;
        self
    }

    /// The header that names the customer of a request.
    ///
    /// A request with two such headers has no customer. Set it only where senders are trusted: a
    /// customer that takes the name of another takes its share. By default all requests are of one
    /// customer.
    pub fn customer_header(mut self, header: HeaderName) -> Self {
        self.rules.customer_header = Some(header);
        self
    }

    /// A rule that names the customer of a request, for example from a verified token.
    ///
    /// Where it returns `None`, the [`customer_header`](Self::customer_header) counts. Requests
    /// that [`plimsoll::client`](crate::client) sends on behalf of the customer carry its name in
    /// that header, or in the one of [`Customer::carried_in`]. Where neither is set they carry
    /// none.
    pub fn customer_by(mut self, rule: impl Fn(RequestHead<'_>) -> Option<Customer> + Send + Sync + 'static) -> Self {
        self.rules.customer = Some(Box::new(rule));
        self
    }

    /// The header that names the cohort of a request: a session, or a task of several requests.
    ///
    /// Under overload, all requests of a cohort are admitted, or all are shed, by all servers with
    /// this setting. Use it where some requests of a session are of no use without the others. By
    /// default each request is a cohort of its own.
    ///
    /// Use only a header that your own edge sets or removes. The draw of a cohort changes each
    /// hour, but it is no secret: strangers that can choose a cohort find one that is admitted.
    /// There have to be many cohorts: of a few, all may be admitted or none.
    ///
    /// Requests that [`plimsoll::client`](crate::client) sends on behalf of a request carry its
    /// header.
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

    /// A rule that names the cohort of a request, for example from a verified token or a task
    /// number.
    ///
    /// Where it returns `None`, the [`cohort_header`](Self::cohort_header) counts. Requests that
    /// [`plimsoll::client`](crate::client) sends on behalf of a request carry the cohort in that
    /// header, or in the one of [`Cohort::carried_in`]. Where neither is set they carry none.
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

    /// The quota of each customer that [`quota_by`](Self::quota_by) does not know. Requests without
    /// a customer together are one of these. By default [`Quota::UNLIMITED`].
    pub fn default_quota(mut self, quota: Quota) -> Self {
        self.rules.default_quota = quota;
        self
    }

    /// The cost class of a request: requests of one number are expected to cost alike.
    ///
    /// By default the method and the path make the class. Where paths hold unbounded names
    /// (`/users/7`), a class by the part before the name is better.
    pub fn route_by(mut self, route: impl Fn(RequestHead<'_>) -> u64 + Send + Sync + 'static) -> Self {
        self.rules.route = Some(Box::new(route));
        self
    }

    /// Requests that are always served, and not charged. Health checks, load reports and readiness
    /// are.
    pub fn exempt(mut self, exempt: impl Fn(RequestHead<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.rules.exempt = Some(Box::new(exempt));
        self
    }

    /// A further load signal beside CPU. At 1 the server is full, and begins to shed.
    ///
    /// It is called about a hundred times a second, in the path of a request. It must not block.
    pub fn gauge(mut self, gauge: impl Fn() -> f64 + Send + Sync + 'static) -> Self {
        self.gauge = Some(Box::new(gauge));
        self
    }

    /// The used share of memory above which the server acts on memory growth: by default 90%.
    ///
    /// The memory is that of the control group, else of the machine. While it would be full within
    /// ten seconds at the recent rate, the server lowers its limit on requests in progress. Memory
    /// that is always nearly full, as with heaps and caches, sheds nothing. `None` turns the signal
    /// off.
    pub fn memory(mut self, line: impl Into<Option<Ratio>>) -> Self {
        self.scarce.memory = line.into();
        self
    }

    /// The largest share of time in which a task may wait for a CPU (PSI, `some`): by default off.
    ///
    /// It is read for the control group, else for the machine. Above it the server lowers its limit
    /// on requests in progress. It is for servers that share CPUs with work that must not be slowed
    /// down: in a busy and healthy server some task waits most of the time.
    pub fn cpu_pressure(mut self, most: impl Into<Option<Ratio>>) -> Self {
        self.scarce.cpu_pressure = most.into();
        self
    }

    /// The largest share of time in which a task may wait for memory (PSI, `some`): by default off.
    ///
    /// 10% is much. It is for servers that may swap, or that work on files in memory.
    pub fn memory_pressure(mut self, most: impl Into<Option<Ratio>>) -> Self {
        self.scarce.memory_pressure = most.into();
        self
    }

    /// The limit on requests in progress. Further requests wait for a slot. By default there is no
    /// limit.
    ///
    /// It is for resources that each request holds, such as database connections. The most critical
    /// request is next, and under overload the newest of them
    /// ([`Queue`](plimsoll_core::admit::Queue)). A response holds its slot until its body has
    /// ended.
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

    /// The layer. The first one that measures costs calibrates a clock of the process, for up to 200 ms.
    #[must_use]
    pub fn build(self) -> ServerLayer {
        let available = Arc::new(Available::new(self.cpus));
        let speed = self.speed.map(|speed| speed.speed());
        let gate = self.admission.map(|mode| {
            cost::calibrate();
            let (cpu, speed) = (self.cpu.clone(), speed.unwrap_or_default());
            ServerGate::new(Gate::of_server(&available, self.outlook, mode, speed, self.gauge, &self.scarce, cpu), mode)
        });
        #[cfg(feature = "test-util")]
        if let Some((gate, seed)) = gate.as_ref().zip(self.seed) {
            gate.admission.gate().set_seed(seed);
        }
        ServerLayer {
            reporter: Reporter::new(
                self.lifecycle,
                self.window,
                available,
                self.source,
                self.cpu,
                speed,
                self.has_cost_header,
            ),
            readiness_path: self.readiness_path,
            rules: Arc::new(self.rules),
            gate,
            places: self.concurrency.map(|limit| Places::new(limit, self.admission.unwrap_or_default())),
        }
    }
}
