//! The choice and the order of backends in the list.

use std::cmp::Ordering;

use clap::ValueEnum;
use plimsoll_admin::LiveBackend;

/// The order of backends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// The most loaded first
    #[default]
    Load,
    /// The most requests in flight first
    Requests,
    /// The largest share of errors first
    Errors,
    /// By address
    Address,
}

impl Sort {
    /// The next one, for a key that cycles.
    pub(super) fn next(self) -> Self {
        match self {
            Self::Load => Self::Requests,
            Self::Requests => Self::Errors,
            Self::Errors => Self::Address,
            Self::Address => Self::Load,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Requests => "requests",
            Self::Errors => "errors",
            Self::Address => "address",
        }
    }

    fn compare(self, a: &LiveBackend, b: &LiveBackend) -> Ordering {
        let descending = |a: f64, b: f64| b.total_cmp(&a);
        let by = match self {
            Self::Load => descending(a.load.unwrap_or(-1.0), b.load.unwrap_or(-1.0)),
            Self::Requests => b.in_flight.cmp(&a.in_flight),
            Self::Errors => descending(a.error_share, b.error_share),
            Self::Address => Ordering::Equal,
        };
        by.then_with(|| natural(&a.address, &b.address))
    }
}

/// Numbers in a text compare by value: 10.0.0.9 is before 10.0.0.10.
fn natural(a: &str, b: &str) -> Ordering {
    let key = |text: &str| -> Vec<(u64, String)> {
        let parts = text.split_inclusive(|c: char| !c.is_ascii_digit());
        parts
            .map(|part| (part.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(0), part.to_owned()))
            .collect()
    };
    key(a).cmp(&key(b))
}

/// The choice of backends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) sort: Sort,
    /// A part of the address, the state, the reason or the locality.
    pub(super) filter: String,
    pub(super) is_unhealthy_only: bool,
}

impl Choice {
    /// The backends to show, in their order.
    pub(super) fn of<'a>(&self, rows: &'a [LiveBackend]) -> Vec<&'a LiveBackend> {
        let wanted = self.filter.to_lowercase();
        let has = |text: &str| text.to_lowercase().contains(&wanted);
        let is_shown = |row: &&LiveBackend| {
            (!self.is_unhealthy_only || row.state != "healthy")
                && (has(&row.address)
                    || has(&row.state)
                    || has(&row.reason)
                    || row.locality.as_deref().is_some_and(has))
        };
        let mut shown: Vec<_> = rows.iter().filter(is_shown).collect();
        shown.sort_by(|a, b| self.sort.compare(a, b));
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backend(address: &str, load: f64, in_flight: u32, error_share: f64, state: &str) -> LiveBackend {
        LiveBackend {
            address: address.to_owned(),
            load: Some(load),
            in_flight,
            error_share,
            state: state.to_owned(),
            ..LiveBackend::default()
        }
    }

    fn rows() -> Vec<LiveBackend> {
        vec![
            backend("10.0.0.10:80", 0.2, 9, 0.0, "healthy"),
            backend("10.0.0.9:80", 0.9, 1, 0.1, "healthy"),
            backend("10.0.0.11:80", 0.0, 0, 0.5, "ejected"),
        ]
    }

    #[test]
    fn orders_put_first_what_is_looked_for() {
        let rows = rows();
        for (sort, first, last) in [
            (Sort::Load, "10.0.0.9:80", "10.0.0.11:80"),
            (Sort::Requests, "10.0.0.10:80", "10.0.0.11:80"),
            (Sort::Errors, "10.0.0.11:80", "10.0.0.10:80"),
            (Sort::Address, "10.0.0.9:80", "10.0.0.11:80"),
        ] {
            let shown = Choice { sort, ..Choice::default() }.of(&rows);
            assert_eq!((shown[0].address.as_str(), shown[2].address.as_str()), (first, last), "{sort:?}");
        }
    }

    #[test]
    fn filters_look_at_address_and_state() {
        let rows = rows();
        let shown = |filter: &str, is_unhealthy_only| {
            Choice { filter: filter.to_owned(), is_unhealthy_only, sort: Sort::Address }.of(&rows).len()
        };
        assert_eq!((shown("", false), shown(".1", false), shown("EJECT", false), shown("none", false)), (3, 2, 1, 0));
        assert_eq!((shown("", true), shown(".9", true)), (1, 0));
    }

    #[test]
    fn every_order_is_reached_by_one_key() {
        let mut sort = Sort::default();
        let mut names = Vec::new();
        for _ in 0..4 {
            names.push(sort.name());
            sort = sort.next();
        }
        assert_eq!((names, sort), (vec!["load", "requests", "errors", "address"], Sort::Load));
    }
}
