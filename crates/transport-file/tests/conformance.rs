//! The transport suite against a real file.

mod support;

use support::Harness;

postrider_conformance::transport_suite!(Harness);
