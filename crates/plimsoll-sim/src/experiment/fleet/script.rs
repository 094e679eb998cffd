//! The timeline of a plan, taken apart into single changes of single things.
//!
//! All groups are numbered here, later ones included, so that all other code identifies backends by
//! number.

use std::ops::Range;
use std::time::Duration;

use plimsoll_core::{BalancerConfig, Timestamp};

use super::plan::{
    Antagonist, Arm, BackendGroup, Change, Cold, ColdCourse, Conduct, Plan, Restart, Selection, SourceState,
};
use crate::experiment::windows::{Window, windows};

/// Steps in which a cold backend becomes faster.
const WARMING_STEPS: u32 = 20;

/// A single change.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Conduct { backend: u32, conduct: Conduct },
    Warmth { backend: u32, warmth: f64 },
    Antagonist { backend: u32, antagonist: Antagonist },
    Speed { backend: u32, factor: f64 },
    AddBackends { group: u32 },
    RemoveBackends { backends: Vec<u32> },
    Source { state: SourceState },
    AddClients { count: u32 },
    RemoveClients { count: u32 },
    Configure { balancer: Box<BalancerConfig> },
    Load { load: f64 },
    Begin { window: u16 },
    End { window: u16 },
}

/// All changes of one arm, in order.
#[derive(Clone, Debug)]
pub(super) struct Script<'p> {
    pub(super) groups: Vec<&'p BackendGroup>,
    /// The numbers of each group's backends.
    pub(super) numbers: Vec<Range<u32>>,
    /// Number of groups at the start.
    pub(super) initial: usize,
    /// Number of groups at the time of the change being written.
    present: usize,
    pub(super) windows: Vec<Window>,
    pub(super) steps: Vec<(Timestamp, Step)>,
}

impl<'p> Script<'p> {
    pub(super) fn new(plan: &'p Plan, arm: &Arm) -> Self {
        let mut happenings: Vec<_> = plan.timeline.iter().collect();
        happenings.sort_by_key(|happening| happening.at);
        let added = happenings.iter().filter_map(|happening| match &happening.change {
            Change::AddBackends { group } => Some(group),
            _ => None,
        });
        let groups: Vec<_> = plan.backends.iter().chain(added).collect();
        let mut next = 0;
        let numbers = groups.iter().map(|group| {
            let first = next;
            next += group.count.get();
            first..next
        });
        let mut script = Self {
            numbers: numbers.collect(),
            groups,
            initial: plan.backends.len(),
            present: plan.backends.len(),
            windows: windows(&plan.phases, plan.warmup, plan.duration),
            steps: Vec::new(),
        };
        for happening in happenings {
            script.change(happening.at, &happening.change);
        }
        for switch in &arm.switches {
            script.step(switch.at, Step::Configure { balancer: Box::new(switch.balancer) });
        }
        for phase in &plan.phases {
            script.step(phase.at, Step::Load { load: phase.load });
        }
        for window in 0..script.windows.len() {
            let Window { from, to, .. } = script.windows[window];
            let window = window as u16;
            script.step(from, Step::Begin { window });
            script.step(to, Step::End { window });
        }
        // Stable: changes at one time keep this order, except that ends come before beginnings.
        script.steps.sort_by_key(|(at, step)| (*at, !matches!(step, Step::End { .. })));
        script
    }

    /// The numbers of the backends in a selection, of the groups present.
    pub(super) fn select(&self, selection: &Selection) -> Vec<u32> {
        let named = |group: &&BackendGroup| selection.group.as_ref().is_none_or(|name| *name == group.name);
        let present = self.groups.iter().zip(&self.numbers).take(self.present);
        let of_groups = present.filter(|(group, _)| named(group));
        let all = of_groups.flat_map(|(group, numbers)| {
            let places = (0_u32..).zip(numbers.clone());
            let in_zone = |place: u32| selection.zone.as_deref().is_none_or(|zone| group.zone(place) == Some(zone));
            places.filter(move |(place, _)| in_zone(*place)).map(|(_, number)| number)
        });
        let count = selection.count.map_or(usize::MAX, |count| count.get() as usize);
        all.skip(selection.first as usize).take(count).collect()
    }

    /// The failure domain of a backend, by its group and its place in it. Zones come first,
    /// numbered in the order in which groups name them.
    pub(super) fn domain(&self, group: usize, place: u32) -> u32 {
        let spec = self.groups[group];
        let Some(zone) = spec.zone(place) else { return place % spec.domains.get() };
        let mut zones: Vec<&str> = Vec::new();
        for name in self.groups.iter().flat_map(|group| &group.zones) {
            if !zones.contains(&&**name) {
                zones.push(name);
            }
        }
        zones.iter().position(|name| *name == zone).expect("a zone of one of the groups") as u32
    }

    fn step(&mut self, at: Duration, step: Step) {
        self.steps.push((Timestamp::from_origin(at), step));
    }

    fn change(&mut self, at: Duration, change: &Change) {
        let each = |script: &mut Self, backends: &Selection, step: &dyn Fn(u32) -> Step| {
            for backend in script.select(backends) {
                script.step(at, step(backend));
            }
        };
        match change {
            Change::Conduct { backends, conduct } => {
                each(self, backends, &|backend| Step::Conduct { backend, conduct: *conduct });
            }
            Change::Antagonist { backends, antagonist } => {
                each(self, backends, &|backend| Step::Antagonist { backend, antagonist: *antagonist });
            }
            Change::Speed { backends, factor } => {
                each(self, backends, &|backend| Step::Speed { backend, factor: *factor });
            }
            Change::Restart { backends, restart } => {
                for (place, backend) in (0_u32..).zip(self.select(backends)) {
                    self.restart(at + restart.stagger.saturating_mul(place), backend, restart);
                }
            }
            Change::AddBackends { .. } => {
                self.step(at, Step::AddBackends { group: self.present as u32 });
                self.present += 1;
            }
            Change::RemoveBackends { backends } => {
                let backends = self.select(backends);
                self.step(at, Step::RemoveBackends { backends });
            }
            Change::Source { state, lasts } => {
                self.step(at, Step::Source { state: *state });
                self.step(at + *lasts, Step::Source { state: SourceState::Complete });
            }
            Change::AddClients { count } => self.step(at, Step::AddClients { count: count.get() }),
            Change::RemoveClients { count } => self.step(at, Step::RemoveClients { count: count.get() }),
        }
    }

    fn restart(&mut self, at: Duration, backend: u32, restart: &Restart) {
        let Restart { lame_duck, down, cold: Cold { factor, lasts, course }, .. } = *restart;
        if !lame_duck.is_zero() {
            self.step(at, Step::Conduct { backend, conduct: Conduct::LameDuck });
        }
        self.step(at + lame_duck, Step::Conduct { backend, conduct: Conduct::Down });
        let up = at + lame_duck + down;
        self.step(up, Step::Warmth { backend, warmth: if lasts.is_zero() { 1.0 } else { factor } });
        self.step(up, Step::Conduct { backend, conduct: Conduct::Serve });
        if lasts.is_zero() {
            return;
        }
        if course == ColdCourse::Rising {
            for step in 1..WARMING_STEPS {
                let share = f64::from(step) / f64::from(WARMING_STEPS);
                let warmth = factor + (1.0 - factor) * share;
                self.step(up + lasts.mul_f64(share), Step::Warmth { backend, warmth });
            }
        }
        self.step(up + lasts, Step::Warmth { backend, warmth: 1.0 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::fleet::plan::{Happening, Phase};
    use std::num::NonZeroU32;

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn plan(changes: Vec<(u64, Change)>) -> Plan {
        let timeline = changes.into_iter().map(|(at, change)| Happening { at: secs(at), change }).collect();
        Plan { timeline, ..Plan::default() }
    }

    fn group(name: &str, count: u32) -> BackendGroup {
        BackendGroup {
            name: name.to_owned(),
            count: NonZeroU32::new(count).expect("not zero"),
            ..BackendGroup::default()
        }
    }

    #[test]
    fn groups_are_numbered_in_the_order_of_their_start() {
        let mut plan = plan(vec![
            (40, Change::AddBackends { group: group("last", 1) }),
            (20, Change::AddBackends { group: group("later", 2) }),
        ]);
        plan.backends = vec![group("a", 3), group("b", 2)];
        let script = Script::new(&plan, &plan.arms[0]);
        assert_eq!(script.numbers, [0..3, 3..5, 5..7, 7..8]);
        let select = |group: Option<&str>, first, count| {
            let group = group.map(str::to_owned);
            script.select(&Selection { group, zone: None, first, count: NonZeroU32::new(count) })
        };
        assert_eq!(select(Some("later"), 0, 0), [5, 6]);
        assert_eq!(select(None, 2, 2), [2, 3]);
        assert_eq!(select(Some("b"), 1, 9), [4]);
    }

    #[test]
    fn zone_selects_its_backends_of_every_group_and_is_one_failure_domain() {
        let zones = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let mut plan = plan(vec![(
            20,
            Change::AddBackends { group: BackendGroup { zones: zones(&["c", "b"]), ..group("later", 2) } },
        )]);
        plan.backends = vec![
            BackendGroup { zones: zones(&["a", "b", "c"]), ..group("one", 7) },
            BackendGroup { zones: zones(&["c"]), ..group("two", 2) },
        ];
        let script = Script::new(&plan, &plan.arms[0]);
        let select = |group: Option<&str>, zone: &str, first, count| {
            let (group, zone) = (group.map(str::to_owned), Some(zone.to_owned()));
            script.select(&Selection { group, zone, first, count: NonZeroU32::new(count) })
        };
        assert_eq!(select(None, "a", 0, 0), [0, 3, 6]);
        assert_eq!(select(None, "c", 0, 0), [2, 5, 7, 8, 9]);
        assert_eq!(select(Some("one"), "c", 0, 0), [2, 5]);
        assert_eq!(select(None, "c", 1, 2), [5, 7]);
        let domains: Vec<u32> = (0..7).map(|place| script.domain(0, place)).collect();
        assert_eq!(domains, [0, 1, 2, 0, 1, 2, 0]);
        assert_eq!([script.domain(1, 0), script.domain(1, 1), script.domain(2, 0), script.domain(2, 1)], [2, 2, 2, 1]);
    }

    #[test]
    fn change_of_all_backends_affects_those_present_at_that_time() {
        let drop_all = || Change::RemoveBackends { backends: Selection::default() };
        let mut plan =
            plan(vec![(10, drop_all()), (20, Change::AddBackends { group: group("later", 2) }), (30, drop_all())]);
        plan.backends = vec![group("a", 3)];
        let removed: Vec<Vec<u32>> = (Script::new(&plan, &plan.arms[0]).steps.into_iter())
            .filter_map(|(_, step)| match step {
                Step::RemoveBackends { backends } => Some(backends),
                _ => None,
            })
            .collect();
        assert_eq!(removed, [vec![0, 1, 2], vec![0, 1, 2, 3, 4]]);
    }

    #[test]
    fn restart_goes_from_lame_duck_to_warm_one_backend_at_a_time() {
        let cold = Cold { factor: 0.5, lasts: secs(20), course: ColdCourse::Rising };
        let restart = Restart { lame_duck: secs(2), down: secs(3), cold, stagger: secs(10) };
        let plan = plan(vec![(10, Change::Restart { backends: Selection::default(), restart })]);
        let script = Script::new(&plan, &plan.arms[0]);
        let of_second: Vec<(u64, f64)> = script
            .steps
            .iter()
            .filter_map(|(at, step)| match step {
                Step::Warmth { backend: 1, warmth } => Some((at.as_nanos() / 1_000_000_000, *warmth)),
                Step::Conduct { backend: 1, conduct } => {
                    let code = if *conduct == Conduct::LameDuck { -1.0 } else { -2.0 };
                    (*conduct != Conduct::Serve).then_some((at.as_nanos() / 1_000_000_000, code))
                }
                _ => None,
            })
            .collect();
        assert_eq!(of_second[..3], [(20, -1.0), (22, -2.0), (25, 0.5)]);
        assert_eq!(of_second.last(), Some(&(45, 1.0)));
        let warmths: Vec<f64> = of_second[2..].iter().map(|(_, warmth)| *warmth).collect();
        assert!(warmths.is_sorted() && warmths.len() == 21);
        let half_way = of_second.iter().find(|(at, _)| *at == 35).expect("a step a second");
        assert!((half_way.1 - 0.75).abs() < 1e-9);
    }

    #[test]
    fn window_begins_when_settled_and_warm_and_ends_at_the_next_phase() {
        let phase = |at, settle| Phase { at: secs(at), settle: secs(settle), name: format!("{at}"), load: 1.0 };
        let plan = Plan { phases: vec![phase(0, 5), phase(30, 10)], ..Plan::default() };
        let windows = Script::new(&plan, &plan.arms[0]).windows;
        let times: Vec<_> = windows.iter().map(|window| (window.from.as_secs(), window.to.as_secs())).collect();
        assert_eq!(times, [(20, 60), (20, 30), (40, 60)]);
    }
}
