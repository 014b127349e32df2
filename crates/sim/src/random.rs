//! Numbers that depend on nothing but a seed and what they are for. No stream is shared: leaving
//! one fault out changes no other draw, which is what makes shrinking work.

/// A short stream of numbers for one purpose.
#[derive(Clone, Debug)]
pub(crate) struct Draw(u64);

impl Draw {
    /// The stream of `seed` for a purpose that these words name.
    pub(crate) fn of(seed: u64, purpose: &[u64]) -> Self {
        let state = purpose.iter().fold(mix(seed), |state, word| {
            mix(state ^ word.wrapping_mul(0x9e37_79b9_7f4a_7c15))
        });
        Self(state)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// From 0 to `end` - 1.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// From `start` to `end` - 1.
    pub(crate) fn between(&mut self, start: u64, end: u64) -> u64 {
        start + self.below(end - start)
    }

    pub(crate) fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }

    pub(crate) fn index(&mut self, len: usize) -> usize {
        let len = u64::try_from(len).expect("a length fits");
        usize::try_from(self.below(len)).expect("an index fits")
    }

    /// Small values are as likely as large ones, by magnitude: half of them are below the
    /// geometric mean of the bounds.
    pub(crate) fn skewed(&mut self, start: u64, end: u64) -> u64 {
        let mut high = end;
        while high / 2 > start && self.percent(50) {
            high /= 2;
        }
        self.between(start, high.max(start + 1))
    }
}

/// The finaliser of `SplitMix64`.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
