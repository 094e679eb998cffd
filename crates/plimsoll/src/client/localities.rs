//! The localities that a cluster's backends are in, nearest first, and how full they get.

use std::fmt;
use std::sync::Arc;

use plimsoll_core::spill::SpillConfig;

use crate::discover::Endpoint;

/// The localities of a cluster as seen from here, nearest first: requests go to the nearest that has room.
///
/// Backends say where they are ([`Endpoint::locality()`]); one that names none of these, or nothing, counts as of the furthest.
#[derive(Clone, Debug, PartialEq)]
pub struct Localities {
    order: Vec<Arc<str>>,
    spill: SpillConfig,
}

/// Why there can be no such localities.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidLocalities {
    /// None is named.
    Empty,
    /// This one is named twice.
    Twice(Arc<str>),
    /// Nothing would be sent with a target of zero.
    ZeroTarget,
}

impl fmt::Display for InvalidLocalities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("no locality is named"),
            Self::Twice(name) => write!(f, "locality {name} is named twice"),
            Self::ZeroTarget => f.write_str("the fill target of localities is 0, so they would get no requests"),
        }
    }
}

impl std::error::Error for InvalidLocalities {}

impl Localities {
    /// These, nearest first, filled as `spill` says.
    ///
    /// # Errors
    /// When none is named, or one twice, or the target is zero.
    pub fn new(
        order: impl IntoIterator<Item = impl Into<Arc<str>>>,
        spill: SpillConfig,
    ) -> Result<Self, InvalidLocalities> {
        let order: Vec<Arc<str>> = order.into_iter().map(Into::into).collect();
        if order.is_empty() {
            return Err(InvalidLocalities::Empty);
        }
        if spill.target.as_f64() <= 0.0 {
            return Err(InvalidLocalities::ZeroTarget);
        }
        match (1..order.len()).find(|at| order[..*at].contains(&order[*at])) {
            Some(at) => Err(InvalidLocalities::Twice(order[at].clone())),
            None => Ok(Self { order, spill }),
        }
    }

    /// Their names, nearest first.
    #[must_use]
    pub fn order(&self) -> &[Arc<str>] {
        &self.order
    }

    /// How full they get.
    #[must_use]
    pub fn spill(&self) -> SpillConfig {
        self.spill
    }

    /// The place of a backend's locality in the order.
    pub(super) fn place_of(&self, endpoint: &Endpoint) -> usize {
        let named = endpoint.locality.as_ref();
        self.order.iter().position(|name| Some(name) == named).unwrap_or(self.order.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::Ratio;

    use super::*;

    #[test]
    fn an_order_has_each_locality_once() {
        let new = |order: &[&str]| Localities::new(order.iter().copied(), SpillConfig::default());
        assert_eq!(new(&[]), Err(InvalidLocalities::Empty));
        assert_eq!(new(&["a", "b", "a"]), Err(InvalidLocalities::Twice("a".into())));
        assert_eq!(new(&["b", "a"]).unwrap().order(), ["b".into(), "a".into()]);
        let spill = SpillConfig { target: Ratio::ZERO, ..SpillConfig::default() };
        assert_eq!(Localities::new(["a"], spill), Err(InvalidLocalities::ZeroTarget));
    }

    #[test]
    fn who_names_no_known_locality_is_of_the_furthest() {
        let localities = Localities::new(["near", "far"], SpillConfig::default()).unwrap();
        let endpoint = Endpoint::new(([127, 0, 0, 1], 80));
        let places = ["near", "far", "elsewhere"].map(|name| localities.place_of(&endpoint.clone().locality(name)));
        assert_eq!(places, [0, 1, 1]);
        assert_eq!(localities.place_of(&endpoint), 1);
    }
}
