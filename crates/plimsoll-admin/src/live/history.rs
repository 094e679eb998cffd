//! Ten minutes of samples: a page that is opened during an incident shows its beginning.

use std::collections::VecDeque;

use serde::ser::{Serialize, SerializeStruct as _, Serializer};

use crate::round::significant;

/// Samples kept, one a second.
pub const MAX_SAMPLES: usize = 600;

/// A series: its name, and its number in a sample.
pub type NamedSeries<S> = (&'static str, fn(&S) -> f32);

/// One second of a subject, such as a cluster: a number for each chart.
///
/// Ten minutes are kept, so a sample is as small as it can be: `f32`, and NaN for a number that is
/// not known.
pub trait Series: Sized + 'static {
    /// All series.
    const ALL: &'static [NamedSeries<Self>];
}

/// A number to three significant digits, which a chart of a thousand pixels can show; `None` if it
/// is not known.
pub(crate) fn known(value: f32) -> Option<f32> {
    value.is_finite().then(|| significant(f64::from(value)) as f32)
}

/// The latest samples of a subject. Memory grows with use, to [`MAX_SAMPLES`].
#[derive(Debug)]
pub struct History<S>(VecDeque<S>);

impl<S> Default for History<S> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<S: Series> History<S> {
    /// Adds the sample of the second that has just ended.
    pub fn push(&mut self, sample: S) {
        if self.0.len() == MAX_SAMPLES {
            self.0.pop_front();
        }
        self.0.push_back(sample);
    }

    /// The sample of the last second.
    #[must_use]
    pub fn latest(&self) -> Option<&S> {
        self.0.back()
    }

    /// The event for a page that has just connected. `subject` is the kind of the subject, such as `cluster`,
    /// and its name; `at` is the time of the latest sample, in seconds since 1970.
    pub fn event<'h>(&'h self, subject: (&'static str, &'h str), at: f64) -> impl Serialize + 'h {
        Event { history: self, subject, at }
    }
}

struct Event<'h, S> {
    history: &'h History<S>,
    subject: (&'static str, &'h str),
    at: f64,
}

impl<S: Series> Serialize for Event<'_, S> {
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        let samples = self.history.0.len();
        let (kind, name) = self.subject;
        let mut event = serializer.serialize_struct("History", 5)?;
        event.serialize_field(kind, name)?;
        event.serialize_field("step_s", &1.0)?;
        event.serialize_field("begin", &(self.at - samples.saturating_sub(1) as f64))?;
        event.serialize_field("samples", &samples)?;
        event.serialize_field("series", &Columns(&self.history.0))?;
        event.end()
    }
}

/// The samples by series.
struct Columns<'h, S>(&'h VecDeque<S>);

impl<S: Series> Serialize for Columns<'_, S> {
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        serializer.collect_map(S::ALL.iter().map(|(name, value)| (name, Column(self.0, *value))))
    }
}

struct Column<'h, S>(&'h VecDeque<S>, fn(&S) -> f32);

impl<S> Serialize for Column<'_, S> {
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        serializer.collect_seq(self.0.iter().map(|sample| known((self.1)(sample))))
    }
}
