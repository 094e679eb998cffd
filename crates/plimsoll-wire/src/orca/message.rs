//! The encoding of an `OrcaLoadReport` in protocol buffers, written by hand.
//!
//! Prost's derive does the same, and its macro is a third of the crates that a server would build
//! for this one message. A test compares both on random reports.

use std::collections::BTreeMap;

use bytes::{Buf, BufMut};
use prost::encoding::{DecodeContext, WireType, btree_map, double, skip_field, string, uint64};
use prost::{DecodeError, Message};

use super::OrcaLoadReport;

type Map = BTreeMap<String, f64>;

impl OrcaLoadReport {
    /// The numbers, by tag.
    fn numbers(&self) -> [(u32, f64); 5] {
        [
            (1, self.cpu_utilization),
            (2, self.mem_utilization),
            (6, self.rps_fractional),
            (7, self.eps),
            (9, self.application_utilization),
        ]
    }

    /// The maps, by tag.
    fn maps(&self) -> [(u32, &Map); 3] {
        [(4, &self.request_cost), (5, &self.utilization), (8, &self.named_metrics)]
    }
}

impl Message for OrcaLoadReport {
    /// In the order of the tags, as every encoder does.
    fn encode_raw(&self, buf: &mut impl BufMut) {
        let [cpu, mem, rps, eps, application] = self.numbers();
        let [request_cost, utilization, named] = self.maps();
        encode_number(cpu, buf);
        encode_number(mem, buf);
        if self.rps != 0 {
            uint64::encode(3, &self.rps, buf);
        }
        encode_map(request_cost, buf);
        encode_map(utilization, buf);
        encode_number(rps, buf);
        encode_number(eps, buf);
        encode_map(named, buf);
        encode_number(application, buf);
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        match tag {
            1 => double::merge(wire_type, &mut self.cpu_utilization, buf, ctx),
            2 => double::merge(wire_type, &mut self.mem_utilization, buf, ctx),
            3 => uint64::merge(wire_type, &mut self.rps, buf, ctx),
            4 => merge_map(&mut self.request_cost, buf, ctx),
            5 => merge_map(&mut self.utilization, buf, ctx),
            6 => double::merge(wire_type, &mut self.rps_fractional, buf, ctx),
            7 => double::merge(wire_type, &mut self.eps, buf, ctx),
            8 => merge_map(&mut self.named_metrics, buf, ctx),
            9 => double::merge(wire_type, &mut self.application_utilization, buf, ctx),
            _ => skip_field(wire_type, tag, buf, ctx),
        }
    }

    fn encoded_len(&self) -> usize {
        let numbers = self.numbers().into_iter().filter(|(_, value)| *value != 0.0);
        let numbers: usize = numbers.map(|(tag, value)| double::encoded_len(tag, &value)).sum();
        let rps = if self.rps == 0 { 0 } else { uint64::encoded_len(3, &self.rps) };
        let map = |(tag, map): (u32, &Map)| btree_map::encoded_len(string::encoded_len, double::encoded_len, tag, map);
        numbers + rps + self.maps().map(map).iter().sum::<usize>()
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

fn encode_number((tag, value): (u32, f64), buf: &mut impl BufMut) {
    if value != 0.0 {
        double::encode(tag, &value, buf);
    }
}

fn encode_map<B: BufMut>((tag, map): (u32, &Map), buf: &mut B) {
    btree_map::encode(string::encode, string::encoded_len, double::encode, double::encoded_len, tag, map, buf);
}

fn merge_map<B: Buf>(map: &mut Map, buf: &mut B, ctx: DecodeContext) -> Result<(), DecodeError> {
    btree_map::merge(string::merge, double::merge, map, buf, ctx)
}
