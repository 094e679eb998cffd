//! Throttling: whether a client sends a request at all.
//!
//! A backend that has too much to do must spend something even on turning requests away. A client that sees many of its
//! requests turned away can spare it that, by failing some of them itself.

pub mod adaptive;
