//! Trust in callers, by default and by a setting: a row per field of the table in `docs/trust.md`.

use super::*;

/// The context that the service gets for a request with these headers, and the headers.
async fn told(builder: ServerLayerBuilder, headers: &[(&'static str, &str)]) -> String {
    let echo = service(|request: Request<_>| async move {
        let context = current().unwrap();
        let customer = context.customer.map(|customer| String::from_utf8(customer.name().to_vec()).unwrap());
        let passed_on = ["x-criticality", "baggage"].map(|name| match request.headers().get(name) {
            Some(value) => value.to_str().unwrap().to_owned(),
            None => "-".to_owned(),
        });
        let RequestContext { criticality, attempt, deadline, .. } = context;
        format!("{criticality} {customer:?} {attempt} {} | {}", deadline.is_some(), passed_on.join(" "))
    });
    let mut request = get("/");
    for (name, value) in headers {
        request.headers_mut().append(*name, value.parse().unwrap());
    }
    text(builder.build().layer(echo).oneshot(request).await.unwrap()).await
}

fn plain() -> ServerLayerBuilder {
    let lifecycle = Lifecycle::new();
    lifecycle.ready();
    ServerLayer::builder(lifecycle)
}

#[tokio::test]
async fn claims_that_harm_others_are_believed_only_when_the_owner_says_so() {
    for (headers, by_default, with_trust) in [
        (&[][..], "critical None 1 false | - -", "critical None 1 false | - -"),
        (
            &[("x-criticality", "critical-plus")],
            "critical None 1 false | critical -",
            "critical-plus None 1 false | critical-plus -",
        ),
        (
            &[("x-criticality", "sheddable")],
            "sheddable None 1 false | sheddable -",
            "sheddable None 1 false | sheddable -",
        ),
        (
            &[("baggage", "user=7,criticality=critical-plus")],
            "critical None 1 false | critical user=7,criticality=critical",
            "critical-plus None 1 false | - user=7,criticality=critical-plus",
        ),
        (
            &[("x-criticality", "sheddable"), ("baggage", "criticality=critical-plus")],
            "sheddable None 1 false | sheddable criticality=sheddable",
            "sheddable None 1 false | sheddable criticality=critical-plus",
        ),
        (
            &[("x-criticality", "CRITICAL-PLUS"), ("x-criticality", "critical-plus")],
            "critical None 1 false | critical -",
            "critical None 1 false | CRITICAL-PLUS -",
        ),
        (&[("x-envoy-attempt-count", "9")], "critical None 1 false | - -", "critical None 9 false | - -"),
        (&[("grpc-previous-rpc-attempts", "8")], "critical None 1 false | - -", "critical None 9 false | - -"),
        (&[("x-customer", "ann")], "critical None 1 false | - -", "critical None 1 false | - -"),
        (&[("grpc-timeout", "5S")], "critical None 1 true | - -", "critical None 1 true | - -"),
        (&[("x-envoy-expected-rq-timeout-ms", "5")], "critical None 1 true | - -", "critical None 1 true | - -"),
    ] {
        assert_eq!(told(plain(), headers).await, by_default, "{headers:?}");
        assert_eq!(told(plain().trust(Trust::Full), headers).await, with_trust, "{headers:?}");
    }
}

#[tokio::test]
async fn request_that_names_two_customers_has_none() {
    let by_header = || plain().customer_header(HeaderName::from_static("x-customer"));
    assert_eq!(told(by_header(), &[("x-customer", "ann")]).await, r#"critical Some("ann") 1 false | - -"#);
    for second in ["bob", "ann"] {
        let names = [("x-customer", "ann"), ("x-customer", second)];
        assert_eq!(told(by_header(), &names).await, "critical None 1 false | - -");
    }
}

/// Of a server that has more to do than it can, a stranger's claim gets no request through that
/// others would not get through.
#[tokio::test]
async fn stranger_that_claims_to_be_critical_is_shed_like_others() {
    let strange = || builder().cpus(0.01).trust(Trust::UpTo(Criticality::Critical));
    for (layer, is_served) in [(strange().build(), false), (tiny().build(), true)] {
        let _busy = overload(&layer, Criticality::Critical).await;
        let ask = async |criticality: &str| {
            let request = with(get("/"), &[("x-criticality", criticality)]);
            let response = layer.layer(service(|_| async { String::new() })).oneshot(request).await.unwrap();
            response.status().is_success()
        };
        assert!(!ask("critical").await, "an honest request");
        assert_eq!(ask("critical-plus").await, is_served);
    }
}
