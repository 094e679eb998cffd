//! Settings as a program outside of the crate writes them: defaults, and changes in place.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use plimsoll::client::{
    BalancerConfig, BatchConfig, Check, CheckTimeout, Cluster, ClusterConfig, HedgeConfig, MaxAttempts, Ping,
    PolicyKind, PoolConfig, ProbeConfig, ReportFormat, RequestConfig, RetryConfig, RetryPolicy,
};
use plimsoll::discover::{Endpoint, Fixed, FollowConfig};
use plimsoll::probe::{Keyring, QueryLimits, ResponderSettings};
use plimsoll::server::{DrainConfig, QueueConfig, ServeConfig};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn settings_of_a_cluster_are_changed_in_place() {
    let mut config = ClusterConfig::default();
    config.balancer.policy = PolicyKind::Random;
    config.balancer.outlier.consecutive_failures = None;
    config.check = Check::Tcp;
    config.check_timeout = CheckTimeout(SECOND);
    config.requests.request_timeout = 2 * SECOND;
    config.pool.min_connections = 1;
    config.pool.ping = Some(Ping::every(30 * SECOND));
    config.retry.attempts.max_attempts = MaxAttempts::ONE;
    config.retry.hedge = Some(HedgeConfig::default().at_least(SECOND));
    config.probes = Some(ProbeConfig::default().interval(3 * SECOND));
    config.load_reports.request = Some(ReportFormat::Text);

    let cluster = Cluster::new("search", config, [SocketAddr::from(([10, 0, 0, 1], 80))]);
    let held = cluster.config();
    assert_eq!((held.balancer.policy, held.check.clone()), (PolicyKind::Random, Check::Tcp));
    assert_eq!(held.requests.request_timeout, 2 * SECOND);
    assert_eq!(held.pool.ping, Some(Ping::every(30 * SECOND).timeout(Ping::DEFAULT_TIMEOUT)));
    assert_eq!(held.probes, Some(ProbeConfig::default().interval(3 * SECOND)));
    // All else is as it was.
    assert_eq!(held.requests.connect_timeout, RequestConfig::default().connect_timeout);
    assert_eq!(held.pool.max_streams, PoolConfig::default().max_streams);
    assert_eq!(held.retry.budget, RetryPolicy::default().budget);
    assert!(!held.retry.is_on());
}

#[test]
fn settings_without_a_place_have_constructors_and_setters() {
    let ping = Ping::every(SECOND).timeout(2 * SECOND);
    assert_eq!((ping.interval, ping.timeout), (SECOND, 2 * SECOND));
    let hedge = HedgeConfig::default().at_least(SECOND);
    assert_eq!((hedge.at_least, hedge.quantile), (SECOND, HedgeConfig::DEFAULT_QUANTILE));
    let one = BalancerConfig::new(PolicyKind::RoundRobin);
    assert_eq!((one.policy, one.hash), (PolicyKind::RoundRobin, BalancerConfig::default().hash));
    assert_eq!(RetryConfig::OFF.max_attempts, MaxAttempts::ONE);
    assert_eq!(RetryPolicy::OFF.attempts, RetryConfig::OFF);
    let responder = ResponderSettings::new([80, 443], Keyring::default());
    assert_eq!((responder.ports, responder.limits), (vec![80, 443], QueryLimits::default()));
}

#[test]
fn settings_of_a_call_are_changed_before_it() {
    let mut batch = BatchConfig::default();
    batch.max_active = NonZeroU32::MIN;
    assert_eq!(batch.max_queue, BatchConfig::DEFAULT_MAX_QUEUE);
    let mut queue = QueueConfig::new(8).expect("not zero");
    queue.max_waiting = 1;
    assert_eq!((queue.slots, queue.max_waiting), (8, 1));
    let mut serve = ServeConfig::default();
    serve.drain.quiet = SECOND;
    assert_eq!(serve.drain.drain, DrainConfig::DEFAULT_DRAIN);

    let address = SocketAddr::from(([10, 0, 0, 1], 80));
    let mut follow = FollowConfig::default().fixed(Fixed::new([address]));
    follow.saved = vec![Endpoint::new(address).authority("search.example".parse().expect("a host"))];
    assert_eq!(follow.saved[0].clone().at(address), follow.saved[0]);
    assert_eq!(follow.hold, FollowConfig::default().hold);
}
