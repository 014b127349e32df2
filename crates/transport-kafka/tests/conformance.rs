//! The transport suite against a real broker.

mod support;

use support::Harness;

postrider_conformance::transport_suite!(Harness);
