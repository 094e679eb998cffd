//! One pass over the customers of a service: sums, cuts, and the customers with most demand over their limit.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use plimsoll_core::quota::{CustomerId, CustomerState, Cut, UNLIMITED};

use crate::config::Unit;
use crate::hosted::Hosted;
use crate::name::{Kind, Name};
use crate::service::{Counts, Service};

/// Customers in the list of a page.
pub(super) const MAX_LISTED: usize = 50;
/// Customers of one block: the service is locked for less than a millisecond.
const BLOCK: usize = 4_096;
/// Customers that are cut within a second and are named. More of them are one change.
pub(super) const MAX_NAMED: usize = 3;
/// Seconds without a cut after which a customer counts as not cut any more. Demand near a limit is cut every
/// few seconds, and would displace all other changes.
const CALM: u8 = 10;

/// A service at one moment, added up.
#[derive(Debug)]
pub(super) struct Survey {
    pub(super) unit: Unit,
    pub(super) tasks: u32,
    pub(super) overloaded: u32,
    pub(super) is_unsure: bool,
    pub(super) is_dry_run: bool,
    pub(super) counts: Counts,
    /// Customers and groups with a limit.
    pub(super) limited: usize,
    /// Customers and groups that are cut.
    pub(super) cut: usize,
    /// Customers and groups with a limit or at a task.
    pub(super) listed: usize,
    of_customers: Sums,
    of_groups: Sums,
    /// The first ones of the list, in any order.
    first: BinaryHeap<Reverse<Weight>>,
}

/// Sums over customers or groups with a limit, in rate units.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    pub(super) limit: u64,
    pub(super) demand: u64,
    pub(super) used: u64,
}

/// The order of the list: demand over the limit, then all demand, then age.
type Weight = (u64, u64, Reverse<u32>);

/// Customers of a service that were cut within the last seconds, by number: how long each is remembered.
#[derive(Debug, Default)]
pub(super) struct CutMarks {
    seconds: Vec<u8>,
    pub(super) marked: usize,
}

/// Cuts of customers and groups that began or ended.
#[derive(Debug, Default)]
pub(super) struct Turned {
    pub(super) began: Named,
    pub(super) ended: Named,
}

/// A number of customers and groups. A few of them are named.
#[derive(Debug, Default)]
pub(super) struct Named {
    pub(super) count: usize,
    pub(super) first: Vec<(Name, CustomerState)>,
}

impl Survey {
    pub(super) fn of(hosted: &Hosted) -> Self {
        let mut survey = Self::new(&hosted.lock());
        survey.pass(hosted, |_, _| {});
        survey
    }

    /// The same at the end of a second.
    pub(super) fn tick(hosted: &Hosted, marks: &mut CutMarks) -> (Self, Turned) {
        let (mut survey, mut turned) = (Self::new(&hosted.lock()), Turned::default());
        survey.pass(hosted, |id, known| marks.tick(id, known, &mut turned));
        (survey, turned)
    }

    fn new(service: &Service) -> Self {
        let config = service.config();
        Self {
            unit: config.unit,
            tasks: service.tasks(),
            overloaded: service.overloaded(),
            is_unsure: service.is_unsure(),
            is_dry_run: config.dry_run,
            counts: service.counts(),
            limited: 0,
            cut: 0,
            listed: 0,
            of_customers: Sums::default(),
            of_groups: Sums::default(),
            first: BinaryHeap::with_capacity(MAX_LISTED + 1),
        }
    }

    /// Adds all customers. Between two blocks, tasks get their turn.
    fn pass(&mut self, hosted: &Hosted, mut also: impl FnMut(CustomerId, Option<(&Name, CustomerState)>)) {
        for begin in (0..).step_by(BLOCK) {
            let service = hosted.lock();
            if begin >= service.places() {
                break;
            }
            for (id, known) in service.states(begin..begin + BLOCK) {
                if let Some((name, state)) = known {
                    self.add(id, name.kind, &state);
                }
                also(id, known);
            }
        }
    }

    fn add(&mut self, CustomerId(id): CustomerId, kind: Kind, state: &CustomerState) {
        let (demand, has_limit) = (state.demand.iter().sum::<u64>(), state.limit < UNLIMITED);
        if has_limit {
            let sums = match kind {
                Kind::Customer => &mut self.of_customers,
                Kind::Group => &mut self.of_groups,
            };
            sums.limit += state.limit;
            sums.demand += demand;
            sums.used += state.used;
        }
        self.limited += usize::from(has_limit);
        self.cut += usize::from(state.cut != Cut::NONE);
        if has_limit || state.tasks > 0 {
            self.listed += 1;
            let weight = Reverse((demand.saturating_sub(state.limit), demand, Reverse(id)));
            if self.first.len() < MAX_LISTED {
                self.first.push(weight);
            } else if self.first.peek().is_some_and(|least| weight < *least) {
                self.first.pop();
                self.first.push(weight);
            }
        }
    }

    /// Sums over customers with a limit; over groups where no customer has one. A request of a customer counts
    /// for its group once more, so the two have no sum.
    pub(super) fn sums(&self) -> Sums {
        if self.of_customers.limit == 0 { self.of_groups } else { self.of_customers }
    }

    /// The first customers of the list, in its order.
    pub(super) fn first(&self) -> Vec<CustomerId> {
        let mut first: Vec<_> = self.first.iter().collect();
        first.sort();
        first.into_iter().map(|Reverse((.., Reverse(id)))| CustomerId(*id)).collect()
    }
}

impl CutMarks {
    fn tick(&mut self, CustomerId(id): CustomerId, known: Option<(&Name, CustomerState)>, turned: &mut Turned) {
        let at = id as usize;
        if at >= self.seconds.len() {
            self.seconds.resize(at + 1, 0);
        }
        let before = self.seconds[at];
        let now = match &known {
            Some((_, state)) if state.cut != Cut::NONE => CALM,
            Some(_) => before.saturating_sub(1),
            // Another customer may get its number.
            None => 0,
        };
        self.seconds[at] = now;
        self.marked = self.marked + usize::from(now > 0) - usize::from(before > 0);
        let Some(known) = known else { return };
        match (before > 0, now > 0) {
            (false, true) => turned.began.add(known),
            (true, false) => turned.ended.add(known),
            _ => {}
        }
    }
}

impl Named {
    fn add(&mut self, (name, state): (&Name, CustomerState)) {
        self.count += 1;
        if self.first.len() < MAX_NAMED {
            self.first.push((name.clone(), state));
        }
    }
}
