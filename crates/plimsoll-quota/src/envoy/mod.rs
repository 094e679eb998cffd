//! Envoy as a task: its protocols, translated to those of the core.
//!
//! ```text
//! quota_stream.rs   one stream of the rate limit quota service (RLQS)    no clock, no socket
//! rate_limit.rs     the rate limit service (RLS)                         no clock, no socket
//! serve.rs          the methods of the listener for tasks                message.rs   protocol buffers
//! ```
//!
//! Envoys share each limit among themselves. In a service that counts requests they are the tasks of the
//! service. In one that counts CPU the backends share the limit too: a request that passes an Envoy and a
//! backend would count twice, so the Envoys have an owner of their own there, the *front*.

mod message;
mod quota_stream;
mod rate_limit;
mod serve;

pub(crate) use rate_limit::RateLimits;
pub(crate) use serve::answer;
