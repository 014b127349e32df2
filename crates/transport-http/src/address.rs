//! Which addresses a webhook may be sent to. Decided on parsed addresses, never on text.
//!
//! 1. Never, whatever is configured: unspecified, link-local, multicast, broadcast and the
//!    metadata services of cloud providers.
//! 2. Only inside a network of the allow-list: everything else that is not public, loopback and
//!    private networks included.
//! 3. Always: public addresses.
//!
//! An IPv4 address inside an IPv6 one (mapped, NAT64, 6to4) counts as the IPv4 address.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use serde::{Deserialize, Deserializer};

/// A network such as `10.0.0.0/8` or `fd00::/8`; a single address is a network of one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

/// Text that is not a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a network; write 10.1.0.0/16 or fd12::/16, with no bits set after the prefix"
)]
pub struct BadNetwork(String);

/// The rule that an address breaks. It says nothing about what answers there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error(
        "the address is link-local, multicast, unspecified or a metadata service; these are never \
         allowed"
    )]
    Never,
    #[error(
        "the address is not a public one; to allow it, add its network to allow_networks of this \
         connection"
    )]
    NotPublic,
    #[error("the name has no address")]
    NoAddress,
}

/// Checks one address.
///
/// # Errors
/// The rule it breaks.
pub fn check(address: IpAddr, allowed: &[Network]) -> Result<(), Refused> {
    let address = plain(address);
    let (never, public) = match address {
        IpAddr::V4(v4) => (never_v4(v4), public_v4(v4)),
        IpAddr::V6(v6) => (never_v6(v6), public_v6(v6)),
    };
    if never {
        return Err(Refused::Never);
    }
    if public || allowed.iter().any(|network| network.contains(address)) {
        return Ok(());
    }
    Err(Refused::NotPublic)
}

/// The IPv4 address inside an IPv6 one, where there is one.
fn plain(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else {
        return address;
    };
    let segments = v6.segments();
    let inner = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        IpAddr::V4(Ipv4Addr::new(a, b, c, d))
    };
    match segments {
        // Mapped, and the older "compatible" form; :: and ::1 are addresses of their own.
        [0, 0, 0, 0, 0, 0xffff, high, low] => inner(high, low),
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 => inner(high, low),
        // NAT64 and 6to4.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => inner(high, low),
        [0x2002, high, low, ..] => inner(high, low),
        _ => address,
    }
}

fn never_v4(v4: Ipv4Addr) -> bool {
    // 0.0.0.0/8 reaches the own host; the last two are metadata services outside link-local.
    v4.octets()[0] == 0
        || v4.is_link_local()
        || v4.is_multicast()
        || v4.is_broadcast()
        || v4 == Ipv4Addr::new(100, 100, 100, 200)
        || v4 == Ipv4Addr::new(192, 0, 0, 192)
}

fn never_v6(v6: Ipv6Addr) -> bool {
    let first = v6.segments()[0];
    // fe80::/10, the old site-local fec0::/10, and a metadata service inside fd00::/8.
    v6.is_unspecified()
        || v6.is_multicast()
        || first & 0xff80 == 0xfe80
        || v6 == Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)
}

fn public_v4(v4: Ipv4Addr) -> bool {
    let [a, b, c, _] = v4.octets();
    let shared = a == 100 && (64..128).contains(&b);
    let protocol = a == 192 && b == 0 && c == 0;
    let relay = a == 192 && b == 88 && c == 99;
    let benchmark = a == 198 && (b == 18 || b == 19);
    let reserved = a >= 240;
    !(v4.is_private()
        || v4.is_loopback()
        || v4.is_documentation()
        || shared
        || protocol
        || relay
        || benchmark
        || reserved)
}

/// Of IPv6 only 2000::/3 is public at all, and not its special parts: 2001::/23 (protocols,
/// Teredo among them), 2001:db8::/32 and 3fff::/20 (documentation).
fn public_v6(v6: Ipv6Addr) -> bool {
    let [first, second, ..] = v6.segments();
    let protocols = first == 0x2001 && second < 0x200;
    let documentation =
        (first == 0x2001 && second == 0xdb8) || (first == 0x3fff && second < 0x1000);
    first & 0xe000 == 0x2000 && !protocols && !documentation
}

impl Network {
    fn contains(self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                own.to_bits() & mask == other.to_bits() & mask
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let mask = u128::MAX
                    .checked_shl(128 - u32::from(self.bits))
                    .unwrap_or(0);
                own.to_bits() & mask == other.to_bits() & mask
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

impl FromStr for Network {
    type Err = BadNetwork;

    fn from_str(text: &str) -> Result<Self, BadNetwork> {
        let error = || BadNetwork(text.chars().take(60).collect());
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| error())?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            Some(bits) => bits.parse().map_err(|_| error())?,
            None => bits_max,
        };
        let rest_is_zero = match address {
            IpAddr::V4(v4) => v4.to_bits().checked_shl(bits.into()).unwrap_or(0) == 0,
            IpAddr::V6(v6) => v6.to_bits().checked_shl(bits.into()).unwrap_or(0) == 0,
        };
        if bits > bits_max || !rest_is_zero {
            return Err(error());
        }
        Ok(Self { address, bits })
    }
}

impl<'de> Deserialize<'de> for Network {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(address: &str, allowed: &[&str]) -> Result<(), Refused> {
        let allowed: Vec<Network> = allowed.iter().map(|text| text.parse().unwrap()).collect();
        check(address.parse().unwrap(), &allowed)
    }

    #[test]
    fn ssr_1_only_public_addresses_pass_by_themselves() {
        for public in [
            "1.1.1.1",
            "8.8.8.8",
            "172.15.0.1",
            "172.32.0.1",
            "100.63.0.1",
            "100.128.0.1",
            "2606:4700::1111",
            "2a00::1",
            "64:ff9b::8.8.8.8",
            "::ffff:8.8.8.8",
            "2002:808:808::1",
        ] {
            assert_eq!(verdict(public, &[]), Ok(()), "{public}");
        }
        for private in [
            "127.0.0.1",
            "127.1.2.3",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "100.64.0.1",
            "192.0.2.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "240.0.0.1",
            "192.88.99.1",
            "::1",
            "fd00::1",
            "fc00::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::10.0.0.1",
            "2002:a00:1::",
            "2001:db8::1",
            "2001::1",
            "64:ff9b:1::1",
            "100::1",
            "3fff::1",
            "4000::1",
        ] {
            assert_eq!(verdict(private, &[]), Err(Refused::NotPublic), "{private}");
        }
    }

    #[test]
    fn ssr_1_some_addresses_are_never_allowed() {
        let everything = ["0.0.0.0/0", "::/0"];
        for never in [
            "0.0.0.0",
            "0.1.2.3",
            "169.254.169.254",
            "169.254.0.1",
            "100.100.100.200",
            "192.0.0.192",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "ff02::1",
            "fd00:ec2::254",
            "::ffff:169.254.169.254",
            "64:ff9b::169.254.169.254",
            "2002:a9fe:a9fe::",
            "::ffff:0.0.0.0",
        ] {
            assert_eq!(verdict(never, &everything), Err(Refused::Never), "{never}");
        }
    }

    #[test]
    fn an_allowed_network_opens_itself_and_nothing_else() {
        let allowed = ["10.1.0.0/16", "127.0.0.1", "fd12::/16"];
        for inside in ["10.1.2.3", "127.0.0.1", "::ffff:10.1.0.1", "fd12:1::1"] {
            assert_eq!(verdict(inside, &allowed), Ok(()), "{inside}");
        }
        for outside in ["10.2.0.1", "127.0.0.2", "192.168.0.1", "fd13::1", "::1"] {
            assert_eq!(
                verdict(outside, &allowed),
                Err(Refused::NotPublic),
                "{outside}"
            );
        }
        assert_eq!(verdict("192.168.0.1", &["0.0.0.0/0"]), Ok(()));
    }

    #[test]
    fn networks_are_written_one_way() {
        for bad in [
            "",
            "10.0.0.0/33",
            "10.0.0.1/8",
            "10.0.0.0/",
            "ten",
            "::1/129",
            "fd00::1/8",
            "10.0.0.0/-1",
            "010.0.0.0/8",
        ] {
            assert!(bad.parse::<Network>().is_err(), "{bad}");
        }
        for good in [
            "10.0.0.0/8",
            "0.0.0.0/0",
            "::/0",
            "10.0.0.1",
            "fd00::/8",
            "::1/128",
        ] {
            assert!(good.parse::<Network>().is_ok(), "{good}");
        }
    }
}
