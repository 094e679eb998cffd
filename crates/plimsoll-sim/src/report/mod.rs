//! What was found, for people and for programs: figures as SVG, one page, and JSON.

mod json;
mod page;
mod plot;
mod ticks;

pub use json::json;
pub use page::{Section, page, range, short};
pub use plot::svg;

#[cfg(test)]
mod tests;
