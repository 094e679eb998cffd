//! Reads files of settings: TOML, checked as a whole, with all problems reported at once.
//!
//! ```text
//! text ──read──▶ a table of settings, Places, problems ──Checker──▶ all problems
//!        each value by itself                            all settings together
//! ```
//!
//! The proxy's configuration and the simulator's scenarios are different files for the same person,
//! and owe it the same care: each problem with its path, line and column, its reason and its help;
//! the effective file with every default; documentation that cannot drift. So the reader is a crate
//! of its own, which knows no setting of either. The owner of a file describes its tables
//! ([`Table`]) and its own values ([`values!`], [`Codec`]), and states the rules over several
//! settings with a [`Checker`].
//!
//! The shared part is here: quantities with units ([`ByteSize`], durations, shares), and the
//! settings of the machines in `plimsoll-core`. So a policy is written in a scenario as it is in the
//! proxy's file.
#![forbid(unsafe_code)]

mod balancer;
mod check;
mod codec;
mod flat;
mod foreign;
mod last_reload;
mod others_words;
mod policy_names;
mod problem;
mod syntax;
mod table;
mod unknown;
mod value;
mod variants;

pub use balancer::{LOAD_BOUND, check_balancer};
pub use check::Checker;
pub use codec::{Choice, Codec, Format, List, Optional, OrOff, Own, SpanOrOff};
pub use flat::{Entry, flat};
pub use last_reload::{LastReload, ReloadOutcome};
pub use policy_names::policy;
pub use problem::{ConfigError, Flaw, Position, Problem, did_you_mean, help_for_name};
pub use table::print::{Setting, inline, print, settings};
pub use table::read::{OFF, Places, Read, Reading, kind, load, read};
pub use table::{Effect, Key, Table, Value, Visitor};
pub use toml::Spanned;
pub use toml::de::{DeTable, DeValue};
pub use value::{ByteSize, choice, number, quoted, text, whole};
pub use variants::{Variants, variants};

/// Runs the example of the README as a test of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
