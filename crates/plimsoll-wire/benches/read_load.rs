//! What it costs to read the load report of a response, beside the general decoder.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use http::{HeaderMap, HeaderValue};
use plimsoll_core::LoadReport;
use plimsoll_wire::headers::ENDPOINT_LOAD_METRICS_BIN;
use plimsoll_wire::orca::{self, ACTIVE_REQUESTS_METRIC, OrcaLoadReport};

fn read_load(criterion: &mut Criterion) {
    let load = LoadReport {
        application_utilization: 0.61,
        cpu_utilization: 0.61,
        qps: 812.5,
        eps: 1.25,
        ..LoadReport::default()
    };
    let mut report = OrcaLoadReport::from(&load);
    report.named_metrics.insert(ACTIVE_REQUESTS_METRIC.to_owned(), 7.0);
    let mut headers = HeaderMap::new();
    for name in ["content-type", "content-length", "date", "server", "x-backend"] {
        headers.insert(name, HeaderValue::from_static("34"));
    }
    criterion.bench_function("read_load/absent", |b| b.iter(|| orca::read_load(black_box(&headers))));
    headers.insert(ENDPOINT_LOAD_METRICS_BIN, report.to_header_value());
    criterion.bench_function("read_load/present", |b| b.iter(|| orca::read_load(black_box(&headers))));
    criterion.bench_function("read/present", |b| b.iter(|| orca::read(black_box(&headers))));
}

criterion_group!(benches, read_load);
criterion_main!(benches);
