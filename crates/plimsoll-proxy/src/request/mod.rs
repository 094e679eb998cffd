//! One request: its way to a backend, and the way of the response back.
//!
//! ```text
//! http1 | http2 ──▶ forward ──▶ check, route ──▶ destination ──▶ the client of the library
//!                      └──▶ answer, response_body, upgrade ──▶ http1 | http2
//! ```

pub(crate) mod answer;
pub(crate) mod check;
pub(crate) mod forward;
pub(crate) mod response_body;
pub(crate) mod upgrade;
