//! Which partition a key goes to, by the algorithm that the destination names.

use postrider_contract::destination::Partitioner;

/// As the Java client: keys that were ever produced by it stay on their partitions. An empty key
/// is a key; no key at all is not asked about here.
fn murmur2(data: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    const R: u32 = 24;
    // The algorithm takes the length modulo 2^32.
    let length = u32::try_from(data.len() & 0xffff_ffff).unwrap_or(u32::MAX);
    let mut h = SEED ^ length;
    let mut words = data.chunks_exact(4);
    for word in &mut words {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(word);
        let mut k = u32::from_le_bytes(bytes);
        k = k.wrapping_mul(M);
        k ^= k >> R;
        k = k.wrapping_mul(M);
        h = h.wrapping_mul(M) ^ k;
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        for (at, byte) in rest.iter().enumerate() {
            h ^= u32::from(*byte) << (8 * at);
        }
        h = h.wrapping_mul(M);
    }
    h ^= h >> 13;
    h = h.wrapping_mul(M);
    h ^ (h >> 15)
}

/// CRC-32 as in zlib, bit by bit: keys are short.
fn crc32(data: &[u8]) -> u32 {
    let crc = data.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg())
        })
    });
    !crc
}

/// The partition of a key among `count`; `None`: the algorithm leaves it open.
pub(crate) fn partition(how: Partitioner, key: &[u8], count: u32) -> Option<u32> {
    if count == 0 {
        return None;
    }
    match how {
        Partitioner::Murmur2 => Some((murmur2(key) & 0x7fff_ffff) % count),
        // librdkafka's `consistent_random` takes an empty key for none.
        Partitioner::Crc32 if key.is_empty() => None,
        Partitioner::Crc32 => Some(crc32(key) % count),
        Partitioner::None | Partitioner::Explicit => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of the Java client's own tests (`UtilsTest.testMurmur2`).
    #[test]
    fn kaf_1_murmur2_is_the_java_clients() {
        for (text, hash) in [
            ("21", -973_932_308_i32),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            (
                "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8",
                -58_897_971,
            ),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(text.as_bytes()).cast_signed(), hash, "{text}");
        }
    }

    #[test]
    fn kaf_1_keys_go_where_other_clients_put_them() {
        let long = "fd7af248-ce5c-46a5-93d7-1c0c9005b99d";
        let check = |how, key: &str, count, expect| {
            assert_eq!(
                partition(how, key.as_bytes(), count),
                expect,
                "{how:?} {key}"
            );
        };
        check(Partitioner::Murmur2, "TT0124", 15, Some(10));
        check(Partitioner::Murmur2, long, 32, Some(26));
        check(Partitioner::Murmur2, "", 6, Some(3));
        check(Partitioner::Crc32, "TT0124", 15, Some(9));
        check(Partitioner::Crc32, long, 32, Some(23));
        check(Partitioner::Crc32, "", 6, None);
        check(Partitioner::Murmur2, "TT0124", 0, None);
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }
}
