//! Arms that differ in one number only: the points of a curve.
//!
//! Where a policy has a setting that says how much of something, one tries several values, each in an arm. A legend of ten
//! arms shows nothing then; a curve over the setting does. So arms that are alike but for their names and one of the
//! settings below are drawn over it, and all other arms, which have no place on that axis, as level lines to compare
//! with.

use plimsoll_core::Ratio;
use plimsoll_core::pick::{PolicyKind, ProbeRule};

use super::figures::quantile_ms;
use super::findings::{self, Measured};
use super::plan::{Arm, Plan};
use crate::findings::{Axis, Figure, Scale, Series, SeriesKind};

/// Two points are a comparison, not a curve.
const FEWEST: usize = 3;
const LATENCIES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

/// A setting that one number says.
struct Setting {
    label: &'static str,
    scale: Scale,
    /// Its value, where the arm has a use for it.
    value: fn(&Arm) -> Option<f64>,
    /// The same in all that are to be compared but for it.
    level: fn(&mut Arm),
}

const SETTINGS: [Setting; 3] = [
    Setting {
        label: "probes per request",
        scale: Scale::Logarithmic,
        value: |arm| prequal(arm).then_some(arm.balancer.prequal.probes_per_pick).filter(|probes| *probes > 0.0),
        level: |arm| arm.balancer.prequal.probes_per_pick = 1.0,
    },
    Setting {
        label: "hot_quantile",
        scale: Scale::Linear,
        value: |arm| {
            let used = prequal(arm) && arm.balancer.prequal.rule == ProbeRule::HotCold;
            used.then_some(arm.balancer.prequal.hot_quantile.as_f64())
        },
        level: |arm| arm.balancer.prequal.hot_quantile = Ratio::ONE,
    },
    Setting {
        label: "weight of requests in flight, from 0 to 1",
        scale: Scale::Linear,
        value: |arm| match arm.balancer.prequal.rule {
            ProbeRule::Linear { in_flight_share, .. } if prequal(arm) => Some(in_flight_share.as_f64()),
            _ => None,
        },
        level: |arm| {
            if let ProbeRule::Linear { in_flight_share, .. } = &mut arm.balancer.prequal.rule {
                *in_flight_share = Ratio::ONE;
            }
        },
    },
];

fn prequal(arm: &Arm) -> bool {
    arm.balancer.policy == PolicyKind::Prequal
}

/// Which arms are points of one curve.
struct Sweep {
    setting: &'static Setting,
    /// Values of the setting, rising, and the places of their arms.
    points: Vec<(f64, usize)>,
    /// The places of the others.
    others: Vec<usize>,
}

fn find(arms: &[&Arm]) -> Option<Sweep> {
    SETTINGS.iter().find_map(|setting| {
        let levelled = |arm: &Arm| {
            let mut arm = Arm { name: String::new(), ..arm.clone() };
            (setting.level)(&mut arm);
            arm
        };
        let has_it = |place: &usize| (setting.value)(arms[*place]).is_some();
        let first = levelled(arms[(0..arms.len()).find(has_it)?]);
        let (of_it, others): (Vec<_>, Vec<_>) =
            (0..arms.len()).partition(|place| has_it(place) && levelled(arms[*place]) == first);
        let mut points: Vec<(f64, usize)> =
            of_it.into_iter().filter_map(|place| Some(((setting.value)(arms[place])?, place))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let rises = points.is_sorted_by(|a, b| a.0 < b.0);
        (points.len() >= FEWEST && rises).then_some(Sweep { setting, points, others })
    })
}

/// Latency, requests in flight and who serves, over the setting that is swept; nothing where none is.
pub(super) fn figures(plan: &Plan, measured: &[Measured<'_>]) -> Vec<Figure> {
    let arms: Vec<&Arm> = measured.iter().map(|of| of.arm).collect();
    let Some(sweep) = find(&arms) else { return Vec::new() };
    let latencies = LATENCIES.map(|(name, q)| (name, move |of: &Measured<'_>| quantile_ms(&of.tallies[0], q)));
    let in_flight = |q: f64| move |of: &Measured<'_>| findings::in_flight(&of.tallies[0], q);
    let counts = [("p50", in_flight(0.5)), ("p99", in_flight(0.99))];
    let mut figures = vec![
        sweep.figure("latency", "Latency", Axis::logarithmic("latency", "ms"), measured, &latencies),
        sweep.figure("in-flight", "Requests in flight at a backend", Axis::linear("in flight", ""), measured, &counts),
    ];
    if let [first, _, ..] = &plan.backends[..] {
        let share =
            [(&*first.name, |of: &Measured<'_>| Some(100.0 * findings::group_share(&of.tallies[0], &of.groups, 0)?))];
        let title = format!("Requests that go to {}", first.name);
        figures.push(sweep.figure("share", &title, Axis::linear("requests", "%"), measured, &share));
    }
    figures
}

impl Sweep {
    fn figure(
        &self,
        id: &str,
        title: &str,
        y: Axis,
        measured: &[Measured<'_>],
        values: &[(&str, impl Fn(&Measured<'_>) -> Option<f64>)],
    ) -> Figure {
        let curves = values.iter().map(|(name, value)| {
            let points = self.points.iter().filter_map(|(x, place)| Some((*x, value(&measured[*place])?))).collect();
            Series { name: (*name).to_owned(), kind: SeriesKind::Line, points, ..Series::default() }
        });
        let (first, last) = (self.points[0].0, self.points[self.points.len() - 1].0);
        let levels = self.others.iter().map(|place| &measured[*place]).flat_map(|of| {
            values.iter().map(move |(name, value)| {
                let points = value(of).map_or_else(Vec::new, |level| vec![(first, level), (last, level)]);
                Series { name: format!("{}, {name}", of.arm.name), kind: SeriesKind::Line, points, ..Series::default() }
            })
        });
        let x = Axis { scale: self.setting.scale, ..Axis::linear(self.setting.label, "") };
        Figure {
            id: format!("{id}-by-setting"),
            title: format!("{title}, by {}", self.setting.label),
            x,
            y,
            series: curves.chain(levels).collect(),
            ..Figure::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plimsoll_core::pick::{PrequalConfig, ProbeSource};

    use super::*;
    use crate::experiment::fleet::run;

    fn arm(name: &str, change: impl Fn(&mut PrequalConfig)) -> Arm {
        let mut arm = Arm { name: name.to_owned(), ..Arm::default() };
        arm.balancer.policy = PolicyKind::Prequal;
        arm.balancer.prequal.source = ProbeSource::Live;
        change(&mut arm.balancer.prequal);
        arm
    }

    fn probes(name: &str, probes: f64) -> Arm {
        arm(name, |prequal| prequal.probes_per_pick = probes)
    }

    #[test]
    fn arms_that_differ_in_one_number_are_points_over_it_and_others_are_levels() {
        let arms = vec![probes("two", 2.0), Arm::default(), probes("one", 1.0), probes("half", 0.5)];
        let plan = Plan { arms, duration: Duration::from_secs(12), warmup: Duration::from_secs(4), ..Plan::default() };
        let findings = run(&plan, 1, &mut |_| ());
        let metric = |arm: &str| findings.metrics[&format!("{arm}.p99")];
        let figure = findings.figures.iter().find(|figure| figure.id == "latency-by-setting").expect("a sweep");
        let series =
            |name: &str| &figure.series.iter().find(|series| series.name == name).expect("in the legend").points;
        assert_eq!(series("p99")[..], [(0.5, metric("half")), (1.0, metric("one")), (2.0, metric("two"))]);
        assert_eq!(series("weighted, p99")[..], [(0.5, metric("weighted")), (2.0, metric("weighted"))]);
        assert_eq!(figure.x.scale, Scale::Logarithmic);
    }

    #[test]
    fn arms_that_differ_in_more_are_no_curve() {
        let of = |arms: &[Arm]| find(&arms.iter().collect::<Vec<_>>()).map(|sweep| sweep.setting.label);
        let one = [probes("a", 1.0), probes("b", 2.0), probes("c", 3.0)];
        assert_eq!(of(&one), Some("probes per request"));
        assert_eq!(of(&one[..2]), None);
        let mut other = one.clone();
        other[1].balancer.prequal.removals_per_pick = 0.5;
        assert_eq!(of(&other), None);
        let linear = |share| {
            arm("linear", |prequal| {
                let per_request = Duration::from_millis(75);
                prequal.rule = ProbeRule::Linear { in_flight_share: Ratio::from_percent(share), per_request };
            })
        };
        assert_eq!(of(&[linear(0), linear(50), linear(100)]), Some("weight of requests in flight, from 0 to 1"));
        assert_eq!(of(&[linear(0), linear(50), linear(50)]), None, "two of one value");
    }
}
