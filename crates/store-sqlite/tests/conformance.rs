//! SQLite keeps every promise of the store port.

mod support;

use support::Sqlite;

postrider_conformance::store_suite!(Sqlite);
