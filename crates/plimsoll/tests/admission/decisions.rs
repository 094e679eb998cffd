//! Shedding: the requests that are shed, and the answers they get.

use super::*;

#[tokio::test]
async fn a_server_with_more_to_do_than_it_can_turns_the_least_critical_away() {
    let layer = tiny().build();
    let answers = overload(&layer, Criticality::Critical).await;
    assert!(answers.iter().any(|answer| is_shed(answer) == Some(Rejection::Overloaded)));
    let ok = service(|_| async { "served".to_owned() });
    let ask = async |headers: &[(&'static str, &str)], path: &str| {
        layer.layer(ok.clone()).oneshot(with(get(path), headers)).await.unwrap()
    };
    let lower = ask(&[("x-criticality", "sheddable")], "/").await;
    assert_eq!((lower.status(), is_shed(&lower)), (StatusCode::SERVICE_UNAVAILABLE, Some(Rejection::Overloaded)));
    assert!(lower.headers().contains_key("endpoint-load-metrics-bin"), "it reports its load all the same");
    assert!(text(lower).await.starts_with("overloaded"));
    let grpc = ask(&[("x-criticality", "sheddable"), ("content-type", "application/grpc")], "/s/m").await;
    assert_eq!((grpc.status(), Code::read(grpc.headers())), (StatusCode::OK, Some(Code::Unavailable)));
    assert_eq!(grpc.headers()["grpc-retry-pushback-ms"], "1");
    assert_eq!(text(grpc).await, "");
    let higher = ask(&[("x-criticality", "critical-plus")], "/").await;
    assert_eq!(text(higher).await, "served");
    let ready = ask(&[], "/readyz").await;
    assert_eq!(text(ready).await, "serving", "whatever the load");

    let counts = layer.admission().by_criticality;
    assert_eq!(counts[Criticality::CriticalPlus.rank()].admitted, 1);
    assert_eq!(counts[Criticality::Sheddable.rank()].shed_for(Rejection::Overloaded), 2);
    let critical = counts[Criticality::Critical.rank()];
    assert!(critical.admitted > 0 && critical.shed_for(Rejection::Overloaded) > 0, "{critical:?}");
}

#[tokio::test]
async fn what_is_turned_away_is_judged_by_who_loses_it() {
    let layer = tiny().build();
    assert_eq!(layer.shedding_report().unwrap().verdict, Verdict::Fine);
    let answers = overload(&layer, Criticality::Sheddable).await;
    let turned_away = answers.iter().filter(|answer| is_shed(answer).is_some()).count() as u64;
    let summary = layer.shedding_report().unwrap();
    assert_eq!(summary.verdict, Verdict::AsIntended);
    let class = summary.total[Criticality::Sheddable.rank()];
    assert_eq!((class.offered.requests, class.shed_total().requests), (40, turned_away));
    assert!(class.shed_for(Rejection::Overloaded).requests > 0);
    assert_eq!(summary.enough, None, "not known in the first ten minutes");
    assert_eq!((summary.customers[0].name.as_str(), summary.routes[0].name.as_str()), ("no customer", "GET /busy"));
    overload(&layer, Criticality::Critical).await;
    assert_eq!(layer.shedding_report().unwrap().verdict, Verdict::UsersAffected);
    assert_eq!(builder().admission(None).build().shedding_report(), None);
}

/// No capacity would have helped a request that expired before it came, and its client no longer
/// waited. A request that expires in the server's queue is lost by the server.
#[tokio::test]
async fn no_user_is_affected_by_what_had_no_time_when_it_came() {
    let layer = builder().concurrency_limit(QueueConfig::new(1)).build();
    let ask = async |time: &str| {
        let ok = service(|_| async { String::new() });
        is_shed(&layer.layer(ok).oneshot(with(get("/"), &[("grpc-timeout", time)])).await.unwrap())
    };
    let expired = async || assert_eq!(ask("0n").await, Some(Rejection::Deadline));
    expired().await;
    assert_eq!(ask("10S").await, None);
    drop(tokio::spawn(layer.layer(service(|_| std::future::pending())).oneshot(get("/"))));
    tokio::task::yield_now().await;
    expired().await;
    let summary = layer.shedding_report().unwrap();
    let critical = summary.total[Criticality::Critical.rank()];
    assert_eq!((critical.offered.requests, critical.shed_for(Rejection::Deadline).requests), (4, 2));
    assert_eq!((summary.verdict, summary.windows[0].user_visible_share()), (Verdict::AsIntended, Some(0.0)));

    assert_eq!(ask("1m").await, Some(Rejection::Deadline));
    let summary = layer.shedding_report().unwrap();
    assert_eq!((summary.verdict, summary.windows[0].user_visible_share()), (Verdict::UsersAffected, Some(1.0 / 3.0)));
}

#[tokio::test]
async fn who_has_been_turned_away_elsewhere_is_told_to_give_up() {
    let layer = tiny().build();
    overload(&layer, Criticality::Critical).await;
    let ok = service(|_| async { String::new() });
    let mut last = None;
    for _ in 0..50 {
        let retry = with(get("/"), &[("x-criticality", "sheddable"), ("x-envoy-attempt-count", "2")]);
        last = Some(layer.layer(ok.clone()).oneshot(retry).await.unwrap());
    }
    let shed = last.map(|response| Shed::read(response.status(), response.headers()).unwrap()).unwrap();
    assert_eq!((shed.reason, shed.retry), (Some(Rejection::OverloadedNoRetry), Retry::Never));
}

#[tokio::test]
async fn what_cannot_be_answered_in_time_is_not_begun() {
    let layer = builder().build();
    overload(&layer, Criticality::Critical).await;
    // A fifth of a CPU-second of work that is still to be done.
    let hangs = layer.layer(service(|_| std::future::pending()));
    (0..40).for_each(|_| drop(tokio::spawn(hangs.clone().oneshot(get("/busy")))));
    tokio::task::yield_now().await;
    let ok = service(|_| async { String::new() });
    for (header, value) in [("x-envoy-expected-rq-timeout-ms", "1"), ("grpc-timeout", "1n")] {
        let request = with(get("/busy"), &[(header, value)]);
        let response = layer.layer(ok.clone()).oneshot(request).await.unwrap();
        assert_eq!((response.status(), is_shed(&response)), (StatusCode::GATEWAY_TIMEOUT, Some(Rejection::Deadline)));
    }
}

#[tokio::test]
async fn what_is_late_only_by_its_own_cost_is_begun_by_an_idle_server() {
    let layer = builder().build();
    overload(&layer, Criticality::Critical).await;
    let ok = service(|_| async { String::new() });
    let request = with(get("/busy"), &[("x-envoy-expected-rq-timeout-ms", "1")]);
    assert_eq!(layer.layer(ok).oneshot(request).await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn a_dry_run_counts_and_serves() {
    let layer = tiny().admission(Mode::DryRun).build();
    let answers = overload(&layer, Criticality::Critical).await;
    assert!(answers.iter().all(|answer| is_shed(answer).is_none()));
    let critical = layer.admission().by_criticality[Criticality::Critical.rank()];
    assert!(critical.shed_for(Rejection::Overloaded) > 0 && critical.admitted == 40, "{critical:?}");
}

#[tokio::test]
async fn without_admission_nothing_is_counted() {
    let layer = tiny().admission(None).build();
    let answers = overload(&layer, Criticality::Critical).await;
    assert!(answers.iter().all(|answer| is_shed(answer).is_none()));
    assert_eq!(layer.admission(), Default::default());
}

#[tokio::test]
async fn what_the_owner_exempts_is_served_whatever_the_load() {
    let layer = tiny().exempt(|head| head.uri.path() == "/alive").build();
    overload(&layer, Criticality::Critical).await;
    let ok = service(|_| async { "alive".to_owned() });
    let request = with(get("/alive"), &[("x-criticality", "sheddable")]);
    assert_eq!(text(layer.layer(ok).oneshot(request).await.unwrap()).await, "alive");
}

#[tokio::test]
async fn a_gauge_of_the_owner_leaves_room_for_fewer_at_a_time() {
    let layer = builder().cpus(8.0).gauge(|| 50.0).build();
    assert_eq!(layer.loads().unwrap().binding, None);
    let ok = service(|_| async {
        burn(MS);
        String::new()
    });
    let mut layered = layer.layer(ok);
    let begun = Instant::now();
    let mut turned_away = false;
    while begun.elapsed() < Duration::from_secs(10) && !turned_away {
        let two = [layered.call(get("/")), layered.call(get("/"))];
        turned_away = join_all(two).await.into_iter().any(|answer| is_shed(&answer.unwrap()).is_some());
    }
    assert!(turned_away);
    let loads = layer.loads().unwrap();
    assert_eq!(loads.binding, Some(Signal::Gauge));
    let known: Vec<_> = loads.known().collect();
    assert!(known.contains(&(Signal::Gauge, 50.0)), "{known:?}");
    assert!(known.iter().any(|(signal, load)| *signal == Signal::Memory && *load > 0.0), "by default: {known:?}");
    assert!(known.iter().all(|(signal, _)| *signal != Signal::CpuPressure), "not by default: {known:?}");
    assert_eq!(builder().admission(None).build().loads(), None);
}

/// Requests in progress of a hundred that come at once, after `others` have ended that used 1 and 3
/// ms in turn. Time stands still, so nothing drains.
async fn in_progress_at_once(outlook: Outlook, others: u32) -> u64 {
    let layer = builder().cpus(1.0).outlook(outlook).build();
    let works = service(|request: Request<_>| async move {
        if request.uri().path() == "/hangs" {
            std::future::pending::<()>().await;
        }
        burn(if request.headers().contains_key("dear") { 3 * MS } else { MS });
        String::new()
    });
    for n in 0..others {
        let request = if n % 2 == 0 { get("/") } else { with(get("/"), &[("dear", "yes")]) };
        assert_eq!(text(layer.layer(works.clone()).oneshot(request).await.unwrap()).await, "");
    }
    let mut burst: Vec<_> = (0..100).map(|_| Box::pin(layer.layer(works.clone()).oneshot(get("/hangs")))).collect();
    for request in &mut burst {
        let _ = request.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }
    layer.admission().by_criticality[Criticality::Critical.rank()].admitted - u64::from(others)
}

/// The limit is the work of eight mean requests; the pessimistic outlook counts each at a
/// cost that few exceed.
#[tokio::test(start_paused = true)]
async fn a_pessimistic_server_never_exceeds_its_line() {
    for others in [0, 100] {
        let wary = in_progress_at_once(Outlook::Pessimistic, others).await;
        assert!((5..=8).contains(&wary), "{wary} after {others} others");
        let hopeful = in_progress_at_once(Outlook::Optimistic, others).await;
        assert!(hopeful >= 16, "{hopeful} after {others} others");
    }
}
