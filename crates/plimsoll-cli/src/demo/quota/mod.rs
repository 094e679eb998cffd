//! The scene `quota`: eight backends share the limits of four customers, and one customer goes to three
//! times its limit.
//!
//! A quota server and eight backends run as real processes of this program, and the requests go to the
//! backends directly. Each customer sends most of its requests to a few backends of its own, so the parts of
//! its limit are to be uneven. The server is then killed for some seconds: tasks go on with their leases.
//!
//! The costs are those in the header `x-plimsoll-cost-us`: CPU of the code that answers a request. The limits
//! count an estimate of its HTTP in addition, some 3% here. The kernel's count stands beside the sum: it has
//! refused requests too, and the rest of each process.

mod customer;
mod fleet;
mod phase;
mod stage;
mod state;
mod table;

use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use self::customer::CUSTOMERS;
use self::fleet::{BACKENDS, Fleet};
use self::phase::{Phase, QuotaResult};
use self::stage::Stage;
use self::state::State;
use super::screen::Screen;
use crate::browser::Browser;
use crate::load::engine::Engine;
use crate::load::record::Record;
use crate::output::errln;

pub(super) use self::table::summary;

/// Length of all stages together, if none is asked for.
pub(super) const DEFAULT_LENGTH: Duration = Duration::from_secs(32);

/// Runs all stages. Returns their figures.
pub(super) async fn run(length: Duration, screen: &mut Screen, browser: Browser) -> anyhow::Result<Vec<QuotaResult>> {
    errln!("a quota server waits 5 s for the rates of an earlier one, then shares the limits\n");
    let names: Vec<String> = customer::criticalities()?.names().collect();
    let mut fleet = Fleet::start().await?;
    let total: f64 = CUSTOMERS.iter().map(|customer| customer.limit).sum();
    errln!("{BACKENDS} backends, limits of {total:.2} CPUs, API on http://{}/api/v1/quota\n", fleet.admin);
    browser.page(fleet.admin).show();
    let length = length / u32::try_from(Stage::ALL.len()).unwrap_or(1);
    let (mut results, mut state) = (Vec::new(), None);
    for stage in Stage::ALL {
        let phase = play(stage, length, &names, &mut fleet, screen, state).await?;
        results.push(phase.result(&names));
        state = phase.into_state();
    }
    fleet.end().await;
    Ok(results)
}

/// One stage, from its beginning to its last response.
async fn play(
    stage: Stage,
    length: Duration,
    names: &[String],
    fleet: &mut Fleet,
    screen: &mut Screen,
    state: Option<State>,
) -> anyhow::Result<Phase> {
    let backends = fleet.backends();
    let engines = (0..CUSTOMERS.len()).map(|at| Ok(Engine::new(customer::plan(at, stage, length, &backends)?)));
    let engines = engines.collect::<anyhow::Result<Vec<Rc<Engine>>>>()?;
    let measured = || -> Vec<Record> { engines.iter().map(|engine| engine.take_measured()).collect() };
    let mut loads = JoinSet::new();
    for engine in &engines {
        let engine = Rc::clone(engine);
        loads.spawn_local(async move { engine.run().await });
    }
    if stage.outage() > 0.0 {
        fleet.lose_server().await;
    }
    let mut phase = Phase::begin(stage, Instant::now(), length, fleet.cpu_used()?, state);
    let mut now = Instant::now();
    while now < phase.end() {
        let next = (now + screen.interval()).min(phase.next_border(now));
        tokio::time::sleep_until(next.into()).await;
        now = Instant::now();
        if now >= phase.outage_end() {
            fleet.restore_server().await?;
        }
        fleet.must_run()?;
        let state = fleet.state().await?;
        now = Instant::now();
        phase.note(now, fleet.cpu_used()?, &measured(), state);
        let result = phase.result(names);
        screen.show(|_| table::drawing(&phase, &result), || table::line(&phase, &result))?;
    }
    screen.keep()?;
    // The load ends about now. Requests in flight still belong to the stage.
    while let Some(ended) = loads.join_next().await {
        ended??;
    }
    phase.note_late(&measured());
    Ok(phase)
}
