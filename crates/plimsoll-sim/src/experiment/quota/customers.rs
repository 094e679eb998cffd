//! The numbers of customers: each of `[[customers]]` may stand for some. Those of groups follow.

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
    /// The limit of each group, in CPUs.
    pub(super) groups: Vec<f64>,
    /// The number of the group of each customer.
    pub(super) group_of: Vec<Option<usize>>,
}

impl Customers {
    pub(super) fn new(plan: &Plan) -> Self {
        let (mut first, mut limits, mut soft, mut places) = (vec![0], Vec::new(), Vec::new(), Vec::new());
        for Customer { limit, soft_limit, count, group, .. } in &plan.customers {
            let count = count.get() as usize;
            soft.extend(std::iter::repeat_n(*soft_limit, count));
            limits.extend(std::iter::repeat_n(*limit, count));
            first.push(limits.len());
            let place = group.as_ref().and_then(|group| plan.groups.iter().position(|of| of.name == *group));
            places.extend(std::iter::repeat_n(place, count));
        }
        let group_of = places.into_iter().map(|place| Some(limits.len() + place?)).collect();
        Self { first, groups: plan.groups.iter().map(|group| group.limit).collect(), limits, soft, group_of }
    }

    /// Customers and groups.
    pub(super) fn count(&self) -> usize {
        self.limits.len() + self.groups.len()
    }

    /// The limit of a customer or a group, in CPUs.
    pub(super) fn limit(&self, number: usize) -> f64 {
        self.limits.get(number).copied().unwrap_or_else(|| self.groups[number - self.limits.len()])
    }

    /// The number of the group of this place in `[[groups]]`.
    pub(super) fn group(&self, place: usize) -> usize {
        self.limits.len() + place
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
