//! Ten minutes of samples: a page that is opened during an incident shows its beginning.

use std::collections::VecDeque;

use serde::ser::{Serialize, SerializeStruct as _, Serializer};

use super::series::{SERIES, Sample, known};

/// Samples kept, one a second.
pub(crate) const MAX_SAMPLES: usize = 600;

/// The latest samples of a cluster. Memory grows with use, to about 80 KB.
#[derive(Debug, Default)]
pub(crate) struct History(VecDeque<Sample>);

impl History {
    /// Adds the sample of the second that has just ended.
    pub(crate) fn push(&mut self, sample: Sample) {
        if self.0.len() == MAX_SAMPLES {
            self.0.pop_front();
        }
        self.0.push_back(sample);
    }

    pub(crate) fn latest(&self) -> Option<&Sample> {
        self.0.back()
    }

    /// The event for a page that has just connected; `at` is the time of the latest sample, in
    /// seconds since 1970.
    pub(crate) fn event<'h>(&'h self, cluster: &'h str, at: f64) -> impl Serialize + 'h {
        Event { history: self, cluster, at }
    }
}

struct Event<'h> {
    history: &'h History,
    cluster: &'h str,
    at: f64,
}

impl Serialize for Event<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let samples = self.history.0.len();
        let mut event = serializer.serialize_struct("History", 5)?;
        event.serialize_field("cluster", self.cluster)?;
        event.serialize_field("step_s", &1.0)?;
        event.serialize_field("begin", &(self.at - samples.saturating_sub(1) as f64))?;
        event.serialize_field("samples", &samples)?;
        event.serialize_field("series", &Columns(&self.history.0))?;
        event.end()
    }
}

/// The samples by series.
struct Columns<'h>(&'h VecDeque<Sample>);

impl Serialize for Columns<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(SERIES.map(|(name, value)| (name, Column(self.0, value))))
    }
}

struct Column<'h>(&'h VecDeque<Sample>, fn(&Sample) -> f32);

impl Serialize for Column<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|sample| known((self.1)(sample))))
    }
}
