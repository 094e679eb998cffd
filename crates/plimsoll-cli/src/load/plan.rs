//! What load to send: the arguments of `plimsoll load`, checked across each other.

use std::fmt;
use std::time::Duration;

use crate::exit::Problem;

use super::mix::{DeadlineHeader, Mix};
use super::spread::Spread;
use super::target::Target;

/// The callers when neither a rate nor a number of callers is given: enough to keep a small server
/// busy, few enough to leave the latency readable.
const DEFAULT_CONCURRENCY: u32 = 10;
/// How long to send when no end is given.
const DEFAULT_DURATION: Duration = Duration::from_secs(10);

/// The protocol on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Protocol {
    /// HTTP/1.1 with keep-alive
    Http1,
    /// HTTP/2 without TLS, known beforehand
    H2c,
    /// gRPC, unary calls, over HTTP/2 without TLS
    Grpc,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http1 => "http1",
            Self::H2c => "h2c",
            Self::Grpc => "grpc",
        })
    }
}

/// How the gaps between the arrivals of an open loop are spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Arrival {
    /// Independent arrivals, as many unrelated users make them
    #[default]
    Poisson,
    /// One each 1/rate, as a timer makes them
    Uniform,
}

impl fmt::Display for Arrival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Poisson => "poisson",
            Self::Uniform => "uniform",
        })
    }
}

/// The trigger of the next request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Shape {
    /// A clock does.
    Open {
        /// Requests a second, more than 0.
        rate: f64,
        /// The spread of the gaps.
        arrival: Arrival,
    },
    /// The answer to the last one does.
    Closed {
        /// Callers, at least 1.
        concurrency: u32,
    },
}

/// Load, ready to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The requests and their server.
    pub(crate) target: Target,
    /// The protocol.
    pub(crate) protocol: Protocol,
    /// Open or closed loop.
    pub(crate) shape: Shape,
    /// The measurement ends after this long, if set.
    pub(crate) duration: Option<Duration>,
    /// The measurement ends after this many requests, if set.
    pub(crate) requests: Option<u64>,
    /// Sent before the measurement.
    pub(crate) warmup: Duration,
    /// From the intended send time to the end of the answer.
    pub(crate) timeout: Duration,
    /// Open loop: the bound of requests without an answer.
    pub(crate) max_in_flight: u32,
    /// Opened at the start, to each server.
    pub(crate) connections: u32,
    /// Servers in place of that of the target.
    pub(crate) spread: Option<Spread>,
    /// Of the arrivals and of the kinds of requests.
    pub(crate) seed: u64,
}

impl TryFrom<super::Args> for Plan {
    type Error = Problem;

    fn try_from(args: super::Args) -> Result<Self, Problem> {
        let mix = Mix {
            criticalities: args.criticality,
            customers: args.customers,
            useful_within: args.useful_within,
            deadline: args.tell_deadline.then(|| DeadlineHeader::of(args.protocol)),
        };
        let target = Target::new(super::target::Params {
            url: &args.url,
            protocol: args.protocol,
            method: args.method,
            path: args.path.as_deref(),
            headers: &args.headers,
            body_size: args.body_size,
        })
        .and_then(|target| target.with_mix(mix))
        .map_err(Problem::Usage)?;
        let shape = match args.rate {
            Some(rate) => Shape::Open { rate, arrival: args.arrival.unwrap_or_default() },
            None => Shape::Closed { concurrency: args.concurrency.unwrap_or(DEFAULT_CONCURRENCY) },
        };
        let connections = args.connections.unwrap_or(match (args.protocol, shape) {
            (Protocol::Http1, Shape::Closed { concurrency }) => concurrency,
            (Protocol::Http1, Shape::Open { .. }) => DEFAULT_CONCURRENCY,
            (Protocol::H2c | Protocol::Grpc, _) => 1,
        });
        let duration = match (args.duration, args.requests) {
            (None, None) => Some(DEFAULT_DURATION),
            (duration, _) => duration,
        };
        Ok(Self {
            target,
            protocol: args.protocol,
            shape,
            duration,
            requests: args.requests,
            warmup: args.warmup,
            timeout: args.timeout,
            max_in_flight: args.max_in_flight,
            connections,
            spread: None,
            seed: args.seed,
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: crate::load::Args,
    }

    fn plan(words: &[&str]) -> Plan {
        let words = ["load", "http://127.0.0.1:1/"].iter().chain(words);
        Plan::try_from(Line::try_parse_from(words).unwrap().args).unwrap()
    }

    #[test]
    fn without_a_rate_the_loop_is_closed_and_lasts_ten_seconds() {
        let plan = plan(&[]);
        assert_eq!(plan.shape, Shape::Closed { concurrency: 10 });
        assert_eq!((plan.duration, plan.requests, plan.connections), (Some(DEFAULT_DURATION), None, 10));
    }

    #[test]
    fn a_rate_opens_the_loop_with_poisson_arrivals() {
        let plan = plan(&["--rate", "50", "--requests", "7", "--protocol", "h2c"]);
        assert_eq!(plan.shape, Shape::Open { rate: 50.0, arrival: Arrival::Poisson });
        assert_eq!((plan.duration, plan.requests, plan.connections), (None, Some(7), 1));
    }

    #[test]
    fn contradictions_are_refused() {
        for words in [
            &["--rate", "5", "--concurrency", "5"][..],
            &["--arrival", "uniform"],
            &["--rate", "0"],
            &["--concurrency", "0"],
            &["--requests", "0"],
            &["--duration", "0s"],
            &["--tell-deadline"],
            &["--useful-within", "0s"],
            &["--criticality", "high=1"],
            &["--customers", "web"],
        ] {
            let words = ["load", "http://127.0.0.1:1/"].iter().chain(words);
            assert!(Line::try_parse_from(words).is_err());
        }
    }
}
