//! The numbers of customers: each of `[[customers]]` may stand for some.

use super::plan::{Customer, Plan};

/// The customers of a plan, numbered from 0.
#[derive(Clone, Debug)]
pub(super) struct Customers {
    /// The first number of each of `[[customers]]`, and the number of all.
    first: Vec<usize>,
    /// The limit of each customer, in CPUs.
    pub(super) limits: Vec<f64>,
    /// The soft limit of each.
    pub(super) soft: Vec<Option<f64>>,
}

impl Customers {
    pub(super) fn new(plan: &Plan) -> Self {
        let (mut first, mut limits, mut soft) = (vec![0], Vec::new(), Vec::new());
        for Customer { limit, soft_limit, count, .. } in &plan.customers {
            soft.extend(std::iter::repeat_n(*soft_limit, count.get() as usize));
            limits.extend(std::iter::repeat_n(*limit, count.get() as usize));
            first.push(limits.len());
        }
        Self { first, limits, soft }
    }

    /// The customers of this place in `[[customers]]`.
    pub(super) fn at(&self, place: usize) -> std::ops::Range<usize> {
        self.first[place]..self.first[place + 1]
    }

    /// The customers by name; none if there is no such name.
    pub(super) fn named(&self, plan: &Plan, name: &str) -> std::ops::Range<usize> {
        plan.customers.iter().position(|customer| customer.name == name).map_or(0..0, |place| self.at(place))
    }
}
