//! The reference model keeps every promise of the store port.

use postrider_conformance::store::memory::Memory;

postrider_conformance::store_suite!(Memory);
