//! The transport suite against a real receiver.

mod support;

use support::Harness;

postrider_conformance::transport_suite!(Harness);
