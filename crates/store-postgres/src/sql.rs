//! Every statement, one per file, with the schema's name filled in once per store.

use std::time::Duration;

use crate::schema::Schema;

macro_rules! statements {
    ($($name:ident),* $(,)?) => {
        #[derive(Debug)]
        pub(crate) struct Sql {
            $(pub(crate) $name: String,)*
        }

        impl Sql {
            pub(crate) fn new(schema: &Schema, timeout: Duration) -> Self {
                let fill = |text: &str| {
                    schema.fill(text).replace("{timeout_ms}", &timeout.as_millis().to_string())
                };
                Self {
                    $($name: fill(include_str!(concat!("../sql/", stringify!($name), ".sql"))),)*
                }
            }

            /// Name and text of every statement, for the test that prepares them all.
            #[cfg(test)]
            pub(crate) fn all(&self) -> Vec<(&'static str, &str)> {
                vec![$((stringify!($name), self.$name.as_str())),*]
            }
        }
    };
}

statements! {
    abandon,
    acknowledge,
    acknowledge_each,
    append,
    append_at,
    apply_lock,
    attempts_known,
    audit,
    backlog,
    bounds,
    bounds_append,
    bounds_read,
    breakers_report,
    claim_lanes,
    deliveries,
    delivery_set_activate,
    delivery_set_add,
    delivery_set_fill,
    delivery_set_known,
    destination_add,
    destination_known,
    destinations_missing,
    digests_missing,
    duplicates,
    end_lock,
    end_session,
    event,
    event_attempts,
    event_deliveries,
    event_duplicates,
    event_receipts,
    event_type_set,
    events,
    evidence_claim,
    evidence_facts,
    evidence_lock,
    evidence_primary,
    evidence_quarantine,
    exclusive_open,
    expired_sessions,
    fence,
    fetch,
    finding,
    finish,
    heartbeat,
    held_by,
    lanes,
    old_snapshot,
    mark_next,
    migrations_applied,
    now,
    open_session,
    outcomes,
    quarantined,
    receipts,
    register,
    registry_delivery_set,
    registry_destinations,
    registry_event_types,
    release_lanes,
    replay,
    resolve_quarantine,
    resume,
    schema_there,
    session_known,
    sessions,
    set_asleep,
    shares,
    suspend,
    unfit,
}
