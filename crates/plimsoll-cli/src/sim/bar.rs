//! A bar on stderr that says how far a run is; only where somebody looks, and only when it takes a while.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;

/// Steps of the bar.
const STEPS: u64 = 1_000;
/// What ends sooner needs no bar.
const PATIENCE: Duration = Duration::from_secs(1);

/// How far the run of one scenario is.
pub(super) struct Bar {
    bar: ProgressBar,
    name: String,
    begun: Instant,
    shown: Mutex<bool>,
}

impl Bar {
    /// One that is not seen yet.
    pub(super) fn new(name: &str) -> Self {
        let bar = ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::hidden());
        Self { bar, name: name.to_owned(), begun: Instant::now(), shown: Mutex::new(!std::io::stderr().is_terminal()) }
    }

    /// This part is done, in [0, 1].
    pub(super) fn set(&self, part: f64) {
        let mut shown = self.shown.lock();
        if !*shown && self.begun.elapsed() > PATIENCE {
            let style = ProgressStyle::with_template("{msg} {wide_bar} {percent:>3}% {elapsed}, {eta} left");
            self.bar.set_style(style.expect("the template is well-formed"));
            self.bar.set_message(self.name.clone());
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            *shown = true;
        }
        drop(shown);
        self.bar.set_position((part * STEPS as f64) as u64);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
