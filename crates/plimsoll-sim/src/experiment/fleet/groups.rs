//! The figures of groups of machines: CPU and 99th percentile of latency, a colour for each group.
//!
//! A policy shows its use where machines differ, and the mean of a fleet hides that: a slow group may be full while a
//! fast one idles. Groups are compared within one arm over its phases, as one looks at a change. Where more arms than
//! have figures of their own meet, arms are compared within each phase instead. Each value is that of the metric
//! `cpu.GROUP` or `p99.GROUP`. A single group has none of these figures: the others show it already.

use super::figures::{MOST_ARMS_BY_THEMSELVES, MOST_PHASES_BY_THEMSELVES, phases};
use super::findings::{Measured, group_cpu, group_names, group_p99};
use super::plan::{Plan, Sweep};
use super::sizes;
use crate::findings::{Axis, Figure, Merge, Series, SeriesKind, slug};

/// More groups could not be told apart: the palette has eight colours.
const MAX_GROUPS: usize = 8;

/// A metric of groups, and its figure.
struct Metric {
    id: &'static str,
    title: &'static str,
    axis: fn() -> Axis,
    /// Given a window and a group, in the unit of the axis.
    value: fn(&Measured<'_>, usize, u32) -> Option<f64>,
}

const METRICS: [Metric; 2] = [
    Metric {
        id: "cpu-by-group",
        title: "CPU used by each group of backends",
        axis: || Axis::linear("CPU used, of provisioned", "%"),
        value: |of, window, group| Some(100.0 * group_cpu(&of.tallies[window], &of.groups, group)?),
    },
    Metric {
        id: "p99-by-group",
        title: "99th percentile of latency of each group of backends",
        axis: || Axis::logarithmic("latency", "ms"),
        // A logarithmic axis has no place for nothing: a microsecond at least.
        value: |of, window, group| Some(group_p99(&of.tallies[window], &of.groups, group)?.max(1e-3)),
    },
];

/// The names of the groups, if there is anything to compare.
fn names(plan: &Plan, measured: &[Measured<'_>]) -> Option<Vec<String>> {
    // The timeline adds groups in all arms alike.
    let names = group_names(plan, measured.first()?.arm);
    (2..=MAX_GROUPS).contains(&names.len()).then_some(names)
}

pub(super) fn figures(plan: &Plan, measured: &[Measured<'_>]) -> Vec<Figure> {
    let Some(names) = names(plan, measured) else { return Vec::new() };
    let has_phases = plan.phases.len() > 1;
    let of_metric = |metric: &Metric| -> Vec<Figure> {
        if has_phases && measured.len() <= MOST_ARMS_BY_THEMSELVES {
            measured.iter().map(|of| by_phase(plan, metric, &names, of)).collect()
        } else if has_phases && plan.phases.len() <= MOST_PHASES_BY_THEMSELVES {
            let of_phase = |(window, phase): (usize, &super::plan::Phase)| Figure {
                id: format!("{}-phase-{window}", metric.id),
                title: format!("{}, phase {}", metric.title, phase.name),
                ..by_arm(metric, &names, measured, window)
            };
            (1..).zip(&plan.phases).map(of_phase).collect()
        } else {
            vec![by_arm(metric, &names, measured, 0)]
        }
    };
    METRICS.iter().flat_map(of_metric).collect()
}

/// One series for each group; `points` are those of a group.
fn series(names: &[String], kind: SeriesKind, points: impl Fn(u32) -> Vec<(f64, f64)>) -> Vec<Series> {
    let one =
        |(group, name): (u32, &String)| Series { name: name.clone(), kind, points: points(group), ..Series::default() };
    (0..).zip(names).map(one).collect()
}

fn by_arm(metric: &Metric, names: &[String], measured: &[Measured<'_>], window: usize) -> Figure {
    let points = |group| {
        let arms = (1..).map(f64::from).zip(measured);
        arms.filter_map(|(x, of)| Some((x, (metric.value)(of, window, group)?))).collect()
    };
    Figure {
        id: metric.id.to_owned(),
        title: metric.title.to_owned(),
        x: Axis::named("arm", measured.iter().map(|of| &*of.arm.name)),
        y: (metric.axis)(),
        series: series(names, SeriesKind::Bars, points),
        ..Figure::default()
    }
}

fn by_phase(plan: &Plan, metric: &Metric, names: &[String], of: &Measured<'_>) -> Figure {
    let phases = phases(plan);
    let points = |group| {
        let windows = (1..).zip(&phases.at);
        windows.filter_map(|(window, x)| Some((*x, (metric.value)(of, window, group)?))).collect()
    };
    Figure {
        id: format!("{}-{}", metric.id, slug(&of.arm.name)),
        title: format!("{}: {}", metric.title, of.arm.name),
        y: (metric.axis)(),
        series: series(names, phases.kind, points),
        x: phases.axis,
        ..Figure::default()
    }
}

/// Over the sizes of one group: each phase of each arm, of the worst seed.
pub(super) fn over_sizes(plan: &Plan, sweep: &Sweep, measured: &[Measured<'_>]) -> Vec<Figure> {
    let Some(names) = names(plan, measured) else { return Vec::new() };
    if sweep.arms.len() > MOST_ARMS_BY_THEMSELVES {
        return Vec::new();
    }
    let mut figures = Vec::new();
    for (window, phase) in sizes::windows(plan) {
        for metric in &METRICS {
            for (arm, sized) in sweep.arms.iter().zip(measured.chunks(sweep.sizes.len())) {
                let points = |group| {
                    let sizes = sweep.sizes.iter().map(|size| f64::from(size.get())).zip(sized);
                    sizes.filter_map(|(x, of)| Some((x, (metric.value)(of, window, group)?))).collect()
                };
                let (of_phase, phase) = phase
                    .map_or_else(Default::default, |phase| (format!("-{}", slug(phase)), format!(", phase {phase}")));
                figures.push(Figure {
                    id: format!("{}-by-count{of_phase}-{}", metric.id, slug(arm)),
                    title: format!("{}{phase}, by number of backends: {arm}", metric.title),
                    x: sizes::axis(plan, sweep),
                    y: (metric.axis)(),
                    series: series(&names, SeriesKind::Line, points),
                    merge: Merge::Max,
                    ..Figure::default()
                });
            }
        }
    }
    figures
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::time::Duration;

    use plimsoll_core::pick::PolicyKind;

    use super::*;
    use crate::experiment::fleet::plan::{Arm, BackendGroup, Phase, Speed};
    use crate::experiment::fleet::run;
    use crate::findings::Findings;
    use crate::run::Of;
    use crate::scenario::Scenario;

    fn group(name: &str, speed: f64) -> BackendGroup {
        BackendGroup { name: name.to_owned(), speed: Speed::Fixed(speed), ..BackendGroup::default() }
    }

    fn arm(name: &str) -> Arm {
        let mut arm = Arm { name: name.to_owned(), ..Arm::default() };
        arm.balancer.policy = PolicyKind::RoundRobin;
        arm
    }

    fn phase(name: &str, at: u64, load: f64) -> Phase {
        Phase { name: name.to_owned(), at: Duration::from_secs(at), settle: Duration::ZERO, load }
    }

    fn plan(phases: Vec<Phase>, arms: usize) -> Plan {
        Plan {
            duration: Duration::from_secs(12),
            warmup: Duration::ZERO,
            phases,
            backends: vec![group("slow", 0.5), group("fast", 1.5)],
            arms: (1..=arms).map(|i| arm(&format!("arm-{i}"))).collect(),
            ..Plan::default()
        }
    }

    fn ids(findings: &Findings) -> Vec<&str> {
        let ids = findings.figures.iter().map(|figure| &*figure.id);
        ids.filter(|id| id.contains("by-group")).collect()
    }

    /// The points of a group in a figure.
    fn points<'f>(findings: &'f Findings, id: &str, group: &str) -> &'f [(f64, f64)] {
        let figure = findings.figures.iter().find(|figure| figure.id == id).expect(id);
        &figure.series.iter().find(|series| series.name == group).expect("each group is a series").points
    }

    #[test]
    fn groups_stand_side_by_side_in_each_arm_without_phases() {
        let findings = run(&plan(Vec::new(), 2), 1, &mut |_| ());
        assert_eq!(ids(&findings), ["cpu-by-group", "p99-by-group"]);
        for group in ["slow", "fast"] {
            let metric = |name: &str| findings.metrics[&format!("{name}.{group}")];
            let cpu = [(1.0, 100.0 * metric("arm-1.cpu")), (2.0, 100.0 * metric("arm-2.cpu"))];
            assert_eq!(points(&findings, "cpu-by-group", group), cpu);
            let p99 = [(1.0, metric("arm-1.p99")), (2.0, metric("arm-2.p99"))];
            assert_eq!(points(&findings, "p99-by-group", group), p99);
        }
    }

    #[test]
    fn groups_stand_side_by_side_in_each_phase_of_an_arm() {
        let phases = vec![phase("busy", 0, 0.8), phase("calm", 4, 0.4), phase("usual", 8, 0.6)];
        let findings = run(&plan(phases, 1), 1, &mut |_| ());
        assert_eq!(ids(&findings), ["cpu-by-group-arm-1", "p99-by-group-arm-1"]);
        let metric = |name: &str| findings.metrics[name];
        let p99 = ["busy", "calm", "usual"].map(|phase| metric(&format!("arm-1.{phase}.p99.slow")));
        assert_eq!(points(&findings, "p99-by-group-arm-1", "slow"), [(1.0, p99[0]), (2.0, p99[1]), (3.0, p99[2])]);
    }

    #[test]
    fn arms_share_a_figure_of_each_phase_when_they_are_many() {
        let findings = run(&plan(vec![phase("busy", 0, 0.8), phase("calm", 6, 0.4)], 5), 1, &mut |_| ());
        let expected = ["cpu-by-group-phase-1", "cpu-by-group-phase-2", "p99-by-group-phase-1", "p99-by-group-phase-2"];
        assert_eq!(ids(&findings), expected);
        let calm = points(&findings, "cpu-by-group-phase-2", "fast");
        assert_eq!((calm.len(), calm[4]), (5, (5.0, 100.0 * findings.metrics["arm-5.calm.cpu.fast"])));
    }

    #[test]
    fn groups_have_no_figure_when_there_is_one_or_too_many() {
        for (count, figures) in [(1, 0), (2, 2), (8, 2), (9, 0)] {
            let backends = (0..count).map(|i| group(&format!("g{i}"), 1.0)).collect();
            let findings = run(&Plan { backends, ..plan(Vec::new(), 1) }, 1, &mut |_| ());
            assert_eq!(ids(&findings).len(), figures, "{count} groups");
        }
    }

    const SIZES: &str = r#"
name = "sizes"
kind = "fleet"
duration = "6s"
warmup = "off"
arrivals = { kind = "rate", per_second = 300 }
[[backends]]
name = "web"
[[backends]]
name = "old"
count = 2
speed = 0.5
[sweep]
group = "web"
count = [4, 6, 8]
[[arms]]
name = "a"
"#;

    #[test]
    fn sweep_has_a_curve_of_each_group_over_the_sizes() {
        let scenario = Scenario::parse("sizes.toml", SIZES).unwrap_or_else(|error| panic!("{error}"));
        let summary = crate::run::run(&scenario, NonZeroUsize::MIN, &|_| {}).unwrap();
        let plotted = summary.figures.iter().find(|plotted| plotted.figure.id == "p99-by-group-by-count-a");
        let plotted = plotted.expect("a figure of the arm");
        assert_eq!(plotted.of, Of::MaxOf(3));
        let worst = |size: u32| (f64::from(size), summary.metrics[&format!("a-{size}.p99.old.max")]);
        assert_eq!(plotted.figure.series[1].points, [worst(4), worst(6), worst(8)]);
    }
}
