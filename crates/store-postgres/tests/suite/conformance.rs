//! PostgreSQL keeps every promise of the store port, reached directly and through PgBouncer in
//! transaction mode.

mod direct {
    use crate::harness::Direct;

    postrider_conformance::store_suite!(Direct);
}

mod pgbouncer {
    use crate::harness::Pooled;

    postrider_conformance::store_suite!(Pooled);
}
