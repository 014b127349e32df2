//! Tests that need what the crate keeps to itself: its statements and its migrations.

mod migrations;
mod plans;
mod statements;

use postrider_testkit::env;
use tokio_postgres::{Client, NoTls};

use crate::{MigrateOptions, migrate};

/// A connection past everything this crate does to connections.
async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("connects");
    tokio::spawn(connection);
    client
}

async fn empty_database() -> String {
    env::postgres().create_database().await.expect("a database")
}

async fn migrated() -> String {
    let url = empty_database().await;
    migrate(&url, &MigrateOptions::default())
        .await
        .expect("migrates");
    url
}
