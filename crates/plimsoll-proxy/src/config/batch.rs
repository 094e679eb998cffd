//! How a listener for batch work holds its requests back.

use plimsoll_config::{Flaw, Table, Visitor, number, values};
use plimsoll_core::batch::{self, BatchConfig};

/// A listener's requests wait for credit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Batch(pub BatchConfig);

/// How loaded backends may be for batch work to go on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TargetUtilization(pub batch::Target);

impl Table for Batch {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        let config = &mut self.0;
        visitor.value("max_active", &mut config.max_active);
        visitor.value("max_queue", &mut config.max_queue);
        visitor.value("queue_timeout", &mut config.queue_timeout);
        let mut target = TargetUtilization(config.target);
        visitor.value("target_utilization", &mut target);
        config.target = target.0;
    }
}

values! {
    TargetUtilization: |v| {
        let flaw = || Flaw::new("is not a target utilization", "write a number above 0, at most 1, such as 0.7");
        number(v).and_then(batch::Target::new).map(Self).ok_or_else(flaw)
    }, |target| format!("{:?}", target.0.as_f64());
}
