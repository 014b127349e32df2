//! The words of an anchor: per topic and partition, the end of the log before the attempt.

use std::collections::BTreeMap;

use postrider_transport::Anchor;

/// What the port allows, with room to spare.
const BYTES_MAX: usize = 60 * 1024;

/// By topic and partition.
pub(crate) type Ends = BTreeMap<String, BTreeMap<u32, u64>>;

/// `None`: there are too many of them, and a probe starts at each partition's beginning.
pub(crate) fn write(ends: &Ends) -> Option<Anchor> {
    let text = serde_json::to_string(ends).ok()?;
    (text.len() <= BYTES_MAX).then(|| Anchor(text.into()))
}

/// `None`: another transport made it.
pub(crate) fn read(anchor: &Anchor) -> Option<Ends> {
    serde_json::from_str(&anchor.0).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_anchor_comes_back_and_foreign_ones_do_not() {
        let ends = Ends::from([("orders".to_owned(), BTreeMap::from([(0, 7), (12, 0)]))]);
        let anchor = write(&ends).unwrap();
        assert_eq!(&*anchor.0, r#"{"orders":{"0":7,"12":0}}"#);
        assert_eq!(read(&anchor), Some(ends));
        assert_eq!(read(&Anchor::number(7)), None);
        let many = Ends::from([("x".to_owned(), (0..9_000).map(|n| (n, 1)).collect())]);
        assert_eq!(write(&many), None);
    }
}
