//! Groups of customers: one limit for all of them, beside the limit of each.
//!
//! ```text
//! request ─▶ account of its customer ─▶ account of its group ─▶ admitted, charged to both
//! ```
//!
//! The group is offered a request only if the customer's account admits it, so the demand that a customer's
//! own limit refuses is not the group's. A request that the group refuses takes nothing from the customer.
//! Within a group the cut is by criticality, and then by chance: only own hard limits keep one customer from
//! using the limit of all. While the group is cut, a customer that exceeds its own limit offers it the part that
//! its own cut admits, and no more: its level is full for the refusals of the group.
//!
//! The owner knows no groups: each is one more customer with a limit.
//!
//! ```text
//! draw of a request at the group = draw ÷ part      at the cut of its customer, where draw < part passes
//! ```
//!
//! Without the division a customer that is cut would pass the cut of its group as a whole, and the other
//! customers would pay for it.

use alloc::boxed::Box;

use super::account::{Account, Refusal};
use super::{CustomerId, Cut, Holder, Limit};
use crate::{Criticality, Timestamp};

/// The limit of a group over all tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its name. A customer may have the same.
    pub name: Box<[u8]>,
    /// Its limit. A group is in no group.
    pub limit: Limit,
}

/// The accounts of a request at one task. It has to pass both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    /// That of its customer; `None` without a limit.
    pub customer: Option<CustomerId>,
    /// That of its group; `None` without a group.
    pub group: Option<CustomerId>,
}

impl Accounts {
    /// The accounts, in the order in which they are asked.
    pub fn iter(self) -> impl Iterator<Item = CustomerId> {
        [self.customer, self.group].into_iter().flatten()
    }

    /// Whether nothing limits the request.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }
}

/// A refusal by one of the accounts of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountRefusal {
    /// The reason.
    pub refusal: Refusal,
    /// The account that refuses.
    pub by: CustomerId,
    /// It is that of the group.
    pub is_group: bool,
    /// The refusal is only counted.
    pub is_dry_run: bool,
}

impl Holder {
    /// Decides on a request by its accounts. Returns those to [take](Self::take) from, and the refusal. Only a
    /// refusal of a dry run leaves accounts to take from. The arguments are those of
    /// [`Account::ask`](super::Account::ask).
    ///
    /// # Panics
    /// An account was not added, or was removed.
    #[must_use]
    pub fn ask(
        &mut self,
        now: Timestamp,
        accounts: Accounts,
        criticality: Criticality,
        cost: f64,
        mut draw: f64,
    ) -> (Accounts, Option<AccountRefusal>) {
        let (mut admitted, mut counted) = (Accounts::default(), None);
        if let Some(customer) = accounts.customer {
            let is_cut = |group: &mut Account| group.cut() != Cut::NONE && !group.is_dry_run();
            let is_group_cut = accounts.group.is_some_and(|group| is_cut(self.account(group)));
            self.account(customer).set_group_cut(is_group_cut);
        }
        for by in accounts.iter() {
            let is_group = accounts.group == Some(by);
            let account = self.account(by);
            let is_dry_run = account.is_dry_run();
            match account.ask(now, criticality, cost, draw) {
                Ok(()) if is_group => admitted.group = Some(by),
                Ok(()) => {
                    admitted.customer = Some(by);
                    draw = account.next_draw(now, criticality, draw);
                }
                Err(refusal) => {
                    let refusal = AccountRefusal { refusal, by, is_group, is_dry_run };
                    if !is_dry_run {
                        return (Accounts::default(), Some(refusal));
                    }
                    counted = counted.or(Some(refusal));
                }
            }
        }
        (admitted, counted)
    }

    /// Charges an admitted request to its accounts, or gives a negative cost back. A removed account gets nothing.
    pub fn take(&mut self, accounts: Accounts, cost: f64) {
        for account in accounts.iter() {
            if let Some(account) = self.get(account) {
                account.take(cost);
            }
        }
    }
}

#[cfg(test)]
mod tests;
