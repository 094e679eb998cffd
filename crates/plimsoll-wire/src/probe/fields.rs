//! The fields of a datagram, at their places.

use std::time::Duration;

use plimsoll_core::LoadReport;

use super::{Fault, LENGTH, MAC_LENGTH, MAGIC};

/// Length of the fields.
pub(super) const HEAD: usize = LENGTH - MAC_LENGTH;

/// A number in flight or a latency that is not known.
const UNKNOWN: u32 = u32::MAX;

/// All fields but the MAC.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields {
    pub(super) magic: [u8; 3],
    pub(super) version: u8,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) key_id: u8,
    pub(super) state: u8,
    pub(super) nonce: u64,
    pub(super) instance: u64,
    pub(super) port: u16,
    pub(super) lease_s: u16,
    /// Round trip or number of a change of state.
    pub(super) number: u32,
    pub(super) cookie: u64,
    pub(super) load: LoadFields,
    pub(super) min_delay_ms: u32,
}

/// The load of an answer, as bits: NaN is not equal to itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LoadFields {
    in_flight: u32,
    latency_us: u32,
    utilization: u32,
    qps: u32,
    eps: u32,
}

impl Default for Fields {
    fn default() -> Self {
        Self {
            magic: MAGIC,
            version: 0,
            kind: 0,
            flags: 0,
            key_id: 0,
            state: 0,
            nonce: 0,
            instance: 0,
            port: 0,
            lease_s: 0,
            number: 0,
            cookie: 0,
            load: LoadFields::default(),
            min_delay_ms: 0,
        }
    }
}

impl Fields {
    pub(super) fn read(bytes: &[u8; HEAD]) -> Self {
        let load = LoadFields {
            in_flight: u32_at(bytes, 40),
            latency_us: u32_at(bytes, 44),
            utilization: u32_at(bytes, 48),
            qps: u32_at(bytes, 52),
            eps: u32_at(bytes, 56),
        };
        Self {
            magic: [bytes[0], bytes[1], bytes[2]],
            version: bytes[3],
            kind: bytes[4],
            flags: bytes[5],
            key_id: bytes[6],
            state: bytes[7],
            nonce: u64_at(bytes, 8),
            instance: u64_at(bytes, 16),
            port: u16::from_be_bytes([bytes[24], bytes[25]]),
            lease_s: u16::from_be_bytes([bytes[26], bytes[27]]),
            number: u32_at(bytes, 28),
            cookie: u64_at(bytes, 32),
            load,
            min_delay_ms: u32_at(bytes, 60),
        }
    }

    /// The datagram with a MAC of zeros.
    pub(super) fn bytes(&self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[..3].copy_from_slice(&self.magic);
        bytes[3..8].copy_from_slice(&[self.version, self.kind, self.flags, self.key_id, self.state]);
        bytes[8..16].copy_from_slice(&self.nonce.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.instance.to_be_bytes());
        bytes[24..26].copy_from_slice(&self.port.to_be_bytes());
        bytes[26..28].copy_from_slice(&self.lease_s.to_be_bytes());
        bytes[28..32].copy_from_slice(&self.number.to_be_bytes());
        bytes[32..40].copy_from_slice(&self.cookie.to_be_bytes());
        let LoadFields { in_flight, latency_us, utilization, qps, eps } = self.load;
        for (number, at) in
            [in_flight, latency_us, utilization, qps, eps, self.min_delay_ms].iter().zip((40..).step_by(4))
        {
            bytes[at..at + 4].copy_from_slice(&number.to_be_bytes());
        }
        bytes
    }

    /// Checks that no other flags are set, and that the named fields are zero.
    pub(super) fn expect_blank(&self, flags: u8, blank: &[&'static str]) -> Result<(), Fault> {
        if self.flags & !flags != 0 {
            return Err(Fault::Field("flags"));
        }
        let is_blank = |name: &str| match name {
            "state" => self.state == 0,
            "lease" => self.lease_s == 0,
            "cookie" => self.cookie == 0,
            "load" => self.load == LoadFields::default(),
            _ => self.min_delay_ms == 0,
        };
        blank.iter().find(|name| !is_blank(name)).map_or(Ok(()), |name| Err(Fault::Field(name)))
    }
}

impl LoadFields {
    /// A report without utilization gives none: 0 would look idle.
    pub(super) fn of(load: &LoadReport) -> Self {
        let rate = |rate: f64| if rate >= 0.0 && (rate as f32).is_finite() { rate as f32 } else { f32::NAN };
        let latency = load.latency.and_then(|latency| u32::try_from(latency.as_micros()).ok());
        Self {
            in_flight: load.in_flight.map_or(UNKNOWN, |number| number.min(UNKNOWN - 1)),
            latency_us: latency.unwrap_or(UNKNOWN),
            utilization: load.utilization().map_or(f32::NAN, rate).to_bits(),
            qps: rate(load.qps).to_bits(),
            eps: rate(load.eps).to_bits(),
        }
    }

    pub(super) fn report(&self) -> Result<LoadReport, Fault> {
        let [utilization, qps, eps] =
            [(self.utilization, "utilization"), (self.qps, "qps"), (self.eps, "eps")].map(|(bits, name)| {
                let number = f32::from_bits(bits);
                if number.is_nan() {
                    Ok(0.0)
                } else if number >= 0.0 && number.is_finite() {
                    Ok(f64::from(number))
                } else {
                    Err(Fault::Field(name))
                }
            });
        let known = |number: u32| Some(number).filter(|number| *number != UNKNOWN);
        Ok(LoadReport {
            application_utilization: utilization?,
            qps: qps?,
            eps: eps?,
            in_flight: known(self.in_flight),
            latency: known(self.latency_us).map(|micros| Duration::from_micros(micros.into())),
            ..LoadReport::default()
        })
    }
}

fn u32_at(bytes: &[u8; HEAD], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8; HEAD], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) << 32 | u64::from(u32_at(bytes, at + 4))
}
