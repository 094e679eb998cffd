//! The speed of this machine, and its origin.

use std::fmt;

use plimsoll_core::Speed;

use super::Calibration;

/// The speed of this machine, and its origin.
///
/// Both are needed on pages and in logs: a wrong number is corrected at its origin.
///
/// ```
/// use plimsoll_system::MachineSpeed;
/// use plimsoll_core::Speed;
///
/// let configured = MachineSpeed::from(Speed::new(1.5).expect("within the range"));
/// assert_eq!(configured.to_string(), "1.5 (configured)");
/// let measured = MachineSpeed::calibrated();
/// assert!(measured.speed().as_f64() > 0.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum MachineSpeed {
    /// A number of the owner's.
    Configured(Speed),
    /// A measurement.
    Calibrated(Calibration),
}

impl MachineSpeed {
    /// The measured speed. The first call of the process blocks for some 50 ms: make it before the
    /// start of a server, or on a thread that may block.
    #[must_use]
    pub fn calibrated() -> Self {
        Self::Calibrated(Calibration::of_this_process())
    }

    /// The speed.
    #[must_use]
    pub const fn speed(&self) -> Speed {
        match self {
            Self::Configured(speed) => *speed,
            Self::Calibrated(calibration) => calibration.speed,
        }
    }

    /// The origin: `configured` or `calibrated`.
    #[must_use]
    pub const fn origin(&self) -> &'static str {
        match self {
            Self::Configured(_) => "configured",
            Self::Calibrated(_) => "calibrated",
        }
    }
}

impl From<Speed> for MachineSpeed {
    fn from(speed: Speed) -> Self {
        Self::Configured(speed)
    }
}

impl fmt::Display for MachineSpeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configured(speed) => write!(f, "{speed} (configured)"),
            Self::Calibrated(calibration) => write!(f, "{:.3} (calibrated)", calibration.speed.as_f64()),
        }
    }
}
