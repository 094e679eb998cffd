//! The clients that get notices: their addresses, in a table with a bound.
//!
//! A table of rows and an index of row numbers, because a map of whole rows doubles its memory when
//! it grows: 65,536 leases take 3.7 MiB, of 4. Expired rows are removed a few at a time, by queries
//! that come anyway. A full table grants no new lease; those that hold one keep it, so a flood of
//! newcomers evicts nobody.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use core::time::Duration;

use hashbrown::HashTable;
use twox_hash::XxHash64;

use super::super::message::{Instance, Peer};
use crate::Timestamp;

/// Largest number of leases.
pub const MAX_LEASES: usize = 65_536;
/// Rows that a query inspects for expiry.
const SWEPT: usize = 2;
/// Rows that a query inspects if the table is full.
const SWEPT_WHEN_FULL: usize = 16;

/// One client. Numbers of 64 bits are split, so that a row has no padding.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lease {
    address: [u8; 16],
    nonce: [u32; 2],
    instance: [u32; 2],
    /// Seconds since the origin.
    expires_s: u32,
    round_trip_us: u32,
    client_port: u16,
    local: u16,
    /// The TCP port that the client asked about.
    pub(super) server_port: u16,
    key_id: u8,
    /// Notices sent since the last change of state; [`SETTLED`] after an acknowledgement.
    pub(super) sends: u8,
}

/// No notice is due.
pub(super) const SETTLED: u8 = u8::MAX;

impl Lease {
    pub(super) fn nonce(&self) -> u64 {
        join(self.nonce)
    }

    pub(super) fn round_trip(&self) -> Duration {
        Duration::from_micros(self.round_trip_us.into())
    }

    pub(super) fn is_current(&self, now: Timestamp) -> bool {
        now.as_nanos() < u64::from(self.expires_s) * 1_000_000_000
    }

    pub(super) fn peer(&self) -> Option<Peer> {
        let ip = IpAddr::V6(Ipv6Addr::from(self.address)).to_canonical();
        let address = SocketAddr::new(ip, self.client_port);
        Some(Peer { address, local: self.local, key_id: self.key_id, instance: Instance::new(join(self.instance))? })
    }

    fn is_of(&self, address: [u8; 16], port: u16) -> bool {
        self.client_port == port && self.address == address
    }
}

/// The facts of a lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) nonce: u64,
    pub(super) server_port: u16,
    pub(super) round_trip_us: u32,
    pub(super) lease_s: u16,
}

/// All leases.
#[derive(Clone, Debug)]
pub(super) struct Leases {
    rows: Vec<Lease>,
    index: HashTable<u32>,
    hash_seed: u64,
    hand: usize,
}

impl Leases {
    pub(super) fn new(hash_seed: u64) -> Self {
        Self { rows: Vec::new(), index: HashTable::new(), hash_seed, hand: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn row_mut(&mut self, row: usize) -> Option<&mut Lease> {
        self.rows.get_mut(row)
    }

    pub(super) fn find_mut(&mut self, peer: &Peer) -> Option<&mut Lease> {
        let row = self.find(peer)?;
        self.rows.get_mut(row)
    }

    /// Grants or renews a lease. `false` if the table is full.
    pub(super) fn grant(&mut self, now: Timestamp, peer: &Peer, terms: Terms) -> bool {
        let (address, port) = key(peer);
        let until = now.as_nanos().div_ceil(1_000_000_000) + u64::from(terms.lease_s);
        let mut lease = Lease {
            address,
            nonce: split(terms.nonce),
            instance: split(peer.instance.number()),
            expires_s: u32::try_from(until).unwrap_or(u32::MAX),
            round_trip_us: terms.round_trip_us,
            client_port: port,
            local: peer.local,
            server_port: terms.server_port,
            key_id: peer.key_id,
            sends: SETTLED,
        };
        match self.find(peer) {
            Some(row) => {
                lease.sends = self.rows[row].sends;
                self.rows[row] = lease;
            }
            None if self.rows.len() < MAX_LEASES => self.insert(lease),
            None => return false,
        }
        true
    }

    /// Ends a lease. Its row stays until a sweep.
    pub(super) fn release(&mut self, peer: &Peer) {
        if let Some(lease) = self.find_mut(peer) {
            lease.expires_s = 0;
        }
    }

    /// Removes some of the expired leases. It renumbers rows.
    pub(super) fn sweep(&mut self, now: Timestamp) {
        let inspected = if self.rows.len() < MAX_LEASES { SWEPT } else { SWEPT_WHEN_FULL };
        for _ in 0..inspected.min(self.rows.len()) {
            if self.hand >= self.rows.len() {
                self.hand = 0;
            }
            match self.rows.get(self.hand) {
                Some(lease) if !lease.is_current(now) => self.remove(self.hand),
                Some(_) => self.hand += 1,
                None => return,
            }
        }
    }

    /// Bytes of memory.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.rows.capacity() * size_of::<Lease>() + self.index.allocation_size()
    }

    fn find(&self, peer: &Peer) -> Option<usize> {
        let (address, port) = key(peer);
        let is_it = |row: &u32| self.rows[*row as usize].is_of(address, port);
        self.index.find(hash(self.hash_seed, address, port), is_it).map(|row| *row as usize)
    }

    fn insert(&mut self, lease: Lease) {
        let (rows, seed) = (&self.rows, self.hash_seed);
        let hash_of = |row: &u32| {
            let lease = rows.get(*row as usize).unwrap_or(&lease);
            hash(seed, lease.address, lease.client_port)
        };
        self.index.insert_unique(hash(seed, lease.address, lease.client_port), self.rows.len() as u32, hash_of);
        self.rows.push(lease);
    }

    fn remove(&mut self, row: usize) {
        self.unlink(row);
        self.rows.swap_remove(row);
        // The last row has moved here.
        if let Some(moved) = self.rows.get(row) {
            let (moved, former) = (hash(self.hash_seed, moved.address, moved.client_port), self.rows.len() as u32);
            if let Some(number) = self.index.find_mut(moved, |number| *number == former) {
                *number = row as u32;
            }
        }
    }

    fn unlink(&mut self, row: usize) {
        let lease = &self.rows[row];
        let hash = hash(self.hash_seed, lease.address, lease.client_port);
        if let Ok(entry) = self.index.find_entry(hash, |number| *number == row as u32) {
            entry.remove();
        }
    }
}

fn key(peer: &Peer) -> ([u8; 16], u16) {
    let address = match peer.address.ip() {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    (address.octets(), peer.address.port())
}

fn hash(seed: u64, address: [u8; 16], port: u16) -> u64 {
    let mut bytes = [0; 18];
    bytes[..16].copy_from_slice(&address);
    bytes[16..].copy_from_slice(&port.to_be_bytes());
    XxHash64::oneshot(seed, &bytes)
}

fn split(number: u64) -> [u32; 2] {
    [(number >> 32) as u32, number as u32]
}

fn join([high, low]: [u32; 2]) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms = Terms { nonce: 0x0123_4567_89ab_cdef, server_port: 80, round_trip_us: 2_000, lease_s: 60 };

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_origin(Duration::from_secs(secs))
    }

    fn peer(number: u32) -> Peer {
        let address = SocketAddr::new(IpAddr::from(number.to_be_bytes()), (number % 60_000) as u16 + 1);
        let instance = Instance::new(u64::from(number) << 33 | 1).unwrap();
        Peer { address, local: 3, key_id: 7, instance }
    }

    #[test]
    fn full_table_takes_at_most_four_mebibytes_and_refuses_newcomers() {
        let mut leases = Leases::new(1);
        for number in 0..MAX_LEASES as u32 {
            assert!(leases.grant(at(0), &peer(number), TERMS));
        }
        assert!(!leases.grant(at(0), &peer(u32::MAX), TERMS));
        assert!(leases.grant(at(0), &peer(5), TERMS), "a lease is renewed in a full table");
        assert_eq!(leases.len(), MAX_LEASES);
        let memory = leases.memory();
        assert!(memory <= 4 << 20 && memory >= MAX_LEASES * size_of::<Lease>(), "{memory} bytes");
        assert_eq!(size_of::<Lease>(), 48);
    }

    #[test]
    fn lease_gives_back_its_peer_and_terms() {
        let mut leases = Leases::new(1);
        let six = Peer { address: "[2001:db8::1]:9".parse().unwrap(), ..peer(1) };
        for peer in [peer(9), six] {
            leases.grant(at(10), &peer, TERMS);
            let lease = leases.find_mut(&peer).unwrap();
            assert_eq!((lease.peer(), lease.nonce()), (Some(peer), TERMS.nonce));
            assert_eq!((lease.server_port, lease.round_trip()), (80, Duration::from_millis(2)));
            assert!(lease.is_current(at(69)) && !lease.is_current(at(70)));
        }
    }

    #[test]
    fn sweeps_remove_expired_leases_and_keep_all_others_findable() {
        let mut leases = Leases::new(1);
        for number in 0..1_000 {
            let lease_s = if number % 3 == 0 { 10 } else { 100 };
            leases.grant(at(0), &peer(number), Terms { lease_s, ..TERMS });
        }
        for _ in 0..1_000 {
            leases.sweep(at(50));
        }
        assert_eq!(leases.len(), 666);
        for number in 0..1_000 {
            let found = leases.find_mut(&peer(number)).map(|lease| lease.peer());
            assert_eq!(found, (number % 3 != 0).then(|| Some(peer(number))), "{number}");
        }
    }

    #[test]
    fn released_lease_is_over_at_once_and_swept() {
        let mut leases = Leases::new(1);
        leases.grant(at(0), &peer(1), TERMS);
        leases.release(&peer(1));
        leases.release(&peer(2));
        assert!(leases.find_mut(&peer(1)).is_some_and(|lease| !lease.is_current(at(0))));
        leases.sweep(at(0));
        assert_eq!((leases.len(), leases.find_mut(&peer(1)).is_none()), (0, true));
    }

    #[test]
    fn expired_leases_of_a_full_table_make_room() {
        let mut leases = Leases::new(1);
        for number in 0..MAX_LEASES as u32 {
            leases.grant(at(0), &peer(number), TERMS);
        }
        leases.sweep(at(60));
        assert_eq!(leases.len(), MAX_LEASES - SWEPT_WHEN_FULL);
        assert!(leases.grant(at(60), &peer(u32::MAX), TERMS));
    }
}
