//! The transport suite against a real broker: a queue behind an exchange, and a stream.

mod support;

use support::{Harness, Queue, Stream};

mod queue {
    use super::{Harness, Queue};
    postrider_conformance::transport_suite!(Harness<Queue>);
}

mod stream {
    use super::{Harness, Stream};
    postrider_conformance::transport_suite!(Harness<Stream>);
}
