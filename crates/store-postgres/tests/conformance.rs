//! PostgreSQL keeps every promise of the store port, reached directly and through PgBouncer in
//! transaction mode.

mod harness;

mod direct {
    use super::harness::Direct;

    postrider_conformance::store_suite!(Direct);
}

mod pgbouncer {
    use super::harness::Pooled;

    postrider_conformance::store_suite!(Pooled);
}
