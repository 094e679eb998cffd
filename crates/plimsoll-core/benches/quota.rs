//! The cost of the owner of fleet quotas: a round of reports of all tasks, and its memory.
//!
//! Each task reports the demand of all customers, which changes from round to round, and gets its
//! assignment; then the owner sweeps. Half of the customers are over their limits. The second part is a
//! request at the account of a task.
//!
//! ```text
//! cargo bench -p plimsoll-core --bench quota                          1,000 tasks, 1,000 customers
//! cargo bench -p plimsoll-core --bench quota -- 10000 1000            10,000 tasks: ten million entries
//! ```

use std::fs;
use std::time::{Duration, Instant};

use plimsoll_core::quota::{
    Assignment, AssignmentEntry, CustomerId, Cut, FleetUse, Hello, Holder, Owner, OwnerConfig, Report, ReportEntry,
    TaskId,
};
use plimsoll_core::{Criticality, Timestamp};

const ROUNDS: u32 = 7;
const REQUESTS: u32 = 1_000_000;

struct Task {
    id: TaskId,
    report: Report,
    /// The last assignment to it.
    assigned: u32,
}

/// Demand that differs between tasks, customers and rounds, in µCPU.
fn demand(task: u32, customer: u32, round: u32) -> u64 {
    let mixed = (u64::from(task) * 0x9e37_79b9 + u64::from(customer) * 0x85eb_ca6b + u64::from(round) * 0xc2b2_ae35)
        .wrapping_mul(0x2545_f491_4f6c_dd1d);
    1_000 + (mixed >> 40) % 20_000
}

fn memory_mib() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(f64::NAN) / 1024.0
}

fn fleet(tasks: u32, customers: u32) {
    let mut now = Timestamp::ZERO;
    let before = memory_mib();
    let mut owner = Owner::new(now, OwnerConfig::default());
    for customer in 0..customers {
        // The mean demand of a task is about 11,000.
        let limit = u64::from(tasks) * if customer % 2 == 0 { 8_000 } else { 20_000 };
        owner.add_customer(now, limit);
    }
    let join = |_| {
        let hello = Hello { cpus: 1_000.0, tasks: None, holds: Vec::new() };
        let id = owner.join(now, &hello, None).expect("nothing is held");
        Task { id, report: Report::default(), assigned: 0 }
    };
    let mut fleet: Vec<Task> = (0..tasks).map(join).collect();
    let mut entries =
        vec![
            ReportEntry { customer: CustomerId(0), demand: [0; 4], cost: 1_000, lacking: 0, unused: 0, used: 0 };
            customers as usize
        ];
    let each = f64::from(tasks) * f64::from(customers);
    println!("{tasks} tasks, {customers} customers\nround  reports (ns an entry)  sweep (ns an entry)  both (s)");
    for round in 1..=ROUNDS {
        now = now + Duration::from_secs(2);
        let mut reports = Duration::ZERO;
        for (number, task) in fleet.iter_mut().enumerate() {
            for (entry, customer) in entries.iter_mut().zip(0..) {
                entry.customer = CustomerId(customer);
                entry.demand[1] = demand(number as u32, customer, round);
            }
            task.report.number += 1;
            task.report.acknowledged = task.assigned;
            task.report.entries = std::mem::take(&mut entries);
            let begun = Instant::now();
            let answer = owner.report(now, task.id, &task.report).expect("a good report");
            reports += begun.elapsed();
            task.assigned = answer.number;
            entries = std::mem::take(&mut task.report.entries);
        }
        let sweep = Instant::now();
        owner.handle_timeout(now);
        while let Some((id, assignment)) = owner.poll_assignment() {
            fleet[id.0 as usize].assigned = assignment.number;
        }
        let sweep = sweep.elapsed();
        let ns = |duration: Duration| duration.as_secs_f64() * 1e9 / each;
        println!("{round:5}  {:22.1}  {:19.1}  {:8.3}", ns(reports), ns(sweep), (reports + sweep).as_secs_f64());
    }
    println!(
        "memory: {:.0} MiB, {:.1} bytes an entry",
        memory_mib() - before,
        (memory_mib() - before) * 1048576.0 / each
    );
}

fn account() {
    let mut holder = Holder::new(Timestamp::ZERO);
    let customer = holder.add(Timestamp::ZERO);
    holder.connect(Timestamp::ZERO, 1.0);
    let entry = AssignmentEntry {
        customer,
        limit: 100_000_000,
        rate: 10_000_000,
        credit: 0,
        cut: Cut::NONE,
        fleet: Some(FleetUse::default()),
    };
    let (lease, entries) = (OwnerConfig::DEFAULT_LEASE, vec![entry]);
    let assignment =
        Assignment { number: 1, answers: 0, lease, tasks: 10, overloaded: None, is_overdue: false, entries };
    holder.assign(Timestamp::ZERO, &assignment).expect("the first one");
    let account = holder.account(customer);
    let begun = Instant::now();
    let mut admitted = 0_u32;
    for i in 0..REQUESTS {
        let now = Timestamp::from_nanos(u64::from(i) * 10_000);
        if account.ask(now, Criticality::Critical, 100.0, 0.5).is_ok() {
            account.take(100.0);
            admitted += 1;
        }
    }
    let ns = begun.elapsed().as_secs_f64() * 1e9 / f64::from(REQUESTS);
    println!("request at an account: {ns:.1} ns ({admitted} admitted)");
}

fn main() {
    let numbers: Vec<u32> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let [tasks, customers] = *numbers.first_chunk().unwrap_or(&[1_000, 1_000]);
    fleet(tasks, customers);
    account();
}
