//! Limits of customers.

use super::*;

/// One customer has a limit of a twentieth of a CPU, of all that there are.
fn limited() -> ServerLayerBuilder {
    let crawler = Quota::hard(0.05).unwrap();
    builder().cpus(64.0).quota_by(move |customer| (customer.name() == b"crawler").then_some(crawler))
}

/// A service that uses half a millisecond of CPU and answers with its use in nanoseconds.
fn half_a_millisecond()
-> impl Service<Request<Empty<Bytes>>, Response = Response<Body>, Error = Infallible, Future = Answer> + Clone {
    service(|_| async {
        burn(MS / 2);
        tokio::task::yield_now().await;
        used().unwrap().as_nanos().to_string()
    })
}

fn of<'h>(customer: &'h str, criticality: &'h str) -> [(&'static str, &'h str); 2] {
    [("x-customer", customer), ("x-criticality", criticality)]
}

#[tokio::test]
async fn a_customer_uses_no_more_than_its_limit_and_another_does_not_notice() {
    let layer = limited().build();
    let work = half_a_millisecond();
    let ask = async |customer: &str, criticality: &str| {
        layer.layer(work.clone()).oneshot(with(get("/"), &of(customer, criticality))).await.unwrap()
    };
    let begun = Instant::now();
    let (mut nanos, mut over) = (0_u64, 0);
    for _ in 0..600 {
        let response = ask("crawler", "critical").await;
        if response.status() == StatusCode::OK {
            nanos += text(response).await.parse::<u64>().unwrap();
        } else {
            assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
            let shed = Shed::read(response.status(), response.headers()).unwrap();
            assert_eq!((shed.reason, shed.retry), (Some(Rejection::Quota), Retry::After));
            assert!(shed.after.is_some_and(|after| after >= Duration::from_secs(1)), "{shed:?}");
            over += 1;
        }
        assert_eq!(ask("ann", "sheddable").await.status(), StatusCode::OK);
    }
    // The quota's burst, and one second's quota for each second passed. The last request was
    // admitted before its cost was known.
    let seconds = begun.elapsed().as_secs_f64() + 1.01;
    let used = Duration::from_nanos(nanos);
    assert!(used.as_secs_f64() <= 0.05 * seconds * 1.02 + 0.001, "{used:?} in {seconds} s");
    assert!(over > 0 && used >= 5 * MS, "{over} were over, {used:?} were used");
    let counts = layer.admission().by_criticality;
    assert_eq!(counts[Criticality::Critical.rank()].shed_for(Rejection::Quota), over);
    assert_eq!(counts[Criticality::Sheddable.rank()].admitted, 600);

    let grpc = [("x-customer", "crawler"), ("x-criticality", "sheddable"), ("content-type", "application/grpc")];
    let answer = layer.layer(work.clone()).oneshot(with(get("/s/m"), &grpc)).await.unwrap();
    assert_eq!((answer.status(), Code::read(answer.headers())), (StatusCode::OK, Some(Code::ResourceExhausted)));
    assert_eq!(answer.headers()["grpc-retry-pushback-ms"], "-1");
}

#[tokio::test]
async fn a_dry_run_counts_who_is_over_its_limit_and_serves_it() {
    let layer = limited().admission(Mode::DryRun).build();
    let work = half_a_millisecond();
    for _ in 0..400 {
        let request = with(get("/"), &of("crawler", "critical"));
        let response = layer.layer(work.clone()).oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
    }
    let critical = layer.admission().by_criticality[Criticality::Critical.rank()];
    assert!(critical.shed_for(Rejection::Quota) > 0 && critical.admitted == 400, "{critical:?}");
}

#[tokio::test]
async fn whoever_is_not_known_has_the_limit_of_all_unknown() {
    let nothing = Quota::hard(0.0).unwrap();
    let ann = |customer: &Customer| (customer.name() == b"ann").then_some(Quota::UNLIMITED);
    let layer = builder().quota_by(ann).default_quota(nothing).exempt(|head| head.uri.path() == "/alive").build();
    let ok = service(|_| async { String::new() });
    for (path, headers, status) in [
        ("/", &[("x-customer", "ann")][..], StatusCode::OK),
        ("/", &[("x-customer", "bob")], StatusCode::TOO_MANY_REQUESTS),
        ("/", &[], StatusCode::TOO_MANY_REQUESTS),
        ("/alive", &[("x-customer", "bob")], StatusCode::OK),
        ("/readyz", &[], StatusCode::OK),
    ] {
        let response = layer.layer(ok.clone()).oneshot(with(get(path), headers)).await.unwrap();
        assert_eq!(response.status(), status, "{path} {headers:?}");
    }
}
