//! Numbers of backends in a list that changes.
//!
//! Algorithms that number the backends take the position in the list. That is right for a fixed
//! list. In a list that changes, one more backend in the middle gives all others behind it another
//! number, and most connections move. So a source can state an **ordinal** for each backend: a number
//! that stays its own, such as the ordinal of a StatefulSet's pod.
//!
//! ```text
//! number = ordinal                          if its ordinal is its own
//!        = highest ordinal + 1, + 2, ...    for others, in the order of the list
//! ```
//!
//! An ordinal without a backend is **vacant**. It keeps its number, with the domain and weight of its last
//! backend, and [`order_numbered`](super::order_numbered) skips it. So no other backend moves while a
//! pod restarts, and the backend that takes the ordinal at a new address gets the same clients: the ordinal
//! is its key, and not the address.
//!
//! Ordinals far apart would cost memory and time for each number between them. If the highest ordinal
//! exceeds four times the number of backends and 64, the rank of an ordinal among the ordinals is the number.
//!
//! Where it is weak: vacant ordinals at the end are forgotten, since a service that shrinks loses its
//! highest ordinals. `deterministic` then moves most connections, as at any change of the count. A client
//! that starts while an ordinal is vacant does not know its domain, so its strata differ until the ordinal is
//! taken again.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

use super::{Backend, seeds};

/// Seed of the keys of ordinals, apart from those of addresses.
const ORDINAL_SEED: u64 = 1;
/// Numbers per backend, at most.
const MAX_NUMBERS_PER_BACKEND: usize = 4;
/// Vacant ordinals that a small list may have in any case.
const MAX_SMALL_NUMBERS: usize = 64;

/// The numbers of the backends in a list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Numbering {
    /// By number. A vacant number has its last backend, with the properties that it had.
    backends: Vec<Backend>,
    /// By number: the place in the list.
    places: Vec<Option<u32>>,
    /// By place in the list: the number.
    numbers: Vec<u32>,
}

impl Numbering {
    /// Numbers the backends of another list, each with its ordinal.
    pub fn replace(&mut self, listed: impl IntoIterator<Item = (Option<u32>, Backend)>) {
        let listed: Vec<_> = listed.into_iter().collect();
        let ordinals: BTreeSet<u32> = listed.iter().filter_map(|(ordinal, _)| *ordinal).collect();
        let most = (MAX_NUMBERS_PER_BACKEND * listed.len()).max(MAX_SMALL_NUMBERS);
        let is_dense = ordinals.last().is_none_or(|last| (*last as usize) < most);
        let numbers: Vec<u32> = if is_dense { Vec::new() } else { ordinals.iter().copied().collect() };
        let number_of = |ordinal: u32| match is_dense {
            true => ordinal as usize,
            false => numbers.partition_point(|other| *other < ordinal),
        };
        let numbered = ordinals.last().map_or(0, |last| number_of(*last) + 1);
        let vacancy = |number| self.backends.get(number).copied().unwrap_or(VACANT);
        let mut backends: Vec<Backend> = (0..numbered).map(vacancy).collect();
        let mut places = vec![None; numbered];
        let mut others = Vec::new();
        for (place, (ordinal, backend)) in (0..).zip(listed) {
            let number = ordinal.map(|ordinal| (ordinal, number_of(ordinal)));
            match number.filter(|(_, number)| places[*number].is_none()) {
                Some((ordinal, number)) => {
                    backends[number] = Backend { key: seeds::hash(ORDINAL_SEED, &ordinal.to_le_bytes()), ..backend };
                    places[number] = Some(place);
                }
                None => others.push((backend, Some(place))),
            }
        }
        for (backend, place) in others {
            backends.push(backend);
            places.push(place);
        }
        let mut numbers = vec![0; places.iter().flatten().count()];
        for (number, place) in (0..).zip(&places) {
            if let Some(place) = place {
                numbers[*place as usize] = number;
            }
        }
        *self = Self { backends, places, numbers };
    }

    /// The backends by number, vacant ones included.
    #[must_use]
    pub fn backends(&self) -> &[Backend] {
        &self.backends
    }

    /// The place in the list of the backend with this number. `None`: the number is vacant.
    #[must_use]
    pub fn place_of(&self, number: u32) -> Option<usize> {
        self.places.get(number as usize).copied().flatten().map(|place| place as usize)
    }

    /// The number of the backend at this place in the list.
    #[must_use]
    pub fn number_of(&self, place: usize) -> Option<u32> {
        self.numbers.get(place).copied()
    }

    /// The numbers without a backend, counted.
    #[must_use]
    pub fn vacant(&self) -> usize {
        self.places.iter().filter(|place| place.is_none()).count()
    }
}

/// The reason why the ordinals of a list number no backends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrdinalError {
    /// The backend at this place has no ordinal.
    Missing(usize),
    /// The backends at these two places have one ordinal.
    Shared(usize, usize),
}

/// Whether each backend of a list has an ordinal of its own.
///
/// # Errors
///
/// At the first backend that has none.
pub fn check_ordinals(ordinals: impl IntoIterator<Item = Option<u32>>) -> Result<(), OrdinalError> {
    let mut owners = BTreeMap::new();
    for (place, ordinal) in ordinals.into_iter().enumerate() {
        let ordinal = ordinal.ok_or(OrdinalError::Missing(place))?;
        if let Some(owner) = owners.insert(ordinal, place) {
            return Err(OrdinalError::Shared(owner, place));
        }
    }
    Ok(())
}

/// An ordinal that has had no backend.
const VACANT: Backend = Backend { key: 0, domain: 0, weight: crate::Weight::ONE };

#[cfg(test)]
mod tests {
    use core::num::NonZeroU32;

    use proptest::prelude::*;

    use super::super::{Algorithm, Client, SubsetConfig, order, order_numbered};
    use super::*;
    use crate::Weight;

    fn backend(key: u64) -> Backend {
        Backend { key, domain: (key % 3) as u32, weight: Weight::ONE }
    }

    fn numbering(ordinals: &[(u64, Option<u32>)]) -> Numbering {
        let mut numbering = Numbering::default();
        numbering.replace(ordinals.iter().map(|(key, ordinal)| (*ordinal, backend(*key))));
        numbering
    }

    fn places(numbering: &Numbering) -> Vec<Option<usize>> {
        (0..numbering.backends().len() as u32).map(|number| numbering.place_of(number)).collect()
    }

    fn config(algorithm: Algorithm, size: u32) -> SubsetConfig {
        SubsetConfig { algorithm, size: NonZeroU32::new(size).expect("not zero"), seed: 7 }
    }

    const NUMBERED: [Algorithm; 5] = [
        Algorithm::Random,
        Algorithm::Deterministic,
        Algorithm::Ringsteady,
        Algorithm::Rocksteadier,
        Algorithm::Rendezvous,
    ];

    #[test]
    fn place_is_the_number_without_ordinals() {
        let listed = [(5, None), (3, None), (9, None)];
        assert_eq!(places(&numbering(&listed)), [Some(0), Some(1), Some(2)]);
        assert_eq!(numbering(&listed).backends(), listed.map(|(key, _)| backend(key)));
    }

    #[test]
    fn ordinal_is_the_number_and_others_follow_the_highest() {
        let found = numbering(&[(1, None), (2, Some(3)), (3, Some(0)), (4, Some(3)), (5, Some(1))]);
        assert_eq!(places(&found), [Some(2), Some(4), None, Some(1), Some(0), Some(3)]);
        assert_eq!(found.vacant(), 1);
        assert_eq!(found.place_of(6), None);
    }

    #[test]
    fn rank_is_the_number_where_ordinals_are_far_apart() {
        let found = numbering(&[(1, Some(u32::MAX)), (2, Some(70)), (3, Some(4_000_000)), (4, None)]);
        assert_eq!(places(&found), [Some(1), Some(2), Some(0), Some(3)]);
        assert_eq!(places(&numbering(&[(1, Some(63))])).len(), 64);
        assert_eq!(places(&numbering(&[(1, Some(64))])).len(), 1);
    }

    #[test]
    fn vacant_ordinal_keeps_the_domain_and_weight_of_its_last_backend() {
        let heavy = Backend { weight: Weight::new(3.0).expect("a weight"), ..backend(2) };
        let mut numbering = Numbering::default();
        numbering.replace([(Some(0), backend(1)), (Some(1), heavy), (Some(2), backend(3))]);
        let before = numbering.backends()[1];
        numbering.replace([(Some(2), backend(3)), (Some(0), backend(1))]);
        assert_eq!((numbering.place_of(1), numbering.backends()[1]), (None, before));
        assert_eq!((before.domain, before.weight), (heavy.domain, heavy.weight));
    }

    #[test]
    fn ordinal_check_names_the_place_of_a_missing_or_shared_ordinal() {
        assert_eq!(check_ordinals([Some(3), Some(0)]), Ok(()));
        assert_eq!(check_ordinals([Some(3), None]), Err(OrdinalError::Missing(1)));
        assert_eq!(check_ordinals([Some(3), Some(1), Some(3)]), Err(OrdinalError::Shared(0, 2)));
    }

    #[test]
    fn highest_ordinal_is_forgotten_when_it_is_vacant() {
        let mut numbering = numbering(&[(1, Some(0)), (2, Some(1))]);
        numbering.replace([(Some(0), backend(1))]);
        assert_eq!(numbering.backends().len(), 1);
    }

    #[test]
    fn new_address_in_an_ordinal_has_the_same_clients() {
        let before = numbering(&[(1, Some(0)), (2, Some(1)), (3, Some(2)), (4, Some(3))]);
        let mut after = before.clone();
        after.replace([(Some(3), backend(4)), (Some(1), backend(8)), (Some(0), backend(1)), (Some(2), backend(3))]);
        // The key 8 has the domain of the key 2.
        assert_eq!(after.backends(), before.backends());
        for algorithm in NUMBERED {
            let of = |numbering| order_numbered(&config(algorithm, 2), Client::numbered(1), numbering);
            assert_eq!(of(&after), of(&before), "{algorithm}");
        }
    }

    #[test]
    fn order_is_that_of_the_list_without_ordinals() {
        let backends: Vec<Backend> = (0..40).map(backend).collect();
        let mut numbering = Numbering::default();
        numbering.replace(backends.iter().map(|backend| (None, *backend)));
        for algorithm in NUMBERED {
            let (config, client) = (config(algorithm, 6), Client::numbered(3));
            assert_eq!(order_numbered(&config, client, &numbering), order(&config, client, &backends), "{algorithm}");
        }
    }

    proptest! {
        /// A vacancy removes itself from each order, and what follows moves up: nothing else moves.
        #[test]
        fn nobody_else_moves_when_an_ordinal_becomes_vacant(
            n in 3_u32..80,
            size in 1_u32..20,
            gone in any::<prop::sample::Index>(),
            client in 0_u32..50,
        ) {
            let gone = gone.index(n as usize - 1) as u32;
            let list = |n| (0..n).map(|ordinal| (Some(ordinal), backend(u64::from(ordinal))));
            let mut full = Numbering::default();
            full.replace(list(n));
            let mut less = full.clone();
            less.replace(list(n).filter(|(ordinal, _)| *ordinal != Some(gone)));
            prop_assert_eq!(less.vacant(), 1);
            for algorithm in NUMBERED {
                let config = config(algorithm, size);
                let of = |numbering| order_numbered(&config, Client::numbered(client), numbering);
                let before: Vec<u32> = of(&full).expect("numbered").into_iter().filter(|b| *b != gone).collect();
                let after = of(&less).expect("numbered");
                prop_assert!(!after.contains(&gone));
                prop_assert!(after.len() >= (2 * size as usize).min(n as usize - 1));
                prop_assert_eq!(&after[..before.len().min(after.len())], &before[..before.len().min(after.len())]);
            }
        }

        #[test]
        fn each_backend_has_one_number(
            ordinals in prop::collection::vec(prop::option::of(0_u32..200), 0..60),
            earlier in prop::collection::vec(prop::option::of(0_u32..200), 0..60),
        ) {
            let mut numbering = Numbering::default();
            for ordinals in [earlier, ordinals.clone()] {
                numbering.replace((0..).zip(ordinals).map(|(key, ordinal)| (ordinal, backend(key))));
            }
            for place in 0..ordinals.len() {
                prop_assert_eq!(numbering.number_of(place).and_then(|number| numbering.place_of(number)), Some(place));
            }
            let mut found: Vec<usize> = places(&numbering).into_iter().flatten().collect();
            found.sort_unstable();
            prop_assert_eq!(found, (0..ordinals.len()).collect::<Vec<_>>());
            prop_assert!(numbering.backends().len() <= 64 + 4 * ordinals.len() + ordinals.len());
            let order = order_numbered(&config(Algorithm::Rocksteadier, 5), Client::numbered(0), &numbering);
            let order = order.expect("numbered");
            prop_assert_eq!(order.len(), ordinals.len().min(10));
        }
    }
}
