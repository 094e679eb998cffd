//! The assumption about load that is not known yet: of one server, and of a fleet with limits.

/// A server's assumption about unknown costs, and about load that may last or end at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outlook {
    /// Assumes mean costs, and that a rise of load is chance. It admits a burst, and reacts to an
    /// overload when it is there. All of the capacity is used. Now and then there is more work than
    /// intended, for some tens of milliseconds.
    #[default]
    Optimistic,
    /// Assumes the worst likely case, and that it lasts. The likely highest cost of a request is
    /// reserved before it is admitted ([`Costs::high`](crate::meter::Costs::high)), and work never
    /// exceeds the headroom. Less work waits, and less is done. Below the capacity, bursts are shed
    /// that could have been served a moment later; at the capacity, cores are idle now and then.
    /// For servers that value latency above CPU.
    Pessimistic,
}
