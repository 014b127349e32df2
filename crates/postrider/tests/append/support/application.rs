//! An application with a table of its own, once for each driver.

use std::sync::Arc;

use postrider::{
    AppendError, Appended, BatchError, LoadError, NewEvent, Registry, rusqlite as on_rusqlite,
    sqlx_postgres, sqlx_sqlite, tokio_postgres as on_tokio_postgres,
};
use postrider_store::Store;
use postrider_store_postgres::{MigrateOptions, PostgresStore, migrate};
use postrider_store_sqlite::SqliteStore;
use sqlx::{Connection as _, Row as _};
use tempfile::TempDir;

use super::control;

const TABLE: &str = "create table business (id text primary key)";

/// An outbox that is migrated, with [`control::plan`] registered, and the application's table.
pub(crate) struct Outbox {
    pub(crate) store: Arc<dyn Store>,
    /// URL of the Postgres database, path of the SQLite file.
    pub(crate) address: String,
    _folder: Option<TempDir>,
}

impl Outbox {
    pub(crate) async fn postgres() -> Self {
        let outbox = Self::empty_postgres().await;
        control::apply(&*outbox.store, &control::plan()).await;
        outbox
    }

    pub(crate) async fn empty_postgres() -> Self {
        let server = postrider_testkit::env::postgres();
        let url = server.create_database().await.expect("a database is made");
        migrate(&url, &MigrateOptions::default())
            .await
            .expect("it migrates");
        let client = connect(&url).await;
        client.batch_execute(TABLE).await.expect("a table is made");
        let options = postrider_store_postgres::Options::new(&url);
        Self {
            store: Arc::new(PostgresStore::new(options).expect("options are right")),
            address: url,
            _folder: None,
        }
    }

    /// The same outbox by another address.
    pub(crate) fn through(&self, address: String) -> Self {
        Self {
            store: Arc::clone(&self.store),
            address,
            _folder: None,
        }
    }

    pub(crate) fn empty_sqlite() -> Self {
        let folder = TempDir::new().expect("a folder is made");
        let path = folder.path().join("outbox.db");
        postrider_store_sqlite::migrate(&path).expect("it migrates");
        let connection = rusqlite::Connection::open(&path).expect("it opens");
        connection.execute_batch(TABLE).expect("a table is made");
        let options = postrider_store_sqlite::Options::new(&path);
        Self {
            store: Arc::new(SqliteStore::open(&options).expect("it opens")),
            address: path.to_str().expect("a path of text").to_owned(),
            _folder: Some(folder),
        }
    }
}

/// Connects to Postgres; the connection lives as long as the client.
pub(crate) async fn connect(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls)
        .await
        .expect("it connects");
    tokio::spawn(async move {
        // Its end is the client's end, which the client reports.
        drop(connection.await);
    });
    client
}

/// What a test asks of a driver. One transaction at a time.
pub(crate) trait Application: Sized {
    /// An outbox of the driver's database, with nothing registered.
    async fn empty_outbox() -> Outbox;

    /// With [`control::plan`] registered.
    async fn outbox() -> Outbox {
        let outbox = Self::empty_outbox().await;
        control::apply(&*outbox.store, &control::plan()).await;
        outbox
    }

    async fn connect(outbox: &Outbox) -> Self;

    async fn load(&mut self) -> Result<Registry, LoadError>;
    async fn refresh(&mut self, registry: &Registry) -> Result<(), LoadError>;
    async fn begin(&mut self);
    async fn commit(&mut self);
    async fn roll_back(&mut self);
    /// Inserts a business row.
    async fn put(&mut self, id: &str);
    /// How many business rows there are.
    async fn rows(&mut self) -> i64;
    async fn append(&mut self, r: &Registry, event: NewEvent) -> Result<Appended, AppendError>;
    async fn append_all(
        &mut self,
        r: &Registry,
        events: Vec<NewEvent>,
    ) -> Result<Vec<Appended>, BatchError>;
    /// Begin, put, append, commit with the transaction type of the driver.
    async fn place(&mut self, r: &Registry, id: &str, event: NewEvent) -> Appended;
}

#[derive(Debug)]
pub(crate) struct SqlxPostgres(pub(crate) sqlx::PgConnection);

impl Application for SqlxPostgres {
    async fn empty_outbox() -> Outbox {
        Outbox::empty_postgres().await
    }

    async fn connect(outbox: &Outbox) -> Self {
        Self(
            sqlx::PgConnection::connect(&outbox.address)
                .await
                .expect("it connects"),
        )
    }

    async fn load(&mut self) -> Result<Registry, LoadError> {
        sqlx_postgres::load(&mut self.0).await
    }

    async fn refresh(&mut self, registry: &Registry) -> Result<(), LoadError> {
        sqlx_postgres::refresh(&mut self.0, registry).await
    }

    async fn begin(&mut self) {
        sqlx::raw_sql("begin")
            .execute(&mut self.0)
            .await
            .expect("it begins");
    }

    async fn commit(&mut self) {
        sqlx::raw_sql("commit")
            .execute(&mut self.0)
            .await
            .expect("it commits");
    }

    async fn roll_back(&mut self) {
        sqlx::raw_sql("rollback")
            .execute(&mut self.0)
            .await
            .expect("it rolls back");
    }

    async fn put(&mut self, id: &str) {
        let put = sqlx::query("insert into business values ($1)").bind(id);
        put.execute(&mut self.0).await.expect("it puts");
    }

    async fn rows(&mut self) -> i64 {
        let count = sqlx::query("select count(*) from business")
            .fetch_one(&mut self.0)
            .await;
        count.expect("it counts").get(0)
    }

    async fn append(&mut self, r: &Registry, event: NewEvent) -> Result<Appended, AppendError> {
        sqlx_postgres::append(&mut self.0, r, event).await
    }

    async fn append_all(
        &mut self,
        r: &Registry,
        events: Vec<NewEvent>,
    ) -> Result<Vec<Appended>, BatchError> {
        sqlx_postgres::append_all(&mut self.0, r, events).await
    }

    async fn place(&mut self, r: &Registry, id: &str, event: NewEvent) -> Appended {
        let mut transaction = self.0.begin().await.expect("it begins");
        let put = sqlx::query("insert into business values ($1)").bind(id);
        put.execute(&mut *transaction).await.expect("it puts");
        let appended = sqlx_postgres::append(&mut transaction, r, event).await;
        transaction.commit().await.expect("it commits");
        appended.expect("it appends")
    }
}

#[derive(Debug)]
pub(crate) struct SqlxSqlite(pub(crate) sqlx::SqliteConnection);

impl Application for SqlxSqlite {
    async fn empty_outbox() -> Outbox {
        Outbox::empty_sqlite()
    }

    async fn connect(outbox: &Outbox) -> Self {
        Self(
            sqlx::SqliteConnection::connect(&outbox.address)
                .await
                .expect("it opens"),
        )
    }

    async fn load(&mut self) -> Result<Registry, LoadError> {
        sqlx_sqlite::load(&mut self.0).await
    }

    async fn refresh(&mut self, registry: &Registry) -> Result<(), LoadError> {
        sqlx_sqlite::refresh(&mut self.0, registry).await
    }

    async fn begin(&mut self) {
        sqlx::raw_sql("BEGIN IMMEDIATE")
            .execute(&mut self.0)
            .await
            .expect("it begins");
    }

    async fn commit(&mut self) {
        sqlx::raw_sql("COMMIT")
            .execute(&mut self.0)
            .await
            .expect("it commits");
    }

    async fn roll_back(&mut self) {
        sqlx::raw_sql("ROLLBACK")
            .execute(&mut self.0)
            .await
            .expect("it rolls back");
    }

    async fn put(&mut self, id: &str) {
        let put = sqlx::query("insert into business values (?1)").bind(id);
        put.execute(&mut self.0).await.expect("it puts");
    }

    async fn rows(&mut self) -> i64 {
        let count = sqlx::query("select count(*) from business")
            .fetch_one(&mut self.0)
            .await;
        count.expect("it counts").get(0)
    }

    async fn append(&mut self, r: &Registry, event: NewEvent) -> Result<Appended, AppendError> {
        sqlx_sqlite::append(&mut self.0, r, event).await
    }

    async fn append_all(
        &mut self,
        r: &Registry,
        events: Vec<NewEvent>,
    ) -> Result<Vec<Appended>, BatchError> {
        sqlx_sqlite::append_all(&mut self.0, r, events).await
    }

    async fn place(&mut self, r: &Registry, id: &str, event: NewEvent) -> Appended {
        let mut transaction = self
            .0
            .begin_with("BEGIN IMMEDIATE")
            .await
            .expect("it begins");
        let put = sqlx::query("insert into business values (?1)").bind(id);
        put.execute(&mut *transaction).await.expect("it puts");
        let appended = sqlx_sqlite::append(&mut transaction, r, event).await;
        transaction.commit().await.expect("it commits");
        appended.expect("it appends")
    }
}

pub(crate) struct TokioPostgres(pub(crate) tokio_postgres::Client);

impl Application for TokioPostgres {
    async fn empty_outbox() -> Outbox {
        Outbox::empty_postgres().await
    }

    async fn connect(outbox: &Outbox) -> Self {
        Self(connect(&outbox.address).await)
    }

    async fn load(&mut self) -> Result<Registry, LoadError> {
        on_tokio_postgres::load(&self.0).await
    }

    async fn refresh(&mut self, registry: &Registry) -> Result<(), LoadError> {
        on_tokio_postgres::refresh(&self.0, registry).await
    }

    async fn begin(&mut self) {
        self.0.batch_execute("begin").await.expect("it begins");
    }

    async fn commit(&mut self) {
        self.0.batch_execute("commit").await.expect("it commits");
    }

    async fn roll_back(&mut self) {
        self.0
            .batch_execute("rollback")
            .await
            .expect("it rolls back");
    }

    async fn put(&mut self, id: &str) {
        self.0
            .execute("insert into business values ($1)", &[&id])
            .await
            .expect("it puts");
    }

    async fn rows(&mut self) -> i64 {
        let count = self.0.query_one("select count(*) from business", &[]).await;
        count.expect("it counts").get(0)
    }

    async fn append(&mut self, r: &Registry, event: NewEvent) -> Result<Appended, AppendError> {
        on_tokio_postgres::append(&self.0, r, event).await
    }

    async fn append_all(
        &mut self,
        r: &Registry,
        events: Vec<NewEvent>,
    ) -> Result<Vec<Appended>, BatchError> {
        on_tokio_postgres::append_all(&self.0, r, events).await
    }

    async fn place(&mut self, r: &Registry, id: &str, event: NewEvent) -> Appended {
        let transaction = self.0.transaction().await.expect("it begins");
        let put = transaction
            .execute("insert into business values ($1)", &[&id])
            .await;
        put.expect("it puts");
        let appended = on_tokio_postgres::append(&transaction, r, event).await;
        transaction.commit().await.expect("it commits");
        appended.expect("it appends")
    }
}

#[derive(Debug)]
pub(crate) struct Rusqlite(pub(crate) rusqlite::Connection);

impl Application for Rusqlite {
    async fn empty_outbox() -> Outbox {
        Outbox::empty_sqlite()
    }

    async fn connect(outbox: &Outbox) -> Self {
        Self(rusqlite::Connection::open(&outbox.address).expect("it opens"))
    }

    async fn load(&mut self) -> Result<Registry, LoadError> {
        on_rusqlite::load(&self.0)
    }

    async fn refresh(&mut self, registry: &Registry) -> Result<(), LoadError> {
        on_rusqlite::refresh(&self.0, registry)
    }

    async fn begin(&mut self) {
        self.0.execute_batch("BEGIN IMMEDIATE").expect("it begins");
    }

    async fn commit(&mut self) {
        self.0.execute_batch("COMMIT").expect("it commits");
    }

    async fn roll_back(&mut self) {
        self.0.execute_batch("ROLLBACK").expect("it rolls back");
    }

    async fn put(&mut self, id: &str) {
        self.0
            .execute("insert into business values (?1)", [id])
            .expect("it puts");
    }

    async fn rows(&mut self) -> i64 {
        let count = self
            .0
            .query_row("select count(*) from business", [], |row| row.get(0));
        count.expect("it counts")
    }

    async fn append(&mut self, r: &Registry, event: NewEvent) -> Result<Appended, AppendError> {
        on_rusqlite::append(&self.0, r, event)
    }

    async fn append_all(
        &mut self,
        r: &Registry,
        events: Vec<NewEvent>,
    ) -> Result<Vec<Appended>, BatchError> {
        on_rusqlite::append_all(&self.0, r, events)
    }

    async fn place(&mut self, r: &Registry, id: &str, event: NewEvent) -> Appended {
        let immediate = rusqlite::TransactionBehavior::Immediate;
        let transaction = self
            .0
            .transaction_with_behavior(immediate)
            .expect("it begins");
        transaction
            .execute("insert into business values (?1)", [id])
            .expect("it puts");
        let appended = on_rusqlite::append(&transaction, r, event);
        transaction.commit().expect("it commits");
        appended.expect("it appends")
    }
}
