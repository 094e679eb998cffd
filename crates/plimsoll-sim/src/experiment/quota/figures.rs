//! The figures of a quota experiment: the use of each customer and each group over time.

use super::Measured;
use super::measure::Use;
use super::plan::Plan;
use crate::experiment::windows::marks;
use crate::findings::{Axis, Figure, Series, SeriesKind, slug};

pub(super) fn figures(plan: &Plan, measured: &[Measured<'_>]) -> Vec<Figure> {
    measured.iter().map(|of| use_over_time(plan, of)).collect()
}

fn use_over_time(plan: &Plan, of: &Measured<'_>) -> Figure {
    let every = plan.sample_every.as_secs_f64();
    let of_customer = |(at, customer): (usize, &super::plan::Customer)| {
        let samples = (1..).map(f64::from).zip(&of.measure.cpu.by_sample);
        let customers = of.measure.customers.at(at);
        let limit = customer.limit * customers.len() as f64;
        let used = |cpu: &[Use]| cpu[customers.clone()].iter().map(|cpu| cpu.used).sum::<f64>();
        let points = samples.map(|(i, cpu)| (i * every, 100.0 * used(cpu) / 1e6 / every / limit));
        Series { name: customer.name.clone(), kind: SeriesKind::Line, points: points.collect(), ..Series::default() }
    };
    let of_group = |(at, group): (usize, &super::plan::Group)| {
        let number = of.measure.customers.group(at);
        let samples = (1..).map(f64::from).zip(&of.measure.cpu.by_sample);
        let points = samples.map(|(i, cpu)| (i * every, 100.0 * cpu[number].used / 1e6 / every / group.limit));
        Series { name: group.name.clone(), kind: SeriesKind::Line, points: points.collect(), ..Series::default() }
    };
    let groups = plan.groups.iter().enumerate().map(of_group);
    Figure {
        id: format!("use-over-time-{}", slug(&of.arm.name)),
        title: format!("CPU of each customer, over its limit: {}", of.arm.name),
        x: Axis::linear("time", "s"),
        y: Axis::linear("use", "%"),
        series: plan.customers.iter().enumerate().map(of_customer).chain(groups).collect(),
        marks: marks(&plan.phases),
        ..Figure::default()
    }
}
