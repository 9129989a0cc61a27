//! Checksums of rows, and the digest over all of them.

use std::fmt;

/// 128 bits of BLAKE3. Sums of them, modulo 2¹²⁸, do not depend on the order and notice a row that is missing, twice, or
/// of another time; a change of one row changes the sum by the difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum(u128);

impl Sum {
    /// Returns the sum of some parts. Their lengths count, so that moving a boundary is noticed.
    pub(crate) fn of(parts: &[&str]) -> Self {
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        Self(u128::from_be_bytes(bytes))
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.0 = self.0.wrapping_add(other.0);
    }

    pub(crate) fn remove(&mut self, other: Self) {
        self.0 = self.0.wrapping_sub(other.0);
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Returns bytes as hexadecimal digits.
pub(crate) fn to_hex(bytes: &[u8; 32]) -> String {
    blake3::Hash::from_bytes(*bytes).to_hex().to_string()
}

/// Returns the bytes of 64 hexadecimal digits.
pub(crate) fn from_hex(text: &str) -> Option<[u8; 32]> {
    blake3::Hash::from_hex(text).ok().map(Into::into)
}
