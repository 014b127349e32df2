//! Field cases that only this database can have, named after them. Those of the doorbell and of
//! poolers are in `pooler`, those of every store in the conformance suite.

use postrider_conformance::store::fixture::{World, acknowledged, audit, destination, plan};
use postrider_contract::Envelope;
use postrider_store::{Store as _, inspect::EventFilter};
use postrider_store_postgres::{Options, PostgresStore};

use crate::harness::{Direct, connect, migrated};

/// A delivery that does not fail is one row, inserted and deleted: taking it, sending it and
/// settling it rewrites nothing, so that it leaves one dead row behind and not one for each step.
#[tokio::test]
async fn hlt_1_a_delivery_is_written_once_and_deleted_once() {
    let world = World::<Direct>::new().await;
    let alpha = world.destinations[0];
    let sent = world.append_keys(&["a", "b", "a"]).await;
    let client = connect(world.harness.direct_url()).await;
    // An update, of whichever column, would make another version in another place.
    let versions = async || -> Vec<String> {
        let sql =
            "select concat_ws(' ', position, ctid, xmin) from postrider.deliveries order by 1";
        let rows = client.query(sql, &[]).await.expect("reads");
        rows.iter().map(|row| row.get(0)).collect()
    };
    let appended = versions().await;
    assert_eq!(appended.len(), 3);
    let worker = world.worker().await;
    assert_eq!(worker.due(alpha).await, sent);
    let attempt = worker.register(alpha, &sent[..2]).await;
    assert_eq!(versions().await, appended);
    let members = sent[..2].iter().copied().map(acknowledged).collect();
    worker.settle(alpha, attempt, members).await;
    assert_eq!(versions().await, appended[2..]);
}

/// The same text is the same instant, or is refused, whatever zone and style the application's
/// session has; and it comes back as it was stored.
#[tokio::test]
async fn tim_3_a_time_given_as_text_means_the_same_in_every_session() {
    let url = migrated().await;
    let store = PostgresStore::new(Options::new(&url)).expect("usable options");
    let plan = plan(1, &[destination("a")]);
    store.apply(&plan, &audit("set up")).await.expect("applies");
    let client = connect(&url).await;
    let append =
        "select postrider.append('order.placed', '{}'::text, 'order', '1', occurred_at => $1)";
    let mut expected = Vec::new();
    for session in [
        "set time zone 'UTC'; set datestyle = 'ISO, YMD'",
        "set time zone 'America/New_York'; set datestyle = 'German'",
        "set time zone 'Asia/Kathmandu'; set datestyle = 'SQL, DMY'",
    ] {
        client.batch_execute(session).await.expect("sets");
        for (given, stored) in [
            (
                "2026-01-01T00:00:00.123456789Z",
                "2026-01-01T00:00:00.123456Z",
            ),
            ("2026-01-01t00:00:00z", "2026-01-01T00:00:00.000000Z"),
            ("2026-03-08T02:30:00-05:00", "2026-03-08T07:30:00.000000Z"),
            ("2026-06-30T12:00:59+05:45", "2026-06-30T06:15:59.000000Z"),
        ] {
            client.execute(append, &[&given]).await.expect(given);
            expected.push(stored);
        }
        for given in [
            "2016-12-31T23:59:60Z",
            "2016-12-31T15:59:60-08:00",
            "2026-06-30T12:00:60Z",
            "2026-01-01T12:00:00",
            "2026-03-08 02:30:00",
            "2026-01-01 12:00:00Z",
            "infinity",
        ] {
            let refused = client.execute(append, &[&given]).await.expect_err(given);
            assert_eq!(refused.code().expect("a code").code(), "PR004", "{given}");
        }
    }
    let filter = EventFilter::default();
    let page = store
        .events(&filter, postrider_core::Position::START, 100)
        .await;
    let times: Vec<String> = page
        .expect("reads")
        .rows
        .iter()
        .map(|row| Envelope::from_stored(&row.envelope).expect("an envelope"))
        .map(|envelope| envelope.occurred_at.to_string())
        .collect();
    assert_eq!(times, expected);
}
