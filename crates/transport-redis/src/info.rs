//! What a server says of itself: `name:value` lines.

use std::collections::BTreeMap;

#[derive(Clone, Debug, Default)]
pub(crate) struct Info(BTreeMap<String, String>);

impl Info {
    pub(crate) fn read(text: &str) -> Self {
        let pairs = text.lines().filter_map(|line| line.split_once(':'));
        Self(
            pairs
                .map(|(name, value)| (name.to_owned(), value.trim_end().to_owned()))
                .collect(),
        )
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// How far each replica that is in step has come.
    pub(crate) fn replicas(&self) -> Vec<u64> {
        let count = self.number("connected_slaves").unwrap_or(0);
        (0..count)
            .filter_map(|n| self.text(&format!("slave{n}")))
            .filter(|replica| replica.contains("state=online"))
            .filter_map(|replica| {
                let mut fields = replica.split(',');
                fields
                    .find_map(|field| field.strip_prefix("offset="))?
                    .parse()
                    .ok()
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_in_step_are_counted_with_their_offsets() {
        let info = Info::read(
            "# Replication\r\nrole:master\r\nconnected_slaves:3\r\n\
             slave0:ip=127.0.0.1,port=1,state=online,offset=42,lag=0\r\n\
             slave1:ip=127.0.0.1,port=2,state=wait_bgsave,offset=0,lag=0\r\n\
             slave2:ip=::1,port=3,state=online,offset=40,lag=1\r\nmaster_repl_offset:42\r\n",
        );
        assert_eq!(info.replicas(), [42, 40]);
        assert_eq!(info.number("master_repl_offset"), Some(42));
        assert_eq!(info.text("role"), Some("master"));
    }
}
