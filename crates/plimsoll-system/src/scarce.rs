//! Reads the other scarce resources, as configured: memory, and pressure on CPU and memory.

use plimsoll_core::signal::{Readings, ResourceConfig};

use super::Owner;
use super::memory::MemoryReader;
use super::stalls::StallReader;

/// Reads the values that [`ResourceWatch`](plimsoll_core::signal::ResourceWatch) watches.
#[derive(Debug)]
pub struct ScarceReader {
    memory: Option<MemoryReader>,
    cpu: Option<StallReader>,
    memory_stalls: Option<StallReader>,
}

impl ScarceReader {
    /// A reader of the signals in `config`. It finds the control groups once.
    #[must_use]
    pub fn of(owner: Owner<'_>, config: &ResourceConfig) -> Self {
        let stalls = |resource, is_on: bool| is_on.then(|| StallReader::of(owner, resource)).flatten();
        Self {
            memory: config.memory.map(|_| MemoryReader::of(owner)),
            cpu: stalls("cpu", config.cpu_pressure.is_some()),
            memory_stalls: stalls("memory", config.memory_pressure.is_some()),
        }
    }

    /// The current values. Reads some files, which takes tens of microseconds.
    #[must_use]
    pub fn read(&self) -> Readings {
        Readings {
            memory: self.memory.as_ref().and_then(MemoryReader::read),
            cpu_stalled: self.cpu.as_ref().and_then(StallReader::read),
            memory_stalled: self.memory_stalls.as_ref().and_then(StallReader::read),
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::Ratio;

    use super::*;

    #[test]
    fn nothing_is_read_that_nobody_watches() {
        let config = ResourceConfig { memory: None, cpu_pressure: None, memory_pressure: None };
        assert_eq!(ScarceReader::of(Owner::ThisProcess, &config).read(), Readings::default());
        let all =
            ResourceConfig { cpu_pressure: Some(Ratio::ONE), memory_pressure: Some(Ratio::ONE), ..Default::default() };
        let read = ScarceReader::of(Owner::ThisProcess, &all).read();
        assert!(read.memory.is_some_and(|memory| memory.limit > memory.used), "{read:?}");
        let kernel_counts = std::path::Path::new("/proc/pressure/memory").exists();
        assert_eq!((read.cpu_stalled.is_some(), read.memory_stalled.is_some()), (kernel_counts, kernel_counts));
    }
}
