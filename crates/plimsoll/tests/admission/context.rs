//! The request context that a server passes on.

use super::*;

/// Servers that do and do not shed requests; the context of a request is the same with each.
const LAYERS: [fn() -> ServerLayer; 3] = [
    || with_sessions().build(),
    || with_sessions().admission(None).build(),
    || with_sessions().exempt(|_| true).build(),
];

fn with_sessions() -> ServerLayerBuilder {
    builder().cohort_header(HeaderName::from_static("x-session"))
}

#[tokio::test]
async fn handlers_know_whom_they_serve() {
    let say = |context: Option<RequestContext>| {
        let RequestContext { criticality, customer, deadline, attempt, .. } = context.unwrap();
        let customer = customer.map(|customer| String::from_utf8(customer.name().to_vec()).unwrap());
        format!("{criticality} {customer:?} {} {attempt}", deadline.is_some())
    };
    let echo = service(move |request: Request<_>| async move {
        assert_eq!(pressure(), Pressure::None);
        let here = say(current());
        assert_eq!(say(request.extensions().get().cloned()), here);
        assert_eq!(spawn(async move { say(current()) }).await.unwrap(), here);
        assert_eq!(spawn_blocking(move || say(current())).await.unwrap(), here);
        assert_eq!(std::thread::spawn(bind(move || say(current()))).join().unwrap(), here);
        here
    });
    let cases = [
        (&[][..], "critical None false 1"),
        (
            &[
                ("x-criticality", "sheddable"),
                ("x-customer", "ann"),
                ("grpc-timeout", "5S"),
                ("x-envoy-attempt-count", "3"),
            ],
            r#"sheddable Some("ann") true 3"#,
        ),
        (&[("baggage", "a=b,criticality=critical-plus")], "critical-plus None false 1"),
        (
            &[("x-criticality", "vital"), ("grpc-timeout", "soon"), ("x-envoy-attempt-count", "-1")],
            "critical None false 1",
        ),
    ];
    for (layer, malformed) in LAYERS.into_iter().zip([3, 0, 0]) {
        let layer = layer();
        for (headers, said) in cases {
            let response = layer.layer(echo.clone()).oneshot(with(get("/"), headers)).await.unwrap();
            assert_eq!(text(response).await, said);
        }
        assert_eq!(layer.admission().malformed, malformed);
    }
    assert!(current().is_none() && used().is_none());
}

#[tokio::test]
async fn handlers_know_the_cohort_and_do_not_tell_the_log() {
    let echo = service(|_| async {
        let cohort = current().unwrap().cohort;
        assert!(!format!("{:?}", current()).contains("se-cret"));
        cohort.map_or("none".to_owned(), |cohort| String::from_utf8(cohort.key().to_vec()).unwrap())
    });
    for layer in LAYERS {
        for (key, seen) in [("se-cret", "se-cret"), ("", "none")] {
            let request = with(get("/"), &[("x-session", key)]);
            assert_eq!(text(layer().layer(echo.clone()).oneshot(request).await.unwrap()).await, seen);
        }
    }
    assert!(Cohort::new("").is_none() && Cohort::new("a\nb").is_none());
}

#[tokio::test]
async fn strangers_are_not_believed() {
    let claims = Classifier { trust: Trust::UpTo(Criticality::SheddablePlus), otherwise: Criticality::Sheddable };
    let token = |head: plimsoll::server::RequestHead<'_>| {
        head.headers.get("authorization").and_then(|_| Customer::new("by token"))
    };
    let layer = builder().criticality(claims).customer_by(token).build();
    let echo = service(|_| async {
        let context = current().unwrap();
        format!("{} {:?}", context.criticality, context.customer.map(|customer| customer.name().to_vec()))
    });
    let headers = [("x-criticality", "critical-plus"), ("x-customer", "ann"), ("authorization", "a b")];
    let response = layer.layer(echo.clone()).oneshot(with(get("/"), &headers)).await.unwrap();
    assert_eq!(text(response).await, format!("sheddable-plus {:?}", Some(b"by token")));
    let response = layer.layer(echo).oneshot(with(get("/"), &headers[..2])).await.unwrap();
    assert_eq!(text(response).await, format!("sheddable-plus {:?}", Some(b"ann")));
}

#[tokio::test]
async fn requests_made_while_serving_another_have_its_importance_customer_cohort_deadline_and_attempt() {
    let client = client_of_one_that_shows([
        "x-criticality",
        "x-customer",
        "x-envoy-attempt-count",
        "x-envoy-expected-rq-timeout-ms",
        "x-tenant",
        "x-session",
    ])
    .await;
    let middle = service(move |request: Request<_>| {
        let client = client.clone();
        async move {
            let mut onward = get("/");
            for (own, name) in [("own", "x-criticality"), ("own-session", "x-session")] {
                if let Some(own) = request.headers().get(own) {
                    onward.headers_mut().insert(name, own.clone());
                }
            }
            // Through a task, as services do.
            let response = spawn(async move { client.send(onward).await.unwrap() }).await.unwrap();
            String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().into()).unwrap()
        }
    });
    for layer in LAYERS {
        asks_onward(&layer(), &middle).await;
    }

    let token = || Customer::new("by token");
    let elsewhere = move || Some(token()?.carried_in(HeaderName::from_static("x-tenant")));
    let nowhere = ServerLayer::builder(Lifecycle::new());
    for (layer, customer, tenant) in [
        (builder().customer_by(move |_| token()), "by token", "-"),
        (builder().customer_by(move |_| elsewhere()), "-", "by token"),
        (nowhere.customer_by(move |_| token()), "-", "-"),
    ] {
        let answer = layer.build().layer(middle.clone()).oneshot(get("/")).await.unwrap();
        assert_eq!(text(answer).await, format!("critical {customer} - - {tenant} -"));
    }

    let task = || Cohort::new("by token");
    let elsewhere = move || Some(task()?.carried_in(HeaderName::from_static("x-tenant")));
    let nowhere = ServerLayer::builder(Lifecycle::new());
    for (layer, tenant, session) in [
        (with_sessions().cohort_by(move |_| task()), "-", "by token"),
        (with_sessions().cohort_by(move |_| elsewhere()), "by token", "-"),
        (with_sessions().cohort_by(|_| None), "-", "by header"),
        (nowhere.cohort_by(move |_| task()), "-", "-"),
        // A header that is no cohort's key is not passed on.
        (builder(), "-", "-"),
    ] {
        let request = with(get("/"), &[("x-session", "by header")]);
        let answer = layer.build().layer(middle.clone()).oneshot(request).await.unwrap();
        assert_eq!(text(answer).await, format!("critical - - - {tenant} {session}"));
    }
}

#[tokio::test]
async fn what_is_asked_onward_says_the_shorter_time_of_its_own_and_that_of_whom_it_is_for() {
    let names = ["x-envoy-expected-rq-timeout-ms", "grpc-timeout"];
    let client = client_of_one_that_shows(names).await;
    let layer = builder().build();
    for name in names {
        let client = client.clone();
        let middle = service(move |request: Request<_>| {
            let client = client.clone();
            async move {
                let mut onward = get("/");
                onward.headers_mut().insert(name, request.headers()["own"].clone());
                let response = client.send(onward).await.unwrap();
                String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().into()).unwrap()
            }
        });
        let left = async |own: &str| {
            let headers = [(names[0], "5000"), ("own", own)];
            let shown = text(layer.layer(middle.clone()).oneshot(with(get("/"), &headers)).await.unwrap()).await;
            let shown = names.into_iter().zip(shown.split(' ')).filter(|(_, shown)| *shown != "-");
            let headers = shown.map(|(name, shown)| (HeaderName::from_static(name), shown.parse().unwrap()));
            Metadata::read(&headers.collect()).timeout.unwrap()
        };
        let (long, short) = if name == "grpc-timeout" { ("10S", "2S") } else { ("10000", "2000") };
        let of_parent = left(long).await;
        assert!(of_parent > Duration::from_secs(2) && of_parent <= Duration::from_secs(5), "{name}: {of_parent:?}");
        let own = left(short).await;
        assert!(own <= Duration::from_secs(2), "{name}: {own:?}");
    }
}

/// A client of a server that answers with the values of these headers.
async fn client_of_one_that_shows<const N: usize>(names: [&'static str; N]) -> Client<Empty<Bytes>> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let show = tower::service_fn(move |request: Request<hyper::body::Incoming>| async move {
        let header = |name: &str| request.headers().get(name).map_or("-", |value| value.to_str().unwrap()).to_owned();
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(names.map(header).join(" "))))
    });
    let lifecycle = Lifecycle::new();
    lifecycle.ready();
    let layer = ServerLayer::builder(lifecycle).trust(Trust::Full).build();
    tokio::spawn(plimsoll::server::serve([listener], show, layer, Default::default()));
    let cluster = Cluster::new("shown", ClusterConfig::default(), [address]);
    tokio::spawn(cluster.run());
    Client::new(&cluster)
}

async fn asks_onward<S>(layer: &ServerLayer, middle: &S)
where
    S: Service<Request<Empty<Bytes>>, Response = Response<Body>, Error = Infallible, Future = Answer> + Clone,
{
    let ask = async |headers: &[(&'static str, &str)]| {
        text(layer.layer(middle.clone()).oneshot(with(get("/"), headers)).await.unwrap()).await
    };
    assert_eq!(ask(&[]).await, "critical - - - - -");
    assert_eq!(ask(&[("x-criticality", "sheddable"), ("x-customer", "ann")]).await, "sheddable ann - - - -");
    assert_eq!(ask(&[("x-criticality", "sheddable"), ("own", "critical-plus")]).await, "critical-plus - - - - -");
    assert_eq!(ask(&[("x-envoy-attempt-count", "3")]).await, "critical - 3 - - -");
    assert_eq!(ask(&[("x-envoy-attempt-count", "1")]).await, "critical - - - - -");
    assert_eq!(ask(&[("x-session", "a b")]).await, "critical - - - - a b");
    assert_eq!(ask(&[("x-session", "")]).await, "critical - - - - -", "of no cohort");
    assert_eq!(ask(&[("x-session", "a b"), ("own-session", "c")]).await, "critical - - - - c");
    let with_deadline = ask(&[("x-envoy-expected-rq-timeout-ms", "5000")]).await;
    let left: u64 = with_deadline.strip_prefix("critical - - ").unwrap().trim_end_matches(" - -").parse().unwrap();
    assert!((1..=5_000).contains(&left), "{left}");
}
