//! The parts together.
