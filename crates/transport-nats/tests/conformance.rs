//! The transport suite against real servers of both ends of the supported range.

mod support;

use support::{Current, Harness, Oldest};

mod oldest {
    use super::{Harness, Oldest};
    postrider_conformance::transport_suite!(Harness<Oldest>);
}

mod current {
    use super::{Current, Harness};
    postrider_conformance::transport_suite!(Harness<Current>);
}
