//! Every statement of this store, one per file in `sql/`. No SQL is put together anywhere.

macro_rules! statements {
    ($($name:ident = $file:literal),* $(,)?) => {
        $(pub(crate) const $name: &str = include_str!(concat!("../sql/", $file, ".sql"));)*

        /// Name and text of each, for the test that prepares them all.
        #[cfg(test)]
        pub(crate) const ALL: &[(&str, &str)] = &[$(($file, $name)),*];
    };
}

statements! {
    APPEND_FIND = "append_find",
    APPEND_CONTEXT = "append_context",
    APPEND_EVENT = "append_event",
    MIGRATIONS_APPLIED = "migrations_applied",
    MIGRATION_RECORD = "migration_record",
    DESTINATIONS = "destinations",
    EVENT_TYPES = "event_types",
    DELIVERY_SET_ACTIVE = "delivery_set_active",
    DESTINATION_DIGEST = "destination_digest",
    DESTINATION_INSERT = "destination_insert",
    LANES_MAKE = "lanes_make",
    EVENT_TYPE_INSERT = "event_type_insert",
    EVENT_TYPE_FIND = "event_type_find",
    EVENT_TYPE_MAKE_CURRENT = "event_type_make_current",
    DELIVERY_SET_DIGEST = "delivery_set_digest",
    DELIVERY_SET_INSERT = "delivery_set_insert",
    DELIVERY_SET_EVENT_INSERT = "delivery_set_event_insert",
    DELIVERY_SET_MEMBER_INSERT = "delivery_set_member_insert",
    DESTINATION_BY_DIGEST = "destination_by_digest",
    DELIVERY_SET_ACTIVATE = "delivery_set_activate",
    DESTINATION_RESUME = "destination_resume",
    AUDIT_INSERT = "audit_insert",
    SESSION_FIND = "session_find",
    SESSION_INSERT = "session_insert",
    SESSION_DESTINATION_INSERT = "session_destination_insert",
    SESSION_EXCLUSIVE = "session_exclusive",
    SESSION_LIVE = "session_live",
    SESSION_EXTEND = "session_extend",
    SESSION_ASLEEP = "session_asleep",
    SESSION_END = "session_end",
    SESSIONS_EXPIRED = "sessions_expired",
    SESSION_LANES_FREE = "session_lanes_free",
    SESSION_BREAKERS_FORGET = "session_breakers_forget",
    SESSION_OPEN_ATTEMPTS = "session_open_attempts",
    BREAKER_REPORT = "breaker_report",
    BREAKER_CLOSE = "breaker_close",
    SESSION_SHARES = "session_shares",
    SESSION_LANES = "session_lanes",
    LANES_CLAIM = "lanes_claim",
    LANES_RELEASE = "lanes_release",
    EXCHANGE_DESTINATION = "exchange_destination",
    ATTEMPT_FIND = "attempt_find",
    ATTEMPT_RUNS = "attempt_runs",
    DELIVERY_CLOSE = "delivery_close",
    QUARANTINE_RESOLVE = "quarantine_resolve",
    RECEIPT_BATCH_INSERT = "receipt_batch_insert",
    RECEIPT_RUN_INSERT = "receipt_run_insert",
    DUPLICATE_INSERT = "duplicate_insert",
    DELIVERY_CHANGE = "delivery_change",
    QUARANTINE_INSERT = "quarantine_insert",
    DELIVERY_UNFIT = "delivery_unfit",
    EXCEPTION_INSERT = "exception_insert",
    ATTEMPT_FINISH = "attempt_finish",
    ATTEMPT_CLOSE = "attempt_close",
    DESTINATION_SUSPEND = "destination_suspend",
    ATTEMPT_REGISTER = "attempt_register",
    ATTEMPT_RUN_INSERT = "attempt_run_insert",
    ATTEMPT_OPEN = "attempt_open",
    FETCH = "fetch",
    FETCH_NEXT_DUE = "fetch_next_due",
    DELIVERY_ABANDON = "delivery_abandon",
    ATTEMPT_HAS_RECEIPT = "attempt_has_receipt",
    EVIDENCE_FIND = "evidence_find",
    DELIVERY_KEEP_ORDER = "delivery_keep_order",
    FINDING_UPSERT = "finding_upsert",
    CONFLICT_QUARANTINE = "conflict_quarantine",
    CONFLICT_RECORD = "conflict_record",
    RECEIPT_FIND = "receipt_find",
    DUPLICATES_FIND = "duplicates_find",
    EVENT_FIND = "event_find",
    EVENT_DELIVERIES = "event_deliveries",
    DELIVERY_ATTEMPTS = "delivery_attempts",
    EVENTS_PAGE = "events_page",
    EVENTS_PAGE_OF_KEY = "events_page_of_key",
    DELIVERIES_PAGE = "deliveries_page",
    DELIVERIES_PAGE_STUCK = "deliveries_page_stuck",
    DESTINATION_IDS = "destination_ids",
    HELD_BY = "held_by",
    TAIL_COUNT = "tail_count",
    QUARANTINED_PAGE = "quarantined_page",
    REPLAY_SELECT = "replay_select",
    DELIVERY_REPLAY = "delivery_replay",
    BACKLOG = "backlog",
    SESSIONS_PAGE = "sessions_page",
    LANES_ALL = "lanes_all",
}

#[cfg(test)]
mod tests {
    use std::{fmt::Write as _, fs, path::Path};

    use rusqlite::Connection;

    use super::ALL;
    use crate::schema::MIGRATIONS;

    /// Statements whose cost matters: those of the hot path, and those that may meet a large
    /// backlog or a long history.
    const PLANNED: &[&str] = &[
        "append_find",
        "append_context",
        "session_live",
        "attempt_find",
        "attempt_runs",
        "delivery_close",
        "delivery_change",
        "fetch",
        "fetch_next_due",
        "session_open_attempts",
        "attempt_has_receipt",
        "evidence_find",
        "delivery_keep_order",
        "receipt_find",
        "delivery_attempts",
        "event_deliveries",
        "events_page",
        "events_page_of_key",
        "deliveries_page",
        "deliveries_page_stuck",
        "held_by",
        "tail_count",
        "quarantined_page",
        "replay_select",
        "backlog",
    ];

    fn database() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        for migration in MIGRATIONS {
            connection.execute_batch(migration).unwrap();
        }
        connection
    }

    #[test]
    fn every_file_is_a_statement_of_the_schema() {
        let connection = database();
        for (name, text) in ALL {
            if let Err(error) = connection.prepare(text) {
                panic!("sql/{name}.sql: {error}");
            }
        }
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("sql");
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
            assert!(
                ALL.iter().any(|(name, _)| *name == stem),
                "{} is not used",
                path.display()
            );
        }
    }

    #[test]
    fn plans_are_those_that_were_looked_at() {
        let connection = database();
        let mut plans = String::new();
        for name in PLANNED {
            let (_, text) = ALL
                .iter()
                .find(|(known, _)| known == name)
                .expect("a statement");
            writeln!(plans, "{name}").unwrap();
            let mut statement = connection
                .prepare(&format!("EXPLAIN QUERY PLAN {text}"))
                .unwrap();
            let mut depths = std::collections::BTreeMap::from([(0, 0)]);
            let mut rows = statement.raw_query();
            while let Some(row) = rows.next().unwrap() {
                let (id, parent): (i64, i64) = (row.get(0).unwrap(), row.get(1).unwrap());
                let detail: String = row.get(3).unwrap();
                let depth = depths[&parent] + 1;
                depths.insert(id, depth);
                writeln!(plans, "{}{detail}", "  ".repeat(depth)).unwrap();
            }
        }
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("plans.txt");
        if std::env::var_os("POSTRIDER_REGENERATE").is_some() {
            fs::write(&path, &plans).unwrap();
        }
        let known = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            plans == known,
            "plans.txt is not what SQLite plans; look at the difference, and run this test with POSTRIDER_REGENERATE=1 if it is right:\n{plans}"
        );
    }
}
