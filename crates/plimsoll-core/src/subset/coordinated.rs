//! The order of preference of a client that has a coordinator.
//!
//! ```text
//! ledger            the assigned backends, then the others by rendezvous
//! by client index   the algorithm's order, once the index is known
//! before that       rendezvous, which needs neither
//! ```
//!
//! A coordinator may be slow or unreachable when a client starts, and the client serves traffic all
//! the same. Rendezvous spreads such clients over all backends. Each of them moves to its final subset
//! once. Waiting without a bound was rejected: the coordinator would then be a part of the way of each
//! request.
//!
//! An assigned backend that the client does not list, or that is unusable, is replaced by the next of
//! the order, as with all algorithms.

use alloc::vec::Vec;
use core::num::NonZeroU32;

use super::{Algorithm, Client, Numbering, Sizes, SubsetConfig, order_numbered, rendezvous};

/// The backends that `client` prefers, by number, and the size of its subset. As
/// [`order`](super::order), but a missing index or assignment is no error. `assigned` are the numbers of
/// the backends that `ledger` assigned: more than `config.size` while an assignment changes.
#[must_use]
pub fn order_coordinated(
    config: &SubsetConfig,
    client: Client,
    numbering: &Numbering,
    assigned: &[u32],
) -> (Vec<u32>, NonZeroU32) {
    if config.algorithm != Algorithm::Ledger
        && let Ok(order) = order_numbered(config, client, numbering)
    {
        return (order, config.size);
    }
    let size = NonZeroU32::new(assigned.len() as u32).map_or(config.size, |assigned| assigned.max(config.size));
    let vacant = numbering.vacant();
    let sizes = Sizes::new(size, numbering.backends().len(), vacant);
    let mut order = assigned.to_vec();
    let others = rendezvous::order(sizes, config.seed, client.id, numbering.backends());
    order.extend(others.into_iter().filter(|number| !assigned.contains(number)));
    order.retain(|number| numbering.place_of(*number).is_some());
    order.truncate(Sizes::new(size, order.len(), 0).order);
    (order, size)
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::super::Backend;
    use super::*;
    use crate::Weight;

    fn numbering(n: u64) -> Numbering {
        let mut numbering = Numbering::default();
        numbering.replace((0..n).map(|key| (None, Backend { key, domain: 0, weight: Weight::ONE })));
        numbering
    }

    fn config(algorithm: Algorithm) -> SubsetConfig {
        SubsetConfig { algorithm, size: NonZeroU32::new(3).unwrap(), seed: 1 }
    }

    const NAMELESS: Client = Client { id: 7, index: None };

    #[test]
    fn assigned_backends_come_first_and_others_replace_them() {
        let (order, size) = order_coordinated(&config(Algorithm::Ledger), NAMELESS, &numbering(10), &[9, 4, 0]);
        assert_eq!((&order[..3], size.get(), order.len()), (&[9, 4, 0][..], 3, 6));
        let others: alloc::collections::BTreeSet<u32> = order.iter().copied().collect();
        assert_eq!(others.len(), 6, "none twice");
    }

    #[test]
    fn subset_holds_old_and_new_backends_while_an_assignment_changes() {
        let (order, size) = order_coordinated(&config(Algorithm::Ledger), NAMELESS, &numbering(10), &[1, 2, 3, 4]);
        assert_eq!((&order[..4], size.get()), (&[1, 2, 3, 4][..], 4));
    }

    #[test]
    fn client_without_a_word_of_its_coordinator_has_the_order_of_rendezvous() {
        let rendezvous = order_numbered(&config(Algorithm::Rendezvous), NAMELESS, &numbering(10)).unwrap();
        for algorithm in Algorithm::ALL.into_iter().filter(|of| of.needs_client_index() || *of == Algorithm::Ledger) {
            assert_eq!(order_coordinated(&config(algorithm), NAMELESS, &numbering(10), &[]).0, rendezvous);
        }
    }

    #[test]
    fn client_with_an_index_has_the_order_of_its_algorithm() {
        let client = Client { index: Some(4), ..NAMELESS };
        let config = config(Algorithm::Rocksteadier);
        let order = order_numbered(&config, client, &numbering(10)).unwrap();
        assert_eq!(order_coordinated(&config, client, &numbering(10), &[1, 2]).0, order);
    }

    #[test]
    fn assigned_backend_with_a_vacant_number_is_left_out() {
        let mut numbering = Numbering::default();
        let backend = |key| Backend { key, domain: 0, weight: Weight::ONE };
        numbering.replace([(Some(0), backend(0)), (Some(2), backend(2))]);
        let (order, _) = order_coordinated(&config(Algorithm::Ledger), NAMELESS, &numbering, &[1, 2]);
        assert_eq!(order, vec![2, 0]);
    }
}
