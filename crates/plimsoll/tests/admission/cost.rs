//! The CPU charged to requests, and the reports of it.

use super::*;

/// Each kind of work for itself, so that one that is missed is not hidden by the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_that_a_request_does_is_charged_to_it() {
    let cost = 20 * MS;
    let measured = |work: fn(Duration) -> BoxFuture<'static, ()>| async move {
        let layer = builder().cpus(64.0).build();
        let burning = service(move |_| async move {
            work(cost).await;
            let used = used().unwrap();
            used.as_micros().to_string()
        });
        let response = layer.layer(burning).oneshot(get("/")).await.unwrap();
        let micros: u64 = text(response).await.parse().unwrap();
        Duration::from_micros(micros)
    };
    for (name, work) in [
        ("polls", (|cost| Box::pin(in_pieces(cost))) as fn(Duration) -> BoxFuture<'static, ()>),
        ("tasks", |cost| {
            Box::pin(async move {
                for task in [spawn(in_pieces(cost / 2)), spawn(in_pieces(cost / 2))] {
                    task.await.unwrap();
                }
                tokio::task::yield_now().await;
            })
        }),
        ("blocking calls", |cost| {
            Box::pin(async move {
                spawn_blocking(move || burn(cost)).await.unwrap();
                tokio::task::yield_now().await;
            })
        }),
    ] {
        let used = measured(work).await;
        assert!(used >= cost.mul_f64(0.95) && used < cost * 2, "{name}: {used:?} of {cost:?}");
    }
}

/// Ends with a yield, so that the CPU used is charged.
async fn in_pieces(cost: Duration) {
    for _ in 0..20 {
        burn(cost / 20);
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_body_of_a_response_is_charged_too() {
    let layer = builder().build();
    let seen = Arc::new(AtomicU64::new(0));
    let frames = |seen: Arc<AtomicU64>| {
        stream::iter((0..10).map(move |_| {
            seen.store(used().unwrap().as_micros() as u64, Ordering::Relaxed);
            burn(2 * MS);
            Ok(Frame::data(Bytes::from_static(b"x")))
        }))
    };
    let counted = Arc::clone(&seen);
    let streaming = tower::service_fn(move |_: Request<Empty<Bytes>>| {
        let body = StreamBody::new(frames(Arc::clone(&counted))).boxed_unsync();
        async move { Ok::<_, Infallible>(Response::new(body)) }
    });
    let response = layer.layer(streaming).oneshot(get("/")).await.unwrap();
    assert_eq!(text(response).await.len(), 10);
    let micros = seen.load(Ordering::Relaxed);
    assert!((17_000..36_000).contains(&micros), "{micros} µs before the last of ten times two");
}

/// The request cost in the load report of a response.
fn cost(headers: &http::HeaderMap) -> std::collections::BTreeMap<String, f64> {
    plimsoll_wire::orca::read(headers).unwrap().unwrap().request_cost
}

#[tokio::test]
async fn the_report_of_a_response_tells_what_its_request_used() {
    let layer = builder().build();
    let work = service(|request: Request<_>| async move {
        burn(if request.uri().path() == "/dear" { 10 * MS } else { MS });
        charge("tokens", 800.0);
        spawn(async { charge("tokens", 12.0) }).await.unwrap();
        String::new()
    });
    for (path, least, most) in [("/dear", 9e-3, 20e-3), ("/cheap", 0.9e-3, 5e-3)] {
        // The cheapest of several, because time that a hypervisor takes from a thread may count as
        // the thread's own.
        let mut cheapest = f64::INFINITY;
        for _ in 0..5 {
            let response = layer.layer(work.clone()).oneshot(get(path)).await.unwrap();
            let cost = cost(response.headers());
            assert_eq!(cost["tokens"], 812.0, "{path}");
            let cpu = plimsoll_wire::orca::request_cpu(response.headers());
            assert_eq!(cpu, Some(cost["cpu"]));
            assert!(plimsoll_wire::orca::read_load(response.headers()).unwrap().is_ok());
            cheapest = cheapest.min(cost["cpu"]);
        }
        assert!((least..most).contains(&cheapest), "{path}: {cheapest}");
    }
    for unmeasured in [builder().admission(None).build(), builder().exempt(|_| true).build()] {
        let response = unmeasured.layer(work.clone()).oneshot(get("/cheap")).await.unwrap();
        assert!(cost(response.headers()).is_empty());
    }
    charge("tokens", 1.0);
}

#[tokio::test]
async fn cost_leaves_a_fast_machine_in_reference_seconds() {
    let work = service(|_| async {
        burn(10 * MS);
        tokio::task::yield_now().await;
        used().unwrap().as_secs_f64().to_string()
    });
    for speed in [0.5, 4.0].map(|speed| Speed::new(speed).unwrap()) {
        let layer = builder().speed(speed).build();
        assert_eq!(layer.load().speed, Some(speed));
        let response = layer.layer(work.clone()).oneshot(get("/")).await.unwrap();
        let report = plimsoll_wire::orca::read(response.headers()).unwrap().unwrap();
        assert_eq!(report.named_metrics["plimsoll.speed"], speed.as_f64());
        let cpu = report.request_cost["cpu"];
        let local: f64 = text(response).await.parse().unwrap();
        // The answer of the handler lacks its own last section.
        let ratio = cpu / local / speed.as_f64();
        assert!((1.0..1.2).contains(&ratio), "{cpu} reference CPU-seconds of {local} at speed {speed}");
    }
    let response = builder().build().layer(work).oneshot(get("/")).await.unwrap();
    let report = plimsoll_wire::orca::read(response.headers()).unwrap().unwrap();
    assert!(!report.named_metrics.contains_key("plimsoll.speed"), "none without a setting");
}

/// In one process, a request to another server may run on the thread of its caller.
#[tokio::test]
async fn nobody_is_charged_with_what_runs_within_it_for_one_that_is_not() {
    let outer = builder().build();
    let free = builder().admission(None).build().layer(service(|_| async {
        burn(20 * MS);
        String::new()
    }));
    let asking = service(move |_| {
        let free = free.clone();
        async move {
            burn(2 * MS);
            free.oneshot(get("/")).await.unwrap();
            burn(2 * MS);
            tokio::task::yield_now().await;
            used().unwrap().as_micros().to_string()
        }
    });
    let micros: u64 = text(outer.layer(asking).oneshot(get("/")).await.unwrap()).await.parse().unwrap();
    assert!((3_800..15_000).contains(&micros), "{micros} µs of four thousand");
}

#[tokio::test]
async fn the_trailers_of_a_call_tell_what_all_of_it_used() {
    let layer = builder().build();
    let streaming = tower::service_fn(move |_: Request<Empty<Bytes>>| {
        let frames = stream::iter((0..5).map(|_| {
            burn(2 * MS);
            Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"x")))
        }));
        let trailers = http::HeaderMap::from_iter([(HeaderName::from_static("grpc-status"), "0".parse().unwrap())]);
        let end = stream::once(async move { Ok(Frame::trailers(trailers)) });
        let body = StreamBody::new(futures_util::StreamExt::chain(frames, end)).boxed_unsync();
        async move {
            Ok::<_, Infallible>(Response::builder().header("content-type", "application/grpc").body(body).unwrap())
        }
    });
    // The cheapest of several, because time that a hypervisor takes from a thread may count as the
    // thread's own.
    let mut cheapest = f64::INFINITY;
    for _ in 0..5 {
        let request = with(get("/s/m"), &[("content-type", "application/grpc")]);
        let body = layer.layer(streaming).oneshot(request).await.unwrap().into_body().collect().await.unwrap();
        cheapest = cheapest.min(cost(body.trailers().unwrap())["cpu"]);
    }
    assert!((9e-3..18e-3).contains(&cheapest), "{cheapest}");
}

/// The waker that tells runnable from waiting passes every wake on, and a future may be polled
/// without one.
#[tokio::test]
async fn wakes_reach_whoever_polls() {
    let layer = builder().build();
    let (send, receive) = tokio::sync::oneshot::channel::<()>();
    let receive = Arc::new(parking_lot::Mutex::new(Some(receive)));
    let waiting = service(move |_| {
        let receive = receive.lock().take().unwrap();
        async move {
            receive.await.unwrap();
            "woken".to_owned()
        }
    });
    let mut answer = std::pin::pin!(layer.layer(waiting).oneshot(get("/")));
    for _ in 0..3 {
        let polled = answer.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
    }
    let (response, ()) = tokio::join!(answer, async {
        tokio::task::yield_now().await;
        send.send(()).unwrap();
    });
    assert_eq!(text(response.unwrap()).await, "woken");
}
