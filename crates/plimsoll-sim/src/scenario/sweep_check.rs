//! A sweep over the size of a group: what must hold of it, and the arms that it makes.
//!
//! A planner asks how many backends are enough. With `[sweep] count = [36, 45, 54]` each arm of the
//! file becomes three, named `ARM-36`, `ARM-45` and `ARM-54`, which differ in the size of the group
//! alone.

use std::num::NonZeroU32;

use plimsoll_config::{Checker, help_for_name};

use super::budget::budget;
use super::fleet::FleetFile;
use super::fleet_check::MOST_BACKENDS;
use crate::experiment::fleet::plan::{Arm, Arrivals, Plan, Rate, Sweep};

/// Sizes of one sweep, at most: each is a run of its own for every arm.
const MAX_SIZES: usize = 32;

/// Reports sizes that cannot be compared, and a load that would grow with the size. Gives the
/// sweep, if the file has one that makes sense.
pub(super) fn sweep(file: &FleetFile, checker: &mut Checker<'_>) -> Option<Sweep> {
    let (plan, form) = (&file.plan, &file.sweep);
    if form.count.is_empty() {
        if form.group.is_some() {
            checker.report("sweep", "has no sizes", "add count, such as count = [36, 45, 54]");
        }
        return None;
    }
    if form.count.len() > MAX_SIZES {
        let reason = format!("{} sizes are too many", form.count.len());
        checker.report("sweep.count", reason, format!("write at most {MAX_SIZES}"));
        return None;
    }
    if !form.count.is_sorted_by(|a, b| a < b) {
        checker.report("sweep.count", "sizes do not rise", "write each size once, the smallest first");
        return None;
    }
    budget(checker, "sweep.count", "backends", f64::from(form.count[form.count.len() - 1].get()), MOST_BACKENDS as f64);
    let group = swept_group(file, checker)?;
    let count = format!("backends[{group}].count");
    if checker.is_set(&count) {
        checker.report(count, "the sweep sets the size of this group", "remove it, or remove [sweep]");
    }
    if matches!(plan.arrivals, Arrivals::Open { rate: Rate::OfCapacity(_) }) {
        let path = if checker.is_set("arrivals") { "arrivals" } else { "sweep" };
        let reason = "a load relative to capacity would grow with the size of the group";
        let help = "write arrivals = { kind = \"rate\", per_second = 1000 }, with the rate of your service";
        checker.report(path, reason, help);
    }
    Some(Sweep { group, sizes: form.count.clone(), arms: plan.arms.iter().map(|arm| arm.name.clone()).collect() })
}

/// The place of the group whose size is swept.
fn swept_group(file: &FleetFile, checker: &mut Checker<'_>) -> Option<usize> {
    let groups = &file.plan.backends;
    match &file.sweep.group {
        Some(name) => {
            let found = groups.iter().position(|group| group.name == *name);
            if found.is_none() {
                let help = help_for_name(name, groups.iter().map(|group| group.name.as_str()));
                checker.report("sweep.group", format!("no group is named \"{name}\""), help);
            }
            found
        }
        None if groups.len() > 1 => {
            let names: Vec<String> = groups.iter().map(|group| format!("\"{}\"", group.name)).collect();
            let help = format!("add group, one of {}", names.join(", "));
            checker.report("sweep", "there are several groups of backends", help);
            None
        }
        // Without any group there is another problem already.
        None => (!groups.is_empty()).then_some(0),
    }
}

/// The plan with the swept group at one of its sizes.
pub(super) fn sized(plan: &Plan, sweep: Option<&Sweep>, size: impl Fn(&[NonZeroU32]) -> Option<&NonZeroU32>) -> Plan {
    let mut plan = plan.clone();
    if let Some(sweep) = sweep
        && let Some(size) = size(&sweep.sizes)
    {
        plan.backends[sweep.group].count = *size;
    }
    plan
}

/// Makes an arm of each way to balance and each size.
pub(super) fn expand(plan: &mut Plan, sweep: Option<Sweep>) {
    let Some(sweep) = sweep else { return };
    let of_size =
        |arm: &Arm, size: &NonZeroU32| Arm { name: format!("{}-{size}", arm.name), size: Some(*size), ..arm.clone() };
    plan.arms = plan.arms.iter().flat_map(|arm| sweep.sizes.iter().map(move |size| of_size(arm, size))).collect();
    plan.sweep = Some(sweep);
}
