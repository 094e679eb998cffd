//! What single customers get at most.

use std::collections::HashMap;

use plimsoll::server::{Customer, Quota};

use crate::units;

/// The limit of one customer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Limit {
    customer: String,
    quota: Quota,
}

pub(super) fn parse(text: &str) -> Result<Limit, String> {
    let help = "write NAME=CPUS, such as crawler=0.5";
    let (customer, cpus) =
        text.rsplit_once('=').filter(|(customer, _)| !customer.is_empty()).ok_or_else(|| help.to_owned())?;
    let quota = Quota::hard(units::number(cpus)?).map_err(|error| error.to_string())?;
    Ok(Limit { customer: customer.to_owned(), quota })
}

/// What a customer may use; the last limit of a name counts.
pub(super) fn rule(limits: Vec<Limit>) -> impl Fn(&Customer) -> Option<Quota> {
    let limits: HashMap<_, _> =
        limits.into_iter().map(|Limit { customer, quota }| (customer.into_bytes(), quota)).collect();
    move |customer| limits.get(customer.name()).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_name_and_a_number_of_cpus() {
        let known = ["crawler=0.5", "a=b=0"].map(|text| parse(text).expect("a limit"));
        let rule = rule(known.into());
        let most = |name| rule(&Customer::new(name).expect("a name")).map(|quota| quota.most);
        assert_eq!([most("crawler"), most("a=b"), most("a")], [Some(Some(0.5)), Some(Some(0.0)), None]);
        for (junk, why) in
            [("crawler", "NAME=CPUS"), ("=1", "NAME=CPUS"), ("a=x", "not a number"), ("a=-1", "at least 0")]
        {
            assert!(parse(junk).is_err_and(|error| error.contains(why)), "{junk}");
        }
    }
}
