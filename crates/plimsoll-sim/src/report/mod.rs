//! What was found, for people and for programs: figures as SVG, one page, and JSON.

mod dashes;
mod json;
mod marks;
mod page;
mod plot;
mod table;
mod ticks;
mod units;

pub use json::json;
pub use page::{Origin, Section, page, range, short};
pub use plot::svg;
pub use table::{Table, all_metrics, overview, overview_with_spread};
pub use units::unit;

#[cfg(test)]
mod tests;
