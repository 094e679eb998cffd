//! How much memory the proxy may use.

use plimsoll_config::{ByteSize, DeValue, Reading, Spanned, Value, number};
use plimsoll_core::Ratio;

/// Share of the memory of the control group or the machine. The rest is for the kernel's buffers of
/// sockets, which a control group counts as the proxy's and no figure of its own shows, and for
/// requests in flight when nothing new is accepted.
const DEFAULT_MAX_MEMORY: Ratio = Ratio::new(0.8).expect("a share of a whole");
/// The minimum for any work at all, with headroom for a few hundred connections.
const LEAST_MAX_MEMORY: ByteSize = ByteSize::kib(32 * 1024);

/// The most memory that the proxy may use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MemoryLimit {
    /// So much.
    Size(ByteSize),
    /// A share of the memory of its control group, else of the machine.
    Share(Ratio),
}

impl MemoryLimit {
    /// In bytes, with `total` bytes there to be used; `None` when that is needed and not known.
    pub(crate) fn bytes(self, total: Option<u64>) -> Option<u64> {
        match self {
            Self::Size(size) => Some(size.bytes() as u64),
            Self::Share(share) => total.map(|total| (total as f64 * share.as_f64()) as u64),
        }
    }
}

impl Default for MemoryLimit {
    fn default() -> Self {
        Self::Share(DEFAULT_MAX_MEMORY)
    }
}

impl Value for MemoryLimit {
    fn read(value: &Spanned<DeValue<'_>>, reading: &mut Reading<'_>) -> Option<Self> {
        if let Some(number) = number(value.get_ref()).filter(|number| *number > 1.0) {
            let help = format!("write \"{number}MiB\", or a share such as \"80%\"");
            reading.problem(format!("expected a size or a share, found the number {number}"), help);
            return None;
        }
        let is_share = value.get_ref().as_str().is_none_or(|text| text.ends_with('%'));
        let (limit, is_enough) = if is_share {
            let share = Ratio::read(value, reading)?;
            (Self::Share(share), share > Ratio::ZERO)
        } else {
            let size = ByteSize::read(value, reading)?;
            (Self::Size(size), size >= LEAST_MAX_MEMORY)
        };
        if !is_enough {
            let help = format!("write at least {}, a share such as \"80%\", or \"off\"", LEAST_MAX_MEMORY.print());
            reading.problem("is less than the proxy needs to run", help);
        }
        is_enough.then_some(limit)
    }

    fn print(&self) -> String {
        match self {
            Self::Size(size) => size.print(),
            Self::Share(share) => share.print(),
        }
    }
}
