//! The transport suite, with the server's memory of ids and without it.

mod support;

mod remembering {
    postrider_conformance::transport_suite!(crate::support::Harness<crate::support::Remembers>);
}

mod forgetting {
    postrider_conformance::transport_suite!(crate::support::Harness<crate::support::Forgets>);
}
