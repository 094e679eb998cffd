//! Reads and transactions.

use plimsoll_etcd::{Condition, EtcdError, Txn};

use crate::etcd::with_each;

#[tokio::test]
async fn transaction_is_done_only_if_its_conditions_hold() {
    with_each(1, |etcd| async move {
        let client = etcd.client();
        let first = client.txn(Txn::new().when(Condition::absent("/a")).put("/a", "1", None)).await.unwrap();
        assert!(first.is_done);
        let record = client.get("/a").await.unwrap().unwrap();
        assert_eq!((record.create_revision, record.mod_revision), (first.revision, first.revision));
        let other = client.txn(Txn::new().when(Condition::absent("/a")).put("/a", "2", None)).await.unwrap();
        assert!(!other.is_done);
        let of_value = Txn::new()
            .when(Condition::value("/a", "1"))
            .when(Condition::created("/a", first.revision))
            .when(Condition::unchanged("/a", first.revision))
            .put("/a", "3", None)
            .put("/b", "1", None);
        assert!(client.txn(of_value).await.unwrap().is_done);
        assert_eq!(client.get("/a").await.unwrap().unwrap().value, b"3");
        let old = client.get_at("/a", first.revision).await.unwrap().unwrap();
        assert_eq!((old.value, old.mod_revision), (b"1".to_vec(), first.revision));
        assert!(client.txn(Txn::new().delete("/a").delete("/absent")).await.unwrap().is_done);
        assert_eq!(client.get("/a").await.unwrap(), None);
        etcd.etcdctl(&["compact", &client.list("/").await.unwrap().revision.to_string()]);
        assert_eq!(client.get_at("/a", first.revision).await, Err(EtcdError::Compacted));
    })
    .await;
}

#[tokio::test]
async fn list_has_all_records_when_they_need_many_pages() {
    with_each(1, |etcd| async move {
        let client = etcd.client();
        let keys: Vec<_> = (0..2_560).map(|number| format!("/many/{number:05}")).collect();
        for keys in keys.chunks(Txn::MAX_CHANGES) {
            let txn = keys.iter().fold(Txn::new(), |txn, key| txn.put(key, "", None));
            assert!(client.txn(txn).await.unwrap().is_done);
        }
        assert!(client.txn(Txn::new().put("/manz", "", None)).await.unwrap().is_done);
        let listing = client.list("/many/").await.unwrap();
        assert_eq!(listing.records.into_iter().map(|record| record.key).collect::<Vec<_>>(), keys);
    })
    .await;
}

#[tokio::test]
async fn list_has_all_records_when_they_are_large() {
    with_each(1, |etcd| async move {
        let client = etcd.client();
        // Together more than a message may have.
        for number in 0..40 {
            let txn = Txn::new().put(&format!("/large/{number}"), vec![b'x'; 1 << 20], None);
            assert!(client.txn(txn).await.unwrap().is_done);
        }
        assert_eq!(client.list("/large/").await.unwrap().records.len(), 40);
    })
    .await;
}

#[tokio::test]
async fn list_is_refused_when_it_is_too_large() {
    with_each(1, |etcd| async move {
        let client = etcd.client();
        for number in 0..65 {
            let txn = Txn::new().put(&format!("/large/{number}"), vec![b'x'; 1 << 20], None);
            assert!(client.txn(txn).await.unwrap().is_done);
        }
        let limit = format!("{} bytes", 64 << 20);
        let expected = EtcdError::TooLarge { prefix: "/large/".to_owned(), limit };
        assert_eq!(client.list("/large/").await.unwrap_err(), expected);
    })
    .await;
}

#[tokio::test]
async fn request_is_refused_when_it_is_over_the_limits_of_etcd() {
    with_each(1, |etcd| async move {
        let client = etcd.client();
        let many = (0..=Txn::MAX_CHANGES).fold(Txn::new(), |txn, number| txn.put(&format!("/{number}"), "", None));
        let large = Txn::new().put("/large", vec![b'x'; 2 << 20], None);
        let larger = Txn::new().put("/large", vec![b'x'; 4 << 20], None);
        let twice = Txn::new().put("/a", "1", None).put("/a", "2", None);
        for txn in [many, large, larger, twice] {
            let error = client.txn(txn).await.unwrap_err();
            assert!(matches!(error, EtcdError::Refused(_)), "{error}");
        }
        let no_lease = Txn::new().put("/a", "1", Some(17));
        assert_eq!(client.txn(no_lease).await, Err(EtcdError::LeaseNotFound));
        assert!(client.reach().is_reachable());
        assert_eq!(client.list("/").await.unwrap().records, []);
    })
    .await;
}

#[tokio::test]
async fn key_that_is_no_text_is_skipped() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    with_each(1, |etcd| async move {
        etcd.etcdctl(&[OsStr::new("put"), OsStr::from_bytes(b"/k/\xff\xfe"), OsStr::new("v")]);
        etcd.etcdctl(&["put", "/k/text", "v"]);
        let listing = etcd.client().list("/k/").await.unwrap();
        assert_eq!(listing.records.into_iter().map(|record| record.key).collect::<Vec<_>>(), ["/k/text"]);
    })
    .await;
}
