//! Programs in `examples` use the layers of plimsoll-tower around other clients. The tests run
//! them.
//!
//! ```text
//! cargo run --example reqwest
//! cargo test
//! ```
